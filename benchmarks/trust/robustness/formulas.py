"""What factories make, by their formulas in NumPy, float64: kernels and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxsvm.kernels import Kernel

from .cases import Case, real

# Rows and steps of the part `factories`.
X = np.random.default_rng(1).normal(size=(10, 3)).astype("f4").astype(np.float64)
STEPS = 4


def numbers_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with every single number as a float."""
    return {name: value if real(value) is None else float(real(value)) for name, value in arguments.items()}


def square_distances(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """|x_i - z_j|^2 from differences."""
    return ((x[:, None] - z[None]) ** 2).sum(-1)


def gaussian(x: np.ndarray, z: np.ndarray, sigma: float = 1.0) -> np.ndarray:
    """The Gaussian kernel."""
    return np.exp(-square_distances(x, z) / (2 * sigma**2))


BLOCKS: dict[str, Callable] = {
    "kernels.rbf": lambda x, z, sigma=None, gamma=None: gaussian(x, z, (2 * gamma) ** -0.5 if sigma is None else sigma),
    "kernels.laplacian": lambda x, z, sigma: np.exp(-np.abs(x[:, None] - z[None]).sum(-1) / sigma),
    "kernels.polynomial": lambda x, z, gamma, coef0, degree: (gamma * x @ z.T + coef0) ** degree,
    "kernels.sigmoid": lambda x, z, gamma, coef0: np.tanh(gamma * x @ z.T + coef0),
    "kernels.scaled": lambda x, z, inner, factor: factor * gaussian(x, z),
    "kernels.sum_": lambda x, z, a, b: gaussian(x, z) + x @ z.T,
    "kernels.product": lambda x, z, a, b: gaussian(x, z) * (x @ z.T),
}


def judge(case: Case, name: str, arguments: dict[str, Any], made: Any, result: list[np.ndarray]) -> None:
    """Compare what a factory made with its formula, where there is one for these arguments."""
    kernel = arguments.get("kernel")
    if callable(kernel) and not isinstance(kernel, Kernel):  # a function, whose formula is not known here
        return
    given = numbers_of(arguments)
    if isinstance(given.get("budget"), float) and given["budget"] < STEPS:  # then rows are removed
        return
    odd = [v for v in given.values() if isinstance(v, float) and not (np.isfinite(v) and abs(v) < 1e12)]
    if odd or any(np.ndim(v) for v in given.values() if isinstance(v, np.ndarray)):
        return
    try:
        with np.errstate(all="ignore"):
            want = formula(name, given, made)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):  # arguments that the formula does not know
        return
    if want is None or not all(np.isfinite(np.asarray(a, np.float64)).all() for a in want):
        return
    room = 2e-2 if any(getattr(v, "dtype", None) == np.float16 for v in arguments.values()) else 2e-4
    for have, right in zip(result, want, strict=False):
        have, right = np.asarray(have, np.float64), np.asarray(right, np.float64)
        case.expect(have.shape == right.shape, f"{name} makes shape {have.shape}, expected {right.shape}")
        size = max(1.0, float(np.abs(right).max(initial=0)))
        off = np.abs(have - right).max(initial=0) / size
        case.compare(off <= room, f"{name} is off by {off:.3g} from its formula")


def formula(name: str, given: dict[str, Any], made: Any) -> list[Any] | None:
    """The arrays that the use of a factory returns; None: there is no formula."""
    if name in BLOCKS and all(isinstance(v, float) or k in ("inner", "a", "b") for k, v in given.items()):
        return [BLOCKS[name](X, X[:4], **given), np.diag(BLOCKS[name](X, X, **given))]
    if name == "projections.ball":
        return [np.ones(3) * min(1, given["radius"] / 3**0.5)]
    if name in ("lam_from_C", "C_from_lam"):
        first, n = given.values()
        return [1 / (first * n)]
    if name.startswith(("features.fourier", "features.orthogonal")):
        angle = X @ np.asarray(made.frequencies, np.float64)
        if made.shift is None:
            return [np.concatenate([np.cos(angle), np.sin(angle)], 1) / np.sqrt(angle.shape[1])]
        return [np.cos(angle + np.asarray(made.shift, np.float64)) * np.sqrt(2 / angle.shape[1])]
    return None
