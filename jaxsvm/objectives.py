"""Objectives, optimality certificates, conversions between lam, C and nu, and probes.

    P(w) = lam/2 |w|^2 + sum_i w_i loss(f_i, y_i) / sum_i w_i
    D(coef) = -lam/2 |sum_i coef_i phi(x_i)|^2 - sum_i w_i conjugate(u_i, y_i) / sum_i w_i,
              u_i = -coef_i / C_i,  C_i = w_i / (lam sum w)

D <= min P for every coef in the domain of the conjugate; with a free bias, if also sum_i coef_i = 0.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .checks import as_number, has_shape, integer, shown
from .kernels import Kernel, as_kernel, matvec
from .losses import hinge
from .models import Classifier, Expansion, Linear, Mapped
from .numerics import dot, golden_section, is_traced, sqnorms, two_levels, water_level
from .recipe import (
    Recipe,
    as_static,
    cast,
    check_choice,
    check_nonnegative,
    check_positive,
    is_kind,
    refuse_factory,
    static,
    struct,
    unwrap_static,
)
from .types import Array, Batch, Certificate, Fit, Lifted, Loss, Model, check_batch

__all__ = [
    "C_from_lam",
    "certificate",
    "dual",
    "error_on",
    "kkt_residual",
    "lam_from_C",
    "lam_from_nu",
    "nu_from",
    "primal",
    "radius_from",
    "risk_on",
]


def lam_from_C(C: float, n: float) -> float:
    """The regularisation lam = 1 / (C n), n the sum of the weights.

    Example:
        >>> lam_from_C(2.0, 50)
        0.01
    """
    return _inverse(C=C, n=n)


def C_from_lam(lam: float, n: float) -> float:
    """The loss weight C = 1 / (lam n), n the sum of the weights.

    Example:
        >>> C_from_lam(0.01, 50)
        2.0
    """
    return _inverse(lam=lam, n=n)


def _inverse(**factors: float) -> float:
    """The inverse of the product of two positive numbers, or arrays of them."""
    for name, value in factors.items():
        for number in np.ravel(value) if has_shape(value) and not is_traced(value) else () if has_shape(value) else (value,):
            check_positive(**{name: number})
    first, second = (value if has_shape(value) else as_number(name, value) for name, value in factors.items())
    return 1 / (first * second)


def _check(model: Any, data: Any, loss: Any = hinge, needs: str = "sqnorm") -> None:
    """Check the types of model, data and loss.

    Raises:
        TypeError: with the expected and the actual type.
    """
    refuse_factory("model", model)
    if not callable(model) or isinstance(model, type | Recipe) or not hasattr(model, needs):
        how = ": pass run.model" if isinstance(model, Fit) else ""
        raise TypeError(f"model must be a model, such as run.model, got {type(model).__name__}{how}")
    check_batch("data", data)
    _check_loss(loss)


def _check_loss(loss: Any) -> None:
    refuse_factory("loss", loss)
    if not is_kind(loss, Loss):
        raise TypeError(f"loss must be a loss such as jaxsvm.losses.hinge, got {shown(loss)}")


def _in_float64(fn):
    """The function `fn`, compiled and in float64; under tracing uncompiled and in the dtype of its arguments."""

    @functools.partial(jax.jit, static_argnames=("choices",))
    def compiled(arrays, statics, choices):
        return fn(*arrays, *(unwrap_static(thing) for thing in statics), *choices)

    @functools.wraps(fn)
    def run(arrays, statics=(), choices=()):
        if is_traced(arrays, jax.tree.leaves(statics)):
            return fn(*arrays, *statics, *choices)
        with jax.enable_x64(True):
            args = cast((arrays, tuple(as_static(thing) for thing in statics)), jnp.float64)
            return jax.tree.map(lambda a: np.asarray(a)[()], compiled(*args, choices))  # JAX warns of float64 outside

    return run


def _bare(model: Model) -> Model:
    """The model without its feature maps and class names."""
    while isinstance(model, Mapped | Classifier):
        model = model.inner
    return model


def _innermost(model: Model) -> Linear | Expansion:
    """The linear model or expansion inside of feature maps and class names."""
    model = _bare(model)
    if not isinstance(model, Linear | Expansion):
        raise TypeError(f"expected a Linear, Expansion or Mapped model, got {type(model).__name__}")
    return model


def _features(model: Model, data: Batch) -> tuple[Model, Batch]:
    """The innermost model, and the data in its feature space."""
    while isinstance(model, Mapped | Classifier):
        if isinstance(model, Mapped) and not isinstance(data, Lifted):
            data = data._replace(x=model.features(data.x))
        model = model.inner
    return model, data


def decision_values(model: Model, data: Batch) -> Array:
    """Decision values (n,) or (n, k) at raw or prepared rows."""
    if isinstance(data, Lifted):
        model = _bare(model)
    score, n = model(data.x), data.x.shape[0]
    if jnp.ndim(score) not in (1, 2) or jnp.shape(score)[0] != n:
        raise TypeError(
            f"model must give a decision value, or several, for each of the {n} rows, but {shown(model)} gives {shown(score)}"
        )
    return score


def normalized_weights(data: Batch) -> Array:
    """The weights of the rows (n,), of sum 1."""
    return data.weight / jnp.sum(data.weight)


def primal(model: Model, data: Batch, lam: float, loss: Loss = hinge) -> Array:
    """The primal objective P(w) = lam/2 |w|^2 + weighted mean loss, in float64; under tracing in the dtype of the model.

    Args:
        model: one with `sqnorm()`.
        data: n rows.
        lam: regularisation, > 0.
        loss: of scores.

    Returns:
        () the objective.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(primal(Linear(jnp.ones(1), jnp.zeros(())), data, 1.0))
        0.5
    """
    _check(model, data, loss)
    check_positive(lam=lam)
    lam = as_number("lam", lam)
    return _primal((model, data, lam), (loss,))


@_in_float64
def _primal(model, data, lam, loss):
    return lam / 2 * model.sqnorm() + jnp.dot(normalized_weights(data), loss.value(decision_values(model, data), data.y))


def dual(alpha: Array, data: Batch, lam: float, kernel: Kernel | None = None, loss: Loss = hinge) -> Array:
    """The dual objective D at alpha, in float64; -inf where alpha violates its bounds by more than a relative 1e-6.

    Args:
        alpha: (n,), 0 <= alpha_i <= C w_i for the hinge; for losses of real targets the signed coefficients.
        data: n rows.
        lam: regularisation, > 0.
        kernel: None: linear.
        loss: of scores.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(dual(jnp.array([0.5, 0.5]), data, 1.0))
        0.5
    """
    check_batch("data", data)
    _check_loss(loss)
    check_positive(lam=lam)
    lam = as_number("lam", lam)
    if not hasattr(alpha, "dtype") or jnp.shape(alpha) != data.y.shape:
        what = f"has shape {jnp.shape(alpha)}" if hasattr(alpha, "dtype") else f"is {shown(alpha)}"
        raise ValueError(f"alpha {what}, expected one number for each of the {data.y.shape[0]} rows")
    return _dual((alpha, data, lam, None if kernel is None else as_kernel(kernel)), (loss,))


@_in_float64
def _dual(alpha, data, lam, kernel, loss):
    share = normalized_weights(data)
    coef = clip_rounding(alpha * data.y if loss.labels else alpha, data.y, share, lam, loss)
    score = dot(data.x, dot(coef, data.x)) if kernel is None else matvec(kernel, data.x, data.x, coef)
    is_invalid = jnp.any((share == 0) & (coef != 0))  # the bound of a row of weight 0 is 0
    return jnp.where(is_invalid, -jnp.inf, -lam / 2 * jnp.dot(coef, score) - _penalty(coef, data.y, share, lam, loss))


def clip_rounding(coef, y, share, lam, loss):
    """The coefficients, with those beyond a bound by rounding of C in float32 reduced by a relative 1e-6."""
    infeasible = ~jnp.isfinite(loss.conjugate(_slopes(coef, share, lam), y))
    return jnp.where(infeasible, (1 - 1e-6) * coef, coef)


def _slopes(coef, share, lam):
    """u_i = -coef_i / C_i, 0 for rows of weight 0."""
    return jnp.where(share > 0, -coef * lam / jnp.where(share > 0, share, 1), 0)


def _penalty(coef, y, share, lam, loss):
    """sum_i share_i conjugate(u_i, y_i) over rows of positive weight."""
    values = loss.conjugate(_slopes(coef, share, lam), y)
    return jnp.sum(jnp.where(share > 0, share * values, 0))


def certificate(
    model: Model, data: Batch, lam: float, loss: Loss = hinge, *, bias: str | None = None, passes: int = 0
) -> Certificate:
    """A bound on the suboptimality of a model on its training rows by a dual point: P(model) - min P <= gap.

        gap = lam/2 |w - w(coef)|^2 + sum_i share_i (loss(f_i) + conjugate(u_i) - u_i f_i)      every term >= 0

    For an `Expansion` over training rows (`index`) with feasible coefficients, these are the dual point. For other models it is
    computed from the scores. Candidates for u_i are the slope at f_i and mean slopes over intervals around f_i of several widths
    (for the hinge a clipped ramp). Each candidate is scaled by its best factor, and the best is used. Then follow `passes` sweeps
    of dual coordinate ascent.

    Computed in float64 for models of any dtype; under tracing in the dtype of the model. For a `Mapped` model the optimum is the
    one in its feature space.

    Args:
        model: Linear, Expansion or Mapped.
        data: the n training rows.
        lam: regularisation of the problem, > 0.
        loss: of scores.
        bias: "none", "feature" or "free"; None: that of the model.
        passes: sweeps of dual ascent, >= 0, of O(n d) each for linear models, of O(n^2) kernel values for expansions.

    Returns:
        The objective, its lower bound, the gap, and whether the dual point is the model's own.

    Raises:
        TypeError: another kind of model.
        ValueError: lam not above 0; passes with a free bias, whose dual has an equality constraint on all coordinates.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(certificate(Linear(jnp.ones(1), jnp.zeros(())), data, 1.0).gap) < 1e-15
        True

    Reference: S. Boyd, L. Vandenberghe, Convex optimization, 2004, sections 3.3, 5.5.
    """
    _check(model, data, loss, needs="__call__")
    check_positive(lam=lam)
    lam = as_number("lam", lam)
    inner = _innermost(model)
    bias = inner.bias if bias is None else bias
    check_choice("bias", bias, ("none", "feature", "free"))
    if bias == "none" and not is_traced(inner.b) and jnp.any(inner.b != 0):
        raise ValueError(f"the model has a bias of {float(inner.b):g}: say bias='feature' or bias='free'")
    passes = integer("passes", passes, 0)
    if passes and bias == "free":
        raise ValueError(
            "passes of dual ascent need bias 'none' or 'feature': the dual of a free bias has an equality constraint"
        )
    result = _certificate((model, data, lam), (loss,), (bias, passes))
    exact = result.exact if is_traced(result) else bool(result.exact)
    return result._replace(exact=exact)


_WIDTHS = (1e-3, 1e-2, 0.1, 0.3, 1.0)  # half widths of the intervals, in units of the score


@_in_float64
def _certificate(model, data, lam, loss, bias, passes):
    model, data = _features(model, data)
    model = dataclasses.replace(model, bias=bias)  # `bias` decides whether |w|^2 contains b
    share, score = normalized_weights(data), model(data.x)
    own_dual, exact = model_dual(model, data, share, lam, loss, bias)
    initial = jax.lax.cond(
        exact,
        lambda: own_dual,
        lambda: dual_from_scores(model, data, share, score, lam, loss, bias),
    )
    coef = dual_ascent(model, data, share, initial, lam, loss, bias, passes) if passes else initial
    dual_score = dual_scores(model, data, coef[:, None], bias)[:, 0]
    exact = exact & (passes == 0)
    slope = _slopes(coef, share, lam)
    losses = loss.value(score, data.y)
    terms = jnp.maximum(losses + loss.conjugate(slope, data.y) - slope * score, 0)
    gap = lam / 2 * _distance(model, data, coef, dual_score, score, bias) + jnp.sum(jnp.where(share > 0, share * terms, 0))
    value = lam / 2 * model.sqnorm() + jnp.dot(share, losses)
    return Certificate(value, value - gap, gap, exact)


def model_dual(model, data, share, lam, loss, bias):
    """The dual coefficients of a model (n,), and whether they are feasible, () bool."""
    zero = jnp.zeros_like(share)
    if not isinstance(model, Expansion):
        return zero, jnp.zeros((), bool)
    n = data.y.shape[0]
    in_data = model.index >= 0
    coef = zero.at[jnp.where(in_data, model.index, n)].add(model.coef.astype(share.dtype), mode="drop")
    coef = clip_rounding(coef, data.y, share, lam, loss)
    feasible = jnp.isfinite(loss.conjugate(_slopes(coef, share, lam), data.y)) & jnp.where(share > 0, True, coef == 0)
    balanced = jnp.abs(jnp.sum(coef)) <= 1e-6 * jnp.sum(jnp.abs(coef)) if bias == "free" else True
    return coef, jnp.all(in_data | (model.coef == 0)) & jnp.all(feasible) & balanced


def dual_scores(model, data, coefs, bias):
    """The scores sum_j coefs_jc k(x_j, x_i) of dual coefficients at their rows, (n, c)."""
    if isinstance(model, Linear):
        score = dot(data.x, dot(coefs.T, data.x).T)
    else:
        score = matvec(model.kernel, data.x, data.x, coefs)
    return score + jnp.sum(coefs, 0)[None, :] if bias == "feature" else score


def _distance(model, data, coef, dual_score, score, bias):
    """The squared distance |w - w(coef)|^2."""
    bias_term = (model.b - jnp.sum(coef)) ** 2 if bias == "feature" else 0
    if isinstance(model, Linear):
        difference = model.w - dot(coef, data.x)
        return jnp.dot(difference, difference) + bias_term
    linear_score, dual_score = score - model.b, dual_score - (jnp.sum(coef) if bias == "feature" else 0)  # no constant
    in_data = model.index >= 0
    full = jnp.zeros_like(coef).at[jnp.where(in_data, model.index, coef.shape[0])].add(model.coef, mode="drop")
    on_rows = jnp.maximum(jnp.dot(full - coef, linear_score - dual_score), 0)
    sqnorm = dataclasses.replace(model, bias="none").sqnorm()
    off_rows = jnp.maximum(sqnorm - 2 * jnp.dot(coef, linear_score) + jnp.dot(coef, dual_score), 0)
    return jnp.where(jnp.all(in_data | (model.coef == 0)), on_rows, off_rows) + bias_term


def dual_from_scores(model, data, share, score, lam, loss, bias):
    """The best of several dual points computed from the scores of a model, (n,)."""
    mean_slopes = [(loss.value(score + h, data.y) - loss.value(score - h, data.y)) / (2 * h) for h in _WIDTHS]
    slopes = jnp.stack([loss.slope(score, data.y), *mean_slopes], axis=1)  # (n, c)
    coefs = -slopes * (share / lam)[:, None]
    if bias == "free":  # sum coef = 0: scale down the side of larger sum, which respects every bound
        up, down = jnp.sum(jnp.maximum(coefs, 0), 0), jnp.sum(jnp.maximum(-coefs, 0), 0)
        least = jnp.minimum(up, down)
        factor = lambda side: least / jnp.where(side > 0, side, 1)
        coefs = jnp.where(coefs > 0, coefs * factor(up)[None, :], coefs * factor(down)[None, :])
    dual_scores_of = dual_scores(model, data, coefs, bias)

    def best_factor(coef, score_of):
        sqnorm = jnp.dot(coef, score_of)
        value = lambda s: -lam / 2 * s * s * sqnorm - _penalty(s * coef, data.y, share, lam, loss)
        s = golden_section(value, jnp.zeros((), coef.dtype), jnp.full((), 4, coef.dtype), 80)
        return value(s), s

    values, factors = jax.vmap(best_factor, in_axes=1)(coefs, dual_scores_of)
    c = jnp.argmax(values)
    return clip_rounding(factors[c] * coefs[:, c], data.y, share, lam, loss)  # rounding of the factor may exceed a bound


def dual_ascent(model, data, share, coef, lam, loss, bias, passes):
    """The dual coefficients (n,) after sweeps of exact coordinate ascent over all rows, in order."""
    bound, constant = share / lam, 1.0 if bias == "feature" else 0.0
    linear = isinstance(model, Linear)
    sqnorm = (sqnorms(data.x) if linear else model.kernel.diag(data.x)) + constant
    # The state: the weights of a linear model, else the scores at all rows.
    state = (
        (dot(coef, data.x), jnp.sum(coef))
        if linear
        else (dual_scores(model, data, coef[:, None], bias)[:, 0], jnp.zeros_like(lam))
    )

    def visit(carry, i):
        coef, (f, b) = carry
        row_at = lambda a: jax.lax.dynamic_slice_in_dim(a, i, 1)
        row = jax.tree.map(row_at, data.x)
        score = dot(row, f) + constant * b if linear else row_at(f)
        new = loss.dual_step(row_at(coef), score, row_at(data.y), row_at(sqnorm), row_at(bound))
        move = (new - row_at(coef))[0]
        f = f + (dot(move[None], row) if linear else move * (model.kernel(row, data.x)[0] + constant))
        return (jax.lax.dynamic_update_slice_in_dim(coef, new, i, 0), (f, b + move)), None

    order = jnp.tile(jnp.arange(data.y.shape[0], dtype=jnp.int32), passes)
    return jax.lax.scan(visit, (coef, state), order)[0][0]


def kkt_residual(model: Expansion, data: Batch, lam: float, loss: Loss = hinge, *, bias: str | None = None) -> Array:
    """The violation of the optimality conditions by dual coefficients, in margin units, in float64.

    Without a free bias: max_i |coef_i' - coef_i| k(x_i, x_i), where coef_i' is the optimum over one coefficient. With a free bias
    (hinge): LIBSVM's max over I_up of y_i - f(x_i) minus the min over I_low of the same.

    Args:
        model: an expansion over training rows (`index`).
        data: the n training rows.
        lam: regularisation, > 0.
        loss: of scores.
        bias: "none", "feature" or "free"; None: that of the model.

    Returns:
        () the violation.

    Raises:
        TypeError: the model has no dual coefficients.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(0.5, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=4)
        >>> float(kkt_residual(run.model, data, lam=1.0))
        0.0

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order information, JMLR 6, 2005.
    """
    _check(model, data, loss, needs="__call__")
    check_positive(lam=lam)
    lam = as_number("lam", lam)
    if not isinstance(model, Expansion):
        raise TypeError(f"only an Expansion over the training rows carries dual coefficients, got {type(model).__name__}")
    if not is_traced(model) and jnp.any((model.index < 0) & (model.coef != 0)):
        raise TypeError("the expansion stands on rows that are not training rows (index -1): it carries no dual coefficients")
    bias = model.bias if bias is None else bias
    check_choice("bias", bias, ("none", "feature", "free"))
    return _kkt((model, data, lam), (loss,), (bias,))


@_in_float64
def _kkt(model, data, lam, loss, bias):
    share = normalized_weights(data)
    bound = share / lam
    coef, _ = model_dual(model, data, share, lam, loss, bias)
    score = model(data.x)
    if bias != "free":
        sqnorm = model.kernel.diag(data.x) + (1 if bias == "feature" else 0)
        new = loss.dual_step(coef, score, data.y, sqnorm, bound)
        return jnp.max(jnp.where(share > 0, jnp.abs(new - coef) * sqnorm, 0))
    alpha, tolerance = coef * data.y, 1e-6 * bound
    may_grow, may_fall = (alpha < bound - tolerance) & (share > 0), alpha > tolerance
    up, low = jnp.where(data.y > 0, may_grow, may_fall), jnp.where(data.y > 0, may_fall, may_grow)
    value = data.y - score
    return jnp.max(jnp.where(up, value, -jnp.inf)) - jnp.min(jnp.where(low, value, jnp.inf))


def nu_from(model: Model, data: Batch) -> Array:
    """The slack nu = (mean hinge) / |w| for which the slack-constrained problem has the direction of this model.

    Args:
        model: nonzero; with the bias of `sbp(bias="free")`, or without.
        data: the n training rows.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(nu_from(Linear(0.5 * jnp.ones(1), jnp.zeros(())), data))
        1.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012,
        section 2.
    """
    _check(model, data)
    return _nu((model, data))


@_in_float64
def _nu(model, data):
    return jnp.dot(normalized_weights(data), hinge.value(decision_values(model, data), data.y)) / jnp.sqrt(model.sqnorm())


def radius_from(model: Model) -> Array:
    """The radius |w| of the ball on which this minimiser of lam/2 |w|^2 + hinge minimises the hinge.

    Args:
        model: one with `sqnorm()`.

    Example:
        >>> float(radius_from(Linear(jnp.array([3.0, 4.0]), jnp.zeros(()))))
        5.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012,
        section 2.
    """
    return jnp.sqrt(model.sqnorm())


def lam_from_nu(nu: float, p: Array, data: Batch, kernel: Kernel, bias: str = "none") -> Array:
    """The lam for which lam/2 |w|^2 + mean hinge has the direction of the solution of the slack-constrained problem.

        v = sum_i p_i y_i phi(x_i);   G = level of v / |v|;   lam = G |v| / (sum_i weight_i max_i p_i / weight_i)

    The solution is then v / (|v| G), with alpha = p / (G |v|). If no coefficient is at its bound (nu = 0), many lam match; this
    is the largest.

    Args:
        nu: mean slack, >= 0.
        p: (n,) the shares at the optimum, such as `run.state.solver.p` of a long run of `sbp`; lam is as accurate as p.
        data: the n training rows.
        kernel: of the run.
        bias: "none" or "free".

    Raises:
        ValueError: p of another shape than (n,), or 0 everywhere.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(lam_from_nu(1.0, jnp.array([0.5, 0.5]), data, jaxsvm.kernels.linear()))
        2.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012,
        section 2; the multipliers are derived here.
    """
    check_choice("bias", bias, ("none", "free"))
    check_nonnegative(nu=nu)
    check_batch("data", data)
    if jnp.shape(p) != data.y.shape:
        raise ValueError(f"p has shape {jnp.shape(p)}, expected one share for each of the {data.y.shape[0]} rows")
    if not is_traced(p) and not np.any(np.asarray(p)):
        raise ValueError("p is 0 for all rows, expected shares of sum 1: take those of a run after its first step")
    return _lam((nu, p, data, as_kernel(kernel)), (bias,))


@_in_float64
def _lam(nu, p, data, kernel, bias):
    mass, v = jnp.sum(data.weight), p * data.y
    score = matvec(kernel, data.x, data.x, v)
    norm = jnp.sqrt(jnp.dot(v, score))
    margin = data.y * score / norm
    if bias == "free":
        level = two_levels(margin, data.y, nu * mass, weight=data.weight).level
    else:
        level = water_level(margin, nu * mass, weight=data.weight)
    max_ratio = jnp.max(jnp.where(data.weight > 0, p / jnp.where(data.weight > 0, data.weight, 1), 0))
    return level * norm / (mass * max_ratio)


def misclassified(score: Array, y: Array) -> Array:
    """Which rows are misclassified (n,): score of the wrong sign, largest score of another class, or a score not finite."""
    if score.ndim == 1:
        return ((score > 0) != (y > 0)) | ~jnp.isfinite(score)
    return (jnp.argmax(score, axis=1) != y.astype(jnp.int32)) | ~jnp.all(jnp.isfinite(score), axis=1)


@struct
class _Error:
    data: Batch
    labels: str = static(default="")  # "signs": -1 and +1; "numbers": class numbers; "": either, or not known

    def __call__(self, model: Model) -> Array:
        _check(model, self.data, needs="__call__")
        score = decision_values(model, self.data)
        if self.labels == ("numbers" if score.ndim == 1 else "signs"):
            want = ("one value a row, for labels -1 and +1", f"{score.shape[-1]} values a row, for class numbers 0 .. k-1")
            have = ("class numbers", "labels -1 and +1")
            raise ValueError(f"the model gives {want[score.ndim - 1]}, but the data of error_on hold {have[score.ndim - 1]}")
        return jnp.dot(normalized_weights(self.data), misclassified(score, self.data.y).astype(score.dtype))


def error_on(data: Batch) -> Any:
    """A probe for `fit`: model -> weighted fraction of misclassified rows.

    A row is misclassified if its score has the wrong sign, its largest score is that of another class, or a score is not finite.

    Args:
        data: held-out rows with labels in {-1, +1}, or class numbers 0 .. k-1 for a model with k values;
            `solver.prepare(data)` computes their features once for all evaluations.

    Raises:
        ValueError: from the probe, a model for the other kind of labels, if the kind is known.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(error_on(data)(Linear(jnp.ones(1), jnp.zeros(()))))
        0.0
    """
    check_batch("data", data)
    labels = ""
    if not is_traced(data.y, data.weight):
        y = np.asarray(data.y)[np.asarray(data.weight) > 0]
        labels = "signs" if (y == -1).any() else "numbers" if (y != 1).any() else ""
    return _Error(data, labels)


def risk_on(data: Batch, loss: Loss = hinge) -> Any:
    """A probe for `fit`: model -> weighted mean loss on the rows of `data`, inf if a score is not finite.

    Args:
        data: held-out rows, raw or by `solver.prepare`.
        loss: of scores.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(risk_on(data)(Linear(0.5 * jnp.ones(1), jnp.zeros(()))))
        0.5
    """
    check_batch("data", data)
    _check_loss(loss)
    return _Risk(data, as_static(loss))


@struct
class _Risk:
    data: Batch
    loss: Any

    def __call__(self, model: Model) -> Array:
        _check(model, self.data, needs="__call__")
        score = decision_values(model, self.data)
        if score.ndim != 1:
            raise ValueError("risk_on takes models with one value for each row; measure a model of many classes with error_on")
        share = normalized_weights(self.data)
        losses = unwrap_static(self.loss).value(score, self.data.y)
        risk = jnp.dot(share, jnp.where(share > 0, losses, jnp.zeros_like(losses)))
        return jnp.where(jnp.all(jnp.isfinite(score) | (share <= 0)), risk, jnp.inf)
