"""Estimators under the settings, the types and the programs of other packages."""

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from beside import USUAL, both, close, equal

import jaxsvm
from jaxsvm import kernels, models
from jaxsvm.estimators import SVC, BudgetedSVC, LinearSVC, NuSVC, Pegasos

pytestmark = USUAL

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
WORDS, OF = ["a", "ab", "abc", "b", "bb", "bbb"], [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_an_overflow_of_a_row_of_weight_0_is_none(form):
    x, rest = X.copy(), np.arange(40) != 7
    x[7, 1] = 1e39
    equal(LinearSVC().fit(form(x), Y, rest * 1.0).coef_, LinearSVC().fit(X[rest], Y[rest]).coef_)


@pytest.mark.long
@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_keys_of_any_implementation(implementation):
    twice = lambda: (
        Pegasos(random_state=0).partial_fit(X, Y, classes=[0, 1]).partial_fit(X, Y).coef_
    )
    usual = twice()
    with jax.default_prng_impl(implementation):
        equal(twice(), usual)
        assert SVC(probability=True, random_state=0).fit(X, Y).score(X, Y) > 0.9


@pytest.mark.long
def test_kernel_functions_of_strings_as_in_scikit_learn():
    pandas = pytest.importorskip("pandas")
    common = lambda a, b: np.array([[float(len(set(p) & set(q))) for q in b] for p in a])
    theirs = sklearn.svm.SVC(kernel=common).fit(WORDS, OF).decision_function(WORDS)
    series = pandas.Series(WORDS, index=[5, 3, 1, 0, 9, 7])
    for rows in (WORDS, np.array(WORDS, object), np.array(WORDS), series):
        made = SVC(kernel=common).fit(rows, OF)
        close(made.decision_function(rows), theirs, atol=2e-3)
        assert made.predict(rows).tolist() == OF
    equal(NuSVC(nu=0.3, kernel=common).fit(np.array(WORDS), OF).predict(np.array(WORDS)), OF)


@pytest.mark.parametrize("dual", [np.True_, np.False_, np.str_("auto")])
def test_scalars_of_numpy_are_parameters(dual):
    options = {"fit_intercept": np.True_, "tol": np.float64(1e-4), "max_iter": np.int64(1000)}
    equal(
        LinearSVC(dual=dual, **options).fit(X, Y).coef_, LinearSVC(random_state=0).fit(X, Y).coef_
    )


def test_an_estimator_is_told_to_pass_its_model(tmp_path):
    made, path = SVC().fit(X, Y), tmp_path / "a.model"
    with pytest.raises(TypeError, match=r"got SVC\(\): pass its model_$"):
        models.to_libsvm(made, path)
    models.to_libsvm(made.model_, path)
    close(models.from_libsvm(path)(X), made.decision_function(X), atol=1e-4)
    with pytest.raises(TypeError, match="pass its model_, without its probabilities"):
        models.to_libsvm(SVC(probability=True, random_state=0).fit(X, Y), path)


@pytest.mark.parametrize("machine", [SVC, LinearSVC])
def test_a_class_of_weight_0_alone_is_absent(machine):
    x, y, weight = np.r_[X, X[:2]], np.r_[Y, [7, 7]], np.r_[np.ones(40), 0, 0]
    made = machine(class_weight={0: 2.0, 7: 3.0}).fit(x, y, weight)
    other = machine(class_weight={0: 2.0}).fit(X, Y)
    close(made.decision_function(X), other.decision_function(X), atol=1e-5)
    with pytest.raises(ValueError, match="class_weight"):
        machine(class_weight={0: 2.0, 8: 3.0}).fit(x, y, weight)


@pytest.mark.parametrize("machine", [SVC(), LinearSVC(random_state=0), Pegasos(random_state=0)])
def test_the_state_of_a_machine_is_of_numpy(machine):
    """skops saves such a state: it reads no array of JAX."""
    state = machine.fit(X, Y).__getstate__()
    leaves = jax.tree.leaves([value for value in state.values() if not isinstance(value, dict)])
    arrays = [leaf for leaf in leaves if hasattr(leaf, "dtype")]
    assert len(arrays) > 5
    assert not any(isinstance(a, jax.Array) and a.dtype.kind in "fiub" for a in arrays)
    other = type(machine)()
    other.__setstate__(state)
    equal(other.decision_function(X), machine.decision_function(X))


def test_a_polynomial_of_degree_0_is_a_constant():
    """scikit-learn takes it."""
    equal(kernels.polynomial(2.0, 3.0, degree=0)(X, X), np.ones((40, 40)))
    ours, theirs = both("SVC", (X, Y), kernel="poly", degree=0)
    equal(ours.predict(X), theirs.predict(X))


@pytest.mark.long  # without JAX's caches
def test_checks_of_jax():
    with jax.debug_nans(True):
        assert BudgetedSVC(budget=10, random_state=0).fit(X, Y).score(X, Y) > 0.8
    solver, data = jaxsvm.pegasos(0.17), jaxsvm.dataset(X, 2 * Y - 1)
    with jax.checking_leaks():
        assert jaxsvm.fit(solver, data, jax.random.key(0), steps=10).finite
