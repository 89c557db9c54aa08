"""Models that leave: ONNX and skops files of `to_sklearn`'s estimators."""

import functools
import warnings

import jax
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import to_sklearn

KEY, PROVIDER = jax.random.key(0), "CPUExecutionProvider"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3)).astype(np.float32)
TWO = np.where(X[:, 0] + 0.3 * X[:, 1] ** 2 > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
REAL = X[:, 0] + 0.1 * X[:, 1]
KERNELS = {
    "linear": kernels.linear(),
    "rbf": kernels.rbf(gamma=0.3),
    "polynomial": kernels.polynomial(degree=2, coef0=1.0),
    "sigmoid": kernels.sigmoid(gamma=0.1, coef0=0.0),
}


TUBE, LINEAR = jaxsvm.losses.eps_insensitive(0.05), jaxsvm.linear_svm(1.0)
RBF = jaxsvm.decomposition(1.0, KERNELS["rbf"])
SOLVERS = {  # and their targets
    **{f"{name} kernel": (jaxsvm.decomposition(1.0, k), TWO) for name, k in KERNELS.items()},
    "three classes": (jaxsvm.one_vs_one(RBF, classes=3), THREE),
    "linear": (LINEAR, TWO),
    "linear, three classes": (jaxsvm.one_vs_rest(LINEAR, classes=3), THREE),
    "regression": (jaxsvm.decomposition(1.0, KERNELS["rbf"], loss=TUBE), REAL),
    "linear regression": (jaxsvm.linear_svm(1.0, loss=TUBE), REAL),
}


@functools.cache
def fitted(name):
    """A model, its task, and the machine of scikit-learn."""
    (solver, y), task = SOLVERS[name], "regression" if "regression" in name else None
    data = jaxsvm.dataset(X, y, task="multiclass" if y is THREE else task)
    made = jaxsvm.fit(solver, data, KEY)
    model = made.model if task else made.classifier
    return model, task, to_sklearn(model, task=task)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", SOLVERS)
def test_onnx_gives_the_same_predictions(name):
    convert = pytest.importorskip("skl2onnx").to_onnx
    runtime = pytest.importorskip("onnxruntime")
    model, task, machine = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = convert(machine, X[:1])
    session = runtime.InferenceSession(graph.SerializeToString(), providers=[PROVIDER])
    answer = session.run(None, {session.get_inputs()[0].name: X})
    values = np.asarray(jax.jit(lambda model: model(X))(model))
    if task == "regression":
        assert np.allclose(answer[0].ravel(), values, atol=1e-4)
    else:
        sure = np.abs(values) > 1e-4 if values.ndim == 1 else np.ptp(values, axis=1) > 1e-4
        assert (answer[0] == model.predict(X))[sure].all() and sure.mean() > 0.9


@pytest.mark.long(but=3)
@pytest.mark.parametrize("name", SOLVERS)
def test_skops_writes_it_without_a_pickle(name):
    """skops trusts all of its types by itself."""
    skops = pytest.importorskip("skops.io")
    machine = fitted(name)[-1]
    data = skops.dumps(machine)
    assert skops.get_untrusted_types(data=data) == []
    loaded = skops.loads(data)
    assert np.array_equal(loaded.predict(X), machine.predict(X))
