"""The stochastic batch perceptron."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import models
from ..checks import is_whole, shown
from ..kernels import Kernel, as_kernel, check_symmetric, matvec
from ..numerics import (
    WaterFill,
    add_counts,
    any_under_vmap,
    dot,
    gather,
    multiply_counts,
    narrow_count,
    one_level,
    pairwise_sum,
    running_mean,
    sample_proportional,
    two_levels,
)
from ..projections import shorten
from ..recipe import check_choice, check_nonnegative, register, solver
from ..samplers import uniform
from ..spaces import averaged, expansion
from ..spaces.running_mean import MeanState
from ..types import Array, Info, Solver

REFRESH = 64  # steps between two sums of |w|^2 over all rows


@register("SbpState")
class SbpState(NamedTuple):
    """The function and the mean of those before it, the water over its margins, and the mean of the p that it defined."""

    s: MeanState
    fill: WaterFill  # over the margins of the function
    p: Array  # (n,)  mean of the shares that rows were drawn by
    compensation: Array  # (n,)  what rounding took from p
    residual: Array  # ()   at the last step that computed the bound
    moved: Array  # ()   how far the bias went in the last step
    square: Array  # ()   |w|^2
    reach: Array  # ()   R
    weight: Array  # (n,)  example weights
    key: Array  # ()
    t: Array  # ()   int32


@solver
def sbp(nu: float, kernel: Kernel, *, bias: str = "none", normalise: bool = True, bound_every: int | None = None) -> Solver:
    """Maximise over |w| <= 1 the smallest margin that a mean slack of nu leaves, with one kernel row a step.

        f(w) = max min_i (y_i (<w, phi(x_i)> + b) + xi_i)   over xi >= 0 of mean at most nu, and b if the bias is free
        i drawn evenly from the rows under the water level f(w) over the margins;   w = w + y_i phi(x_i) / (R sqrt(t))
        w = w / max(1, |w|);   returned: mean of the w, rescaled to margin 1,   R^2 = max_i k(x_i, x_i)

    The optimum at nu = (mean hinge) / |u| of a minimiser u of lam/2 |w|^2 + mean hinge is u / |u|, and f is 1/|u| there. With a
    free bias a step draws one row of each class, with half the step for each. The mean of the iterates is within
    3 R / sqrt(t) of the optimum, in expectation.

    Args:
        nu: mean slack, >= 0, in units of the margin; 0 is the hard margin.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        bias: "none" or "free" (not regularised); structure.
        normalise: return the mean put back on the unit sphere where its level is higher there; structure.
        bound_every: steps between two bounds of the optimum; None: n, 0: none; each costs n kernel rows in one blocked
            product; structure.

    Returns:
        A solver on all rows, which draws its own: of what the sampler hands only the number of rows counts, so that
        `samplers.uniform(8)` makes steps of the mean of 8 draws by one matrix product. Model `Expansion` of margin 1
        (mean hinge nu / level, norm at most 1 / level); where the level is not above 0, mean slack nu does not separate
        yet, and the mean comes as it is. The residual bounds how far the level is from the optimum, relatively:
        1 - level / (|sum_i p_i y_i phi(x_i)| + n nu max_i p_i) for the mean p of what rows were drawn by; inf before the first
        bound, or where the level is not above 0. The loss is nu / level, the mean hinge at margin 1 (1 for levels
        not above 0).

    Raises:
        ValueError: nu no single number of at least 0, another bias, bound_every not an integer; from `fit` for k(x, x) below
            0, or 0 everywhere, and with bias="free" for rows of one class only (no finite level).

    Differs from the paper: the level by Newton's method from the last one, without a sort or a partition; responses are sums
        with compensation, which do not drift, and |w|^2 is refreshed by their product with the coefficients; rescaling is
        part of the move; example weights share the slack, sum_i weight_i xi_i <= n nu, and p is in proportion to them; the mean
        may be normalised (the authors' program does not).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[2.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(sbp(0.0, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=20)
        >>> run.model(data.x).round(3).tolist()
        [2.0, -1.0]

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012, algorithms 1
        to 3; the bound: weak duality.
    """
    check_nonnegative(nu=nu)
    check_choice("bias", bias, ("none", "free"))
    if bound_every is not None and not is_whole(bound_every, 0):
        raise ValueError(f"bound_every must be a whole number of steps, 0 for none, or None, got {shown(bound_every)}")
    kernel = as_kernel(kernel)
    space = averaged(expansion(kernel, unconditional=True), of="moves")

    def water(margin, y, weight, start=None):
        """The water over margins (n,): its level, the bias, and the share of each row."""
        volume = jnp.asarray(nu, weight.dtype) * pairwise_sum(weight)
        if bias == "free":
            return two_levels(margin, y, volume, weight=weight, start=start)
        return one_level(margin, volume, weight=weight, start=None if start is None else start[1])

    def returned(f, y, weight):
        """The mean of the iterates on the scale that is returned, and the water over its margins."""
        margin, square = y * (f.response + f.compensation), jnp.dot(f.coef, f.response)
        onto = lax.rsqrt(jnp.where(square > 0, square, 1))
        scales = jnp.stack([jnp.ones_like(onto), onto][: 2 if normalise else 1])
        filled = jax.vmap(lambda scale: water(scale * margin, y, weight))(scales)
        best = jnp.argmax(filled.level)
        return scales[best], jax.tree.map(lambda a: a[best], filled)

    def distance(f, p, x, y, weight):
        """How far the level is from the optimum at most, relatively."""
        v = p * y
        peak = jnp.max(jnp.where(weight > 0, p / jnp.where(weight > 0, weight, 1), 0))
        bound = (
            jnp.sqrt(jnp.maximum(jnp.dot(v, matvec(kernel, x, x, v)), 0)) + jnp.asarray(nu, v.dtype) * pairwise_sum(weight) * peak
        )
        level = returned(f, y, weight)[1].level
        return jnp.where(level > 0, jnp.maximum(1 - level / bound, 0), jnp.inf)

    def init(key, data):
        s = space.zero(key, data)
        weight, y = data.weight.astype(s.f.coef.dtype), data.y.astype(s.f.coef.dtype)
        reach = jnp.sqrt(jnp.max(jnp.where(weight > 0, kernel.diag(data.x), 0)).astype(y.dtype))
        zero, first = jnp.zeros((), y.dtype), jnp.zeros((), jnp.int32)
        return SbpState(s, water(0 * y, y, weight), 0 * y, 0 * y, zero + jnp.inf, zero, zero, reach, weight, key, first)

    def update(state, batch):
        s, (level, b, share), p, compensation, _, moved, _, reach, weight, key, t = state
        y, n, steps = batch.y.astype(share.dtype), batch.y.shape[0], t + 1
        # A draw for each row that the sampler hands, one of each class with a bias.
        sides = (jnp.where(y > 0, share, 0), jnp.where(y > 0, 0, share)) if bias == "free" else (share,)
        u = jax.random.uniform(jax.random.fold_in(key, t), (len(sides), batch.index.shape[0]), jnp.float32).astype(y.dtype)
        own = batch._replace(index=jnp.concatenate([sample_proportional(side, u[k]) for k, side in enumerate(sides)]))
        # w + eta mean of y_i phi(x_i), and then w / max(1, |w|).
        eta = 1 / (reach * jnp.sqrt(steps.astype(y.dtype)))
        coef = eta * gather(y, own.index) / own.index.shape[0]
        square = state.square + 2 * jnp.dot(coef, space.evaluate(s, own)) + jnp.dot(coef, dot(space.gram(own), coef))
        square = jnp.maximum(square, 0)
        factor = shorten(square, 1.0)
        s = space.add(s, 1 - factor, factor * coef, own)
        square = lax.cond(
            any_under_vmap(steps % REFRESH == 0), lambda: jnp.dot(s.f.coef, s.f.response), lambda: square * factor * factor
        )
        filled = water(y * (s.f.response + s.f.compensation), y, weight, (b, level, 2 * moved + 1e-3 * eta * reach))
        p, compensation = running_mean(p, compensation, share, 1 / steps.astype(y.dtype))
        period = n if bound_every is None else bound_every
        is_bound_step = any_under_vmap(steps % period == 0) if period else jnp.zeros((), bool)
        residual = lax.cond(is_bound_step, lambda: distance(s.mean, p, batch.x, y, weight), lambda: state.residual)
        n_bound, most = jnp.where(is_bound_step, n, 0).astype(jnp.int32), n * (n + own.index.shape[0])
        info = Info(
            loss=jnp.where(level > 0, jnp.asarray(nu, y.dtype) / jnp.where(level > 0, level, 1), 1),
            residual=residual,
            progress=jnp.zeros_like(coef),
            index=own.index,
            support=space.support(s),
            evals=narrow_count(add_counts(space.evals(coef, own), multiply_counts(n_bound, n)), most),
        )
        return SbpState(s, filled, p, compensation, residual, jnp.abs(filled.bias - b), square, reach, weight, key, steps), info

    def model(state, data=None):
        f = state.s.mean
        made = models.expansion(kernel, f.coef, data, bias)
        scale, filled = returned(f, data.y.astype(f.coef.dtype), state.weight)
        scale, b = (jnp.where(filled.level > 0, a / filled.level, a) for a in (scale, filled.bias))
        return dataclasses.replace(made, coef=scale * f.coef, b=b)

    def check(data):
        check_symmetric(kernel, data)
        diag = np.asarray(kernel.diag(data.x))[np.asarray(data.weight) > 0]
        if not (np.all(diag >= 0) and np.any(diag > 0)):
            raise ValueError(
                f"k(x, x) must not be negative nor 0 for all rows, got {diag.min():g} to {diag.max():g}: scale the rows"
            )
        if bias == "free" and len(np.unique(np.sign(np.asarray(data.y)[np.asarray(data.weight) > 0]))) < 2:
            raise ValueError("bias='free' needs rows of both classes: with one class the level has no bound")

    return Solver(init, update, model, uniform(), "all", targets="labels", validate=check, layout=kernel.layout)
