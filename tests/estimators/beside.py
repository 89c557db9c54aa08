"""What tests of machines share: rows, and fits of ours beside those of scikit-learn."""

import functools

import numpy as np
import pytest
import sklearn.svm
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.metrics.pairwise import rbf_kernel

from jaxsvm import estimators

USUAL = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings(
        "ignore:the ranges of the columns",
        "ignore:.*tolerance.*not met",
        "ignore:Liblinear",
        "ignore:n_components",
        "ignore::FutureWarning",
    ),
]
close, equal = np.testing.assert_allclose, np.testing.assert_array_equal

TOY = np.array([[-2.0, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]])
LABELS, AT = [1, 1, 1, 2, 2, 2], np.array([[-1.0, -1], [2, 2], [3, 2]])
IRIS, SPECIES = load_iris(return_X_y=True)
SPECIES = load_iris().target_names[SPECIES]
REAL, TARGET = load_diabetes(return_X_y=True)
REAL, TARGET = REAL[:200, :8] * 20, (TARGET[:200] - TARGET[:200].mean()) / TARGET[:200].std()


def clear_rows(k=2, n=90, d=4):
    """Rows of k classes, of which a tenth have another name."""
    options = {"n_informative": 3, "n_redundant": 0, "n_clusters_per_class": 1, "flip_y": 0.1}
    x, y = make_classification(n, d, n_classes=k, random_state=0, **options)
    return x, np.array(["ant", "bee", "cat"])[y]


DATA = {
    "two": clear_rows(2),
    "three": clear_rows(3),
    "toy": (TOY, LABELS),
    "iris": (IRIS, SPECIES),
    # row 142 is equal to row 101; they would share a coefficient
    "flowers": (np.delete(IRIS, 142, 0), np.delete(SPECIES, 142)),
    "real": (REAL, TARGET),
    "shifted": (REAL + 3,),  # 0 is outside
}


def both(name, data, tol=None, **options):
    """Our machine of a name and scikit-learn's, on a data set by its name or on given rows.

    With `tol` ours ends there, and theirs at less.
    """
    made = []
    for module, tight in ((estimators, tol), (sklearn.svm, tol and 1e-8)):
        given = {} if tight is None else {"tol": tight}
        if name.startswith("Linear"):
            given["random_state"] = 0
        machine = getattr(module, name)(**options | given)
        if name.startswith("Linear") and module is sklearn.svm:
            machine.set_params(tol=1e-9, max_iter=10**6)
        made.append(machine.fit(*(DATA[data] if isinstance(data, str) else data)))
    return made


known = functools.cache(both)  # data by name: each is fitted once


def values(machine, x):
    """Decision values, or the predictions of a regressor."""
    return (
        machine.decision_function if hasattr(machine, "decision_function") else machine.predict
    )(x)


def by_hand(held, x, gamma):
    """Decision values of a Gaussian machine from the points of each class."""
    points = zip(held.x, held.coef, strict=True)
    return np.transpose([coef @ rbf_kernel(at, x, gamma=gamma) for at, coef in points])


def agree(ours, theirs, x, atol):
    """Their values of the rows are within `atol` of each other."""
    close(values(ours, x), values(theirs, x), atol=atol)


def same(ours, theirs, names, atol=0.0):
    """Their attributes have the same shapes, and are equal, or within `atol`."""
    for name in names.split():
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert np.shape(mine) == np.shape(other), name
        if atol:
            close(mine, other, atol=atol, err_msg=name)
        else:
            equal(mine, other, err_msg=name)


def primal(machine, x, y, C, power=1, weight=1.0):
    """1/2 |w|^2 + 1/2 b^2 + C sum weight slack^power, over all classes against the rest."""
    names = machine.classes_ if len(machine.classes_) > 2 else machine.classes_[1:]
    w, b = np.float64(machine.coef_), np.float64(machine.intercept_)
    sign = np.where(np.reshape(y, (-1, 1)) == names, 1, -1)
    slack = np.maximum(0, 1 - sign * (x @ w.T + b))
    return (np.sum(w**2) + np.sum(b**2)) / 2 + C * np.sum(
        np.reshape(weight, (-1, 1)) * slack**power
    )
