"""Models from fitted estimators of scikit-learn, and estimators from models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import is_sparse, shown
from ..kernels import by_name
from ..types import Model, SparseRows, all_finite
from .functions import Expansion, Linear, Mapped
from .libsvm import described, expansion_of, linear_of, linear_weights, support_of
from .multiclass import OneVsOne, OneVsRest, pair_coef
from .predictions import Classifier

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_OTHERS = {  # estimators that hold another one, and how to reach that
    "Pipeline": ": pass its last step, pipeline[-1]; pipeline[:-1] maps the rows",
    "BaseSearchCV": ": pass its best_estimator_",
}
_SCALERS = {"Standardize": ("mean", "scale"), "Scale": ("low", "width")}  # (x - first) / second


def from_sklearn(fitted: BaseEstimator) -> Model:
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
        >>> import jax.numpy as jnp, jaxsvm
        >>> from sklearn.svm import SVC
        >>> machine = SVC(C=10.0, gamma=1.0).fit([[0.0], [1.0], [2.0]], ["a", "b", "a"])
        >>> jaxsvm.models.from_sklearn(machine).predict(jnp.array([[0.9], [2.1]])).tolist()
        ['b', 'a']
    """
    own = [cls.__name__ for cls in type(fitted).__mro__ if cls.__module__.startswith("sklearn.")]
    if any(cls.__module__.startswith("jaxsvm.") for cls in type(fitted).__mro__):
        _check_fitted(fitted, "model_")
        return fitted.model_
    read = next((_MACHINES[name] for name in own if name in _MACHINES), None)
    if read is None:
        how = next((how for name, how in _OTHERS.items() if name in own), "")
        raise TypeError(
            f"from_sklearn takes {', '.join(_MACHINES)}, got {type(fitted).__name__}{how}"
        )
    with np.errstate(over="ignore"):
        model = read(fitted)
    if not all_finite(model):
        raise ValueError(
            "the estimator holds numbers that are not finite in float32: scale the rows and fit "
            "it again, or switch on 64-bit numbers, jax.config.update('jax_enable_x64', True)"
        )
    if not hasattr(fitted, "classes_"):
        return model
    columns = tuple(getattr(fitted, "feature_names_in_", ()))
    return Classifier(model, tuple(fitted.classes_.tolist()), columns)


def _check_fitted(estimator: object, attribute: str) -> None:
    """Raise ValueError for an estimator without an attribute of fitted ones."""
    if not hasattr(estimator, attribute):
        raise ValueError(f"{type(estimator).__name__} is not fitted: call its fit first")


def _dense(values: object) -> np.ndarray:
    """An array of float64, from one or from a sparse matrix."""
    return np.asarray(values.toarray() if is_sparse(values) else values, np.float64)


def _kernel_machine(machine: Any) -> Any:
    """The expansion of a machine on LIBSVM, or those of all pairs."""
    _check_fitted(machine, "dual_coef_")
    if callable(machine.kernel):
        raise ValueError(
            f"the kernel is a Python function, {shown(machine.kernel)}: write it with jax.numpy, "
            "kernels.custom(fn), and make an Expansion of it"
        )
    kernel = by_name(machine.kernel, machine._gamma, machine.coef0, machine.degree)
    k, coef = len(getattr(machine, "classes_", "ab")), _dense(machine.dual_coef_)
    coef = pair_coef(coef.T, machine.n_support_) if k > 2 else coef
    b, n = _dense(machine.intercept_), machine.shape_fit_[0]
    return expansion_of(kernel, machine.support_vectors_, machine.support_, coef, b, n, k)


def _linear_machine(machine: Any) -> Any:
    """The linear model of a machine, or those of all classes."""
    _check_fitted(machine, "coef_")
    one_class = hasattr(machine, "offset_") and not hasattr(machine, "intercept_")
    b = -_dense(machine.offset_) if one_class else _dense(machine.intercept_)
    # LIBLINEAR regularises the bias with the weights
    bias = "feature" if getattr(machine, "intercept_scaling", None) == 1 else "free"
    bias = bias if getattr(machine, "fit_intercept", True) else "none"
    return linear_of(np.atleast_2d(_dense(machine.coef_)), b, bias)


_MACHINES = {
    **dict.fromkeys(("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM"), _kernel_machine),
    **dict.fromkeys(("LinearSVC", "LinearSVR", "SGDClassifier", "SGDRegressor"), _linear_machine),
    **dict.fromkeys(("SGDOneClassSVM", "Perceptron"), _linear_machine),
    **dict.fromkeys(("PassiveAggressiveClassifier", "PassiveAggressiveRegressor"), _linear_machine),
}


def to_sklearn(model: Any, *, task: str | None = None) -> BaseEstimator:
    """A fitted estimator of scikit-learn with the decision values of a model.

    It predicts, and is pickled, where jaxsvm is not installed. Kernel models become `SVC`, `SVR` or
    `OneClassSVM`, linear ones `LinearSVC`, `LinearSVR` or `SGDOneClassSVM`. Their parameters are
    the defaults but for the kernel, as the model does not tell C or its loss. Where two classes
    have equally many votes, `SVC` predicts the first; here the sum of the values decides.

    A model with the scale of its columns inside, as `on_features(scale, solver)` trains it, becomes
    a `Pipeline` of a `StandardScaler` and its estimator, which takes raw rows.

    Args:
        model: `Expansion`, `Linear`, `OneVsOne`, `OneVsRest` of `Linear`, or a `Classifier` of one
            of these, with a kernel of LIBSVM; or one of these in a `Mapped` by
            `data.standardize(x)` or `data.scale(x)`.
        task: "classification", "regression" or "one_class". None: "classification" for a
            `Classifier`, as `result.classifier`, and for more than two classes, else "regression",
            as `result.model` knows no names. Without these, classes are -1 and +1, or 0 .. k-1.

    Raises:
        TypeError: not a model.
        ValueError: the estimators cannot hold the model: another kernel, other feature maps,
            numbers that are not finite.
        ImportError: scikit-learn is not installed.

    Warns:
        UserWarning: task is None, and a model without names is taken for a regression.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsvm.models import Classifier, Linear, to_sklearn
        >>> model = Classifier(Linear(jnp.array([2.0, -1.0]), jnp.array(0.5)), ("ham", "spam"))
        >>> machine = to_sklearn(model)
        >>> machine.decision_function([[1.0, 1.0]]).tolist(), machine.predict([[1, 1]]).tolist()
        ([1.5], ['spam'])
    """
    mapped, columns = (model.inner, model.columns) if isinstance(model, Classifier) else (model, ())
    known = {"feature_names_in_": np.array(columns, object)} if columns else {}
    if isinstance(mapped, Mapped) and type(mapped.phi).__name__ in _SCALERS:
        from sklearn.pipeline import make_pipeline

        within = {"inner": mapped.inner, "columns": ()}
        rest = mapped.inner if model is mapped else dataclasses.replace(model, **within)
        return make_pipeline(_scaler(mapped.phi, known), to_sklearn(rest, task=task))
    inner, names, task = described("to_sklearn", model, task)
    is_linear = isinstance(inner, Linear | OneVsRest)
    machine = (_linear_estimator if is_linear else _kernel_estimator)(inner, task)
    vars(machine).update(known | ({} if names is None else {"classes_": np.array(names)}))
    return machine


def _scaler(phi: Callable, known: dict) -> BaseEstimator:
    """The map of columns as a fitted `StandardScaler`; `known` are the names of columns."""
    from sklearn.preprocessing import StandardScaler

    shift, width = (getattr(phi, name) for name in _SCALERS[type(phi).__name__])
    made, width = StandardScaler(with_mean=shift is not None), _dense(width)
    mean = None if shift is None else _dense(shift)
    known = known | {"mean_": mean, "scale_": width, "var_": width**2}
    vars(made).update(known, n_features_in_=len(width))
    return made


def _linear_estimator(model: Linear | OneVsRest, task: str) -> BaseEstimator:
    """A linear estimator, with the attributes that its `fit` sets."""
    from sklearn.linear_model import SGDOneClassSVM
    from sklearn.svm import LinearSVC, LinearSVR

    w, b, bias = linear_weights(model)
    has_bias = bias != "none" or bool(b.any())
    kind = {"classification": LinearSVC, "regression": LinearSVR, "one_class": SGDOneClassSVM}[task]
    machine = kind() if task == "one_class" else kind(fit_intercept=has_bias)
    fitted = {"offset_": -b} if task == "one_class" else {"intercept_": b if has_bias else 0.0}
    coef = w if task == "classification" else w[0]
    vars(machine).update(fitted, coef_=coef, n_features_in_=w.shape[1], n_iter_=0)
    return machine


def _kernel_estimator(model: Expansion | OneVsOne, task: str) -> BaseEstimator:
    """An estimator on LIBSVM, with the attributes that its `fit` sets.

    LIBSVM's values of two classes are positive for the first, those of scikit-learn for the second.
    """
    from sklearn.svm import SVC, SVR, OneClassSVM

    sign = -1.0 if task == "classification" and isinstance(model, Expansion) else 1.0
    kernel, x, index, coef, n_support, b = support_of(model, sign)
    name = kernel.pop("kernel_type").replace("polynomial", "poly")
    settings = {"gamma": 1.0} | {key: np.asarray(value).item() for key, value in kernel.items()}
    kind = {"classification": SVC, "regression": SVR, "one_class": OneClassSVM}[task]
    machine, coef = kind(kernel=name, **settings), np.ascontiguousarray(coef.T)
    inner: Any = model if isinstance(model, Expansion) else model.inner
    sparse = isinstance(inner, Expansion) and isinstance(inner.x, SparseRows)
    points, shape = x if sparse else x.toarray(), x.shape
    if name == "precomputed":
        points, shape = np.empty((0, 0)), (inner.coef.shape[-1],) * 2
    if sparse:  # a matrix that holds all of them, as `fit` leaves them
        dense, coef = coef, type(x)(np.ones(coef.shape))
        coef.data[:] = dense.ravel()
    n_support = n_support if task == "classification" else [len(index)] * 2
    vars(machine).update(
        support_=index.astype(np.int32),
        support_vectors_=points,
        shape_fit_=shape,
        n_features_in_=shape[1],
        dual_coef_=sign * coef,
        intercept_=sign * b,
        class_weight_=np.ones(len(n_support)),
        fit_status_=0,
        _sparse=sparse,
        _gamma=machine.gamma,
        _n_support=np.array(n_support, np.int32),
        _dual_coef_=coef,
        _intercept_=b,
        _probA=np.empty(0),
        _probB=np.empty(0),
        _effective_probability=False,
    )
    if task == "one_class":
        machine.offset_ = -b
    return machine
