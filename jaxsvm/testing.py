"""`check_solver`: the promises of a solver, checked on a solver of your own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import loops, models
from ._node import node
from .data import dataset
from .types import (
    Array,
    Batch,
    Info,
    Sampler,
    Solver,
    SparseRows,
    Wrapper,
    same_structure,
    take,
)

__all__ = ["PROMISES", "check_solver"]

PROMISES = {  # name -> what a solver promises
    "fields": "the fields of a solver must hold what their comments in jaxsvm.Solver say",
    "init": "init must be a pure function of key and data that JAX can trace, and return arrays",
    "state": "update must keep structure, shapes and dtypes of the state",
    "info": "update must return a jaxsvm.Info of the shapes and dtypes that its comments say",
    "pure": "update must be a pure function of state and batch",
    "model": "model must return a callable pytree of arrays that gives each row of (n, d) its "
    "value, whatever the other rows",
    "finite": "a run on finite data must end with a finite model",
    "scan": "update must be the body of a lax.scan that gives what single steps give",
    "resume": "a run that goes on from its state must equal the run that was not cut, bit for bit",
    "jit": "a run inside jax.jit must give the model of a run outside",
    "save": "jaxsvm.models must be able to save state and model, and load the same bits",
    "padding": "rows of weight 0 in a batch are padding and must change nothing",
    "weights": "rows of weight 0 in the data must change nothing, whatever they hold",
    "numbering": "a step must not depend on how the rows are numbered",
    "dtype": "float32 rows must give a float32 run and float64 rows a float64 run, whatever the "
    "dtype of the numbers",
    "vmap": "jax.vmap over the numbers of the factory must give what single runs give",
    "gradient": "the derivative of a run in the numbers of the factory must exist and be finite",
}
TOLERANCE = 1e-3  # between programs that add in another order, after a run
STEP_TOLERANCE = 1e-5  # the same after one step
EVERY = 10  # steps of a chunk
QUICK = {"xla_backend_optimization_level": 0}  # for programs that run once


class _Subject(NamedTuple):
    """The solver under test and what it is tested on."""

    solver: Solver
    at: Callable | None  # number -> solver; None: the solver has no numbers
    numbers: tuple[float, ...]  # two
    data: Batch  # n >= 8 rows
    key: Array
    steps: int


def check_solver(
    solver: Solver,
    data: Batch | None = None,
    key: Array | None = None,
    steps: int = 25,
    *,
    factory: Callable | None = None,
    numbers: Sequence[float] = (0.1, 0.2),
    skip: Sequence[str] = (),
) -> None:
    """Check that a solver keeps the promises that loops, sweeps, files and estimators rely on.

    The promises are those of `PROMISES`, checked in that order: types of the state, purity, scan,
    resuming, files, weights of 0, dtypes, `vmap` and derivatives. Not checked: that other weights
    count as copies, and that a method finds its optimum.

    Args:
        solver: a node that is a `Solver`.
        data: n >= 8 dense rows that the solver can take; None: 24 rows of 3 columns with targets as
            `solver.targets` says.
        key: random key of the runs; None: `jax.random.key(0)`.
        steps: steps of the runs, >= 4.
        factory: number -> solver, for the promises "vmap" and "gradient". None: all single numbers
            of the solver together, as they are and times 3/4.
        numbers: two numbers for `factory`.
        skip: names of promises that are not checked, such as "gradient" for updates with a
            `lax.while_loop`.

    Raises:
        AssertionError: for the first promise that is not kept: its name, the promise and what was
            seen, in one sentence.
        ValueError: steps < 4, fewer than 8 rows, or a name in `skip` that is none.

    Example:
        >>> import jaxsvm, jaxsvm.testing
        >>> jaxsvm.testing.check_solver(jaxsvm.pegasos(0.1), skip=["gradient"])
    """
    unknown = [name for name in skip if name not in PROMISES]
    if unknown:
        raise ValueError(
            f"skip names {', '.join(map(repr, unknown))}, the promises are {', '.join(PROMISES)}"
        )
    if steps < 4:
        raise ValueError(f"steps must be at least 4, got {steps}")
    _run("fields", lambda: _check_fields(solver))
    data = _default_data(solver.targets) if data is None else _dense(data)
    if data.y.shape[0] < 8:
        raise ValueError(f"data must hold at least 8 rows, got {data.y.shape[0]}")
    key = jax.random.key(0) if key is None else key
    if factory is None and any(map(_is_single, jax.tree.leaves(solver))):
        factory, numbers = lambda scale: _scaled(solver, scale), (1.0, 0.75)
    subject = _Subject(solver, factory, tuple(numbers), data, key, steps)
    for name, check in _CHECKS.items():
        if name not in skip:
            _run(name, lambda check=check: check(subject))


class _Broken(AssertionError):
    """What was seen instead of what a promise says."""


def _run(name: str, check: Callable) -> None:
    """Run one check; whatever it raises becomes the sentence of its promise."""
    try:
        check()
        return
    except _Broken as broken:
        observation, cause = str(broken), None
    except Exception as error:
        lines = str(error).strip().splitlines()
        observation, cause = (
            f"it raised {type(error).__name__}: {lines[0] if lines else 'without a message'}",
            error,
        )
    raise AssertionError(f"{name}: {PROMISES[name]}, but {observation}") from cause


def _require(holds: bool, observation: str) -> None:
    if not holds:
        raise _Broken(observation)


# What solvers are tested on


def _default_data(targets: Any) -> Batch:
    """24 noisy rows of norm at most 1, with targets of the kind."""
    random = np.random.default_rng(7)
    x = random.normal(size=(24, 3))
    x /= np.max(np.linalg.norm(x, axis=1))
    score = x @ np.array([2.0, -1.0, 0.5]) + 0.6 * random.normal(size=24) + 0.3
    if targets == "real":
        return dataset(x.astype(np.float32), score, task="regression")
    labelled = dataset(x.astype(np.float32), np.where(score > 0, 1, -1))
    if targets in (None, "labels"):
        return labelled
    classes = np.argsort(np.argsort(score)) * targets // 24
    return labelled._replace(y=jnp.asarray(classes, labelled.y.dtype))


def _dense(data: Batch) -> Batch:
    return data._replace(x=data.x.toarray()) if isinstance(data.x, SparseRows) else data


def _is_single(number: Any) -> bool:
    return np.shape(number) == () and jnp.issubdtype(jnp.result_type(number), jnp.floating)


def _scaled(solver: Solver, scale: Any) -> Solver:
    """The solver with all of its single numbers times `scale`."""
    scaled = lambda a: jnp.asarray(scale).astype(jnp.result_type(a)) * a if _is_single(a) else a
    return jax.tree.map(scaled, solver)


def _batch_of(solver: Any, data: Batch, index: Any) -> Batch:
    """What `update` gets for the rows `index`."""
    index = jnp.asarray(index, jnp.int32)
    return data._replace(index=index) if solver.needs_all_rows else take(data, index)


def _draws(data: Batch, steps: int, rows: int) -> np.ndarray:
    """(steps, rows) row numbers, all different where there are as many."""
    n = data.y.shape[0]
    return (np.arange(steps * rows).reshape(steps, rows) * 5 + 3) % n


def _fit(s: _Subject, solver: Any = None, **options: Any) -> Any:
    options = {"steps": s.steps, "every": EVERY} | options
    data = options.pop("data", s.data)
    key = None if "state" in options else s.key
    solver = s.solver if solver is None else solver
    return loops.fit(solver, data, key, **options)


def _values(model: Callable, data: Batch) -> np.ndarray:
    return np.asarray(model(data.x))


# How trees are compared


def _paths(tree: Any) -> list[tuple[str, Any]]:
    """The leaves with their names."""
    return [
        (jax.tree_util.keystr(path) or "itself", leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _type(leaf: Any) -> str:
    shape = ", ".join(map(str, np.shape(leaf)))
    weak = "weakly typed " if getattr(leaf, "weak_type", False) else ""
    return f"{weak}{getattr(leaf, 'dtype', type(leaf).__name__)}[{shape}]"


def _type_difference(before: Any, after: Any) -> str | None:
    """Which leaf has another type, in words."""
    if not same_structure(before, after):
        return (
            f"its structure went from {jax.tree.structure(before)} to {jax.tree.structure(after)}"
        )
    for (name, one), (_, other) in zip(_paths(before), _paths(after), strict=True):
        if _type(one) != _type(other):
            return f"leaf {name} went from {_type(one)} to {_type(other)}"
    return None


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(
        jax.random.key_data(leaf)
        if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
        else leaf
    )


def _difference(a: Any, b: Any, tolerance: float | None = None) -> str | None:
    """Which leaf differs, in words.

    It differs in its bits, or by more than `tolerance` (absolute near 0, relative above 1).
    """
    if (changed := _type_difference(a, b)) is not None:
        return changed
    for (name, one), (_, other) in zip(_paths(a), _paths(b), strict=True):
        one, other = _numbers(one), _numbers(other)
        if one.tobytes() == other.tobytes():
            continue
        if tolerance is None or not np.allclose(
            one, other, rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            differs = ~np.isclose(
                one, other, rtol=tolerance or 0, atol=tolerance or 0, equal_nan=True
            )
            place = np.argmax(differs) if differs.any() else 0
            first, second = one.ravel()[place], other.ravel()[place]
            return f"leaf {name} holds {first:.9g} the first time and {second:.9g} the second"
    return None


def _require_close(a: np.ndarray, b: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    _require(a.shape == b.shape, f"{what} have shapes {a.shape} and {b.shape}")
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities too
    away = np.abs(np.where(same, 0, a) - np.where(same, 0, b)) / np.maximum(
        1, np.abs(np.where(same, 0, a))
    )
    _require(bool(np.all(away <= tolerance)), f"{what} differ by up to {np.max(away):.2g}")


# The promises


def _check_fields(solver: Any) -> None:
    _require(
        isinstance(solver, Solver),
        f"this is {type(solver).__name__}, no node that is a jaxsvm.Solver",
    )
    _require(
        isinstance(solver.needs_all_rows, bool),
        f"needs_all_rows is {solver.needs_all_rows!r}, neither True nor False",
    )
    scope = solver.residual_of
    _require(scope in ("data", "batch"), f"residual_of is {scope!r}, neither 'data' nor 'batch'")
    targets = solver.targets
    classes = isinstance(targets, int) and not isinstance(targets, bool) and targets >= 2
    known = (
        targets is None or (isinstance(targets, str) and targets in ("labels", "real")) or classes
    )
    _require(known, f"targets is {targets!r}, none of 'labels', 'real', a number of classes, None")
    _require(
        solver.sampler is None or isinstance(solver.sampler, Sampler),
        f"sampler is {solver.sampler!r}, no Sampler",
    )


def _check_init(s: _Subject) -> None:
    if s.solver.validate is not None:
        s.solver.validate(s.data)
    states = [s.solver.init(s.key, s.data) for _ in range(2)]
    for name, leaf in _paths(states[0]):
        _require(
            isinstance(leaf, jax.Array),
            f"leaf {name} of the state is a {type(leaf).__name__}, no jax.Array",
        )
    changed = _difference(*states)
    _require(changed is None, f"two calls with the same key and data differ: {changed}")
    traced = jax.eval_shape(s.solver.init, s.key, s.data)
    changed = _type_difference(states[0], traced)
    _require(changed is None, f"a traced call returns other types: {changed}")


def _shapes_of_step(s: _Subject, rows: int) -> tuple[Any, Any, Any]:
    """The types of a state, of the state after a step, and of the step's info."""
    state = jax.eval_shape(s.solver.init, s.key, s.data)
    result = jax.eval_shape(
        s.solver.update, state, _batch_of(s.solver, s.data, _draws(s.data, 1, rows)[0])
    )
    _require(
        isinstance(result, tuple) and len(result) == 2,
        f"update returns {type(result).__name__}, no pair (state, info)",
    )
    return state, *result


def _check_state(s: _Subject) -> None:
    for rows in (1, 3):
        state, after, _ = _shapes_of_step(s, rows)
        weak = [name for name, leaf in _paths(state) if leaf.weak_type]
        _require(
            not weak, f"leaf {', '.join(weak)} of the first state is weakly typed: give its dtype"
        )
        changed = _type_difference(state, after)
        _require(changed is None, f"after a step on {rows} rows {changed}")


def _check_info(s: _Subject) -> None:
    dtype = s.data.x.dtype
    for rows in (1, 3):
        info = _shapes_of_step(s, rows)[2]
        _require(isinstance(info, Info), f"it is a {type(info).__name__}")
        wanted: list[tuple[str, Any, Any]] = [
            ("loss", info.loss, dtype),
            ("residual", info.residual, dtype),
        ]
        wanted.append(("support", info.support, "int32"))
        real = not jnp.issubdtype(info.evals.dtype, jnp.integer)
        wanted.append(("evals", info.evals, dtype if real else "int32"))
        for name, leaf, kind in wanted:
            right = _type(leaf) == f"{jnp.dtype(kind)}[]"
            _require(right, f"{name} is {_type(leaf)} and not {jnp.dtype(kind)}[]")
        for name, leaf, kind in (
            ("index", info.index, "int32"),
            ("progress", info.progress, dtype),
        ):
            right = (
                getattr(leaf, "dtype", None) == jnp.dtype(kind)
                and np.ndim(leaf) == 1
                and not leaf.weak_type
            )
            _require(right, f"{name} is {_type(leaf)} and not a vector of {jnp.dtype(kind)}")
        same = info.index.shape == info.progress.shape
        _require(same, f"index has shape {info.index.shape} and progress {info.progress.shape}")
    n = s.data.y.shape[0]
    state = s.solver.init(s.key, s.data)
    _, info = _step(s.solver)(state, _batch_of(s.solver, s.data, _draws(s.data, 1, 3)[0]))
    index, support = np.asarray(info.index), int(info.support)
    _require(bool(np.all((index >= -1) & (index < n))), f"index holds {index.tolist()} on {n} rows")
    _require(
        support >= 0 and bool(np.asarray(info.evals) >= 0),
        f"support is {support} and evals {int(np.asarray(info.evals))}",
    )


def _step(solver: Any) -> Callable:
    """`update`, traced and compiled anew."""
    return jax.jit(lambda state, batch: solver.update(state, batch), compiler_options=QUICK)


def _check_pure(s: _Subject) -> None:
    state, batch = (
        s.solver.init(s.key, s.data),
        _batch_of(s.solver, s.data, _draws(s.data, 1, 3)[0]),
    )
    before = [_numbers(leaf).copy() for leaf in jax.tree.leaves((state, batch))]
    results = [_step(s.solver)(state, batch) for _ in range(2)]
    changed = _difference(*results)
    _require(changed is None, f"two calls with the same state and batch differ: {changed}")
    after = [_numbers(leaf) for leaf in jax.tree.leaves((state, batch))]
    unchanged = all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(before, after, strict=True)
    )
    _require(unchanged, "a call changed its arguments")


def _check_scan(s: _Subject) -> None:
    start, index = s.solver.init(s.key, s.data), _draws(s.data, 4, 3)

    def scanned(state, index):
        if s.solver.needs_all_rows:
            return lax.scan(
                lambda state, i: s.solver.update(state, s.data._replace(index=i)), state, index
            )
        return lax.scan(s.solver.update, state, jax.vmap(lambda i: take(s.data, i))(index))

    together, infos = jax.jit(scanned, compiler_options=QUICK)(start, jnp.asarray(index, jnp.int32))
    step, state, losses = _step(s.solver), start, []
    for rows in index:
        state, info = step(state, _batch_of(s.solver, s.data, rows))
        losses.append(float(info.loss))
    values = [_values(s.solver.model(end, s.data), s.data) for end in (together, state)]
    together_values, step_values = values
    _require_close(together_values, step_values, "the models after four steps")
    _require_close(
        np.asarray(infos.loss), np.asarray(losses, infos.loss.dtype), "the losses of four steps"
    )


def _check_model(s: _Subject) -> None:
    model = s.solver.model(s.solver.init(s.key, s.data), s.data)
    _require(callable(model), f"it returns a {type(model).__name__}, which cannot be called")
    model = _fit(s, steps=4).model
    for name, leaf in _paths(model):
        _require(
            hasattr(leaf, "dtype"), f"leaf {name} of the model is a {type(leaf).__name__}, no array"
        )
    n, dtype = s.data.y.shape[0], s.data.x.dtype
    value = model(s.data.x)
    _require(np.shape(value)[:1] == (n,), f"{n} rows got values of shape {np.shape(value)}")
    most = 1 if s.solver.targets in ("labels", "real") else 2
    _require(
        np.ndim(value) <= most,
        f"{n} rows with targets={s.solver.targets!r} got values of shape {np.shape(value)}",
    )
    _require(value.dtype == dtype, f"rows of {dtype} got values of {value.dtype}")
    value = np.asarray(value)
    backwards = np.asarray(model(s.data.x[::-1]))[::-1]
    _require_close(value, backwards, "the values of rows in another order", STEP_TOLERANCE)
    _require_close(
        value[:1],
        np.asarray(model(s.data.x[:1])),
        "the values of a row alone and among others",
        STEP_TOLERANCE,
    )
    _require_close(
        value,
        np.asarray(jax.jit(lambda model, x: model(x))(model, s.data.x)),
        "the values inside jax.jit",
        TOLERANCE,
    )


def _check_finite(s: _Subject) -> None:
    run = _fit(s)
    _require(run.finite, run.status)


def _check_resume(s: _Subject) -> None:
    whole = _fit(s)
    for cut in (1, s.steps // 2):
        first = _fit(s, steps=cut)
        second = _fit(s, steps=s.steps - cut, state=first.state)
        changed = _difference((whole.state, whole.model), (second.state, second.model))
        _require(changed is None, f"a run cut after {cut} of {s.steps} steps differs: {changed}")


@node
class _traced_anew(Wrapper):
    """The same solver of another class, so that its update is traced again."""

    inner: Solver


def _check_jit(s: _Subject) -> None:
    anew = s._replace(solver=_traced_anew(s.solver))
    inside = jax.jit(
        lambda data, key: _fit(anew._replace(key=key), data=data).model, compiler_options=QUICK
    )(s.data, s.key)
    _require_close(
        _values(inside, s.data), _values(_fit(s).model, s.data), "the values of the two models"
    )


def _check_save(s: _Subject) -> None:
    run = _fit(s)
    for name, thing in (("state", run.state), ("model", run.model)):
        handle, path = tempfile.mkstemp(suffix=".npz")
        os.close(handle)
        try:
            models.save(path, thing)
            changed = _difference(thing, models.load(path))
        finally:
            os.remove(path)
        _require(changed is None, f"the {name} is not the same: {changed}")


def _chooses_rows(s: _Subject, state: Any) -> bool:
    """Whether a step does not depend on the rows that are drawn for it."""
    if not s.solver.needs_all_rows:
        return False
    step = _step(s.solver)
    steps = [
        step(state, _batch_of(s.solver, s.data, rows)) for rows in ([5, 0, 1, 2], [4, 3, 6, 7])
    ]
    return _difference(*steps) is None


def _check_padding(s: _Subject) -> None:
    state = _fit(s, steps=4).state.solver
    if _chooses_rows(s, state):
        return
    padded = _batch_of(s.solver, s.data, [5, -1, 0, -1])
    if not s.solver.needs_all_rows:  # rows of weight 0 may hold anything
        empty = np.array([False, True, False, True])
        other = jnp.roll(padded.y, 1)
        padded = padded._replace(
            x=jnp.where(empty[:, None], jnp.full_like(padded.x, 50), padded.x),
            y=jnp.where(empty, other, padded.y),
        )
    one = _step(s.solver)(state, _batch_of(s.solver, s.data, [5, 0]))
    two = _step(s.solver)(state, padded)
    changed = _difference(one[0], two[0], STEP_TOLERANCE)
    _require(
        changed is None, f"a step on two rows and one on these and two of padding differ: {changed}"
    )
    _require_close(
        np.asarray(one[1].loss),
        np.asarray(two[1].loss),
        "the losses with and without padding",
        STEP_TOLERANCE,
    )


def _check_weights(s: _Subject) -> None:
    n = s.data.y.shape[0]
    absent = np.zeros(n, bool)
    absent[[0, n // 3, n - 1]] = True
    base = s.data._replace(weight=jnp.where(absent, jnp.zeros_like(s.data.weight), s.data.weight))
    x = jnp.where(absent[:, None], jnp.full_like(base.x, 9) - base.x, base.x)
    other = base._replace(x=x, y=jnp.where(absent, jnp.flip(base.y), base.y))
    first, second = (_values(_fit(s, data=data).model, s.data) for data in (base, other))
    _require_close(first, second, "the models on data whose rows of weight 0 hold other numbers")


def _check_numbering(s: _Subject) -> None:
    start = s.solver.init(s.key, s.data)
    if _chooses_rows(s, start):
        return
    n = s.data.y.shape[0]
    # row i of the renumbered data is row order[i] of the data
    order = np.roll(np.arange(n)[::-1], 3)
    place = np.argsort(order)
    renumbered = s.data._replace(x=s.data.x[order], y=s.data.y[order], weight=s.data.weight[order])
    step, values = _step(s.solver), []
    for data, number in ((s.data, np.arange(n)), (renumbered, place)):
        state = s.solver.init(s.key, data)
        for rows in _draws(data, 4, 3):
            state, _ = step(state, _batch_of(s.solver, data, number[rows]))
        values.append(_values(s.solver.model(state, data), s.data))
    first, second = values
    _require_close(first, second, "the models after the same four steps on renumbered rows")


def _check_dtype(s: _Subject) -> None:
    key = (
        np.asarray(jax.random.key_data(s.key))
        if jnp.issubdtype(s.key.dtype, jax.dtypes.prng_key)
        else None
    )
    on_host = jax.tree.map(np.asarray, s.data)
    with jax.enable_x64(True):
        for dtype, other in (("float32", np.float64), ("float64", np.float32)):
            as_dtype = lambda a, dtype=dtype: jnp.asarray(
                a, dtype if a.dtype.kind == "f" else a.dtype
            )
            data = jax.tree.map(as_dtype, on_host)
            solver = jax.tree.map(lambda a, other=other: other(a) if _is_single(a) else a, s.solver)
            random = (
                s.key
                if key is None
                else jax.random.wrap_key_data(jnp.asarray(key), impl=jax.random.key_impl(s.key))
            )
            run = jax.eval_shape(
                lambda data, solver=solver, key=random: loops.fit(
                    solver, data, key, steps=3, every=3
                ),
                data,
            )
            parts_of_run = {
                "state": run.state,
                "model": run.model,
                "loss": run.info.loss,
                "residual": run.info.residual,
            }
            for part, tree in parts_of_run.items():
                for name, leaf in _paths(tree):
                    wrong = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != jnp.dtype(
                        dtype
                    )
                    _require(
                        not wrong, f"rows of {dtype} give {leaf.dtype} at {name} of the {part}"
                    )


def _check_vmap(s: _Subject) -> None:
    if s.at is None:
        return
    values = lambda number: _fit(s, s.at(number), steps=12).model(s.data.x)
    several = jnp.asarray(s.numbers, s.data.x.dtype)
    swept = jax.jit(jax.vmap(values), compiler_options=QUICK)(several)
    alone = np.stack([np.asarray(values(number)) for number in several])
    _require_close(
        np.asarray(swept), alone, f"the models at the numbers {s.numbers[0]:g}, {s.numbers[1]:g}"
    )


def _check_gradient(s: _Subject) -> None:
    if s.at is None:
        return
    score = lambda number: jnp.sum(
        jnp.tanh(_fit(s, s.at(number), steps=10, every=5).model(s.data.x))
    )
    number = jnp.asarray(s.numbers[0], s.data.x.dtype)
    slope = jax.jit(jax.grad(score), compiler_options=QUICK)(number)
    _require(bool(jnp.isfinite(slope)), f"at {s.numbers[0]:g} it is {float(slope)}")


_CHECKS = {
    "init": _check_init,
    "state": _check_state,
    "info": _check_info,
    "pure": _check_pure,
    "model": _check_model,
    "finite": _check_finite,
    "scan": _check_scan,
    "resume": _check_resume,
    "jit": _check_jit,
    "save": _check_save,
    "padding": _check_padding,
    "weights": _check_weights,
    "numbering": _check_numbering,
    "dtype": _check_dtype,
    "vmap": _check_vmap,
    "gradient": _check_gradient,
}
