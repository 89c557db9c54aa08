"""Checks of the arguments of loops, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from .._node import cast, in_range, refuse_class, takes
from ..checks import check_choice, check_limit, check_positive, has_values, is_class_number, shown
from ..numerics import in_transformation, is_traced, shards
from ..samplers import uniform
from ..types import (
    Batch,
    RunState,
    Sampler,
    Solver,
)


def _is_known(*trees: object) -> bool:
    """Whether values are known on this host, and no call is being traced."""
    return not is_traced(*trees) and has_values(*trees)


def check_solver(solver: Solver, name: str = "solver") -> Solver:
    """The solver; raise unless it is a single one."""
    Solver.admit(name, solver).refuse_batch()
    return solver


def adapted(solver: Any, sampler: Any, tol: Any, dtype: Any) -> tuple[Solver, Sampler, Any]:
    """The solver that stops its updates at `tol`, if it does, the sampler, and the tolerance.

    That is nan for none. A solver with a tolerance of its own has that, even if all steps are made.

    Raises:
        TypeError: it is no solver.
    """
    own = check_solver(solver).iterates_to
    check_limit("tol", tol, signed=True)  # a probe may have any sign
    if tol is None:
        tol = own if solver.residual_of == "data" else None
    elif own is not None and takes(solver, "tol"):
        solver = solver.replace(tol=tol)
    known = tol if isinstance(tol, jax.core.Tracer) else float(np.nan if tol is None else tol)
    return cast((solver, sampler or solver.sampler or uniform(1), known), dtype)


def check_arguments(
    solver: Any, key: object, state: object, sampler: object, probe: Any, tol: Any, *how: object
) -> None:
    """Raise for arguments of `fit` that are not valid, before anything is worked out.

    These are arguments of another type, numbers out of range, and a tolerance without a criterion.
    The last ones are seconds, progress and on_interrupt.
    """
    seconds, progress, on_interrupt = how
    if state is not None and not isinstance(state, RunState):
        raise TypeError(
            f"state must be the RunState of an earlier call, got {type(state).__name__}: pass "
            "run.state"
        )
    if key is None and state is None:
        raise ValueError("fit needs a key, such as jax.random.key(0), or a state to go on from")
    if sampler is not None and not isinstance(sampler, Sampler):
        raise TypeError(
            f"sampler must be one such as jaxsvm.samplers.epochs(64), got {shown(sampler)}"
        )
    if tol is not None and solver.residual_of != "data" and probe is None:
        raise ValueError(
            "tol has nothing to stop on: the residual of this solver is that of single rows; "
            "give a probe to stop on (probe=jaxsvm.error_on(held_out)), or steps"
        )
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")
    check_key(key)
    check_probe(probe)
    # 0: of rows that were not read
    is_free = isinstance(solver.iterates_to, float) and solver.iterates_to == 0
    if tol is not None and solver.iterates_to is not None and not is_free:
        check_positive(tol=tol)
    check_limit("seconds", seconds)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))


def check_rows(solver: Solver, sampler: Sampler, data: Batch) -> Any:
    """Whether traced numbers, targets and weights are such as can be, () bool; None: known.

    Args:
        solver: as `fit` keeps it.
        sampler: draws the rows.
        data: the training rows.

    Raises:
        ValueError, TypeError: targets, kernels or draws that the solver does not take.
    """
    if sampler.combine is None:
        check_targets(solver, data)
    else:
        check_combined(solver, sampler, data)
    check_draws(solver, sampler, data.y.shape[0])
    if in_transformation() and not solver.has_map:
        solver.refuse_open(data.x)
    y, weight, wanted = data.y, data.weight, solver.targets
    held = in_range((solver, sampler)) if is_traced(solver, sampler, y, weight) else None
    if held is None or not is_traced(y, weight):
        return held
    total = jnp.sum(jnp.where(weight >= 0, weight, jnp.nan))
    right = held & (total > 0) & (total < jnp.inf)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    if wanted in (None, "real") or sampler.combine is not None:
        return right
    is_class = abs(y) == 1 if wanted == "labels" else (y >= 0) & (y < wanted) & (y == jnp.floor(y))
    weight = weight if weight.ndim == y.ndim else weight[:, None]
    return right & jnp.all(is_class | ~(weight > 0))


def check_key(key: object) -> None:
    """Raise unless this is a single key or None."""
    if key is not None:
        checks.key("key", key)


def check_targets(solver: Solver, data: Batch) -> None:
    """Raise for known targets and values that the solver cannot process."""
    if _is_known(data):
        solver.validate(data)
    several = isinstance(solver.targets, tuple)
    wanted, columns = solver.targets if several else (solver.targets, None)
    k = data.y.shape[1] if data.y.ndim > 1 else None
    if columns is None and k is not None:
        raise ValueError(
            f"the rows have {k} targets each, and this solver takes one: wrap it, "
            f"jaxsvm.multi_output(solver, outputs={k})"
        )
    if columns != k:
        raise ValueError(
            f"this solver takes {columns} targets for each row, "
            + (f"the rows have {k}: say outputs={k}" if k else "and the rows have one: make them ")
            + ("" if k else "of y (n, k), or leave multi_output out")
        )
    if wanted in (None, "real") or not _is_known(data.y, data.weight):
        return
    y, weight = np.asarray(data.y), np.asarray(data.weight)
    live = weight > 0 if weight.ndim == y.ndim else (weight > 0)[:, None]
    are_right = abs(y) == 1 if wanted == "labels" else is_class_number(y, wanted)
    if (are_right | ~live).all():
        return
    values = np.unique(y[np.broadcast_to(live, y.shape)].astype(np.float64))
    shown = ", ".join(f"{v:g}" for v in values[:5]) + (", ..." if len(values) > 5 else "")
    if wanted == "labels":
        raise ValueError(
            f"this solver takes labels -1 and +1, the data hold {shown}: for class numbers wrap "
            "it, jaxsvm.one_vs_rest(solver, classes=k), for real targets choose another loss"
        )
    raise ValueError(
        f"this solver takes class numbers 0 .. {wanted - 1}, the data hold {shown}: number "
        "them, or say classes=k"
    )


def check_draws(solver: Solver, sampler: Sampler, n: int) -> None:
    """Raise if steps would take rows from one device to another."""
    k, blocks = shards(n), sampler.blocks
    if k == 1 or solver.needs_all_rows or sampler.full_batch or blocks % k == n % blocks == 0:
        return
    if blocks % k == 0:
        raise ValueError(
            f"the {n} rows do not divide into the {blocks} blocks of {sampler}: lay them with "
            f"jaxsvm.shard(data, blocks={blocks})"
        )
    if blocks > 1:
        raise ValueError(
            f"the rows lie on {k} devices, and {sampler} has {blocks} blocks: take a multiple "
            f"of {k} blocks"
        )
    raise ValueError(
        f"the rows lie on {k} devices, and {sampler} draws from all of them at once: draw in "
        f"blocks, sampler=strata({sampler}, blocks={k}) of jaxsvm.samplers"
    )


def check_combined(solver: Solver, sampler: Sampler, data: Batch) -> None:
    """Raise unless the solver can read what the sampler combines rows to.

    Raises:
        ValueError: a solver that reads all rows, has a variable for each row or takes class
            numbers; targets from which the sampler cannot draw.
    """
    how = "take one that reads drawn rows, such as jaxsvm.pegasos(lam)"
    if solver.needs_all_rows:
        raise ValueError(
            "the sampler gives differences of rows, which a solver that reads all rows does not "
            f"see: {how}"
        )
    if isinstance(solver.targets, int):
        raise ValueError(f"the sampler gives pairs, and this solver takes class numbers: {how}")
    if any(solver.row_entries(data)):
        raise ValueError(
            "the sampler gives differences of rows, and this solver has a variable for each row: "
            f"{how}"
        )
    if _is_known(data):
        solver.validate(data)
    if _is_known(data.y, data.weight, data.query):
        sampler.validate(data)


def check_probe(probe: object) -> None:
    """Raise unless this is a function of a model or None."""
    refuse_class("probe", probe)
    if probe is not None and (not callable(probe) or isinstance(probe, type)):
        raise TypeError(
            "probe must be a function of the model, such as jaxsvm.error_on(test), "
            f"got {shown(probe)}"
        )


def named_parameters(what: str, fn: Callable, names: Iterable[str]) -> dict[str, Parameter]:
    """The parameters of a function that may be given by name.

    Raises:
        ValueError: one of `names` is none of them.
    """
    kinds = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    parameters = signature(fn).parameters
    known = {name: p for name, p in parameters.items() if p.kind in kinds}
    other = [name for name in names if name not in known]
    if other and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise ValueError(
            f"{what} has no parameter named {other[0]}, only {', '.join(known)}: name the axes as "
            f"{what} does"
        )
    return known


def whole_number(name: str, value: object, least: int) -> int:
    """An integer of at least `least`; floats with an integral value are converted."""
    value = int(value) if isinstance(value, float | np.floating) and value.is_integer() else value
    return checks.integer(name, value, least, 2**63 - 1)


def whole(name: str, value: object, least: int) -> int | None:
    """As `whole_number`; None as it is."""
    return None if value is None else whole_number(name, value, least)
