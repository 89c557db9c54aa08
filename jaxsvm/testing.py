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
from .checks import is_array, is_key
from .data import dataset
from .types import (
    Array,
    Batch,
    Fit,
    Info,
    Sampler,
    Scalar,
    Solver,
    SparseRows,
    Wrapper,
    same_structure,
    take,
)

__all__ = ["PROMISES", "check_solver"]

PROMISES = {  # name -> what a solver promises; others by `_promise` at their checks
    "fields": "the fields of a solver must hold what their comments in jaxsvm.Solver say"
}
TOLERANCE = 1e-3  # between programs that add in another order, after a run
STEP_TOLERANCE = 1e-5  # the same after one step
EVERY = 10  # steps of a chunk
QUICK = {"xla_backend_optimization_level": 0}  # for programs that run once


class _Subject(NamedTuple):
    """The solver under test and what it is tested on."""

    solver: Solver
    at: Callable  # number -> solver
    numbers: tuple[float, ...]  # two
    data: Batch  # n >= 8 rows
    key: Array
    steps: int
    step: Callable  # `update`, compiled


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
    if factory is None:
        times = lambda a, by: jnp.asarray(by, jnp.result_type(a)) * a if _is_single(a) else a
        factory = lambda scale: jax.tree.map(lambda a: times(a, scale), solver)
        numbers = 1.0, 0.75
    subject = _Subject(solver, factory, tuple(numbers), data, key, steps, _step(solver))
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
        line = (str(error).strip() or "without a message").splitlines()[0]
        observation, cause = f"it raised {type(error).__name__}: {line}", error
    raise AssertionError(f"{name}: {PROMISES[name]}, but {observation}") from cause


def _require(holds: bool, observation: str) -> None:
    if not holds:
        raise _Broken(observation)


_CHECKS: dict[str, Callable] = {}  # of the promises that need data


def _promise(name: str, sentence: str) -> Callable:
    """A decorator of the check of a promise, a function of a `_Subject`."""
    PROMISES[name] = sentence
    return lambda check: _CHECKS.setdefault(name, check)


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


def _step(solver: Solver) -> Callable:
    """`update`, to be traced and compiled anew."""
    return jax.jit(lambda state, batch: solver.update(state, batch), compiler_options=QUICK)


def _dense(data: Batch) -> Batch:
    return data._replace(x=data.x.toarray()) if isinstance(data.x, SparseRows) else data


def _is_single(number: Scalar) -> bool:
    return np.shape(number) == () and jnp.issubdtype(jnp.result_type(number), jnp.floating)


def _batch_of(s: _Subject, index: object) -> Batch:
    """What `update` gets for the rows `index`."""
    index = jnp.asarray(index, jnp.int32)
    return s.data._replace(index=index) if s.solver.needs_all_rows else take(s.data, index)


def _draws(s: _Subject, steps: int, rows: int) -> np.ndarray:
    """(steps, rows) row numbers, all different where there are as many."""
    n = s.data.y.shape[0]
    return (np.arange(steps * rows).reshape(steps, rows) * 5 + 3) % n


def _fit(s: _Subject, solver: Solver | None = None, **options: object) -> Fit:
    key = None if "state" in options else s.key
    given: dict[str, Any] = {"data": s.data, "steps": s.steps, "every": EVERY} | options
    return loops.fit(s.solver if solver is None else solver, key=key, **given)


# How trees are compared


def _paths(tree: object) -> list[tuple[str, Any]]:
    """The leaves with their names."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path) or "itself", leaf) for path, leaf in pairs]


def _type(leaf: Any) -> str:
    shape = ", ".join(map(str, np.shape(leaf)))
    weak = getattr(leaf, "weak_type", False)  # keys have none
    kind = leaf.dtype if is_array(leaf) else type(leaf).__name__
    return f"{'weakly typed ' * weak}{kind}[{shape}]"


def _type_difference(before: object, after: object) -> str | None:
    """Which leaf has another type, in words."""
    if not same_structure(before, after):
        one, other = jax.tree.structure(before), jax.tree.structure(after)
        return f"its structure went from {one} to {other}"
    for (name, one), (_, other) in zip(_paths(before), _paths(after), strict=True):
        if _type(one) != _type(other):
            return f"leaf {name} went from {_type(one)} to {_type(other)}"
    return None


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _difference(a: object, b: object, tolerance: float | None = None) -> str | None:
    """Which leaf differs, in words.

    It differs in its bits, or by more than `tolerance` (absolute near 0, relative above 1).
    """
    if (changed := _type_difference(a, b)) is not None:
        return changed
    for (name, one), (_, other) in zip(_paths(a), _paths(b), strict=True):
        one, other = _numbers(one), _numbers(other)
        if one.tobytes() == other.tobytes():
            continue
        near = tolerance or 0
        differs = ~np.isclose(one, other, rtol=near, atol=near, equal_nan=True)
        if tolerance is None or differs.any():
            place = np.argmax(differs)
            first, second = one.ravel()[place], other.ravel()[place]
            return f"leaf {name} holds {first:.9g} the first time and {second:.9g} the second"
    return None


def _require_same(what: str, *of_difference: Any) -> None:
    """Require that trees have no difference, by the arguments of `_difference`."""
    changed = _difference(*of_difference)
    _require(changed is None, f"{what}: {changed}")


def _require_close(what: str, a: object, b: object, *, tolerance: float = TOLERANCE) -> None:
    a, b = np.asarray(a), np.asarray(b)
    _require(a.shape == b.shape, f"{what} have shapes {a.shape} and {b.shape}")
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities too
    a, b = np.where(same, 0, a), np.where(same, 0, b)
    away = np.abs(a - b) / np.maximum(1, np.abs(a))
    _require(bool(np.all(away <= tolerance)), f"{what} differ by up to {np.max(away):.2g}")


# The promises


def _check_fields(solver: Solver) -> None:
    kind = type(solver).__name__
    _require(isinstance(solver, Solver), f"this is {kind}, no node that is a jaxsvm.Solver")
    every, scope, targets = solver.needs_all_rows, solver.residual_of, solver.targets
    _require(isinstance(every, bool), f"needs_all_rows is {every!r}, neither True nor False")
    _require(scope in ("data", "batch"), f"residual_of is {scope!r}, neither 'data' nor 'batch'")
    known = targets >= 2 if type(targets) is int else targets in (None, "labels", "real")
    _require(known, f"targets is {targets!r}, none of 'labels', 'real', a number of classes, None")
    is_sampler = isinstance(solver.sampler, Sampler | None)
    _require(is_sampler, f"sampler is {solver.sampler!r}, no Sampler")


@_promise(
    "init", "init must be a pure function of key and data that JAX can trace, and return arrays"
)
def _check_init(s: _Subject) -> None:
    s.solver.validate(s.data)
    states = [s.solver.init(s.key, s.data) for _ in range(2)]
    for name, leaf in _paths(states[0]):
        kind = type(leaf).__name__
        _require(isinstance(leaf, jax.Array), f"leaf {name} of the state is a {kind}, no jax.Array")
    _require_same("two calls with the same key and data differ", *states)
    changed = _type_difference(states[0], jax.eval_shape(s.solver.init, s.key, s.data))
    _require(changed is None, f"a traced call returns other types: {changed}")


def _shapes_of_step(s: _Subject, rows: int) -> tuple[Any, Any, Any]:
    """The types of a state, of the state after a step, and of the step's info."""
    state, batch = jax.eval_shape(s.solver.init, s.key, s.data), _batch_of(s, _draws(s, 1, rows)[0])
    result = jax.eval_shape(s.solver.update, state, batch)
    is_pair = isinstance(result, tuple) and len(result) == 2
    _require(is_pair, f"update returns {type(result).__name__}, no pair (state, info)")
    return state, *result


@_promise("state", "update must keep structure, shapes and dtypes of the state")
def _check_state(s: _Subject) -> None:
    for rows in (1, 3):
        state, after, _ = _shapes_of_step(s, rows)
        weak = ", ".join(name for name, leaf in _paths(state) if leaf.weak_type)
        _require(not weak, f"leaf {weak} of the first state is weakly typed: give its dtype")
        changed = _type_difference(state, after)
        _require(changed is None, f"after a step on {rows} rows {changed}")


@_promise("info", "update must return a jaxsvm.Info of the shapes and dtypes that its comments say")
def _check_info(s: _Subject) -> None:
    dtype, n = s.data.x.dtype, s.data.y.shape[0]
    for rows in (1, 3):
        info = _shapes_of_step(s, rows)[2]
        _require(isinstance(info, Info), f"it is a {type(info).__name__}")
        is_count = jnp.issubdtype(info.evals.dtype, jnp.integer)
        kinds = dtype, dtype, dtype, np.int32, np.int32, np.int32 if is_count else dtype
        for name, leaf, kind in zip(Info._fields, info, kinds, strict=True):
            shape = (leaf.size,) if name in ("progress", "index") else ()
            wanted = _type(jax.ShapeDtypeStruct(shape, kind))
            _require(_type(leaf) == wanted, f"{name} is {_type(leaf)} and not {wanted}")
        same = info.index.shape == info.progress.shape
        _require(same, f"index has shape {info.index.shape} and progress {info.progress.shape}")
    _, info = s.step(s.solver.init(s.key, s.data), _batch_of(s, _draws(s, 1, 3)[0]))
    index, support, evals = np.asarray(info.index), int(info.support), np.asarray(info.evals)
    _require(bool(np.all((index >= -1) & (index < n))), f"index holds {index.tolist()} on {n} rows")
    _require(support >= 0 and bool(evals >= 0), f"support is {support} and evals {int(evals)}")


@_promise("pure", "update must be a pure function of state and batch")
def _check_pure(s: _Subject) -> None:
    arguments = s.solver.init(s.key, s.data), _batch_of(s, _draws(s, 1, 3)[0])
    results = [step(*arguments) for step in (s.step, _step(s.solver))]
    _require_same("two calls with the same state and batch differ", *results)


@_promise(
    "model",
    "model must return a callable pytree of arrays that gives each row of (n, d) its value, "
    "whatever the other rows",
)
def _check_model(s: _Subject) -> None:
    model = s.solver.model(s.solver.init(s.key, s.data), s.data)
    _require(callable(model), f"it returns a {type(model).__name__}, which cannot be called")
    model = _fit(s, steps=4).model
    for name, leaf in _paths(model):
        kind = type(leaf).__name__
        _require(is_array(leaf), f"leaf {name} of the model is a {kind}, no array")
    x, n, targets = s.data.x, s.data.y.shape[0], s.solver.targets
    value, most = model(x), 1 if targets in ("labels", "real") else 2
    seen = f"got values of shape {np.shape(value)}"
    _require(np.shape(value)[:1] == (n,), f"{n} rows {seen}")
    _require(np.ndim(value) <= most, f"{n} rows with targets={targets!r} {seen}")
    _require(value.dtype == x.dtype, f"rows of {x.dtype} got values of {value.dtype}")
    backwards = model(x[::-1])[::-1]
    other = "the values of rows in another order"
    _require_close(other, value, backwards, tolerance=STEP_TOLERANCE)
    alone = "the values of a row alone and among others"
    _require_close(alone, value[:1], model(x[:1]), tolerance=STEP_TOLERANCE)
    inside = jax.jit(lambda model, x: model(x))(model, x)
    _require_close("the values inside jax.jit", value, inside)


@_promise("finite", "a run on finite data must end with a finite model")
def _check_finite(s: _Subject) -> None:
    run = _fit(s)
    _require(run.finite, run.status)


@_promise("scan", "update must be the body of a lax.scan that gives what single steps give")
def _check_scan(s: _Subject) -> None:
    start, index = s.solver.init(s.key, s.data), _draws(s, 4, 3)
    update = lambda state, rows: s.solver.update(state, _batch_of(s, rows))
    scanned = lambda state, index: lax.scan(update, state, index)
    together, infos = jax.jit(scanned, compiler_options=QUICK)(start, jnp.asarray(index, jnp.int32))
    state, losses = start, []
    for rows in index:
        state, info = s.step(state, _batch_of(s, rows))
        losses.append(info.loss)
    values = [s.solver.model(end, s.data)(s.data.x) for end in (together, state)]
    _require_close("the models after four steps", *values)
    _require_close("the losses of four steps", infos.loss, np.stack(losses))


@_promise(
    "resume", "a run that goes on from its state must equal the run that was not cut, bit for bit"
)
def _check_resume(s: _Subject) -> None:
    whole = _fit(s)
    for cut in (1, s.steps // 2):
        second = _fit(s, steps=s.steps - cut, state=_fit(s, steps=cut).state)
        ends = (whole.state, whole.model), (second.state, second.model)
        _require_same(f"a run cut after {cut} of {s.steps} steps differs", *ends)


@node
class _traced_anew(Wrapper):
    """The same solver of another class, so that its update is traced again."""

    inner: Solver


@_promise("jit", "a run inside jax.jit must give the model of a run outside")
def _check_jit(s: _Subject) -> None:
    anew = s._replace(solver=_traced_anew(s.solver))
    run = lambda data, key: _fit(anew._replace(key=key), data=data).model
    inside = jax.jit(run, compiler_options=QUICK)(s.data, s.key)
    values = inside(s.data.x), _fit(s).model(s.data.x)
    _require_close("the values of the two models", *values)


@_promise("save", "jaxsvm.models must be able to save state and model, and load the same bits")
def _check_save(s: _Subject) -> None:
    run = _fit(s)
    for name, thing in (("state", run.state), ("model", run.model)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved.npz")
            models.save(path, thing)
            _require_same(f"the {name} is not the same", thing, models.load(path))


def _chooses_rows(s: _Subject, state: object) -> bool:
    """Whether a step does not depend on the rows that are drawn for it."""
    if not s.solver.needs_all_rows:
        return False
    steps = [s.step(state, _batch_of(s, rows)) for rows in ([5, 0, 1], [4, 3, 6])]
    return _difference(*steps) is None


@_promise("padding", "rows of weight 0 in a batch are padding and must change nothing")
def _check_padding(s: _Subject) -> None:
    state = _fit(s, steps=4).state.solver
    if _chooses_rows(s, state):
        return
    padded = _batch_of(s, [5, -1, 0, 7, -1])
    if not s.solver.needs_all_rows:  # rows of weight 0 may hold anything
        empty = np.array([False, True, False, False, True])
        x = jnp.where(empty[:, None], jnp.full_like(padded.x, 50), padded.x)
        padded = padded._replace(x=x, y=jnp.where(empty, jnp.roll(padded.y, 1), padded.y))
    one, two = (s.step(state, batch) for batch in (_batch_of(s, [5, 0, 7]), padded))
    what = "a step on three rows and one on these and two of padding differ"
    _require_same(what, one[0], two[0], STEP_TOLERANCE)
    what = "the losses with and without padding"
    _require_close(what, one[1].loss, two[1].loss, tolerance=STEP_TOLERANCE)


@_promise("weights", "rows of weight 0 in the data must change nothing, whatever they hold")
def _check_weights(s: _Subject) -> None:
    n = s.data.y.shape[0]
    absent = np.zeros(n, bool)
    absent[[0, n // 3, n - 1]] = True
    base = s.data._replace(weight=jnp.where(absent, jnp.zeros_like(s.data.weight), s.data.weight))
    x = jnp.where(absent[:, None], jnp.full_like(base.x, 9) - base.x, base.x)
    other = base._replace(x=x, y=jnp.where(absent, jnp.flip(base.y), base.y))
    values = (_fit(s, data=data).model(s.data.x) for data in (base, other))
    _require_close("the models on data whose rows of weight 0 hold other numbers", *values)


@_promise("numbering", "a step must not depend on how the rows are numbered")
def _check_numbering(s: _Subject) -> None:
    if _chooses_rows(s, s.solver.init(s.key, s.data)):
        return
    n = s.data.y.shape[0]
    # row i of the renumbered data is row order[i] of the data
    order = np.roll(np.arange(n)[::-1], 3)
    renumbered = s.data._replace(x=s.data.x[order], y=s.data.y[order], weight=s.data.weight[order])
    values = []
    for data, number in ((s.data, np.arange(n)), (renumbered, np.argsort(order))):
        state = s.solver.init(s.key, data)
        for rows in _draws(s, 4, 3):
            state, _ = s.step(state, _batch_of(s._replace(data=data), number[rows]))
        values.append(s.solver.model(state, data)(s.data.x))
    _require_close("the models after the same four steps on renumbered rows", *values)


@_promise(
    "dtype",
    "float32 rows must give a float32 run and float64 rows a float64 run, whatever the dtype of "
    "the numbers",
)
def _check_dtype(s: _Subject) -> None:
    on_host = jax.tree.map(np.asarray, s.data)
    with jax.enable_x64(True):
        for dtype, other in ((np.float32, np.float64), (np.float64, np.float32)):
            kind_of = lambda a, dtype=dtype: dtype if a.dtype.kind == "f" else a.dtype
            data = jax.tree.map(lambda a, of=kind_of: jnp.asarray(a, of(a)), on_host)
            solver = jax.tree.map(lambda a, other=other: other(a) if _is_single(a) else a, s.solver)
            fit = lambda data, solver=solver: _fit(s, solver, data=data, steps=3)
            run = jax.eval_shape(fit, data)
            losses = {"loss": run.info.loss, "residual": run.info.residual}
            for part, tree in ({"state": run.state, "model": run.model} | losses).items():
                for name, leaf in _paths(tree):
                    wrong = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype
                    seen = f"rows of {dtype.__name__} give {leaf.dtype} at {name} of the {part}"
                    _require(not wrong, seen)


@_promise("vmap", "jax.vmap over the numbers of the factory must give what single runs give")
def _check_vmap(s: _Subject) -> None:
    values = lambda number: _fit(s, s.at(number), steps=12).model(s.data.x)
    several = jnp.asarray(s.numbers, s.data.x.dtype)
    swept = jax.jit(jax.vmap(values), compiler_options=QUICK)(several)
    alone = np.stack([values(number) for number in several])
    _require_close(f"the models at the numbers {s.numbers[0]:g}, {s.numbers[1]:g}", swept, alone)


@_promise(
    "gradient", "the derivative of a run in the numbers of the factory must exist and be finite"
)
def _check_gradient(s: _Subject) -> None:
    values = lambda number: _fit(s, s.at(number), steps=10, every=5).model(s.data.x)
    number = jnp.asarray(s.numbers[0], s.data.x.dtype)
    slope_of = jax.grad(lambda number: jnp.sum(jnp.tanh(values(number))))
    slope = jax.jit(slope_of, compiler_options=QUICK)(number)
    _require(bool(jnp.isfinite(slope)), f"at {s.numbers[0]:g} it is {float(slope)}")
