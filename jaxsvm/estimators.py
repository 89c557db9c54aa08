"""Classes for scikit-learn: fit, predict, clone, pickle, pipelines and grids around solvers and feature maps.

Rows are checked, then put in an order of their own with equal rows as one (their weights added), and padded to one of a few
sizes by rows of weight 0. So weight k means k copies and weight 0 absence to the last bit, the order of the rows does not
matter, and one compiled program serves all numbers of a solver and data of about the same size. Rows are float32, or
float64 inside `jax.enable_x64()`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import features, kernels, losses, samplers
from .budget import suited
from .data import dataset
from .kernels import Kernel, as_kernel, holds_precomputed
from .loops import fit as run_solver
from .models import Classifier, Expansion, Linear
from .multiclass import OneVsOne, OneVsRest, one_vs_one, one_vs_rest
from .numerics import blocked
from .objectives import lam_from_C
from .recipe import Recipe, choice, positive
from .solvers import bsca, bsgd, decomposition, lasvm, sdca, smo
from .types import Batch, Run, Solver, SparseRows

PASSES, MEASURED_PASSES = 10, 1000  # by default: without a tolerance, at most with one

SHRINKING = 4096  # rows from which on those at rest are left out; below, its longer compilation is not worth it
FLOATS = [np.float64, np.float32]
MANY = {"ovr": one_vs_rest, "ovo": one_vs_one}
EXACT = {"decomposition": decomposition, "smo": smo, "lasvm": lasvm}


# Rows of scikit-learn, as rows of solvers.


def _sparse(x: Any) -> bool:
    return hasattr(x, "tocsr")


def _size(n: int, least: int = 256) -> int:
    """The padded length of n rows: one of a few, at most an eighth more than n and `least`."""
    step = max(least, 1 << max(n.bit_length() - 4, 0))
    return -(-n // step) * step


def _narrow(x: Any) -> Any:
    """Rows in the dtype that they will be trained in, -0 as 0."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which `dataset` refuses with a sentence
        x = x.astype(np.float64 if jax.config.jax_enable_x64 and x.dtype == np.float64 else np.float32)
    return x.tocsr() if _sparse(x) else x + x.dtype.type(0)


def _marks(x: Any) -> np.ndarray:
    """(n,) uint64: equal rows have equal marks, whether dense or sparse, and others hardly ever."""

    def mix(bits):  # the finaliser of SplitMix64
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))

    def hashes(values, column):
        bits = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
        return np.where(bits == 0, np.uint64(0), mix(bits ^ mix(column.astype(np.uint64) + np.uint64(1))))

    if _sparse(x):
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes(x.data, x.indices))])
        return total[x.indptr[1:]] - total[x.indptr[:-1]]
    return np.concatenate([hashes(x[i : i + 4096], np.arange(x.shape[1])).sum(axis=1) for i in range(0, len(x), 4096)])


def _joined(x: Any, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of positive weight in an order of their own, equal ones as one: their numbers (m,) and weights (m,)."""
    live = np.flatnonzero(weight > 0)
    if _sparse(x):
        x.sum_duplicates()
        x.eliminate_zeros()
    marks = _marks(x)[live]
    order = np.lexsort((y[live], marks))
    marks, order = marks[order], live[order]
    same = np.flatnonzero((marks[1:] == marks[:-1]) & (y[order[1:]] == y[order[:-1]]))
    here, next_ = x[order[same]], x[order[same + 1]]
    differ = np.diff((here != next_).tocsr().indptr) if _sparse(x) else (here != next_).any(axis=1)
    first = np.ones(len(order), bool)
    first[same[np.asarray(differ) == 0] + 1] = False
    first = np.flatnonzero(first)
    return order[first], np.add.reduceat(weight[order], first)


def _widened(x: Any) -> Any:
    """Rows with columns of zeros behind, up to a multiple of 8."""
    d = -(-x.shape[1] // 8) * 8
    if not _sparse(x):
        return np.pad(x, ((0, 0), (0, d - x.shape[1])))
    x.resize((x.shape[0], d))
    return x


def _batch(x: Any, y: np.ndarray, weight: np.ndarray) -> Batch:
    """A checked data set whose sparse rows have one of a few widths."""
    data = dataset(x, y, weight, task="regression")
    if isinstance(data.x, SparseRows):
        width = data.x.value.shape[1]
        rest = ((0, 0), (0, _size(width, 8) - width))
        pad = lambda a: jnp.pad(a, rest)  # noqa: E731
        data = data._replace(x=dataclasses.replace(data.x, index=pad(data.x.index), value=pad(data.x.value)))
    return data


@jax.jit
def _call(fn: Any, x: Any) -> Any:
    return blocked(fn, x, 4096)


def _apply(fn: Any, x: Any) -> np.ndarray:
    """A model or a map at checked rows, padded to a length that is compiled already as a rule."""
    n = x.shape[0]
    x = _narrow(x)[np.concatenate([np.arange(n), np.zeros(_size(n) - n, int)])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scale of the columns is told of when training
        rows = _batch(x, np.zeros(x.shape[0]), np.ones(x.shape[0])).x
    return np.asarray(_call(fn, rows))[:n]


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def _kernel(name: Any, gamma: Any, degree: int, coef0: float, x: Any, weight: np.ndarray | None = None) -> Kernel:
    """The kernel that the parameters of scikit-learn name, on training rows x."""
    if not isinstance(name, str):
        return as_kernel(name)
    if isinstance(gamma, str):
        if gamma not in ("scale", "auto"):
            raise ValueError(f"gamma must be 'scale', 'auto' or a number above 0, got {gamma!r}")
        spread = _variance(x, weight) if gamma == "scale" and name not in ("linear", "precomputed") else 1.0
        gamma = 1 / (x.shape[1] * (spread or 1.0))
    gamma = float(gamma)
    made: dict[str, Callable] = {
        "linear": kernels.linear,
        "poly": lambda: kernels.polynomial(gamma, coef0, degree=degree),
        "rbf": lambda: kernels.rbf(gamma=gamma),
        "sigmoid": lambda: kernels.sigmoid(gamma, coef0),
        "laplacian": lambda: kernels.laplacian(1 / gamma),
        "precomputed": kernels.precomputed,
    }
    if name not in made:
        raise ValueError(f"kernel must be one of {', '.join(map(repr, made))}, a kernel or a function, got {name!r}")
    return made[name]()


def _variance(x: Any, weight: np.ndarray | None) -> float:
    """The variance of all numbers of x, rows counted by weight."""
    share = np.full(x.shape[0], 1 / x.shape[0]) if weight is None else weight / weight.sum()
    if _sparse(x):
        data, share = x.data.astype(np.float64), np.repeat(share, np.diff(x.indptr)) / x.shape[1]
        return max(float(share @ data**2 - (share @ data) ** 2), 0.0)
    mean = float(share @ x.mean(axis=1, dtype=np.float64))
    return float(share @ ((x - mean) ** 2).mean(axis=1, dtype=np.float64))


def _matrix(kernel: Any) -> bool:
    """Whether the parameter asks for kernel values that were worked out beforehand."""
    return isinstance(kernel, str) and kernel == "precomputed" or _precomputed(kernel)


def _widening(kernel: Any) -> bool:
    """Whether columns of zeros change nothing of a kernel that is given by name; nobody knows of others."""
    return isinstance(kernel, str) and kernel != "precomputed"


def _precomputed(thing: Any) -> bool:
    """Whether a solver is made with kernel values that were worked out beforehand."""
    if isinstance(thing, Kernel):
        return holds_precomputed(thing)
    if not isinstance(thing, Recipe):
        return False
    _, args, kwargs = thing.call()
    return any(map(_precomputed, (*args, *kwargs.values())))


# What all machines share.


class _Machine(BaseEstimator):
    """Fitting and decision values; subclasses say which solver, and for how long.

    `_made(x, weight)` is the solver for two classes or for real targets, given the rows that it will see; `_limits(n)` are
    `steps`, `passes`, `tol`, `sampler` and `progress` of a run on n rows.
    """

    def _pairwise(self) -> bool:
        return False

    def _widens(self) -> bool:
        """Whether columns of zeros change nothing, so that data of about the same width share a program."""
        return False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._pairwise()
        tags.input_tags.sparse = not self._pairwise()
        return tags

    def _checked(self, X, y, sample_weight, reset):
        if any(map(np.ma.is_masked, (X, y))):
            raise ValueError("X or y has masked entries, which are no numbers: drop such rows or fill them in")
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=FLOATS,
            reset=reset,
            y_numeric=isinstance(self, RegressorMixin),
        )
        if self._pairwise() and X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel needs a square matrix of training rows, got shape {X.shape}")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weight < 0).any():
            raise ValueError("sample_weight must be at least 0 everywhere; 0 leaves a row out")
        if not (weight > 0).any():
            raise ValueError("all sample weights are zero: no row is left to train on")
        return _narrow(X), y, weight

    def _run(self, x, target, weight, *, names=None, first=True, state=None, one_pass=False) -> None:
        """Train on checked rows; `target` are labels or class numbers with `names`, real targets without."""
        rows, weight = _joined(x, target, weight)
        live, n = len(rows), _size(len(rows))
        taken = np.concatenate([rows, np.full(n - live, rows[0])])
        weight = np.concatenate([weight, np.zeros(n - live)])
        d, x = x.shape[1], x[taken][:, taken] if self._pairwise() else x[taken]
        solver = self._made(x, weight) if state is None else self._again(x, weight)
        made = solver
        if names is not None and len(names) > 2:
            solver = MANY[self.multiclass](solver, classes=len(names))
        x = _widened(x) if self._widens() else x
        data, limits = _batch(x, target[taken], weight), self._limits(n)
        sampler, progress = limits.pop("sampler") or solver.sampler or samplers.uniform(1), limits.pop("progress")
        plan, key = _plan(solver, sampler, live, n, one_pass=one_pass, **limits), self._next_key(first)
        if state is not None:  # the clock of the solver goes on, the rows are new
            state = Run(state, sampler.init(key, data), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
        run = run_solver(solver, data, key, state=state, sampler=sampler, progress=progress, **plan)
        if not run.finite:
            raise ValueError(run.status)
        if plan["tol"] is not None and not run.converged:
            status = run.status.partition(";")[0] if run.finite else run.status
            residual = float(run.info.residual[-1])
            warnings.warn(
                f"{status}; residual {residual:.1e}, tolerance {plan['tol']:.1e} not met: allow more passes or scale the columns",
                ConvergenceWarning,
                stacklevel=3,
            )
        model = _trimmed(run.model, taken, d)
        self.model_, self._solver = model if names is None else Classifier(model, names), made
        kept = run.state.solver if _streams(solver) else ()
        self.fit_ = run._replace(model=self.model_, state=run.state._replace(solver=kept, sampler=()))
        steps = int(run.state.step)
        self.n_iter_ = max(1, steps if sampler.whole else -(-steps * sampler.rows(n) // live))

    def _again(self, x, weight):
        """The solver that goes on with other rows."""
        return self._made(x, weight)

    def _piece(self, first: bool) -> dict:
        """What the next piece of rows is trained with."""
        state = None if first else self.fit_.state.solver
        return {"first": first, "state": state, "one_pass": True}

    def _next_key(self, first: bool) -> jax.Array:
        """The key of a run, or of the next piece of rows."""
        self._seed, self._pieces = (_seed(self.random_state), 0) if first else (self._seed, self._pieces + 1)
        return jax.random.fold_in(jax.random.key(self._seed), self._pieces)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        whole = self.model_.inner if isinstance(self.model_, Classifier) else self.model_
        model = _inner(whole)
        if isinstance(model, Linear) and not isinstance(whole, OneVsOne):  # on the host: nothing to compile, and the rows stay
            weights, b = np.asarray(model.w, np.float64), np.asarray(model.b, np.float64)
            return safe_sparse_dot(X, weights.T, dense_output=True) + b
        if isinstance(model, Expansion) and self._pairwise():
            X = X[:, np.maximum(np.asarray(model.index), 0)]
        return _apply(whole, X)

    def _field(self, name: str, kind: type, fn: Callable) -> np.ndarray:
        check_is_fitted(self, "model_")
        model = _inner(self.model_)
        if not isinstance(model, kind):
            raise AttributeError(f"a model of {type(model).__name__} has no {name}: look into model_")
        return fn(model)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model: (1, d), (k, d) or for pairs (k(k-1)/2, d) of a classifier, (d,) of a regressor."""
        shape = np.atleast_2d if isinstance(self, ClassifierMixin) else np.asarray
        return self._field("coef_", Linear, lambda model: shape(np.asarray(model.w, np.float64)))

    @property
    def intercept_(self) -> np.ndarray:
        """(1,), (k,) or for pairs of classes (k(k-1)/2,)."""

        def spread(model):
            values = model.w if isinstance(model, Linear) else model.coef
            return np.broadcast_to(np.asarray(model.b, np.float64), np.atleast_2d(values).shape[:1]).copy()

        return self._field("intercept_", Linear | Expansion, spread)

    @property
    def support_(self) -> np.ndarray:
        """(m,) rows of the training data with a coefficient that is not 0; of equal rows the first."""
        return self._field("support_", Expansion, lambda model: np.asarray(_on_rows(model).index)[_used(model)])

    @property
    def dual_coef_(self) -> np.ndarray:
        """(1, m), (k, m) or for pairs of classes (k(k-1)/2, m): y_i alpha_i of the rows in `support_`."""
        return self._field("dual_coef_", Expansion, lambda model: np.atleast_2d(_on_rows(model).coef)[:, _used(model)])


def _streams(solver: Solver) -> bool:
    """Whether a run may go on with other rows: steps on drawn rows, nothing kept of single rows."""
    return solver.reads == "rows" and solver.residual == "sample"


def _plan(solver, sampler, live, n, *, steps, passes, tol, one_pass) -> dict:
    """`steps`, `every` and `tol` of `jaxsvm.fit`; lengths that depend on the padded number of rows are compiled once.

    A solver with `until` goes on by itself within an update, so that each is looked at and few will do.
    """
    if isinstance(tol, str) and tol != "auto":
        raise ValueError(f"tol must be 'auto', a number above 0 or None, got {tol!r}")
    measured = solver.residual == "whole"
    if tol == "auto":
        tol = 1e-3 if measured and not one_pass else None
    if tol is not None and not measured:
        raise ValueError("tol has nothing to stop on: this solver looks at single rows; leave tol='auto' and give steps")
    b, period = sampler.rows(n), sampler.period(n) if callable(sampler.period) else sampler.period
    every, length = period or (1 if solver.until else max(-(-n // b), 128 if b < n else 10)), -(-live // b)
    if steps is None and one_pass:
        steps = length
    elif steps is None:
        passes = passes or (PASSES if tol is None or solver.until else MEASURED_PASSES)
        steps = -(-passes * length // every) * every  # a rest would be compiled apart
    return {"steps": steps, "every": every, "tol": tol}


def _inner(model: Any) -> Any:
    """The model without names of classes; of several the models as they are stacked."""
    model = model.inner if isinstance(model, Classifier) else model
    return model.inner if isinstance(model, OneVsRest | OneVsOne) else model


def _used(model: Expansion) -> np.ndarray:
    return np.flatnonzero((np.atleast_2d(model.coef) != 0).any(axis=0))


def _owns_points(model: Expansion) -> bool:
    """Whether the points are the model's own (a budget), not rows of the training data."""
    return bool((np.asarray(model.index) < 0).all())


def _on_rows(model: Expansion) -> Expansion:
    """The model, if its points are rows of the training data."""
    if _owns_points(model):
        raise AttributeError("the points of a budget are no rows of the training data: look into model_")
    return model


def _trimmed(model: Any, rows: np.ndarray, d: int) -> Any:
    """A model without padding: an expansion on the rows that it uses, with their numbers in the data that came."""
    if isinstance(model, OneVsRest | OneVsOne):
        return dataclasses.replace(model, inner=_trimmed(model.inner, rows, d))
    if isinstance(model, Linear):
        return dataclasses.replace(model, w=model.w[..., :d])
    if not isinstance(model, Expansion):
        return model
    if _owns_points(model):
        return dataclasses.replace(model, x=model.x[..., :d])
    used = _used(model)
    size = min(_size(len(used)), len(rows))
    taken, known = np.concatenate([used, np.zeros(size - len(used), int)]), np.arange(size) < len(used)
    x = model.x[taken]
    if holds_precomputed(model.kernel):
        x = x[:, taken]
    elif x.shape[1] > d:
        x = dataclasses.replace(x, columns=d) if isinstance(x, SparseRows) else x[:, :d]
    coef = jnp.where(known, model.coef[..., taken], 0).astype(model.coef.dtype)
    index = jnp.asarray(np.where(known, rows[taken], -1), jnp.int32)
    return dataclasses.replace(model, x=x, coef=coef, index=index)


class _Classifier(ClassifierMixin, _Machine):
    """Class names, class weights and more than two classes."""

    multiclass = "ovr"

    def fit(self, X, y, sample_weight=None):
        """Train from the beginning.

        Args:
            X: (n, d) rows, an array or any sparse matrix, which is never made dense.
            y: (n,) class names.
            sample_weight: (n,) weights, >= 0; k means k copies, 0 absence.
        """
        x, y, weight = self._checked(X, y, sample_weight, reset=True)
        check_classification_targets(y)
        classes = np.unique(y[weight > 0])
        if len(classes) < 2:
            raise ValueError(f"y holds one class, {classes.tolist()[0]!r}: a classifier needs rows of two classes or more")
        before, self.classes_ = getattr(self, "classes_", None), classes
        try:
            self._train(x, y, weight)
        except BaseException:
            self.classes_ = before  # the names of the model that is still there
            if before is None:
                del self.classes_
            raise
        return self

    def _train(self, x, y, weight, **more):
        choice("multiclass", self.multiclass, tuple(MANY))
        k = len(self.classes_)
        place = np.searchsorted(self.classes_, y).clip(max=k - 1)
        if (strange := (self.classes_[place] != y) & (weight > 0)).any():
            raise ValueError(f"y holds the class {y[strange][:1].tolist()[0]!r}, which is not among {self.classes_.tolist()}")
        weight = weight * self._class_weights(place, weight)[place]
        target = 2.0 * place - 1 if k == 2 else place.astype(np.float64)
        self._run(x, target, weight, names=tuple(self.classes_.tolist()), **more)

    def _class_weights(self, place, weight):
        """(k,) factors; "balanced" makes the classes weigh the same, sample weights counted."""
        k = len(self.classes_)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            each = np.bincount(place[weight > 0], weight[weight > 0], k)
            return weight.sum() / (k * each)
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not (factors > 0).all():
            raise ValueError(
                f"class_weight must be above 0 for every class, got {dict(zip(self.classes_.tolist(), factors, strict=True))}"
            )
        return factors

    def decision_function(self, X):
        """(n, d) -> (n,) for two classes, above 0 for the second; (n, k) for more, the largest for the class.

        With "ovo" these are votes, and among classes with as many the larger sum of values decides.
        """
        scores = self._scores(X)
        return scores if len(self.classes_) > 2 else scores.ravel()

    def predict(self, X):
        """(n, d) -> (n,) class names."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]


class _InPieces(_Classifier):
    """A classifier that may be trained on rows that come in pieces, if `_goes_on` raises no AttributeError."""

    @available_if(lambda self: self._goes_on())
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Go on with more rows, or begin: one pass over them, or `steps` updates where there is such a parameter.

        Weights compare rows of one call; the clock of the solver runs on.

        Args:
            X: (n, d) rows.
            y: (n,) class names.
            classes: all class names, at the first call.
            sample_weight: (n,) weights, >= 0.
        """
        first = not hasattr(self, "fit_")
        if first and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit: later rows may hold others")
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight='balanced' needs all rows at once: give partial_fit a dict from names to factors")
        x, y, weight = self._checked(X, y, sample_weight, reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(classes)
            if len(self.classes_) < 2:
                raise ValueError(f"classes holds one class, {self.classes_.tolist()}: a classifier needs two or more")
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes are {self.classes_.tolist()} since the first call, got {np.unique(classes).tolist()}")
        self._train(x, y, weight, **self._piece(first))
        return self


class _Chosen:
    """A machine whose solver is a parameter: what it is made of, and training on rows that come in pieces."""

    def _made(self, x, weight):
        if isinstance(self.solver, str):
            return self._by_name(x, weight)
        given = [name for name in ("C", "kernel", "gamma", "epsilon") if getattr(self, name, None) is not None]
        if given:
            raise ValueError(f"{given[0]} goes with a solver by name, such as solver='decomposition': this one has its own")
        solver = self._default() if self.solver is None else self.solver
        if not (isinstance(solver, Recipe | Solver) and hasattr(solver, "update")):
            raise TypeError(f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {solver!r}: call the factory first")
        return solver

    def _by_name(self, x, weight):
        """An exact solver of a kernel machine; x is None where only the kind of solver matters."""
        if self.solver not in EXACT:
            shown = ", ".join(map(repr, EXACT))
            raise ValueError(f"solver must be {shown} or a solver such as jaxsvm.pegasos(1e-3), got {self.solver!r}")
        kernel, gamma = "rbf" if self.kernel is None else self.kernel, "scale" if self.gamma is None else self.gamma
        kernel = kernels.linear() if x is None else _kernel(kernel, gamma, 3, 0.0, x, weight)
        return EXACT[self.solver](1.0 if self.C is None else self.C, kernel, **self._more())

    def _more(self):
        """What a solver by name takes besides C and the kernel."""
        return {}

    def _limits(self, n):
        return {"steps": self.steps, "passes": None, "tol": self.tol, "sampler": self.sampler, "progress": self.progress}

    def _pairwise(self):
        return _matrix(self.kernel) or _precomputed(self.solver)

    def _widens(self):
        return self.solver is None or isinstance(self.solver, str) and (self.kernel is None or _widening(self.kernel))

    def _goes_on(self):
        if not _streams(self._made(None, None)):
            raise AttributeError("partial_fit takes solvers that look at single rows, such as jaxsvm.pegasos(1e-3)")
        return True


class SVMClassifier(_Chosen, _InPieces):
    """A classifier trained by any solver; more than two classes one against the rest, or each against each.

    Args:
        solver: such as `jaxsvm.pegasos(1e-3)` or `jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(2.0))`; None:
            `jaxsvm.sdca(1.0, bias="feature")`, a linear SVM with C = 1 and a regularised intercept. Solvers that differ in
            their numbers alone share their compiled programs, so a grid may list them. Or the name of an exact solver of a
            kernel machine with a free intercept, "decomposition", "smo" or "lasvm" (exact on the rows that it keeps after a
            pass), made with `C`, `kernel` and `gamma`.
        C: of a solver by name, weight of one row's loss, > 0; None: 1.
        kernel: of a solver by name, as `SVC`; None: "rbf".
        gamma: of a solver by name, as `SVC`; None: "scale".
        multiclass: more than two classes: "ovr", one model for each class against the rest, or "ovo", one for each pair of
            classes, which vote.
        steps: updates, >= 1; None: ten passes, or with a tolerance at most 1,000 (ten updates of "decomposition", which
            goes on by itself in each); one pass for `partial_fit`.
        tol: residual to stop at, in the solver's own measure; "auto": 1e-3 where it measures the training set; None: none.
        sampler: which rows a step sees, such as `jaxsvm.samplers.epochs(64)`; None: as the solver has it.
        class_weight: dict from class names to factors on their rows, "balanced", or None.
        random_state: int, `RandomState` or None; makes the key.
        progress: a bar on the standard error stream.

    Attributes:
        classes_: (k,) class names.
        model_: a `jaxsvm.models.Classifier`, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit`: `fit_.status` says how the run ended, `fit_.info` is the curve.
        n_iter_: passes made; updates of a solver that takes all rows at once.
        coef_, intercept_: of a linear model.
        support_, dual_coef_, intercept_: of an expansion.

    Example:
        >>> import jaxsvm
        >>> clf = SVMClassifier(jaxsvm.sdca(10.0, bias="feature"), random_state=0)
        >>> clf.fit([[0.0], [1.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]).predict([[0.5], [3.5]]).tolist()
        ['no', 'yes']
    """

    def __init__(
        self,
        solver=None,
        *,
        C=None,
        kernel=None,
        gamma=None,
        multiclass="ovr",
        steps=None,
        tol="auto",
        sampler=None,
        class_weight=None,
        random_state=None,
        progress=False,
    ):
        self.solver = solver
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.multiclass = multiclass
        self.steps = steps
        self.tol = tol
        self.sampler = sampler
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _default(self):
        return sdca(1.0, bias="feature")


class SVMRegressor(_Chosen, RegressorMixin, _Machine):
    """Real targets fitted by any solver with a loss for them.

    Args:
        solver: such as `jaxsvm.sdca(1.0, loss=jaxsvm.losses.eps_insensitive(0.1))`; None: this, with a regularised
            intercept. Or "decomposition", "smo" or "lasvm", as `SVMClassifier`: the problem of scikit-learn's `SVR`.
        C: as `SVMClassifier`.
        kernel: as `SVMClassifier`.
        gamma: as `SVMClassifier`.
        epsilon: of a solver by name, >= 0: what the loss max(0, |y - f(x)| - epsilon) does not count; None: 0.1.
        steps: as `SVMClassifier`.
        tol: as `SVMClassifier`.
        sampler: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        model_: the model of jaxsvm.
        fit_, n_iter_, coef_, intercept_, support_, dual_coef_: as `SVMClassifier`.

    Example:
        >>> import jaxsvm
        >>> reg = SVMRegressor(jaxsvm.sdca(100.0, loss=jaxsvm.losses.eps_insensitive(0.0)), random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0
    """

    def __init__(
        self,
        solver=None,
        *,
        C=None,
        kernel=None,
        gamma=None,
        epsilon=None,
        steps=None,
        tol="auto",
        sampler=None,
        random_state=None,
        progress=False,
    ):
        self.solver = solver
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.epsilon = epsilon
        self.steps = steps
        self.tol = tol
        self.sampler = sampler
        self.random_state = random_state
        self.progress = progress

    def _default(self):
        return sdca(1.0, loss=losses.eps_insensitive(0.1), bias="feature")

    def _more(self):
        return {"loss": losses.eps_insensitive(0.1 if self.epsilon is None else self.epsilon)}

    def fit(self, X, y, sample_weight=None):
        """Train from the beginning on (n, d) rows, (n,) targets and (n,) weights."""
        x, y, weight = self._checked(X, y, sample_weight, reset=True)
        self._run(x, y.astype(np.float64), weight)
        return self

    @available_if(_Chosen._goes_on)
    def partial_fit(self, X, y, sample_weight=None):
        """Go on with more rows, or begin; `steps` updates on them, None: one pass."""
        first = not hasattr(self, "fit_")
        x, y, weight = self._checked(X, y, sample_weight, reset=first)
        self._run(x, y.astype(np.float64), weight, **self._piece(first))
        return self

    def predict(self, X):
        """(n, d) -> (n,) values."""
        return self._scores(X).ravel()


class LinearSVC(_Classifier):
    """1/2 (|w|^2 + b^2) + C sum_i weight_i loss(y_i (<w, x_i> + b)) by dual coordinate ascent.

    The problem of scikit-learn's `LinearSVC(dual=True)` with the same loss.

    Args:
        C: weight of one row's loss, > 0.
        loss: "hinge", "squared_hinge", or a loss of jaxsvm.
        bias: "feature", an intercept regularised with the weights, or "none".
        tol: largest move of a row's margin in a pass to stop at, > 0.
        max_passes: over the rows at most, >= 1.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, coef_, intercept_: as `SVMClassifier`.

    Example:
        >>> clf = LinearSVC(C=10.0, random_state=0).fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
        >>> clf.score([[0.5], [3.5]], [0, 1])
        1.0
    """

    def __init__(
        self,
        C=1.0,
        *,
        loss="hinge",
        bias="feature",
        tol=1e-3,
        max_passes=MEASURED_PASSES,
        class_weight=None,
        random_state=None,
        progress=False,
    ):
        self.C = C
        self.loss = loss
        self.bias = bias
        self.tol = tol
        self.max_passes = max_passes
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _made(self, x, weight):
        return sdca(self.C, loss=_loss(self.loss), bias=self.bias)

    def _limits(self, n):
        return {"steps": None, "passes": self.max_passes, "tol": self.tol, "sampler": None, "progress": self.progress}

    def _widens(self):
        return True


class SVC(_Classifier):
    """1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i (f(x_i) + b)) with a kernel, exactly, by block decomposition.

    The problem of scikit-learn's `SVC` with the same `tol`, where more than two classes are taken with "ovo".

    Args:
        C: weight of one row's loss, > 0.
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian" (exp(-gamma |x - z|_1)), "precomputed", a kernel of jaxsvm, or
            a function (n, d), (m, d) -> (n, m) made of JAX operations.
        gamma: "scale" for 1/(d variance of X), "auto" for 1/d, or a number above 0; of the kernels given by name.
        degree: of "poly", a whole number, structure.
        coef0: of "poly" and "sigmoid".
        loss: as `LinearSVC`.
        bias: "free", an intercept that is not regularised, or "none"; "feature": regularised with the rest (1 is added to the
            kernel), by dual coordinate ascent.
        tol: violation of the optimality conditions to stop at, LIBSVM's, > 0; with bias "feature" the largest move of a
            row's margin in a pass.
        max_passes: blocks of rows at most, each of which goes over all rows, >= 1, structure; with bias "feature" passes.
        multiclass: as `SVMClassifier`.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`; of bias "feature" alone.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, support_, dual_coef_, intercept_: as `SVMClassifier`.

    Example:
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> SVC(C=10.0, gamma=1.0, random_state=0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        C=1.0,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        loss="hinge",
        bias="free",
        tol=1e-3,
        max_passes=MEASURED_PASSES,
        multiclass="ovr",
        class_weight=None,
        random_state=None,
        progress=False,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.loss = loss
        self.bias = bias
        self.tol = tol
        self.max_passes = max_passes
        self.multiclass = multiclass
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _made(self, x, weight):
        choice("bias", self.bias, ("free", "none", "feature"))
        kernel = _kernel(self.kernel, self.gamma, self.degree, self.coef0, x, weight)
        if self.bias == "feature":
            return sdca(self.C, kernel, loss=_loss(self.loss), bias="feature")
        return decomposition(self.C, kernel, loss=_loss(self.loss), bias=self.bias, rounds=self.max_passes)

    def _limits(self, n):
        steps, sampler = 1, None  # an update goes on by itself
        if self.bias == "feature":
            steps, sampler = None, samplers.shrinking(16) if n >= SHRINKING else samplers.epochs(16)
        return {"steps": steps, "passes": self.max_passes, "tol": self.tol, "sampler": sampler, "progress": self.progress}

    def _widens(self):
        return _widening(self.kernel)

    def _pairwise(self):
        return _matrix(self.kernel)


class BudgetedSVC(_InPieces):
    """1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i f(x_i)) with a kernel, approximately, by at most `budget` points.

    What a prediction takes, and a step of training, is bounded by the budget, whatever the number of rows. f has no intercept.

    Args:
        C: weight of one row's loss, > 0.
        kernel: as `SVC`, but "precomputed". Gaussian ones are kept within the budget by `jaxsvm.budget.merge`, which needs
            these; all others by `jaxsvm.budget.remove`, which costs as little and loses more. For `jaxsvm.budget.project`,
            which loses less and costs O(budget^3) each time, take `SVMClassifier(jaxsvm.bsca(..., maintain=...))`.
        gamma: as `SVC`.
        degree: as `SVC`.
        coef0: as `SVC`.
        budget: points of the model, of each against the rest where there are more than two classes, >= 2.
        method: "bsca", dual coordinate ascent, or "bsgd", stochastic subgradients, which has `partial_fit`.
        partners: of how many points, drawn at random, the best is taken for a merge, >= 1; None: of all.
        tol: of "bsca": change of the logarithm of the spread of the summands of f from epoch to epoch to stop at;
            "auto": 1e-3, as its paper recommends; None: none. "bsgd" has nothing to stop on.
        max_passes: over the rows at most, >= 1; None: ten, or with a tolerance 1,000. The larger C, the more are needed, of
            the order of C.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, intercept_: as `SVMClassifier`; the points and their coefficients are in `model_`.

    Example:
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> BudgetedSVC(C=10.0, gamma=1.0, budget=4, random_state=0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        C=1.0,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        budget=500,
        method="bsca",
        partners=59,
        tol="auto",
        max_passes=None,
        class_weight=None,
        random_state=None,
        progress=False,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.budget = budget
        self.method = method
        self.partners = partners
        self.tol = tol
        self.max_passes = max_passes
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _made(self, x, weight):
        choice("method", self.method, ("bsca", "bsgd"))
        kernel = _kernel(self.kernel, self.gamma, self.degree, self.coef0, x, weight)
        kept = {"budget": self.budget, "maintain": suited(kernel, partners=self.partners)}
        if self.method == "bsca":
            return bsca(self.C, kernel, **kept)
        positive(C=self.C)
        return bsgd(lam_from_C(self.C, float(weight.sum())), kernel, **kept)

    def _again(self, x, weight):
        return self._solver  # lambda and the kernel are those of the first rows

    def _limits(self, n):
        return {"steps": None, "passes": self.max_passes, "tol": self.tol, "sampler": None, "progress": self.progress}

    def _widens(self):
        return _widening(self.kernel)

    def _goes_on(self):
        if self.method != "bsgd":
            raise AttributeError("partial_fit takes method='bsgd': 'bsca' keeps a number for each row")
        return True


def _loss(loss: Any) -> Any:
    known = {"hinge": losses.hinge, "squared_hinge": losses.squared_hinge}
    if isinstance(loss, str) and loss not in known:
        raise ValueError(f"loss must be 'hinge', 'squared_hinge' or a loss of jaxsvm, got {loss!r}")
    return known[loss] if isinstance(loss, str) else loss


# Feature maps.


class _Map(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Checked rows in, features out."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X, y=None):
        """Draw the map for rows like X, (n, d); y is not looked at."""
        x = _narrow(validate_data(self, X, accept_sparse="csr", dtype=FLOATS))
        kernel = _kernel(self.kernel, self.gamma, self.degree, self.coef0, x)
        self.phi_ = self._map(jax.random.key(_seed(self.random_state)), kernel, x)
        self._n_features_out = jax.eval_shape(self.phi_, jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype)).shape[1]
        return self

    def transform(self, X):
        """(n, d) -> (n, n_components)."""
        check_is_fitted(self, "phi_")
        return _apply(self.phi_, validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False))


class NystromFeatures(_Map):
    """Nystrom features of a kernel: products of features are kernel values, exactly so at the landmarks.

    Args:
        kernel: as `SVC`, but "precomputed".
        gamma: as `SVC`.
        degree: as `SVC`.
        coef0: as `SVC`.
        n_components: landmarks, >= 1; at most as many as rows.
        choose: "uniform", or a function such as `jaxsvm.features.k_means()` or `jaxsvm.features.leverage_scores()`.
        random_state: as `SVMClassifier`.

    Attributes:
        phi_: the map, see `jaxsvm.features.nystrom`.

    Example:
        >>> NystromFeatures(gamma=1.0, n_components=2, random_state=0).fit_transform([[0.0], [1.0], [2.0]]).shape
        (3, 2)
    """

    def __init__(
        self, kernel="rbf", *, gamma="scale", degree=3, coef0=0.0, n_components=100, choose="uniform", random_state=None
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.choose = choose
        self.random_state = random_state

    def _map(self, key, kernel, x):
        if isinstance(self.choose, str) and self.choose != "uniform":
            raise ValueError(f"choose must be 'uniform' or a function such as jaxsvm.features.k_means(), got {self.choose!r}")
        size = self.n_components
        if size > x.shape[0]:
            size = x.shape[0]
            warnings.warn(f"n_components={self.n_components} landmarks, but only {size} rows: all are taken", stacklevel=3)
        drawn = isinstance(self.choose, str)
        if drawn:  # on the host: the other rows need not go to the device
            x = x[np.random.default_rng(np.asarray(jax.random.key_data(key))).choice(x.shape[0], size, replace=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the scale of the columns is the solver's matter
            rows = dataset(x, np.zeros(x.shape[0]), task="regression").x
        if drawn:
            return features.nystrom(None, kernel, landmarks=rows)
        return features.nystrom(key, kernel, rows, landmarks=size, choose=self.choose)


class FourierFeatures(_Map):
    """Random Fourier features of a kernel: products of features are kernel values in the mean.

    Args:
        kernel: "rbf", "laplacian", or such a kernel of jaxsvm.
        gamma: as `SVC`.
        n_components: features, >= 1; even with form "paired".
        form: "paired", cosines and sines of the same frequencies; "phase"; "auto": "paired" where n_components is even.
        random_state: as `SVMClassifier`.

    Attributes:
        phi_: the map, see `jaxsvm.features.fourier`.

    Example:
        >>> FourierFeatures(gamma=1.0, n_components=4, random_state=0).fit_transform([[0.0], [1.0], [2.0]]).shape
        (3, 4)
    """

    degree, coef0 = 3, 0.0  # no kernel of theirs has a law of frequencies

    def __init__(self, kernel="rbf", *, gamma="scale", n_components=100, form="auto", random_state=None):
        self.kernel = kernel
        self.gamma = gamma
        self.n_components = n_components
        self.form = form
        self.random_state = random_state

    def _map(self, key, kernel, x):
        form = ("phase" if self.n_components % 2 else "paired") if self.form == "auto" else self.form
        return features.fourier(key, kernel, dim=x.shape[1], features=self.n_components, form=form)
