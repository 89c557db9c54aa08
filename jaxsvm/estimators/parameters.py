"""Kernels and losses by the names of scikit-learn."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike

from .. import kernels, losses
from .._node import nodes_in
from ..checks import check_positive, is_sparse, x64_enabled
from ..kernels import Kernel, as_kernel
from ..names import ALIASES, KERNELS
from ..wrappers import on_features

SKLEARN = {own: name for name, own in ALIASES.items()}  # scikit-learn's names of ours
BY_NAME = tuple(SKLEARN.get(name, name) for name in KERNELS)
WITH_GAMMA = tuple(name for name in BY_NAME if KERNELS[ALIASES.get(name, name)])

_T = TypeVar("_T")
SECTION = re.compile(r"^Args:\n(?: .*\n)*", re.MULTILINE)  # of a docstring
ENTRY = re.compile(r"^    (\w+): .*(?:\n     .*)*", re.MULTILINE)  # of one parameter
PerRow = ArrayLike | None  # a number or a name of each row, where they are given


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def estimator(names: str) -> Callable[[type[_T]], type[_T]]:
    """Make `__init__` of parameters of these names, in this order; it keeps them as given.

    They are annotated in the class or in its bases. Texts that the `Args` of its docstring lack
    are pasted from the nearest base.
    """

    def with_init(cls: Any) -> Any:
        texts: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            lines = SECTION.search(inspect.cleandoc(base.__doc__ or "") + "\n")
            texts |= {entry[1]: entry[0] for entry in ENTRY.finditer(lines[0] if lines else "")}
        args = "\n".join(["Args:", *(texts.get(name, "") for name in names.split()), ""])
        cls.__doc__ = SECTION.sub(lambda _: args, inspect.cleandoc(cls.__doc__ or ""))
        fields = {field.name: field for field in dataclasses.fields(parameters(cls))}
        chosen = [(name, fields[name].type, copy.copy(fields[name])) for name in names.split()]
        cls.__init__ = vars(dataclasses.make_dataclass(cls.__name__, chosen))["__init__"]
        return abc.update_abstractmethods(cls)

    return with_init


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def parameters(cls: type[_T]) -> type[_T]:
    """Make the annotated attributes of a class parameters, which `estimator` may name."""
    return dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=True)(cls)


@parameters
class RunParameters:
    """Parameters of the runs of most machines.

    Args:
        random_state: int, `RandomState` or None; the seed of the key.
        verbose: whether there is a bar on the standard error stream, as by `progress`.
        progress: whether there is a bar on the standard error stream.
    """

    random_state: int | np.random.RandomState | None = None
    verbose: bool | int = False
    progress: bool = False
    warm_start: bool = False


@parameters
class KernelParameters:
    """Parameters of kernels.

    Args:
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian", "matern12", "matern32", "matern52",
            "rational_quadratic", "cosine", "chi2", "additive_chi2" or "precomputed", a kernel of
            jaxsvm, or a function (n, d), (m, d) -> (n, m).
        degree: of "poly", an integer.
        gamma: of a kernel by name: a number > 0, "scale" for 1/(d variance of X) or "auto" for 1/d.
        coef0: of "poly" and "sigmoid", the number that is added to the inner products.
    """

    kernel: str | Callable = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0


def kernel_of(
    name: object, gamma: object, degree: int, coef0: float, x: object, weight: Any = None
) -> Kernel:
    """The kernel of the parameters of scikit-learn, for training rows x."""
    if not isinstance(name, str):
        return as_kernel(name)
    gamma = gamma_of(name, gamma, x, weight)
    if name not in BY_NAME:
        raise ValueError(
            f"kernel must be one of {', '.join(map(repr, BY_NAME))}, a kernel or a "
            f"function, got {name!r}"
        )
    limits = _limits()
    if name in WITH_GAMMA and not float(limits.tiny) <= abs(gamma) <= float(limits.max):
        raise ValueError(
            f"gamma must be from {limits.tiny:.3g} to {limits.max:.3g} for {limits.dtype}, got "
            f"{gamma:g}: scale the columns of X instead"
        )
    return kernels.by_name(name, gamma, coef0, degree)


def _limits() -> np.finfo:
    """The range of the numbers of solvers."""
    return np.finfo(np.float64 if x64_enabled() else np.float32)


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
        return max(1 / (x.shape[1] * variance), float(_limits().tiny))  # as before
    check_positive(gamma=gamma)
    return float(gamma)


def _variance(x: Any, weight: np.ndarray | None) -> float:
    """The variance of all entries of x, rows weighted."""
    share = np.full(x.shape[0], 1 / x.shape[0]) if weight is None else weight / weight.sum()
    if is_sparse(x):
        data, share = x.data.astype(np.float64), np.repeat(share, np.diff(x.indptr)) / x.shape[1]
        return max(float(share @ data**2 - (share @ data) ** 2), 0.0)
    mean = float(share @ x.mean(axis=1, dtype=np.float64))
    deviation = x - mean
    return float(share @ np.einsum("nd,nd->n", deviation, deviation, dtype=np.float64)) / x.shape[1]


def mean_sqnorm(x: Any, weight: np.ndarray) -> float:
    """The weighted mean of |x_i|^2."""
    of_data = np.repeat(weight, np.diff(x.indptr)) if is_sparse(x) else weight
    squares = x.data**2 if is_sparse(x) else np.einsum("ij,ij->i", x, x)
    # without BLAS, whose threads would wait while a program runs
    return float(np.sum(squares * of_data) / weight.sum())


def is_matrix(kernel: object) -> bool:
    """Whether the kernel parameter stands for a precomputed kernel."""
    return isinstance(kernel, str) and kernel == "precomputed" or takes_matrix(kernel)


def takes_matrix(node: object) -> bool:
    """Whether a kernel, or one of a solver, is a precomputed kernel."""
    by_name = isinstance(node, str | None)
    return not by_name and any(isinstance(part, kernels.precomputed) for part in nodes_in(node))


def spaces_of(node: object) -> list:
    """The kernels and feature maps of a solver, in which its state has a meaning."""
    parts = [*nodes_in(node)]
    maps = [part.phi for part in parts if isinstance(part, on_features)]
    return maps + [part for part in parts if isinstance(part, Kernel)]


def loss_of(loss: object) -> Any:
    """The loss of the parameter: by name, or as it is."""
    if isinstance(loss, str) and loss not in ("hinge", "squared_hinge"):
        raise ValueError(f"loss must be 'hinge', 'squared_hinge' or a loss of jaxsvm, got {loss!r}")
    return losses.by_name(loss) if isinstance(loss, str) else loss
