"""Models from fitted estimators of scikit-learn, and estimators from models."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..checks import shown
from ..kernels import Kernel, by_name
from ..numerics import listed_entries, pad_rows
from ..types import SparseRows, all_finite
from .functions import Expansion, Linear, make_expansion, on_training_rows
from .libsvm import check_index, class_blocks, described, kernel_lines_of, linear_weights, points_of
from .multiclass import OneVsOne, OneVsRest, pair_coef, stack_pairs
from .predictions import Classifier
from .text import run_dtype

_KERNEL_MACHINES = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
_LINEAR_MACHINES = (
    *("LinearSVC", "LinearSVR", "SGDClassifier", "SGDRegressor", "SGDOneClassSVM"),
    *("Perceptron", "PassiveAggressiveClassifier", "PassiveAggressiveRegressor"),
)
_PARTS = {  # estimators that hold another one, and how to reach that
    "Pipeline": "pass its last step, pipeline[-1]; pipeline[:-1] maps the rows",
    "BaseSearchCV": "pass its best_estimator_",
}


def from_sklearn(fitted: Any) -> Any:
    """The model of a fitted support vector machine of scikit-learn.

    Its decision values are those of the estimator. scikit-learn is not imported.

    Args:
        fitted: `SVC`, `NuSVC`, `SVR`, `NuSVR`, `OneClassSVM`, `LinearSVC`, `LinearSVR`,
            `SGDClassifier`, `SGDRegressor`, `SGDOneClassSVM`, `Perceptron`,
            `PassiveAggressiveClassifier` or `PassiveAggressiveRegressor`, or a subclass; dense or
            sparse. Of estimators of jaxsvm, `model_` is returned.

    Returns:
        `Classifier` of `Expansion` or `Linear` for two classes, of `OneVsOne` (`SVC`, `NuSVC`) or
        `OneVsRest` for more. `Expansion` or `Linear` otherwise. Support vectors of a machine that
        was fitted on sparse rows are `SparseRows`. The rows of a precomputed kernel have a column
        for each training row. Where two classes have equally many votes, the sum of the values
        decides, as in `SVC(break_ties=True)`.

    Raises:
        TypeError: another estimator.
        ValueError: not fitted, a kernel that is a Python function, or numbers beyond float32.

    Example:
        >>> from sklearn.svm import SVC
        >>> machine = SVC(C=10.0, gamma=1.0).fit([[0.0], [1.0], [2.0]], ["a", "b", "a"])
        >>> from_sklearn(machine).predict(jnp.array([[0.9], [2.1]])).tolist()
        ['b', 'a']
    """
    names = [cls.__name__ for cls in type(fitted).__mro__ if cls.__module__.startswith("sklearn.")]
    if any(cls.__module__.startswith("jaxsvm.") for cls in type(fitted).__mro__):
        _check_fitted(fitted, "model_")
        return fitted.model_
    readers = dict.fromkeys(_KERNEL_MACHINES, _kernel_machine)
    readers |= dict.fromkeys(_LINEAR_MACHINES, _linear_machine)
    read = next((readers[name] for name in names if name in readers), None)
    if read is None:
        how = next((how for name, how in _PARTS.items() if name in names), None)
        raise TypeError(
            f"from_sklearn takes {', '.join((*_KERNEL_MACHINES, *_LINEAR_MACHINES))}, got "
            f"{type(fitted).__name__}" + (f": {how}" if how else "")
        )
    with np.errstate(over="ignore"):
        model = read(fitted)
    if not all_finite(model):
        raise ValueError(
            "the estimator holds numbers that are not finite in float32: scale the rows and fit "
            "it again, or switch on 64-bit numbers, jax.config.update('jax_enable_x64', True)"
        )
    return model


def _check_fitted(estimator: Any, attribute: str) -> None:
    """Raise ValueError for an estimator without an attribute of fitted ones."""
    if not hasattr(estimator, attribute):
        raise ValueError(f"{type(estimator).__name__} is not fitted: call its fit first")


def _dense(values: Any) -> np.ndarray:
    """An array of float64, from one or from a sparse matrix."""
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64)


def _kernel(machine: Any) -> Kernel:
    """The kernel of a fitted machine, with the gamma that it was fitted with."""
    name, gamma = machine.kernel, getattr(machine, "_gamma", None)
    if callable(name):
        raise ValueError(
            f"the kernel is a Python function, {shown(name)}: write it with jax.numpy, "
            "kernels.custom(fn), and make an Expansion of it"
        )
    return by_name(name, gamma, machine.coef0, machine.degree)


def _kernel_machine(machine: Any) -> Any:
    _check_fitted(machine, "dual_coef_")
    classes = machine.classes_.tolist() if hasattr(machine, "classes_") else None
    dual, b = _dense(machine.dual_coef_), _dense(machine.intercept_)
    many = classes is not None and len(classes) > 2
    coef = pair_coef(dual.T, machine.n_support_) if many else dual[0]
    model = _expansion(machine, _kernel(machine), coef, b if many else b[0])
    if classes is None:
        return model
    return Classifier(
        stack_pairs(model, len(classes)) if many else model, tuple(classes), _columns(machine)
    )


def _expansion(machine: Any, kernel: Kernel, coef: np.ndarray, b: Any) -> Expansion:
    dtype = run_dtype()
    if machine.kernel == "precomputed":
        return on_training_rows(machine.support_, coef, b, machine.shape_fit_[0], dtype)
    points: Any = machine.support_vectors_
    points = points.astype(dtype)
    x = pad_rows(points.tocsr()) if hasattr(points, "tocsr") else jnp.asarray(points)
    return make_expansion(kernel, x, coef, b, machine.support_, dtype)


def _linear_machine(machine: Any) -> Any:
    _check_fitted(machine, "coef_")
    dtype, w = run_dtype(), _dense(machine.coef_)
    one_class = hasattr(machine, "offset_") and not hasattr(machine, "intercept_")
    b = -_dense(machine.offset_) if one_class else _dense(machine.intercept_)
    as_run = lambda values: jnp.asarray(np.asarray(values, dtype))
    if w.ndim == 2 and len(w) > 1:
        b = np.broadcast_to(b, len(w))
        inner: Any = Linear(as_run(w), as_run(b), _bias(machine))
        inner = OneVsRest(inner, (True, True))
    else:
        inner = Linear(as_run(w.reshape(-1)), as_run(np.ravel(b)[0]), _bias(machine))
    if hasattr(machine, "classes_"):
        return Classifier(inner, tuple(machine.classes_.tolist()), _columns(machine))
    return inner


def _columns(machine: Any) -> tuple:
    """The names of the columns that a machine was fitted on; () where they had none."""
    return tuple(getattr(machine, "feature_names_in_", ()))


def _bias(machine: Any) -> str:
    """The kind of the bias; LIBLINEAR regularises it with the weights."""
    if not getattr(machine, "fit_intercept", True):
        return "none"
    return "feature" if getattr(machine, "intercept_scaling", None) == 1 else "free"


def to_sklearn(model: Any, *, task: str | None = None) -> Any:
    """A fitted estimator of scikit-learn with the decision values of a model.

    It predicts, and is pickled, where jaxsvm is not installed. Kernel models become `SVC`, `SVR` or
    `OneClassSVM`, linear ones `LinearSVC`, `LinearSVR` or `SGDOneClassSVM`. Their parameters are
    the defaults but for the kernel, as the model does not tell C or its loss. Where two classes
    have equally many votes, `SVC` predicts the first; here the sum of the values decides.

    Args:
        model: `Expansion`, `Linear`, `OneVsOne`, `OneVsRest` of `Linear`, or a `Classifier` of one
            of these, with a kernel of LIBSVM.
        task: "classification", "regression" or "one_class". None: "classification" for a
            `Classifier` and for more than two classes, else "regression". Without class names,
            classes are -1 and +1, or 0 .. k-1.

    Raises:
        TypeError: not a model.
        ValueError: the estimators cannot hold the model: another kernel, a feature map, numbers
            that are not finite.
        ImportError: scikit-learn is not installed.

    Example:
        >>> model = Classifier(Linear(jnp.array([2.0, -1.0]), jnp.array(0.5)), ("ham", "spam"))
        >>> machine = to_sklearn(model)
        >>> machine.decision_function([[1.0, 1.0]]).tolist(), machine.predict([[1, 1]]).tolist()
        ([1.5], ['spam'])
    """
    inner, names, task = described("to_sklearn", model, task)
    if task == "classification" and names is None:
        names = tuple(range(inner.scores)) if isinstance(inner, OneVsOne | OneVsRest) else (-1, 1)
    if isinstance(inner, Linear | OneVsRest):
        machine = _linear_estimator(inner, task)
    else:
        machine = _kernel_estimator(inner, task)
    if names is not None:
        machine.classes_ = np.array(names)
    return machine


def _linear_estimator(model: Any, task: str) -> Any:
    from sklearn.linear_model import SGDOneClassSVM
    from sklearn.svm import LinearSVC, LinearSVR

    w, b, bias = linear_weights(model)
    has_bias = bias != "none" or bool(b.any())
    if task == "one_class":
        machine = SGDOneClassSVM()
        machine.offset_ = -b
    else:
        machine = (LinearSVC if task == "classification" else LinearSVR)(fit_intercept=has_bias)
        machine.intercept_ = b if has_bias else 0.0
    machine.coef_ = w[0] if task != "classification" else w
    machine.n_features_in_, machine.n_iter_ = w.shape[1], 0
    return machine


def _kernel_estimator(model: Any, task: str) -> Any:
    """An estimator on LIBSVM, with the attributes that its `fit` sets.

    LIBSVM's values of two classes are positive for the first, those of scikit-learn for the second.
    """
    from sklearn.svm import SVC, SVR, OneClassSVM

    points = points_of(model)
    kind = {"classification": SVC, "regression": SVR, "one_class": OneClassSVM}[task]
    settings = dict(line.split(" ", 1) for line in kernel_lines_of(points.kernel))
    name = settings["kernel_type"].replace("polynomial", "poly")
    machine = kind(
        kernel=name,
        gamma=float(settings.get("gamma", 1.0)),
        coef0=float(settings.get("coef0", 0.0)),
        degree=int(settings.get("degree", 3)),
    )
    b, many = points.b, isinstance(model, OneVsOne)
    sign = -1.0 if task == "classification" and not many else 1.0
    if task == "classification":
        k = model.classes if many else 2
        blocks = list(class_blocks(sign * points.coef, k))
        rows = np.concatenate([block[0] for block in blocks])
        coef = np.concatenate([block[1] for block in blocks]).T
        machine._n_support = np.array([len(block[0]) for block in blocks], np.int32)
        machine.class_weight_ = np.ones(k)
    else:
        rows = np.flatnonzero(points.coef[0])
        coef = points.coef[:, rows]
        machine._n_support = np.full(2, len(rows), np.int32)
    _set_support(machine, points, rows)
    coef = np.ascontiguousarray(coef)
    machine._dual_coef_, machine._intercept_ = _as_fitted(machine, coef), sign * b
    machine.dual_coef_, machine.intercept_ = _as_fitted(machine, sign * coef), b
    machine._gamma, machine._probA, machine._probB = machine.gamma, np.empty(0), np.empty(0)
    machine.fit_status_, machine._effective_probability = 0, False
    if task == "one_class":
        machine.offset_ = -b
    return machine


def _set_support(machine: Any, points: Any, rows: np.ndarray) -> None:
    """The support vectors `rows` of the points, and the shape of rows to predict."""
    check_index(points, rows)
    x, machine.support_ = points.x, rows.astype(np.int32)
    if machine.kernel == "precomputed":
        n = len(points.index)
        machine.support_ = points.index[rows].astype(np.int32)
        machine.support_vectors_, machine._sparse = np.empty((0, 0)), False
        machine.shape_fit_ = (n, n)
    else:
        machine._sparse = isinstance(x, SparseRows)
        if machine._sparse:
            machine.support_vectors_ = _csr(x[jnp.asarray(rows)])
        else:
            machine.support_vectors_ = np.ascontiguousarray(np.asarray(x)[rows], np.float64)
        machine.shape_fit_ = machine.support_vectors_.shape
    machine.n_features_in_ = machine.shape_fit_[1]


def _csr(x: SparseRows) -> Any:
    import scipy.sparse

    index, value, length = listed_entries(x)
    start = np.append(0, np.cumsum(length))
    return scipy.sparse.csr_matrix(
        (value.astype(np.float64), index.astype(np.int32), start), x.shape
    )


def _as_fitted(machine: Any, coef: np.ndarray) -> Any:
    """Dual coefficients as `fit` leaves them: of sparse rows a matrix that holds all of them."""
    if not machine._sparse:
        return coef
    import scipy.sparse

    k, m = coef.shape
    columns, start = np.tile(np.arange(m, dtype=np.int32), k), np.arange(k + 1, dtype=np.int32) * m
    return scipy.sparse.csr_matrix((coef.ravel(), columns, start), (k, m))
