"""Part `answers`: ordinary input in all the ways it may come, and what another program answers.

Streams with weights, batches and cuts, runs that go on, several classes, sparse rows, float64, kernel caches smaller than
the rows, nu machines, regression, derivatives, samplers, files of other programs. All of it must be taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, losses, models, samplers

from . import oracles
from .cases import Case
from .oracles import Kernel

N, D = 30, 3
KEY = jax.random.key(0)
ORDER = samplers.epochs(1, shuffle=False)


def problem(case: Case, n: int = N, classes: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in float32, labels or class numbers, and weights."""
    random = case.random
    x = random.normal(size=(n, D)).astype("f4")
    if classes == 2:
        y = np.where(x @ [1.0, 0.5, 0] + 0.7 * random.normal(size=n) > 0, 1, -1)
        y[:2] = 1, -1
    else:
        y = np.argmax(x @ random.normal(size=(D, classes)) + 0.5 * random.normal(size=(n, classes)), 1)
        y[: 2 * classes] = np.arange(2 * classes) % classes
    weight = random.choice([0.5, 1, 2, 3], n) if case.one((True, True, False)) else np.ones(n)
    return x, y, weight


def wide(*arrays: Any) -> list[np.ndarray]:
    """Arrays in float64."""
    return [np.asarray(a, np.float64) for a in arrays]


def near(case: Case, have: Any, want: np.ndarray, what: str, room: float = 1e-2) -> None:
    """Compare values up to a room relative to the largest one."""
    have = np.asarray(have, np.float64)
    case.expect(have.shape == want.shape, f"{what} has shape {have.shape}, expected {want.shape}")
    off, size = np.abs(have - want).max(initial=0), max(1.0, float(np.abs(want).max(initial=0)))
    case.compare(off <= room * size, f"{what} is off by {off:.3g} of {size:.3g}")


def near_optimum(case: Case, have: Any, best: oracles.Optimum, what: str, room: float = 1e-2) -> None:
    """Compare decision values with those of an optimum, whose bias may be an interval."""
    off = np.asarray(have, np.float64) - best.scores
    near(case, have, best.scores + np.clip(np.median(off), best.low, best.high), what, room)


def both(case: Case, x: np.ndarray) -> Any:
    """The rows, dense or sparse."""
    return scipy.sparse.csr_matrix(x) if case.rarely(3) else x


def cut(case: Case, n: int) -> list[slice]:
    """Chunks of up to ten rows, the first of ten, so that they share programs."""
    ends = [10]
    while ends[-1] < n:
        ends.append(min(ends[-1] + int(case.random.integers(1, 11)), n))
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def again(case: Case, state: Any) -> Any:
    """A state saved and loaded."""
    models.save(case.folder / "state.npz", state)
    return models.load(case.folder / "state.npz")


# Streams and runs that go on


def weighted_stream(case: Case) -> None:
    """Pegasos over chunks, batches of several rows, weights, bias; cut in two, saved and gone on with."""
    x, y, _ = problem(case)
    weight = case.random.choice([0.25, 1, 3, 5], N)
    turn = case.seed // len(KINDS)
    batch, bias = (1, 4, 3)[turn % 3], ("none", "feature")[turn % 2]
    solver = jaxsvm.pegasos(0.1, bias=bias)
    parts = [(x[part], y[part], weight[part]) for part in cut(case, N)]
    at = int(case.random.integers(1, len(parts) + 1))
    text = f"stream(pegasos, {len(parts)} chunks, batch_size={batch}, bias={bias!r}, cut after {at})"
    run = case.attempt(text, jaxsvm.stream, solver, parts[:at], KEY, batch_size=batch, must=True)
    if at < len(parts):
        run = case.attempt(text, jaxsvm.stream, solver, parts[at:], state=again(case, run.state), must=True)
    want = oracles.pegasos(*wide(x, y, weight), batch=batch, bias=bias)
    near(case, run.model.w, want[:D], "w", 1e-3)
    near(case, run.model.b, want[D:].sum(), "b", 1e-3)
    case.compare(int(run.state.n_pending) == N % batch and int(run.state.step) == N // batch, "other numbers of steps")


def dual_stream(case: Case) -> None:
    """Coordinate ascent over two passes of chunks, cut in three: each row keeps its own coefficient."""
    x, y, _ = problem(case)
    C = float(np.float32(case.one((0.3, 1.0, 10.0))))
    parts = [(x[part], y[part]) for part in cut(case, N) * 2]
    first, second = sorted(case.random.choice(np.arange(1, len(parts)), 2, replace=False).tolist())
    text = f"stream(sdca({C:g}), {len(parts)} chunks, rows={N}, cut after {first} and {second})"
    run = case.attempt(text, jaxsvm.stream, jaxsvm.sdca(C), parts[:first], KEY, rows=N, must=True)
    for left in (parts[first:second], parts[second:]):
        run = case.attempt(text, jaxsvm.stream, jaxsvm.sdca(C), left, state=again(case, run.state), rows=N, must=True)
    x, y = wide(x, y)
    near(case, run.model.w, oracles.sdca(x @ x.T, y, C, np.arange(2 * N) % N) @ x, "w", 1e-3)


def run_gone_on_with(case: Case) -> None:
    """Kernel coordinate ascent over the rows in their order, in two pieces."""
    x, y, weight = problem(case)
    bias = ("feature", "none")[case.seed // len(KINDS) % 2]
    C, kernel = float(np.float32(case.one((0.3, 1.0, 10.0)))), Kernel("rbf", 0.5)
    data, solver, steps = oracles.batch(x, y, weight), jaxsvm.sdca(C, kernel.made(), bias=bias), int(case.random.integers(1, 90))
    text = f"fit(sdca({C:g}, rbf, bias={bias!r}), {steps} and {90 - steps} steps)"
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, steps=steps, every=10, sampler=ORDER, must=True)
    how: dict[str, Any] = {"steps": 90 - steps, "every": 10, "sampler": ORDER}
    run = case.attempt(text, jaxsvm.fit, solver, data, state=again(case, run.state), must=True, **how)
    x, y, weight = wide(x, y, weight)
    near(
        case,
        run.model.coef,
        oracles.sdca(kernel.block(x, x) + (bias == "feature"), y, C, np.arange(90) % N, weight),
        "coef",
        1e-3,
    )


# Optima


def weighted_machine(case: Case) -> None:
    """Exact machines with weights, dense and sparse, beside LIBSVM."""
    x, y, weight = problem(case)
    weight[2:5] = case.one((0, 1))
    kernel = Kernel(case.block(16).one(("rbf", "polynomial", "linear")), 0.5)
    C = float(np.float32(case.one((0.3, 1.0, 10.0))))
    text = f"fit(decomposition({C:g}, {kernel.name}), weights, tol=1e-4)"
    data, solver = oracles.batch(both(case, x), y, weight), jaxsvm.decomposition(C, kernel.made())
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, tol=1e-4, steps=2, must=True)
    best = oracles.with_bias(kernel.block(x, x), y, C, weight)
    have = case.attempt(f"model(x) of {text}", run.model, x, must=True)
    if best.exact and run.converged:
        near_optimum(case, have, best, "decision values")


def small_cache(case: Case) -> None:
    """A kernel cache smaller than the rows: every slot is used again and again."""
    x, y, weight = problem(case, 160)
    C, kernel = float(np.float32(case.one((1.0, 10.0)))), Kernel("rbf", float(np.float32(case.one((0.3, 1.0)))))
    text = f"fit(decomposition({C:g}, rbf, working_set=16, memory=1), 160 rows)"
    solver = jaxsvm.decomposition(C, kernel.made(), working_set=16, memory=1)
    data = oracles.batch(x, y, weight)
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, tol=1e-3, steps=2, must=True)
    case.expect(run.converged, "not converged")
    best = oracles.with_bias(kernel.block(x, x), y, C, weight)
    near_optimum(case, case.attempt(f"model(x) of {text}", run.model, x, must=True), best, "decision values", 2e-2)


def several_classes(case: Case) -> None:
    """One against one and one against the rest, of four or five classes, problem by problem."""
    turn = case.seed // len(KINDS)
    k, pairs = (4, 5, 4)[turn % 3], turn % 2 == 0
    x, y, weight = problem(case, N, k)
    C, kernel = float(np.float32(case.one((1.0, 10.0)))), Kernel("rbf", 0.5)
    make = jaxsvm.one_vs_one if pairs else jaxsvm.one_vs_rest
    name = ("decomposition", "sdca", "sdca")[turn // 2 % 3]
    inner, how = jaxsvm.decomposition(C, kernel.made()), {"steps": 2, "tol": 1e-4}
    if name == "sdca":
        inner, how = jaxsvm.sdca(C, kernel.made()), {"steps": 400 * N, "every": 20 * N, "tol": 1e-5, "sampler": ORDER}
    solver = make(inner, classes=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = jaxsvm.dataset(x, y, weight, task="multiclass")
    text = f"fit({make.__name__}({name}({C:g}, rbf), classes={k}))"
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, must=True, **how)
    have = np.asarray(run.model.pairs(x) if pairs else run.model(x))
    gram = kernel.block(x, x)
    problems = [(a, b) for a in range(k) for b in range(a + 1, k)] if pairs else [(c, None) for c in range(k)]
    scores = []
    for column, (a, b) in enumerate(problems):
        live = ((y == a) | (y == b)) if pairs else np.ones(N, bool)
        answer = oracles.without_bias if name == "sdca" else oracles.with_bias
        best = answer(gram, np.where(y == a, 1, -1), C, np.where(live, weight, 0))
        if best.exact and run.converged:
            off = (have[:, column] - best.scores)[live]
            near(case, have[live, column], best.scores[live] + np.clip(np.median(off), best.low, best.high), f"problem {a}, {b}")
        scores.append(have[:, column])
        if pairs:
            alone = case.attempt(f"model[{a}, {b}](x) of {text}", lambda a=a, b=b: run.model[a, b](x), must=True)
            near(case, alone, have[:, column], f"the model of {a} and {b} alone", 1e-4)
    votes = np.stack(scores, 1)
    if pairs:
        votes = np.zeros((N, k))
        for value, (a, b) in zip(scores, problems, strict=True):
            votes[np.arange(N), np.where(value >= 0, a, b)] += 1
    found = np.asarray(case.attempt(f"model(x) of {text}", run.model, x, must=True))
    top = votes.max(1, keepdims=True) == votes
    case.compare(top[np.arange(N), np.argmax(found, 1)].all(), "a class without the most votes was chosen")


def nu_machine(case: Case) -> None:
    """nu-SVC, one-class and nu-SVR machines with weights beside LIBSVM."""
    from sklearn import svm

    x, y, weight = problem(case)
    form, nu, gamma = case.block(16).one(("nu_svc", "one_class", "nu_svr")), case.one((0.1, 0.2, 0.4)), 0.5
    nu = float(np.float32(nu))
    target = x[:, 0] + 0.1 * case.random.normal(size=N) if form == "nu_svr" else y
    nu = min(nu, 1.8 * min(weight[y > 0].sum(), weight[y < 0].sum()) / weight.sum()) if form == "nu_svc" else nu
    kernel = kernels.rbf(gamma=gamma)
    solver, other = {
        "nu_svc": (jaxsvm.nu_svc(nu, kernel), svm.NuSVC(nu=nu, gamma=gamma, tol=1e-8)),
        "one_class": (jaxsvm.one_class(nu, kernel), svm.OneClassSVM(nu=nu, gamma=gamma, tol=1e-8)),
        "nu_svr": (jaxsvm.nu_svr(nu, 10.0, kernel), svm.NuSVR(nu=nu, C=10.0, gamma=gamma, tol=1e-8)),
    }[form]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = jaxsvm.dataset(x, target.astype("f4"), weight, task="regression" if form == "nu_svr" else "binary")
        how = (x,) if form == "one_class" else (x, target)
        other.fit(*how, sample_weight=weight)
        want = other.predict(x) if form == "nu_svr" else other.decision_function(x)
    text = f"fit({form}({nu:g}, rbf), tol=1e-5)"
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, tol=1e-5, steps=2, must=True)
    have = np.asarray(case.attempt(f"model(x) of {text}", run.model, x, must=True), np.float64)
    if form == "one_class":  # LIBSVM's coefficients sum to nu n, ours to nu W; its size is fixed by the sum of weights
        have, want = have / np.abs(have).max(), want / np.abs(want).max()
    near(case, have, want, "decision values", 2e-2)


def regression(case: Case) -> None:
    """Epsilon-insensitive regression beside LIBSVM, targets near and far from 0."""
    from sklearn.svm import SVR

    x, _, weight = problem(case)
    scale, offset = case.one((1.0, 100.0)), case.one((0.0, 10.0))
    y = (scale * (np.sin(2 * x[:, 0]) + offset + 0.1 * case.random.normal(size=N))).astype("f4")
    C, eps = float(np.float32(case.one((1.0, 10.0)) * scale)), float(np.float32(0.1 * scale))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = jaxsvm.dataset(x, y, weight, task="regression")
        want = SVR(C=C, epsilon=eps, gamma=0.5, tol=1e-6 * scale).fit(x, y, sample_weight=weight).predict(x)
    solver = jaxsvm.decomposition(C, kernels.rbf(gamma=0.5), loss=losses.eps_insensitive(eps))
    text = f"fit(decomposition({C:g}, rbf, eps={eps:g})), targets near {offset * scale:g}"
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, tol=1e-4 * scale, steps=3, must=True)
    have = case.attempt(f"model(x) of {text}", run.model, x, must=True)
    near(case, (np.asarray(have) - offset * scale) / scale, (want - offset * scale) / scale, "predictions")


def linear_machine(case: Case) -> None:
    """Linear machines of other methods, dense and sparse, beside LIBLINEAR."""
    from sklearn.svm import LinearSVC

    x, y, weight = problem(case)
    lam, bias = float(np.float32(case.one((0.003, 0.03, 0.3)))), case.block(16).one(("feature", "none"))
    solver = case.block(16).one((jaxsvm.newton, jaxsvm.newton, jaxsvm.ocas))
    loss = losses.squared_hinge if solver is jaxsvm.newton else losses.hinge
    how: dict[str, Any] = {"steps": 300, "every": 1, "tol": 1e-6} if solver is jaxsvm.newton else {"steps": 300, "tol": 1e-5}
    other = LinearSVC(loss="squared_hinge" if solver is jaxsvm.newton else "hinge", C=1 / (lam * weight.sum()), tol=1e-8,
                      max_iter=10**6, dual=True, fit_intercept=bias == "feature", random_state=0)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = other.fit(x, y, sample_weight=weight).decision_function(x)
    data = oracles.batch(both(case, x), y, weight)
    text = f"fit({solver.__name__}({lam:g}, bias={bias!r}), {'sparse' if hasattr(data.x, 'toarray') else 'dense'})"
    run = case.attempt(text, lambda: jaxsvm.fit(solver(lam, loss=loss, bias=bias), data, KEY, **how), must=True)
    near(case, case.attempt(f"model(x) of {text}", run.model, x, must=True), want, "decision values")


def drawn_rows(case: Case) -> None:
    """Coordinate ascent over rows drawn by all samplers, with weights: the same optimum."""
    x, y, weight = problem(case)
    C, kernel = float(np.float32(case.one((0.3, 1.0, 10.0)))), Kernel("rbf", 0.5)
    name = case.block(16).one(("acf", "active_rows", "shrinking", "uniform", "epochs"))
    sampler = getattr(samplers, name)(1)
    text = f"fit(sdca({C:g}, rbf), sampler={name})"
    data, solver = oracles.batch(x, y, weight), jaxsvm.sdca(C, kernel.made())
    run = case.attempt(text, jaxsvm.fit, solver, data, KEY, sampler=sampler, steps=400 * N, every=20 * N, tol=1e-5, must=True)
    best = oracles.without_bias(kernel.block(x, x), y, C, weight)
    have = case.attempt(f"model(x) of {text}", run.model, x, must=True)
    near_optimum(case, have, best, "decision values")
    # In the first pass each row is drawn once, whatever its weight.
    state = sampler.init(KEY, data)
    drawn = np.asarray(sampler.draw(state, 0, N)).ravel()
    counts = np.bincount(drawn[drawn >= 0], minlength=N)
    if name in ("epochs", "active_rows"):
        case.compare(counts.max() == 1 and counts.sum() == N, f"a pass draws {counts.tolist()}")


def wide_numbers(case: Case) -> None:
    """float64: answers to nine digits."""
    x, y, weight = problem(case)
    C, kernel = case.one((0.3, 1.0, 10.0)), Kernel("rbf", 0.5)
    text = f"fit(decomposition({C:g}, rbf)) in float64"
    with jax.enable_x64(True):
        data = oracles.batch(x.astype("f8"), y, weight)
        solver = jaxsvm.decomposition(C, kernel.made())
        run = case.attempt(text, jaxsvm.fit, solver, data, KEY, tol=1e-9, steps=2, must=True)
        have = np.asarray(case.attempt(f"model(x) of {text}", run.model, data.x, must=True))
        case.expect(have.dtype == np.float64, f"decision values in {have.dtype}")
    best = oracles.with_bias(kernel.block(x, x), y, C, weight)
    near_optimum(case, have, best, "decision values", 1e-6)


def derivative(case: Case) -> None:
    """Derivatives of a decision value in C, nu and the width beside differences of LIBSVM's solutions."""
    from sklearn import svm

    x, y, _ = problem(case)
    form, name = case.block(16).one((("svc", "C"), ("svc", "gamma"), ("nu_svc", "nu"), ("nu_svc", "gamma")))
    x = x.astype("f8")
    at = {"C": 1.0, "gamma": 0.5, "nu": 0.3}
    share = 1.8 * min((y > 0).sum(), (y < 0).sum()) / N
    at["nu"] = min(at["nu"], share)
    point = x[3] + 0.1

    def other(value: float) -> float:
        numbers = at | {name: value}
        made = svm.SVC(C=numbers["C"], gamma=numbers["gamma"], tol=1e-12) if form == "svc" else svm.NuSVC(
            nu=numbers["nu"], gamma=numbers["gamma"], tol=1e-12)  # fmt: skip
        return float(made.fit(x, y).decision_function(point[None])[0])

    h = 1e-3 * at[name]
    slopes = [(other(at[name] + step) - other(at[name] - step)) / (2 * step) for step in (h, h / 4)]
    text = f"the derivative of {form} in {name}"
    with jax.enable_x64(True):
        data = oracles.batch(x, y)

        def value(number):
            numbers = {key: jnp.float64(v) for key, v in at.items()} | {name: number}
            kernel = kernels.rbf(gamma=numbers["gamma"])
            solver = jaxsvm.decomposition(numbers["C"], kernel) if form == "svc" else jaxsvm.nu_svc(numbers["nu"], kernel)
            return jaxsvm.fit(solver, data, KEY, tol=1e-10, steps=1).model(point[None])[0]

        have = case.attempt(text, lambda: float(jax.grad(value)(jnp.float64(at[name]))), must=True)
    if abs(slopes[0] - slopes[1]) <= 2e-3 * max(1, abs(slopes[1])):  # no coefficient reaches a bound in between
        near(case, have, np.asarray(slopes[1]), "the derivative", 5e-3)


# Other programs


def other_program(case: Case) -> None:
    """Machines of scikit-learn and files of LIBSVM, there and back, of two and of four classes."""
    from libsvm import svmutil
    from sklearn import svm

    k = case.one((2, 4, 5))
    x, y, _ = problem(case, N, k)
    y = 3 * y + 7  # labels that are no class numbers
    form = (svm.SVC, svm.OneClassSVM, svm.SVC, svm.SVR)[case.seed // len(KINDS) % 4]
    machine = form(gamma=0.5, **{"C": 10.0} if form is not svm.OneClassSVM else {"nu": 0.2})
    machine.set_params(**{"decision_function_shape": "ovo"} if form is svm.SVC else {})
    machine.fit(x, x[:, 0] if form is svm.SVR else y)
    text = f"from_sklearn({form.__name__}, {k} classes)"
    model = case.attempt(text, models.from_sklearn, machine, must=True)
    pairs = lambda model: np.asarray((inner := getattr(model, "inner", model)) and getattr(inner, "pairs", inner)(x))
    want = machine.predict(x) if form is svm.SVR else machine.decision_function(x)
    near(case, pairs(model), want if k > 2 or form is not svm.SVC else want, "decision values", 1e-3)
    path = case.folder / "a.model"
    task = None if form is svm.SVC else "regression"
    case.attempt(f"to_libsvm of {text}", models.to_libsvm, model, path, must=True, task=task)
    loaded = svmutil.svm_load_model(str(path))
    labels, _, values = svmutil.svm_predict([0] * N, x.astype("f8"), loaded, "-q")
    values = np.asarray(values)
    if form is svm.SVC:
        case.compare(np.mean(np.asarray(labels) == machine.predict(x)) > 0.95, "LIBSVM reads other classes")
    else:
        near(case, values[:, 0], want, "what LIBSVM reads", 1e-3)
    back = case.attempt(f"from_libsvm of {text}", models.from_libsvm, path, must=True)
    near(case, np.abs(pairs(back)), np.abs(want), "what comes back", 1e-3)


def objective_values(case: Case) -> None:
    """Objectives and the primal of a certificate, of weighted rows, to nine digits."""
    x, y, weight = problem(case)
    data, lam = oracles.batch(x, y, weight), float(np.float32(case.one((0.01, 0.1, 1.0))))
    model = models.Linear(jnp.asarray(case.random.normal(size=D), "f4"), jnp.float32(0.3), "free")
    w = np.asarray(model.w, np.float64)
    want = lam / 2 * w @ w + oracles.hinge(oracles.scores(model, x), y, weight)
    text = f"certificate(Linear, lam={lam:g})"
    have = case.attempt(text, lambda: jaxsvm.certificate(model, data, lam), must=True)
    near(case, have.primal, np.float64(want), "the primal", 1e-9)
    case.compare(have.gap >= 0 and have.dual <= want, "a dual above the primal")


def kernel_block(case: Case) -> None:
    """Values between two sets of rows, near the origin and far from it, and those of rows with themselves."""
    kernel = Kernel(case.one(("rbf", "laplacian", "polynomial", "rbf + linear", "0.5 rbf + laplacian", "rbf * polynomial")), 0.5)
    far = 1000.0 if kernel.name in ("rbf", "laplacian", "0.5 rbf + laplacian") and case.one((True, False)) else 0.0
    x = (case.random.normal(size=(12, D)) + far).astype("f4")
    z = (case.random.normal(size=(7, D)) + far + 0.7).astype("f4")
    made = kernel.made()
    have = case.attempt(f"{kernel.name}(x, z), offset {far:g}", lambda: (made(x, z), made.diag(x)), must=True)
    near(case, have[0], kernel.block(x, z), "a block", 1e-3)
    near(case, have[1], np.diag(kernel.block(x, x)), "the diagonal", 1e-3)


def features_of(case: Case) -> None:
    """Nystrom maps beside the pseudo-inverse of NumPy, and what they do to a machine."""
    x, _, _ = problem(case)
    kernel = Kernel(case.block(16).one(("rbf", "laplacian", "polynomial")), 0.5)
    marks = x[case.random.permutation(N)[:8]]
    phi = case.attempt(f"nystrom({kernel.name})", lambda: features.nystrom(None, kernel.made(), landmarks=marks), must=True)
    have = np.asarray(phi(x), np.float64)
    cross = kernel.block(x, marks)
    near(case, have @ have.T, cross @ np.linalg.pinv(kernel.block(marks, marks), 1e-9) @ cross.T, "phi(x) phi(x)'", 1e-2)


KINDS: dict[str, Callable[[Case], None]] = {
    fn.__name__: fn
    for fn in (
        weighted_stream,
        dual_stream,
        run_gone_on_with,
        weighted_machine,
        small_cache,
        several_classes,
        nu_machine,
        regression,
        linear_machine,
        drawn_rows,
        wide_numbers,
        derivative,
        other_program,
        kernel_block,
        objective_values,
        features_of,
    )  # fmt: skip
}


def run(case: Case) -> None:
    """One case of the part: the kinds take turns."""
    KINDS[list(KINDS)[case.seed % len(KINDS)]](case)
