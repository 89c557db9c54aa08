"""What loops refuse before anything runs, each with a sentence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..checks import shown
from ..numerics import is_traced
from ..recipe import Recipe, refuse_factory
from ..types import Batch, Solver


def check_solver(solver: Any) -> None:
    """Refuse what is no solver, and numbers out of range while they are known."""
    refuse_factory("solver", solver)
    if not (isinstance(solver, Recipe | Solver) and hasattr(solver, "update")):
        raise TypeError(f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {shown(solver)}")


def check_key(key: Any) -> None:
    """Refuse what is not one key; None stands for none."""
    if key is not None:
        checks.key("key", key)


def check_targets(solver: Any, data: Batch) -> None:
    """Refuse targets that the solver would misread and values that it cannot take, where they are known."""
    if solver.validate is not None and not is_traced(data):
        solver.validate(data)
    wanted = solver.targets
    if wanted in (None, "real") or is_traced(data.y, data.weight):
        return
    found = np.unique(np.asarray(data.y)[np.asarray(data.weight) > 0].astype(np.float64))
    shown = ", ".join(f"{v:g}" for v in found[:5]) + (", ..." if len(found) > 5 else "")
    if wanted == "labels" and not np.isin(found, (-1, 1)).all():
        raise ValueError(
            f"this solver takes labels -1 and +1, the data hold {shown}: for class numbers wrap it, "
            "jaxsvm.one_vs_rest(solver, classes=k), for real targets choose another loss"
        )
    if wanted != "labels" and not np.isin(found, np.arange(wanted)).all():
        raise ValueError(
            f"this solver takes class numbers 0 .. {wanted - 1}, the data hold {shown}: number them, or say classes=k"
        )


def check_probe(probe: Any) -> None:
    """Refuse what cannot be called with a model; None stands for none."""
    refuse_factory("probe", probe)
    if probe is not None and (not callable(probe) or isinstance(probe, type | Recipe)):
        raise TypeError(f"probe must be a function of the model, such as jaxsvm.error_on(test), got {shown(probe)}")


def check_limit(name: str, value: Any, signed: bool = False) -> None:
    """Refuse what is no number, or one below 0 unless it is `signed`; infinity and None stand for no limit."""
    found = None if value is None else checks.number(name, value)
    if found is not None and (np.isnan(found) or (found < 0 and not signed)):
        raise ValueError(f"{name} must be a number{'' if signed else ' of at least 0'}, got {found:g}")


def check_like(state: Any, like: Any, parts: tuple[str, ...] = ("solver", "sampler")) -> None:
    """Whether a run can go on from `state`, whose parts must be as those of `like`."""
    what = {"solver": "another solver, or data of other shapes", "sampler": "another sampler", "waiting": "batches of other rows"}
    for part in parts:
        have, want = getattr(state, part), getattr(like, part)
        shapes = [[(jnp.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (have, want)]
        if jax.tree.structure(have) != jax.tree.structure(want) or shapes[0] != shapes[1]:
            raise ValueError(f"state comes from {what[part]}: go on with the solver, sampler and data that it was made with")


MOST_STEPS = 2**31 - 1  # the last step that is counted


def check_counters(state: Any, names: tuple[str, ...]) -> None:
    """Refuse states whose counters are no whole numbers of at least 0, as far as these are known."""
    for name in names:
        value = getattr(state, name)
        if np.shape(value) != ():
            raise ValueError(
                f"state.{name} has shape {np.shape(value)}, expected a single number: go on with several runs in jax.vmap"
            )
        known = None if is_traced(value) else np.asarray(value)
        if not jnp.issubdtype(jnp.result_type(value), jnp.integer) or (known is not None and not 0 <= known <= MOST_STEPS):
            shown = "another type" if known is None else known
            raise ValueError(
                f"state.{name} must be a whole number from 0 to {MOST_STEPS}, got {shown}: pass run.state as it came"
            )


def check_steps(made: int, steps: int) -> None:
    """Refuse steps that could not be counted any more."""
    if made + steps > MOST_STEPS:
        raise ValueError(
            f"the run stands at step {made}, {steps} more would pass {MOST_STEPS}, the last that is counted: make fewer, or "
            "begin a new run"
        )


def whole_number(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`, or a sentence."""
    value = int(value) if isinstance(value, float | np.floating) and value.is_integer() else value
    return checks.integer(name, value, least, 2**63 - 1)
