"""The average of a solver's iterates as its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from ..averaging import AverageState, check_average, init_mean, update_mean
from ..models import Linear
from ..recipe import register, replace, solver
from ..types import Array, Solver


@register("AveragedState")
class AveragedState(NamedTuple):
    """An inner solver and the average of its models."""

    inner: Any
    average: AverageState | None  # None: the inner state has its mean itself


@solver
def averaged(
    inner: Solver, *, start: int = 0, weights: Callable[[Array], Array] | None = None
) -> Solver:
    """A solver whose model is the average of the linear models of `inner`, instead of the last.

    mean_t = sum_s weight_s w_s / sum_s weight_s over the iterates s = start, ..., t; the bias
    likewise.

    Args:
        inner: a solver whose model is `Linear`; inside a feature map write `on_features(phi,
            averaged(s))`.
        start: number of initial steps to skip, >= 0.
        weights: step since start (0.0, 1.0, ...) -> weight, > 0; None: equal weights.

    Raises:
        TypeError: if the model of `inner` is not `Linear`.

    Example:
        >>> import jaxsvm
        >>> averaged(jaxsvm.pegasos(0.01), weights=lambda t: t + 1).needs_all_rows
        False

    Reference: B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, SIAM
        J. Control Optim. 30, 1992; weights growing with t: S. Lacoste-Julien, M. Schmidt, F. Bach,
        arXiv 1212.2002.
    """
    check_average(start, weights)

    def model(state, data=None):
        inner_model = inner.model(state, data)
        if not isinstance(inner_model, Linear):
            raise TypeError(
                f"averaged takes solvers whose model is Linear, got {type(inner_model).__name__}"
            )
        return inner_model

    def init(key, data):
        state = inner.init(key, data)
        if hasattr(state, "with_mean"):  # its steps change few columns of the mean, too
            return AveragedState(state.with_mean(), None)
        return AveragedState(state, init_mean(model(state, data), weights))

    def update(state, batch):
        if state.average is None:
            inner_state, info = inner.update(state.inner.weigh_next(start, weights), batch)
            return AveragedState(inner_state, None), info
        inner_state, info = inner.update(state.inner, batch)
        return AveragedState(
            inner_state, update_mean(state.average, model(inner_state), start, weights)
        ), info

    def mean_model(state, data=None):
        if state.average is not None:
            return state.average.mean
        iterate = model(state.inner, data)
        w, b = state.inner.mean_weights()
        return dataclasses.replace(iterate, w=w, b=iterate.b if b is None else b)

    return replace(inner, init=init, update=update, model=mean_model)
