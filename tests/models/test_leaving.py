"""Models that leave: ONNX and skops files of `to_sklearn`'s estimators."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import to_sklearn

KEY = jax.random.key(0)
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


def models():
    """Models by name: what `to_sklearn` takes, and its task."""
    two, three = jaxsvm.dataset(X, TWO), jaxsvm.dataset(X, THREE, task="multiclass")
    real = jaxsvm.dataset(X, REAL, task="regression")
    tube = jaxsvm.losses.eps_insensitive(0.05)
    fit = lambda solver, data: jaxsvm.fit(solver, data, KEY)
    made = {
        f"{name} kernel": (fit(jaxsvm.decomposition(1.0, kernel), two).classifier, None)
        for name, kernel in KERNELS.items()
    }
    rbf = jaxsvm.decomposition(1.0, KERNELS["rbf"])
    regression = jaxsvm.decomposition(1.0, KERNELS["rbf"], loss=tube)
    return made | {
        "three classes": (fit(jaxsvm.one_vs_one(rbf, classes=3), three).classifier, None),
        "linear": (fit(jaxsvm.linear_svm(1.0), two).classifier, None),
        "linear, three classes": (
            fit(jaxsvm.one_vs_rest(jaxsvm.linear_svm(1.0), classes=3), three).classifier,
            None,
        ),
        "regression": (fit(regression, real).model, "regression"),
        "linear regression": (fit(jaxsvm.linear_svm(1.0, loss=tube), real).model, "regression"),
    }


MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_onnx_gives_the_same_predictions(name):
    convert = pytest.importorskip("skl2onnx").to_onnx
    runtime = pytest.importorskip("onnxruntime")
    model, task = MODELS[name]
    machine = to_sklearn(model, task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = convert(machine, X[:1])
    session = runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    answer = session.run(None, {session.get_inputs()[0].name: X})
    if task == "regression":
        assert np.allclose(answer[0].ravel(), model(jnp.asarray(X)), atol=1e-4)
    else:
        values = np.asarray(model(jnp.asarray(X)))
        sure = np.abs(values) > 1e-4 if values.ndim == 1 else np.ptp(values, axis=1) > 1e-4
        assert (answer[0] == model.predict(X))[sure].all() and sure.mean() > 0.9


@pytest.mark.parametrize("name", MODELS)
def test_skops_writes_it_without_a_pickle(name):
    """skops trusts all of its types by itself."""
    skops = pytest.importorskip("skops.io")
    model, task = MODELS[name]
    machine = to_sklearn(model, task=task)
    data = skops.dumps(machine)
    assert skops.get_untrusted_types(data=data) == []
    loaded = skops.loads(data)
    assert np.array_equal(loaded.predict(X), machine.predict(X))
