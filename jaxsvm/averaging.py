"""Averages of iterates, as the last step of an optax chain or as a wrapper of a solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .checks import integer, shown
from .models import Linear
from .numerics import accum_dtype, running_mean
from .recipe import register, replace, solver
from .types import Array, Solver

__all__ = ["average_iterates", "averaged", "averaged_params"]


@register("AverageState")
class AverageState(NamedTuple):
    """The running mean; before `start` it equals the iterate."""

    mean: Any  # as the parameters
    compensation: Any  # as the parameters, rounding errors of the mean, whose late changes are below its last place
    count: Array  # ()  int32, number of iterates
    total: Array | None  # ()  sum of the weights so far; None for equal weights


def _mean_init(params: Any, weights: Callable | None) -> AverageState:
    total = None if weights is None else jnp.zeros((), accum_dtype(jax.tree.leaves(params)[0]))
    return AverageState(params, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32), total)


def _mean_step(state: AverageState, params: Any, start: int, weights: Callable | None) -> AverageState:
    """mean += rho (params - mean), rho = the newest weight / the sum of all weights from `start` on."""
    since = state.count - start
    if weights is None:
        rho, total = 1 / (jnp.maximum(since, 0) + 1).astype(accum_dtype(jax.tree.leaves(params)[0])), None
    else:
        weight = jnp.asarray(weights(jnp.maximum(since, 0).astype(state.total.dtype)), state.total.dtype)
        total = jnp.where(since > 0, state.total, jnp.zeros_like(state.total)) + weight
        rho = weight / total

    before = jax.tree.map(lambda mean, newest: jnp.where(since > 0, mean, newest), state.mean, params)
    compensation = jax.tree.map(
        lambda compensation: jnp.where(since > 0, compensation, jnp.zeros_like(compensation)), state.compensation
    )
    mean, compensation = running_mean(before, compensation, params, rho)
    return AverageState(mean, compensation, optax.safe_increment(state.count), total)


def _check_average(start: int, weights: Callable | None) -> None:
    integer("start", start, 0)
    if weights is not None and not callable(weights):
        raise TypeError(f"weights must be a function of the count since start, or None, got {shown(weights)}")


def average_iterates(start: int = 0, weights: Callable[[Array], Array] | None = None) -> optax.GradientTransformation:
    """A transformation that averages the parameters after each update and leaves updates unchanged; the last of a chain.

    mean_t = sum_s weight_s params_s / sum_s weight_s over the iterates s = start, ..., t (after their update).
    Read it with `averaged_params`. (`optax.ema` averages updates, not parameters.)

    Args:
        start: number of initial iterates to skip, >= 0; until then the average is the iterate.
        weights: count since start (0.0, 1.0, ...) -> weight, > 0; None: equal weights. `lambda t: t + 1` favours late
            iterates; a step size schedule is the weighting of robust stochastic approximation.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> tx = optax.chain(optax.sgd(1.0), average_iterates())
        >>> w = jnp.zeros(()); state = tx.init(w)
        >>> for _ in range(3):
        ...     updates, state = tx.update(-jnp.ones(()), state, w); w = optax.apply_updates(w, updates)
        >>> float(w), float(averaged_params(state, w))
        (3.0, 2.0)
    """
    _check_average(start, weights)

    def init(params):
        return _mean_init(params, weights)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("average_iterates needs the parameters: call update(updates, state, params)")
        return updates, _mean_step(state, optax.apply_updates(params, updates), start, weights)

    return optax.GradientTransformation(init, update)


def averaged_params(opt_state: Any, params: Any) -> Any:
    """The average by `average_iterates` anywhere in `opt_state`; `params` if there is none."""
    is_average = lambda node: isinstance(node, AverageState)
    averages = [node for node in jax.tree.leaves(opt_state, is_leaf=is_average) if is_average(node)]
    return averages[-1].mean if averages else params


@register("AveragedState")
class AveragedState(NamedTuple):
    """An inner solver and the average of its models."""

    inner: Any
    average: AverageState


@solver
def averaged(inner: Solver, *, start: int = 0, weights: Callable[[Array], Array] | None = None) -> Solver:
    """A solver whose model is the average of the linear models of `inner`, instead of the last.

    mean_t = sum_s weight_s w_s / sum_s weight_s over the iterates s = start, ..., t; the bias likewise.

    Args:
        inner: a solver whose model is `Linear`; inside a feature map write `on_features(phi, averaged(s))`.
        start: number of initial steps to skip, >= 0.
        weights: step since start (0.0, 1.0, ...) -> weight, > 0; None: equal weights.

    Raises:
        TypeError: if the model of `inner` is not `Linear`.

    Example:
        >>> import jaxsvm
        >>> averaged(jaxsvm.pegasos(0.01), weights=lambda t: t + 1).reads
        'rows'

    Reference: B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, SIAM J. Control Optim.
        30, 1992; weights growing with t: S. Lacoste-Julien, M. Schmidt, F. Bach, arXiv 1212.2002.
    """
    _check_average(start, weights)

    def model(state, data=None):
        inner_model = inner.model(state, data)
        if not isinstance(inner_model, Linear):
            raise TypeError(f"averaged takes solvers whose model is Linear, got {type(inner_model).__name__}")
        return inner_model

    def init(key, data):
        state = inner.init(key, data)
        return AveragedState(state, _mean_init(model(state, data), weights))

    def update(state, batch):
        inner_state, info = inner.update(state.inner, batch)
        return AveragedState(inner_state, _mean_step(state.average, model(inner_state), start, weights)), info

    def wrapper(new_inner):
        return averaged(new_inner, start=start, weights=weights)

    return replace(inner, wrapper, init=init, update=update, model=lambda state, data=None: state.average.mean)
