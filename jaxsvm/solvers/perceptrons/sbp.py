"""The stochastic batch perceptron (SBP): algorithms 1 to 3 of Cotter, Shalev-Shwartz and Srebro."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ... import models
from ..._node import between, node, register
from ...engines.base import SpaceSolver
from ...kernels import Kernel, matvec
from ...numerics import (
    WaterFill,
    any_under_vmap,
    dot,
    gather,
    one_level,
    pairwise_sum,
    running_mean,
    sample_proportional,
    two_levels,
)
from ...projections import shorten
from ...samplers import uniform
from ...spaces import averaged, expansion
from ...spaces.kernel_expansion import ExpansionState
from ...spaces.running_mean import MeanState
from ...types import Array, Batch, Info, Model, Space

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


@node
class sbp(SpaceSolver):
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
        ValueError: nu not a single number of at least 0, another bias, bound_every not an integer
            of at least 0; from `fit` if k(x, x) is negative or 0 everywhere, and with bias="free"
            if there is one class only (no finite level).

    Differs from the paper: Newton's method finds the level from the previous one, without a sort or
        a partition. Responses are compensated sums, and |w|^2 is recomputed from them every 64
        steps. The scaling is part of the step. Example weights share the slack, sum_i weight_i xi_i
        <= nu sum_i weight_i, and p is proportional to them. The mean may be normalised; the
        authors' program does not do so.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[2.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sbp(0.0, jaxsvm.kernels.linear()), data, jax.random.key(0),
        ...     steps=20)
        >>> result.model(data.x).round(3).tolist()
        [2.0, -1.0]

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, algorithms 1 to 3; the bound: weak duality.
    """

    nu: float = between(0.0)
    kernel: Kernel
    _: KW_ONLY
    bias: Literal["none", "free"] = "none"
    normalise: bool = True
    bound_every: int | None = between(0, default=None)

    sampler = uniform()
    targets = "labels"

    @property
    def space(self) -> Space:
        """The function space of w, whose model is the mean of the functions after each step."""
        return averaged(expansion(self.kernel, unconditional=True), of="moves")

    def validate(self, data: Batch) -> None:
        """Check that kernel and rows have a finite level above that of w = 0."""
        super().validate(data)
        in_use = np.asarray(data.weight) > 0
        diag = np.asarray(self.kernel.diag(data.x))[in_use]
        if not (np.all(diag >= 0) and np.any(diag > 0)):
            raise ValueError(
                f"k(x, x) must not be negative nor 0 for all rows, got {diag.min():g} to "
                f"{diag.max():g}: scale the rows"
            )
        if self.bias == "free" and len(np.unique(np.sign(np.asarray(data.y)[in_use]))) < 2:
            raise ValueError(
                "bias='free' needs rows of both classes: with one class the level has no bound"
            )

    def init(self, key: Array, data: Batch) -> SbpState:
        s = self.space.zero(key, data)
        dtype = s.f.coef.dtype
        weight, y = jnp.array(data.weight, dtype), data.y.astype(dtype)
        diag = jnp.where(weight > 0, self.kernel.diag(data.x), 0)
        none = lambda: jnp.zeros((), dtype)  # arrays of their own, as states are donated
        return SbpState(
            s=s,
            fill=self.water_filling(0 * y, data._replace(y=y, weight=weight)),  # all margins are 0
            p=0 * y,
            compensation=0 * y,
            residual=none() + jnp.inf,
            bias_change=none(),
            square=none(),
            reach=jnp.sqrt(jnp.max(diag).astype(dtype)),
            weight=weight,
            key=jnp.array(key),
            t=jnp.zeros((), jnp.int32),
        )

    def update(self, state: SbpState, batch: Batch) -> tuple[SbpState, Info]:
        space = self.space
        (level, b, p), R, n = state.fill, state.reach, batch.y.shape[0]
        y, step = batch.y.astype(p.dtype), state.t + 1
        rows = batch._replace(y=y, weight=state.weight)
        # i ~ p, as many times as the sampler has rows; as many of each class if the bias is free.
        by_class = jnp.where(y > 0, p, 0), jnp.where(y > 0, 0, p)
        drawn = _draw(state, rows, by_class if self.bias == "free" else (p,))
        # w = w + eta mean of y_i phi(x_i);  w = w / max(1, |w|)
        eta = 1 / (R * jnp.sqrt(step.astype(y.dtype)))
        coef = eta * gather(y, drawn.index) / drawn.index.shape[0]
        square = state.square + 2 * jnp.dot(coef, space.evaluate(state.s, drawn))
        square = jnp.maximum(square + jnp.dot(coef, dot(space.gram(drawn), coef)), 0)
        factor = shorten(square, 1.0)
        s = space.add(state.s, 1 - factor, factor * coef, drawn)
        square = lax.cond(
            any_under_vmap(step % REFRESH == 0),
            lambda: jnp.dot(s.f.coef, s.f.response),
            lambda: square * factor * factor,
        )
        # The water level f(w). The initial stride of the bias: twice its last change, and above 0.
        stride = 2 * state.bias_change + 1e-3 * eta * R
        fill = self.water_filling(_margin(s.f, y), rows, (b, level, stride))
        share = 1 / step.astype(y.dtype)
        mean_p, compensation = running_mean(state.p, state.compensation, p, share)
        # The bound of the optimum, every k-th step.
        period = n if self.bound_every is None else self.bound_every
        is_bound_step = any_under_vmap(step % period == 0) if period else jnp.zeros((), bool)
        residual = lax.cond(
            is_bound_step,
            lambda: self.relative_distance(s.mean, mean_p, rows),
            lambda: state.residual,
        )
        bound_rows = jnp.where(is_bound_step, n, 0).astype(jnp.int32)
        nu, is_above = jnp.asarray(self.nu, level.dtype), level > 0
        info = Info(
            # the mean hinge at margin 1 of the iterate before the step
            loss=jnp.where(is_above, nu / jnp.where(is_above, level, 1), 1),
            residual=residual,
            progress=jnp.zeros_like(coef),
            index=drawn.index,
            support=space.support(s),
            evals=space.evals(coef, drawn) + bound_rows.astype(residual.dtype) * n,
        )
        new = state._replace(
            s=s,
            fill=fill,
            p=mean_p,
            compensation=compensation,
            residual=residual,
            bias_change=jnp.abs(fill.bias - b),
            square=square,
            t=step,
        )
        return new, info

    def model(self, state: SbpState, data: Any = None) -> Model:
        f = state.s.mean
        mean = models.expansion(self.kernel, f.coef, data, self.bias)
        rows = data._replace(y=data.y.astype(f.coef.dtype), weight=state.weight)
        scale, fill = self.rescale(f, rows)
        # to margin 1, if the level is above 0
        scale, b = (jnp.where(fill.level > 0, a / fill.level, a) for a in (scale, fill.bias))
        return dataclasses.replace(mean, coef=scale * f.coef, b=b)

    def water_filling(
        self, margin: Array, rows: Batch, start: tuple[Array, Array, Array] | None = None
    ) -> WaterFill:
        """The water filling of margins (n,): its level, the bias, and the distribution p.

        p attains the level. The search starts at `start`: the bias, the level, and the initial
        stride of the bias.
        """
        weight, volume = rows.weight, self._volume(rows.weight)
        if self.bias == "free":
            return two_levels(margin, rows.y, volume, weight=weight, start=start)
        return one_level(margin, volume, weight=weight, start=None if start is None else start[1])

    def rescale(self, f: ExpansionState, rows: Batch) -> tuple[Array, WaterFill]:
        """The scale of the mean iterate with the higher level, and the water filling there.

        The scale is 1 or that of norm 1.
        """
        margin, square = _margin(f, rows.y), jnp.dot(f.coef, f.response)
        unit_scale = lax.rsqrt(jnp.where(square > 0, square, 1))  # 1 / |mean|
        scales = jnp.stack([jnp.ones_like(unit_scale), unit_scale][: 2 if self.normalise else 1])
        fills = jax.vmap(lambda scale: self.water_filling(scale * margin, rows))(scales)
        best = jnp.argmax(fills.level)
        return scales[best], jax.tree.map(lambda a: a[best], fills)

    def relative_distance(self, f: ExpansionState, p: Array, rows: Batch) -> Array:
        """A bound of 1 - level / maximum, by weak duality.

        f <= |sum_i p_i y_i phi(x_i)| + n nu max_i p_i for every p.

        With a free bias p has sum 1/2 in each class. With weights the last term is nu sum_i
        weight_i max_i p_i / weight_i.
        """
        v, weight = p * rows.y, rows.weight
        max_p = jnp.max(jnp.where(weight > 0, p / jnp.where(weight > 0, weight, 1), 0))
        square = jnp.dot(v, matvec(self.kernel, rows.x, rows.x, v))
        bound = jnp.sqrt(jnp.maximum(square, 0)) + self._volume(weight) * max_p
        level = self.rescale(f, rows)[1].level
        return jnp.where(level > 0, jnp.maximum(1 - level / bound, 0), jnp.inf)

    def _volume(self, weight: Array) -> Array:
        """The volume of water, nu sum_i weight_i."""
        return jnp.asarray(self.nu, weight.dtype) * pairwise_sum(weight)


def _margin(f: ExpansionState, y: Array) -> Array:
    """The margins y_i f(x_i) (n,)."""
    return y * (f.response + f.compensation)


def _draw(state: SbpState, rows: Batch, distributions: tuple[Array, ...]) -> Batch:
    """The rows, with an index drawn from each distribution (n,) in sequence."""
    size = len(distributions), rows.index.shape[0]
    u = jax.random.uniform(jax.random.fold_in(state.key, state.t), size, jnp.float32)
    u = u.astype(rows.y.dtype)
    index = [sample_proportional(p, u[k]) for k, p in enumerate(distributions)]
    return rows._replace(index=jnp.concatenate(index))
