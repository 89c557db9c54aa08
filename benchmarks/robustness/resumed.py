"""Part `resumed`: states that go on with other rows, targets, weights, numbers or kernels.

All solvers, in `fit`, in `stream`, inside of `jit` (where nothing is compared, and only the tolerance changes), and through a
file. Right: a refusal in a sentence, whose twin is the same call with nothing changed; or the answer of the new rows and
numbers. That is judged by the optimum of NumPy in float64 on the new rows, and with nothing changed by the bits of the run
that was not cut.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize

import jaxsvm
from jaxsvm import features, kernels, losses, models

from . import oracles
from .cases import Case, same_leaves

N, D = 24, 3
KEY = jax.random.key(0)
FIRST, LAST = 40, 2000  # steps before and after the cut
LAM, GAMMA = 0.1, 0.5


class Way(NamedTuple):
    """A solver of min lam/2 |w|^2 + mean loss, or of another problem where `loss` is None."""

    make: Callable[[Any, Any], Any]  # lam, gamma -> solver
    loss: str | None = "hinge"
    kernel: bool = False
    bias: str = "none"
    exact: bool = False  # its runs end at a tolerance
    streams: bool = False  # without rows=
    room: float = 0.2  # above the least objective, as a share of what there is to gain, of runs that do not converge
    maps: bool = False  # gamma is that of a feature map, which is made outside of transformations


def C_of(lam: Any) -> Any:
    """The bound of the dual for a lam."""
    return 1 / (lam * N)


@functools.cache
def ways() -> dict[str, Way]:
    """All solvers."""
    rbf = lambda gamma: kernels.rbf(gamma=gamma)
    phi = functools.cache(lambda gamma: features.nystrom(None, rbf(gamma), landmarks=np.eye(D, dtype="f")))
    one = jaxsvm
    primal = {
        "pegasos": Way(lambda lam, g: one.pegasos(lam), streams=True),
        "pegasos, feature": Way(lambda lam, g: one.pegasos(lam, bias="feature"), bias="feature", streams=True),
        # the first steps count as much as the last ones
        "averaged": Way(lambda lam, g: one.averaged(one.pegasos(lam)), streams=True, room=0.4),
        "bottou_sgd": Way(lambda lam, g: one.bottou_sgd(lam), streams=True),
        "asgd": Way(lambda lam, g: one.asgd(lam, average_from=10), streams=True, room=0.4),
        "asset": Way(lambda lam, g: one.asset(lam, average_from=50), bias="free"),
        "asset_star": Way(lambda lam, g: one.asset_star(lam), streams=True),
        "subgradient": Way(lambda lam, g: one.subgradient(lam)),
        "kernel_pegasos": Way(lambda lam, g: one.kernel_pegasos(lam, rbf(g)), kernel=True),
        "bsgd": Way(lambda lam, g: one.bsgd(lam, rbf(g), budget=24), kernel=True, streams=True),
        "ocas": Way(lambda lam, g: one.ocas(lam, planes=30)),
        "ocas, free": Way(lambda lam, g: one.ocas(lam, planes=30, bias="free"), bias="free"),
        "svm_perf": Way(lambda lam, g: one.svm_perf(lam, planes=30)),
        "newton": Way(lambda lam, g: one.newton(lam), "squared_hinge", exact=True),
        "newton, logistic": Way(lambda lam, g: one.newton(lam, loss=losses.logistic), "logistic", exact=True),
        # sums over all rows that it has read, of both runs
        "least_squares": Way(lambda lam, g: one.least_squares(lam, bias="none"), "squared"),
    }
    dual = {
        "sdca": Way(lambda lam, g: one.sdca(C_of(lam))),
        "sdca, feature": Way(lambda lam, g: one.sdca(C_of(lam), bias="feature"), bias="feature"),
        "sdca, squared_hinge": Way(lambda lam, g: one.sdca(C_of(lam), loss=losses.squared_hinge), "squared_hinge"),
        "sdca, kernel": Way(lambda lam, g: one.sdca(C_of(lam), rbf(g)), kernel=True),
        "cocoa": Way(lambda lam, g: one.cocoa(C_of(lam), blocks=3)),
        "augmented_lagrangian": Way(lambda lam, g: one.augmented_lagrangian(C_of(lam)), bias="feature", exact=True),
        "interior_point": Way(lambda lam, g: one.interior_point(C_of(lam), bias="none"), exact=True),
        "interior_point, free": Way(lambda lam, g: one.interior_point(C_of(lam), bias="free"), bias="free", exact=True),
        "decomposition": Way(lambda lam, g: one.decomposition(C_of(lam), rbf(g)), kernel=True, bias="free", exact=True),
        "decomposition, none": Way(lambda lam, g: one.decomposition(C_of(lam), rbf(g), bias="none"), kernel=True, exact=True),
        "decomposition, sets": Way(
            lambda lam, g: one.decomposition(C_of(lam), rbf(g), working_set=8), kernel=True, bias="free", exact=True
        ),
        "smo": Way(lambda lam, g: one.smo(C_of(lam), rbf(g)), kernel=True, bias="free"),
        "bsca": Way(lambda lam, g: one.bsca(C_of(lam), rbf(g), budget=24), kernel=True),
    }
    other = {
        "features, pegasos": Way(lambda lam, g: one.on_features(phi(g), one.pegasos(lam)), None, streams=True, maps=True),
        "features, sdca": Way(lambda lam, g: one.on_features(phi(g), one.sdca(C_of(lam))), None, maps=True),
        "features, newton": Way(lambda lam, g: one.on_features(phi(g), one.newton(lam)), None, maps=True),
        "fogd": Way(lambda lam, g: one.fogd(lam, phi(g)), None, streams=True, maps=True),
        "nu_svc": Way(lambda lam, g: one.nu_svc(lam, rbf(g)), None, exact=True),
        "one_class": Way(lambda lam, g: one.one_class(lam, rbf(g)), None, exact=True),
        "nu_svr": Way(lambda lam, g: one.nu_svr(lam, 1.0, rbf(g)), None, exact=True),
        "lasvm": Way(lambda lam, g: one.lasvm(C_of(lam), rbf(g)), None),
        "perceptron": Way(lambda lam, g: one.perceptron(rbf(g)), None),
        "projectron": Way(lambda lam, g: one.projectron(rbf(g), budget=10), None, streams=True),
        "sbp": Way(lambda lam, g: one.sbp(3 * lam, rbf(g)), None),
        "batch_perceptron": Way(lambda lam, g: one.batch_perceptron(lam, rbf(g)), None),
        "simba": Way(lambda lam, g: one.simba(3 * lam, horizon=200.0), None),
        "wolfe": Way(lambda lam, g: one.wolfe(lam, rbf(g)), kernel=True),
        "cpsp": Way(lambda lam, g: one.cpsp(lam, rbf(g), points=4, planes=6), None),
        "scs": Way(lambda lam, g: one.scs(lam, capacity=12), None),
        "constrained_sgd": Way(lambda lam, g: one.constrained_sgd(10 * lam), None, streams=True),
    }
    return primal | dual | other


CHANGES = ("nothing", "rows", "one row", "order", "targets", "weights", "number", "gamma", "tolerance")


class Inputs(NamedTuple):
    """What a run is made of."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    lam: float
    gamma: float


def changed(case: Case, old: Inputs, change: str) -> Inputs:
    """The inputs of the second run."""
    x, y, weight, random = old.x.copy(), old.y.copy(), old.weight.copy(), case.random
    if change == "rows":
        x = case.one((x + 1, -x, x * [1, -1, -1], random.normal(size=x.shape), x + 1e-3)).astype("f4")
    if change == "one row":
        x[int(random.integers(N)), int(random.integers(D))] += case.one((1e-3, 1.0, -5.0))
    if change == "order":
        order = case.one((np.arange(N)[::-1], np.roll(np.arange(N), 1), random.permutation(N)))
        x, y, weight = x[order], y[order], weight[order]
    if change == "targets":
        y = case.one((-y, np.where(np.arange(N) == int(random.integers(2, N)), -y, y)))
    if change == "weights":
        weight = random.choice([0.5, 1, 2, 3], N)
    factors = (1e-2, 0.3, 1.01, 3.0, 10.0)
    lam = old.lam * (case.one(factors) if change == "number" else 1)
    gamma = old.gamma * (case.one(factors) if change == "gamma" else 1)
    return Inputs(x, y, weight, float(np.float32(lam)), float(np.float32(gamma)))


def least(way: Way, inputs: Inputs) -> float:
    """The least value of lam/2 |w|^2 + mean loss."""
    x, y, weight = (np.asarray(a, np.float64) for a in inputs[:3])
    lam, total = inputs.lam, weight.sum()
    if way.loss == "hinge":
        gram = gram_of(way, inputs)
        solve = oracles.with_bias if way.bias == "free" else oracles.without_bias
        best = solve(gram, y, 1 / (lam * total), weight)
        return best.value * lam
    value = lambda w: objective(way, inputs, x @ w, w @ w)
    return float(scipy.optimize.minimize(value, np.zeros(D), method="BFGS", options={"gtol": 1e-9}).fun)


def gram_of(way: Way, inputs: Inputs) -> np.ndarray:
    """The values of the kernel among the rows."""
    kernel = oracles.Kernel("rbf", inputs.gamma) if way.kernel else oracles.Kernel("linear")
    return kernel.block(inputs.x, inputs.x) + (way.bias == "feature")


def objective(way: Way, inputs: Inputs, scores: np.ndarray, square: float) -> float:
    """lam/2 |w|^2 + mean loss, in float64."""
    margin = inputs.y * scores
    loss = {
        "hinge": lambda: np.maximum(0, 1 - margin),
        "squared_hinge": lambda: np.maximum(0, 1 - margin) ** 2,
        "logistic": lambda: np.logaddexp(0, -margin),
        "squared": lambda: (1 - margin) ** 2 / 2,
    }[way.loss]()
    return float(inputs.lam / 2 * square + np.average(loss, weights=inputs.weight))


def judge(case: Case, way: Way, inputs: Inputs, run: Any) -> None:
    """Compare the value of the answer with the least."""
    case.expect(bool(run.finite), "accepted, and the model is not finite")
    if way.loss is None:
        return
    model = run.model
    scores = np.asarray(model(inputs.x), np.float64)
    if way.kernel:
        coef, points = np.asarray(model.coef, np.float64), np.asarray(model.x, np.float64)
        square = coef @ oracles.Kernel("rbf", inputs.gamma).block(points, points) @ coef
    else:
        square = float((np.asarray(model.w, np.float64) ** 2).sum())
    square += float(model.b) ** 2 if way.bias == "feature" else 0
    value, best = objective(way, inputs, scores, square), least(way, inputs)
    start = objective(way, inputs, np.zeros(N), 0.0)
    room = 1e-2 if way.exact and bool(run.converged) else way.room
    off = (value - best) / max(start - best, 1e-6)
    case.compare(off <= room, f"the objective is {value:.5g}, the least {best:.5g}, that of 0 {start:.5g}: {run.status}")


def run(case: Case) -> None:
    """One case of the part."""
    names = list(ways())
    name, change = names[case.seed % len(names)], CHANGES[case.seed // len(names) % len(CHANGES)]
    way, random = ways()[name], case.random
    x = random.normal(size=(N, D)).astype("f4")
    y = np.where(x @ [1.0, 0.5, 0] + 0.7 * random.normal(size=N) > 0, 1, -1)
    y[:2] = 1, -1
    old = Inputs(x, y, np.ones(N), float(np.float32(LAM)), float(np.float32(GAMMA)))
    new = changed(case, old, change)
    loop = case.one(("fit", "fit", "file", "stream") if way.streams else ("fit", "fit", "file"))
    if change in ("nothing", "tolerance"):  # what is traced is not compared
        loop = case.one((loop, "jit"))
    case.text = f"{name}: {change} in {loop}"
    ROUNDS[loop](case, way, old, new, change)


def in_fit(case: Case, way: Way, old: Inputs, new: Inputs, change: str, through_file: bool = False) -> None:
    """Two calls of `fit`."""
    data, other = (oracles.batch(*inputs[:3]) for inputs in (old, new))
    first = jaxsvm.fit(way.make(old.lam, old.gamma), data, KEY, steps=5 if way.exact else FIRST)
    state = first.state
    if through_file:
        models.save(case.folder / "state.npz", state)
        state = models.load(case.folder / "state.npz")
    solver, steps = way.make(new.lam, new.gamma), 300 if way.exact else LAST
    going_on = lambda how: jaxsvm.fit(solver, how, state=state, steps=steps)
    case.twin = lambda: jaxsvm.fit(way.make(old.lam, old.gamma), data, state=first.state, steps=2)
    found = case.attempt(case.text, going_on, other, must=change in ("nothing", "tolerance"))
    judge(case, way, new, found)
    if change == "nothing":
        same = jaxsvm.fit(solver, data, KEY, steps=steps + int(first.state.step))
        case.compare(same_leaves(found.model, same.model), "other bits than the run that was not cut")


def in_jit(case: Case, way: Way, old: Inputs, new: Inputs, change: str) -> None:
    """The second call inside of `jit`, its numbers traced."""
    data, other = (oracles.batch(*inputs[:3]) for inputs in (old, new))
    steps = 20 if way.exact else LAST
    first = jaxsvm.fit(way.make(old.lam, old.gamma), data, KEY, steps=FIRST // 8 if way.exact else FIRST).state
    call = lambda inputs: inside(case.text.split(":")[0], steps, inputs.gamma if way.maps else None)
    attempt = lambda inputs, *args: call(inputs)(np.float32(inputs.lam), np.float32(inputs.gamma), *args)
    found = case.attempt(case.text, attempt, new, other, first, must=change in ("nothing", "tolerance"))
    judge(case, way, new, found)


@functools.cache
def inside(name: str, steps: int, known: float | None) -> Any:
    """A compiled run from a state; its gamma is traced or known."""
    make = lambda lam, gamma: ways()[name].make(lam, gamma if known is None else known)
    make(LAM, GAMMA)  # a feature map that is known is made here
    return jax.jit(lambda lam, gamma, rows, state: jaxsvm.fit(make(lam, gamma), rows, state=state, steps=steps))


def in_stream(case: Case, way: Way, old: Inputs, new: Inputs, change: str) -> None:
    """Two calls of `stream`; rows that come later may be others."""
    weighted = lambda inputs, times: [tuple(inputs[:3])] * times
    first = jaxsvm.stream(way.make(old.lam, old.gamma), weighted(old, 2), KEY)
    state = first.state
    solver = way.make(new.lam, new.gamma)
    going_on = lambda state: jaxsvm.stream(solver, weighted(new, LAST // N), state=state)
    case.twin = lambda: jaxsvm.stream(way.make(old.lam, old.gamma), weighted(old, 2), state=first.state)
    found = case.attempt(case.text, going_on, state, must=change in ("nothing", "tolerance", "rows", "targets", "order"))
    judge(case, way, new, found)


ROUNDS = {
    "fit": in_fit,
    "file": functools.partial(in_fit, through_file=True),
    "jit": in_jit,
    "stream": in_stream,
}
