"""What is minimised, how far a model is from the minimum, and how the scalings of the problem convert.

    P(w) = lam/2 |w|^2 + sum_i w_i loss(f_i, y_i) / sum_i w_i
    D(coef) = -lam/2 |sum_i coef_i phi(x_i)|^2 - sum_i w_i conjugate(u_i, y_i) / sum_i w_i,
              u_i = -coef_i / C_i,  C_i = w_i / (lam sum w)

D <= min P for every coef in the conjugate's domain; with a free bias for those with sum_i coef_i = 0.
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
    """lam = 1 / (C n), n the sum of the weights.

    Example:
        >>> lam_from_C(2.0, 50)
        0.01
    """
    return _inverse(C=C, n=n)


def C_from_lam(lam: float, n: float) -> float:
    """C = 1 / (lam n), n the sum of the weights.

    Example:
        >>> C_from_lam(0.01, 50)
        2.0
    """
    return _inverse(lam=lam, n=n)


def _inverse(**factors: float) -> float:
    """One over the product of two numbers above 0; arrays of them where one is an array."""
    for name, value in factors.items():
        for number in np.ravel(value) if has_shape(value) and not is_traced(value) else () if has_shape(value) else (value,):
            check_positive(**{name: number})
    one, other = (value if has_shape(value) else as_number(name, value) for name, value in factors.items())
    return 1 / (one * other)


def _check(model: Any, data: Any, loss: Any = hinge, needs: str = "sqnorm") -> None:
    """Refuse what is no model, no data and no loss, whatever their order.

    Raises:
        TypeError: with what was expected and what came.
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
    """Run `fn` compiled and in float64; inside a trace, as it is and in the dtype at hand."""

    @functools.partial(jax.jit, static_argnames=("choices",))
    def compiled(arrays, frozen, choices):
        return fn(*arrays, *(unwrap_static(thing) for thing in frozen), *choices)

    @functools.wraps(fn)
    def run(arrays, frozen=(), choices=()):
        if is_traced(arrays, jax.tree.leaves(frozen)):
            return fn(*arrays, *frozen, *choices)
        with jax.enable_x64(True):
            args = cast((arrays, tuple(as_static(thing) for thing in frozen)), jnp.float64)
            return jax.tree.map(lambda a: np.asarray(a)[()], compiled(*args, choices))  # JAX warns of float64 outside

    return run


def _bare(model: Model) -> Model:
    """The model inside any number of maps and names."""
    while isinstance(model, Mapped | Classifier):
        model = model.inner
    return model


def _innermost(model: Model) -> Linear | Expansion:
    """The linear model or expansion inside any number of maps and names."""
    model = _bare(model)
    if not isinstance(model, Linear | Expansion):
        raise TypeError(f"expected a Linear, Expansion or Mapped model, got {type(model).__name__}")
    return model


def _features(model: Model, data: Batch) -> tuple[Model, Batch]:
    """The model and the rows in the space where the model is linear or an expansion."""
    while isinstance(model, Mapped | Classifier):
        if isinstance(model, Mapped) and not isinstance(data, Lifted):
            data = data._replace(x=model.features(data.x))
        model = model.inner
    return model, data


def decision_values(model: Model, data: Batch) -> Array:
    """Decision values at raw rows, or at rows lifted beforehand."""
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
    """P(w) = lam/2 |w|^2 + weighted mean loss, in float64 on the host, in the dtype at hand inside a trace.

    Args:
        model: with `sqnorm()`.
        data: n rows.
        lam: regularisation, > 0.
        loss: of scores.

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
    """D at the dual variables alpha, in float64 on the host; -inf outside their bounds, but for a millionth.

    Args:
        alpha: (n,), 0 <= alpha_i <= C w_i for the hinge; for losses of real targets the signed coefficients.
        data: n rows.
        lam: regularisation, > 0.
        kernel: None is linear.
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
    own = dot(data.x, dot(coef, data.x)) if kernel is None else matvec(kernel, data.x, data.x, coef)
    absent = jnp.any((share == 0) & (coef != 0))  # the bound of a row of weight 0 is 0
    return jnp.where(absent, -jnp.inf, -lam / 2 * jnp.dot(coef, own) - _penalty(coef, data.y, share, lam, loss))


def clip_rounding(coef, y, share, lam, loss):
    """Bounds kept in float32 may be passed by a rounding of C: such coefficients go back by one part in a million."""
    out = ~jnp.isfinite(loss.conjugate(_slopes(coef, share, lam), y))
    return jnp.where(out, (1 - 1e-6) * coef, coef)


def _slopes(coef, share, lam):
    """u_i = -coef_i / C_i, 0 where the row does not count."""
    return jnp.where(share > 0, -coef * lam / jnp.where(share > 0, share, 1), 0)


def _penalty(coef, y, share, lam, loss):
    """sum_i share_i conjugate(u_i, y_i), rows that do not count left out."""
    values = loss.conjugate(_slopes(coef, share, lam), y)
    return jnp.sum(jnp.where(share > 0, share * values, 0))


def certificate(
    model: Model, data: Batch, lam: float, loss: Loss = hinge, *, bias: str | None = None, passes: int = 0
) -> Certificate:
    """Bound how far a model is from the optimum on its training rows, by a dual point: P(model) - min P <= gap.

        gap = lam/2 |w - w(coef)|^2 + sum_i share_i (loss(f_i) + conjugate(u_i) - u_i f_i)      every term >= 0

    An `Expansion` over training rows (`index`) whose coefficients are in bounds is its own dual point. For any other
    model a dual point is made from the scores: u_i the mean slope of the loss within a few widths of f_i (for the
    hinge a clipped ramp), each scaled by its best factor; then `passes` sweeps of dual coordinate ascent.

    Computed in float64 whatever the model's dtype; inside a trace in the dtype at hand. With a `Mapped` model the
    optimum meant is the one in its feature space.

    Args:
        model: Linear, Expansion or Mapped.
        data: the n training rows.
        lam: regularisation of the problem, > 0.
        loss: of scores.
        bias: "none", "feature" or "free"; None: as the model says.
        passes: sweeps of dual ascent, O(n d) each for linear models, O(n^2) kernel values for expansions.

    Raises:
        TypeError: another kind of model.
        ValueError: lam not above 0; passes with a free bias, whose dual has an equality that single coordinates break.

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


_WIDTHS = (1e-3, 1e-2, 0.1, 0.3, 1.0)  # of the ramps, in units of the score


@_in_float64
def _certificate(model, data, lam, loss, bias, passes):
    model, data = _features(model, data)
    model = dataclasses.replace(model, bias=bias)  # the problem that is meant decides what |w|^2 holds
    share, score = normalized_weights(data), model(data.x)
    carried, exact = model_dual(model, data, share, lam, loss, bias)
    made = jax.lax.cond(
        exact,
        lambda: carried,
        lambda: dual_from_scores(model, data, share, score, lam, loss, bias),
    )
    coef = dual_ascent(model, data, share, made, lam, loss, bias, passes) if passes else made
    own = dual_scores(model, data, coef[:, None], bias)[:, 0]
    exact = exact & (passes == 0)
    slope = _slopes(coef, share, lam)
    losses = loss.value(score, data.y)
    terms = jnp.maximum(losses + loss.conjugate(slope, data.y) - slope * score, 0)
    gap = lam / 2 * _distance(model, data, coef, own, score, bias) + jnp.sum(jnp.where(share > 0, share * terms, 0))
    value = lam / 2 * model.sqnorm() + jnp.dot(share, losses)
    return Certificate(value, value - gap, gap, exact)


def model_dual(model, data, share, lam, loss, bias):
    """The dual coefficients that a model brings along, and whether they are feasible."""
    zero = jnp.zeros_like(share)
    if not isinstance(model, Expansion):
        return zero, jnp.zeros((), bool)
    n = data.y.shape[0]
    known = model.index >= 0
    coef = zero.at[jnp.where(known, model.index, n)].add(model.coef.astype(share.dtype), mode="drop")
    coef = clip_rounding(coef, data.y, share, lam, loss)
    inside = jnp.isfinite(loss.conjugate(_slopes(coef, share, lam), data.y)) & jnp.where(share > 0, True, coef == 0)
    balanced = jnp.abs(jnp.sum(coef)) <= 1e-6 * jnp.sum(jnp.abs(coef)) if bias == "free" else True
    return coef, jnp.all(known | (model.coef == 0)) & jnp.all(inside) & balanced


def dual_scores(model, data, coefs, bias):
    """sum_j coefs_jc k(x_j, x_i), (n, c): the functions that dual coefficients make, at the rows themselves."""
    if isinstance(model, Linear):
        own = dot(data.x, dot(coefs.T, data.x).T)
    else:
        own = matvec(model.kernel, data.x, data.x, coefs)
    return own + jnp.sum(coefs, 0)[None, :] if bias == "feature" else own


def _distance(model, data, coef, own, score, bias):
    """|w - w(coef)|^2."""
    lift = (model.b - jnp.sum(coef)) ** 2 if bias == "feature" else 0
    if isinstance(model, Linear):
        difference = model.w - dot(coef, data.x)
        return jnp.dot(difference, difference) + lift
    plain, own = score - model.b, own - (jnp.sum(coef) if bias == "feature" else 0)  # without their constants
    known = model.index >= 0
    full = jnp.zeros_like(coef).at[jnp.where(known, model.index, coef.shape[0])].add(model.coef, mode="drop")
    on_rows = jnp.maximum(jnp.dot(full - coef, plain - own), 0)
    square = dataclasses.replace(model, bias="none").sqnorm()
    elsewhere = jnp.maximum(square - 2 * jnp.dot(coef, plain) + jnp.dot(coef, own), 0)
    return jnp.where(jnp.all(known | (model.coef == 0)), on_rows, elsewhere) + lift


def dual_from_scores(model, data, share, score, lam, loss, bias):
    """The best of a few dual points made from the scores of a model."""
    ramps = [(loss.value(score + h, data.y) - loss.value(score - h, data.y)) / (2 * h) for h in _WIDTHS]
    slopes = jnp.stack([loss.slope(score, data.y), *ramps], axis=1)  # (n, c)
    coefs = -slopes * (share / lam)[:, None]
    if bias == "free":  # sum coef = 0: the heavier side is scaled down, which keeps every bound
        up, down = jnp.sum(jnp.maximum(coefs, 0), 0), jnp.sum(jnp.maximum(-coefs, 0), 0)
        least = jnp.minimum(up, down)
        factor = lambda side: least / jnp.where(side > 0, side, 1)  # noqa: E731
        coefs = jnp.where(coefs > 0, coefs * factor(up)[None, :], coefs * factor(down)[None, :])
    owns = dual_scores(model, data, coefs, bias)

    def best(coef, own):
        square = jnp.dot(coef, own)
        value = lambda s: -lam / 2 * s * s * square - _penalty(s * coef, data.y, share, lam, loss)  # noqa: E731
        s = golden_section(value, jnp.zeros((), coef.dtype), jnp.full((), 4, coef.dtype), 80)
        return value(s), s

    values, factors = jax.vmap(best, in_axes=1)(coefs, owns)
    c = jnp.argmax(values)
    return clip_rounding(factors[c] * coefs[:, c], data.y, share, lam, loss)  # a factor at a bound may be beyond it by a rounding


def dual_ascent(model, data, share, coef, lam, loss, bias, passes):
    """Sweeps of exact dual coordinate ascent over all rows, in order."""
    bound, lift = share / lam, 1.0 if bias == "feature" else 0.0
    linear = isinstance(model, Linear)
    sqnorm = (sqnorms(data.x) if linear else model.kernel.diag(data.x)) + lift
    # What is carried along: the weights of a linear model, else the values at all rows.
    state = (
        (dot(coef, data.x), jnp.sum(coef))
        if linear
        else (dual_scores(model, data, coef[:, None], bias)[:, 0], jnp.zeros_like(lam))
    )

    def visit(carry, i):
        coef, (f, b) = carry
        at = lambda a: jax.lax.dynamic_slice_in_dim(a, i, 1)  # noqa: E731
        row = jax.tree.map(at, data.x)
        score = dot(row, f) + lift * b if linear else at(f)
        new = loss.dual_step(at(coef), score, at(data.y), at(sqnorm), at(bound))
        move = (new - at(coef))[0]
        f = f + (dot(move[None], row) if linear else move * (model.kernel(row, data.x)[0] + lift))
        return (jax.lax.dynamic_update_slice_in_dim(coef, new, i, 0), (f, b + move)), None

    order = jnp.tile(jnp.arange(data.y.shape[0], dtype=jnp.int32), passes)
    return jax.lax.scan(visit, (coef, state), order)[0][0]


def kkt_residual(model: Expansion, data: Batch, lam: float, loss: Loss = hinge, *, bias: str | None = None) -> Array:
    """How far dual coefficients are from the optimality conditions, in margin units, in float64 on the host.

    Without a free bias max_i |coef_i' - coef_i| k(x_i, x_i), coef_i' the best value of one coefficient; with a free
    bias (hinge) LIBSVM's max over I_up of y_i - f(x_i) minus min over I_low of the same.

    Args:
        model: an expansion over training rows (`index`).
        data: the n training rows.
        lam: regularisation, > 0.
        loss: of scores.
        bias: None: as the model says.

    Raises:
        TypeError: if the model carries no dual coefficients.

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
    alpha, edge = coef * data.y, 1e-6 * bound
    grows, falls = (alpha < bound - edge) & (share > 0), alpha > edge
    up, low = jnp.where(data.y > 0, grows, falls), jnp.where(data.y > 0, falls, grows)
    value = data.y - score
    return jnp.max(jnp.where(up, value, -jnp.inf)) - jnp.min(jnp.where(low, value, jnp.inf))


def nu_from(model: Model, data: Batch) -> Array:
    """nu = (mean hinge) / |w|: the slack at which the slack-constrained problem has this model's direction.

    Args:
        model: not 0; with the bias of `sbp(bias="free")`, or without.
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
    """|w|: the radius of the ball on which the hinge alone has this model as a minimiser, if lam/2 |w|^2 + hinge has.

    Args:
        model: with `sqnorm()`.

    Example:
        >>> float(radius_from(Linear(jnp.array([3.0, 4.0]), jnp.zeros(()))))
        5.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012,
        section 2.
    """
    return jnp.sqrt(model.sqnorm())


def lam_from_nu(nu: float, p: Array, data: Batch, kernel: Kernel, bias: str = "none") -> Array:
    """The lam at which lam/2 |w|^2 + mean hinge has the direction of the slack-constrained problem's solution.

        v = sum_i p_i y_i phi(x_i);   G = level of v / |v|;   lam = G |v| / (sum_i weight_i max_i p_i / weight_i)

    The solution is v / (|v| G) then, with alpha = p / (G |v|). Many lam belong to a nu at which no coefficient is at its bound
    (nu = 0); this is the largest.

    Args:
        nu: mean slack, >= 0.
        p: (n,) the rows' shares at the optimum, such as `run.state.solver.p` of a long run of `sbp`; as good as these.
        data: the n training rows.
        kernel: of the run.
        bias: "none" or "free".

    Raises:
        ValueError: p not one number for each row, or 0 everywhere.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(lam_from_nu(1.0, jnp.array([0.5, 0.5]), data, jaxsvm.kernels.linear()))
        2.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012,
        section 2; the multipliers by hand.
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
    pull = matvec(kernel, data.x, data.x, v)
    size = jnp.sqrt(jnp.dot(v, pull))
    margin = data.y * pull / size
    if bias == "free":
        level = two_levels(margin, data.y, nu * mass, weight=data.weight).level
    else:
        level = water_level(margin, nu * mass, weight=data.weight)
    peak = jnp.max(jnp.where(data.weight > 0, p / jnp.where(data.weight > 0, data.weight, 1), 0))
    return level * size / (mass * peak)


def misclassified(score: Array, y: Array) -> Array:
    """Whether each row is wrong (n,): on the wrong side of 0, the largest value another class's, or a value not finite."""
    if score.ndim == 1:
        return ((score > 0) != (y > 0)) | ~jnp.isfinite(score)
    return (jnp.argmax(score, axis=1) != y.astype(jnp.int32)) | ~jnp.all(jnp.isfinite(score), axis=1)


@struct
class _Error:
    data: Batch
    labels: str = static(default="")  # "signs": -1 and +1; "numbers": class numbers; "": both, or not known

    def __call__(self, model: Model) -> Array:
        _check(model, self.data, needs="__call__")
        score = decision_values(model, self.data)
        if self.labels == ("numbers" if score.ndim == 1 else "signs"):
            want = ("one value a row, for labels -1 and +1", f"{score.shape[-1]} values a row, for class numbers 0 .. k-1")
            have = ("class numbers", "labels -1 and +1")
            raise ValueError(f"the model gives {want[score.ndim - 1]}, but the data of error_on hold {have[score.ndim - 1]}")
        return jnp.dot(normalized_weights(self.data), misclassified(score, self.data.y).astype(score.dtype))


def error_on(data: Batch) -> Any:
    """A probe for `fit`: model -> share of rows, by weight, on the wrong side of 0, or whose largest value is another class's.

    A row with a decision value that is not finite is wrong.

    Args:
        data: held-out rows with labels in {-1, +1}, or class numbers 0 .. k-1 for a model with k values;
            `solver.prepare(data)` lifts them once for all looks.

    Raises:
        ValueError: called with a model for the other kind of labels, where these are known.

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
    """A probe for `fit`: model -> weighted mean loss on the rows of `data`, inf where a decision value is not finite.

    Args:
        data: held-out rows, or `solver.prepare` of them.
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
