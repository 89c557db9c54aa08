"""Targets that float32 does not hold, and rows whose squares it does not hold: right all the
same."""

import pickle
import time
import warnings

import numpy as np
import pytest
import sklearn.datasets
import sklearn.svm
from beside import USUAL, both, close, equal
from sklearn.datasets import load_iris

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.data import standardize
from jaxsvm.estimators import SVC, SVR, GridCV, LinearSVR, NuSVR, OneClassSVM, SVMRegressor

pytestmark = [*USUAL, pytest.mark.filterwarnings("error:rounding to", "error:the numbers of")]

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (200, 1))
SINE = np.sin(X).ravel()
IRIS, SPECIES = load_iris(return_X_y=True)
IRIS, SPECIES = IRIS[50:], SPECIES[50:]
IRIS = (IRIS - IRIS.mean(axis=0)) / IRIS.std(axis=0)


FAR = {
    "1e9": 1e9 + 10 * SINE,
    "1e7": 1e7 + SINE,
    "below 0": -4e12 + SINE,
    "with outliers": np.where(np.arange(200) % 50 == 0, 0.0, 1e8 + SINE),
    "two days of seconds": 1.7e9 + 40 * SINE,
}


@pytest.mark.parametrize("y", FAR.values(), ids=FAR.keys())
def test_targets_far_from_0_are_those_of_scikit_learn(y):
    made = both("SVR", (X, y), gamma=0.5, C=100)
    near, middle = np.abs(y - np.median(y)) < 100, np.median(y)
    ours, theirs = (np.abs(each.predict(X) - y)[near].max() for each in made)
    assert ours < max(0.3, 1.5 * theirs)
    assert made[0].intercept_.dtype == np.float64
    close(*(each.intercept_ - middle for each in made), atol=0.2)


def test_a_shift_of_the_targets_is_one_of_the_intercept():
    y = np.round(64 * SINE) / 64 + 100
    first, second = (SVR(gamma=0.5, C=10).fit(X, y + shift) for shift in (0.0, 2.0**33))
    equal(first.dual_coef_, second.dual_coef_)
    close(first.predict(X) + 2.0**33, second.predict(X), rtol=1e-15)


@pytest.mark.long
def test_copies_and_weights_have_the_same_centre():
    weight, y, made = RNG.integers(0, 3, 200), FAR["1e9"], SVR(gamma=0.5, C=100)
    copies = np.repeat(np.arange(200), weight)
    equal(made.fit(X, y, weight).predict(X), made.fit(X[copies], y[copies]).predict(X))


@pytest.mark.long
def test_the_model_holds_the_centre(tmp_path):
    y = FAR["1e9"]
    reg = SVR(gamma=0.5, C=100).fit(X, y)
    models.save(tmp_path / "a.npz", reg.model_)
    loaded = models.load(tmp_path / "a.npz")
    assert float(loaded.b) == reg.intercept_[0]
    close(loaded(X.astype(np.float32)), y, rtol=2e-7)
    close(reg.fit_.model(X.astype(np.float32)), y, rtol=2e-7)
    equal(pickle.loads(pickle.dumps(reg)).predict(X), reg.predict(X))
    near = reg.fit(X, SINE)  # the centre of an earlier fit is not kept
    assert np.abs(near.predict(X) - SINE).max() < 0.2


TUBE = {"kernel": kernels.rbf(gamma=0.5), "loss": losses.eps_insensitive(0.1)}
FREE = {
    "nu": (NuSVR(gamma=0.5, C=100), X),
    "decomposition": (SVMRegressor(jaxsvm.decomposition(100.0, **TUBE)), X),
    "smo": (SVMRegressor(jaxsvm.smo(100.0, **TUBE)), X),
    "least squares": (SVMRegressor(jaxsvm.least_squares(1e-4)), np.sin(X)),
}


@pytest.mark.long
@pytest.mark.parametrize(("made", "x"), FREE.values(), ids=FREE)
def test_machines_with_a_free_intercept(made, x):
    assert np.abs(made.fit(x, FAR["1e9"]).predict(x) - FAR["1e9"]).max() < 0.3
    if "least" in repr(made):
        close(made.intercept_, 1e9, atol=0.05)


@pytest.mark.long
def test_partial_fit_keeps_its_centre():
    solver = jaxsvm.pegasos(1e-3, loss=losses.eps_insensitive(0.0), bias="free")
    far, near = (SVMRegressor(solver, random_state=0) for _ in range(2))
    rows, y = np.sin(X), np.round(64 * SINE) / 64
    y = y - np.sort(y[:100])[49]  # the lower median of the first rows is 0
    for part in (slice(100), slice(100, 200)):
        far.partial_fit(rows[part], y[part] + 1e9)
        near.partial_fit(rows[part], y[part])
    close(far.predict(rows) - 1e9, near.predict(rows), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_percentage_error"])
def test_cross_validation_of_targets_far_from_0(scoring):
    y = FAR["1e9"]
    reg = GridCV(SVR(), {"C": [1.0, 100.0], "gamma": [0.5]}, cv=3, scoring=scoring).fit(X, y)
    theirs = sklearn.svm.SVR(gamma=0.5, C=100)
    folds = sklearn.model_selection.cross_val_score(theirs, X, y, cv=3, scoring=scoring)
    close(reg.scores_[1, 0], folds, rtol=0.02)
    assert np.abs(reg.selection_.scores[1, 0] - y).max() < 1
    close(
        float(reg.selection_.model.b), reg.best_estimator_.intercept_[0], rtol=0, atol=2e-3
    )  # tol
    assert np.abs(reg.predict(X) - y).max() < 0.3


@pytest.mark.long
@pytest.mark.parametrize("make", [LinearSVR, SVMRegressor])
def test_a_regularised_intercept_is_warned_of(make):
    with pytest.warns(UserWarning, match="rounding to float32 moves y by .* subtract it bef"):
        make(random_state=0).fit(np.sin(X), FAR["1e9"])


@pytest.mark.long
@pytest.mark.parametrize("make", [SVR, NuSVR])
@pytest.mark.parametrize("y", [2000 + 5 * IRIS[:, 0], 250_000 + 40 * IRIS[:, 0]], ids=["5", "40"])
def test_far_targets_take_no_more_rounds(make, y):
    far, near = make(C=50).fit(IRIS, y), make(C=50).fit(IRIS, y - np.median(y))
    assert far.n_iter_ <= 2 * near.n_iter_ and far.fit_status_ == 0
    close(far.predict(IRIS) - np.median(y), near.predict(IRIS), atol=0.01)


@pytest.mark.long
def test_a_one_class_machine_of_a_polynomial_ends():
    """Kernel values up to 1e6: rounding stops the run."""
    rows, _ = sklearn.datasets.make_blobs(80, random_state=0)
    began = time.process_time()
    machine = OneClassSVM(kernel="poly", gamma=1).fit(rows)
    assert time.process_time() - began < 9  # with compilation; 18 s where it went on
    theirs = sklearn.svm.OneClassSVM(kernel="poly", gamma=1).fit(rows)
    assert (machine.predict(rows) == theirs.predict(rows)).mean() > 0.95


# Rows of any size.

TINY, LARGE = 2.0**-53, 2.0**53
SIZES = [  # the kernel, its numbers, the unit, and what a width is in it
    ({"C": 10}, TINY, {}),
    ({"C": 10}, LARGE, {}),
    ({"kernel": "poly", "C": 10}, TINY, {}),
    ({"kernel": "sigmoid"}, TINY, {}),
    ({"kernel": "laplacian", "gamma": 1e16}, TINY, {"gamma": 1e16 * TINY}),
    ({"gamma": 1e31}, TINY, {"gamma": 1e31 * TINY**2}),
]


@pytest.mark.long
@pytest.mark.parametrize(("options", "unit", "plain"), SIZES)
def test_the_unit_of_the_rows_changes_nothing(options, unit, plain):
    plain = SVC(**options | plain).fit(IRIS, SPECIES)
    tiny = SVC(**options).fit(IRIS * unit, SPECIES)
    assert tiny.score(IRIS * unit, SPECIES) == plain.score(IRIS, SPECIES) > 0.9
    close(tiny.decision_function(IRIS * unit), plain.decision_function(IRIS), atol=0.02)


@pytest.mark.parametrize("unit", [1e-34, 1e-19, 1e36])
def test_standardised_rows_of_any_unit(unit):
    rows = np.asarray(IRIS * unit, np.float32)
    moved = np.asarray(standardize(rows)(rows), np.float64)
    close(moved.std(axis=0), 1, rtol=1e-5)
    close(moved, IRIS, atol=1e-5)


def test_the_grid_of_gamma_has_the_unit_of_the_rows():
    grid = lambda unit: kernels.gamma_grid((IRIS * unit).astype(np.float32), 4)
    close(grid(2.0**-64), grid(1.0) * 2.0**128)


@pytest.mark.parametrize("unit", [1e-18, 1e-25])
def test_rows_whose_squares_underflow_are_warned_of(unit):
    with pytest.warns(UserWarning, match="numbers of column 3 differ by .* underflow in float32"):
        jaxsvm.dataset(IRIS * unit, np.where(SPECIES == 1, -1, 1))


def test_rows_of_ordinary_size_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxsvm.dataset(IRIS * 1e-12, np.where(SPECIES == 1, -1, 1))
