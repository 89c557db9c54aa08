"""Which results of a function depend on one of its arguments."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.extend.core import Literal

from ..types import State


def depends_on(fn: Callable, state: State, *rest: object) -> tuple[bool, ...]:
    """For each leaf of `fn(state, *rest)`, whether it is computed from `state`."""
    jaxpr = jax.make_jaxpr(lambda state: jax.tree.leaves(fn(state, *rest)))(state).jaxpr
    dependent = set(jaxpr.invars)
    is_dependent = lambda v: not isinstance(v, Literal) and v in dependent
    for equation in jaxpr.eqns:
        if any(map(is_dependent, equation.invars)):
            dependent.update(equation.outvars)
    return tuple(map(is_dependent, jaxpr.outvars))


def check_open(function: Callable, parameters: object) -> None:
    """Raise if `function(parameters)` depends on traced values that are not among `parameters`.

    A rule for derivatives with respect to `parameters` would lose those of the other values.
    """
    consts = jax.make_jaxpr(function)(parameters).consts
    if any(isinstance(value, jax.core.Tracer) for value in consts):
        raise ValueError(
            "a kernel or loss reads traced values that it is not passed, such as those that its "
            "function closes over, so that their derivatives would be lost: pass them by "
            "kernels.custom(fn, params), losses.custom(..., params) or "
            "jax.tree_util.Partial(fn, values)"
        )
