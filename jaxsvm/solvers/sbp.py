"""The stochastic batch perceptron (SBP): algorithms 1 to 3 of Cotter, Shalev-Shwartz and Srebro."""

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

REFRESH = 64  # |w|^2 is recomputed from its coefficients every REFRESH steps


@register("SbpState")
class SbpState(NamedTuple):
    """The iterate with the mean of the iterates, its water filling and the mean distribution.

    The water filling is that of the margins. The distribution is that of draws.
    """

    s: MeanState
    fill: WaterFill  # of the margins of the iterate
    p: Array  # (n,)  mean of the distributions that rows were drawn from
    compensation: Array  # (n,)  rounding errors of p, still to be added
    residual: Array  # ()   the last computed bound of the relative distance from the optimum
    bias_change: Array  # ()   |change of the bias| in the last step
    square: Array  # ()   |w|^2 of the iterate
    reach: Array  # ()   R, the largest |phi(x_i)|
    weight: Array  # (n,)  example weights
    key: Array  # ()
    t: Array  # ()   int32, number of steps made


@solver
def sbp(
    nu: float,
    kernel: Kernel,
    *,
    bias: str = "none",
    normalise: bool = True,
    bound_every: int | None = None,
) -> Solver:
    """Maximise the smallest margin over |w| <= 1, given a mean slack of nu; one kernel row a step.

        f(w) = max min_i (y_i (<w, phi(x_i)> + b) + xi_i)
            over xi >= 0 with mean(xi) <= nu, and over b if the bias is free
        i uniform among the rows with margin below the water level f(w)
        w = w + y_i phi(x_i) / (R sqrt(t)),   R^2 = max_i k(x_i, x_i)
        w = w / max(1, |w|);   returned: the mean of the w, rescaled to margin 1

    f(w) is the level of water of volume n nu over a ground of heights y_i (<w, phi(x_i)> + b). Let
    u minimise lam/2 |w|^2 + mean hinge, and let nu = (mean hinge of u) / |u|. Then u / |u| is
    optimal, and f = 1/|u| there. With a free bias a step draws one row of each class and halves the
    step of each. The expected distance of f at the mean of the iterates from its maximum is at most
    3 R / sqrt(t) + R / t.

    Args:
        nu: mean slack, >= 0, in units of the margin; 0 is the hard margin.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        bias: "none" or "free" (not regularised); structure.
        normalise: scale the mean to norm 1 if its level is higher there; structure.
        bound_every: compute the bound of the optimum every k-th step; None: k = n, 0: never. A
            bound costs n kernel rows in one blocked product; structure.

    Returns:
        A solver on all rows that draws its own. The sampler sets the number of draws only: with
        `samplers.uniform(8)` a step is the mean of 8 draws, by one matrix product. Model
        `Expansion` of margin 1: mean hinge nu / level, norm at most 1 / level. If the level is not
        above 0, mean slack nu does not separate yet, and the mean is returned unscaled. The
        residual bounds the relative distance of the level from the optimum by weak duality: 1 -
        level / (|sum_i p_i y_i phi(x_i)| + n nu max_i p_i), where p is the mean of the
        distributions of the draws. It is inf before the first bound, and where the level is not
        above 0. The loss is nu / level, the mean hinge at margin 1, or 1 where the level is not
        above 0.

    Raises:
        ValueError: nu not a single number of at least 0, another bias, bound_every not an integer;
            from `fit` if k(x, x) is negative or 0 everywhere, and with bias="free" if there is one
            class only (no finite level).

    Differs from the paper: Newton's method finds the level from the previous one, without a sort or
        a partition. Responses are compensated sums, and |w|^2 is recomputed from them every 64
        steps. The scaling is part of the step. Example weights share the slack, sum_i weight_i xi_i
        <= nu sum_i weight_i, and p is proportional to them. The mean may be normalised; the
        authors' program does not do so.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[2.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(sbp(0.0, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=20)
        >>> run.model(data.x).round(3).tolist()
        [2.0, -1.0]

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, algorithms 1 to 3; the bound: weak duality.
    """
    check_nonnegative(nu=nu)
    check_choice("bias", bias, ("none", "free"))
    if bound_every is not None and not is_whole(bound_every, 0):
        raise ValueError(
            "bound_every must be a whole number of steps, 0 for none, or None, got "
            f"{shown(bound_every)}"
        )
    kernel = as_kernel(kernel)
    # The model is the mean of the functions after each step.
    space = averaged(expansion(kernel, unconditional=True), of="moves")

    def water_filling(margin, y, weight, start=None):
        """The water filling of margins (n,): its level, the bias, and the distribution p.

        p attains the level. The search starts at `start`: the bias, the level, and the initial
        stride of the bias.
        """
        volume = jnp.asarray(nu, weight.dtype) * pairwise_sum(weight)
        if bias == "free":
            return two_levels(margin, y, volume, weight=weight, start=start)
        return one_level(margin, volume, weight=weight, start=None if start is None else start[1])

    def rescale(f, y, weight):
        """The scale of the mean iterate with the higher level, and the water filling there.

        The scale is 1 or that of norm 1.
        """
        margin, square = y * (f.response + f.compensation), jnp.dot(f.coef, f.response)
        unit_scale = lax.rsqrt(jnp.where(square > 0, square, 1))  # 1 / |mean|
        scales = jnp.stack([jnp.ones_like(unit_scale), unit_scale][: 2 if normalise else 1])
        fills = jax.vmap(lambda scale: water_filling(scale * margin, y, weight))(scales)
        best = jnp.argmax(fills.level)
        return scales[best], jax.tree.map(lambda a: a[best], fills)

    def relative_distance(f, p, x, y, weight):
        """A bound of 1 - level / maximum, by weak duality.

        f <= |sum_i p_i y_i phi(x_i)| + n nu max_i p_i for every p.

        With a free bias p has sum 1/2 in each class. With weights the last term is nu sum_i
        weight_i max_i p_i / weight_i.
        """
        v = p * y
        max_p = jnp.max(jnp.where(weight > 0, p / jnp.where(weight > 0, weight, 1), 0))
        bound = (
            jnp.sqrt(jnp.maximum(jnp.dot(v, matvec(kernel, x, x, v)), 0))
            + jnp.asarray(nu, v.dtype) * pairwise_sum(weight) * max_p
        )
        level = rescale(f, y, weight)[1].level
        return jnp.where(level > 0, jnp.maximum(1 - level / bound, 0), jnp.inf)

    def init(key, data):
        s = space.zero(key, data)
        weight, y = data.weight.astype(s.f.coef.dtype), data.y.astype(s.f.coef.dtype)
        R = jnp.sqrt(jnp.max(jnp.where(weight > 0, kernel.diag(data.x), 0)).astype(y.dtype))
        zero, t = jnp.zeros((), y.dtype), jnp.zeros((), jnp.int32)
        return SbpState(
            s=s,
            fill=water_filling(0 * y, y, weight),  # all margins of w = 0 are 0
            p=0 * y,
            compensation=0 * y,
            residual=zero + jnp.inf,
            bias_change=zero,
            square=zero,
            reach=R,
            weight=weight,
            key=key,
            t=t,
        )

    def update(state, batch):
        (
            s,
            (level, b, share),
            p,
            compensation,
            last_residual,
            bias_change,
            square,
            R,
            weight,
            key,
            t,
        ) = state
        y, n, step = batch.y.astype(share.dtype), batch.y.shape[0], t + 1
        # i ~ share, as many times as the sampler has rows; as many of each class if the bias is
        # free.
        shares = (
            (jnp.where(y > 0, share, 0), jnp.where(y > 0, 0, share)) if bias == "free" else (share,)
        )
        u = jax.random.uniform(
            jax.random.fold_in(key, t), (len(shares), batch.index.shape[0]), jnp.float32
        ).astype(y.dtype)
        drawn = batch._replace(
            index=jnp.concatenate(
                [sample_proportional(p_class, u[k]) for k, p_class in enumerate(shares)]
            )
        )
        # w + eta mean of y_i phi(x_i), and the squared norm of the sum.
        eta = 1 / (R * jnp.sqrt(step.astype(y.dtype)))
        coef = eta * gather(y, drawn.index) / drawn.index.shape[0]
        square = (
            square
            + 2 * jnp.dot(coef, space.evaluate(s, drawn))
            + jnp.dot(coef, dot(space.gram(drawn), coef))
        )
        square = jnp.maximum(square, 0)
        factor = shorten(square, 1.0)  # 1 / max(1, |w|)
        s = space.add(s, 1 - factor, factor * coef, drawn)
        square = lax.cond(
            any_under_vmap(step % REFRESH == 0),
            lambda: jnp.dot(s.f.coef, s.f.response),
            lambda: square * factor * factor,
        )
        # The initial stride of the bias: twice its last change, and above 0.
        stride = 2 * bias_change + 1e-3 * eta * R
        margin = y * (s.f.response + s.f.compensation)
        fill = water_filling(margin, y, weight, (b, level, stride))
        p, compensation = running_mean(p, compensation, share, 1 / step.astype(y.dtype))
        # The bound of the optimum, every k-th step.
        period = n if bound_every is None else bound_every
        is_bound_step = any_under_vmap(step % period == 0) if period else jnp.zeros((), bool)
        residual = lax.cond(
            is_bound_step,
            lambda: relative_distance(s.mean, p, batch.x, y, weight),
            lambda: last_residual,
        )
        bound_rows = jnp.where(is_bound_step, n, 0).astype(jnp.int32)
        max_evals = n * (n + drawn.index.shape[0])
        info = Info(
            # nu / level of the iterate before the step
            loss=jnp.where(level > 0, jnp.asarray(nu, y.dtype) / jnp.where(level > 0, level, 1), 1),
            residual=residual,
            progress=jnp.zeros_like(coef),
            index=drawn.index,
            support=space.support(s),
            evals=narrow_count(
                add_counts(space.evals(coef, drawn), multiply_counts(bound_rows, n)), max_evals
            ),
        )
        new = state._replace(
            s=s,
            fill=fill,
            p=p,
            compensation=compensation,
            residual=residual,
            bias_change=jnp.abs(fill.bias - b),
            square=square,
            t=step,
        )
        return new, info

    def model(state, data=None):
        f = state.s.mean
        mean = models.expansion(kernel, f.coef, data, bias)
        scale, fill = rescale(f, data.y.astype(f.coef.dtype), state.weight)
        # to margin 1, if the level is above 0
        scale, b = (jnp.where(fill.level > 0, a / fill.level, a) for a in (scale, fill.bias))
        return dataclasses.replace(mean, coef=scale * f.coef, b=b)

    def check(data):
        check_symmetric(kernel, data)
        diag = np.asarray(kernel.diag(data.x))[np.asarray(data.weight) > 0]
        if not (np.all(diag >= 0) and np.any(diag > 0)):
            raise ValueError(
                f"k(x, x) must not be negative nor 0 for all rows, got {diag.min():g} to "
                f"{diag.max():g}: scale the rows"
            )
        if (
            bias == "free"
            and len(np.unique(np.sign(np.asarray(data.y)[np.asarray(data.weight) > 0]))) < 2
        ):
            raise ValueError(
                "bias='free' needs rows of both classes: with one class the level has no bound"
            )

    return Solver(
        init,
        update,
        model,
        uniform(),
        "all",
        targets="labels",
        validate=check,
        layout=kernel.layout,
    )
