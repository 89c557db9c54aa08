"""Losses: value, a subgradient, conjugate and exact dual coordinate step of each.

A dual method keeps signed coefficients, w = sum_i coef_i phi(x_i), and maximises

    D(coef) = - |w|^2 / 2 - sum_i C_i conjugate(-coef_i / C_i, y_i),

so that a coefficient of a classification loss is y_i alpha_i with 0 <= alpha_i <= C_i. `dual_step`
is the maximiser over one coefficient: of -q/2 (v - coef)^2 - (v - coef) f - C conjugate(-v/C, y)
over v.

Every function works elementwise on scores (b,) and targets (b,), except those of `crammer_singer`.
The losses of ranking couple rows: they have a joint risk instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from ._node import between, node, positive
from .checks import check_choice
from .names import ALIASES, LOSSES
from .ranking import check_grades, pair_risk
from .risks import Risk
from .types import Array, Batch, JointLoss, Loss, Quadratic, Scalar

__all__ = [
    "crammer_singer",
    "custom",
    "eps_insensitive",
    "hinge",
    "logistic",
    "pairwise",
    "pinball",
    "rank_hinge",
    "rank_squared_hinge",
    "smooth_hinge",
    "squared",
    "squared_eps_insensitive",
    "squared_hinge",
]


def _inside(condition: Array, value: Array) -> Array:
    return jnp.where(condition, value, jnp.full_like(value, jnp.inf))


def _guard(sqnorm: Array) -> Array:
    """The curvature, bounded away from 0.

    The coefficient of a row of zeros then moves to its bound in one step.
    """
    return jnp.maximum(sqnorm, jnp.finfo(sqnorm.dtype).tiny * 16)


def _slack(value: Array) -> Array:
    """The rounding tolerance at the ends of a conjugate's domain."""
    return 8 * jnp.finfo(value.dtype).eps * jnp.ones_like(value)


def _sided(y: Array, high: Array, l2: Array | None = None) -> Quadratic:
    """The dual bounds 0 <= y coef <= high of a margin loss."""
    zero = jnp.zeros_like(high)
    return Quadratic(jnp.where(y > 0, zero, -high), jnp.where(y > 0, high, zero), l2=l2)


def _shrunk(residual: Array, eps: Scalar) -> Array:
    """Soft thresholding: numbers nearer to 0 by eps, or 0."""
    return jnp.sign(residual) * jnp.maximum(jnp.abs(residual) - eps, 0)


def _unbounded(C: Array) -> Array:
    """An infinite bound for each row of positive weight, 0 for the others."""
    return jnp.where(C > 0, jnp.full_like(C, jnp.inf), jnp.zeros_like(C))


def _inverse(C: Array) -> Array:
    """1/C, and 0 where C is 0, where both bounds are 0."""
    return jnp.where(C > 0, 1 / jnp.where(C > 0, C, jnp.ones_like(C)), jnp.zeros_like(C))


class _WithQuadraticDual(Loss):
    """A loss that tells its term of the dual: minus the conjugate at C = 1."""

    def conjugate(self, u: Array, y: Array) -> Array:
        low, high, l1, l2 = self.quadratic(y, jnp.ones_like(u))
        value = u * y if l1 is None else u * y + l1 * jnp.abs(u)
        value = value if l2 is None else value + l2 / 2 * u * u
        return _inside((-u >= low - _slack(u)) & (-u <= high + _slack(u)), value)

    def dual_step(self, coef: Array, f: Array, y: Array, q: Array, C: Array) -> Array:
        low, high, l1, l2 = self.quadratic(y, C)
        slope, q = (y - f, q) if l2 is None else (y - f - l2 * coef, q + l2)
        q = _guard(q)
        step = coef + slope / q if l1 is None else _shrunk(q * coef + slope, l1) / q
        return jnp.clip(step, low, high)


@node
class hinge_loss(Loss):
    """The hinge loss max(0, 1 - y f).

    The slope at the kink is 0: a row violates its margin where y f < 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsvm import losses
        >>> losses.hinge.value(jnp.array([0.5, 1.0]), jnp.array([1.0, 1.0])).tolist()
        [0.5, 0.0]
    """

    _name = "hinge"  # of its one instance, in print and in files

    def value(self, f: Array, y: Array) -> Array:
        return optax.losses.hinge_loss(f, y)

    def slope(self, f: Array, y: Array) -> Array:
        return jnp.where(y * f < 1, -y, jnp.zeros_like(y))

    def conjugate(self, u: Array, y: Array) -> Array:
        a = -u * y  # of fewer operations than by its bounds: most programs hold it
        return _inside((a >= -_slack(a)) & (a <= 1 + _slack(a)), -a)

    def dual_step(self, coef: Array, f: Array, y: Array, q: Array, C: Array) -> Array:
        return y * jnp.clip(y * coef + (1 - y * f) / _guard(q), 0, C)

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return _sided(y, C)


@node
class squared_hinge_loss(_WithQuadraticDual):
    """The squared hinge loss max(0, 1 - y f)^2, without a factor 1/2, as in LIBLINEAR.

    alpha_i >= 0 has no upper bound.
    """

    _name = "squared_hinge"  # of its one instance, in print and in files

    def value(self, f: Array, y: Array) -> Array:
        return jnp.maximum(1 - y * f, 0) ** 2

    def slope(self, f: Array, y: Array) -> Array:
        return y * (-2 * jnp.maximum(1 - y * f, 0))

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return _sided(y, _unbounded(C), _inverse(C) / 2)

    def curvature(self, f: Array, y: Array) -> Array:
        return jnp.where(y * f < 1, jnp.full_like(f, 2), jnp.zeros_like(f))


@node
class smooth_hinge(_WithQuadraticDual):
    """The smoothed hinge loss, with a parabola of the given width at the kink.

    It is differentiable, with slope in [-1, 0] times y.

    0 for y f >= 1, (1 - y f)^2 / (2 width) for 1 - width <= y f <= 1, 1 - y f - width/2 below.

    Args:
        width: margin units, > 0.
    """

    width: float = positive(default=1.0)

    def value(self, f: Array, y: Array) -> Array:
        slack = jnp.maximum(1 - y * f, 0)
        square = slack * slack / (2 * self.width)
        return jnp.where(slack < self.width, square, slack - self.width / 2)

    def slope(self, f: Array, y: Array) -> Array:
        return -y * jnp.clip((1 - y * f) / self.width, 0, 1)

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return _sided(y, C, self.width * _inverse(C))

    def curvature(self, f: Array, y: Array) -> Array:
        slack = 1 - y * f
        return jnp.where((slack > 0) & (slack < self.width), 1 / self.width * jnp.ones_like(f), 0)


@node
class logistic_loss(Loss):
    """The logistic loss log(1 + exp(-y f)).

    The dual coordinate step is 12 Newton steps in the log-odds of alpha/C, from an upper bound of
    the root.
    """

    _name = "logistic"  # of its one instance, in print and in files

    def value(self, f: Array, y: Array) -> Array:
        return jnp.logaddexp(-y * f, jnp.zeros_like(f))

    def slope(self, f: Array, y: Array) -> Array:
        return -y * jax.nn.sigmoid(-y * f)

    def conjugate(self, u: Array, y: Array) -> Array:
        a = -u * y
        clipped, entr = jnp.clip(a, 0, 1), jax.scipy.special.entr
        return _inside(jnp.abs(a - clipped) <= _slack(a), -entr(clipped) - entr(1 - clipped))

    def dual_step(self, coef: Array, f: Array, y: Array, q: Array, C: Array) -> Array:
        # alpha = C sigmoid(s) where s + a sigmoid(s) = c, solved at s <= 0, its mirror image
        # otherwise: there the left side is convex, and Newton's method falls to the root from the
        # upper bound that it starts at.
        a, c = q * C, q * y * coef - y * f
        is_mirrored = c > a / 2
        c = jnp.where(is_mirrored, a - c, c)
        under, over = jnp.minimum(c, 0), jnp.maximum(c, 0)
        s = jnp.minimum(under, jnp.log(2 * (over + jnp.log1p(a * jnp.exp(under)) + 1)) - jnp.log(a))

        def newton(_, s):
            p = jax.nn.sigmoid(s)
            return s - (s + a * p - c) / (1 + a * p * (1 - p))

        s = jax.lax.fori_loop(0, 12, newton, s)
        return y * C * jax.nn.sigmoid(jnp.where(is_mirrored, -s, s))

    def curvature(self, f: Array, y: Array) -> Array:
        return jax.nn.sigmoid(y * f) * jax.nn.sigmoid(-y * f)


@node
class squared_loss(_WithQuadraticDual):
    """The squared loss (f - y)^2 / 2 for real targets."""

    _name = "squared"  # of its one instance, in print and in files

    labels = False

    def value(self, f: Array, y: Array) -> Array:
        return optax.losses.l2_loss(f, y)

    def slope(self, f: Array, y: Array) -> Array:
        return f - y

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return Quadratic(-_unbounded(C), _unbounded(C), l2=_inverse(C))

    def curvature(self, f: Array, y: Array) -> Array:
        return jnp.ones_like(f)


@node
class eps_insensitive(_WithQuadraticDual):
    """The eps-insensitive loss max(0, |f - y| - eps) for real targets.

    The slope on the edge of the tube is 0.

    Args:
        eps: half the width of the tube, units of y, >= 0.
    """

    eps: float = between(0.0, default=0.1)
    labels = False

    def value(self, f: Array, y: Array) -> Array:
        return jnp.maximum(jnp.abs(f - y) - self.eps, 0)

    def slope(self, f: Array, y: Array) -> Array:
        return jnp.where(jnp.abs(f - y) > self.eps, jnp.sign(f - y), jnp.zeros_like(f))

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return Quadratic(-C, C, l1=jnp.full_like(C, self.eps))


@node
class squared_eps_insensitive(_WithQuadraticDual):
    """The squared eps-insensitive loss max(0, |f - y| - eps)^2, without a factor 1/2.

    It is that of LIBLINEAR, for real targets.

    Args:
        eps: half the width of the tube, units of y, >= 0.
    """

    eps: float = between(0.0, default=0.1)
    labels = False

    def value(self, f: Array, y: Array) -> Array:
        return jnp.maximum(jnp.abs(f - y) - self.eps, 0) ** 2

    def slope(self, f: Array, y: Array) -> Array:
        return 2 * jnp.sign(f - y) * jnp.maximum(jnp.abs(f - y) - self.eps, 0)

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        high, l1 = _unbounded(C), jnp.full_like(C, self.eps)
        return Quadratic(-high, high, l1=l1, l2=_inverse(C) / 2)

    def curvature(self, f: Array, y: Array) -> Array:
        return jnp.where(jnp.abs(f - y) >= self.eps, jnp.full_like(f, 2), jnp.zeros_like(f))


@node
class pinball(_WithQuadraticDual):
    """The pinball loss max(tau (y - f), (tau - 1)(y - f)) for real targets.

    It is minimised by the tau-quantile. The slope at f = y is 0.

    Args:
        tau: quantile, in (0, 1).
    """

    tau: float = between(0.0, 1.0, open=True, default=0.5)
    labels = False

    def value(self, f: Array, y: Array) -> Array:
        return jnp.maximum(self.tau * (y - f), (self.tau - 1) * (y - f))

    def slope(self, f: Array, y: Array) -> Array:
        above = jnp.where(f > y, (1 - self.tau) * jnp.ones_like(f), jnp.zeros_like(f))
        return jnp.where(f < y, -self.tau * jnp.ones_like(f), above)

    def quadratic(self, y: Array, C: Array) -> Quadratic:
        return Quadratic((self.tau - 1) * C, self.tau * C)


def _one_hot(y: Array, k: int, dtype: DTypeLike) -> Array:
    """The unit vectors of class numbers (b,), which may be floats, (b, k)."""
    return jax.nn.one_hot(y.astype(jnp.int32), k, dtype=dtype)


def _with_margin(f: Array, y: Array) -> tuple[Array, Array]:
    """The scores of all other classes plus 1, and the unit vectors of the classes."""
    one_hot = _one_hot(y, f.shape[-1], dtype=f.dtype)
    return f + 1 - one_hot, one_hot


@node
class crammer_singer_loss(Loss):
    """The multiclass hinge loss max_j (f_j + [j != y]) - f_y.

    The scores are (b, k), the class numbers y (b,). The slope is e_j - e_y for the first maximal j,
    and 0 where that is y. A slope u is in the domain of the conjugate where u + e_y is on the
    simplex. `dual_step` maps coefficients (b, k), of sum 0.

    Reference: K. Crammer, Y. Singer, On the algorithmic implementation of multiclass kernel-based
        vector machines, JMLR 2, 2001.
    """

    _name = "crammer_singer"  # of its one instance, in print and in files

    multiclass = True

    def value(self, f: Array, y: Array) -> Array:
        scores, one_hot = _with_margin(f, y)
        return jnp.max(scores, -1) - jnp.sum(f * one_hot, -1)

    def slope(self, f: Array, y: Array) -> Array:
        scores, one_hot = _with_margin(f, y)
        is_zero = jnp.sum(scores * one_hot, -1) >= jnp.max(scores, -1)
        other = jax.nn.one_hot(jnp.argmax(scores, -1), f.shape[-1], dtype=f.dtype) - one_hot
        return jnp.where(is_zero[:, None], jnp.zeros_like(other), other)

    def conjugate(self, u: Array, y: Array) -> Array:
        one_hot = _one_hot(y, u.shape[-1], dtype=u.dtype)
        p = u + one_hot
        slack = 8 * u.shape[-1] * jnp.finfo(u.dtype).eps
        on_simplex = (jnp.min(p, -1) >= -slack) & (jnp.abs(jnp.sum(u, -1)) <= slack)
        return _inside(on_simplex, jnp.sum(u * one_hot, -1))

    def dual_step(self, coef: Array, f: Array, y: Array, q: Array, C: Array) -> Array:
        one_hot, q = _one_hot(y, f.shape[-1], f.dtype), _guard(q)[:, None]
        bound = C[:, None] * one_hot
        room, ahead = bound - coef, f - one_hot  # only differences between the classes count
        # coef + (t - ahead) / q, or the bound if that is less, with sum 0. With the classes S below
        # their bounds t is the mean of `ahead` in S, less q times the room of the others by |S|. S
        # holds the classes of the largest levels, q room + ahead; it is the largest such set whose
        # levels are at least t. All numbers are differences from those of class j, the last of S.
        over = lambda a: a[:, None, :] - a[:, :, None]  # antisymmetric, as rounded too
        is_below = q[..., None] * over(room) + over(ahead) >= 0
        size = jnp.sum(is_below, axis=-1, dtype=f.dtype)
        mean = jnp.sum(jnp.where(is_below, over(ahead), 0), axis=-1) / size
        rest = jnp.sum(jnp.where(is_below, 0, room[:, None, :]), axis=-1) / size
        best = jnp.argmax(jnp.where(mean - q * rest <= q * room, size, 0), axis=-1)[:, None]
        of_best = lambda a: jnp.take_along_axis(a, best, axis=-1)
        step = (of_best(mean) + (of_best(ahead) - ahead)) / q - of_best(rest)
        new = jnp.where(step >= room, bound, coef + step)
        top = _one_hot(jnp.argmin(size, axis=-1), f.shape[-1], f.dtype) > 0
        others = jnp.sum(jnp.where(top, 0, new), axis=-1, keepdims=True)
        return jnp.where(top, jnp.minimum(-others, bound), new)


@node
class pairwise(JointLoss):
    """The hinge loss of ranking: over pairs of rows of one query with different grades.

        R(f) = sum_ij c_ij max(0, 1 - (f_i - f_j)) over pairs with grade_i > grade_j,
        c_ij in proportion to weight_i weight_j, with sum 1

    The sums of the value and of its slope take one sort of the scores, and O(n log(grades)) beyond
    it. `losses.rank_hinge` is `pairwise()`, of RankSVM, and `losses.rank_squared_hinge` is
    `pairwise(squared=True)`. For labels R is at least 1 - AUC.

    Args:
        squared: the square of the hinge loss.
        per_query: every query has the same weight, whatever its number of pairs; else every pair
            has. Queries without a pair have none.
        censored: y are signed times, +time of a row whose event was observed and -time of a
            censored one. The pairs are those with an event of row j, and with a later time of row
            i, or an equal one at which it was censored. So a later event has a higher score.

    Returns:
        A joint loss, for `ocas` and other solvers of joint risks, and with `squared` for `newton`;
        `y` of the data are the grades, `query` the queries. A bias has no effect.

    Raises:
        ValueError: from the host's checks, data without two rows of one query with different
            grades; with `censored`, data without an event that is earlier than another row of its
            query, or with a time of 0.

    Differs from the papers: partial sums by a wavelet matrix for any number of grades, instead of a
        pass for each grade (Joachims) or of trees (Lee and Lin). A pair at margin 1 is no violator.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset(jnp.eye(2), [2, 1], task="ranking")
        >>> risk = jaxsvm.losses.pairwise().joint(data)
        >>> value, slope = jax.jit(risk.value_and_slope)(jnp.array([0.5, 0.0]))
        >>> float(value), slope.tolist()
        (0.5, [-1.0, 1.0])

    Reference: T. Joachims, Training linear SVMs in linear time, KDD 2006, section 4; C.-P. Lee,
        C.-J. Lin, Large-scale linear RankSVM, Neural Computation 26, 2014. Of censored times: V.
        Van Belle, K. Pelckmans, J. A. K. Suykens, S. Van Huffel, Support vector machines for
        survival analysis, CIMED 2007.
    """

    _: KW_ONLY
    squared: bool = False
    per_query: bool = False
    censored: bool = False
    smooth = property(lambda self: self.squared)

    def joint(self, data: Batch) -> Risk:
        return pair_risk(data, self.squared, self.per_query, self.censored)

    def validate(self, data: Batch) -> None:
        check_grades(data.y, data.weight, data.query, self.censored)


@node
class custom(Loss):
    """A loss of the user's functions; `params`, where given, are their last argument.

    Args:
        value_fn: (score, y) or (score, y, params) -> the loss of each score.
        slope_fn: the same -> an element of the subdifferential in the score.
        params: numbers or a pytree of them, which are leaves: `jax.grad` and `jax.vmap` reach them.
        conjugate_fn, dual_step_fn, quadratic_fn, curvature_fn: as of `jaxsvm.Loss`; None: not
            known.
        labels: whether targets are in {-1, +1}; False: real numbers.
        multiclass: whether scores are (b, k).

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> huber = jaxsvm.losses.custom(
        ...     lambda f, y, width: jnp.where(
        ...         jnp.abs(f - y) < width, (f - y) ** 2 / (2 * width), jnp.abs(f - y) - width / 2
        ...     ),
        ...     lambda f, y, width: jnp.clip((f - y) / width, -1, 1),
        ...     0.5,
        ...     labels=False,
        ... )
        >>> huber(jnp.array([2.0]), jnp.array([1.0])).tolist()
        [0.75]
    """

    value_fn: Any
    slope_fn: Any
    params: Any = None
    _: KW_ONLY
    conjugate_fn: Any = None
    dual_step_fn: Any = None
    quadratic_fn: Any = None
    curvature_fn: Any = None
    labels: bool = True
    multiclass: bool = False

    def check(self) -> None:
        self.check_functions()

    def _with_params(self, fn: Callable) -> Callable:
        if fn is None or self.params is None:
            return fn
        return lambda *args: fn(*args, self.params)

    value = property(lambda self: self._with_params(self.value_fn))
    slope = property(lambda self: self._with_params(self.slope_fn))
    conjugate = property(lambda self: self._with_params(self.conjugate_fn))
    dual_step = property(lambda self: self._with_params(self.dual_step_fn))
    quadratic = property(lambda self: self._with_params(self.quadratic_fn))
    curvature = property(lambda self: self._with_params(self.curvature_fn))


hinge = hinge_loss()
squared_hinge = squared_hinge_loss()
logistic = logistic_loss()
squared = squared_loss()
crammer_singer = crammer_singer_loss()
rank_hinge = pairwise()
rank_squared_hinge = pairwise(squared=True)


def by_name(name: str) -> Loss:
    """The loss of a name, with its default numbers.

    Args:
        name: one of `names.LOSSES`, or scikit-learn's "log_loss".

    Raises:
        ValueError: another name.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.losses.by_name("log_loss"), jaxsvm.losses.by_name("pinball")
        (logistic(), pinball())
    """
    name = ALIASES.get(name, name)
    check_choice("loss", name, LOSSES)
    found: Any = globals()[name]
    return found() if isinstance(found, type) else found
