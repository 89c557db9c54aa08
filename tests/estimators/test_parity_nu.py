"""`NuSVC`, `NuSVR` and `OneClassSVM` beside scikit-learn's, on the same rows."""

import functools

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import check_estimator

from jaxsvm.estimators import NuSVC, NuSVR, OneClassSVM

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore::FutureWarning"),
]

TOY, LABELS = np.array([[-2.0, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]]), [1, 1, 1, 2, 2, 2]
AT = [[-1, -1], [2, 2], [3, 2]]
FLOWERS, NAMES = load_iris(return_X_y=True)
# equal to row 101; they would share a coefficient
FLOWERS, NAMES = (np.delete(FLOWERS, 142, 0), np.delete(NAMES, 142))
REAL, TARGET = load_diabetes(return_X_y=True)
REAL, TARGET = REAL[:200, :8] * 20, (TARGET[:200] - TARGET[:200].mean()) / TARGET[:200].std()
SIDED = np.array([[-2.0, 0], [-1, -1], [0, -2], [0, 2], [1, 1], [2, 0]])


@functools.cache
def fitted(ours, kernel, **options):
    # 0 is outside
    x, y = {NuSVC: (FLOWERS, NAMES), NuSVR: (REAL, TARGET), OneClassSVM: (REAL + 3, None)}[ours]
    theirs = getattr(sklearn.svm, ours.__name__)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        made = ours(kernel=kernel, tol=1e-5, **options).fit(x, y)
    return made, theirs(kernel=kernel, tol=1e-8, **options).fit(x, y), x


# nu n / 2 is no whole number: else all coefficients may be at bounds, and the intercept anywhere in
# an interval
CASES = [
    (NuSVC, "rbf", {"nu": 0.253, "decision_function_shape": "ovo"}),
    (NuSVC, "linear", {"nu": 0.131, "decision_function_shape": "ovo"}),
    (NuSVR, "rbf", {"nu": 0.317, "C": 0.5}),
    (NuSVR, "linear", {"nu": 0.317, "C": 0.5}),
    (OneClassSVM, "rbf", {"nu": 0.2171}),
    (OneClassSVM, "linear", {"nu": 0.2171}),
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "ours, kernel, options", CASES, ids=lambda value: getattr(value, "__name__", value)
)
def test_every_attribute(ours, kernel, options):
    made, theirs, x = fitted(ours, kernel, **options)
    name = "predict" if ours is NuSVR else "decision_function"
    scale = np.abs(getattr(theirs, name)(x)).max()
    np.testing.assert_allclose(getattr(made, name)(x), getattr(theirs, name)(x), atol=2e-3 * scale)
    for name in ("dual_coef_", "support_", "n_support_", "intercept_", "shape_fit_"):
        assert np.shape(getattr(made, name)) == np.shape(getattr(theirs, name)), name
    np.testing.assert_array_equal(made.support_, theirs.support_)
    np.testing.assert_array_equal(made.support_vectors_, theirs.support_vectors_)
    np.testing.assert_allclose(made.intercept_, theirs.intercept_, atol=2e-3 * scale)
    # nu-SVC of this linear kernel has coefficients whose sums float32 rounds by more than the
    # tolerance, and says so
    assert made.fit_status_ == (ours is NuSVC and kernel == "linear")
    assert type(made.n_iter_) is type(theirs.n_iter_)
    assert hasattr(made, "coef_") == (kernel == "linear")
    if kernel == "linear":
        np.testing.assert_allclose(made.coef_, theirs.coef_, atol=2e-3 * np.abs(theirs.coef_).max())
    if ours is not NuSVR:
        clear = np.abs(theirs.decision_function(x)).reshape(len(x), -1).min(axis=1) > 1e-2 * scale
        np.testing.assert_array_equal(made.predict(x)[clear], theirs.predict(x)[clear])


def test_infeasible_nu():
    for weight, nu in (([1, 1, 1, 1, 0, 0], 0.6), ([1] * 6, 1.0)):
        if nu < 1:
            with pytest.raises(
                ValueError,
                match=r"nu is infeasible: for the classes 1 and 2 .* = 0\.5 by weight, got 0\.6",
            ):
                NuSVC(nu=nu, kernel="linear").fit(TOY, LABELS, weight)
            with pytest.raises(ValueError, match="infeasible"):
                sklearn.svm.NuSVC(nu=nu, kernel="linear").fit(TOY, LABELS, weight)
        else:
            assert NuSVC(nu=nu, kernel="linear").fit(TOY, LABELS, weight).score(TOY, LABELS) == 1
    for made, target in (
        (NuSVC(nu=0.0), LABELS),
        (NuSVR(nu=1.5), LABELS),
        (OneClassSVM(nu=-0.1), None),
    ):
        with pytest.raises(ValueError, match="nu must be above 0 and at most 1"):
            made.fit(TOY, target)
    with pytest.raises(ValueError, match="one class"):
        NuSVC().fit(TOY, LABELS, [0, 0, 0, 1, 1, 1])


def test_sample_weights_pull_to_one_side():
    at = [[-1.0, 1.0]]
    for weight, sign in (
        ([1] * 6, 0),
        ([10, 0.1, 0.1, 0.1, 0.1, 10], -1),
        ([1, 0.1, 10, 10, 0.1, 0.1], 1),
    ):
        value = NuSVC(kernel="linear").fit(SIDED, LABELS, weight).decision_function(at)
        assert abs(value) < 1e-3 if sign == 0 else np.sign(value) == sign
        value = NuSVR(C=1e-2, kernel="linear").fit(SIDED, LABELS, weight).predict(at)
        assert abs(value - 1.5) < 1e-3 if sign == 0 else np.sign(value - 1.5) == sign


def test_one_class_of_a_toy_problem():
    made, theirs = OneClassSVM().fit(TOY), sklearn.svm.OneClassSVM().fit(TOY)
    assert made.predict(AT).tolist() == [1, -1, -1] and made.predict(AT).dtype == np.intp
    np.testing.assert_allclose(made.intercept_, theirs.intercept_, atol=1e-3)
    np.testing.assert_allclose(made.dual_coef_.sum(), theirs.dual_coef_.sum(), rtol=1e-5)
    np.testing.assert_allclose(made.score_samples(AT), made.decision_function(AT) + made.offset_)
    np.testing.assert_allclose(made.offset_, theirs.offset_, atol=1e-3)
    np.testing.assert_array_equal(made.fit_predict(TOY), made.predict(TOY))
    assert not hasattr(OneClassSVM(), "n_support_") and made.n_support_.shape == (1,)
    with pytest.raises(NotFittedError):
        OneClassSVM().predict(TOY)


def test_novelties_are_found():
    random = np.random.RandomState(2)
    train, same = (
        np.r_[part + 2, part - 2]
        for part in (0.3 * random.randn(100, 2), 0.3 * random.randn(20, 2))
    )
    other = random.uniform(low=-4, high=4, size=(20, 2))
    made = OneClassSVM(nu=0.1, gamma=0.1).fit(train)
    assert np.mean(made.predict(same) == 1) > 0.9 and np.mean(made.predict(other) == -1) > 0.9
    np.testing.assert_array_equal(made.decision_function(same) >= 0, made.predict(same) == 1)
    assert np.mean(made.predict(train) == -1) <= 0.1 + 1e-9 <= len(made.support_) / 200 + 1e-9


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "ours, options", [(NuSVR, {"nu": 0.317, "C": 0.5}), (OneClassSVM, {"nu": 0.2171})]
)
def test_sparse_rows_and_kernels_of_arrays(ours, options):
    made, theirs, x = fitted(ours, "linear", **options)
    target = TARGET if ours is NuSVR else None
    value = (
        (lambda m, at: m.predict(at)) if ours is NuSVR else (lambda m, at: m.decision_function(at))
    )
    scale = np.abs(value(theirs, x)).max()
    sparse = ours(kernel="linear", tol=1e-5, **options).fit(scipy.sparse.csr_array(x), target)
    assert scipy.sparse.issparse(sparse.support_vectors_)
    assert scipy.sparse.issparse(sparse.dual_coef_)
    gram = ours(kernel="precomputed", tol=1e-5, **options).fit(x @ x.T, target)
    function = ours(kernel=lambda a, b: np.dot(a, b.T), tol=1e-5, **options).fit(x, target)
    for other, at in ((sparse, scipy.sparse.csr_array(x)), (gram, x @ x.T), (function, x)):
        np.testing.assert_allclose(value(other, at), value(theirs, x), atol=2e-3 * scale)


@pytest.mark.long
def test_probabilities_are_as_good_as_those_of_scikit_learn():
    x, y = make_blobs(460, centers=3, random_state=3, cluster_std=3.0)
    options = {"nu": 0.4, "probability": True, "random_state": 0}
    ours, theirs = (each(**options).fit(x[:230], y[:230]) for each in (NuSVC, sklearn.svm.NuSVC))
    mine, other = (log_loss(y[230:], made.predict_proba(x[230:])) for made in (ours, theirs))
    assert 0.9 * other < mine < 1.02 * other, (mine, other)


def test_probabilities_of_folds_without_rows_for_a_class_or_for_nu_are_refused():
    random = np.random.default_rng(0)
    x, y = (
        np.r_[random.normal(size=(20, 2)), 4 + random.normal(size=(20, 2)), [[5, -5]]],
        np.repeat([0, 1, 2], [20, 20, 1]),
    )
    with pytest.raises(ValueError, match="two rows of each class"):
        NuSVC(nu=0.05, probability=True).fit(x, y)
    # nu at its limit for all rows is above that of some training sets
    keep = np.r_[:9, 20:40]
    for machine in (NuSVC(nu=18 / 29, probability=True), CalibratedClassifierCV(NuSVC(nu=18 / 29))):
        with pytest.raises(ValueError, match="specified nu is infeasible"):
            machine.fit(x[keep], y[keep])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nu", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("shape", [(200, 3), (1000, 5)])
def test_where_the_right_machine_is_0_there_is_no_warning(shape, nu):
    """The mean of the rows is 0: the violation in float64 is below LIBSVM's tolerance."""
    x = np.random.default_rng(0).normal(size=shape)
    x = np.float64(np.float32(x - x.mean(axis=0)))
    made = OneClassSVM(kernel="linear", nu=nu).fit(x)
    coef = np.zeros(len(x))
    coef[made.support_] = made.dual_coef_[0]
    slope = x @ (coef @ x)
    assert slope[coef > 0].max() - slope[coef < 1].min() < 1e-3
    np.testing.assert_allclose(
        [coef.sum(), *made.coef_[0]], [nu * len(x), *np.zeros(shape[1])], atol=1e-4
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "made",
    [NuSVC(nu=0.1, break_ties=True), NuSVR(), OneClassSVM()],
    ids=lambda made: type(made).__name__,
)
def test_checks_of_scikit_learn(made):
    # as those that scikit-learn expects of its own class
    expected = (
        {"check_class_weight_classifiers": "class_weight is ignored"}
        if isinstance(made, NuSVC)
        else None
    )
    check_estimator(made, expected_failed_checks=expected)
