"""Checks of the arguments of loops, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..checks import has_values, is_class_number, shown
from ..kernels import as_kernel, check_custom, holds_custom
from ..numerics import is_traced, shards
from ..recipe import Recipe, arguments_named, fields_of, is_kind, refuse_factory
from ..types import Batch, Curve, Hooks, RunState, Sampler, Solver, State, same_structure
from .identity import differs, names_of, with_state


def _is_known(*trees: Any) -> bool:
    """Whether values are known on this host, and no call is being traced."""
    return not is_traced(*trees) and has_values(*trees)


def check_solver(solver: Any) -> Solver:
    """The fields of a solver; raise unless it is one, with known numbers in their range."""
    refuse_factory("solver", solver)
    if not is_kind(solver, Solver):
        raise TypeError(
            f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {shown(solver)}"
        )
    return fields_of(solver)


def check_key(key: Any) -> None:
    """Raise unless this is a single key or None."""
    if key is not None:
        checks.key("key", key)


def check_targets(solver: Any, data: Batch) -> None:
    """Raise for known targets and values that the solver cannot process."""
    validate = solver.hooks.validate
    if validate is not None and _is_known(data):
        validate(data)
    wanted = solver.targets
    _check_columns(wanted, data)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    if wanted in (None, "real") or not _is_known(data.y, data.weight):
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


def may_be_targets(wanted: Any, data: Batch) -> Any:
    """Whether traced targets are such as a solver takes, () bool: what `check_targets` checks."""
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    if wanted in (None, "real"):
        return True
    y, top = data.y, wanted if wanted != "labels" else 1
    is_class = (y >= 0) & (y < top) & (y == jnp.floor(y))
    is_right = (y == 1) | (y == -1) if wanted == "labels" else is_class
    weight = data.weight if data.weight.ndim == y.ndim else data.weight[:, None]
    return jnp.all(is_right | ~(weight > 0))


def check_kernels(solver: Any, data: Batch) -> None:
    """Raise for kernels of the user that are none on known rows, before a feature map."""
    kernels = [kernel for kernel in arguments_named("kernel", solver) if holds_custom(kernel)]
    if not kernels or not _is_known(solver, data):
        return
    if fields_of(solver).prepare is Hooks().prepare:
        for kernel in kernels:
            check_custom(as_kernel(kernel), data)


def check_drawn(sampler: Sampler, run: RunState, curve: Curve, first_step: int, n: int) -> None:
    """Raise if the sampler drew rows that do not exist in a chunk whose loss is not a number."""
    chunks = np.flatnonzero(np.isnan(np.asarray(curve.loss)))
    if sampler.full_batch or not chunks.size:
        return
    start, end = np.append(first_step, np.asarray(curve.step))[chunks[0] :][:2]
    index = np.asarray(sampler.draw(run.sampler, jnp.int32(start), int(end - start)))
    wrong = index[(index < -1) | (index >= n)]
    if wrong.size:
        raise ValueError(
            f"the sampler drew row {wrong[0]}, expected row numbers from 0 to {n - 1}, or -1 for "
            "padding: mend its function draw"
        )


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
    if sampler.validate is not None and _is_known(data.y, data.weight, data.query):
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


def check_origin(solver: Any, run: Any, new: Any, has_sums: Callable) -> State:
    """The state of a solver, unless it holds sums over other rows, or was changed.

    Args:
        solver: as an argument of a compiled function.
        run: the `RunState` or `StreamState` with the state.
        new: the origin of the run which is to go on.
        has_sums: fields of the solver -> whether the state holds sums over rows, or their numbers.

    Raises:
        ValueError: it does. Inside transformations its numbers become nan instead.
    """
    state = run.solver
    different = None if run.origin is None else differs(run.origin, with_state(new, state))
    if different is None or not (is_traced(different) or np.any(different)):
        return state
    fields = fields_of(solver)
    has = has_sums(fields)
    sums_of = getattr(state, "sums_of", ("rows", "numbers") if has else ())
    of_numbers, of_rows = "numbers" in sums_of, "rows" in sums_of
    # rows, targets, weights, space, numbers, names of classes and of columns, state
    always = [True, True]
    different = different & np.array([of_rows, of_rows, has, True, of_numbers, *always, of_rows])
    if hasattr(state, "restart"):  # goes on with other numbers, and from another place
        other_numbers, changed = different[4], different[7]
        start, is_other = state.restart(), other_numbers | changed
        state = jax.tree.map(lambda a, b: jnp.where(is_other, a, b), start, state)
        different = different & np.array([True, True, True, True, False, True, True, False])
    if is_traced(different):
        factor = jnp.where(jnp.any(different), jnp.nan, 1)
        is_real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
        return jax.tree.map(lambda a: a * factor.astype(a.dtype) if is_real(a) else a, state)
    if np.any(different):
        others = names_of(different)
        problem = (
            f"comes from a run with other {others}: go on with what it was made with"
            if others
            else "was changed after its run: go on from it as it was"
        )
        raise ValueError(
            f"state {problem}, or begin a new run with key= (from coefficients with start=, where "
            "the solver takes them)"
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
