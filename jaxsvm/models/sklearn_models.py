"""Models from fitted estimators of scikit-learn."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..checks import shown
from ..kernels import Kernel, by_name
from ..numerics import pad_rows
from ..types import all_finite
from .functions import Expansion, Linear, make_expansion, on_training_rows
from .multiclass import OneVsRest, pair_coef, stack_pairs
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
    return Classifier(stack_pairs(model, len(classes)) if many else model, tuple(classes))


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
        return Classifier(inner, tuple(machine.classes_.tolist()))
    return inner


def _bias(machine: Any) -> str:
    """The kind of the bias; LIBLINEAR regularises it with the weights."""
    if not getattr(machine, "fit_intercept", True):
        return "none"
    return "feature" if getattr(machine, "intercept_scaling", None) == 1 else "free"
