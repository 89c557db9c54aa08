"""Part `loops`: hostile arguments of fit, step, models, probes, objectives and certificates.

What is accepted is compared with the same thing in NumPy, float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, losses, models, objectives, samplers

from . import oracles
from .cases import ArrayLike, Case, hostile_choices, hostile_numbers, is_real, real, same_leaves, show, show_call
from .oracles import Kernel

N, D = 10, 3
KEY = jax.random.key(0)
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(N, D)).astype("f4")
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
WEIGHT = np.array([1, 2, 1, 1, 0.5, 1, 3, 1, 1, 1], "f4")
RBF = Kernel("rbf", 0.5)
STEPS = 20
ORDER = samplers.epochs(1, shuffle=False)


class Known(dict):
    """Data and runs by name, each made when it is asked for."""

    def __missing__(self, name: str) -> Any:
        data = lambda: self["data"]
        fit = lambda solver, **how: jaxsvm.fit(solver, data(), KEY, steps=STEPS, every=STEPS, **how)
        self[name] = {
            "data": lambda: jaxsvm.dataset(X, Y, WEIGHT),
            "sparse": lambda: jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y, WEIGHT),
            "many": lambda: jaxsvm.dataset(X, np.arange(N) % 3, task="multiclass"),
            "linear": lambda: fit(jaxsvm.pegasos(0.1, bias="free")),
            "kernel": lambda: fit(jaxsvm.sdca(1.0, RBF.made())),
            "plain": lambda: fit(jaxsvm.pegasos(0.1), sampler=ORDER),
        }[name]()
        return self[name]


@functools.cache
def known() -> dict[str, Any]:
    """Data and runs that all cases share."""
    return Known()


@functools.cache
def arrays() -> list[Any]:
    """What may come where rows are expected."""
    return [
        X, X.tolist(), X.astype("f8"), X.astype(">f4"), X.astype("f2"), X[:, :2], X[:, :1], np.hstack([X, X]), X[0], X[:0],
        X[:, :0], X[None],
        np.where(X > 1, np.nan, X), np.where(X > 1, np.inf, X), X.astype(str), X.astype(object), scipy.sparse.csr_matrix(X),
        scipy.sparse.coo_array(X), jnp.asarray(X), jnp.asarray(X, jnp.bfloat16), np.ma.masked_less(X, 0), ArrayLike(X),
        X + 0j, (X > 0),
        (10 * X).astype(int), np.asfortranarray(X), X[::-1], None, "x", 3, 1.5, [], [[]], [None], {}, object(), int, np.matrix(X),
        jax.random.key(0), b"x", 10**400, [[10**400, 1, 1]], X * 1e30, memoryview(X), np.float32(1),
    ]  # fmt: skip


def things() -> list[Any]:
    """What may come where a batch, a model, a state, a solver or a function is expected."""
    own = known()
    data, run = own["data"], own["linear"]
    return [
        None, 3, "x", 0.1, True, [], (), {}, object(), int, len, X, (X, Y), [data], (data, data), data, own["sparse"],
        own["many"],
        data._replace(y=None), data._replace(y=data.y[:3]), data._replace(x=None), data._replace(x=data.x[:, :2]),
        data._replace(weight=None),
        data._replace(x=X.tolist()), jaxsvm.dataset, run, run.model, run.state, run.info, run.state.solver,
        own["kernel"].model, own["kernel"].state, jaxsvm.pegasos, jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0, RBF.made()), kernels.rbf,
        kernels.rbf(1.0), losses.hinge, losses.logistic, losses.eps_insensitive, losses.eps_insensitive(0.1),
        losses.crammer_singer, "hinge",
        samplers.epochs, samplers.epochs(2), samplers.whole(), samplers.uniform(3), lambda m: m, lambda m: None,
        jaxsvm.error_on(data), np.sin,
        jaxsvm.error_on, models.Linear(jnp.full(3, jnp.nan), jnp.float32(0)), models.Linear(jnp.ones(2), jnp.float32(0)), KEY,
        jnp.zeros(3),
        features.fourier(KEY, kernels.rbf(1.0), dim=3, features=4),
    ]  # fmt: skip


def plain_rows(x: Any) -> np.ndarray | None:
    """What NumPy says of something like rows with D columns; None: it is no such thing."""
    if np.ma.is_masked(x) or isinstance(x, str | bytes):
        return None
    if hasattr(x, "toarray"):
        x = x.toarray()
    try:
        a = np.asarray(x)
    except (ValueError, TypeError):
        return None
    right = a.ndim == 2 and a.shape[1] == D and (is_real(a.dtype) or a.dtype == bool)
    return a.astype(np.float32).astype(np.float64) if right else None


def agree(case: Case, have: Any, want: np.ndarray, what: str, room: float = 2e-4) -> None:
    """Numbers equal to float32, NaN where NaN is due."""
    have = np.asarray(have, np.float64)
    case.judged = True
    case.expect(have.shape == want.shape, f"{what} has shape {have.shape}, expected {want.shape}")
    live = np.isfinite(want)
    case.expect(not np.isfinite(have[~live]).any(), f"{what} is finite where the oracle's is not")
    size = np.maximum(1, np.abs(want[live]))
    off = np.abs(have[live] - want[live]) / size
    case.expect(off.size == 0 or off.max() <= room, f"{what} is off by {off.max(initial=0):.3g}")


# Parts of the part


def call_model(case: Case) -> None:
    """Decision values and predictions of rows of all kinds."""
    name, kernel = case.one((("linear", None), ("kernel", RBF)))
    model, x = known()[name].model, case.one(arrays())
    way = case.one(("model", "predict"))
    wanted = plain_rows(x)
    must = (
        isinstance(x, jax.Array | np.ndarray)
        and x.dtype == np.float32
        and wanted is not None
        and np.isfinite(wanted).all()
        and len(x)
    )
    text = f"{name} {'Classifier.predict' if way == 'predict' else 'model'}({show(x)}) of type {type(x).__name__}"
    fn = model if way == "model" else models.Classifier(model, ("ham", "spam")).predict
    case.twin = lambda: fn(X)
    have = case.attempt(text, lambda: fn(x), must=bool(must) and not np.ma.isMaskedArray(x))
    case.expect(wanted is not None, "took what are no rows of the model's columns")
    with np.errstate(all="ignore"):
        want = oracles.scores(model, wanted, None) if kernel is None else expansion_scores(model, wanted)
    have, want = np.asarray(have), np.array(want)
    if way == "model":
        case.expect(have.shape == want.shape, f"decision values of shape {have.shape}, expected {want.shape}")
        want[np.isinf(wanted).any(1)] = have[np.isinf(wanted).any(1)]  # of infinity nothing is promised
        room = 2e-4 if getattr(x, "dtype", np.dtype("f4")) not in (np.float16, jnp.bfloat16) else 2e-2
        agree(case, have, want, "the decision value", max(room, 1e-6 * float(np.nan_to_num(np.abs(wanted)).max(initial=0))))
        return
    case.expect(np.isfinite(want).all(), "predicted a class for scores that are not finite")
    clear = np.abs(want) > 1e-2
    case.compare(np.array_equal(have[clear], np.where(want > 0, "spam", "ham")[clear]), "predicted another class")


def expansion_scores(model: Any, x: np.ndarray) -> np.ndarray:
    """Decision values of the shared expansion: its rows are the training rows, by number."""
    coef, index = np.asarray(model.coef, np.float64), np.asarray(model.index)
    return RBF.block(x, X[index]) @ coef + float(model.b)


def probes(case: Case) -> None:
    """`error_on` and `risk_on` of models and data, finite or not."""
    name = case.one(("error_on", "risk_on"))
    own = known()
    odd = case.one(("data", "model", "loss", "nothing", "nothing"))
    case.twin = lambda: getattr(jaxsvm, name)(own["data"])(own["linear"].model)
    if odd == "nothing":
        model, data = finite_or_not(case), batch(case)
        have = case.attempt(f"{name}(data)({show(model)})", lambda: getattr(jaxsvm, name)(data)(model))
        x, y, weight = (np.asarray(a, np.float64) for a in (data.x, data.y, data.weight))
        with np.errstate(all="ignore"):
            score = oracles.scores(model, x)
        if name == "error_on":  # a row whose score is not finite is wrong
            want = float(np.where(np.isfinite(score), (score > 0) != (y > 0), 1) @ weight / weight.sum())
            case.compare(abs(float(have) - want) <= 1e-5, f"an error of {float(have):.6g}, expected {want:.6g}")
        else:
            live = np.isfinite(score[weight > 0]).all()  # of scores that are not finite the risk is infinite
            want = oracles.hinge(score, y, weight) if live else np.inf
            right = abs(float(have) - want) <= 1e-4 * max(1, want) if live else np.isinf(float(have))
            case.compare(right, f"a risk of {float(have):.6g}, expected {want:.6g}")
        return
    thing = case.one(things())
    data = thing if odd == "data" else own["data"]
    model = thing if odd == "model" else own["linear"].model
    more = (thing,) if odd == "loss" and name == "risk_on" else ()
    probe = case.attempt(f"{name}({show(data)}, {show(more)})", getattr(jaxsvm, name), data, *more)
    have = case.attempt(f"{name}({show(data)}, {show(more)})({show(model)})", lambda: probe(model))
    have = np.asarray(have)
    case.expect(have.shape == () and have.dtype.kind == "f", f"a measure of shape {have.shape}")
    if odd == "data":
        labels = set(np.asarray(data.y).tolist()) == {-1.0, 1.0}
        case.expect(np.ndim(data.y) == 1 and labels or name == "risk_on", "measured a binary model on other labels")
    plain = [np.asarray(a.toarray() if hasattr(a, "toarray") else a, np.float64) for a in (data.x, data.y, data.weight)]
    if isinstance(model, models.Linear) and not more and np.isfinite(np.asarray(model.w)).all() and set(plain[1]) == {-1, 1}:
        score = oracles.scores(model, plain[0])
        error = ((score > 0) != (plain[1] > 0)) @ plain[2] / plain[2].sum()
        want = error if name == "error_on" else oracles.hinge(score, *plain[1:])
        case.compare(abs(float(have) - want) <= 1e-4 * max(1, want), f"{float(have):.6g}, expected {want:.6g}")


def finite_or_not(case: Case) -> Any:
    """A linear model, now and then not finite."""
    w = case.random.normal(size=D).astype("f4") * case.one((1, 1, 1e3, 1e-6, 1e20))
    b = np.float32(case.one((0, 0.5, -1)))
    if case.rarely(3):
        w[case.random.integers(D)] = case.one((np.nan, np.inf, -np.inf))
    if case.rarely(8):
        b = np.float32(np.nan)
    return models.Linear(jnp.asarray(w), jnp.asarray(b), "free")


def batch(case: Case) -> Any:
    """The shared number of rows with other values, labels and weights."""
    x = (case.random.normal(size=(N, D)) * case.one((1, 1, 10, 1e-3))).astype("f4")
    y = np.where(case.random.random(N) > 0.5, 1, -1)
    y[:2] = 1, -1
    weight = case.random.choice([0, 0.5, 1, 3], N) if case.rarely(2) else np.ones(N)
    weight[:2] = 1
    return oracles.batch(x, y, weight)


def certificates(case: Case) -> None:
    """`certificate` and `primal` of any model beside the optimum of scikit-learn."""
    data = batch(case)
    x, y, weight = (np.asarray(a, np.float64) for a in (data.x, data.y, data.weight))
    lam = float(np.float32(case.one((1e-3, 0.1, 1.0, 30.0))))
    model = case.one((finite_or_not, lambda _: models.Linear(jnp.zeros(D), jnp.float32(0), "free"), trained))(case)
    bias, passes = case.one((None, "free", "feature")), case.one((0, 0, 1, 3))
    text = f"certificate({show(model)}, lam={lam:g}, bias={bias!r}, passes={passes})"
    own_bias = "feature" if passes else bias
    case.twin = lambda: jaxsvm.certificate(known()["linear"].model, data, lam, bias=own_bias, passes=passes)
    bound = case.attempt(text, jaxsvm.certificate, model, data, lam, bias=bias, passes=passes)
    case.judged = True
    w, b = np.asarray(model.w, np.float64), float(model.b)
    with np.errstate(all="ignore"):
        square = w @ w + (b * b if bias == "feature" else 0)
        value = lam / 2 * square + oracles.hinge(x @ w + b, y, weight)
    if not np.isfinite(value):
        case.expect(not np.isfinite(bound.primal) and not bound.gap < np.inf, f"certified a model that is not finite: {bound}")
        return
    case.expect(abs(float(bound.primal) - value) <= 1e-9 * (1 + value), f"primal {float(bound.primal)!r}, expected {value!r}")
    best = least(x, y, weight, lam, bias or "free")
    case.expect(
        bound.gap >= value - best - 1e-7 * (1 + value),
        f"a gap of {float(bound.gap):.6g}, and {value - best:.6g} above the best known",
    )
    case.expect(np.isfinite(bound.gap), "no bound for a finite model")
    case.expect(abs(bound.primal - bound.dual - bound.gap) <= 1e-9 * (1 + value), "gap is not primal - dual")
    have = case.attempt(f"primal({show(model)})", objectives.primal, model, data, lam)
    wanted = value - (lam / 2 * b * b if bias == "feature" else 0)
    case.expect(abs(float(have) - wanted) <= 1e-9 * (1 + wanted), f"primal() {float(have)!r}, expected {wanted!r}")


def trained(case: Case) -> Any:
    """A model of other rows."""
    return known()["linear"].model


def least(x: np.ndarray, y: np.ndarray, weight: np.ndarray, lam: float, bias: str) -> float:
    """The objective of scikit-learn's answer: no less than the optimum."""
    from sklearn.svm import SVC, LinearSVC

    C = 1 / (lam * weight.sum())
    live = weight > 0
    if bias == "free":
        made = SVC(kernel="linear", C=C, tol=1e-9, max_iter=10**6)
    else:
        made = LinearSVC(loss="hinge", dual=True, C=C, tol=1e-9, max_iter=10**5, random_state=0)
    made.fit(x[live], y[live], sample_weight=weight[live])
    w, b = made.coef_[0], made.intercept_[0]
    square = w @ w + (b * b if bias == "feature" else 0)
    return float(lam / 2 * square + oracles.hinge(x @ w + b, y, weight))


def objective_arguments(case: Case) -> None:
    """One hostile argument of an objective."""
    own = known()
    alpha = jnp.asarray(0.05 * WEIGHT)
    table: dict[str, tuple[Callable, dict[str, Any]]] = {
        "certificate": (jaxsvm.certificate, {"model": own["linear"].model, "data": own["data"], "lam": 0.1,
        "loss": losses.hinge, "bias": None,
                                             "passes": 0}),
        "primal": (objectives.primal, {"model": own["linear"].model, "data": own["data"], "lam": 0.1, "loss": losses.hinge}),
        "dual": (objectives.dual, {"alpha": alpha, "data": own["data"], "lam": 0.1, "kernel": RBF.made()}),
        "kkt_residual": (jaxsvm.kkt_residual, {"model": own["kernel"].model, "data": own["data"], "lam": 0.1}),
        "nu_from": (jaxsvm.nu_from, {"model": own["linear"].model, "data": own["data"]}),
    }  # fmt: skip
    name = case.one(list(table))
    fn, arguments = table[name]
    victim = case.one(list(arguments))
    pool = {"lam": hostile_numbers, "passes": hostile_numbers, "bias": hostile_choices, "alpha": hostile_numbers}.get(
        victim, things
    )()
    value = case.one(pool)
    case.twin = lambda: fn(**arguments)
    have = case.attempt(show_call(name, **arguments | {victim: value}), fn, **arguments | {victim: value})
    leaves = [np.asarray(a) for a in jax.tree.leaves(have)]
    case.expect(all(a.shape == () for a in leaves), "a result that is no number")
    if victim == "lam":
        case.expect(real(value) is not None and 0 < real(value) < np.inf, f"lam={value!r} was taken for a number above 0")
        other = fn(**arguments | {victim: real(value)})
        case.expect(
            same_leaves(jax.tree.map(np.asarray, have), jax.tree.map(np.asarray, other)), f"lam={value!r} and its float differ"
        )
        want = objective(name, 1e-300 + real(value))
        if want is not None:
            off = abs(float(leaves[0]) - want) if np.isfinite(want) else 0 if leaves[0] == want else np.inf
            case.compare(off <= 1e-6 * (1 + abs(want)), f"{float(leaves[0]):.9g}, expected {want:.9g}")
    if victim == "data":
        case.expect(isinstance(value, jaxsvm.Batch), "took what is no data set")
    if victim == "model":
        case.expect(callable(value) and hasattr(value, "sqnorm"), "took what is no model")
        case.expect(np.isnan(leaves[0]) or finite_model(value), "a model that is not finite has a finite objective")


def objective(name: str, lam: float) -> float | None:
    """The objectives of the shared models, by their formulas; None: there is none."""
    if name == "dual":
        alpha = 0.05 * WEIGHT.astype(np.float64)
        if (alpha * lam > WEIGHT / WEIGHT.sum()).any():
            return -np.inf
        coef = alpha * Y
        return float(lam * (alpha.sum() - coef @ RBF.block(X, X) @ coef / 2))
    if name in ("certificate", "primal"):
        model = known()["linear"].model
        w = np.asarray(model.w, np.float64)
        return float(lam / 2 * w @ w + oracles.hinge(oracles.scores(model, X), Y, WEIGHT.astype(np.float64)))
    return None


def finite_model(model: Any) -> bool:
    """Whether all numbers of a model are finite."""
    return all(np.isfinite(np.asarray(a, np.float64)).all() for a in jax.tree.leaves(model) if a.dtype.kind == "f")


def fit_arguments(case: Case) -> None:
    """One hostile argument of `fit`; what is accepted gives the bits of the plain run."""
    own = known()
    plain = {"solver": jaxsvm.pegasos(0.1), "data": own["data"], "key": KEY, "steps": STEPS, "every": STEPS, "sampler": ORDER}
    valid = {"steps": 3, "every": 4, "tol": 1e-3, "seconds": 100.0, "progress": False,
             "save": case.folder / "valid.npz", "key": KEY, "solver": jaxsvm.pegasos(0.1), "data": own["data"],
             "state": own["plain"].state, "sampler": samplers.epochs(2), "probe": jaxsvm.risk_on(own["data"])}  # fmt: skip
    pools: dict[str, Callable] = {
        "steps": hostile_numbers, "every": hostile_numbers, "tol": hostile_numbers, "seconds": hostile_numbers,
        "progress": hostile_choices, "save": lambda: [3, 1.5, True, "", b"", [], object(), int,
        "a/b/c.npz", "\x00", X,
        str(case.folder), case.folder, str(case.folder / "run.npz"), case.folder / "run.npz", bytes(case.folder / "run.npz"),
        "/dev/full/x"],
        "key": lambda: [*hostile_numbers(), np.zeros(2, "u4"), np.zeros((2, 2), "u4"), jax.random.split(KEY),
        jax.random.key_data(KEY)],
        "solver": things, "data": things, "state": things, "sampler": things, "probe": things,
    }  # fmt: skip
    victim = case.one(list(pools))
    value = case.one(pools[victim]())
    if real(value) is not None and real(value) > 1e4:  # a run that long is what was asked for
        value = case.one((2**63, 10**400)) if victim in ("tol", "seconds") else -1
    text = f"fit({victim}={show(value)})"
    case.twin = lambda: fit_twin(victim, plain | {victim: valid[victim]})
    run = case.attempt(text, jaxsvm.fit, **plain | {victim: value})
    case.expect(isinstance(run, jaxsvm.Fit), "no Fit")
    case.expect(run.finite == ("not finite" not in run.status), f"finite is {run.finite}, status says {run.status!r}")
    number = real(value)
    if victim in ("steps", "every", "tol", "seconds") and value is not None:
        case.expect(number is not None and not np.isnan(number), f"{victim}={value!r} was taken for a number")
        whole = number == int(number) or victim in ("tol", "seconds")
        case.expect(number >= 0 and whole, f"{victim}={value!r} was taken")
    if victim == "steps" and number is not None:
        case.expect(int(run.state.step) == int(number), f"{int(run.state.step)} steps")
    if victim == "key" and value is not None:
        case.expect(hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or getattr(value, "dtype",
        "") == "uint32",
                    f"{value!r} was taken for a key")  # fmt: skip
    if victim == "progress":
        case.expect(value in (0, 1) and not isinstance(value, str | bytes), f"progress={value!r} was taken for a truth value")
    if victim in ("every", "progress", "save", "seconds", "key") and not (
        victim == "seconds" and number is not None and number < 30
    ):
        case.expect(same_leaves(run.model, own["plain"].model), "other bits than the plain run")
    if victim not in ("solver", "data", "state", "sampler", "tol"):  # the rows in their order, whatever the key
        made = int(run.state.step)
        agree(case, run.model.w, pegasos_over(made), "w", 1e-3)
    if victim == "data":
        case.expect(isinstance(value, jaxsvm.Batch), "trained on what is no data set")
    if victim == "save" and value is not None:
        case.expect(same_leaves(models.load(value), run.state), "the file does not hold the state")


def fit_twin(victim: str, arguments: dict[str, Any]) -> None:
    """The valid call; one that has a tolerance or a sampler of its own is judged by what it trains."""
    if victim == "tol":  # a solver whose residual is that of all rows
        arguments |= {"solver": jaxsvm.sdca(1.0, RBF.made()), "steps": 60 * N, "every": N, "sampler": None}
    if victim == "state":
        arguments |= {"key": None}
    run = jaxsvm.fit(**arguments)
    if victim == "tol" and not run.converged:
        raise ValueError(f"a run of {int(run.state.step)} steps has not met the tolerance: {run.status}")


def pegasos_over(steps: int) -> np.ndarray:
    """w of the shared solver after so many steps over the shared rows in their order, by weight."""
    rows = np.arange(steps) % N
    weight = WEIGHT.astype(np.float64) / WEIGHT.mean(dtype=np.float64)
    return oracles.pegasos(X.astype(np.float64)[rows], Y[rows], weight[rows])


def step_arguments(case: Case) -> None:
    """One hostile argument of `step`, and one step of Pegasos beside its formula."""
    data, solver = known()["data"], jaxsvm.pegasos(0.1, project=False)
    if case.rarely(4):
        rows = batch(case)
        case.twin = lambda: jaxsvm.step(solver, solver.init(KEY, data), data)
        state, _ = case.attempt("step(pegasos)", lambda: jaxsvm.step(solver, solver.init(KEY, rows), rows))
        x, y, weight = (np.asarray(a, np.float64) for a in (rows.x, rows.y, rows.weight))
        want = (1 / 0.1) * (weight * y) @ x / (weight > 0).sum()  # every margin is 0 at w = 0
        agree(case, solver.model(state).w, want, "w")
        return
    arguments = {"solver": solver, "state": solver.init(KEY, data), "batch": data}
    victim = case.one(list(arguments))
    value = case.one(things())
    case.twin = lambda: jaxsvm.step(**arguments)
    state, info = case.attempt(f"step({victim}={show(value)})", lambda: jaxsvm.step(**arguments | {victim: value}))
    case.expect(np.shape(info.loss) == () and np.isfinite(float(info.loss)), f"a loss of {info.loss}")
    if victim == "batch":
        case.expect(isinstance(value, jaxsvm.Batch), "took a step on what is no batch")


def run(case: Case) -> None:
    """One case of the part."""
    kinds = (call_model,) * 4 + (probes,) * 3 + (certificates,) * 3 + (objective_arguments,) * 4 + (fit_arguments,) * 3
    case.one(kinds + (step_arguments,) * 2 + (fit_arguments,) * 4)(case)
