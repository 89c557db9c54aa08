"""LIBSVM's nu-SVC, one-class SVM and nu-SVR: their duals, with coefficients in parts of fixed sums.

    D(coef) = linear' c - 1/2 c' K c,   c_i = sum_k coef_ki,
        low_ki <= coef_ki <= high_ki,   sum_i coef_ki = total_k

The first part is >= 0. The second one, which the one-class SVM does not have, is <= 0. With weights
w_i and W = sum_i w_i:

    problem    linear  bounds of the parts                     sums of the parts
    nu_svc     0       w_i where y_i = 1, -w_i where y_i = -1  nu W / 2, -nu W / 2
    one_class  0       w_i                                     nu W
    nu_svr     y       C w_i, -C w_i                           C nu W / 2, -C nu W / 2

At the optimum linear_i - (K c)_i equals a multiplier level_k for every free coefficient of part k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import check_choice, positive_number
from ..kernels import matvec
from ..models import Expansion
from ..numerics import is_traced
from ..types import Array, Batch, Certificate, Scalar
from .certificates import objective_rounding, of_rows
from .evaluate import check_dual_model, in_float64

FORMS = ("nu_svc", "one_class", "nu_svr")
SLACK = 1e-6  # relative, by which rounding of nu may exceed its largest value


class Parts(NamedTuple):
    """The dual of one of the problems on given rows, without the kernel."""

    linear: Array  # (n,)
    low: Array  # (k, n)
    high: Array  # (k, n)
    total: Array  # (k,)  the sum of each part


def signs_of(coef: Array) -> Array:
    """The sign of each part of (k, n) coefficients, (k,)."""
    return jnp.asarray([1.0, -1.0][: coef.shape[0]], coef.dtype)


def make_parts(form: str, nu: Scalar, C: Scalar, y: Array, weight: Array) -> Parts:
    """The linear term, bounds and sums; those of the largest feasible nu where nu is larger."""
    zero, cap = jnp.zeros_like(weight), C * weight
    largest = largest_nu(form, y, weight, jnp)
    # not `minimum`, whose derivative at a tie is one half
    total = C * jnp.where(nu > largest, largest, nu) * jnp.sum(weight)
    if form == "one_class":
        return Parts(zero, zero[None], cap[None], total[None])
    up, down = cap, cap
    if form == "nu_svc":
        up, down = jnp.where(y > 0, cap, 0), jnp.where(y > 0, 0, cap)
    low, high = jnp.stack([zero, -down]), jnp.stack([up, zero])
    return Parts(y if form == "nu_svr" else zero, low, high, signs_of(low) * total / 2)


def largest_nu(form: str, y: Any, weight: Any, xp: Any = np) -> Any:
    """The largest feasible nu, in (0, 1]: for nu_svc 2 min(W+, W-) / W, of the weights by class."""
    if form != "nu_svc":
        return xp.ones((), weight.dtype)
    sum_of = lambda rows: xp.sum(xp.where(rows, weight, xp.zeros_like(weight)))
    positive, negative = sum_of(y > 0), sum_of(~(y > 0))
    total = positive + negative
    return 2 * xp.minimum(positive, negative) / xp.where(total > 0, total, xp.ones_like(total))


def fill(coef: Array, cap: Array, total: Array) -> Array:
    """Coefficients (n,) in [0, cap] of the given sum.

    Those given are scaled down to the sum, or else filled up to their bounds in order of the rows.
    From zeros this is LIBSVM's initial point.
    """
    coef = jnp.clip(coef, 0, cap)
    given = jnp.sum(coef)
    coef = coef * jnp.minimum(1, total / jnp.where(given > 0, given, 1))
    room = cap - coef
    return coef + jnp.clip(total - jnp.sum(coef) - (jnp.cumsum(room) - room), 0, room)


def nu_certificate(
    model: Expansion, data: Batch, nu: float, problem: str = "nu_svc", *, C: float = 1.0
) -> Certificate:
    """A bound on the suboptimality of a model of `nu_svc`, `one_class` or `nu_svr`.

    With f_i = <w, phi(x_i)>, u and v the parts, p the linear term and levels m the primal is

        P(w, m) = 1/2 |w|^2 + sum_k m_k total_k
            + sum_i (high_1i max(0, p_i - f_i - m_1) + |low_2i| max(0, m_2 - p_i + f_i))
        P(model) - min P <= gap
        gap = 1/2 |w - w(u + v)|^2 + sum of terms >= 0

    The coefficients of the model, with rounding removed, are the dual point. The model of `nu_svc`
    is multiplied by its margin first. For `nu_svr` the best tube for the model is taken.

    Computed in float64 for models of any dtype; under tracing in the dtype of the model.

    Args:
        model: an expansion over the training rows.
        data: the n training rows.
        nu: of the problem, in (0, 1].
        problem: "nu_svc", "one_class" or "nu_svr".
        C: of `nu_svr`, > 0; not read for the other problems.

    Returns:
        The objective in the units of the problem, below 0 for `nu_svc` and `one_class`; its lower
        bound, the gap, and whether the coefficients met the constraints up to rounding.

    Raises:
        TypeError: a model that is not an expansion over the training rows.
        ValueError: nu or C out of range; another problem.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0], [-2.0]], [1, -1, 1, -1])
        >>> result = jaxsvm.fit(jaxsvm.nu_svc(0.4, jaxsvm.kernels.linear()), data,
        ...     jax.random.key(0))
        >>> float(jaxsvm.nu_certificate(result.model, data, 0.4).gap) < 1e-6
        True

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000; S. Boyd, L. Vandenberghe, Convex optimization, 2004, section
        5.5.
    """
    check_choice("problem", problem, FORMS)
    nu, C = positive_number("nu", nu), positive_number("C", C)
    if not is_traced(nu) and float(nu) > 1:
        raise ValueError(f"nu must be above 0 and at most 1, got {float(nu):g}")
    check_dual_model(model)
    result = _certificate((model, data, nu, C if problem == "nu_svr" else 1.0), (), (problem,))
    return result._replace(exact=result.exact if is_traced(result) else bool(result.exact))


@in_float64
def _certificate(model: Any, data: Batch, nu: Array, C: Array, problem: str) -> Certificate:
    parts = make_parts(problem, nu, C, data.y, data.weight)
    signs, (_, coef) = signs_of(parts.low), of_rows(model, parts.linear)
    if problem == "nu_svc":  # the margin, by which the solver divided
        size = jnp.sum(jnp.abs(coef))
        margin = jnp.sum(jnp.abs(parts.total)) / jnp.where(size > 0, size, 1)
        model, coef = model.scaled(margin), margin * coef
    score = matvec(model.kernel, data.x, data.x, coef)  # without b
    value = parts.linear - score
    if problem == "nu_svc":
        level = model.b - signs * margin
    elif problem == "nu_svr":
        level = model.b + signs * quantile(jnp.abs(value - model.b), data.weight, nu)
    else:
        level = model.b[None]
    # The dual point: within bounds, of the right sums. Equal amounts of u and -v cancel in c.
    own = jnp.maximum(signs[:, None] * coef[None, :], 0)
    caps, totals = parts.high - parts.low, signs * parts.total
    if problem == "nu_svr":
        room = jnp.maximum(caps[0] - jnp.abs(coef), 0)
        both = fill(jnp.zeros_like(coef), room, jnp.maximum(jnp.min(totals - jnp.sum(own, 1)), 0))
        own = own + both[None, :]
    point = jax.vmap(fill)(own, caps, totals)
    exact = jnp.max(jnp.abs(point - own)) <= 1e-6 * jnp.max(caps)
    point = signs[:, None] * point
    dual_coef = jnp.sum(point, axis=0)
    difference = coef - dual_coef
    distance = jnp.dot(difference, matvec(model.kernel, data.x, data.x, difference))
    residual = value[None, :] - level[:, None]
    slack = parts.high * jnp.maximum(residual, 0) + parts.low * jnp.minimum(residual, 0)
    terms = jnp.maximum(slack - point * residual, 0)
    gap = jnp.maximum(distance, 0) / 2 + jnp.sum(terms)
    gap = gap + objective_rounding(model, data, dual_coef)
    primal = jnp.dot(coef, score) / 2 + jnp.dot(level, parts.total) + jnp.sum(slack)
    return Certificate(primal, primal - gap, gap, exact)


def quantile(values: Array, weight: Array, nu: Array) -> Array:
    """The e that minimises nu W e + sum_i weight_i max(0, value_i - e), ().

    The weight of the rows above it is at most nu W.
    """
    order = jnp.argsort(-values)
    above = jnp.cumsum(weight[order])  # the weight of the rows up to each one
    first = jnp.argmax(above >= nu * above[-1])
    return values[order][first]
