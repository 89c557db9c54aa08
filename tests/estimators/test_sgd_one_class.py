"""`SGDOneClassSVM` beside scikit-learn's class of that name and its exact `OneClassSVM`."""

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import jaxsvm
from jaxsvm import models
from jaxsvm.estimators import FourierFeatures, OneClassSVM, SGDOneClassSVM
from jaxsvm.estimators.sgd_one_class_svm import one_class_descent

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore:.*tolerance.*not met"),
]

X = np.random.default_rng(0).normal(1, 0.5, size=(400, 3))


@pytest.mark.long(but=20)
@parametrize_with_checks([SGDOneClassSVM()])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def objective(w, rho, x, nu, weight=None):
    """1/2 |w|^2 - rho + mean max(0, rho - <w, x>) / nu."""
    w, rho = np.ravel(w), float(np.squeeze(rho))
    return w @ w / 2 - rho + np.average(np.maximum(0, rho - x @ w), weights=weight) / nu


@pytest.mark.parametrize("nu", [0.1, 0.3, 0.7])
def test_the_objective_and_the_direction_are_those_of_scikit_learn(nu):
    ours = SGDOneClassSVM(nu, max_iter=50, random_state=0).fit(X)
    theirs = sklearn.linear_model.SGDOneClassSVM(
        nu, max_iter=300, tol=None, random_state=0, average=40_000, eta0=0.5, power_t=0.5
    )
    theirs.set_params(learning_rate="invscaling").fit(X)
    exact = sklearn.svm.OneClassSVM(kernel="linear", nu=nu, tol=1e-6).fit(X)
    n = nu * len(X)
    best = objective(exact.coef_ / n, exact.offset_ / n, X, nu)
    values = [objective(fit.coef_, fit.offset_, X, nu) for fit in (ours, theirs)]
    np.testing.assert_allclose(values, best, rtol=0.01)
    cosine = np.vdot(ours.coef_, exact.coef_)
    cosine /= np.linalg.norm(ours.coef_) * np.linalg.norm(exact.coef_)
    assert cosine > 0.999
    np.testing.assert_allclose(ours.offset_, exact.offset_ / n, rtol=0.02)
    # nu bounds the share outside, up to the rows on the edge
    inside = ours.predict(X)
    assert set(inside) == {-1, 1} and abs((inside < 0).mean() - nu) < 0.02
    np.testing.assert_array_equal(inside, np.where(ours.decision_function(X) >= 0, 1, -1))
    np.testing.assert_allclose(ours.score_samples(X), X @ ours.coef_[0], rtol=1e-5)
    assert ours.coef_.shape == (1, 3) and ours.offset_.shape == (1,)
    assert 50 <= ours.n_iter_ <= 52  # whole chunks


def test_the_unit_of_the_rows_changes_nothing():
    unit = 2.0**-12
    runs = [
        jaxsvm.fit(
            one_class_descent(0.2, scale=4.0 * u * u),
            jaxsvm.dataset(X * u, np.zeros(len(X)), task="regression"),
            jax.random.key(0),
            steps=2000,
        )
        for u in (1.0, unit)
    ]
    np.testing.assert_array_equal(runs[0].model.w * unit, runs[1].model.w)
    np.testing.assert_array_equal(runs[0].model.b * unit**2, runs[1].model.b)
    tiny = SGDOneClassSVM(0.2, random_state=0).fit(X * 1e-4)
    assert abs((tiny.predict(X * 1e-4) < 0).mean() - 0.2) < 0.02


def test_pieces_and_weights():
    pieces = SGDOneClassSVM(0.3, random_state=0)
    for _ in range(20):
        for part in np.split(X, 4):
            pieces.partial_fit(part)
    exact = OneClassSVM(kernel="linear", nu=0.3, tol=1e-5).fit(X)
    n = 0.3 * len(X)
    best = objective(exact.coef_ / n, exact.offset_ / n, X, 0.3)
    np.testing.assert_allclose(objective(pieces.coef_, pieces.offset_, X, 0.3), best, rtol=0.01)
    weight = np.random.default_rng(1).uniform(0, 3, len(X))
    fit = SGDOneClassSVM(0.3, max_iter=50, random_state=0).fit(X, sample_weight=weight)
    exact = OneClassSVM(kernel="linear", nu=0.3, tol=1e-5).fit(X, sample_weight=weight)
    n = 0.3 * weight.sum()
    best, value = (
        objective(w, rho, X, 0.3, weight)
        for w, rho in ((exact.coef_ / n, exact.offset_ / n), (fit.coef_, fit.offset_))
    )
    np.testing.assert_allclose(value, best, rtol=0.01)


def test_sparse_rows_batches_and_the_last_iterate():
    dense = SGDOneClassSVM(0.3, random_state=0).fit(X)
    sparse = SGDOneClassSVM(0.3, random_state=0).fit(scipy.sparse.csr_array(X))
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-4)
    best = objective(dense.coef_, dense.offset_, X, 0.3)
    for options in ({"batch_size": 32, "max_iter": 200}, {"average": False}, {"shuffle": False}):
        other = SGDOneClassSVM(0.3, random_state=0).set_params(**options).fit(X)
        np.testing.assert_allclose(objective(other.coef_, other.offset_, X, 0.3), best, rtol=0.01)


def test_kernels_by_a_feature_map(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    pipeline = make_pipeline(
        FourierFeatures(gamma=0.5, n_components=300, random_state=0),
        SGDOneClassSVM(0.1, max_iter=50, random_state=0),
    ).fit(rows)
    exact = sklearn.svm.OneClassSVM(gamma=0.5, nu=0.1).fit(rows)
    values, expected = pipeline.score_samples(rows), exact.score_samples(rows)
    assert np.corrcoef(values, expected)[0, 1] > 0.95
    assert (pipeline.predict([[0.0, 0.0], [6.0, 6.0]]) == [1, -1]).all()
    machine = pipeline[-1]
    models.save(tmp_path / "model.npz", machine.model_)
    features = pipeline[0].transform(rows)
    loaded = np.asarray(models.load(tmp_path / "model.npz")(features))
    np.testing.assert_allclose(loaded, machine.decision_function(features), atol=1e-5)


def test_a_warm_start_goes_on_and_bad_input_gets_one_sentence():
    for nu in (0, 1.5, -1):
        with pytest.raises(ValueError, match="nu must be (a finite number )?above 0"):
            SGDOneClassSVM(nu).fit(X)
    warm = SGDOneClassSVM(0.3, max_iter=1, random_state=0, warm_start=True).fit(X)
    gaps = []
    for _ in range(20):
        gaps.append(objective(warm.coef_, warm.offset_, X, 0.3))
        warm.fit(X)
    best = SGDOneClassSVM(0.3, max_iter=100, random_state=0).fit(X)
    best = objective(best.coef_, best.offset_, X, 0.3)
    assert gaps[-1] - best < 0.3 * (gaps[0] - best)
    with pytest.raises(ValueError, match="of 3 columns, and the rows have 2 columns"):
        warm.fit(X[:, :2])
    pieces = SGDOneClassSVM().partial_fit(X)
    with pytest.raises(ValueError, match="average is True since the first rows, got False"):
        pieces.set_params(average=False).partial_fit(X)
