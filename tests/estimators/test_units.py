"""Targets that float32 does not hold, and rows whose squares it does not hold: right all the
same."""

import pickle
import time
import warnings

import numpy as np
import pytest
import scipy.sparse
import sklearn.datasets
import sklearn.svm
from sklearn.datasets import load_iris

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.data import standardize
from jaxsvm.estimators import SVC, SVR, GridCV, LinearSVR, NuSVR, OneClassSVM, SVMRegressor

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings(
        "ignore:the ranges of the columns", "error:rounding to", "error:the numbers of"
    ),
]

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
    ours = SVR(gamma=0.5, C=100).fit(X, y)
    theirs = sklearn.svm.SVR(gamma=0.5, C=100).fit(X, y)
    near = np.abs(y - np.median(y)) < 100
    assert np.abs(ours.predict(X) - y)[near].max() < max(
        0.3, 1.5 * np.abs(theirs.predict(X) - y)[near].max()
    )
    assert ours.intercept_.dtype == np.float64
    np.testing.assert_allclose(
        ours.intercept_ - np.median(y), theirs.intercept_ - np.median(y), atol=0.2
    )


def test_a_shift_of_the_targets_is_one_of_the_intercept():
    y = np.round(64 * SINE) / 64 + 100
    first, second = (SVR(gamma=0.5, C=10).fit(X, y + shift) for shift in (0.0, 2.0**33))
    np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)
    np.testing.assert_allclose(first.predict(X) + 2.0**33, second.predict(X), rtol=1e-15)


@pytest.mark.long
def test_copies_and_weights_have_the_same_centre():
    weight = RNG.integers(0, 3, 200)
    y, copies = FAR["1e9"], np.repeat(np.arange(200), weight)
    weighted = SVR(gamma=0.5, C=100).fit(X, y, weight)
    np.testing.assert_array_equal(
        weighted.predict(X), SVR(gamma=0.5, C=100).fit(X[copies], y[copies]).predict(X)
    )


@pytest.mark.long
def test_the_model_holds_the_centre(tmp_path):
    y = FAR["1e9"]
    reg = SVR(gamma=0.5, C=100).fit(X, y)
    models.save(tmp_path / "a.npz", reg.model_)
    loaded = models.load(tmp_path / "a.npz")
    assert float(loaded.b) == reg.intercept_[0]
    np.testing.assert_allclose(loaded(X.astype(np.float32)), y, rtol=2e-7)
    np.testing.assert_allclose(reg.fit_.model(X.astype(np.float32)), y, rtol=2e-7)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reg)).predict(X), reg.predict(X))
    near = reg.fit(X, SINE)  # the centre of an earlier fit is not kept
    assert np.abs(near.predict(X) - SINE).max() < 0.2


EXACT = {
    "nu": lambda: NuSVR(gamma=0.5, C=100),
    "decomposition": lambda: SVMRegressor(
        jaxsvm.decomposition(100.0, kernels.rbf(gamma=0.5), loss=losses.eps_insensitive(0.1))
    ),
    "smo": lambda: SVMRegressor(
        jaxsvm.smo(100.0, kernels.rbf(gamma=0.5), loss=losses.eps_insensitive(0.1))
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT.keys())
def test_machines_with_a_free_intercept(make):
    assert np.abs(make().fit(X, FAR["1e9"]).predict(X) - FAR["1e9"]).max() < 0.3


@pytest.mark.long
def test_least_squares_on_targets_far_from_0():
    reg = SVMRegressor(jaxsvm.least_squares(1e-4)).fit(np.sin(X), FAR["1e9"])
    assert np.abs(reg.predict(np.sin(X)) - FAR["1e9"]).max() < 0.3
    np.testing.assert_allclose(reg.intercept_, 1e9, atol=0.05)


@pytest.mark.long
def test_partial_fit_keeps_its_centre():
    solver = jaxsvm.pegasos(1e-3, loss=losses.eps_insensitive(0.0), bias="free")
    far, near = SVMRegressor(solver, random_state=0), SVMRegressor(solver, random_state=0)
    rows, y = np.sin(X), np.round(64 * SINE) / 64
    y = y - np.sort(y[:100])[49]  # the lower median of the first rows is 0
    for part in (slice(100), slice(100, 200)):
        far.partial_fit(rows[part], y[part] + 1e9)
        near.partial_fit(rows[part], y[part])
    np.testing.assert_allclose(far.predict(rows) - 1e9, near.predict(rows), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_percentage_error"])
def test_cross_validation_of_targets_far_from_0(scoring):
    y = FAR["1e9"]
    reg = GridCV(SVR(), {"C": [1.0, 100.0], "gamma": [0.5]}, cv=3, scoring=scoring).fit(X, y)
    folds = sklearn.model_selection.cross_val_score(
        sklearn.svm.SVR(gamma=0.5, C=100), X, y, cv=3, scoring=scoring
    )
    np.testing.assert_allclose(reg.scores_[1, 0], folds, rtol=0.02)
    assert np.abs(reg.selection_.scores[1, 0] - y).max() < 1
    b = reg.best_estimator_.intercept_[0]
    assert float(reg.selection_.model.b) == pytest.approx(b, abs=2e-3)  # tol
    assert np.abs(reg.predict(X) - y).max() < 0.3


@pytest.mark.long
@pytest.mark.parametrize("make", [LinearSVR, SVMRegressor])
def test_a_regularised_intercept_is_warned_of(make):
    with pytest.warns(
        UserWarning, match="rounding to float32 moves y by .* subtract it beforehand"
    ):
        make(random_state=0).fit(np.sin(X), FAR["1e9"])


@pytest.mark.long
@pytest.mark.parametrize("make", [SVR, NuSVR])
@pytest.mark.parametrize("y", [2000 + 5 * IRIS[:, 0], 250_000 + 40 * IRIS[:, 0]], ids=["5", "40"])
def test_far_targets_take_no_more_rounds(make, y):
    far, near = make(C=50).fit(IRIS, y), make(C=50).fit(IRIS, y - np.median(y))
    assert far.n_iter_ <= 2 * near.n_iter_ and far.fit_status_ == 0
    np.testing.assert_allclose(far.predict(IRIS) - np.median(y), near.predict(IRIS), atol=0.01)


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

SIZES = {
    "svc": (SVC(C=10), 2.0**-53),
    "poly": (SVC(kernel="poly", C=10), 2.0**-53),
    "laplacian": (SVC(kernel="laplacian", gamma=1e16), 2.0**-53),
    "sigmoid": (SVC(kernel="sigmoid"), 2.0**-53),
    "gamma": (SVC(gamma=1e31), 2.0**-53),
    "large": (SVC(C=10), 2.0**53),
}


@pytest.mark.long
@pytest.mark.parametrize(("clf", "unit"), SIZES.values(), ids=SIZES.keys())
def test_the_unit_of_the_rows_changes_nothing(clf, unit):
    by_size = isinstance(clf.gamma, float)
    power = 1 if clf.kernel == "laplacian" else 2
    plain = SVC(**clf.get_params() | ({"gamma": clf.gamma * unit**power} if by_size else {})).fit(
        IRIS, SPECIES
    )
    tiny = clf.fit(IRIS * unit, SPECIES)
    assert tiny.score(IRIS * unit, SPECIES) == plain.score(IRIS, SPECIES) > 0.9
    values = plain.decision_function(IRIS)
    np.testing.assert_allclose(tiny.decision_function(IRIS * unit), values, atol=0.02)


@pytest.mark.parametrize("rows", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("unit", [1e-20, 1e-30])
def test_rows_whose_gamma_is_no_number_of_solvers_are_refused(rows, unit):
    with pytest.raises(ValueError, match="gamma must be from .* scale the columns of X instead"):
        SVC(C=10).fit(rows(IRIS * unit), SPECIES)


@pytest.mark.parametrize("unit", [1e-19, 1e-30, 1e-34, 1e19, 1e36])
def test_standardised_rows_of_any_unit(unit):
    rows = np.asarray(IRIS * unit, np.float32)
    moved = np.asarray(standardize(rows)(rows), np.float64)
    np.testing.assert_allclose(moved.std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(moved, IRIS, atol=1e-5)


def test_the_grid_of_gamma_has_the_unit_of_the_rows():
    grid = kernels.gamma_grid(IRIS.astype(np.float32), 4)
    np.testing.assert_allclose(
        kernels.gamma_grid((IRIS * 2.0**-64).astype(np.float32), 4), grid * 2.0**128
    )


@pytest.mark.parametrize("unit", [1e-18, 1e-19, 1e-25])
def test_rows_whose_squares_underflow_are_warned_of(unit):
    with pytest.warns(
        UserWarning, match="the numbers of column 3 differ by .* underflow in float32"
    ):
        jaxsvm.dataset(IRIS * unit, np.where(SPECIES == 1, -1, 1))


@pytest.mark.parametrize("unit", [1e19, 1e30])
def test_rows_whose_squares_overflow_are_refused(unit):
    with pytest.raises(ValueError, match="squares sum up to what is too large"):
        SVC().fit(IRIS * unit, SPECIES)


def test_rows_of_ordinary_size_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxsvm.dataset(IRIS * 1e-12, np.where(SPECIES == 1, -1, 1))
