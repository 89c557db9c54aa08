"""Averages of iterates, as the last step of an optax chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ._node import register
from .checks import integer, shown
from .numerics import accum_dtype, running_mean
from .types import Array

__all__ = ["average_iterates", "averaged_params"]


@register("AverageState")
class AverageState(NamedTuple):
    """The running mean; before `start` it equals the iterate."""

    mean: Any  # as the parameters
    # as the parameters, rounding errors of the mean, whose late changes are below its last place
    compensation: Any
    count: Array  # type: ignore[assignment]  # ()  int32, number of iterates
    total: Any  # ()  sum of the weights so far; None for equal weights


def init_mean(params: object, weights: Callable | None) -> AverageState:
    """The mean before the first step: the parameters."""
    total = None if weights is None else jnp.zeros((), accum_dtype(jax.tree.leaves(params)[0]))
    mean = jax.tree.map(jnp.copy, params)  # of its own memory, so that both can be donated
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AverageState(mean, zeros, jnp.zeros((), jnp.int32), total)


def update_mean(
    state: AverageState, params: object, start: int, weights: Callable | None
) -> AverageState:
    """mean += rho (params - mean), rho = newest weight / sum of all weights from `start` on."""
    since = state.count - start
    number = jnp.maximum(since, 0)
    later = lambda a: jnp.where(since > 0, a, jnp.zeros_like(a))
    if weights is None:
        rho, total = 1 / (number + 1).astype(accum_dtype(jax.tree.leaves(params)[0])), None
    else:
        dtype = state.total.dtype
        weight = jnp.asarray(weights(number.astype(dtype)), dtype)
        total = later(state.total) + weight
        rho = weight / total
    before = jax.tree.map(lambda mean, a: jnp.where(since > 0, mean, a), state.mean, params)
    compensation = jax.tree.map(later, state.compensation)
    mean, compensation = running_mean(before, compensation, params, rho)
    return AverageState(mean, compensation, optax.safe_increment(state.count), total)


def average_iterates(
    start: int = 0, weights: Callable[[Array], Array] | None = None
) -> optax.GradientTransformation:
    """A transformation that averages the parameters after each update and leaves updates unchanged.

    It is the last of a chain.

    mean_t = sum_s weight_s params_s / sum_s weight_s over the iterates s = start, ..., t (after
    their update). Read it with `averaged_params`. (`optax.ema` averages updates, not parameters.)

    Args:
        start: number of initial iterates to skip, >= 0; until then the average is the iterate.
        weights: count since start (0.0, 1.0, ...) -> weight, > 0; None: equal weights. `lambda t: t
            + 1` favours late iterates; a step size schedule is the weighting of robust stochastic
            approximation.

    Example:
        >>> import jax.numpy as jnp, jaxsvm, optax
        >>> tx = optax.chain(optax.sgd(1.0), jaxsvm.average_iterates())
        >>> w = jnp.zeros(()); state = tx.init(w)
        >>> for _ in range(3):
        ...     updates, state = tx.update(-jnp.ones(()), state, w)
        ...     w = optax.apply_updates(w, updates)
        >>> float(w), float(jaxsvm.averaged_params(state, w))
        (3.0, 2.0)
    """
    integer("start", start, 0)
    if weights is not None and not callable(weights):
        raise TypeError(
            f"weights must be a function of the count since start, or None, got {shown(weights)}"
        )
    init = lambda params: init_mean(params, weights)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(
                "average_iterates needs the parameters: call update(updates, state, params)"
            )
        return updates, update_mean(state, optax.apply_updates(params, updates), start, weights)

    return optax.GradientTransformation(init, update)


def averaged_params(opt_state: object, params: object) -> Any:
    """The averages by `average_iterates` anywhere in `opt_state`; the rest of `params` as it is.

    Parameters that `optax.masked` or `optax.partition` keep from it are not averaged.
    """
    is_average = lambda node: isinstance(node, AverageState)
    is_masked = lambda node: isinstance(node, optax.MaskedNode)
    for node in jax.tree.leaves(opt_state, is_leaf=is_average):
        if is_average(node):
            either = lambda mean, part: part if is_masked(mean) else mean
            given = node.mean if params is None else params
            params = jax.tree.map(either, node.mean, given, is_leaf=is_masked)
    return params
