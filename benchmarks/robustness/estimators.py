"""Part `estimators`: the classes with scikit-learn's names beside those of scikit-learn, and one hostile parameter or array."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import sklearn

from jaxsvm import estimators

from .cases import Case, hostile_choices, hostile_numbers, show

N, D = 30, 3
NAMES = ("SVC", "SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR")
REAL = ("SVR", "NuSVR", "LinearSVR")
CLASSES = ((0, 1), ("b", "a"), (-5, 2), (0, 1, 2, 3), ("x", "y", "z"))


def rows(case: Case, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows, targets of the kind that the machine takes, and weights or None."""
    random = case.random
    x = random.normal(size=(N, D)).astype("f4").astype("f8")
    weight = random.choice([0.5, 1, 2], N) if case.rarely(2) else None
    if name in REAL:
        return x, np.sin(2 * x[:, 0]) + 0.1 * random.normal(size=N), weight
    classes = case.one(CLASSES)
    place = np.argmax(x @ random.normal(size=(D, len(classes))) + 0.4 * random.normal(size=(N, len(classes))), 1)
    place[: 2 * len(classes)] = np.arange(2 * len(classes)) % len(classes)
    return x, np.array(classes)[place], weight


def parameters(case: Case, name: str) -> dict[str, Any]:
    """Ordinary parameters that both programs know."""
    chosen: dict[str, Any] = {"tol": 1e-4}
    if "Linear" in name:
        chosen |= {"C": case.one((0.1, 1.0, 10.0)), "max_iter": 10**5}
        return chosen | ({"dual": True, "random_state": 0} if name == "LinearSVC" else {"epsilon": 0.1, "random_state": 0})
    kernel = case.block(8).one(("rbf", "rbf", "poly", "linear"))
    chosen |= {"kernel": kernel, "gamma": case.one(("scale", "auto", 0.5)), "coef0": 1.0, "degree": 2}
    if "Nu" in name or name == "OneClassSVM":
        chosen["nu"] = case.one((0.1, 0.2))
    if name in ("SVC", "SVR", "NuSVR"):
        chosen["C"] = case.one((0.3, 1.0, 10.0))
    if name == "SVC":
        chosen |= {"class_weight": case.one((None, "balanced")), "decision_function_shape": case.one(("ovr", "ovo"))}
    return chosen


def decide(machine: Any, x: Any) -> np.ndarray:
    """Predictions of targets, or decision values."""
    return machine.predict(x) if not hasattr(machine, "decision_function") else machine.decision_function(x)


def compare(case: Case, name: str, chosen: dict[str, Any], arrays: tuple, machine: Any, text: str) -> None:
    """Decision values and predictions beside scikit-learn's."""
    from sklearn import svm

    x, y, weight = arrays
    other = getattr(svm, name)(**chosen | {"tol": 1e-7})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.fit(x, y, sample_weight=weight)
        have = np.asarray(case.attempt(f"decision values of {text}", decide, machine, x, must=True), np.float64)
        want = decide(other, x)
    case.expect(have.shape == want.shape, f"decision values of shape {have.shape}, expected {want.shape}")
    size = max(1.0, np.abs(want).max())
    if want.ndim > 1 and chosen.get("decision_function_shape", "ovr") == "ovr" and "Linear" not in name:
        agree = np.argmax(have, 1) == np.argmax(want, 1)  # votes: a value near 0 may vote for either
        if np.mean(agree) <= 0.9 and name == "SVC" and not has_one_answer(other, x, y, weight):
            return
        case.compare(np.mean(agree) > 0.9, f"the votes of {np.mean(~agree):.0%} of the rows are others")
    else:
        off = np.abs(have - want)
        if want.ndim == 1 and name in ("SVC", "NuSVC", "LinearSVC", "SVR", "NuSVR", "LinearSVR"):
            off = np.abs(have - want - np.median(have - want) * (np.abs(np.median(have - want)) < 0.05 * size))
        case.compare(off.max() <= 2e-2 * size, f"decision values are off by {off.max():.3g} of {size:.3g}")
    if name not in REAL:
        got = np.asarray(case.attempt(f"predict of {text}", machine.predict, x, must=True))
        clear = np.abs(want if want.ndim == 1 else np.sort(want, 1)[:, -1] - np.sort(want, 1)[:, -2]) > 5e-2 * size
        clear = clear if want.ndim == 1 or "Linear" in name else np.ones(N, bool)
        share = np.mean(got[clear] == other.predict(x)[clear]) if clear.any() else 1.0
        case.compare(share > (0.9 if want.ndim > 1 else 0.999), f"{1 - share:.0%} of the classes are others")


def has_one_answer(other: Any, x: np.ndarray, y: np.ndarray, weight: Any) -> bool:
    """Whether the values of scikit-learn's machine hardly change with the weights.

    Where all coefficients of a pair are at their bounds, an interval of constants is optimal. We take its midpoint, LIBSVM an
    end by rounding.
    """
    weight, values = np.ones(len(y)) if weight is None else weight, decide(other, x)
    for seed in range(4):
        near = weight * (1 + 1e-6 * np.random.default_rng(seed).normal(size=len(y)))
        again = type(other)(**other.get_params()).fit(x, y, sample_weight=near)
        if np.abs(decide(again, x) - values).max() > 1e-2:
            return False
    return True


def ordinary(case: Case) -> None:
    """Ordinary parameters, dense and sparse rows, names of classes, weights."""
    name = case.block(8).one(NAMES)
    chosen, (x, y, weight) = parameters(case, name), rows(case, name)
    if weight is not None and "gamma" in chosen:
        chosen["gamma"] = 0.5  # "scale" and "balanced" count rows by their weight here, and do not in scikit-learn
        if chosen.get("class_weight"):
            chosen["class_weight"] = {y[0]: 2.0}
    given = scipy.sparse.csr_matrix(x) if case.rarely(4) else x
    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in chosen.items())}).fit({show(given)}, weight={weight is not None})"
    case.refusers = (*case.refusers, str(pathlib.Path(sklearn.__file__).parent / "utils"))  # checks of its own are the promise
    machine = getattr(estimators, name)(**chosen)
    case.attempt(text, lambda: machine.fit(given, y, sample_weight=weight), must=True)
    compare(case, name, chosen, (x, y, weight), machine, text)


def hostile(case: Case) -> None:
    """One parameter or array that should not be taken, or means what scikit-learn means by it."""
    name = case.block(8).one(NAMES)
    chosen, (x, y, weight) = parameters(case, name), rows(case, name)
    if weight is not None and "gamma" in chosen:
        chosen["gamma"] = 0.5  # "scale" and "balanced" count rows by their weight here, and do not in scikit-learn
        if chosen.get("class_weight"):
            chosen["class_weight"] = {y[0]: 2.0}
    victim = case.one([*chosen, "x", "y", "weight"])
    arrays = {"x": x, "y": y, "weight": weight}
    twin = getattr(estimators, name)(**chosen)
    case.twin = lambda: twin.fit(x, y, sample_weight=np.ones(N) if victim == "weight" else weight)
    odd_rows = [np.where(x > 1, np.nan, x), np.where(x > 1, np.inf, x), x[:, :0], x[:0], x[0], x[None], x + 0j, x.astype(str),
                x * 1e39, None, "x", [[1, 2], [3]], x[:5], np.ma.masked_less(x, 0)]  # fmt: skip
    odd_y = [y[:5], y[:, None] if name != "OneClassSVM" else y[:5], np.full(N, 1.0), np.full(N, np.nan), np.full(N, 1j), None]
    odd_weight = [-np.ones(N), np.zeros(N), np.full(N, np.nan), np.ones(5), np.ones((N, 2)), "balanced", np.full(N, np.inf)]
    odd = {"x": odd_rows, "y": odd_y, "weight": odd_weight}
    choice = victim in ("kernel", "class_weight", "decision_function_shape")
    pool = odd.get(victim) or (hostile_choices() if choice else hostile_numbers())
    value = case.one(pool)
    if victim in arrays:
        arrays[victim] = value
    else:
        chosen |= {victim: value}
    text = f"{name}({victim}={show(value)})"
    case.refusers = (*case.refusers, str(pathlib.Path(sklearn.__file__).parent / "utils"))  # checks of its own are the promise
    machine = getattr(estimators, name)(**chosen)
    case.attempt(text, lambda: machine.fit(arrays["x"], arrays["y"], sample_weight=arrays["weight"]))
    if victim in ("tol", "max_iter", "random_state", "dual"):
        return  # another path to the answer
    try:
        compare(case, name, chosen, (arrays["x"], arrays["y"], arrays["weight"]), machine, text)
    except (
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        OverflowError,
    ):  # scikit-learn's own refusal: nothing to compare with
        case.judged = False


def run(case: Case) -> None:
    """One case of the part."""
    (hostile if case.seed % 3 == 2 else ordinary)(case)
