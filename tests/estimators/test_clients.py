"""Estimators under the settings, the types and the programs of other packages."""

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm

import jaxsvm
from jaxsvm import kernels, models
from jaxsvm.estimators import (
    SVC,
    SVR,
    BudgetedSVC,
    FourierFeatures,
    LinearSVC,
    NuSVC,
    NystromFeatures,
    Pegasos,
)

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore:.*tolerance.*not met"),
]

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
WORDS, OF = ["a", "ab", "abc", "b", "bb", "bbb"], [0, 0, 0, 1, 1, 1]


def with_overflow(*cells):
    x = X.copy()
    x[tuple(zip(*cells, strict=True))] = 1e39
    return x


@pytest.mark.parametrize(
    "fit", [SVC().fit, LinearSVC().fit, Pegasos().fit, NystromFeatures().fit, FourierFeatures().fit]
)
def test_an_overflow_is_named_at_the_row_of_the_user(fit):
    for x, row, count in (
        (with_overflow((7, 1)), 7, 1),
        (with_overflow((9, 0), (9, 2), (31, 1)), 9, 3),
    ):
        for form in (x, scipy.sparse.csr_array(x)):
            with pytest.raises(
                ValueError,
                match=rf"first in row {row}: drop or fill in such rows \({count} numbers\)",
            ):
                fit(form, Y)


def test_an_overflow_of_rows_that_repeat_or_weigh_nothing():
    x = with_overflow((7, 1))
    with pytest.raises(ValueError, match=r"first in row 7: .* \(2 numbers\)"):
        SVC().fit(np.r_[x, x], np.r_[Y, Y])
    weight = np.ones(40)
    weight[7] = 0
    rest = np.arange(40) != 7
    for form in (x, scipy.sparse.csr_array(x)):
        made = LinearSVC().fit(form, Y, weight)
        np.testing.assert_array_equal(made.coef_, LinearSVC().fit(form[rest], Y[rest]).coef_)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_keys_of_any_implementation(implementation):
    usual = Pegasos(random_state=0).partial_fit(X, Y, classes=[0, 1]).partial_fit(X, Y).coef_
    with jax.default_prng_impl(implementation):
        made = Pegasos(random_state=0).partial_fit(X, Y, classes=[0, 1]).partial_fit(X, Y)
        np.testing.assert_array_equal(made.coef_, usual)
        assert SVC(probability=True, random_state=0).fit(X, Y).score(X, Y) > 0.9


def common(a, b):
    return np.array([[float(len(set(p) & set(q))) for q in b] for p in a])


def test_kernel_functions_of_strings_as_in_scikit_learn():
    pandas = pytest.importorskip("pandas")
    theirs = sklearn.svm.SVC(kernel=common).fit(WORDS, OF).decision_function(WORDS)
    forms = (
        WORDS,
        np.array(WORDS, object),
        np.array(WORDS),
        pandas.Series(WORDS, index=[5, 3, 1, 0, 9, 7]),
    )
    for rows in forms:
        made = SVC(kernel=common).fit(rows, OF)
        np.testing.assert_allclose(made.decision_function(rows), theirs, atol=2e-3)
        assert made.predict(rows).tolist() == OF
    nu = NuSVC(nu=0.3, kernel=common).fit(np.array(WORDS), OF)
    np.testing.assert_array_equal(nu.predict(np.array(WORDS)), OF)


def test_scalars_of_numpy_are_parameters():
    usual = LinearSVC(random_state=0).fit(X, Y).coef_
    for dual in (np.True_, np.False_, np.str_("auto")):
        made = LinearSVC(
            dual=dual, fit_intercept=np.True_, tol=np.float64(1e-4), max_iter=np.int64(1000)
        )
        np.testing.assert_array_equal(made.fit(X, Y).coef_, usual)


def test_an_estimator_is_told_to_pass_its_model(tmp_path):
    made = SVC().fit(X, Y)
    with pytest.raises(TypeError, match=r"got SVC\(\): pass its model_$"):
        models.to_libsvm(made, tmp_path / "a.model")
    models.to_libsvm(made.model_, tmp_path / "a.model")
    np.testing.assert_allclose(
        models.from_libsvm(tmp_path / "a.model")(X), made.decision_function(X), atol=1e-4
    )
    with pytest.raises(TypeError, match="pass its model_, without its probabilities"):
        models.to_libsvm(SVC(probability=True, random_state=0).fit(X, Y), tmp_path / "a.model")


def test_names_and_weights_of_classes():
    for unit in ("D", "s"):
        with pytest.raises(
            ValueError,
            match=rf"y must hold numbers, strings .* got datetime64\[{unit}\]: pass y.astype",
        ):
            SVC().fit(
                X, np.where(Y, np.datetime64("2020-01-01", unit), np.datetime64("2021-01-01", unit))
            )
    x, y, weight = np.r_[X, X[:2]], np.r_[Y, [7, 7]], np.r_[np.ones(40), 0, 0]
    for machine in (SVC, LinearSVC):
        made = machine(class_weight={0: 2.0, 7: 3.0}).fit(x, y, weight)
        other = machine(class_weight={0: 2.0}).fit(X, Y)
        np.testing.assert_allclose(made.decision_function(X), other.decision_function(X), atol=1e-5)
        with pytest.raises(ValueError, match="class_weight"):
            machine(class_weight={0: 2.0, 8: 3.0}).fit(x, y, weight)


@pytest.mark.parametrize("size", [0, -1, 2.5, "3", None, True])
def test_numbers_of_features_are_whole(size):
    for made in (NystromFeatures(n_components=size), FourierFeatures(n_components=size)):
        with pytest.raises(
            ValueError, match="n_components must be a whole number of at least 1, got"
        ):
            made.fit(X)


@pytest.mark.parametrize("gamma", [1e39, 1e-50])
def test_a_gamma_out_of_the_range_of_float32(gamma):
    with pytest.raises(
        ValueError, match=r"gamma must be from 1.18e-38 to 3.4e\+38 for float32, got 1e"
    ):
        SVC(gamma=gamma).fit(X, Y)


@pytest.mark.parametrize(
    "machine",
    [
        SVC(C=1e39),
        SVC(kernel="poly", coef0=1e39),
        SVC(tol=1e-50),
        SVR(epsilon=1e39),
        LinearSVC(C=1e39),
        Pegasos(alpha=1e-50),
    ],
)
def test_numbers_out_of_the_range_of_float32(machine):
    with pytest.raises(ValueError, match=r"from 1.18e-38 to 3.4e\+38 in size for float32, got 1e"):
        machine.fit(X, Y)


@pytest.mark.parametrize("machine", [SVC(), LinearSVC(random_state=0), Pegasos(random_state=0)])
def test_the_state_of_a_machine_is_of_numpy(machine):
    """skops saves such a state: it reads no array of JAX."""
    made = machine.fit(X, Y)
    state = made.__getstate__()
    leaves = [
        leaf
        for value in state.values()
        if not isinstance(value, dict)
        for leaf in jax.tree.leaves(value)
    ]
    arrays = [leaf for leaf in leaves if hasattr(leaf, "dtype")]
    assert len(arrays) > 5
    assert not any(isinstance(a, jax.Array) and a.dtype.kind in "fiub" for a in arrays)
    other = type(machine)()
    other.__setstate__(state)
    np.testing.assert_array_equal(other.decision_function(X), made.decision_function(X))


def test_a_polynomial_of_degree_0_is_a_constant():
    """scikit-learn takes it."""
    np.testing.assert_array_equal(kernels.polynomial(2.0, 3.0, degree=0)(X, X), np.ones((40, 40)))
    theirs = sklearn.svm.SVC(kernel="poly", degree=0).fit(X, Y)
    np.testing.assert_array_equal(
        SVC(kernel="poly", degree=0).fit(X, Y).predict(X), theirs.predict(X)
    )


@pytest.mark.long  # without JAX's caches
def test_checks_of_jax():
    with jax.debug_nans(True):
        assert BudgetedSVC(budget=10, random_state=0).fit(X, Y).score(X, Y) > 0.8
    data = jaxsvm.dataset(X, 2 * Y - 1)
    with jax.checking_leaks():
        run = jaxsvm.fit(jaxsvm.pegasos(0.17), data, jax.random.key(0), steps=10)
    assert run.finite
