"""Solvers, losses, kernels and feature maps by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxsvm
from jaxsvm import budget, features, kernels, losses

from ..linear_choice import newton_by_C
from ..numerics import sqnorms
from .rows import variance_of


class Setting(NamedTuple):
    """The arguments from which a solver is made."""

    lam: float
    C: float
    kernel: Any  # None: linear
    loss: Any
    bias: str
    steps: int
    one_pass: int  # steps
    max_sqnorm: Callable[[], float]  # largest squared norm of a row
    budget: int | None = None  # points of the model


class Method(NamedTuple):
    """A solver by name; `parser.SOLVERS` says what it is."""

    make: Callable  # Setting -> solver
    biases: tuple = ("none",)  # the first is the default
    kernel: str = "no"  # "no", "yes", "needed"
    batch: int = 16
    passes: int = 20
    tol: float | None = None
    losses: bool = True
    features: bool = True  # whether rows may be features of a kernel
    objective: bool = True  # whether there is an optimum to certify against
    budget: bool = False  # whether the model has a budget of points
    # the default losses, for classes and for real targets
    default_losses: tuple = ("hinge", "eps_insensitive")


def _linear_weight(t: Any) -> Any:
    return t + 1


def _kernel_of(s: Setting) -> Any:
    return kernels.linear() if s.kernel is None else s.kernel


def _pegasos(s: Setting) -> Any:
    solver = jaxsvm.pegasos(
        s.lam, loss=s.loss, bias=s.bias, project=bool(s.loss.labels), offset=s.max_sqnorm() / s.lam
    )
    return jaxsvm.averaged(solver, weights=_linear_weight)


def _budgeted(factory: Callable, number: float, s: Setting) -> Any:
    return factory(number, s.kernel, budget=s.budget, maintain=budget.default_for(s.kernel))


METHODS = {
    "sdca": Method(
        lambda s: jaxsvm.sdca(s.C, s.kernel, loss=s.loss, bias=s.bias),
        ("feature", "none"), "yes", 1, 100, 1e-3,
    ),
    "cocoa": Method(
        lambda s: jaxsvm.cocoa(s.C, blocks=jax.device_count(), loss=s.loss, bias=s.bias),
        ("feature", "none"), batch=0, passes=1000, tol=1e-2,
    ),
    "interior_point": Method(
        lambda s: jaxsvm.interior_point(s.C, loss=s.loss, bias=s.bias),
        ("feature", "free", "none"), batch=0, passes=10, tol=1e-6,
    ),
    "augmented_lagrangian": Method(
        lambda s: jaxsvm.augmented_lagrangian(s.C, loss=s.loss, bias=s.bias),
        ("feature", "none"), batch=0, passes=10, tol=1e-6,
    ),
    "decomposition": Method(
        lambda s: jaxsvm.decomposition(s.C, _kernel_of(s), loss=s.loss, bias=s.bias),
        ("free", "none"), "yes", 0, 10, 1e-3, features=False,
    ),
    "smo": Method(
        lambda s: jaxsvm.smo(s.C, _kernel_of(s), loss=s.loss, bias=s.bias),
        ("free", "none"), "yes", 1, 100, 1e-3, features=False,
    ),
    "pegasos": Method(
        _pegasos,
        ("feature", "none", "free"),
    ),
    "kernel_pegasos": Method(
        lambda s: jaxsvm.kernel_pegasos(s.lam, s.kernel),
        kernel="needed", batch=1, losses=False,
    ),
    "bsca": Method(
        lambda s: _budgeted(jaxsvm.bsca, s.C, s),
        kernel="needed", batch=1, passes=100, tol=1e-3, losses=False, features=False, budget=True,
    ),
    "bsgd": Method(
        lambda s: _budgeted(jaxsvm.bsgd, s.lam, s),
        kernel="needed", batch=1, losses=False, features=False, budget=True,
    ),
    "asset": Method(
        lambda s: jaxsvm.asset(s.lam, loss=s.loss, bias=s.bias, average_from=s.steps // 2),
        ("free", "none"),
    ),
    "asset_star": Method(
        lambda s: jaxsvm.asset_star(s.lam, loss=s.loss, average_from=s.steps // 2),
    ),
    "bottou_sgd": Method(
        lambda s: jaxsvm.bottou_sgd(s.lam, loss=s.loss, bias=s.bias),
        ("feature", "none", "free"),
        batch=1,
    ),
    "asgd": Method(
        lambda s: jaxsvm.asgd(s.lam, loss=s.loss, bias=s.bias, average_from=s.one_pass),
        ("feature", "none", "free"),
        batch=1,
    ),
    "subgradient": Method(
        lambda s: jaxsvm.subgradient(s.lam, loss=s.loss, bias=s.bias),
        ("feature", "none", "free"),
        batch=0,
        passes=500,
    ),
    "newton": Method(
        lambda s: newton_by_C(s.C, loss=s.loss, bias=s.bias),
        ("feature", "none", "free"),
        batch=0, passes=10, tol=1e-6, default_losses=("squared_hinge", "squared"),
    ),
    "ocas": Method(
        lambda s: jaxsvm.ocas(s.lam, loss=s.loss, bias=s.bias),
        ("feature", "free", "none"), batch=0, passes=500, tol=1e-3,
    ),
    "svm_perf": Method(
        lambda s: jaxsvm.svm_perf(s.lam, loss=s.loss, bias=s.bias),
        ("feature", "free", "none"), batch=0, passes=500, tol=1e-3,
    ),
    "perceptron": Method(
        lambda s: jaxsvm.perceptron(s.kernel, average=True),
        kernel="yes", batch=1, passes=10, losses=False, objective=False,
    ),
}  # fmt: skip

LOSSES = {name: getattr(losses, name) for name in ("hinge", "squared_hinge", "logistic", "squared")}
LOSSES |= {name: getattr(losses, name)() for name in ("smooth_hinge", "eps_insensitive", "pinball")}


TAKES: dict[str, tuple] = {  # options of the kernels
    "rbf": ("sigma", "gamma"),
    "laplacian": ("sigma",),
    "polynomial": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}


def refuse_unused(args: Any, name: str, takes: dict[str, tuple]) -> None:
    """Raise for an option that the kernel of that name does not take."""
    for option in ("sigma", "gamma", "degree", "coef0"):
        if getattr(args, option) is not None and option not in takes.get(name, ()):
            raise ValueError(f"the {name} kernel has no --{option}")


def kernel(args: Any, x: Any) -> tuple[Any, str]:
    """The kernel of the options and its description; (None, "linear") for none."""
    name = args.kernel or ("rbf" if args.features else "linear")
    refuse_unused(args, name, TAKES)
    if name == "linear":
        return None, "linear"
    variance = variance_of(x) or 1.0
    gamma = 1 / (x.shape[1] * variance) if args.gamma is None else args.gamma
    coef0, degree = constants(args, name)
    if name == "rbf" and args.sigma is not None:
        if args.gamma is not None:
            raise ValueError("--sigma and --gamma = 1 / (2 sigma^2) say the same: give one of them")
        return kernels.rbf(args.sigma), f"rbf(sigma={args.sigma:g})"
    if name == "rbf":
        return by_gamma(name, gamma, coef0, degree), f"rbf(gamma={gamma:.4g})"
    if name == "laplacian":
        sigma = x.shape[1] * variance**0.5 if args.sigma is None else args.sigma
        return kernels.laplacian(sigma), f"laplacian(sigma={sigma:.4g})"
    more = f", degree={degree}" if name == "polynomial" else ""
    description = f"{name}(gamma={gamma:.4g}, coef0={coef0:g}{more})"
    return by_gamma(name, gamma, coef0, degree), description


def constants(args: Any, name: str) -> tuple[float, int]:
    """The constant and the degree of the options, for a kernel of that name."""
    coef0 = (1.0 if name == "polynomial" else 0.0) if args.coef0 is None else args.coef0
    return coef0, 3 if args.degree is None else args.degree


def by_gamma(name: str, gamma: float, coef0: float, degree: int) -> Any:
    """The kernel of that name; laplacian is exp(-gamma |x - z|_1)."""
    if name == "polynomial":
        return kernels.polynomial(gamma, coef0, degree=degree)
    if name == "sigmoid":
        return kernels.sigmoid(gamma, coef0)
    return kernels.rbf(gamma=gamma) if name == "rbf" else kernels.laplacian(1 / gamma)


def feature_map(name: str, key: Any, kernel: Any, x: Any, count: int | None) -> Any:
    """The map of a kernel; count=None: 512, or as many as there are rows."""
    if name == "nystrom":
        return features.nystrom(
            key, kernel, x, landmarks=min(512, x.shape[0]) if count is None else count
        )
    draw = {"fourier": features.fourier, "orthogonal": features.orthogonal}[name]
    return draw(key, kernel, dim=x.shape[1], features=512 if count is None else count, x=x)


def max_sqnorm(kernel: Any, x: Any, bias: str) -> float:
    """The largest squared norm of a row, or of its kernel features.

    The squared norm of a constant feature is added.
    """
    largest = jnp.max(sqnorms(x) if kernel is None else kernel.diag(x))
    return float(largest) + (bias == "feature")


def columns_of(model: Any) -> int:
    """The number of columns of a model's rows.

    Raises:
        ValueError: the model was not made by these commands.
    """
    node = model
    while node is not None:
        for name in ("mean", "width", "landmarks", "w", "x"):
            if hasattr(node, name):
                return int(getattr(node, name).shape[-1])
        if hasattr(node, "frequencies"):
            return int(node.frequencies.shape[0])
        node = getattr(node, "phi", None) if hasattr(node, "phi") else getattr(node, "inner", None)
    raise ValueError("the file holds no model of rows: expected what jaxsvm train writes")
