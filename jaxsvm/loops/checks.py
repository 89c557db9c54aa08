"""Checks of the arguments of loops, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..checks import calling, is_class_number, is_numeric, is_remote, own_values, shown
from ..kernels import as_kernel, check_custom, holds_custom
from ..numerics import is_traced, shards
from ..recipe import (
    Recipe,
    arguments_named,
    check_choice,
    fields_of,
    is_kind,
    refuse_factory,
)
from ..types import (
    Array,
    Batch,
    Curve,
    Hooks,
    RunState,
    Sampler,
    Solver,
    State,
    check_weights,
    same_structure,
)
from .identity import NAMES


def check_solver(solver: Any) -> Solver:
    """The fields of a solver; raise unless it is one, with known numbers in their range."""
    refuse_factory("solver", solver)
    if not is_kind(solver, Solver):
        raise TypeError(
            f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {shown(solver)}"
        )
    return fields_of(solver)


def check_arguments(
    solver: Any,
    data: Any,
    key: Any,
    state: Any,
    sampler: Any,
    probe: Any,
    tol: Any,
    seconds: Any,
    progress: Any,
    on_interrupt: Any,
) -> None:
    """Raise for arguments of `fit` that are not valid, before anything is worked out.

    These are arguments of another type, numbers out of range, and a tolerance without a criterion.
    """
    if not isinstance(data, Batch):
        several = isinstance(data, tuple) and data and all(isinstance(part, Batch) for part in data)
        made = "make one with jaxsvm.dataset(x, y)"
        how = "take one of those in it, train, test = loaded" if several else made
        raise TypeError(f"data must be a Batch, got {type(data).__name__}: {how}")
    if state is not None and not isinstance(state, RunState):
        raise TypeError(
            f"state must be the RunState of an earlier call, got {type(state).__name__}: pass "
            "run.state"
        )
    if key is None and state is None:
        raise ValueError("fit needs a key, such as jax.random.key(0), or a state to go on from")
    if sampler is not None and not is_kind(sampler, Sampler):
        raise TypeError(
            f"sampler must be one such as jaxsvm.samplers.epochs(64), got {shown(sampler)}"
        )
    if tol is not None and check_solver(solver).residual_of != "data" and probe is None:
        raise ValueError(
            "tol has nothing to stop on: the residual of this solver is that of single rows; "
            "give a probe to stop on (probe=jaxsvm.error_on(held_out)), or steps"
        )
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")
    check_solver(solver)
    check_key(key)
    check_probe(probe)
    check_limit("tol", tol, signed=True)  # a probe may have any sign
    check_limit("seconds", seconds)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    check_weights("data", data)


def check_rows(solver: Any, sampler: Any, data: Batch) -> tuple[int, int | None]:
    """The rows of a step, and the steps between two updates of an adaptive sampler.

    Args:
        solver: as `fit` keeps it, as is `sampler`.
        sampler: draws the rows.
        data: the training rows.

    Raises:
        ValueError, TypeError: targets, kernels or draws that the solver does not take.
    """
    n = data.y.shape[0]
    b = whole_number("rows of the sampler", sampler.rows(n), 1)
    period = whole_number("period of the sampler", sampler.period(n), 1) if sampler.period else None
    if sampler.combine is None:
        check_targets(solver, data)
    else:
        check_combined(solver, sampler, data)
    check_draws(solver, sampler, n)
    check_kernels(solver.call, data)
    return b, period


def check_criterion(value: Any) -> None:
    """Raise unless the result of a probe is one number, which `tol` is compared with."""
    is_array = hasattr(value, "dtype") and hasattr(value, "shape")
    if not (is_array and value.shape == () and is_numeric(value.dtype)):
        came = shown(value) if is_array else type(value).__name__
        raise ValueError(
            f"the probe must give one number to compare with tol, got {came}: return one, or give "
            "steps and no tol"
        )


def draw_rows(sampler: Any, state: State, step: Any, count: int, n: int) -> Array:
    """The row numbers that the sampler draws for `count` steps, (count, rows of a step).

    Raises:
        TypeError, ValueError: its function fails, or gives other arrays.
    """
    form, shape = "(state, step, count) -> (count, b) row numbers", (count, sampler.rows(n))
    with calling("draw of the sampler", sampler.draw, form):
        index = sampler.draw(state, step, count)
    is_integer = hasattr(index, "dtype") and jnp.issubdtype(index.dtype, jnp.integer)
    if not is_integer or index.shape != shape:
        raise ValueError(
            f"draw of the sampler must give integers of shape {shape}, (count, rows of a step), "
            f"got {shown(index)}"
        )
    return index


@jax.named_scope("probe")
def probed(probe: Callable, model: Any) -> Any:
    """The result of the probe, a tree of arrays.

    Raises:
        TypeError, ValueError: the probe fails, or returns what is no array of numbers.
    """
    with calling("probe", probe, "of the model to arrays of numbers"):
        return jax.tree.map(jnp.asarray, probe(model))


def check_key(key: Any) -> None:
    """Raise unless this is a single key or None."""
    if key is not None:
        checks.key("key", key)


def check_targets(solver: Any, data: Batch) -> None:
    """Raise for known targets and values that the solver cannot process."""
    if not is_traced(data.y) and not getattr(data.y, "is_fully_addressable", True):
        data = _own_rows(data)
    validate = solver.hooks.validate
    if validate is not None and not is_traced(data):
        validate(data)
    wanted = solver.targets
    _check_columns(wanted, data)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    if wanted in (None, "real") or is_traced(data.y, data.weight):
        return
    y, weight = np.asarray(data.y), np.asarray(data.weight)
    live = weight > 0 if weight.ndim == y.ndim else (weight > 0)[:, None]
    values = np.unique(y[np.broadcast_to(live, y.shape)].astype(np.float64))
    shown = ", ".join(f"{v:g}" for v in values[:5]) + (", ..." if len(values) > 5 else "")
    if wanted == "labels" and not np.isin(values, (-1, 1)).all():
        raise ValueError(
            f"this solver takes labels -1 and +1, the data hold {shown}: for class numbers wrap "
            "it, jaxsvm.one_vs_rest(solver, classes=k), for real targets choose another loss"
        )
    if wanted != "labels" and not is_class_number(values, wanted).all():
        raise ValueError(
            f"this solver takes class numbers 0 .. {wanted - 1}, the data hold {shown}: number "
            "them, or say classes=k"
        )


def _check_columns(wanted: Any, data: Batch) -> None:
    """Raise unless the rows have as many targets as the solver takes."""
    if not isinstance(wanted, tuple):
        if data.y.ndim > 1:
            k = data.y.shape[1]
            raise ValueError(
                f"the rows have {k} targets each, and this solver takes one: wrap it, "
                f"jaxsvm.multi_output(solver, outputs={k})"
            )
        return
    if data.y.ndim < 2:
        raise ValueError(
            f"this solver takes {wanted[1]} targets for each row, and the rows have one: make them "
            "of y (n, k), or leave multi_output out"
        )
    if data.y.shape[1] != wanted[1]:
        k = data.y.shape[1]
        raise ValueError(
            f"this solver takes {wanted[1]} targets for each row, the rows have {k}: say "
            f"outputs={k}"
        )


def may_be_rows(solver: Any, sampler: Any, data: Batch) -> Any:
    """Whether traced targets and weights are such as a solver takes, () bool, as `check_rows`."""
    y, weight, wanted = data.y, data.weight, solver.targets
    total = jnp.sum(jnp.where(weight >= 0, weight, jnp.nan))
    right = (total > 0) & (total < jnp.inf)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    if wanted in (None, "real") or sampler.combine is not None:
        return right
    is_class = (y >= 0) & (y < wanted) & (y == jnp.floor(y)) if wanted != "labels" else abs(y) == 1
    weight = weight if weight.ndim == y.ndim else weight[:, None]
    return right & jnp.all(is_class | ~(weight > 0))


def check_kernels(solver: Any, data: Batch) -> None:
    """Raise for kernels of the user that are none on known rows, before a feature map."""
    kernels = [kernel for kernel in arguments_named("kernel", solver) if holds_custom(kernel)]
    if not kernels or is_traced(solver, data) or is_remote(data.y):
        return
    if fields_of(solver).prepare is Hooks().prepare:
        for kernel in kernels:
            check_custom(as_kernel(kernel), data)


def check_drawn(sampler: Any, run: RunState, curve: Curve, n: int) -> None:
    """Raise if the sampler drew rows that do not exist in a chunk whose loss is not a number."""
    wrong = np.flatnonzero(np.isnan(np.asarray(curve.loss)))
    if sampler.full_batch or not wrong.size:
        return
    end = int(curve.step[wrong[0]])
    start = int(curve.step[wrong[0] - 1]) if wrong[0] else max(0, end - 1000)
    index = np.asarray(sampler.draw(run.sampler, jnp.int32(start), end - start))
    wrong = index[(index < -1) | (index >= n)]
    if wrong.size:
        raise ValueError(
            f"the sampler drew row {wrong[0]}, expected row numbers from 0 to {n - 1}, or -1 for "
            "padding: mend its function draw"
        )


def _own_rows(data: Batch) -> Batch:
    """The targets and weights on the devices of this process, without their rows."""
    own: Any = own_values
    return data._replace(y=own(data.y), weight=own(data.weight))


def check_draws(solver: Solver, sampler: Any, n: int) -> None:
    """Raise if steps would take rows from one device to another."""
    k, draws = shards(n), fields_of(sampler)
    if k == 1 or solver.needs_all_rows or draws.full_batch:
        return
    if draws.blocks % k == 0 and n % draws.blocks == 0:
        return
    if draws.blocks % k == 0:
        raise ValueError(
            f"the {n} rows do not divide into the {draws.blocks} blocks of {sampler}: lay them "
            f"with jaxsvm.shard(data, blocks={draws.blocks})"
        )
    if draws.blocks > 1:
        raise ValueError(
            f"the rows lie on {k} devices, and {sampler} has {draws.blocks} blocks: take a "
            f"multiple of {k} blocks"
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
    if has_row_entries(solver, data):
        raise ValueError(
            "the sampler gives differences of rows, and this solver has a variable for each row: "
            f"{how}"
        )
    if sampler.validate is not None and not is_traced(data.y, data.weight, data.query):
        sampler.validate(data)


def has_row_entries(solver: Solver, data: Batch) -> bool:
    """Whether the size of the state depends on the number of rows."""
    n = data.y.shape[0]
    rows = lambda n: jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype), data)
    state = lambda n: jax.eval_shape(solver.init, jax.random.key(0), rows(n))
    sizes = [[leaf.shape for leaf in jax.tree.leaves(state(size))] for size in (n, n + 1)]
    return sizes[0] != sizes[1]


def has_sums(solver: Solver, data: Batch) -> bool:
    """Whether a state of `fit` holds sums over rows, or numbers for each of them."""
    if solver.needs_all_rows or has_row_entries(solver, data):
        return True
    return hasattr(jax.eval_shape(solver.init, jax.random.key(0), data), "sums_of")


def check_origin(run: Any, new: np.ndarray, has_sums: Callable) -> State:
    """The state of a solver, unless it holds sums over other rows, or of another kernel.

    Args:
        run: the `RunState` or `StreamState` with the state.
        new: the origin of the run which is to go on.
        has_sums: () -> whether the state holds sums over rows, or their numbers.

    Raises:
        ValueError: it does. What is traced is not compared.
    """
    state = run.solver
    if run.origin is None or is_traced(run.origin):
        return state
    old = np.asarray(run.origin)
    different = (old != new) & (old != 0) & (new != 0)
    if not different.any():
        return state
    has = has_sums()
    sums_of = getattr(state, "sums_of", ("rows", "numbers") if has else ())
    of_rows, of_numbers = "rows" in sums_of, "numbers" in sums_of
    different &= np.array([of_rows, has, True, of_numbers, True, True])
    if hasattr(state, "restart") and different[3]:  # goes on with other numbers
        state, different[3] = state.restart(), False
    if different.any():
        others = " and ".join(name for name, flag in zip(NAMES, different, strict=True) if flag)
        raise ValueError(
            f"state comes from a run with other {others}: go on with what it was made with, or "
            "begin a new run with key= (from coefficients with start=, where the solver takes them)"
        )
    return state


def check_probe(probe: Any) -> None:
    """Raise unless this is a function of a model or None."""
    refuse_factory("probe", probe)
    if probe is not None and (not callable(probe) or isinstance(probe, type | Recipe)):
        raise TypeError(
            "probe must be a function of the model, such as jaxsvm.error_on(test), "
            f"got {shown(probe)}"
        )


def check_limit(name: str, value: Any, signed: bool = False) -> None:
    """Raise unless this is a number, >= 0 unless it is `signed`.

    Infinity and None stand for no limit.
    """
    known = None if value is None else checks.number(name, value)
    if known is not None and (np.isnan(known) or (known < 0 and not signed)):
        raise ValueError(
            f"{name} must be a number{'' if signed else ' of at least 0'}, got {known:g}"
        )


def _kind(leaf: Any) -> Any:
    """The dtype of a leaf; keys of all implementations are of one kind."""
    if not hasattr(leaf, "dtype"):  # of an edited file
        return type(leaf)
    return "key" if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.dtype


def check_like(state: Any, like: Any, parts: tuple[str, ...] = ("solver", "sampler")) -> None:
    """Raise unless the fields `parts` of `state` match those of `like`.

    They match if structure, shapes and dtypes are equal.
    """
    what = {
        "solver": "another solver, or data of other shapes",
        "sampler": "another sampler, or data of other shapes",
        "pending": "batches of other rows",
    }
    for part in parts:
        actual, expected = getattr(state, part), getattr(like, part)
        shapes = [
            [(jnp.shape(leaf), _kind(leaf)) for leaf in jax.tree.leaves(tree)]
            for tree in (actual, expected)
        ]
        same = same_structure(actual, expected)
        forms = [[shape for shape, _ in tree] for tree in shapes]
        if same and forms[0] == forms[1] and shapes[0] != shapes[1]:
            old, new = next((a[1], b[1]) for a, b in zip(*shapes, strict=True) if a != b)
            raise ValueError(
                f"state holds numbers of {old}, and this run computes in {new}: go on with rows "
                "and settings (jax_enable_x64) of the precision that it was made with"
            )
        if not same or shapes[0] != shapes[1]:
            raise ValueError(
                f"state comes from {what[part]}: go on with the solver, sampler and "
                "data that it was made with"
            )


MOST_STEPS = 2**31 - 1  # the largest value of the step counter


def check_counters(state: Any, names: tuple[str, ...]) -> None:
    """Raise unless the counters of a state are integers from 0 to `MOST_STEPS`.

    Only known counters are checked.
    """
    for name in names:
        value = getattr(state, name)
        if np.shape(value) != ():
            raise ValueError(
                f"state.{name} has shape {np.shape(value)}, expected a single number: go on with "
                "several runs in jax.vmap"
            )
        known = None if is_traced(value) else np.asarray(value)
        if not jnp.issubdtype(jnp.result_type(value), jnp.integer) or (
            known is not None and not 0 <= known <= MOST_STEPS
        ):
            shown = "another type" if known is None else known
            raise ValueError(
                f"state.{name} must be a whole number from 0 to {MOST_STEPS}, got {shown}: pass "
                "run.state as it came"
            )


def check_steps(first_step: int, steps: int) -> None:
    """Raise for steps that would overflow the step counter."""
    if first_step + steps > MOST_STEPS:
        raise ValueError(
            f"the run stands at step {first_step}, {steps} more would pass {MOST_STEPS}, the last "
            "that is counted: make fewer, or begin a new run"
        )


def whole_number(name: str, value: Any, least: int) -> int:
    """An integer of at least `least`; floats with an integral value are converted."""
    value = int(value) if isinstance(value, float | np.floating) and value.is_integer() else value
    return checks.integer(name, value, least, 2**63 - 1)
