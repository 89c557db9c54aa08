"""`SVR` beside scikit-learn's: the behaviours that the tests of `sklearn.svm` assert, on the same
rows."""

import functools

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from sklearn.datasets import load_diabetes
from sklearn.metrics.pairwise import rbf_kernel

from jaxsvm.estimators import SVR, LinearSVR

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore:.*tolerance.*not met"),
]

X, Y = load_diabetes(return_X_y=True)
X, Y = X[:200, :8] * 20, (Y[:200] - Y[:200].mean()) / Y[:200].std()


@functools.cache
def fitted(kernel):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        ours = SVR(kernel=kernel, C=0.5, epsilon=0.2, tol=1e-5).fit(X, Y)
    return ours, sklearn.svm.SVR(kernel=kernel, C=0.5, epsilon=0.2, tol=1e-8).fit(X, Y)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_every_attribute(kernel):
    ours, theirs = fitted(kernel)
    names = "support_ support_vectors_ n_support_ shape_fit_ fit_status_ n_features_in_"
    for name in names.split():
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name in ("dual_coef_", "intercept_", *(["coef_"] if kernel == "linear" else [])):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=2e-3)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)
    assert type(ours.n_iter_) is int and hasattr(ours, "coef_") == (kernel == "linear")
    gram = (
        X @ ours.support_vectors_.T
        if kernel == "linear"
        else rbf_kernel(X, ours.support_vectors_, gamma=ours._gamma)
    )
    np.testing.assert_allclose(
        gram @ ours.dual_coef_[0] + ours.intercept_, ours.predict(X), atol=1e-4
    )
    if kernel == "linear":
        np.testing.assert_allclose(
            X @ ours.coef_.ravel() + ours.intercept_, ours.predict(X), atol=1e-4
        )
        with pytest.raises(ValueError, match="read-only"):
            ours.coef_[0, 0] = 0


def test_targets_that_are_all_equal():
    for made in (SVR(), LinearSVR()):
        np.testing.assert_allclose(made.fit(X, np.ones(len(X))).predict(X), 1, atol=0.11)
    empty = SVR(epsilon=0.2).fit(scipy.sparse.csr_array(X), Y * 0)
    assert empty.support_vectors_.shape == (0, 8)
    assert empty.dual_coef_.shape == (1, 0)
    assert empty.n_support_.tolist() == [0]


def test_numbers_of_support_vectors():
    x = np.array([[0], [0.44], [0.45], [0.46], [1]])
    assert not hasattr(SVR(), "n_support_")
    made, theirs = SVR().fit(x, np.arange(5)), sklearn.svm.SVR().fit(x, np.arange(5))
    assert (
        made.n_support_.tolist() == theirs.n_support_.tolist() == [made.support_vectors_.shape[0]]
    )


def test_sample_weights_pull_to_one_side():
    x, y, at = (
        np.array([[-2.0, 0], [-1, -1], [0, -2], [0, 2], [1, 1], [2, 0]]),
        [1, 1, 1, 2, 2, 2],
        [[-1.0, 1.0]],
    )
    for weight, sign in (
        ([1] * 6, 0),
        ([10, 0.1, 0.1, 0.1, 0.1, 10], -1),
        ([1, 0.1, 10, 10, 0.1, 0.1], 1),
    ):
        ours, theirs = (
            each(C=1e-2, kernel="linear").fit(x, y, weight).predict(at)
            for each in (SVR, sklearn.svm.SVR)
        )
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        assert abs(ours - 1.5) < 2e-3 if sign == 0 else np.sign(ours - 1.5) == sign


def test_kernels_that_are_matrices_or_functions():
    _, theirs = fitted("linear")
    options = {"C": 0.5, "epsilon": 0.2, "tol": 1e-5}
    gram = X @ X.T
    made = SVR(kernel="precomputed", **options).fit(gram, Y)
    np.testing.assert_allclose(made.predict(gram[:9]), theirs.predict(X[:9]), atol=1e-3)
    made = SVR(kernel=lambda a, b: np.dot(a, b.T), **options).fit(X, Y)
    np.testing.assert_allclose(made.predict(X), theirs.predict(X), atol=1e-3)
    with pytest.raises(ValueError, match=r"must give an array of shape \(200, 200\)"):
        SVR(kernel=lambda a, b: np.array([[1.0]])).fit(X, Y)


def test_sparse_rows_are_dense_ones():
    ours, theirs = fitted("linear")
    made = SVR(kernel="linear", C=0.5, epsilon=0.2, tol=1e-5).fit(scipy.sparse.csr_array(X), Y)
    for name in ("support_vectors_", "dual_coef_", "coef_"):
        np.testing.assert_allclose(getattr(made, name).toarray(), getattr(ours, name), atol=2e-3)
    np.testing.assert_allclose(
        made.predict(scipy.sparse.coo_array(X)), theirs.predict(X), atol=1e-3
    )


def test_an_infinite_cost_is_a_large_one():
    x, y = X[:40], X[:40] @ np.arange(8.0) / 10
    ours, theirs = (
        each(kernel="linear", C=np.inf, epsilon=0.1).fit(x, y) for each in (SVR, sklearn.svm.SVR)
    )
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-2)
