"""`SVC` beside scikit-learn's: the behaviours that the tests of `sklearn.svm` assert, on the same
rows."""

import concurrent.futures
import inspect
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
import threadpoolctl
from beside import AT, IRIS, LABELS, SPECIES, TOY, USUAL, agree, both, close, equal, known, same
from compiling import listen
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.extmath import safe_sparse_dot

from jaxsvm import estimators, kernels
from jaxsvm.estimators import SVC, LinearSVC
from jaxsvm.estimators.functions import one_thread

pytestmark = USUAL


def on_iris(kernel="rbf"):
    return known("SVC", "iris", tol=1e-5, kernel=kernel, decision_function_shape="ovo")


@pytest.mark.parametrize(
    "name", ["SVC", "SVR", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM"]
)
def test_parameters_and_defaults_are_those_of_scikit_learn(name):
    ours, theirs = (
        inspect.signature(getattr(module, name)).parameters for module in (estimators, sklearn.svm)
    )
    # its default in scikit-learn 1.9 is the string "deprecated", which is False
    ignored = {"probability"}
    for key, parameter in theirs.items():
        assert key in ours and (key in ignored or ours[key].default == parameter.default), key
    assert set(getattr(estimators, name)().get_params()) == set(ours)


def test_the_dual_solution_of_a_toy_problem():
    ours, theirs = known("SVC", "toy", kernel="linear")
    same(ours, theirs, "dual_coef_ support_vectors_ intercept_ coef_", atol=1e-6)
    same(ours, theirs, "support_ n_support_ classes_ class_weight_ shape_fit_ n_features_in_")
    same(ours, theirs, "fit_status_")
    for name in "dual_coef_ support_vectors_ intercept_ coef_ support_ n_support_".split():
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    equal(ours.predict(AT), theirs.predict(AT))
    agree(ours, theirs, TOY, 1e-6)
    assert ours.decision_function(TOY).shape == (6,)
    by_columns = np.asfortranarray(TOY), np.tile(LABELS, (2, 1)).T[:, -1]
    equal(SVC(kernel="linear").fit(*by_columns).predict(AT), [1, 2, 2])


def test_the_weights_of_a_linear_kernel_are_read_only():
    ours, _ = on_iris("linear")
    assert ours.coef_.shape == (3, 4)
    close(IRIS @ ours.coef_.T + ours.intercept_, ours.decision_function(IRIS), atol=1e-4)
    with pytest.raises(AttributeError):
        ours.coef_ = np.arange(3)
    with pytest.raises(AttributeError, match="only available when using a linear kernel"):
        on_iris()[0].coef_  # noqa: B018


def test_decision_values_follow_from_the_attributes():
    ours, _ = known("SVC", "toy", gamma=1.0)
    gram = rbf_kernel(TOY, ours.support_vectors_, gamma=1.0)
    values = (gram @ ours.dual_coef_.T + ours.intercept_).ravel()
    close(values, ours.decision_function(TOY), atol=1e-6)
    equal(ours.predict(TOY), ours.classes_[(values > 0).astype(int)])


def test_shapes_of_decision_values_and_votes():
    shaped = [clone(each).set_params(decision_function_shape="ovr") for each in on_iris()]
    for fitted, each in zip(on_iris(), shaped, strict=True):
        each.__dict__.update(fitted.__dict__, decision_function_shape="ovr")
    agree(*shaped, IRIS, 1e-3)
    assert on_iris()[0].decision_function(IRIS).shape == (150, 3)
    # Rows further inside of a class have a larger value for it.
    corners = np.array([[1.0, 1], [-1, 1], [-1, -1], [1, -1]])
    far = (corners[:, None, :] * np.array([5.0, 10.0])[:, None]).reshape(-1, 2)
    made = SVC(kernel="linear").fit(corners, range(4))
    values = made.decision_function(far)
    assert values.shape == (8, 4) and made.predict(far).tolist() == np.repeat(range(4), 2).tolist()
    own = values[np.arange(8), np.repeat(range(4), 2)].reshape(4, 2)
    assert (own > 0).all() and (own[:, 0] < own[:, 1]).all()
    pairs = clone(made).set_params(decision_function_shape="ovo").fit(corners, range(4))
    assert pairs.decision_function(far).shape == (8, 6) and pairs.intercept_.shape == (6,)


def test_a_pair_value_of_0_is_a_vote_as_in_scikit_learn():
    x, y, middle = np.array([[-1.0], [1.0], [30.0], [31.0]]), [0, 1, 2, 2], [[0.0]]
    made = both("SVC", (x, y), kernel="linear")
    for each in made:
        assert each.set_params(decision_function_shape="ovo").decision_function(middle)[0, 0] == 0
    equal(*(each.predict(middle) for each in made))
    shaped = (each.set_params(decision_function_shape="ovr") for each in made)
    equal(*(each.decision_function(middle).argsort() for each in shaped))


def test_ties_of_votes():
    """Of linear machines of three classes: between these each class has one vote."""
    centers = [[0, 0], [4, 0], [1, 5]]
    x, y = make_blobs(centers=centers, random_state=3, n_samples=120, cluster_std=1.5)
    ours, theirs = both("SVC", (x, y), tol=1e-5, kernel="linear")
    sides = (np.linspace(x[:, j].min(), x[:, j].max(), 60) for j in (0, 1))
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    pairs = grid @ theirs.coef_.T + theirs.intercept_
    grid = grid[np.abs(pairs).min(axis=1) > 1e-2]  # no vote hangs on rounding
    equal(ours.predict(grid), theirs.predict(grid))
    assert (ours.predict(grid) != np.argmax(ours.decision_function(grid), axis=1)).any()
    for each in (ours, theirs):
        each.set_params(break_ties=True)
    equal(ours.predict(grid), theirs.predict(grid))
    equal(ours.predict(grid), np.argmax(ours.decision_function(grid), axis=1))
    with pytest.raises(ValueError, match="break_ties must be False"):
        ours.set_params(decision_function_shape="ovo").predict(grid)


# Kernels that are matrices or functions.


def test_a_precomputed_matrix():
    made, block = SVC(kernel="precomputed").fit(TOY @ TOY.T, LABELS), AT @ TOY.T
    close(made.dual_coef_, [[-0.25, 0.25]], atol=1e-6)
    assert made.support_.tolist() == [1, 3] and made.support_vectors_.shape == (0, 0)
    # columns of support vectors alone count
    only = np.where(np.isin(np.arange(6), made.support_), block, 0)
    for values in (block, only):
        equal(made.predict(values), [1, 2, 2])


def dot_kernel(a, b):
    return np.dot(a, b.T)


def test_functions_of_arrays():
    made = clone(SVC(kernel=dot_kernel)).fit(TOY, LABELS)
    close(made.dual_coef_, [[-0.25, 0.25]], atol=1e-6)
    equal(made.predict(AT.tolist()), [1, 2, 2])
    assert made.support_.tolist() == [1, 3]
    assert made.n_features_in_ == 2 and made.shape_fit_ == (6, 2)
    assert not made.__sklearn_tags__().input_tags.pairwise
    sparse = SVC(kernel=lambda a, b: safe_sparse_dot(a, b.T))
    sparse.fit(scipy.sparse.lil_array(TOY), LABELS)
    equal(sparse.predict(scipy.sparse.csr_array(AT)), [1, 2, 2])


def test_a_function_of_objects():
    words = ["A A", "A", "B", "B B", "A B"]
    counts, y = np.array([[word.count(c) for c in "AB"] for word in words]), [1, 1, 2, 2, 1]
    numbers = lambda texts: np.array([[text.count(c) for c in "AB"] for text in texts])
    made = SVC(kernel=lambda a, b: numbers(a) @ numbers(b).T).fit(words, y)
    theirs = sklearn.svm.SVC(kernel="linear").fit(counts, y)
    close(made.decision_function(words), theirs.decision_function(counts), atol=1e-3)
    assert made.predict(words).tolist() == theirs.predict(counts).tolist()
    assert made.shape_fit_ == (5,) and not hasattr(made, "n_features_in_")


@pytest.mark.parametrize(
    "kernel",
    [lambda a, b: jnp.exp(-jnp.sum((a[:, None] - b[None]) ** 2, -1)), kernels.rbf(gamma=1.0)],
    ids=["function", "value"],
)
def test_kernels_of_jax_are_like_others(kernel):
    agree(SVC(kernel=kernel).fit(TOY, LABELS), known("SVC", "toy", gamma=1.0)[1], AT, 1e-3)


# Weights, costs and scales.


def test_class_weights():
    made = SVC(class_weight={1: 0.1}).fit(TOY, LABELS)
    equal(made.predict(TOY), [2] * 6)
    equal(made.class_weight_, [0.1, 1.0])
    keep = np.delete(np.arange(150), np.arange(100, 150, 2))
    options = {"class_weight": "balanced", "kernel": "linear", "decision_function_shape": "ovo"}
    ours, theirs = both("SVC", (IRIS[keep], SPECIES[keep]), tol=1e-5, **options)
    close(ours.class_weight_, theirs.class_weight_, rtol=1e-12)
    agree(ours, theirs, IRIS, 3e-3)


def test_sample_weights_are_costs_and_weight_0_is_absence():
    ours = SVC(C=100.0).fit(TOY, LABELS, np.full(6, 0.01))
    same(ours, known("SVC", "toy")[0], "dual_coef_", atol=1e-5)
    ours, theirs = both("SVC", (TOY, LABELS, [1, 1, 1, 0, 1, 1]), kernel="linear")
    close(ours.coef_, theirs.coef_, rtol=1e-3)
    assert 3 not in ours.support_


def test_equal_rows_share_a_coefficient_within_its_bound():
    x, y = np.repeat(TOY + [[0.3, 0.0]], 3, axis=0), np.repeat([1, 2, 1, 2, 1, 2], 3)
    ours, theirs = both("SVC", (x, y), kernel="linear", C=0.5)
    close(ours.coef_, theirs.coef_, atol=1e-3)
    assert abs(ours.dual_coef_).max() <= 0.5 + 1e-6 and abs(ours.dual_coef_.sum()) < 1e-5
    bounded = theirs.support_[np.abs(theirs.dual_coef_[0]) >= 0.5]
    assert len(bounded) and set(bounded) <= set(ours.support_)


def test_gamma_is_a_scale():
    for x, gamma in (([[0.0], [1.0]], 4.0), ([[1.0], [1.0]], 1.0)):
        assert [made._gamma for made in both("SVC", (x, [0, 1]))] == [gamma, gamma]
    assert SVC(gamma="auto").fit(TOY, LABELS)._gamma == 0.5


def test_columns_of_sparse_rows_may_come_in_any_order():
    x, made = scipy.sparse.csr_array(IRIS), on_iris("linear")[0]
    reverse = x.copy()
    for row in range(150):
        part = slice(*reverse.indptr[row : row + 2])
        reverse.indices[part], reverse.data[part] = x.indices[part][::-1], x.data[part][::-1]
    reverse.has_sorted_indices = False
    equal(made.decision_function(reverse), made.decision_function(x))


# What is told.


@pytest.mark.long
def test_a_limit_of_blocks_is_told():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(700, 4)), random.integers(0, 2, 700)
    with pytest.warns(
        ConvergenceWarning, match="a larger max_iter, columns of one scale or 64-bit numbers may"
    ):
        made = SVC(C=1000.0, max_iter=1).fit(x, y)
    assert made.fit_status_ == 1 and made.n_iter_.tolist() == [1]
    assert SVC(C=100.0).fit(x, y).fit_status_ == 0
    # the violation is above 1e-3 in float64
    with pytest.warns(ConvergenceWarning, match="rounding to float32"):
        assert SVC(C=1000.0).fit(x, y).fit_status_ == 1


def test_one_class_against_the_rest_by_scikit_learn():
    for k in (2, 3):
        x, y = make_blobs(60, centers=k, random_state=0)
        made = OneVsRestClassifier(SVC(kernel="linear")).fit(x, y)
        theirs = OneVsRestClassifier(sklearn.svm.SVC(kernel="linear")).fit(x, y)
        equal(made.predict(x), theirs.predict(x))


def clouds(classes, each=12, d=5):
    """Rows around a centre for each class, some of them between two."""
    rng = np.random.default_rng(classes)
    y = np.repeat(np.arange(classes), each)
    return 1.5 * rng.normal(size=(classes, d))[y] + rng.normal(size=(len(y), d)), y


@pytest.mark.long
@pytest.mark.parametrize("machine", ["SVC", "NuSVC"])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_more_than_64_pairs_of_classes(machine, kernel):
    """They are trained 32 at a time, the last ones with repetitions, each on rows of its own."""
    x, y = clouds(12)
    x = rbf_kernel(x) if kernel == "precomputed" else x
    how = {"kernel": kernel, "decision_function_shape": "ovo"}
    ours = getattr(estimators, machine)(tol=1e-6, **how).fit(x, y)
    theirs = getattr(sklearn.svm, machine)(tol=1e-8, **how).fit(x, y)
    close(ours.decision_function(x), theirs.decision_function(x), atol=2e-4)
    assert (ours.predict(x) == theirs.predict(x)).all()


@pytest.mark.parametrize("machine", [SVC, LinearSVC])
def test_programs_know_no_number_of_classes(machine):
    """Rows of problems and columns are of one size each, so that one program trains them all."""
    machine().fit(*clouds(3))
    events = listen()
    for classes, each, d in ((2, 30, 5), (4, 40, 9), (7, 20, 30)):
        machine().fit(*clouds(classes, each, d))
    assert not sum(event.endswith("backend_compile_duration") for event in events)


@pytest.mark.long
@pytest.mark.parametrize("machine", [SVC, LinearSVC])
def test_forty_data_sets_take_twelve_programs(machine):
    rng, events = np.random.default_rng(0), listen()
    for _ in range(40):
        n, d, k = int(np.exp(rng.uniform(3.9, 7.8))), rng.integers(3, 101), rng.integers(2, 5)
        y = np.arange(n) % k
        x = rng.normal(size=(n, d)) + y[:, None]
        machine().fit(x, y).predict(x)
    assert sum(event.endswith("backend_compile_duration") for event in events) <= 12


@pytest.mark.long(but=4)
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 4])
def test_values_of_a_few_rows_are_those_of_many(kernel, classes):
    """NumPy makes the first ones, and programs the others; rows of "rbf" lie far from 0."""
    x, y = clouds(classes, 200)
    x, options = x + 1000 * (kernel == "rbf"), {"kernel": kernel}
    ours = SVC(decision_function_shape="ovo", **options).fit(x, y)
    many = ours.decision_function(np.tile(x, (200, 1)))
    close(ours.decision_function(x[:3]), many[:3], rtol=1e-4, atol=2e-4)
    if kernel != "sigmoid":  # whose dual has several maxima
        theirs = sklearn.svm.SVC(decision_function_shape="ovo", **options).fit(x, y)
        close(many[:3], theirs.decision_function(x[:3]), atol=0.02)


@pytest.mark.long
def test_threads_leave_the_number_of_threads_as_it_was():
    """The second one comes while the first is there, and stays for longer."""
    before, is_there = threadpoolctl.threadpool_info(), threading.Event()

    def first():
        with one_thread():
            is_there.set()
            time.sleep(0.2)

    def second():
        is_there.wait()
        with one_thread():
            time.sleep(0.4)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda fn: fn(), (first, second)))
    assert threadpoolctl.threadpool_info() == before
