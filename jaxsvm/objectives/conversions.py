"""Conversions between lam, C, nu and the radius of a ball."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..checks import check_choice, check_nonnegative, check_positive, has_shape, positive_number
from ..kernels import Kernel, as_kernel, matvec
from ..losses import hinge
from ..numerics import is_traced, one_level, two_levels
from ..types import Array, Batch, Model, check_weights
from .evaluate import check_objective, decision_values, in_float64, normalized_weights


def lam_from_C(C: float, n: float) -> float:
    """The regularisation lam = 1 / (C n), n the sum of the weights.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.lam_from_C(2.0, 50)
        0.01
    """
    return _inverse(C=C, n=n)


def C_from_lam(lam: float, n: float) -> float:
    """The loss weight C = 1 / (lam n), n the sum of the weights.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.C_from_lam(0.01, 50)
        2.0
    """
    return _inverse(lam=lam, n=n)


def _inverse(**factors: float) -> float:
    """The inverse of the product of two positive numbers, or arrays of them."""
    product: Any = 1
    for name, value in factors.items():
        for number in np.ravel(value) if has_shape(value) and not is_traced(value) else ():
            check_positive(**{name: number})
        product = product * (value if has_shape(value) else positive_number(name, value))
    return 1 / product


def nu_from(model: Model, data: Batch) -> Array:
    """The slack nu for which the slack-constrained problem has the direction of this model.

    It is nu = (mean hinge) / |w|.

    Args:
        model: nonzero; with the bias of `sbp(bias="free")`, or without.
        data: the n training rows.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(jaxsvm.nu_from(Linear(0.5 * jnp.ones(1), jnp.zeros(())), data))
        1.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 2.
    """
    model, data = check_objective(model, data)
    return _nu((model, data))


@in_float64
def _nu(model: Any, data: Batch) -> Array:
    losses = hinge.value(decision_values(model, data), data.y)
    return jnp.dot(normalized_weights(data), losses) / jnp.sqrt(model.sqnorm())


def radius_from(model: Any) -> Array:
    """The radius |w| of the ball on which this model minimises the hinge.

    The model is the minimiser of lam/2 |w|^2 + hinge.

    Args:
        model: one with `sqnorm()`.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> float(jaxsvm.objectives.radius_from(Linear(jnp.array([3.0, 4.0]), jnp.zeros(()))))
        5.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 2.
    """
    return jnp.sqrt(model.sqnorm())


def lam_from_nu(nu: float, p: Array, data: Batch, kernel: Kernel, bias: str = "none") -> Array:
    """The lam whose solution has the direction of that of the slack-constrained problem.

    It is the lam of lam/2 |w|^2 + mean hinge:

        v = sum_i p_i y_i phi(x_i);   G = level of v / |v|;
        lam = G |v| / (sum_i weight_i max_i p_i / weight_i)

    The solution is then v / (|v| G), with alpha = p / (G |v|). If no coefficient is at its bound
    (nu = 0), many lam match; this is the largest.

    Args:
        nu: mean slack, >= 0.
        p: (n,) the shares at the optimum, such as `run.state.solver.p` of a long run of `sbp`; lam
            is as accurate as p.
        data: the n training rows.
        kernel: of the run.
        bias: "none" or "free".

    Raises:
        ValueError: p of another shape than (n,), or 0 everywhere.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> alpha, kernel = jnp.array([0.5, 0.5]), jaxsvm.kernels.linear()
        >>> float(jaxsvm.objectives.lam_from_nu(1.0, alpha, data, kernel))
        2.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 2; the multipliers are derived here.
    """
    check_choice("bias", bias, ("none", "free"))
    check_nonnegative(nu=nu)
    check_weights("data", data)
    if jnp.shape(p) != data.y.shape:
        raise ValueError(
            f"p has shape {jnp.shape(p)}, expected one share for each of the {data.y.shape[0]} rows"
        )
    if not is_traced(p) and not np.any(np.asarray(p)):
        raise ValueError(
            "p is 0 for all rows, expected shares of sum 1: take those of a run "
            "after its first step"
        )
    return _lam((nu, p, data, as_kernel(kernel)), choices=(bias,))


@in_float64
def _lam(nu: Array, p: Array, data: Batch, kernel: Kernel, bias: str) -> Array:
    mass, v, weight = jnp.sum(data.weight), p * data.y, data.weight
    score = matvec(kernel, data.x, data.x, v)
    norm = jnp.sqrt(jnp.dot(v, score))
    margin = data.y * score / norm
    if bias == "free":
        fill = two_levels(margin, data.y, nu * mass, weight=data.weight)
    else:
        fill = one_level(margin, nu * mass, weight=data.weight)
    max_ratio = jnp.max(jnp.where(weight > 0, p / jnp.where(weight > 0, weight, 1), 0))
    return fill.level * norm / (mass * max_ratio)
