"""The base of all support vector machines: checks, runs, decision values, fitted attributes."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .. import samplers
from ..checks import caller_stacklevel, check_positive, is_key, x64_enabled
from ..data.from_arrays import check_digits
from ..data.target_columns import has_columns
from ..loops import fit as run_solver
from ..loops.checks import whole_number
from ..models import Classifier, Expansion, Linear, support_index
from ..types import Batch, Fit, RunState, Sampler, Solver
from ..wrappers import OneVsOne, OneVsRest
from ..wrappers.problems import MaskedState
from .compact import add_to_intercept, apply, compact, inner_of, on_rows, with_inner
from .pairs import fit_problems, problems_of
from .parameters import RunParameters, is_matrix, takes_matrix
from .preprocess import (
    batch,
    drop_absent,
    equal_trees,
    is_sparse,
    make_seed,
    merge_duplicates,
    pad_columns,
    padded_rows,
    to_train_dtype,
    validate,
)
from .starts import Solution, start_of, streams

PASSES, MEASURED_PASSES = 10, 1000  # defaults: without a tolerance, and at most with one

LEAST = 32  # rows of more columns than rows are padded to so many at least

SHORT_PASS = 10_000  # copies of a row count as rows in passes of at most so many rows


class MergedRows(NamedTuple):
    """The rows of a run: of positive weight, merged where they are equal, and padded."""

    x: Any  # (n, d)
    index: np.ndarray  # type: ignore[assignment]  # (n,)  of the rows in the user's data
    copies: np.ndarray  # (n,)  sums of sample weights; 0 for padding
    weight: np.ndarray  # (n,)  the same times class weights
    n_rows: int  # without padding
    group: np.ndarray  # (rows of the user,)  numbers of merged rows, or -1


class Targets(NamedTuple):
    """What the checked rows are trained on."""

    value: np.ndarray  # (n,)  labels, class numbers or real numbers
    names: tuple | None = None  # of the classes
    place: Any = None  # (n,)  class numbers
    class_weight: Any = None  # (k,)
    factors: Any = 1.0  # (n,)  on the weights of the rows
    reduce: Callable | None = None  # (solver, classes=k) -> the solver of k > 2 classes
    query: Any = None  # (n,)  numbers of the queries

    @property
    def key(self) -> np.ndarray:
        """Numbers of the rows, (n,); only rows of equal ones may be merged."""
        if self.query is None:
            return self.value
        rows = np.stack([self.query, self.value], axis=1)
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)

    def solver_of(self, solver: Solver) -> Solver:
        """The solver of all classes by that of two."""
        k = 0 if self.names is None else len(self.names)
        return solver if k <= 2 or self.reduce is None else self.reduce(solver, classes=k)


Rows = tuple[Any, np.ndarray, np.ndarray]  # rows, targets and weights
Trained = tuple[Targets, np.ndarray]  # and the number of the merged row of each row, or -1


class Spec(NamedTuple):
    """How a machine is trained on its rows."""

    solver: Any  # of two classes, or of real targets
    steps: int | None = None  # updates; None: by `passes`
    passes: int | None = None  # over the rows at most; None: `PASSES` or `MEASURED_PASSES`
    tol: Any = None  # a number, "auto" or None
    sampler: Any = None  # None: that of the solver
    length: str = "max_iter"  # the parameter that sets the length of a run, for messages
    accepted: float = -np.inf  # there is no warning where the residual is at most this
    iterations: Callable | None = None  # (run) -> n_iter_; None: passes, or updates on all rows
    name: str | None = None  # of the solver, for the attribute `solver_`


class BaseSVM(RunParameters, BaseEstimator):
    """Fitting and decision values; a subclass says by `_spec` how it is trained.

    `_spec(rows, previous)` makes the `Spec` of `MergedRows`, or of None where the solver has any
    kernel. `previous` is the solver of the last call of `partial_fit`, None in the first. Machines
    of `GridCV` take `**numbers`, too, which replace parameters of the same name.
    """

    _structure: tuple[str, ...] = ()  # parameters that stay as they are between partial fits
    _takes_matrix = True  # whether the kernel may be precomputed
    _no_partial_fit: ClassVar[Any] = ""  # a sentence where the parameters are of no `partial_fit`
    _by_pairs = False  # whether decision values of votes are those of pairs of classes
    _least_rows = 256  # of a program
    _packs_rows = False  # whether solvers with a layout of their own read packed sparse rows
    _last: Solution | None = None  # at which the next fit with `warm_start` begins
    # of machines without such a parameter
    kernel: Any = None
    solver: Any = None
    _centre: float = 0.0  # subtracted from real targets in float64; part of a free intercept
    _unit: ClassVar[Any] = 1  # by which rows are divided
    _solver: Any
    _seed: int
    _calls: int
    _kernel_rows: Any = None  # training rows, where the kernel is a function of arrays

    @property
    def _columns(self) -> str:
        """What the columns of X are: "rows", "padded" or "fixed".

        "rows" are the training rows, of a precomputed kernel. To "padded" ones columns of zeros may
        be added without an effect, which is known of kernels by name, so that data of similar width
        share a program.
        """
        if self._is_pairwise() or self._kernel_rows is not None:
            return "rows"
        by_name = isinstance(self.solver, str | None)
        return "padded" if by_name and isinstance(self.kernel, str | None) else "fixed"

    def _is_pairwise(self) -> bool:
        """Whether the user gives a precomputed kernel in place of rows."""
        return self._takes_matrix and (is_matrix(self.kernel) or takes_matrix(self.solver))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_pairwise()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Rows:
        """The checked rows in the precision that they came in, targets and weights."""
        if any(map(np.ma.is_masked, (X, y))):
            raise ValueError(
                "X or y has masked entries, which are no numbers: drop such rows or fill them in"
            )
        if has_columns(y):
            raise ValueError(
                f"y should be a 1d array, got an array of shape {np.shape(y)} instead: for several "
                "columns put sklearn.multioutput.MultiOutputClassifier or MultiOutputRegressor "
                "around this machine, or fit jaxsvm.multi_output"
            )
        X, y = validate(self, X, y, reset=reset, y_numeric=isinstance(self, RegressorMixin))
        y = np.asarray(y.toarray() if is_sparse(y) else y)
        if self._columns == "rows" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed kernel needs a square matrix of training rows, got shape {X.shape}"
            )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weight < 0).any():
            raise ValueError("sample_weight must be at least 0 everywhere; 0 leaves a row out")
        if not (weight > 0).any():
            raise ValueError("all sample weights are zero: no row is left to train on")
        check_digits(X, np.dtype(np.float64 if x64_enabled() else np.float32))
        return X, y, weight

    def __getstate__(self) -> dict:
        """The attributes with arrays of NumPy, which other programs read without JAX's devices."""
        on_host = lambda value: value if isinstance(value, dict) else jax.tree.map(_on_host, value)
        return {name: on_host(value) for name, value in super().__getstate__().items()}

    @contextlib.contextmanager
    def _restore_on_error(self) -> Iterator[None]:
        """Restore the attributes if the body fails."""
        attributes = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(attributes)
            raise

    def _prepared(self, x: object, weight: np.ndarray) -> tuple[Any, bool]:
        """The rows as solvers take them, and whether equal ones may be merged."""
        return x, True

    def _merged(self, x: Any, targets: Targets, weight: np.ndarray) -> MergedRows:
        """The rows as they are trained on: merged where they are equal."""
        x, merge = self._prepared(x, weight)
        x, key = to_train_dtype(x, weight), targets.key
        rows, copies, group = (merge_duplicates if merge else drop_absent)(x, key, weight)
        least = self._least_rows if x.shape[1] <= len(rows) else LEAST
        padding = padded_rows(len(rows), least) - len(rows)
        index = np.concatenate([rows, np.full(padding, rows[0])])
        copies = np.concatenate([copies, np.zeros(padding)])
        x = x[index][:, index] if self._columns == "rows" else x[index]
        total = copies * np.broadcast_to(targets.factors, len(weight))[index]
        return MergedRows(x, index, copies, total, len(rows), group)

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        """What rows with checked targets and weights are trained on."""
        return Targets(y.astype(np.float64) - self._centre)

    def _train(self, x: Any, y: np.ndarray, weight: np.ndarray, **more: Any) -> Trained:
        """Set the fitted attributes from checked rows; the result is that of `_targets` and `_run`.

        `more` are arguments of `_run`; without any the run may begin at the last solution.
        """
        targets = self._targets(y, weight)
        return targets, self._run(x, targets, weight, **more or {"warm": self.warm_start})

    def _run(
        self,
        x: object,
        targets: Targets,
        weight: np.ndarray,
        *,
        state: object = None,
        one_pass: bool = False,
        warm: bool = False,
    ) -> np.ndarray:
        """Train on checked rows; the result is the number (n,) of the merged row of each, or -1.

        A `warm` run begins at the solution of the last one.
        """
        rows = self._merged(x, targets, weight)
        index, n, d = rows.index, len(rows.index), rows.x.shape[1]
        spec = self._spec(rows, None if state is None else self._solver)
        solver = targets.solver_of(spec.solver)
        data = self._data(rows, targets, solver)
        key, now = self._next_key(state is None), None
        if self.warm_start:
            columns = 0 if self._columns == "rows" else d
            now = Solution.of(spec.solver, rows.x, targets.value[index], targets.names, columns)
            state = start_of(self._last, now, targets.solver_of, key, data) if warm else state
        sampler = spec.sampler or solver.sampler or samplers.uniform(1)
        copies = int(np.where(weight == np.rint(weight), weight, 1.0).sum())
        n_rows = max(rows.n_rows, min(copies, SHORT_PASS))
        plan = plan_of(spec, solver, sampler, n_rows, n, one_pass=one_pass)
        progress = self.progress or bool(self.verbose)
        at_once = now is None and not progress and is_one_update(spec, solver)
        problems = problems_of(solver, spec.solver, data) if at_once else []
        if problems:
            run = fit_problems(solver, spec.solver, data, problems, key, plan["tol"])
        else:
            if state is not None:  # the solver keeps its step counter, the rows are new
                start: Any = np.int32(0), np.bool_(False)
                state = RunState(state, sampler.init(key, data), *start)
            plan |= {"state": state, "sampler": sampler, "progress": progress}
            run = run_solver(solver, data, key, **plan)
        warn_unless_accepted(run, spec, plan["tol"])
        self.model_ = self._model_of_user(run.model, rows, targets.names)
        self._solver = spec.solver
        self._last = now and now._replace(state=run.state.solver)
        if spec.name is not None:
            self.solver_ = spec.name
        self._fitted_with = {name: getattr(self, name) for name in self._structure}
        kept = run.state._replace(solver=run.state.solver if streams(solver) else (), sampler=())
        self.fit_ = run._replace(model=self.model_, state=kept)
        steps = int(run.state.step)
        passes = steps if sampler.full_batch else -(-steps * sampler.rows(n) // n_rows)
        self.n_iter_ = max(1, passes if spec.iterations is None else spec.iterations(run))
        return rows.group

    def _model_of_user(self, model: object, rows: MergedRows, names: tuple | None) -> Any:
        """The model of padded rows as one of the rows and targets of the user."""
        rescaled = lambda w: (np.asarray(w) / self._unit).astype(w.dtype)
        in_unit = lambda model: dataclasses.replace(model, w=rescaled(model.w))
        model = compact(model, rows.index, rows.x.shape[1])
        model = with_inner(model, in_unit) if self._unit != 1 else model
        model = add_to_intercept(model, self._centre) if self._centre else model
        return model if names is None else Classifier(model, names)

    def _data(self, rows: MergedRows, targets: Targets, solver: Solver) -> Batch:
        """The data set of rows, with columns of zeros where programs share sizes."""
        x = pad_columns(rows.x) if self._columns == "padded" else rows.x
        query = None if targets.query is None else targets.query[rows.index]
        is_cpu = self._packs_rows and jax.default_backend() == "cpu"
        packed = is_cpu and is_sparse(x) and solver.lays_out
        return batch(x, targets.value[rows.index], rows.weight, query, packed)

    def _partial_options(self, first: bool) -> dict:
        """Options of `_run` for one call of `partial_fit`.

        Raises:
            ValueError: a parameter that is structure has changed.
        """
        for name in () if first else self._structure:
            before, now = self._fitted_with[name], getattr(self, name)
            if not equal_trees(before, now):
                raise ValueError(
                    f"{name} is {before!r} since the first rows, got {now!r}: call fit for a new "
                    "model, or set it back for partial_fit"
                )
        return {"state": None if first else self.fit_.state.solver, "one_pass": True}

    def _next_key(self, first: bool) -> jax.Array:
        """The key of a run, or of the next call of `partial_fit`."""
        if first:
            self._seed, self._calls = make_seed(self.random_state), -1
        self._calls += 1
        # of 0 and n it is `jax.random.key(n)`, by its bits: without a program
        bits = jax.device_put(np.array([self._calls, self._seed], np.uint32))
        return jax.random.wrap_key_data(bits, impl="threefry2x32")

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return self._values(validate(self, X, reset=False))

    @property
    def _of_pairs(self) -> bool:
        """Whether decision values are those of pairs of classes."""
        return self._by_pairs and isinstance(self.model_.inner, OneVsOne)

    def _values(self, X: Any) -> np.ndarray:
        """Decision values of checked rows."""
        outer, model = self.model_, inner_of(self.model_)
        outer = outer.inner if isinstance(outer, Classifier) else outer
        outer = OneVsRest(outer.inner, outer.stacked) if self._of_pairs else outer
        if isinstance(model, Linear) and not isinstance(outer, OneVsOne):
            # on the host: nothing is compiled or copied to a device
            weights, b = np.asarray(model.w, np.float64), np.asarray(model.b, np.float64)
            return safe_sparse_dot(X, weights.T, dense_output=True) + b
        if isinstance(model, Expansion) and self._columns == "rows":
            X = X[:, np.maximum(np.asarray(model.index), 0)]
        if self._centre:  # added in float64
            values = apply(add_to_intercept(outer, -self._centre), X)
            return values.astype(np.float64) + self._centre
        return apply(outer, X)


class ModelAttributes(BaseSVM):
    """A machine whose attributes are read from its model."""

    def _field(self, name: str, kind: Any, fn: Callable) -> np.ndarray:
        check_is_fitted(self, "model_")
        model = inner_of(self.model_)
        if not isinstance(model, kind):
            raise AttributeError(
                f"a model of {type(model).__name__} has no {name}: look into model_"
            )
        return fn(model)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model.

        The shape is (1, d), (k, d) or for pairs (k(k-1)/2, d) of a classifier, (d,) of a regressor.
        """
        shape = np.atleast_2d if isinstance(self, ClassifierMixin) else np.asarray
        return self._field("coef_", Linear, lambda model: shape(np.asarray(model.w, np.float64)))

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts, (1,), (k,) or for pairs of classes (k(k-1)/2,)."""

        def intercepts(model):
            values = np.atleast_2d(model.w if isinstance(model, Linear) else model.coef)
            return np.broadcast_to(np.asarray(model.b, np.float64), values.shape[:1]).copy()

        return self._field("intercept_", Linear | Expansion, intercepts)

    @property
    def support_(self) -> np.ndarray:
        """(m,) indices of the support vectors in the training data; of equal rows the first."""
        rows_of = lambda model: np.asarray(on_rows(model).index)[support_index(model)]
        return self._field("support_", Expansion, rows_of)

    @property
    def dual_coef_(self) -> np.ndarray:
        """The signed dual coefficients y_i alpha_i of the rows in `support_`.

        The shape is (1, m), (k, m) or for pairs of classes (k(k-1)/2, m).
        """
        coef_of = lambda model: np.atleast_2d(on_rows(model).coef)[:, support_index(model)]
        return self._field("dual_coef_", Expansion, coef_of)


def can_partial_fit(machine: Any) -> bool:
    """Whether the machine has `partial_fit`; it raises with the reason if not."""
    if problem := machine._no_partial_fit:
        raise AttributeError(problem)
    return True


def _on_host(leaf: object) -> Any:
    """An array of numbers as one of NumPy; anything else as it is."""
    return np.asarray(leaf) if isinstance(leaf, jax.Array) and not is_key(leaf) else leaf


def warn_unless_accepted(run: Fit, spec: Spec, tol: float | None) -> None:
    """Warn of a run that missed its tolerance; raise for one whose model is not finite."""
    if not run.finite:
        raise ValueError(run.status)
    if tol is None or bool(run.state.done) or float(run.info.residual[-1]) <= spec.accepted:
        return
    status, _, advice = run.status.rpartition("; ")
    if not advice.startswith("rounding"):
        advice = f"a larger {spec.length}, columns of one scale or 64-bit numbers may help"
    warnings.warn(f"{status}: {advice}", ConvergenceWarning, stacklevel=caller_stacklevel())


def steps_of_state(run: Fit) -> int:
    """The steps that the state of a linear solver counts; of several classes the most."""
    states = run.state.solver if isinstance(run.state.solver, list) else [run.state.solver]
    bare = [state.inner if isinstance(state, MaskedState) else state for state in states]
    return max(int(np.asarray(state.steps).max()) for state in bare)


def is_one_update(spec: Spec, solver: Solver) -> bool:
    """Whether a run is one update on all rows, which are not mapped before."""
    own = spec.sampler is None and not solver.has_map
    return own and solver.needs_all_rows and solver.iterates_to is not None and spec.steps == 1


def plan_of(
    spec: Spec, solver: Solver, sampler: Sampler, n_rows: int, n: int, *, one_pass: bool
) -> dict[str, Any]:
    """`steps`, `every` and `tol` of `jaxsvm.fit` for passes of `n_rows` rows, merged into n.

    Lengths depend on n, so that data of similar size share a program. An update of a solver
    with a `tol` iterates until this is met, so that each one is a chunk.
    """
    tol, iterates = spec.tol, solver.iterates_to is not None
    if isinstance(tol, str) and tol != "auto":
        raise ValueError(f"tol must be 'auto', a number above 0 or None, got {tol!r}")
    if tol is not None and tol != "auto":
        check_positive(tol=tol)
    has_criterion = solver.residual_of == "data"
    if tol == "auto":
        tol = 1e-3 if has_criterion and not one_pass else None
    if tol is not None and not has_criterion:
        raise ValueError(
            "tol has nothing to stop on: this solver looks at single rows; leave "
            f"tol='auto' and give {spec.length}"
        )
    b, period = sampler.rows(n), sampler.period(n) if sampler.period else None
    every = period or (1 if iterates else max(-(-n // b), 128 if b < n else 10))
    steps = pass_steps = -(-n_rows // b)
    if spec.steps is not None:
        steps = whole_number("steps", spec.steps, 1)
    elif not one_pass:
        passes = PASSES if tol is None or iterates else MEASURED_PASSES
        passes = passes if spec.passes is None else whole_number(spec.length, spec.passes, 1)
        steps = -(-passes * pass_steps // every) * every  # whole chunks
    return {"steps": steps, "every": every, "tol": tol}
