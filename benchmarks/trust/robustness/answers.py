"""Part `answers`: ordinary input in all the ways it may come, and what another program answers.

Streams with weights, batches and cuts, runs that go on, several classes, kernel caches smaller than the rows, files of other
programs, kernels, objectives. All of it must be taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import models, samplers

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


KINDS: dict[str, Callable[[Case], None]] = {
    fn.__name__: fn
    for fn in (
        weighted_stream,
        dual_stream,
        run_gone_on_with,
        small_cache,
        several_classes,
        other_program,
        kernel_block,
        objective_values,
    )  # fmt: skip
}


def run(case: Case) -> None:
    """One case of the part: the kinds take turns."""
    KINDS[list(KINDS)[case.seed % len(KINDS)]](case)
