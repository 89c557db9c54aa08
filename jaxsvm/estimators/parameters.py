"""Kernels and losses by the names of scikit-learn."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from .. import kernels, losses
from .._node import nodes_in
from ..checks import check_positive, x64_enabled
from ..data.from_scipy import is_sparse
from ..kernels import Kernel, as_kernel
from ..names import ALIASES, KERNELS
from ..wrappers import on_features

SKLEARN = {own: name for name, own in ALIASES.items()}  # scikit-learn's names of ours
BY_NAME = tuple(SKLEARN.get(name, name) for name in KERNELS)
WITH_GAMMA = tuple(name for name in BY_NAME if KERNELS[ALIASES.get(name, name)])
TINY = 1e-12  # size of rows of which the squares, and smaller ones, are not far from underflow

_T = TypeVar("_T")


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def estimator(cls: type[_T]) -> type[_T]:
    """Make `__init__` of the annotated parameters of a class and its bases; it keeps them as given.

    Those of bases come first.
    """
    return dataclasses.dataclass(eq=False, repr=False, kw_only=True)(cls)


@estimator
class NuParameter:
    """The parameter nu: as the last base of a machine it stands before those of the kernel."""

    nu: float = 0.5


def set_parameters(estimator: object, names: dict[str, Any]) -> None:
    """Keep the parameters of `__init__`, given as its `locals()`, as attributes unchanged."""
    vars(estimator).update((name, value) for name, value in names.items() if name != "self")


def kernel_of(
    name: object,
    gamma: object,
    degree: int,
    coef0: float,
    x: object,
    weight: np.ndarray | None = None,
) -> Kernel:
    """The kernel of the parameters of scikit-learn, for training rows x."""
    if not isinstance(name, str):
        return as_kernel(name)
    gamma = gamma_of(name, gamma, x, weight)
    unit = unit_of(x) if name in (*WITH_GAMMA, "cosine") else 1.0
    square = in_range("gamma", gamma if unit == 1 else gamma * unit * unit)
    if name not in BY_NAME:
        raise ValueError(
            f"kernel must be one of {', '.join(map(repr, BY_NAME))}, a kernel or a "
            f"function, got {name!r}"
        )
    factor = gamma * unit if name in ("laplacian", "chi2") else square
    kernel = kernels.by_name(name, factor, coef0, degree)
    return kernel if unit == 1 else kernels.in_units(kernel, unit)


def unit_of(x: Any) -> float:
    """A power of two near the largest number of rows whose squares underflow in float32, or 1."""
    values = x.data if is_sparse(x) else x
    most = 0.0 if not values.size else max(float(values.max()), -float(values.min()))
    return 2.0 ** np.floor(np.log2(most)) if 0 < most < TINY else 1.0


def gamma_of(name: object, gamma: Any, x: Any, weight: np.ndarray | None = None) -> float:
    """The number that the parameter gamma stands for, for training rows x."""
    if isinstance(gamma, str):
        if gamma not in ("scale", "auto"):
            raise ValueError(f"gamma must be 'scale', 'auto' or a number above 0, got {gamma!r}")
        if gamma == "auto" or name in ("linear", "precomputed"):
            return 1 / x.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):  # `dataset` rejects such rows
            variance = _variance(x, weight)
        if not variance or not np.isfinite(variance):
            return 1.0
        return max(1 / (x.shape[1] * variance), float(_limits().tiny))  # as above
    check_positive(gamma=gamma)
    return float(gamma)


def in_range(name: str, value: Any) -> float:
    """A number that is not 0 as a float.

    Raises:
        ValueError: it is out of the range of the numbers of solvers.
    """
    limits = _limits()
    if not float(limits.tiny) <= abs(value) <= float(limits.max):
        raise ValueError(
            f"{name} must be from {limits.tiny:.3g} to {limits.max:.3g} for {limits.dtype}, got "
            f"{value:g}: scale the columns of X instead"
        )
    return float(value)


def _limits() -> np.finfo:
    """The range of the numbers of solvers."""
    return np.finfo(np.float64 if x64_enabled() else np.float32)


def _variance(x: Any, weight: np.ndarray | None) -> float:
    """The variance of all entries of x, rows weighted."""
    share = np.full(x.shape[0], 1 / x.shape[0]) if weight is None else weight / weight.sum()
    if is_sparse(x):
        data, share = x.data.astype(np.float64), np.repeat(share, np.diff(x.indptr)) / x.shape[1]
        return max(float(share @ data**2 - (share @ data) ** 2), 0.0)
    mean = float(share @ x.mean(axis=1, dtype=np.float64))
    deviation = x - mean
    return float(share @ np.einsum("nd,nd->n", deviation, deviation, dtype=np.float64)) / x.shape[1]


def is_matrix(kernel: object) -> bool:
    """Whether the kernel parameter stands for a precomputed kernel."""
    return isinstance(kernel, str) and kernel == "precomputed" or takes_matrix(kernel)


def may_widen(kernel: object) -> bool:
    """Whether columns of zeros have no effect on the kernel.

    This is known for kernels by name only.
    """
    return isinstance(kernel, str) and kernel != "precomputed"


def takes_matrix(node: object) -> bool:
    """Whether a kernel, or one of a solver, is a precomputed kernel."""
    by_name = isinstance(node, str | None)
    return not by_name and any(isinstance(part, kernels.precomputed) for part in nodes_in(node))


def spaces_of(node: object) -> list:
    """The kernels and feature maps of a solver, in which its state has a meaning."""
    parts = [*nodes_in(node)]
    maps = [part.phi for part in parts if isinstance(part, on_features)]
    return maps + [part for part in parts if isinstance(part, Kernel)]


def divides_rows(node: object) -> bool:
    """Whether a kernel, or one of a solver, divides rows by their unit."""
    return any(isinstance(part, kernels.in_units) for part in nodes_in(node))


def loss_of(loss: object) -> Any:
    """The loss of the parameter: by name, or as it is."""
    if isinstance(loss, str) and loss not in ("hinge", "squared_hinge"):
        raise ValueError(f"loss must be 'hinge', 'squared_hinge' or a loss of jaxsvm, got {loss!r}")
    return losses.by_name(loss) if isinstance(loss, str) else loss
