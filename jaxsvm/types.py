"""The types that every part of the package shares: small named tuples, nothing else."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .checks import row_numbers, shown
from .files import check_field, shape_of

Array: TypeAlias = jax.Array
State: TypeAlias = Any  # a pytree of arrays, of the same structure, shapes and dtypes before and after an update
Model: TypeAlias = Callable[[Array], Array]  # a callable pytree, rows -> decision values


LANE_WIDTH = 8  # numbers of a sparse row that are read together; rows are padded to whole groups
EVALS_BITS = 20  # evaluations are counted in two int32, this many bits in the lower one


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("index", "value", "length", "rows", "offsets"), meta_fields=("columns",)
)
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows with few numbers that are not 0: for each row the columns of these and their values, padded to one width.

    It stands where an (n, d) array of rows stands: `shape`, `dtype`, `astype`, rows by number. Made by `jaxsvm.dataset`
    from any SciPy matrix.
    """

    index: Array  # (n, r)  int32 in [0, columns), each at most once in a row; 0 where padded
    value: Array  # (n, r)  0 where padded
    length: Array  # (n,)   int32, numbers of each row, the first of its r places
    columns: int  # d
    rows: Array | None = None  # (b,)  int32, which of the n rows are meant, not copied yet; None: all
    offsets: Array | None = None  # (n,)  int32, where rows begin in index and value read as vectors; None: each in its own

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return (*(self.value.shape[:-1] if self.rows is None else self.rows.shape), self.columns)

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    @property
    def dtype(self) -> jnp.dtype:
        """Of the values."""
        return self.value.dtype

    def astype(self, dtype: Any) -> SparseRows:
        """The rows with values of `dtype`."""
        return self if dtype == self.dtype else dataclasses.replace(self, value=self.value.astype(dtype))

    def __getitem__(self, rows: Any) -> SparseRows:
        own = self.materialize()
        if isinstance(rows, tuple):
            raise IndexError("sparse rows are taken by row only; for columns make them dense, x.toarray()")
        return SparseRows(own.index[rows], own.value[rows], own.length[rows], self.columns)

    def materialize(self) -> SparseRows:
        """The rows that are meant as arrays of their own."""
        if self.rows is None and self.offsets is None:
            return self
        rows = jnp.arange(self.value.shape[0]) if self.rows is None else self.rows
        at = lambda a, i: a.at[i].get(mode="promise_in_bounds")  # noqa: E731
        length = at(self.length, rows)
        if self.offsets is None:
            return SparseRows(at(self.index, rows), at(self.value, rows), length, self.columns)
        column = jnp.arange(self.value.shape[1], dtype=jnp.int32)[None, :]
        place = jnp.where(column < length[:, None], at(self.offsets, rows)[:, None] + column, -1)
        full = lambda a: a.reshape(-1).at[place].get(mode="fill", fill_value=0, wrap_negative_indices=False)  # noqa: E731
        return SparseRows(full(self.index).astype(jnp.int32), full(self.value), length, self.columns)

    def toarray(self) -> Array:
        """The rows as a dense (n, d) array."""
        own = self.materialize()
        row = jnp.arange(self.shape[0], dtype=jnp.int32)[:, None]
        return jnp.zeros(self.shape, self.dtype).at[row, own.index].add(own.value, mode="promise_in_bounds")

    @functools.cached_property
    def packed(self) -> SparseRows:
        """The rows without the padding between them, for loops that point at rows (outside transformations, on a CPU).

        Groups of numbers stay together, and shapes as they are: programs do not hang on how many numbers there are.
        """
        long = -(-np.asarray(self.length) // LANE_WIDTH) * LANE_WIDTH
        start = np.cumsum(long) - long
        kept = np.arange(self.value.shape[1]) < long[:, None]

        def pack(a, dtype):
            out = np.zeros(a.shape, dtype)
            out.reshape(-1)[: long.sum()] = np.asarray(a)[kept]
            return jax.device_put(out)

        narrow = np.uint16 if self.columns <= 2**16 else np.int32
        value = pack(self.value, self.value.dtype)
        return dataclasses.replace(self, index=pack(self.index, narrow), value=value, offsets=jnp.asarray(start, jnp.int32))

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __check__(self) -> None:
        check_field("columns", self.columns, "whole", (), least=0)
        check_field("value", self.value)
        shape = jnp.shape(self.value)
        if len(shape) < 2:
            raise ValueError(f"value must have a row for each example, got shape {shape}")
        check_field("index", self.index, "whole", shape, least=0, most=max(self.columns - 1, 0))
        check_field("length", self.length, "whole", shape[:-1], least=0, most=shape[-1])
        if self.rows is not None:
            check_field("rows", self.rows, "whole", least=0, most=shape[0] - 1)
        if self.offsets is not None:
            check_field("offsets", self.offsets, "whole", shape[:-1], least=0)
            groups = -(-np.asarray(self.length, np.int64) // LANE_WIDTH)
            if (np.asarray(self.offsets) + LANE_WIDTH * groups > np.prod(shape)).any():
                raise ValueError("offsets and length name numbers behind the last one")
        elif np.asarray(self.value)[np.arange(shape[-1]) >= np.asarray(self.length)[..., None]].any():
            raise ValueError("value must be 0 behind the numbers of each row, which length counts")


class Batch(NamedTuple):
    """Some rows, or all of them: the whole data set is a `Batch` too.

    A row of weight 0 is padding: it changes nothing. See `jaxsvm.dataset` for the checked way in.
    """

    x: Array  # (b, d), or SparseRows
    y: Array  # (b,)  labels in {-1, +1}, or real targets
    index: Array  # (b,)  int32 row numbers in the training set; with reads="all": the rows of this step, -1 = padding
    weight: Array  # (b,)  0 marks padding; otherwise the weight of the example

    def __check__(self) -> None:
        front = shape_of(self.x)[:-1]
        if not front:
            raise ValueError(f"x must be a matrix with a row for each example, got shape {shape_of(self.x)}")
        check_field("y", self.y, "real", front)
        check_field("index", self.index, "whole", front, least=-1)
        check_field("weight", self.weight, "real", front, least=0)


class Lifted(Batch):
    """Rows that a solver has prepared already (`Solver.prepare`): x holds features. Nothing is lifted twice."""

    __slots__ = ()


class Count(NamedTuple):
    """A count that may exceed an int32, in two of them: high 2^20 + low. `np.asarray` gives it as int64."""

    high: Array  # int32, >= 0
    low: Array  # int32, in [0, 2^20)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The exact number, outside of transformations."""
        exact = np.asarray(self.high, np.int64) * 2**EVALS_BITS + np.asarray(self.low, np.int64)
        return np.asarray(exact, dtype)


class Info(NamedTuple):
    """What one step says of itself; the same fields for every solver, so that curves compare."""

    loss: Array  # ()   mean loss on the rows of the step, before it
    residual: Array  # ()   the solver's own stopping measure
    progress: Array  # (r,) objective gained per touched row
    index: Array  # (r,) the rows that the step touched, -1 where none
    support: Array  # ()   int32, coefficients in use
    evals: Array | Count  # ()   int32, kernel evaluations (inner products) spent; a Count where they may exceed an int32


def _same(data: Batch) -> Batch:
    return data


class Sampler(NamedTuple):
    """Which rows a step sees. `draw(s, 0, 5)` is `draw(s, 0, 2)` followed by `draw(s, 2, 3)`."""

    init: Callable  # (key, data)                              -> s
    draw: Callable  # (s, t, count)                            -> (count, b) int32, -1 marks padding
    weight: Callable  # (data)                                 -> (n,) the weights that steps see
    feedback: Callable  # (s, index (T, r), progress (T, r))   -> s, once per piece; called where `period` is a number
    period: Callable | None = None  # (n) -> steps between two redraws of an adaptive schedule; no piece crosses one; or a number
    rows: Callable = lambda n: 1  # (n) -> b, the rows of a step on n training rows
    whole: bool = False  # every draw is all rows in order: loops then hand the data over without copying them


class Solver(NamedTuple):
    """A training method as three pure functions; `update` is a scan body.

    A run is `lax.scan(solver.update, state, batches)` for a solver that reads the drawn rows, and
    `lax.scan(lambda s, i: solver.update(s, data._replace(index=i)), state, indices)` for one that reads all rows.
    """

    init: Callable  # (key, data)         -> state    all rows; may read values (norms, weights)
    update: Callable  # (state, batch)    -> (state, info)
    model: Callable  # (state, data=None) -> Model    data: the training rows, where an expansion needs them
    sampler: Any = None  # how the paper feeds it; None: one uniform row a step
    reads: str = "rows"  # "rows": batch = the drawn rows; "all": batch = all rows, and batch.index names the step's
    prepare: Callable = _same  # (data) -> Lifted     a map of rows that loops may apply to many rows at once
    residual_scope: str = "whole"  # "whole": info.residual measures the training set, `tol` may stop on it; "sample": it does not
    targets: Any = None  # "labels": y in {-1, +1}; "real": any numbers; k: class numbers 0 .. k-1; None: nobody knows
    with_tol: Callable | None = None  # (tol)  -> the solver for runs that stop there; None: an update does not depend on it
    validate: Callable | None = None  # (data) -> None, raising for values that it cannot take; loops call it on the host
    tol: Any = None  # where an update stops by itself (`until`); runs without tol and steps stop there, too
    layout: Callable = _same  # (data) -> data   for reads="all": rows in the form that updates read fastest, made once by loops


class Space(NamedTuple):
    """A function space with the moves that every SVM step is made of."""

    zero: Callable  # (key, data)                 -> f
    evaluate: Callable  # (f, batch)              -> (b,)    values at the step's rows
    sqnorm: Callable  # (x)                       -> (b,)    k(x, x)
    add: Callable  # (f, shrink, coef, batch)     -> f       (1 - shrink) f + sum_i coef_i k(x_i, .)
    model: Callable  # (f, data=None)             -> Model
    gram: Callable  # (batch)                     -> (b, b)  kernel among the step's rows
    evals: Callable  # (coef, batch)              -> ()      as Info.evals, kernel evaluations of evaluate and add together
    support: Callable  # (f)                      -> ()      int32, coefficients in use
    reads: str = "rows"  # as Solver.reads
    layout: Callable = _same  # as Solver.layout


class Loss(NamedTuple):
    """A convex loss of the score f at target y, with what primal and dual methods need of it.

    Subgradients are chosen, not inherited from automatic differentiation.
    """

    value: Callable  # (score, y)                        -> loss
    slope: Callable  # (score, y)                        -> an element of the subdifferential in the score
    conjugate: Callable  # (slope, y)                    -> sup_f slope f - loss(f, y), inf outside its domain
    dual_step: Callable  # (coef, score, y, sqnorm, C)   -> the coefficient that maximises the dual along its axis
    labels: bool = True  # a function of the margin y f with y in {-1, +1}; False: real targets
    quadratic: Callable | None = None  # (y, C)          -> Quadratic, its part of the dual; None: that is not quadratic


class Quadratic(NamedTuple):
    """One coefficient's part of a dual that is quadratic: y coef - kink |coef| - soft/2 coef^2 on [low, high].

    This is -C conjugate(-coef / C, y). low <= 0 <= high; both are 0 where C is 0.
    """

    low: Array  # (n,)
    high: Array  # (n,)
    l1: Array | None = None  # (n,)  >= 0; None: 0
    l2: Array | None = None  # (n,)  >= 0; None: 0


class Certificate(NamedTuple):
    """How far a model is from the optimum, at most: primal(model) - optimum <= gap."""

    primal: Array  # ()
    dual: Array  # ()
    gap: Array  # ()   primal - dual, summed from non-negative terms
    exact: bool  # the model carried its own dual coefficients; False: they were made from its margins


class Run(NamedTuple):
    """Everything that `fit` resumes from."""

    solver: State
    sampler: State
    step: Array  # ()  int32, updates made
    done: Array  # ()  bool, the tolerance was met

    def __check__(self) -> None:
        check_field("step", self.step, "whole", least=0)
        check_field("done", self.done, "truth", jnp.shape(self.step))


class Curve(NamedTuple):
    """The run as a table: one row per `every` steps, and one for a shorter last piece."""

    step: Array  # (p,)  int32, updates made at the end of the piece
    loss: Array  # (p,)  mean of info.loss over the piece
    residual: Array  # (p,)  at the end of the piece
    support: Array  # (p,)  at the end of the piece
    evals_parts: Array  # (p, 2)  int32, kernel evaluations in the piece in two parts, read them as `evals`
    probe: Any  # whatever the probe returned, with a leading axis (p,)

    def __check__(self) -> None:
        check_field("step", self.step, "whole", least=0)
        shape = shape_of(self.step)
        for name in ("loss", "residual", "support"):
            check_field(name, getattr(self, name), "real", shape)
        check_field("evals_parts", self.evals_parts, "whole", (*shape, 2), least=0)

    @property
    def evals(self) -> Array:
        """Kernel evaluations spent in each piece (p,): exact 64-bit numbers, floats inside a transformation."""
        spent = Count(self.evals_parts[..., 0], self.evals_parts[..., 1])
        if isinstance(self.evals_parts, jax.core.Tracer):
            return spent.high.astype(float) * 2**EVALS_BITS + spent.low.astype(float)
        return np.asarray(spent)


class Fit(NamedTuple):
    """What `fit` returns: a pytree, so that `fit` runs under vmap, jit and grad."""

    model: Model
    state: Run
    info: Curve
    tol: Array  # ()  nan where no tolerance was given
    values_finite: Array | None = None  # ()  bool, so are the loss of the last piece and the values at some training rows

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met (for every run of a batch)."""
        return bool(np.all(np.asarray(self.state.done)))

    @property
    def finite(self) -> bool:
        """Whether every number of the model is finite, its decision values at training rows, and the last loss."""
        return all_finite(self.model) and (self.values_finite is None or bool(np.all(np.asarray(self.values_finite))))

    @property
    def evals(self) -> int:
        """Kernel evaluations spent by this call, summed in 64 bits."""
        return int(self.info.evals.sum())

    @property
    def status(self) -> str:
        """One sentence: how the run ended and how far from its goal."""
        steps, done = np.asarray(self.state.step), np.asarray(self.state.done)
        if done.ndim:
            return f"{done.size} runs, {int(done.sum())} converged, after {int(steps.min())} to {int(steps.max())} steps" + (
                "" if self.finite else "; some hold numbers that are not finite"
            )
        if not self.finite:
            if all_finite(self.model):
                return (
                    f"the decision values of the model are not finite after {int(steps)} steps: look at the scale of the "
                    "data, at the kernel's width and at the step size"
                )
            return f"the model is not finite after {int(steps)} steps: look at the scale of the data and at the step size"
        if not self.info.step.shape[0]:
            return f"no step was made; the run stands at step {int(steps)}"
        known = np.asarray(self.info.residual, np.float64)
        known = known[~np.isnan(known)]  # a piece of a stream that filled no batch has none
        residual, tol = float(known[-1]) if known.size else np.nan, float(self.tol)
        if bool(done):
            return f"converged after {int(steps)} steps: tolerance {tol:.1e} met, residual {residual:.1e}"
        goal = "" if np.isnan(tol) else f", tolerance {tol:.1e} not met; go on with state=run.state"
        yet = " (no bound yet)" if np.isinf(residual) else ""
        return f"stopped after {int(steps)} steps; residual {residual:.1e}{yet}{goal}"


def all_finite(tree: Any) -> bool:
    """Whether every floating number of a tree is finite; on the host."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return all(bool(np.all(np.isfinite(np.asarray(leaf, np.float64)))) for leaf in leaves)


def check_batch(name: str, data: Any) -> None:
    """Refuse what is no `Batch`, and one whose parts differ in their rows.

    Raises:
        TypeError, ValueError: with what to do.
    """
    if not isinstance(data, Batch):
        raise TypeError(f"{name} must be a Batch, such as jaxsvm.dataset(x, y), got {type(data).__name__}: {shown(data)}")
    for field, part in zip(data._fields, data, strict=True):
        if not hasattr(part, "dtype") or not hasattr(part, "shape"):
            raise TypeError(f"{field} of {name} must be an array, got {shown(part)}: make the batch with jaxsvm.dataset(x, y)")
    shapes = [tuple(np.shape(part)) for part in (data.y, data.weight)]
    if any(shape != tuple(data.x.shape[:1]) for shape in shapes):
        raise ValueError(
            f"{name} must hold one target and one weight for each of its {data.x.shape[0]} rows, got shapes {shapes[0]} and "
            f"{shapes[1]}: take rows with jaxsvm.take(data, index)"
        )


def take(data: Batch, index: Array, *, copy: bool = True) -> Batch:
    """The rows `index` of `data` as a batch; -1 gives a padding row of weight 0.

    Args:
        data: n rows.
        index: (b,) int32 in [-1, n); a list of integers will do.
        copy: False: sparse rows are only pointed at, for loops over data that stay where they are; structure.

    Raises:
        TypeError: data is no `Batch`, index no vector of integers.
        ValueError: row numbers out of range, where they are known.

    Example:
        >>> import jaxsvm, jax.numpy as jnp
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [-1, 1])
        >>> take(data, jnp.array([1, -1])).weight.tolist()
        [1.0, 0.0]
    """
    check_batch("data", data)
    index = row_numbers("index", index, data.y.shape[0])
    safe = jnp.maximum(index, 0)
    if isinstance(data.x, SparseRows) and (not copy or data.x.rows is not None or data.x.offsets is not None):
        small = take(data._replace(x=data.index), index)
        rows = safe if data.x.rows is None else data.x.rows.at[safe].get(mode="promise_in_bounds")
        x = dataclasses.replace(data.x, rows=rows)
        return small._replace(x=x.materialize() if copy else x)
    if index.shape[0] == 1:  # a slice compiles to less than a gather
        drawn = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, safe[0], 1), data)
    else:
        drawn = jax.tree.map(lambda a: a.at[safe].get(mode="promise_in_bounds"), data)
    return drawn._replace(index=index, weight=jnp.where(index >= 0, drawn.weight, jnp.zeros_like(drawn.weight)))


def drawn(batch: Batch, reads: str) -> Batch:
    """The rows of the step, whichever way the solver is fed (`Solver.reads`)."""
    return batch if reads == "rows" else take(batch, batch.index)
