"""Models of fitted estimators of scikit-learn, judged by the estimators themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from samples import close, data, equal
from sklearn import linear_model, svm

import jaxsvm
from jaxsvm import estimators
from jaxsvm.models import Classifier, Expansion, Linear, OneVsOne, OneVsRest, from_sklearn

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


CASES = {
    "SVC": ("cancer", svm.SVC()),
    "linear SVC": ("cancer", svm.SVC(kernel="linear", gamma="auto")),
    "poly": ("cancer", svm.SVC(kernel="poly", coef0=0.5, degree=2)),
    "sigmoid": ("cancer", svm.SVC(kernel="sigmoid", gamma=0.01, coef0=-0.5)),
    "three": ("iris", svm.SVC(break_ties=True)),
    "three, ovo": ("iris", svm.SVC(decision_function_shape="ovo", gamma=0.3)),
    "NuSVC": ("cancer", svm.NuSVC(nu=0.2)),
    "NuSVC, three": ("iris", svm.NuSVC(nu=0.3, break_ties=True)),
    "SVR": ("diabetes", svm.SVR()),
    "NuSVR": ("diabetes", svm.NuSVR(kernel="poly")),
    "OneClassSVM": ("cancer", svm.OneClassSVM(nu=0.2)),
    "LinearSVC": ("cancer", svm.LinearSVC()),
    "LinearSVC, no intercept": ("cancer", svm.LinearSVC(fit_intercept=False)),
    "LinearSVC, three": ("iris", svm.LinearSVC(intercept_scaling=2.0)),
    "LinearSVC, three, no intercept": ("iris", svm.LinearSVC(fit_intercept=False)),
    "Crammer and Singer": ("iris", svm.LinearSVC(multi_class="crammer_singer")),
    "LinearSVR": ("diabetes", svm.LinearSVR()),
    "LinearSVR, no intercept": ("diabetes", svm.LinearSVR(fit_intercept=False)),
    "SGDClassifier": ("cancer", linear_model.SGDClassifier(random_state=0)),
    "SGDClassifier, three": ("iris", linear_model.SGDClassifier(random_state=0, average=True)),
    "SGDRegressor": ("diabetes", linear_model.SGDRegressor(random_state=0)),
    "SGDOneClassSVM": ("cancer", linear_model.SGDOneClassSVM(random_state=0)),
    "Perceptron": ("iris", linear_model.Perceptron(random_state=0)),
}
BIASES = {"LinearSVC": "feature", "LinearSVC, no intercept": "none", "LinearSVC, three": "free"}
BIASES |= {"SGDClassifier": "free", "LinearSVR": "feature"}


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("rows", "wide"), [("dense", False), ("dense", True), ("sparse", False)])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_estimator(name, rows, wide):
    source, machine = CASES[name]
    x, y, new = data(source, "abc")
    x = scipy.sparse.csr_matrix(np.where(np.abs(x) > 0.3, x, 0)) if rows == "sparse" else x
    machine = machine.__class__(**machine.get_params()).fit(x, y)
    at = scipy.sparse.csr_matrix(new) if rows == "sparse" else new
    expected = getattr(machine, "decision_function", machine.predict)(at)
    with jax.enable_x64(wide):
        model, batch = from_sklearn(machine), jnp.asarray(new, float if wide else np.float32)
        inner = model.inner if isinstance(model, Classifier) else model
        values = inner.pairs(batch) if name == "three, ovo" else model(batch)
        rtol = 1e-9 if wide else 1e-5
        close(values, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
        if hasattr(machine, "classes_"):
            assert model.classes == tuple(machine.classes_)
            equal(model.predict(batch), machine.predict(new))
        if name in BIASES:
            assert (inner.inner if isinstance(inner, OneVsRest) else inner).bias == BIASES[name]
        if isinstance(inner, Expansion):
            equal(inner.index, machine.support_)
            assert isinstance(inner.x, jaxsvm.SparseRows) == (rows == "sparse")


@pytest.mark.long
@pytest.mark.parametrize("name", ["cancer", "iris"])
def test_a_precomputed_kernel(name):
    x, y, new = data(name, "abc")
    machine = svm.SVC(kernel="precomputed", break_ties=True).fit(x @ x.T, y)
    model, block = from_sklearn(machine), jnp.asarray(new @ x.T, jnp.float32)
    close(model(block), machine.decision_function(new @ x.T), rtol=1e-5, atol=1e-4)
    equal(model.predict(block), machine.predict(new @ x.T))


@pytest.mark.long
def test_estimators_of_this_package_and_subclasses():
    x, y, new = data("cancer", "abc")
    ours = estimators.LinearSVC(random_state=0, max_iter=5, tol=None).fit(x, y)
    assert from_sklearn(ours) is ours.model_
    Renamed = type("Renamed", (svm.LinearSVC,), {})
    machine = Renamed().fit(x, y)
    values = from_sklearn(machine)(jnp.asarray(new, jnp.float32))
    close(values, machine.decision_function(new), rtol=1e-4, atol=1e-5)
    assert isinstance(from_sklearn(svm.SVC().fit(*data("iris", "abc")[:2])).inner, OneVsOne)
    sparse = svm.LinearSVC().fit(x, y).sparsify()
    assert isinstance(from_sklearn(sparse).inner, Linear)
