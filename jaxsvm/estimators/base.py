"""The base of all support vector machines: checks, runs, decision values, fitted attributes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import samplers
from ..checks import x64_enabled
from ..data.dataset import caller_stacklevel, check_digits
from ..loops import fit as run_solver
from ..loops.checks import whole_number
from ..models import Classifier, Expansion, Linear, support_index
from ..recipe import check_positive, fields_of
from ..types import Fit, Run, Sampler, Solver
from ..wrappers import OneVsOne, one_vs_one, one_vs_rest
from .compact import add_to_intercept, compact, inner_of, on_rows
from .parameters import divides_rows
from .preprocess import (
    FLOATS,
    apply,
    batch,
    bucket_size,
    copies_in,
    equal_trees,
    make_seed,
    merge_duplicates,
    on_cpu,
    pad_columns,
    to_train_dtype,
)

PASSES, MEASURED_PASSES = 10, 1000  # defaults: without a tolerance, and at most with one

SHORT_PASS = 10_000  # copies of a row count as rows in passes of at most so many rows

MULTICLASS = {"ovr": one_vs_rest, "ovo": one_vs_one}


class MergedRows(NamedTuple):
    """The rows of a run: of positive weight, merged where they are equal, and padded."""

    x: Any  # (n, d)
    index: np.ndarray  # type: ignore[assignment]  # (n,)  of the rows in the user's data
    copies: np.ndarray  # (n,)  sums of sample weights; 0 for padding
    n_rows: int  # without padding
    group: np.ndarray  # (rows of the user,)  numbers of merged rows, or -1


class BaseSVM(BaseEstimator):
    """Fitting and decision values; a subclass defines three methods.

    `_make_solver(x, weight, copies, previous=None)` is the solver for two classes or for real
    targets. Its arguments are the training rows, their weights, their sample weights without class
    weights, and the solver of the call of `partial_fit` before. `_run_options(n)` are `steps`,
    `passes`, `tol`, `sampler` and `progress` of a run on n rows, and perhaps `accepted`, the
    residual from which on there is a warning. `_columns()` says what the columns of X are.
    """

    _length = "max_passes"  # the parameter that sets the length of a run
    _structure: tuple[str, ...] = ()  # parameters that stay as they are between partial fits
    _fitted_with: dict[str, Any]  # their values
    _centre: float = 0.0  # subtracted from real targets in float64; part of a free intercept
    _seed: int
    _calls: int
    _solver: Any
    n_iter_: Any

    def _columns(self) -> str:
        """What the columns of X are.

        "rows": the training rows, of a precomputed kernel. "padded": columns, to which columns of
            zeros may be added
        without an effect, so that data of similar width share a program. "fixed": columns.
        """
        return "fixed"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._columns() == "rows"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """The checked rows in the precision that they came in, targets and weights."""
        if any(map(np.ma.is_masked, (X, y))):
            raise ValueError(
                "X or y has masked entries, which are no numbers: drop such rows or fill them in"
            )
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=FLOATS,
            reset=reset,
            y_numeric=isinstance(self, RegressorMixin),
        )
        if self._columns() == "rows" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed kernel needs a square matrix of training rows, got shape {X.shape}"
            )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weight < 0).any():
            raise ValueError("sample_weight must be at least 0 everywhere; 0 leaves a row out")
        if not (weight > 0).any():
            raise ValueError("all sample weights are zero: no row is left to train on")
        if np.isfinite(X.data if hasattr(X, "tocsr") else X).all():
            check_digits(X, np.dtype(np.float64 if x64_enabled() else np.float32))
        return X, y, weight

    def __getstate__(self) -> dict:
        """The attributes with arrays of NumPy, which other programs read without JAX's devices."""
        state = super().__getstate__()
        return {
            k: v if isinstance(v, dict) else jax.tree.map(_on_host, v) for k, v in state.items()
        }

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

    def _check_options(self) -> None:
        """Raise for parameters out of their range, before anything is computed."""

    def _merged(self, x: Any, key: np.ndarray, weight: np.ndarray, least: int = 0) -> MergedRows:
        """The rows as they are trained on; rows that differ in `key` (n,) are not merged."""
        x = to_train_dtype(x, weight)
        rows, copies, group = merge_duplicates(x, key, weight)
        padding = bucket_size(max(len(rows), least)) - len(rows)
        index = np.concatenate([rows, np.full(padding, rows[0])])
        copies = np.concatenate([copies, np.zeros(padding)])
        x = x[index][:, index] if self._columns() == "rows" else x[index]
        return MergedRows(x, index, copies, len(rows), group)

    def _run(
        self,
        x: Any,
        target: np.ndarray,
        weight: np.ndarray,
        *,
        factors: Any = 1.0,
        names: tuple | None = None,
        first: bool = True,
        state: Any = None,
        one_pass: bool = False,
        least: int = 0,
    ) -> np.ndarray:
        """Train on checked rows; the result is the number (n,) of the merged row of each, or -1.

        `target` holds labels or class numbers if there are `names`, else real targets.

        `factors`, (n,) or a number, are the class weights of the rows. Equal rows of a class are
        merged. They are padded to at least the size of `least` rows.
        """
        d, columns = x.shape[1], self._columns()
        target = target if names is not None else target - self._centre
        x, index, copies, n_rows, group = self._merged(x, target, weight, least)
        n = len(index)
        n_rows = max(n_rows, min(copies_in(weight), SHORT_PASS))
        weight = copies * np.broadcast_to(factors, len(target))[index]
        solver = binary_solver = self._make_solver(
            x, weight, copies, None if state is None else self._solver
        )
        if names is not None and len(names) > 2:
            solver = self._for_classes(solver, len(names))
        x = pad_columns(x) if columns == "padded" else x
        any_unit = divides_rows(binary_solver)
        data, options = batch(x, target[index], weight, any_unit=any_unit), self._run_options(n)
        fields = fields_of(solver)
        sampler, progress, accepted = (
            options.pop("sampler") or fields.sampler or samplers.uniform(1),
            options.pop("progress"),
            options.pop("accepted", -np.inf),
        )
        draws = fields_of(sampler)
        plan = plan_of(fields, draws, n_rows, n, one_pass=one_pass, length=self._length, **options)
        key = self._next_key(first)
        if state is not None:  # the solver keeps its step counter, the rows are new
            step, done = jax.device_put((np.zeros((), np.int32), np.zeros((), bool)))
            state = Run(state, sampler.init(key, data), step, done)
        run = run_solver(solver, data, key, state=state, sampler=sampler, progress=progress, **plan)
        self._warn_unless_accepted(run, plan["tol"], accepted)
        model = compact(run.model, index, d)
        model = add_to_intercept(model, self._centre) if self._centre else model
        self.model_, self._solver = (
            model if names is None else Classifier(model, names),
            binary_solver,
        )
        self._fitted_with = {name: getattr(self, name) for name in self._structure}
        solver_state = run.state.solver if streams(fields) else ()
        self.fit_ = run._replace(
            model=self.model_, state=run.state._replace(solver=solver_state, sampler=())
        )
        self.n_iter_ = max(1, self._iterations(run, draws, n, n_rows))
        return group

    def _for_classes(self, solver: Any, k: int) -> Any:
        """The solver of k > 2 classes by that of two."""
        return MULTICLASS[self.multiclass](solver, classes=k)

    def _warn_unless_accepted(self, run: Fit, tol: float | None, accepted: float = -np.inf) -> None:
        """Warn of a run that missed its tolerance; raise for one whose model is not finite.

        There is no warning where the residual is at most `accepted`.
        """
        if not run.finite:
            raise ValueError(run.status)
        is_accepted = bool(run.state.done) or float(run.info.residual[-1]) <= accepted
        if tol is not None and not is_accepted:
            status, _, advice = run.status.rpartition("; ")
            if not advice.startswith("rounding"):
                advice = f"a larger {self._length} or columns of one scale may help"
            warnings.warn(
                f"{status}: {advice}",
                ConvergenceWarning,
                stacklevel=caller_stacklevel(),
            )

    def _iterations(self, run: Fit, draws: Sampler, n: int, n_rows: int) -> int:
        """Updates of a run that read all rows, or passes over `n_rows` rows."""
        steps = int(run.state.step)
        return steps if draws.whole else -(-steps * draws.rows(n) // n_rows)

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
        state = None if first else self.fit_.state.solver
        return {"first": first, "state": state, "one_pass": True}

    def _next_key(self, first: bool) -> jax.Array:
        """The key of a run, or of the next call of `partial_fit`."""
        self._seed, self._calls = (
            (make_seed(self.random_state), 0) if first else (self._seed, self._calls + 1)
        )
        # the bits of jax.random.key(seed), put on the device as they are: no program is compiled
        bits = jax.device_put(np.array([0, self._seed], np.uint32))
        key = jax.random.wrap_key_data(bits, impl="threefry2x32")  # whatever the default of JAX
        return jax.random.fold_in(key, self._calls) if self._calls else key

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return self._values(validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False))

    def _decision_model(self) -> Any:
        """The model whose values are the decision values."""
        return self.model_.inner if isinstance(self.model_, Classifier) else self.model_

    def _values(self, X: Any) -> np.ndarray:
        """Decision values of checked rows."""
        outer, model = self._decision_model(), inner_of(self.model_)
        if isinstance(model, Linear) and not isinstance(
            outer, OneVsOne
        ):  # on the host: nothing is compiled or copied to a device
            weights, b = np.asarray(model.w, np.float64), np.asarray(model.b, np.float64)
            return safe_sparse_dot(on_cpu(X), weights.T, dense_output=True) + b
        if isinstance(model, Expansion) and self._columns() == "rows":
            X = X[:, np.maximum(np.asarray(model.index), 0)]
        if self._centre:  # added in float64
            values = apply(add_to_intercept(outer, -self._centre), X)
            return values.astype(np.float64) + self._centre
        return apply(outer, X)

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
            values = model.w if isinstance(model, Linear) else model.coef
            return np.broadcast_to(
                np.asarray(model.b, np.float64), np.atleast_2d(values).shape[:1]
            ).copy()

        return self._field("intercept_", Linear | Expansion, intercepts)

    @property
    def support_(self) -> np.ndarray:
        """(m,) indices of the support vectors in the training data; of equal rows the first."""
        return self._field(
            "support_",
            Expansion,
            lambda model: np.asarray(on_rows(model).index)[support_index(model)],
        )

    @property
    def dual_coef_(self) -> np.ndarray:
        """The signed dual coefficients y_i alpha_i of the rows in `support_`.

        The shape is (1, m), (k, m) or for pairs of classes (k(k-1)/2, m).
        """
        return self._field(
            "dual_coef_",
            Expansion,
            lambda model: np.atleast_2d(on_rows(model).coef)[:, support_index(model)],
        )


def _on_host(leaf: Any) -> Any:
    """An array of numbers as one of NumPy; anything else as it is."""
    is_array = isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(
        leaf.dtype, jax.dtypes.prng_key
    )
    return np.asarray(leaf) if is_array else leaf


def streams(solver: Solver) -> bool:
    """Whether a run can continue on other rows.

    It can if steps read drawn rows and the state has no entry for each row.
    """
    return solver.reads == "rows" and solver.residual_scope == "sample"


def plan_of(
    solver: Solver,
    sampler: Sampler,
    n_rows: int,
    n: int,
    *,
    steps: int | None,
    passes: int | None,
    tol: float | str | None,
    one_pass: bool,
    length: str,
) -> dict[str, Any]:
    """`steps`, `every` and `tol` of `jaxsvm.fit` for passes of `n_rows` rows, merged into n.

    Lengths depend on n, so that data of similar size share a program. An update of a solver
    with a `tol` iterates until this is met, so that each one is a chunk. `length` is the parameter
    that sets the length of a run, for messages.
    """
    if isinstance(tol, str) and tol != "auto":
        raise ValueError(f"tol must be 'auto', a number above 0 or None, got {tol!r}")
    if tol is not None and tol != "auto":
        check_positive(tol=tol)
    steps = None if steps is None else whole_number("steps", steps, 1)
    passes = None if passes is None else whole_number(length, passes, 1)
    has_criterion = solver.residual_scope == "whole"
    if tol == "auto":
        tol = 1e-3 if has_criterion and not one_pass else None
    if tol is not None and not has_criterion:
        raise ValueError(
            "tol has nothing to stop on: this solver looks at single rows; leave "
            f"tol='auto' and give {length}"
        )
    b, period = sampler.rows(n), sampler.period(n) if sampler.period else None
    every = period or (1 if solver.tol is not None else max(-(-n // b), 128 if b < n else 10))
    pass_steps = -(-n_rows // b)
    if steps is None and one_pass:
        steps = pass_steps
    elif steps is None:
        passes = passes or (PASSES if tol is None or solver.tol is not None else MEASURED_PASSES)
        steps = -(-passes * pass_steps // every) * every  # whole chunks
    return {"steps": steps, "every": every, "tol": tol}
