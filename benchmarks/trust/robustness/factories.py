"""Part `factories`: hostile numbers and choices for everything that makes a solver, kernel, sampler, schedule or map.

A number that is accepted means what its formula in NumPy says; nothing else than a number is accepted where a number is
expected; what the documentation rules out, such as `lam: ... > 0`, makes no finite model. Solvers have no such formula: they
are compared with the same number as a plain float, which judges nothing but the type.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import re
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import budget, features, kernels, losses, projections, samplers, schedules

from . import formulas
from .cases import Case, Refused, hostile_choices, hostile_numbers, real, show, show_call

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(10, 3)).astype("f4")
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
STEPS = 4
KEY = jax.random.key(0)
RBF = kernels.rbf(1.0)


def solvers() -> dict[str, dict[str, Any]]:
    """Public solvers and the arguments that each needs."""
    kernel, some = {"kernel": RBF}, {"budget": 4}
    return {
        "pegasos": {"lam": 0.1}, "bottou_sgd": {"lam": 0.1}, "asgd": {"lam": 0.1, "average_from": 2}, "subgradient": {"lam": 0.1},
        "newton": {"lam": 0.1},
        "asset": {"lam": 0.1}, "asset_star": {"lam": 0.1}, "sdca": {"C": 1.0}, "constrained_sgd": {"radius": 1.0},
        "interior_point": {"C": 1.0}, "augmented_lagrangian": {"C": 1.0},
        "perceptron": {}, "simba": {"nu": 0.3}, "wolfe": {"lam": 0.1}, "scs": {"lam": 0.1, "capacity": 6},
        "kernel_pegasos": {"lam": 0.1} | kernel, "smo": {"C": 1.0} | kernel, "lasvm": {"C": 1.0} | kernel,
        "decomposition": {"C": 1.0, "working_set": 8} | kernel, "nu_svc": {"nu": 0.3, "working_set": 8} | kernel,
        "one_class": {"nu": 0.3, "working_set": 8} | kernel, "nu_svr": {"nu": 0.3, "C": 1.0, "working_set": 8} | kernel,
        "sbp": {"nu": 0.3} | kernel,
        "batch_perceptron": {"margin": 0.1} | kernel,
        "bsgd": {"lam": 0.1} | kernel | some, "bsca": {"C": 1.0} | kernel | some, "bogd": {"lam": 0.1} | kernel | some,
        "bpas": {"C": 1.0} | kernel | some, "nogd": {"eta": 0.2, "features": 3} | kernel | some, "stoptron": kernel | some,
        "forgetron": kernel | some, "projectron": kernel | some, "projectron_plus": kernel | some,
        "random_budget_perceptron": kernel | some, "fixed_budget_perceptron": kernel | some, "tighter_perceptron": kernel | some,
        "tightest_perceptron": kernel | some, "fogd": {"eta": 0.2, "phi": features.fourier(KEY, RBF, dim=3, features=6)},
    }  # fmt: skip


def others() -> dict[str, tuple[Callable, dict[str, Any]]]:
    """Other factories: name -> the function and arguments that it takes."""
    return {
        "kernels.rbf": (kernels.rbf, {"sigma": 1.0}),
        "kernels.laplacian": (kernels.laplacian, {"sigma": 1.0}),
        "kernels.polynomial": (kernels.polynomial, {"gamma": 1.0, "coef0": 1.0, "degree": 2}),
        "kernels.sigmoid": (kernels.sigmoid, {"gamma": 1.0, "coef0": 0.0}),
        "kernels.scaled": (kernels.scaled, {"inner": RBF, "factor": 2.0}),
        "kernels.sum_": (kernels.sum_, {"a": RBF, "b": kernels.linear()}),
        "kernels.product": (kernels.product, {"a": RBF, "b": kernels.linear()}),
        "kernels.custom": (kernels.custom, {"fn": lambda x, z: jnp.exp(-jnp.abs(x[:, :1] - z[:, 0][None]))}),
        "samplers.uniform": (samplers.uniform, {"batch_size": 2, "replace": True}),
        "samplers.epochs": (samplers.epochs, {"batch_size": 2, "shuffle": True}),
        "samplers.shrinking": (samplers.shrinking, {"batch_size": 2, "rounds": 2}),
        "samplers.active_rows": (samplers.active_rows, {"batch_size": 2, "patience": 2}),
        "samplers.acf": (samplers.acf, {"batch_size": 2, "change": 0.2}),
        "losses.smooth_hinge": (losses.smooth_hinge, {"width": 0.5}),
        "losses.eps_insensitive": (losses.eps_insensitive, {"eps": 0.1}),
        "losses.pinball": (losses.pinball, {"tau": 0.3}),
        "schedules.inverse_time": (schedules.inverse_time, {"scale": 1.0, "offset": 0.0}),
        "schedules.inverse_sqrt": (schedules.inverse_sqrt, {"scale": 1.0}),
        "schedules.bottou": (schedules.bottou, {"lam": 0.1}),
        "schedules.averaged_sgd": (schedules.averaged_sgd, {"lam": 0.1, "start": 3}),
        "projections.ball": (projections.ball, {"radius": 1.0}),
        "budget.merge": (budget.merge, {"partners": 2, "search": "golden"}),
        "features.fourier": (features.fourier, {"key": KEY, "kernel": RBF, "dim": 3, "features": 6, "form": "paired"}),
        "features.orthogonal": (features.orthogonal, {"key": KEY, "kernel": RBF, "dim": 3, "features": 6, "form": "paired"}),
        "features.nystrom": (features.nystrom, {"key": KEY, "kernel": RBF, "x": X, "landmarks": 4, "eps": 1e-16}),
        "features.k_means": (features.k_means, {"steps": 3}),
        "features.leverage_scores": (features.leverage_scores, {"ridge": 1e-3, "pilot": 5}),
        "features.random_pivots": (features.random_pivots, {"block": 2}),
        "on_features": (jaxsvm.on_features, {"phi": features.fourier(KEY, RBF, dim=3, features=6), "inner": jaxsvm.pegasos(0.1)}),
        "one_vs_rest": (jaxsvm.one_vs_rest, {"inner": jaxsvm.pegasos(0.1), "classes": 2}),
        "one_vs_one": (jaxsvm.one_vs_one, {"inner": jaxsvm.pegasos(0.1), "classes": 2}),
        "averaged": (jaxsvm.averaged, {"inner": jaxsvm.pegasos(0.1), "start": 1}),
        "average_iterates": (jaxsvm.average_iterates, {"start": 1}),
        "keep": (jaxsvm.keep, {"projection": projections.ball(1.0)}),
        "lam_from_C": (jaxsvm.lam_from_C, {"C": 1.0, "n": 10}),
        "C_from_lam": (jaxsvm.C_from_lam, {"lam": 0.1, "n": 10}),
    }


@functools.cache
def things() -> list[Any]:
    """What may come where a kernel, a loss, a solver or a function is expected."""
    return [
        None, "rbf", "hinge", 0.1, 3, True, [], {}, object(), int, len, np.sin, np.dot, np.exp, jnp.dot, lambda: 1, lambda x: x,
        lambda x, z: 1.0, lambda x, z: x, lambda x, z: np.asarray(x) @ np.asarray(z).T, lambda x, z: x @ z.T, kernels.rbf,
        kernels.linear, kernels.polynomial, losses.hinge, losses.squared_hinge, losses.eps_insensitive,
        losses.eps_insensitive(0.1),
        jaxsvm.pegasos, jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0, RBF), samplers.epochs, samplers.epochs(2), KEY, X, RBF,
        "kernels.rbf",
        features.fourier, features.fourier(KEY, RBF, dim=3, features=6), features.fourier(KEY, RBF, dim=2, features=6),
        budget.remove,
        budget.remove(), budget.merge, budget.project(), projections.ball(1.0), kernels.precomputed(), jaxsvm.sweep,
        jaxsvm.dataset,
    ]  # fmt: skip


def kind_of(parameter: inspect.Parameter, plain: Any) -> str:
    """What a parameter takes: "number", "count", "word", "flag", "array" or "thing"."""
    words = str(parameter.annotation)
    if "bool" in words:
        return "flag"
    if "Array" in words:
        return "array"
    if "int" in words:
        return "count"
    if "float" in words:
        return "number"
    if "str" in words:
        return "word"
    return "count" if isinstance(plain, int) else "number" if isinstance(plain, float) else "thing"


def ruled_out(factory: Callable, name: str, value: float) -> str | None:
    """What the documentation says of a parameter, where the value is not that."""
    line = re.search(rf"^ *{name}: (.*)$", inspect.getdoc(factory) or "", re.MULTILINE)
    if not np.isfinite(value):
        return "a number" if line and re.search(r"[<>]", line[1]) else None
    for sign, bound in re.findall(r", (>=|>|<=|<) ?(-?[0-9.]*\d)(?=[.,;:)]|$)", line[1] if line else ""):
        bound = float(bound)
        if not {">": value > bound, ">=": value >= bound, "<": value < bound, "<=": value <= bound}[sign]:
            return f"{sign} {bound:g}"
    return None


def run(case: Case) -> None:
    """One case of the part."""
    own, rest = solvers(), others()
    shared = case.block(6)
    is_solver = bool(shared.random.integers(3))
    name = shared.one(list(own if is_solver else rest))
    factory, plain = (getattr(jaxsvm, name), own[name]) if is_solver else rest[name]
    parameters = inspect.signature(factory).parameters
    victim = case.one(list(parameters))
    kind = kind_of(parameters[victim], plain.get(victim))
    pool = {"number": hostile_numbers, "count": hostile_numbers, "word": hostile_choices, "flag": hostile_choices,
            "array": hostile_numbers, "thing": things}[kind]()  # fmt: skip
    ordinary = [0.3, 0.75, 1, 2, 4, 6, np.float32(0.25), np.float64(0.6), np.int32(2), jnp.float32(0.75), jnp.int32(3)]
    number_or_count = kind in ("number", "count")
    value = case.one(ordinary if number_or_count and case.seed % 5 == 3 else [*pool, *ordinary] if number_or_count else pool)
    arguments = plain | {victim: value}
    text = show_call(name, **arguments)
    use = use_solver if is_solver else use_other
    case.twin = lambda: plain_use(name)
    made = case.attempt(text, call, factory, arguments)
    judge_kind(case, name, factory, parameters[victim], kind, value)
    result = use(case, text, name, made)
    formulas.judge(case, name, arguments, made, result)
    number = real(value)
    if kind in ("number", "count") and number is not None:
        limit = ruled_out(factory, victim, number)
        if limit is not None and finite(result):  # a parameter that plays no role here may have any value
            same = use(case, text, name, call(factory, plain))
            role = not all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), result, same)))
        case.expect(
            limit is None or not finite(result) or not role,
            f"{victim} must be {limit} as documented, and {value!r} made a finite result",
        )
        if np.isfinite(number) and not isinstance(value, bool):
            by_name = parameters[victim].kind is parameters[victim].KEYWORD_ONLY and not isinstance(plain.get(victim), float)
            number = int(number) if number.is_integer() and (kind == "count" or by_name) else number
            try:
                same = use(case, text, name, call(factory, plain | {victim: number}))
            except (ValueError, TypeError, OverflowError, Refused):
                case.expect(False, f"{victim}={value!r} was accepted, and {number!r} is refused")
            # Functions of arrays keep the dtype of the number that they were given, those of Python's numbers are float64.
            narrow = not is_solver and hasattr(value, "dtype")
            room = 0 if not narrow else 1e-6 if value.dtype.itemsize > 2 else 1e-2
            same = jax.tree.map(lambda a, b: np.allclose(a, b, rtol=room, atol=room, equal_nan=True), result, same)
            case.expect(all(jax.tree.leaves(same)), f"{victim}={value!r} and {number!r} give other results")


@functools.cache
def plain_use(name: str) -> Any:
    """What the plain call of a factory makes, and its use: the valid twin of all calls of it."""
    own, rest = solvers(), others()
    factory, plain = (getattr(jaxsvm, name), own[name]) if name in own else rest[name]
    case = Case("factories", 0, pathlib.Path(tempfile.gettempdir()))
    case.twin = lambda: None
    made = call(factory, plain)
    return (use_solver if name in own else use_other)(case, name, name, made)


def call(factory: Callable, arguments: dict[str, Any]) -> Any:
    """The call, with positional arguments where the signature has them."""
    parameters = inspect.signature(factory).parameters
    leading, rest, gap = [], {}, False
    for name, parameter in parameters.items():
        gap = gap or name not in arguments or parameter.kind is parameter.KEYWORD_ONLY
        if name in arguments:
            if gap:
                rest[name] = arguments[name]
            else:
                leading.append(arguments[name])
    return factory(*leading, **rest)


def judge_kind(case: Case, name: str, factory: Callable, parameter: inspect.Parameter, kind: str, value: Any) -> None:
    """Nothing else than a number is taken for a number, and so on; None is what a parameter may be without."""
    if value is None:
        return
    if kind in ("number", "count"):
        many = np.ndim(value) > 0 if not isinstance(value, str | bytes | bytearray | dict | set | range) else False
        of_arrays = name.startswith(("schedules", "projections", "lam_", "C_")) and many
        case.accepted_oddly = real(value) is None and not (of_arrays and np.asarray(value).dtype.kind in "fiu")
    if kind == "flag":
        case.expect(
            isinstance(value, bool | np.bool_) or value in (0, 1), f"{parameter.name}={value!r} was taken for a truth value"
        )


def finite(result: Any) -> bool:
    """Whether all numbers of a result are finite."""
    return all(np.isfinite(np.asarray(a, np.float64)).all() for a in jax.tree.leaves(result) if np.asarray(a).dtype.kind in "fiu")


def use_solver(case: Case, text: str, name: str, made: Any) -> Any:
    """A few steps: decision values, which are finite where the run says so."""
    data = jaxsvm.dataset(X, Y)
    fitted = case.attempt(f"fit({text})", jaxsvm.fit, made, data, KEY, steps=STEPS, every=STEPS)
    case.expect(not getattr(case, "accepted_oddly", False), "trained with what is no number")
    case.expect(fitted.finite == ("not finite" not in fitted.status), f"finite is {fitted.finite}, status says {fitted.status!r}")
    scores = np.asarray(case.attempt(f"fit({text}).model(x)", fitted.model, data.x))
    case.expect(not fitted.finite or np.isfinite(scores).all(), "the run says that its model is finite, and its scores are not")
    return [scores]


def use_other(case: Case, text: str, name: str, made: Any) -> Any:
    """What a factory of another kind makes, used once: numbers."""
    data = jaxsvm.dataset(X, Y)
    part = name.split(".")[0]
    attempt = lambda what, fn: case.attempt(f"{what} of {text}", fn)
    if part == "kernels":
        found = attempt("a block", lambda: (made(X, X[:4]), made.diag(X)))
        shapes = [np.shape(a) for a in found]
        case.expect(shapes == [(10, 4), (10,)], f"a block of shapes {shapes}")
    elif part == "samplers":
        found = attempt("draws", lambda: np.asarray(made.draw(made.init(KEY, data), 0, 4)))
        case.expect(found.ndim == 2 and (found >= -1).all() and (found < 10).all(), f"draws {found.tolist()}")
    elif part == "losses":
        labels = attempt("labels", lambda: made.labels)
        y = np.linspace(-1, 1, 5, dtype="f4") if not labels else np.array([1, -1, 1, 1, -1], "f4")
        found = attempt("values", lambda: made.value(jnp.linspace(-2.0, 2.0, 5), jnp.asarray(y)))
    elif part == "schedules":
        found = attempt("steps", lambda: [np.asarray(made(t)) for t in (0, 1, 5)])
        case.expect(all(np.ndim(a) == 0 for a in found), "a step size that is no number")
    elif part == "projections":
        found = attempt("a projection", lambda: made(jnp.ones(3)))
    elif part == "features" and callable(made) and not name.endswith(("k_means", "leverage_scores", "random_pivots")):
        found = attempt("features", lambda: made(jnp.asarray(X)))
        case.expect(np.ndim(found) == 2 and len(found) == 10, f"features of shape {np.shape(found)}")
    elif part == "features":
        found = attempt("landmarks", lambda: features.nystrom(KEY, RBF, X, landmarks=4, choose=made).landmarks)
    elif part in ("on_features", "one_vs_rest", "one_vs_one", "averaged"):
        rows = data if part in ("on_features", "averaged") else jaxsvm.dataset(X, (Y + 1) // 2, task="multiclass")
        fitted = attempt("fit", lambda: jaxsvm.fit(made, rows, KEY, steps=STEPS, every=STEPS))
        found = attempt("the model", lambda: fitted.model(rows.x))
        case.expect(not fitted.finite or np.isfinite(np.asarray(found)).all(), "said to be finite, and its scores are not")
    elif part in ("average_iterates", "keep"):
        params = jnp.ones(3)
        found = attempt("an update", lambda: made.update(params, made.init(params), params)[0])
        case.expect(np.shape(found) == (3,), f"an update of shape {np.shape(found)} for parameters of shape (3,)")
    elif part == "budget":
        fitted = attempt("fit", lambda: jaxsvm.fit(jaxsvm.bsgd(0.1, RBF, budget=4, maintain=made), data, KEY, steps=8, every=8))
        found = np.asarray(fitted.model(data.x))
    else:
        found = np.asarray(made)
        takes_arrays = name in ("C_from_lam", "lam_from_C")
        case.expect((takes_arrays or not found.ndim) and found.dtype.kind == "f", f"{show(made)} is no number")
    case.expect(not getattr(case, "accepted_oddly", False), "worked with what is no number")
    return [np.asarray(a) for a in jax.tree.leaves(found)]
