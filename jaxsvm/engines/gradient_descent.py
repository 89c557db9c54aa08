"""Stochastic subgradient methods on linear weights: a loss with an optax chain."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from .. import projections
from .._node import node, register, static
from ..averaging import averaged_params
from ..checks import brief
from ..models import Linear
from ..numerics import accum_dtype, count, dot
from ..samplers import uniform
from ..schedules import inverse_sqrt, inverse_time
from ..types import Array, Batch, Info, Loss, Scalar, SparseRows, State
from .base import LossSolver


@register("Weights")
class Weights(NamedTuple):
    """The parameters of a linear model; `b` is None where there is no bias."""

    w: Array  # (d,)
    b: Array | None  # ()


@register("GradientState")
class GradientState(NamedTuple):
    """Parameters, the state of the optax chain, and the data statistics that configure it."""

    params: Weights
    opt: Any
    numbers: Any  # statistics of the data, computed once; () if the chain needs none


def regularised(bias: str) -> Weights:
    """The mask, for optax, of the parameters in the norm of the objective."""
    mask: Any = True, {"none": None, "feature": True, "free": False}[bias]
    return Weights(*mask)


def ball(radius: Scalar, bias: str) -> Callable[[Weights], Weights]:
    """The projection of the regularised parameters onto a ball."""
    if bias != "feature":
        return projections.product({"w": projections.ball(radius)})

    def project(params):
        factor = projections.shorten(dot(params.w, params.w) + params.b**2, radius)
        return jax.tree.map(lambda p: p * factor, params)

    return project


def descent(
    lam: Scalar, step: optax.GradientTransformation, bias: str, bias_step: object = None
) -> optax.GradientTransformation:
    """The optax chain of a descent step on lam/2 |regularised parameters|^2 + loss.

    `bias_step`, if given, is for the bias.
    """
    if bias != "none" and bias_step is not None:
        labels: Any = "w", "b"
        step = optax.partition({"w": step, "b": bias_step}, Weights(*labels))
    mask = regularised(bias) if bias == "free" else None
    return optax.chain(optax.add_decayed_weights(lam, mask=mask), step)


def pegasos_steps(
    lam: float, bias: str, scale: Callable, project: bool = True, offset: float = 0.0
) -> optax.GradientTransformation:
    """The chain of steps 1/(lam (t + offset)), in the ball of radius 1/sqrt(lam) if `project`.

    A free bias has steps 1/sqrt(t). `scale` makes a step of a schedule.
    """
    bias_step = scale(inverse_sqrt(1.0)) if bias == "free" else None
    tx = descent(lam, scale(inverse_time(1 / lam, offset)), bias, bias_step=bias_step)
    return optax.chain(tx, projections.keep(ball(1 / jnp.sqrt(lam), bias))) if project else tx


def violation(grads: Weights, params: Weights, slope: Array, batch: Batch) -> Array:
    """The mean absolute slope of the loss over the batch.

    For the hinge, it is the fraction of rows that violate their margin.
    """
    return jnp.sum(batch.weight * jnp.abs(slope)) / rows_in(batch)


def rows_in(batch: Batch) -> Array:
    """The number of rows that are not padding, at least 1."""
    return jnp.maximum(jnp.sum((batch.weight > 0).astype(batch.weight.dtype)), 1)


def info_of(
    loss: Loss, score: Array, batch: Batch, size: Array, residual: Array, columns: int
) -> Info:
    """The information of a step of linear weights on `size` rows of these scores."""
    value = jnp.sum(batch.weight * loss.value(score, batch.y)) / size
    support, evals = jnp.full((), columns, jnp.int32), count(batch.weight > 0)
    return Info(value, residual, jnp.zeros_like(score), batch.index, support, evals)


@contextlib.contextmanager
def calling_a_chain() -> Iterator[None]:
    """Raise TypeError with one sentence for the errors of what is no chain of gradients alone."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            "tx must be a chain of gradients alone, and this one is none or needs more "
            f"({brief(error)}): take one such as optax.sgd(0.1), or jaxsvm.newton(lam) for an "
            "exact solution"
        ) from error


class GradientSolver(LossSolver):
    """Minimise a regularised mean loss of linear scores with the optax chain of a subclass.

        f_i = <w, x_i> + b;   g = sum_i weight_i slope(f_i, y_i) (x_i, 1) / count(weight > 0);
        (w, b) += chain(g)

    The regulariser is part of the chain. A chain with extra arguments receives `active`, whether
    any row of the batch has a nonzero slope. With `average_iterates` in it, the model is the
    average.
    """

    loss: Loss
    bias = "none"  # or "feature", a weight on a constant feature 1, or "free"
    sampler: Any = uniform(1)
    residual_of = "batch"

    def chain(self, stats: object) -> optax.GradientTransformation:
        """The chain, for the statistics of the rows."""
        raise NotImplementedError

    def stats(self, data: Batch) -> State:
        """Numbers of the rows (norms, bounds), stored in the state, that configure the chain."""
        return ()

    @property
    def sparse_steps(self) -> Any:
        """The same steps for sparse rows at less cost, as `ScaledSteps`; None: there are none."""
        return None

    def residual(self, grads: Weights, params: Weights, slope: Array, batch: Batch) -> Array:
        """The stopping criterion."""
        return violation(grads, params, slope, batch)

    def init(self, key: Array, data: Batch) -> State:
        if self.sparse_steps is not None and isinstance(data.x, SparseRows):
            return self.sparse_steps.init(data)
        dtype, stats = accum_dtype(data.x), self.stats(data)
        b = None if self.bias == "none" else jnp.zeros((), dtype)
        params = Weights(jnp.zeros(data.x.shape[-1], dtype), b)
        with calling_a_chain():
            return GradientState(params, self.chain(stats).init(params), stats)

    def update(self, state: State, batch: Batch) -> tuple[Any, Info]:
        if not isinstance(state, GradientState):
            return self.sparse_steps.update(state, batch)
        w, b = state.params
        chex.assert_shape(batch.x, (*batch.y.shape, *w.shape))
        score = dot(batch.x, w) if b is None else dot(batch.x, w) + b
        slope, size = self.loss.slope(score, batch.y), rows_in(batch)
        rate = batch.weight * slope / size
        grads = Weights(dot(rate, batch.x), None if b is None else jnp.sum(rate))
        with calling_a_chain():
            chain = optax.with_extra_args_support(self.chain(state.numbers))
            step = functools.partial(chain.update, grads, state.opt, state.params)
            try:
                updates, opt = step(active=jnp.any(rate != 0))
            except TypeError as error:
                if "argument 'active'" not in str(error):
                    raise
                updates, opt = step()  # as one with arguments of its own may take no others
            params = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), state.params, updates)
        residual = self.residual(grads, state.params, slope, batch)
        info = info_of(self.loss, score, batch, size, residual, w.shape[0])
        return GradientState(params, opt, state.numbers), info

    def model(self, state: State, data: Batch | None = None) -> Linear:
        if not isinstance(state, GradientState):
            return self.sparse_steps.model(state)
        w, b = averaged_params(state.opt, state.params)
        return Linear(w, jnp.zeros((), w.dtype) if b is None else b, self.bias)


@node
class gradient(GradientSolver):
    """Minimise a regularised mean loss of linear scores with an optax chain.

        f_i = <w, x_i> + b;   g = sum_i weight_i slope(f_i, y_i) (x_i, 1) / count(weight > 0);
        (w, b) += tx(g)

    The regulariser is part of the chain (`optax.add_decayed_weights`). A chain with extra arguments
    receives `active`, whether any row of the batch has a nonzero slope.

    Args:
        loss: of scores.
        tx: the chain; with `average_iterates` in it, the model is the average. With `data_stats`, a
            function of its result that returns the chain.
        bias: "none", "feature" (a weight on a constant feature 1) or "free"; the chain decides
            whether it is regularised, see `regularised`.
        data_stats: data -> a pytree of numbers (norms, bounds), stored in the state, that configure
            the chain.
        sampler: the default sampler; None: one uniform row per step.
        residual: (gradient of the loss, parameters, slopes (b,), batch) -> the stopping criterion.
        residual_of: "batch" or "data", the rows that `residual` measures.

    Returns:
        A solver with a `Linear` model.

    Raises:
        TypeError: in `init` or `update`, what is no chain, or one that needs more than gradients,
            such as `optax.lbfgs`.
    """

    loss: Loss
    tx: Any = static()
    _: KW_ONLY
    bias: Literal["none", "feature", "free"] = "none"
    data_stats: Callable | None = None
    sampler: Any = uniform(1)
    residual: Callable = violation
    residual_of: Literal["batch", "data"] = "batch"

    def chain(self, stats: object) -> optax.GradientTransformation:
        return self.tx if self.data_stats is None else self.tx(stats)

    def stats(self, data: Batch) -> State:
        return () if self.data_stats is None else self.data_stats(data)
