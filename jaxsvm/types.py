"""The types that all parts of the package share.

They are small named tuples, with functions that select rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from . import printing
from ._node import Node, nodes_of, register, static
from .checks import calling, has_values, is_array, is_numeric, row_numbers, shown
from .flags import despite_flags

Array: TypeAlias = jax.Array
Scalar: TypeAlias = float | jax.Array  # one number
# a pytree of arrays, of the same structure, shapes and dtypes before and after an update
State: TypeAlias = Any
Model: TypeAlias = Callable[[Array], Array]  # a callable pytree, rows -> decision values
Rows: TypeAlias = "Array | SparseRows"  # (n, d)


# numbers of a sparse row that one vector instruction reads; rows are padded to multiples of it
LANE_WIDTH = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse rows: the columns and values of the nonzero entries of each row, padded to one width.

    It replaces an (n, d) array of rows: it has `shape`, `dtype`, `astype`, and indexing by row.
    `jaxsvm.dataset` makes it from any SciPy matrix.
    """

    index: Array  # (n, r)  int32 in [0, columns), each at most once in a row; 0 where padded
    value: Array  # (n, r)  0 where padded
    length: Array  # (n,)   int32, entries of each row, the first of its r positions
    columns: int = static()  # d
    rows: Array | None = None  # (b,)  int32, the selected rows, by reference; None: all
    # (n,)  int32, starts of packed rows in index and value, read as vectors; None: not packed
    offsets: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return (*(self.length if self.rows is None else self.rows).shape, self.columns)

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the values."""
        return self.value.dtype

    def astype(self, dtype: Any) -> SparseRows:
        """The rows with values of `dtype`."""
        same = dtype == self.dtype
        return self if same else dataclasses.replace(self, value=self.value.astype(dtype))

    def __getitem__(self, rows: object) -> SparseRows:
        if isinstance(rows, tuple):
            raise IndexError(
                "sparse rows are taken by row only; for columns make them dense, x.toarray()"
            )
        if self.is_plain:
            return SparseRows(self.index[rows], self.value[rows], self.length[rows], self.columns)
        every = jnp.arange(len(self.length)) if self.rows is None else self.rows
        return dataclasses.replace(self, rows=every[rows]).materialize()

    @property
    def is_plain(self) -> bool:
        """Whether these are all rows, and not packed."""
        return self.rows is None and self.offsets is None

    def materialize(self) -> SparseRows:
        """The selected rows, copied and without packing."""
        if self.is_plain:
            return self
        rows = jnp.arange(len(self.length)) if self.rows is None else self.rows
        gather = lambda a, i: a.at[i].get(mode="promise_in_bounds")
        length = gather(self.length, rows)
        if self.offsets is None:
            index, value = gather(self.index, rows), gather(self.value, rows)
            return SparseRows(index, value, length, self.columns)
        shape = *length.shape, self.value.shape[1]
        column = lax.broadcasted_iota(jnp.int32, shape, length.ndim)
        place = gather(self.offsets, rows)[..., None] + column
        place = jnp.where(column < length[..., None], place, -1)
        padded: dict[str, Any] = {"mode": "fill", "fill_value": 0, "wrap_negative_indices": False}
        index, value = (a.reshape(-1).at[place].get(**padded) for a in (self.index, self.value))
        return SparseRows(index.astype(jnp.int32), value, length, self.columns)

    def toarray(self) -> Array:
        """The rows as a dense (n, d) array."""
        copy = self.materialize()
        row = jnp.arange(self.shape[0], dtype=jnp.int32)[:, None]
        zeros = jnp.zeros(self.shape, self.dtype)
        return zeros.at[row, copy.index].add(copy.value, mode="promise_in_bounds")

    @functools.cached_property
    def packed(self) -> SparseRows:
        """The rows without padding between them, for loops that read rows by reference.

        Call it outside transformations, on a CPU. Rows are padded to whole lanes only. The arrays
        keep their shapes, so that programs do not depend on the number of entries.
        """
        padded_length = -(-np.asarray(self.length) // LANE_WIDTH) * LANE_WIDTH
        offsets = np.cumsum(padded_length) - padded_length
        in_row = np.arange(self.value.shape[1]) < padded_length[:, None]

        def pack(a: Array, dtype: DTypeLike) -> Array:
            out = np.zeros(a.shape, dtype)
            out.reshape(-1)[: padded_length.sum()] = np.asarray(a)[in_row]
            return jax.device_put(out)

        index = pack(self.index, np.uint16 if self.columns <= 2**16 else np.int32)
        value, offsets = pack(self.value, self.dtype), jnp.asarray(offsets, jnp.int32)
        return dataclasses.replace(self, index=index, value=value, offsets=offsets)

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}


class Batch(NamedTuple):
    """Rows with targets, row numbers and weights: those of a step, or the whole data set.

    A row of weight 0 has no effect; one with the index -1, too, is padding, which nobody counts.
    `jaxsvm.dataset` makes a checked batch from arrays.
    """

    x: Array  # (b, d), or SparseRows
    y: Array  # (b,)  labels in {-1, +1}, or real targets; (b, k)  several, for `multi_output`
    index: Array  # type: ignore[assignment]  # (b,)  int32 row numbers in the training set; with needs_all_rows=True: of this step, -1 = padding
    weight: Array  # (b,)  >= 0, the weight of the example; 0 marks padding; or (b, k), as y
    # (b,)  int32, the query of each row, for ranking; y then holds grades. None: all rows are one
    query: Array | None = None
    classes: Any = None  # the names of the classes, `models.Classes`; None: not known

    @property
    def rows(self) -> int:
        """The number of rows without padding; of rows whose values are not known all."""
        if not has_values(self.index):
            return self.y.shape[0]
        return int(np.count_nonzero(np.asarray(self.index) >= 0)) or self.y.shape[0]

    def __repr__(self) -> str:
        return printing.of_batch(self) if has_values(self) else "Batch of rows without values"


class Lifted(Batch):
    """Rows whose x already holds the features of `Solver.prepare`.

    That function is not applied to them again.
    """

    __slots__ = ()


class Info(NamedTuple):
    """The measurements of one step.

    The fields are the same for every solver, so that curves can be compared.
    """

    loss: Array  # ()   mean loss on the rows of the step, before it
    residual: Array  # ()   the solver's stopping criterion
    progress: Array  # (r,) gain of the objective for each changed row
    index: Array  # type: ignore[assignment]  # (r,) the rows that the step changed, -1 = none
    support: Array  # ()   int32, nonzero coefficients
    evals: Array  # ()   kernel evaluations (inner products), int32 or floating


class Sampler(Node):
    """The choice of the rows of each step, as a node with methods.

    `draw(s, 0, 5)` equals `draw(s, 0, 2)` followed by `draw(s, 2, 3)`.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> @jaxsvm.node
        ... class first_row(jaxsvm.Sampler):
        ...     def init(self, key, data):
        ...         return ()
        ...     def draw(self, state, t, count):
        ...         return jnp.zeros((count, 1), jnp.int32)
        >>> first_row().draw((), 0, 2).tolist()
        [[0], [0]]
    """

    example: ClassVar[str] = "a sampler such as jaxsvm.samplers.epochs(64)"
    # (n) -> steps between two updates of an adaptive schedule, each by `feedback`; None: no such
    period: Any = None
    full_batch: Any = False  # every draw is all rows in order: loops pass the data without a copy
    # k: a draw has k parts of equal length, part j from the j-th of k equal blocks of the rows
    blocks: Any = 1
    # (the drawn rows, a Batch) -> the batch of the step, for solvers that read drawn rows; None:
    # the rows themselves
    combine: Any = None

    def init(self, key: Array, data: Batch) -> State:
        """The state of a run."""
        raise NotImplementedError

    def draw(self, state: State, t: object, count: int) -> Array:
        """The rows of the steps t .. t + count - 1, (count, b) int32; -1 marks padding."""
        raise NotImplementedError

    def rows(self, n: int) -> int:
        """The rows b of a step on n training rows."""
        return 1

    def weight(self, data: Batch) -> Array:
        """The weights that steps read, (n,): the shares w_i / (mean positive weight).

        sum(share * loss) / count(share > 0) estimates the weighted mean loss.
        """
        positive = data.weight > 0
        mean = jnp.sum(data.weight) / jnp.maximum(jnp.sum(positive.astype(data.weight.dtype)), 1)
        return jnp.where(positive, data.weight / mean, jnp.zeros_like(data.weight))

    def feedback(self, state: State, index: Array, progress: Array) -> State:
        """The state after a chunk, by the rows (T, r) of its steps and their progress."""
        return state


class Solver(Node):
    """A training method as a node with three pure functions; `update` is a scan body.

    A run is `lax.scan(solver.update, state, batches)` for a solver that reads the drawn rows, and
    `lax.scan(lambda s, i: solver.update(s, data._replace(index=i)), state, indices)` for one that
    reads all rows. All that follows `model` has a default: a solver works without.

    A class, a field or a property may say what a solver is:

    - sampler: the sampler of the paper; None: one uniform row a step.
    - needs_all_rows: whether a batch is all rows, and its index those drawn; else it is the drawn
      rows.
    - targets: those that it takes. "labels": y in {-1, +1}; "real": any numbers; k: class numbers
      0 .. k-1; None: not checked; ("labels", k), ("real", k): k of them for each row.
    - residual_of: what info.residual measures, the "data" or a "batch"; `tol` may stop on the
      first.
    - iterates_to: the residual at which an update, and a run without `tol` and `steps`, ends. nan:
      it would, but has none; None: updates have no tolerance. `fit(tol=)` replaces the field `tol`
      of such a solver.
    - has_map: whether `prepare` maps rows to features.

    The class of a state may say more, each by an attribute:

    - restart: () -> the start of a run of other numbers on the same rows and weights, from this end
      of a run. `select` then makes the runs of an axis one by one.
    - sums_of: what it holds sums of, of "rows" and "numbers": `fit` refuses a state with others.
      Without it, one with entries for each row holds sums of both, and others of neither.
    - ignores_padding: true if an update on rows of weight 0 changes no coefficient.
    - method: the name of the method, for `Fit.status`.
    - with_mean, weigh_next, mean_of: of one that keeps the mean of its iterates itself, at
      less cost than `averaged`; see `solvers.primal.scaled.ScaledState`.
    """

    example: ClassVar[str] = "a solver such as jaxsvm.pegasos(1e-3)"
    sampler: Any = None
    needs_all_rows: Any = False
    targets: Any = None
    residual_of: Any = "data"
    iterates_to: Any = None
    has_map: Any = False

    def __init_subclass__(cls) -> None:
        if "init" in vars(cls):  # a residual may be infinite, which a flag of JAX would refuse
            cls.init = despite_flags(cls.init)  # type: ignore[method-assign]

    def init(self, key: Array, data: Batch) -> State:
        """The state before the first update; it may read the values of all rows (norms, weights).

        Its arrays are its own, as it may be donated.
        """
        raise NotImplementedError

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        """One update, on drawn rows, or on those of `batch.index` of all rows."""
        raise NotImplementedError

    def model(self, state: State, data: Batch | None = None) -> Model:
        """The model of a state; `data` are the training rows, where an expansion needs them."""
        raise NotImplementedError

    @property
    def lays_out(self) -> bool:
        """Whether it has a layout of its own."""
        return type(self).layout is not Solver.layout

    def validate(self, data: Batch) -> None:
        """As of `Node`; the sampler of a run is asked by the loop, as it may be another one."""
        for part in nodes_of(vars(self)):
            if not isinstance(part, Sampler):
                part.validate(data)

    def row_entries(self, data: Batch) -> list[bool]:
        """For each leaf of the state, whether its size depends on the number of rows."""
        n, init = data.y.shape[0], functools.partial(self.init, jax.random.key(0))
        longer = lambda a: jax.ShapeDtypeStruct((n + 1, *a.shape[1:]), a.dtype)
        states = jax.eval_shape(init, data), jax.eval_shape(init, jax.tree.map(longer, data))
        shapes = [[leaf.shape for leaf in jax.tree.leaves(state)] for state in states]
        return [short != long for short, long in zip(*shapes, strict=True)]

    def has_sums(self, data: Batch) -> bool:
        """Whether a state of `fit` holds sums over rows, or numbers for each of them."""
        if self.needs_all_rows or any(self.row_entries(data)):
            return True
        return said(jax.eval_shape(self.init, jax.random.key(0), data), "sums_of") is not None

    def prepare(self, data: Batch) -> Batch:
        """The rows after the feature map, as `Lifted`."""
        return data

    def layout(self, data: Batch) -> Batch:
        """The rows in the form that updates on all rows read fastest; called on the host."""
        return data


def state_class(name: str, **says: object) -> Callable:
    """A decorator: register the class of a state, with the attributes that `Solver` lists."""

    def decorate(cls: type) -> type:
        for key, value in says.items():
            setattr(cls, key, value)
        return register(name, cls)

    return decorate


def updated(solver: Solver, state: State, batch: Batch) -> tuple[State, Info]:
    """One update of a solver, which may be one of a user.

    Raises:
        TypeError: it gives something else than the next state and an `Info`.
    """
    result = solver.update(state, batch)
    if not isinstance(result, tuple) or [type(part) for part in result[1:]] != [Info]:
        raise TypeError(
            f"{type(solver).__name__}.update must return two values, the next state and a "
            f"jaxsvm.Info, got {shown(result)}"
        )
    return result


def said(state: State, word: str, default: object = None) -> Any:
    """What the class of a state says of itself by one of the attributes that `Solver` lists."""
    return getattr(state, word, default)


def from_step_0(state: State) -> State:
    """The `restart` of a state whose `steps` are all that is of the run."""
    return state._replace(steps=jnp.zeros_like(state.steps))


class Wrapper(Solver):
    """A solver with another solver inside, to which it leaves what it does not change."""

    inner: Solver

    sampler = property(lambda self: self.inner.sampler)
    needs_all_rows = property(lambda self: self.inner.needs_all_rows)
    targets = property(lambda self: self.inner.targets)
    residual_of = property(lambda self: self.inner.residual_of)
    iterates_to = property(lambda self: self.inner.iterates_to)
    has_map = property(lambda self: self.inner.has_map)
    lays_out = property(lambda self: self.inner.lays_out)

    def check(self) -> None:
        _ = self.inner  # one that is worked out refuses what it cannot be made of

    def init(self, key: Array, data: Batch) -> State:
        return self.inner.init(key, data)

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        return updated(self.inner, state, batch)

    def model(self, state: State, data: Batch | None = None) -> Model:
        return self.inner.model(state, data)

    def validate(self, data: Batch) -> None:
        self.inner.validate(data)

    def refuse_open(self, x: object) -> None:
        self.inner.refuse_open(x)

    def prepare(self, data: Batch) -> Batch:
        return self.inner.prepare(data)

    def layout(self, data: Batch) -> Batch:
        return self.inner.layout(data)


class Space(Node):
    """A function space with the operations of which SVM steps consist."""

    example: ClassVar[str] = "a space such as jaxsvm.spaces.linear()"
    needs_all_rows: Any = False  # as of `Solver`

    def zero(self, key: Array, data: Batch) -> State:
        """The function 0; its arrays are its own."""
        raise NotImplementedError

    def evaluate(self, f: State, batch: Batch) -> Array:
        """The values at the rows of the step, (b,)."""
        raise NotImplementedError

    def sqnorm(self, x: Array) -> Array:
        """The values k(x_i, x_i), (n,)."""
        raise NotImplementedError

    def add(self, f: State, shrink: Array, coef: Array, batch: Batch) -> State:
        """The function (1 - shrink) f + sum_i coef_i k(x_i, .)."""
        raise NotImplementedError

    def model(self, f: State, data: Batch | None = None) -> Model:
        """The function as a model; `data` as of `Solver.model`."""
        raise NotImplementedError

    def gram(self, batch: Batch) -> Array:
        """The kernel among the rows of the step, (b, b)."""
        raise NotImplementedError

    def evals(self, coef: Array, batch: Batch) -> Array:
        """The kernel evaluations of `evaluate` and `add` together, as `Info.evals`."""
        raise NotImplementedError

    def support(self, f: State) -> Array:
        """The number of coefficients that are not 0, () int32."""
        raise NotImplementedError

    def layout(self, data: Batch) -> Batch:
        """As `Solver.layout`."""
        return data


class Loss(Node):
    """A convex loss of the score f at target y, as a node with methods, elementwise in both.

    It has those that primal and dual methods need. Subgradients are defined explicitly, not by
    automatic differentiation. What a method needs:

    - value and slope: pegasos, asset, asgd, bottou_sgd, subgradient, ocas, svm_perf and cpsp;
    - curvature too: newton, linear_svm, and derivatives of their models;
    - curvature and conjugate too: proximal_newton;
    - dual_step and conjugate too: sdca and cocoa;
    - quadratic too: decomposition, interior_point, augmented_lagrangian and dual_descent;
    - conjugate: `certificate`.

    The four after `slope` are None where they are not known:

        conjugate(slope, y)                    sup_f slope f - loss(f, y), inf outside its domain
        dual_step(coef, score, y, sqnorm, C)   the coefficient that maximises the dual, the others
                                               fixed
        quadratic(y, C)                        the loss's term of the dual, a `Quadratic`
        curvature(score, y)                    the derivative of a continuous slope

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> @jaxsvm.node
        ... class absolute(jaxsvm.Loss):
        ...     labels = False
        ...     def value(self, f, y):
        ...         return jnp.abs(f - y)
        ...     def slope(self, f, y):
        ...         return jnp.sign(f - y)
        >>> absolute()(jnp.array([3.0]), jnp.array([1.0])).tolist()
        [2.0]
    """

    example: ClassVar[str] = "a loss such as jaxsvm.losses.hinge"
    labels: Any = True  # a function of the margin y f with y in {-1, +1}; False: real targets
    multiclass: Any = False  # of scores (b, k), and class numbers as targets
    conjugate: Any = None
    dual_step: Any = None
    quadratic: Any = None
    curvature: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not type(self).__module__.startswith(f"{__package__}."):
            self.check_functions()

    @classmethod
    def admit(cls, name: str, value: object) -> Loss:
        """The loss; raise for one that couples rows, or of the scores of all classes."""
        refuse_joint(name, value)
        loss = super().admit(name, value)
        if loss.multiclass:
            raise ValueError(
                f"{name} must be one of single scores here, and {shown(value)} needs a score of "
                f"each class: take jaxsvm.ocas(lam, loss={shown(value)}, classes=k), or another "
                "loss and jaxsvm.one_vs_rest(solver, classes=k)"
            )
        return loss

    def check_functions(self) -> None:
        """Raise for functions of the user that do not give one number for each score.

        They are traced for three rows. Dual functions that fail pass, as primal methods call none.

        Raises:
            TypeError, ValueError: with the name of the function, and what it gives.
        """
        y = jax.ShapeDtypeStruct((3,), jnp.float32)
        score = jax.ShapeDtypeStruct((3, 2), jnp.float32) if self.multiclass else y
        for field in ("value", "slope", "curvature", "conjugate", "dual_step"):
            fn, dual = getattr(self, field), field in ("conjugate", "dual_step")
            if fn is None:
                continue
            args = (score, score, y, y, y) if field == "dual_step" else (score, y)
            unused = contextlib.suppress(Exception) if dual else contextlib.nullcontext()
            result: Any = None
            with unused, calling(f"{field} of loss", fn, "(n,), (n,) -> (n,)", *args):
                with jax.numpy_dtype_promotion("standard"):  # numbers may be of another float
                    result = jax.eval_shape(fn, *args)
            shape = score.shape if field in ("slope", "dual_step") else y.shape
            wrong = not is_array(result) or result.shape != shape or not is_numeric(result.dtype)
            if wrong and not (dual and result is None):
                raise ValueError(
                    f"{field} of loss must give one number for each score, got {shown(result)} for "
                    f"scores of shape {score.shape}"
                )

    def value(self, score: Array, y: Array) -> Array:
        """The loss of each score at its target."""
        raise NotImplementedError

    def slope(self, score: Array, y: Array) -> Array:
        """An element of the subdifferential in the score."""
        raise NotImplementedError

    def __call__(self, score: object, y: object) -> Array:
        """The loss of each score at its target, with `slope` as its derivative in the score.

        Example:
            >>> import jax.numpy as jnp
            >>> from jaxsvm import losses
            >>> losses.hinge(jnp.array([0.5, 2.0]), jnp.array([1, 1])).tolist()
            [0.5, 0.0]
        """
        return _loss_values(self, *as_scores(score, y))


@jax.custom_jvp
def _loss_values(loss: Loss, score: Array, y: Array) -> Array:
    """The values of a loss; the derivative in the score is its slope, also at a kink."""
    return loss.value(score, y)


@_loss_values.defjvp
def _loss_values_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (loss, score, y), (loss_tangent, score_tangent, y_tangent) = primals, tangents
    rest = lambda loss, y: loss.value(score, y)
    values, tangent = jax.jvp(rest, (loss, y), (loss_tangent, y_tangent))
    change = loss.slope(score, y) * score_tangent
    return values, tangent + (jnp.sum(change, -1) if change.ndim > values.ndim else change)


def as_scores(score: object, y: object) -> tuple[Array, Array]:
    """Scores and targets as arrays of floating numbers; labels that are integers are converted."""
    score, y = jnp.asarray(score), jnp.asarray(y)
    is_real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    score = score if is_real(score) else score.astype(jnp.float32)
    return score, y if is_real(y) else y.astype(score.dtype)


class JointLoss(Node):
    """A convex loss of the scores of all rows together, such as that of ranking."""

    example: ClassVar[str] = Loss.example
    labels: ClassVar[bool] = False  # as of `Loss`
    smooth: Any = False  # whether the slope is continuous: the risk has a Hessian

    def joint(self, data: Batch) -> Any:
        """The risk of rows, see `jaxsvm.risks`."""
        raise NotImplementedError


AnyLoss: TypeAlias = Loss | JointLoss


class Quadratic(NamedTuple):
    """One coefficient's term of a quadratic dual: y coef - l1 |coef| - l2/2 coef^2 on [low, high].

    This is -C conjugate(-coef / C, y). low <= 0 <= high; both are 0 where C is 0.
    """

    low: Array  # (n,)
    high: Array  # (n,)
    l1: Array | None = None  # (n,)  >= 0; None: 0
    l2: Array | None = None  # (n,)  >= 0; None: 0


class Certificate(NamedTuple):
    """An upper bound on the suboptimality of a model: primal(model) - optimum <= gap."""

    primal: Array  # ()
    dual: Array  # ()
    gap: Array  # ()   primal - dual, computed as a sum of non-negative terms
    # the dual coefficients are those of the model; False: they were computed from its margins
    exact: bool | Array

    def __repr__(self) -> str:
        return printing.of_certificate(self) if has_values(self) else "Certificate without values"


class RunState(NamedTuple):
    """The state that `fit` resumes from."""

    solver: State
    sampler: State
    step: Array  # ()  int32, updates made
    done: Array  # ()  bool, the tolerance was met
    # (6,) uint32, of which rows, numbers and names the state is, see `loops.origin`; None:
    # it is not known, and `fit` goes on with any
    origin: Any = None


class Curve(NamedTuple):
    """The run as a table: one row for each chunk of `every` steps, and for a shorter last chunk."""

    step: Array  # (p,)  int32, updates made by the end of the chunk
    loss: Array  # (p,)  mean of info.loss over the chunk
    residual: Array  # (p,)  at the end of the chunk
    support: Array  # (p,)  at the end of the chunk
    evals: Array  # (p,)  kernel evaluations of the chunk
    probe: Any  # results of the probe, with a leading axis (p,)


# residual, in units of the rounding error of decision values, from which on more steps may help
MOST_ROUNDINGS = 10
# why the host ended a run, by their numbers in `Fit.ended`
STEPS, SECONDS, INTERRUPTED = range(3)


class Fit(NamedTuple):
    """The result of `fit`: a pytree, so that `fit` runs under vmap, jit and grad."""

    model: Model
    state: RunState
    info: Curve
    tol: Array  # ()  nan if there was no tolerance
    # ()  bool, of decision values at some training rows and of the last loss
    values_finite: Any = True
    # ()  int32, why the host ended the run: STEPS, SECONDS or INTERRUPTED; None: STEPS
    ended: Any = None
    classes: Any = None  # what `predict` gives, `models.Classes`

    def __repr__(self) -> str:
        if not has_values(self):
            return f"Fit of {type(self.model).__name__}, without values"
        return printing.of_fit(self)

    def predict(self, x: Any) -> Any:
        """The predicted class of each row, by its name; of real targets the values of the model.

        Args:
            x: (m, d) rows: an array, `SparseRows` or a sparse matrix of SciPy. They are padded, so
                that four programs serve all m, see `models.decision_values`.

        Returns:
            (m,) names of classes, on the host: those of `dataset`, else -1 and +1, or class
            numbers. Of two classes the second is predicted where the value is above 0.

        Raises:
            ValueError: for decision values that are not finite.

        Example:
            >>> import jax, jaxsvm
            >>> data = jaxsvm.dataset([[1.0], [-1.0]], ["spam", "ham"])
            >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
            >>> result.predict([[2.0], [-3.0]]).tolist()
            ['spam', 'ham']
        """
        if self.classes is None:  # of a run inside of a transformation
            return self.model(x)
        return self.classes.predict(self.model, x)

    @property
    def classifier(self) -> Model:
        """The model with the names of its classes, as `models.Classifier`: for files and serving.

        Raises:
            AttributeError: the targets are real.
        """
        return self.classes.classifier(self.model)

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met, and the run is finite (for every run of a batch)."""
        return bool(np.all(np.asarray(self.state.done))) and self.finite

    @property
    def finite(self) -> bool:
        """Whether the model, the last loss and the weights of rows are finite.

        Of the model these are its numbers, and its decision values at some training rows. No loss
        of the curve may be nan, and no weight below 0.
        """
        return bool(np.all(self._finite_runs()))

    @property
    def evals(self) -> int:
        """Kernel evaluations of this call, to the digits of the numbers of its chunks."""
        return int(np.asarray(self.info.evals, np.float64).sum())

    @property
    def reason(self) -> str | np.ndarray:
        """Why the run ended; for a batch of runs an array of strings.

        "diverged": the model or the last loss is not finite. "interrupted": by Ctrl-C. "tolerance":
        it was met. "seconds": they were over. "steps": all were made (of a stream: all chunks
        read). The first of these that holds.

        Example:
            >>> import jax, jaxsvm
            >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
            >>> jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=5).reason
            'steps'
        """
        done = np.asarray(self.state.done)
        ended = np.asarray(STEPS if self.ended is None else self.ended)
        words = ["diverged", "interrupted", "tolerance", "seconds"]
        held = [~self._finite_runs(), ended == INTERRUPTED, done, ended == SECONDS]
        reason = np.select(held, words, "steps")
        return reason if done.ndim else str(reason)

    def _finite_runs(self) -> np.ndarray:
        """Whether each of a batch of runs is finite."""
        shape = np.shape(self.state.done)
        finite = np.ones(shape, bool) & np.asarray(self.values_finite)
        for leaf in inexact_leaves(self.model):
            # a part of the model that all runs share has no axes of the batch
            own_axes = shape if leaf.shape[: len(shape)] == shape else ()
            finite &= np.isfinite(leaf).reshape(*own_axes, -1).all(axis=-1)
        return finite

    @property
    def status(self) -> str:
        """One sentence on how the run ended and on its residual."""
        done, steps = np.asarray(self.state.done), np.asarray(self.state.step)
        if done.ndim:
            broken = "" if self.finite else "; some hold numbers that are not finite"
            met = f"{done.size} runs, {done.sum()} converged"
            return f"{met}, after {steps.min()} to {steps.max()} steps{broken}"
        count, reason = f"{steps} step{'' if steps == 1 else 's'}", self.reason
        if reason == "diverged":
            values = "decision values of the model, or its losses, are"
            return (
                f"the {values if all_finite(self.model) else 'model is'} not finite after {count}: "
                "look at the scale of the data and at the step size, at weights of rows and at the "
                "row numbers that the sampler draws"
            )
        cause = {"interrupted": "interrupted: ", "seconds": "out of time: "}.get(str(reason), "")
        if not self.info.step.shape[0]:
            return f"{cause}no step was made; the run stands at step {steps}"
        knows = lambda node: isinstance(said(node, "method"), str)
        parts = jax.tree.leaves(self.state.solver, is_leaf=knows)
        method = next((f"{part.method} " for part in parts if knows(part)), "")
        # a chunk of a stream that filled no batch has none
        residuals = [r for r in np.asarray(self.info.residual, np.float64) if not np.isnan(r)]
        residual, tol = [np.nan, *residuals][-1], float(self.tol)
        if done:
            met = f"tolerance {tol:.1e} met, residual {residual:.1e}"
            return f"{cause}{method}converged after {count}: {met}"
        goal = "" if np.isnan(tol) else f", tolerance {tol:.1e} not met; {self._advice(residual)}"
        return f"{cause}{method}stopped after {count}; residual {residual:.1e}{goal}"

    def _advice(self, residual: float) -> str:
        """What to do about a tolerance that was not met, for `status`."""
        model: Any = self.model
        while not hasattr(model, "rounding") and hasattr(model, "inner"):
            model = model.inner
        rounding = model.rounding() if hasattr(model, "rounding") else 0.0
        if not 0 < residual <= MOST_ROUNDINGS * rounding:
            return "go on with state=run.state"
        left = f"rounding to {model.coef.dtype} leaves about {rounding:.1e}"
        return f"{left}: lower C, scale the columns, or use 64-bit numbers"


def same_structure(a: object, b: object) -> bool:
    """Whether two trees have the same structure."""
    structure: Any = jax.tree.structure(a)
    return bool(structure == jax.tree.structure(b))


def all_finite(tree: object) -> bool:
    """Whether all floating-point numbers of a tree are finite; on the host."""
    return all(bool(np.all(np.isfinite(leaf))) for leaf in inexact_leaves(tree))


def inexact_leaves(tree: object) -> list[np.ndarray]:
    """The leaves of floating-point numbers, on the host."""
    is_inexact = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def check_batch(name: str, data: object) -> None:
    """Raise unless `data` is a `Batch` whose fields have the same number of rows.

    Raises:
        TypeError: not a `Batch`, or a field is not an array.
        ValueError: the fields differ in their number of rows.
    """
    if not isinstance(data, Batch):
        raise TypeError(
            f"{name} must be a Batch, such as jaxsvm.dataset(x, y), got {type(data).__name__}: "
            + (
                "take one of those in it, train, test = loaded"
                if isinstance(data, tuple) and any(isinstance(part, Batch) for part in data)
                else shown(data)
            )
        )
    if data.classes is not None and not hasattr(data.classes, "names"):
        raise TypeError(
            f"classes of {name} must be jaxsvm.models.Classes(names), got {shown(data.classes)}"
        )
    for field, part in zip(data._fields[:5], data[:5], strict=True):
        if not is_array(part) and (field != "query" or part is not None):
            raise TypeError(
                f"{field} of {name} must be an array, got {shown(part)}: make the "
                "batch with jaxsvm.dataset(x, y)"
            )
    front, y, weight = np.shape(data.x)[:1], np.shape(data.y), np.shape(data.weight)
    # (n,), or (n, k) of y or of both
    if front not in (y, y[:-1]) or weight not in (front, y):
        raise ValueError(
            f"{name} must hold one target and one weight for each of its "
            f"{np.shape(data.x)[0] if np.ndim(data.x) else 0} rows, got shapes {y} and {weight}: "
            "take rows with jaxsvm.take(data, index)"
        )
    if data.query is not None and np.shape(data.query) != y[:1]:
        raise ValueError(
            f"{name} must hold one query for each of its {y[0]} rows, got shape "
            f"{np.shape(data.query)}: take rows with jaxsvm.take(data, index)"
        )


def check_weights(name: str, data: Any) -> None:
    """Raise unless `data` is a `Batch` whose weights, where they are known, may be those of rows.

    Raises:
        TypeError, ValueError: as `check_batch`; weights that are negative, not finite, or all 0.
    """
    check_batch(name, data)
    if not has_values(data.weight) or not data.weight.shape[0]:
        return
    weight = np.asarray(data.weight)
    wrong = np.argwhere(~((weight >= 0) & (weight < np.inf)))
    if len(wrong):
        raise ValueError(
            "weights must be finite numbers of at least 0, got "
            f"{float(weight[tuple(wrong[0])]):g} for row {wrong[0][0]}: give the row another "
            "weight, or 0 to leave it out"
        )
    if not weight.any():
        raise ValueError(f"{name} must hold a row of positive weight, got weights of 0 only")


def take(data: Batch, index: Array, *, copy: bool = True) -> Batch:
    """The rows `index` of `data` as a batch; -1 gives a padding row of weight 0.

    Args:
        data: n rows.
        index: (b,) int32 in [-1, n), or a list of integers. Other numbers become -1 where their
            values are not known, inside of transformations.
        copy: False: sparse rows are selected by reference, for loops over constant data; structure.

    Raises:
        TypeError: data is not a `Batch`, or index not a vector of integers.
        ValueError: known row numbers are out of range.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [-1, 1])
        >>> jaxsvm.take(data, jnp.array([1, -1])).weight.tolist()
        [1.0, 0.0]
    """
    check_batch("data", data)
    index = row_numbers("index", index, data.y.shape[0])
    if copy and isinstance(index, jax.core.Tracer):
        index = jnp.where((index >= 0) & (index < data.y.shape[0]), index, -1)
    return rows_at(data, index, copy=copy)


def rows_at(data: Batch, index: Array, *, copy: bool = True) -> Batch:
    """As `take`, of row numbers that were checked."""
    safe = jnp.maximum(index, 0)
    if isinstance(data.x, SparseRows) and not (copy and data.x.is_plain):
        rest = rows_at(data._replace(x=data.index), index)
        rows = safe if data.x.rows is None else data.x.rows.at[safe].get(mode="promise_in_bounds")
        x = dataclasses.replace(data.x, rows=rows)
        return rest._replace(x=x.materialize() if copy else x)
    pick: Callable = lambda a: a.at[safe].get(mode="promise_in_bounds")
    if index.shape[0] == 1:  # a slice compiles to less than a gather
        pick = lambda a: lax.dynamic_slice_in_dim(a, safe[0], 1)
    return _without_padding(jax.tree.map(pick, data), index)


def _without_padding(subset: Batch, index: Array) -> Batch:
    """The rows with these numbers, of weight 0 where it is -1."""
    exists = index >= 0 if subset.weight.ndim == 1 else (index >= 0)[:, None]
    weight = jnp.where(exists, subset.weight, jnp.zeros_like(subset.weight))
    return subset._replace(index=index, weight=weight)


def row_weights(data: Batch) -> Batch:
    """The data with one weight for each row, the largest of those of its targets."""
    if data.weight.ndim == 1:
        return data
    return data._replace(weight=jnp.max(data.weight, axis=1))


def column(data: Batch, c: int | str) -> Batch:
    """The rows with the c-th of their targets alone, and its weights.

    Args:
        data: n rows with targets (n, k).
        c: from 0 to k - 1, or the name of a label.

    Raises:
        ValueError: one target a row, or no such column.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [[1, 0], [1, 1]])
        >>> jaxsvm.column(data, 1).y.tolist()
        [-1.0, 1.0]
    """
    check_batch("data", data)
    names = [] if data.classes is None else list(data.classes.names)
    place = names.index(c) if isinstance(c, str) and c in names else c
    is_column = not isinstance(place, str) and data.y.ndim > 1 and 0 <= place < data.y.shape[1]
    if not is_column:
        named = f", named {', '.join(map(str, names[:12]))}" if names else ""
        raise ValueError(f"the targets of shape {data.y.shape}{named} have no column {c!r}")
    weight = data.weight if data.weight.ndim == 1 else data.weight[:, place]
    rest = None if data.classes is None else dataclasses.replace(data.classes, names=())
    return data._replace(y=data.y[:, place], weight=weight, classes=rest)


def take_by_block(data: Batch, index: Array, blocks: int) -> Batch:
    """The rows `index` (b,) of `data`, where part j of them is from the j-th of equal blocks.

    It is `take` as one gather within each block: no row leaves its device.
    """
    n = data.y.shape[0] // blocks
    first = n * jnp.arange(blocks, dtype=jnp.int32)[:, None]
    local = jnp.clip(index.reshape(blocks, -1) - first, 0, n - 1)  # -1 becomes a row of the block
    x = data.x.materialize() if isinstance(data.x, SparseRows) else data.x
    gather = jax.vmap(lambda a, i: a.at[i].get(mode="promise_in_bounds"))
    parts = lambda a: gather(a.reshape(blocks, n, *a.shape[1:]), local).reshape(-1, *a.shape[1:])
    return _without_padding(jax.tree.map(parts, data._replace(x=x)), index)


def drawn(batch: Batch, needs_all_rows: bool) -> Batch:
    """The rows of the step for either value of `Solver.needs_all_rows`."""
    return take(batch, batch.index) if needs_all_rows else batch


def refuse_joint(name: str, value: object) -> None:
    """Raise TypeError for a loss that couples rows, where one of single rows is needed."""
    if isinstance(value, JointLoss):
        raise TypeError(
            f"{name} must be one of single rows here, and {shown(value)} couples rows: take a "
            f"solver of joint risks, jaxsvm.ocas(lam, loss={shown(value)}), or train on "
            "differences of rows, jaxsvm.fit(..., sampler=jaxsvm.samplers.pairs())"
        )


def require(loss: object, field: str, instead: str) -> None:
    """Check that a loss has the function of that name.

    Raises:
        ValueError: it has none; `instead` says what can do without it.
    """
    if getattr(loss, field) is None:
        raise ValueError(f"{shown(loss)} has no {field}: give it one, or take {instead}")


for _type in (Batch, Certificate, Curve, Fit, Info, Lifted, SparseRows):
    register(_type.__name__, _type)
register("Run", RunState)  # its name in files
