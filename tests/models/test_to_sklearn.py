"""Models as fitted estimators of scikit-learn: the same decision values, there and back."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn import svm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import SGDOneClassSVM

import jaxsvm
from jaxsvm import estimators, kernels
from jaxsvm.models import Classifier, Expansion, Linear, OneVsOne, from_sklearn, to_sklearn

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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("kind", "x", "y"),
    [
        ("SVC", X[TWO], CLASSES[TWO]),
        ("SVC", X, CLASSES),
        ("NuSVC", X, CLASSES),
        ("SVR", REAL, TARGET),
        ("NuSVR", REAL, TARGET),
        ("OneClassSVM", REAL, TARGET),
    ],
)
def test_there_and_back(kind, x, y, kernel, form, x64):
    """scikit-learn's machine, our model of it, and a machine of that model."""
    options = {"nu": 0.2} if kind in ("NuSVC", "OneClassSVM") else {}
    first = getattr(svm, kind)(kernel=kernel, **KERNELS[kernel], **options).fit(FORMS[form](x), y)
    model = from_sklearn(first)
    task = "one_class" if kind == "OneClassSVM" else None
    again = to_sklearn(model, task=task)
    assert type(again).__name__ == kind.removeprefix("Nu")
    rows = FORMS[form](x + 0.05)
    name = "predict" if kind in ("SVR", "NuSVR") else "decision_function"
    np.testing.assert_allclose(
        getattr(again, name)(rows), getattr(first, name)(rows), rtol=1e-6, atol=1e-8
    )
    assert np.array_equal(again.predict(rows), first.predict(rows)) or kind in ("SVR", "NuSVR")
    assert again.n_features_in_ == x.shape[1]
    if kind != "OneClassSVM":
        np.testing.assert_allclose(again.dual_coef_.sum(), first.dual_coef_.sum(), atol=1e-7)
        np.testing.assert_allclose(again.intercept_, first.intercept_, atol=1e-7)
        back = from_sklearn(again)
        values = model(jnp.asarray(x)), back(jnp.asarray(x))
        np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-8)


def test_precomputed_kernels_of_several_classes():
    gram = X @ X.T
    first = svm.SVC(kernel="precomputed").fit(gram, CLASSES)
    again = to_sklearn(from_sklearn(first))
    np.testing.assert_allclose(
        again.decision_function(gram), first.decision_function(gram), atol=1e-4
    )
    assert np.array_equal(again.predict(gram), first.predict(gram))
    with pytest.raises(ValueError, match="expecting 150 features"):
        again.predict(gram[:, :3])


@pytest.mark.parametrize("k", [2, 3])
def test_linear_machines(k):
    x, y = (X[TWO], CLASSES[TWO]) if k == 2 else (X, CLASSES)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    ours = estimators.LinearSVC(random_state=0).fit(x, names)
    theirs = to_sklearn(ours.model_)
    assert isinstance(theirs, svm.LinearSVC) and theirs.coef_.shape == (1 if k == 2 else 3, 4)
    np.testing.assert_allclose(
        theirs.decision_function(x), ours.decision_function(x), rtol=1e-6, atol=1e-6
    )
    assert np.array_equal(theirs.predict(x), ours.predict(x))
    assert np.array_equal(theirs.predict(scipy.sparse.csr_matrix(x)), ours.predict(x))


def test_other_linear_tasks():
    model = Linear(jnp.array([1.0, -2.0]), jnp.array(0.25), "free")
    rows = np.array([[1.0, 0.5], [0.0, 1.0]])
    assert np.array_equal(to_sklearn(model).predict(rows), [0.25, -1.75])
    machine = to_sklearn(model, task="one_class")
    assert isinstance(machine, SGDOneClassSVM)
    assert np.array_equal(machine.decision_function(rows), [0.25, -1.75])
    assert np.array_equal(machine.predict(rows), [1, -1])
    without = to_sklearn(Linear(jnp.array([1.0]), jnp.array(0.0)), task="classification")
    assert not without.fit_intercept and np.array_equal(without.predict([[2.0], [-1.0]]), [1, -1])


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
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    np.testing.assert_allclose([float(v) for v in out[:3]], result.model(X[TWO])[:3], atol=1e-5)
    assert out[3] == "".join(result.predict(X[TWO]))


@pytest.mark.parametrize("form", ["standardize", "scale", "sparse"])
def test_a_scale_inside_becomes_a_pipeline(form):
    """It takes raw rows, and a classifier knows its names."""
    x = X.astype(np.float32) * [1, 10, 100, 1000] + [5, 0, 0, 0]
    names = np.array(["setosa", "versicolor", "virginica"])[CLASSES]
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(x) if form == "sparse" else x, names)
    scale = (jaxsvm.data.standardize if form == "standardize" else jaxsvm.data.scale)(data.x)
    rbf = jaxsvm.decomposition(10.0, kernels.rbf(gamma=0.5))
    three = jaxsvm.one_vs_one(rbf, classes=3)
    result = jaxsvm.fit(jaxsvm.on_features(scale, three), data, jax.random.key(0))
    machine = to_sklearn(result.classifier)
    rows = FORMS["sparse" if form == "sparse" else "dense"](x)
    assert isinstance(machine[-1], svm.SVC) and machine.classes_.tolist() == sorted(set(names))
    assert np.mean(machine.predict(rows) == result.predict(rows)) > 0.99
    machine[-1].decision_function_shape = "ovo"
    values = result.model.inner.pairs(scale(data.x))
    np.testing.assert_allclose(machine.decision_function(rows), values, atol=2e-4)
    assert np.mean(machine.predict(rows) == names) > 0.95


def test_a_regression_with_its_scale():
    data = jaxsvm.dataset(REAL * 50 + 3, TARGET, task="regression")
    solver = jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.eps_insensitive(0.05))
    scaled = jaxsvm.on_features(jaxsvm.data.standardize(data.x), solver)
    model = jaxsvm.fit(scaled, data, jax.random.key(0)).model
    machine = to_sklearn(model)
    assert isinstance(machine[-1], svm.LinearSVR)
    np.testing.assert_allclose(machine.predict(data.x), model(data.x), atol=1e-4)
    with pytest.raises(ValueError, match="task must be one of"):
        to_sklearn(model, task="ranking")


def test_what_is_refused():
    rows = jnp.ones((2, 3))
    of_kernel = lambda kernel: Expansion(kernel, rows, jnp.ones(2), jnp.zeros(()), jnp.arange(2))
    with pytest.raises(ValueError, match="LIBSVM holds .* kernels, got laplacian"):
        to_sklearn(of_kernel(kernels.laplacian(sigma=1.0)))
    with pytest.raises(ValueError, match="not finite"):
        to_sklearn(Linear(jnp.array([jnp.nan]), jnp.zeros(())))
    with pytest.raises(ValueError, match="task must be one of"):
        to_sklearn(Linear(jnp.ones(1), jnp.zeros(())), task="ranking")
    with pytest.raises(ValueError, match="task is 'regression', but the model has classes"):
        to_sklearn(Classifier(Linear(jnp.ones(1), jnp.zeros(())), (0, 1)), task="regression")
    with pytest.raises(TypeError, match="to_sklearn takes Expansion, .*, got 3"):
        to_sklearn(3)
    with pytest.raises(TypeError, match="pass its model_"):
        to_sklearn(estimators.LinearSVC().fit(X, CLASSES))
    with pytest.raises(ValueError, match="index is -1"):
        to_sklearn(
            Expansion(
                kernels.precomputed(), rows, jnp.ones(2), jnp.zeros(()), jnp.full(2, -1, jnp.int32)
            )
        )
    stacked = OneVsOne(Linear(jnp.ones((3, 2)), jnp.zeros(3)), (True, True), 3)
    assert to_sklearn(stacked).classes_.tolist() == [0, 1, 2]
