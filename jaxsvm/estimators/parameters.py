"""Kernels and losses as scikit-learn names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import kernels, losses
from ..kernels import Kernel, as_kernel, holds_precomputed
from ..recipe import Recipe, check_positive
from .preprocess import is_sparse


def kernel_of(name: Any, gamma: Any, degree: int, coef0: float, x: Any, weight: np.ndarray | None = None) -> Kernel:
    """The kernel that the parameters of scikit-learn name, on training rows x."""
    if not isinstance(name, str):
        return as_kernel(name)
    if isinstance(gamma, str):
        if gamma not in ("scale", "auto"):
            raise ValueError(f"gamma must be 'scale', 'auto' or a number above 0, got {gamma!r}")
        spread = _variance(x, weight) if gamma == "scale" and name not in ("linear", "precomputed") else 1.0
        gamma = 1 / (x.shape[1] * (spread or 1.0))
    check_positive(gamma=gamma)
    gamma = float(gamma)
    made: dict[str, Callable] = {
        "linear": kernels.linear,
        "poly": lambda: kernels.polynomial(gamma, coef0, degree=degree),
        "rbf": lambda: kernels.rbf(gamma=gamma),
        "sigmoid": lambda: kernels.sigmoid(gamma, coef0),
        "laplacian": lambda: kernels.laplacian(1 / gamma),
        "precomputed": kernels.precomputed,
    }
    if name not in made:
        raise ValueError(f"kernel must be one of {', '.join(map(repr, made))}, a kernel or a function, got {name!r}")
    return made[name]()


def _variance(x: Any, weight: np.ndarray | None) -> float:
    """The variance of all numbers of x, rows counted by weight."""
    share = np.full(x.shape[0], 1 / x.shape[0]) if weight is None else weight / weight.sum()
    if is_sparse(x):
        data, share = x.data.astype(np.float64), np.repeat(share, np.diff(x.indptr)) / x.shape[1]
        return max(float(share @ data**2 - (share @ data) ** 2), 0.0)
    mean = float(share @ x.mean(axis=1, dtype=np.float64))
    return float(share @ ((x - mean) ** 2).mean(axis=1, dtype=np.float64))


def is_matrix(kernel: Any) -> bool:
    """Whether the parameter asks for kernel values that were worked out beforehand."""
    return isinstance(kernel, str) and kernel == "precomputed" or takes_matrix(kernel)


def may_widen(kernel: Any) -> bool:
    """Whether columns of zeros change nothing of a kernel that is given by name; nobody knows of others."""
    return isinstance(kernel, str) and kernel != "precomputed"


def takes_matrix(thing: Any) -> bool:
    """Whether a solver is made with kernel values that were worked out beforehand."""
    if isinstance(thing, Kernel):
        return holds_precomputed(thing)
    if not isinstance(thing, Recipe):
        return False
    _, args, kwargs = thing.call()
    return any(map(takes_matrix, (*args, *kwargs.values())))


def loss_of(loss: Any) -> Any:
    """The loss that the parameter asks for."""
    known = {"hinge": losses.hinge, "squared_hinge": losses.squared_hinge}
    if isinstance(loss, str) and loss not in known:
        raise ValueError(f"loss must be 'hinge', 'squared_hinge' or a loss of jaxsvm, got {loss!r}")
    return known[loss] if isinstance(loss, str) else loss
