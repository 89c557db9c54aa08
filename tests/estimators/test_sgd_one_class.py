"""`SGDOneClassSVM` beside scikit-learn's class of that name and its exact `OneClassSVM`."""

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from beside import USUAL, close, equal
from sklearn.pipeline import make_pipeline

import jaxsvm
from jaxsvm import models
from jaxsvm.estimators import FourierFeatures, SGDOneClassSVM
from jaxsvm.estimators.sgd_one_class_svm import one_class_descent

pytestmark = USUAL

X = np.random.default_rng(0).normal(1, 0.5, size=(400, 3))


def objective(machine, nu, n=1.0, weight=None):
    """1/2 |w|^2 - rho + mean max(0, rho - <w, x>) / nu, where w and rho are sums of n rows."""
    w, rho = np.ravel(machine.coef_) / n, float(np.squeeze(machine.offset_)) / n
    return w @ w / 2 - rho + np.average(np.maximum(0, rho - X @ w), weights=weight) / nu


def exact(nu, weight=None):
    """LIBSVM's machine, and the least objective."""
    n = nu * (len(X) if weight is None else weight.sum())
    made = sklearn.svm.OneClassSVM(kernel="linear", nu=nu, tol=1e-6).fit(X, sample_weight=weight)
    return made, n, objective(made, nu, n, weight)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("nu", [0.1, 0.3, 0.7])
def test_the_objective_and_the_direction_are_those_of_scikit_learn(nu):
    ours = SGDOneClassSVM(nu, max_iter=50, random_state=0).fit(X)
    theirs = sklearn.linear_model.SGDOneClassSVM(
        nu, max_iter=300, tol=None, random_state=0, average=40_000, eta0=0.5, power_t=0.5
    )
    theirs.set_params(learning_rate="invscaling").fit(X)
    peer, n, best = exact(nu)
    close([objective(fit, nu) for fit in (ours, theirs)], best, rtol=0.01)
    norms = np.linalg.norm(ours.coef_) * np.linalg.norm(peer.coef_)
    assert np.vdot(ours.coef_, peer.coef_) / norms > 0.999
    close(ours.offset_, peer.offset_ / n, rtol=0.02)
    # nu bounds the share outside, up to the rows on the edge
    inside = ours.predict(X)
    assert set(inside) == {-1, 1} and abs((inside < 0).mean() - nu) < 0.02
    equal(inside, np.where(ours.decision_function(X) >= 0, 1, -1))
    close(ours.score_samples(X), X @ ours.coef_[0], rtol=1e-5)
    assert ours.coef_.shape == (1, 3) and ours.offset_.shape == (1,)
    assert 50 <= ours.n_iter_ <= 52  # whole chunks


@pytest.mark.long
def test_the_unit_of_the_rows_changes_nothing():
    unit = 2.0**-12
    data = lambda u: jaxsvm.dataset(X * u, np.zeros(len(X)), task="regression")
    solver = lambda u: one_class_descent(0.2, scale=4.0 * u * u)
    runs = [jaxsvm.fit(solver(u), data(u), jax.random.key(0), steps=2000) for u in (1.0, unit)]
    equal(runs[0].model.w * unit, runs[1].model.w)
    equal(runs[0].model.b * unit**2, runs[1].model.b)
    tiny = SGDOneClassSVM(0.2, random_state=0).fit(X * 1e-4)
    assert abs((tiny.predict(X * 1e-4) < 0).mean() - 0.2) < 0.02


@pytest.mark.long
def test_pieces_and_weights():
    pieces, weight = (
        SGDOneClassSVM(0.3, random_state=0),
        np.random.default_rng(1).uniform(0, 3, 400),
    )
    for _ in range(20):
        for part in np.split(X, 4):
            pieces.partial_fit(part)
    close(objective(pieces, 0.3), exact(0.3)[2], rtol=0.01)
    fit = SGDOneClassSVM(0.3, max_iter=50, random_state=0).fit(X, sample_weight=weight)
    close(objective(fit, 0.3, weight=weight), exact(0.3, weight)[2], rtol=0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"average": False}, {"batch_size": 32, "max_iter": 200}, {"shuffle": False}],
    ids=str,
)
def test_batches_and_the_last_iterate(options):
    other = SGDOneClassSVM(0.3, random_state=0).set_params(**options).fit(X)
    close(objective(other, 0.3), exact(0.3)[2], rtol=0.01)


@pytest.mark.long
def test_sparse_rows_are_dense_ones():
    dense, sparse = (
        SGDOneClassSVM(0.3, random_state=0).fit(rows) for rows in (X, scipy.sparse.csr_array(X))
    )
    close(sparse.decision_function(X), dense.decision_function(X), atol=1e-4)


@pytest.mark.long
def test_kernels_by_a_feature_map(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    features = FourierFeatures(gamma=0.5, n_components=300, random_state=0)
    machine = SGDOneClassSVM(0.1, max_iter=50, random_state=0)
    pipeline = make_pipeline(features, machine).fit(rows)
    exact = sklearn.svm.OneClassSVM(gamma=0.5, nu=0.1).fit(rows)
    values, expected = pipeline.score_samples(rows), exact.score_samples(rows)
    assert np.corrcoef(values, expected)[0, 1] > 0.95
    assert (pipeline.predict([[0.0, 0.0], [6.0, 6.0]]) == [1, -1]).all()
    models.save(tmp_path / "model.npz", machine.model_)
    features = features.transform(rows)
    loaded = np.asarray(models.load(tmp_path / "model.npz")(features))
    close(loaded, machine.decision_function(features), atol=1e-5)


def test_average_stays_as_it_was_for_the_first_rows():
    with pytest.raises(ValueError, match="average is True since the first rows, got False"):
        SGDOneClassSVM().partial_fit(X).set_params(average=False).partial_fit(X)


def test_a_warm_start_goes_on():
    warm = SGDOneClassSVM(0.3, max_iter=1, random_state=0, warm_start=True)
    gaps = [objective(warm.fit(X), 0.3) for _ in range(20)]
    best = objective(SGDOneClassSVM(0.3, max_iter=100, random_state=0).fit(X), 0.3)
    assert gaps[-1] - best < 0.3 * (gaps[0] - best)
