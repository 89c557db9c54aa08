"""Which results of a function depend on one of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal


def depends_on(fn: Callable, state: Any, *rest: Any) -> tuple[bool, ...]:
    """For each leaf of `fn(state, *rest)`, whether it is computed from `state`."""
    jaxpr = jax.make_jaxpr(lambda state: jax.tree.leaves(fn(state, *rest)))(state).jaxpr
    dependent = set(jaxpr.invars)
    is_dependent = lambda v: not isinstance(v, Literal) and v in dependent
    for equation in jaxpr.eqns:
        if any(map(is_dependent, equation.invars)):
            dependent.update(equation.outvars)
    return tuple(map(is_dependent, jaxpr.outvars))
