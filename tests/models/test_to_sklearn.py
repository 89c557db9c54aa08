"""Models as fitted estimators of scikit-learn: the same decision values, there and back."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from samples import close, equal
from sklearn import svm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import SGDOneClassSVM

import jaxsvm
from jaxsvm import estimators, kernels
from jaxsvm.models import Linear, OneVsOne, from_sklearn, to_sklearn

pytestmark = pytest.mark.usefixtures("usual_promotion")

X, CLASSES = load_iris(return_X_y=True)
TWO = CLASSES != 0
REAL, TARGET = load_diabetes(return_X_y=True)
REAL, TARGET = REAL[:120] * 20, TARGET[:120] / 100
FORMS = {"dense": np.asarray, "sparse": scipy.sparse.csr_matrix}
KERNELS = {
    "rbf": {"gamma": 0.3},
    "linear": {},
    "poly": {"gamma": 0.2, "degree": 2, "coef0": 1.5},
    "sigmoid": {"gamma": 0.01, "coef0": 0.1},
}


ROWS = {  # machines, rows and targets
    "SVC": (X[TWO], CLASSES[TWO]),
    "SVC of three": (X, CLASSES),
    "NuSVC": (X, CLASSES),
    "SVR": (REAL, TARGET),
    "NuSVR": (REAL, TARGET),
    "OneClassSVM": (REAL, TARGET),
}
DENSE = ["rbf", "sigmoid", "linear", "sigmoid", "rbf", "linear"]
SPARSE = ["poly", "linear", "poly", "linear", "linear", "poly"]
CASES = [(*pair, "dense") for pair in zip(ROWS, DENSE, strict=True)]
CASES += [(*pair, "sparse") for pair in zip(ROWS, SPARSE, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize(("name", "kernel", "form"), CASES)
def test_there_and_back(name, kernel, form, x64):
    """scikit-learn's machine, our model of it, and a machine of that model."""
    (x, y), kind = ROWS[name], name.split()[0]
    options = KERNELS[kernel] | ({"nu": 0.2} if kind in ("NuSVC", "OneClassSVM") else {})
    first = getattr(svm, kind)(kernel=kernel, **options).fit(FORMS[form](x), y)
    model = from_sklearn(first)
    again = to_sklearn(model, task="one_class" if kind == "OneClassSVM" else None)
    assert type(again).__name__ == kind.removeprefix("Nu")
    rows, regression = FORMS[form](x + 0.05), kind in ("SVR", "NuSVR")
    values = lambda made: made.predict(rows) if regression else made.decision_function(rows)
    close(values(again), values(first), rtol=1e-6, atol=1e-8)
    assert np.array_equal(again.predict(rows), first.predict(rows)) or regression
    assert again.n_features_in_ == x.shape[1]
    if kind != "OneClassSVM":
        close(again.dual_coef_.sum(), first.dual_coef_.sum(), atol=1e-7)
        close(again.intercept_, first.intercept_, atol=1e-7)
        at = jax.jit(lambda model: model(x))
        close(at(model), at(from_sklearn(again)), rtol=1e-6, atol=1e-8)


def test_precomputed_kernels_of_several_classes():
    gram = X @ X.T
    first = svm.SVC(kernel="precomputed").fit(gram, CLASSES)
    again = to_sklearn(from_sklearn(first))
    close(again.decision_function(gram), first.decision_function(gram), atol=1e-4)
    equal(again.predict(gram), first.predict(gram))
    with pytest.raises(ValueError, match="expecting 150 features"):
        again.predict(gram[:, :3])


@pytest.mark.parametrize("k", [2, 3])
def test_linear_machines(k):
    x, y = (X[TWO], CLASSES[TWO]) if k == 2 else (X, CLASSES)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    ours = estimators.LinearSVC(random_state=0).fit(x, names)
    theirs = to_sklearn(ours.model_)
    assert isinstance(theirs, svm.LinearSVC) and theirs.coef_.shape == (1 if k == 2 else 3, 4)
    close(theirs.decision_function(x), ours.decision_function(x), rtol=1e-6, atol=1e-6)
    for rows in (x, scipy.sparse.csr_matrix(x)):
        equal(theirs.predict(rows), ours.predict(x))


def test_other_linear_tasks():
    model, rows = Linear(jnp.array([1.0, -2.0]), jnp.array(0.25), "free"), [[1.0, 0.5], [0.0, 1.0]]
    equal(to_sklearn(model).predict(rows), [0.25, -1.75])
    machine = to_sklearn(model, task="one_class")
    assert isinstance(machine, SGDOneClassSVM)
    equal(machine.decision_function(rows), [0.25, -1.75])
    equal(machine.predict(rows), [1, -1])
    without = to_sklearn(Linear(jnp.array([1.0]), jnp.array(0.0)), task="classification")
    assert not without.fit_intercept and without.predict([[2.0], [-1.0]]).tolist() == [1, -1]
    stacked = OneVsOne(Linear(jnp.ones((3, 2)), jnp.zeros(3)), (True, True), 3)
    assert to_sklearn(stacked).classes_.tolist() == [0, 1, 2]


@pytest.mark.long
def test_a_fit_of_this_package_predicts_where_it_is_not_installed(tmp_path):
    """The pickle names no class of jaxsvm; nor of JAX."""
    data = jaxsvm.dataset(X[TWO], np.array(["a", "b"])[CLASSES[TWO] - 1])
    machine = jaxsvm.kernel_svm(2.0, kernels.rbf(gamma=0.4))
    result = jaxsvm.fit(machine, data, jax.random.key(0))
    path = tmp_path / "machine.pickle"
    path.write_bytes(pickle.dumps(to_sklearn(result.classifier)))
    np.save(tmp_path / "rows.npy", X[TWO])
    code = f"""
import pickle, sys, numpy
for name in ("jax", "jaxsvm", "jaxlib"):
    sys.modules[name] = None
machine = pickle.load(open({str(path)!r}, "rb"))
rows = numpy.load({str(tmp_path / "rows.npy")!r})
print(*machine.decision_function(rows)[:3], "".join(machine.predict(rows)))
"""
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    close([float(v) for v in out[:3]], result.model(X[TWO])[:3], atol=1e-5)
    assert out[3] == "".join(result.predict(X[TWO]))


@pytest.mark.long
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_scale_inside_becomes_a_pipeline(form):
    """It takes raw rows, and a classifier knows its names."""
    rows = FORMS[form](X.astype(np.float32) * [1, 10, 100, 1000] + [5, 0, 0, 0])
    names = np.array(["setosa", "versicolor", "virginica"])[CLASSES]
    data = jaxsvm.dataset(rows, names)
    scale = (jaxsvm.data.standardize if form == "dense" else jaxsvm.data.scale)(data.x)
    rbf = jaxsvm.decomposition(10.0, kernels.rbf(gamma=0.5))
    solver = jaxsvm.on_features(scale, jaxsvm.one_vs_one(rbf, classes=3))
    result = jaxsvm.fit(solver, data, jax.random.key(0))
    machine = to_sklearn(result.classifier)
    assert isinstance(machine[-1], svm.SVC) and machine.classes_.tolist() == sorted(set(names))
    assert np.mean(machine.predict(rows) == result.predict(rows)) > 0.99
    assert np.mean(machine.predict(rows) == names) > 0.95
    machine[-1].decision_function_shape = "ovo"
    pairs = jax.jit(lambda model: model.inner.pairs(scale(data.x)))(result.model)
    close(machine.decision_function(rows), pairs, atol=2e-4)


def test_a_regression_with_its_scale():
    data = jaxsvm.dataset(REAL * 50 + 3, TARGET, task="regression")
    solver = jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.eps_insensitive(0.05))
    scaled = jaxsvm.on_features(jaxsvm.data.standardize(data.x), solver)
    model = jaxsvm.fit(scaled, data, jax.random.key(0)).model
    machine = to_sklearn(model)
    assert isinstance(machine[-1], svm.LinearSVR)
    close(machine.predict(data.x), model(data.x), atol=1e-4)
