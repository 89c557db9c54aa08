"""Rows, and what LIBSVM and LIBLINEAR make of files of models."""

import ctypes
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from liblinear import liblinearutil
from libsvm import svmutil
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import scale

from jaxsvm import kernels
from jaxsvm.models import Classifier, Expansion, OneVsOne

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
NEW = np.random.default_rng(0).normal(size=(25, 4))


def rows(n, d, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, d))


def an_expansion(kernel, n=7, d=3, **changes):
    index = jnp.arange(n, dtype=jnp.int32)
    made = Expansion(kernel, rows(n, d), rows(n, 1, 1)[:, 0], jnp.float32(0.25), index, "free")
    return dataclasses.replace(made, **changes)


KERNELS = {
    "linear": kernels.linear(),
    "rbf": kernels.rbf(1.5),
    "gamma": kernels.rbf(gamma=0.5),
    "laplacian": kernels.laplacian(2.0),
    "polynomial": kernels.polynomial(0.5, 1.0, degree=2),
    "sigmoid": kernels.sigmoid(0.1, -1.0),
    "sum": kernels.rbf(1.0) + kernels.linear(),
    "product": kernels.rbf(1.0) * kernels.polynomial(degree=2),
    "scaled": 0.5 * kernels.rbf(1.0),
    "nested": 2.0 * (kernels.rbf(1.0) + kernels.linear() * kernels.sigmoid())
    + kernels.laplacian(1.0),
}


def data(name, names=(-2, 1, 4)):
    """Rows, targets, where classes have these names, and rows to predict."""
    load = {"iris": load_iris, "cancer": load_breast_cancer, "diabetes": load_diabetes}[name]
    x, y = load(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))[:150]
    x, y = scale(x[order]), y[order] / 100 if name == "diabetes" else np.array([*names])[y[order]]
    return x[:100], y[:100], x[100:]


def their_values(path, x):
    """Labels and decision values of the functions of LIBSVM or LIBLINEAR for a file.

    Their Python wrappers reserve too few values for nu-SVC and for Crammer and Singer's problem.
    """
    text = path.read_text()
    if text.startswith("solver_type"):
        model = liblinearutil.load_model(str(path))
        shape = len(x), model.nr_class if model.nr_class > 2 or "MCSVM_CS" in text else 1
        # as their program `predict`: a feature more, behind the last
        x = np.hstack([x, np.full((len(x), 1), model.bias)]) if model.bias >= 0 else x
        nodes = lambda row: liblinearutil.gen_feature_nodearray(row)[0]
        predict = liblinearutil.liblinear.predict_values
    else:
        model = svmutil.svm_load_model(str(path))
        by_row = "kernel_type precomputed" in text
        x = np.hstack([np.zeros((len(x), 1)), x]) if by_row else x
        shape = len(x), model.nr_class * (model.nr_class - 1) // 2
        nodes = lambda row: svmutil.gen_svm_nodearray(row, isKernel=by_row)[0]
        predict = svmutil.libsvm.svm_predict_values
    values, pointer = np.zeros(shape), ctypes.POINTER(ctypes.c_double)
    pairs = zip(x, values, strict=True)
    labels = [predict(model, nodes(row), at.ctypes.data_as(pointer)) for row, at in pairs]
    return np.array(labels), values[:, :1] if "MCSVM_CS" in text and shape[1] == 2 else values


@jax.jit
def applied(model, rows):
    return model.pairs(rows) if isinstance(model, OneVsOne) else model(rows)


def our_values(model, x):
    """The same of a model; of pairs, their values rather than the votes."""
    inner = model.inner if isinstance(model, Classifier) else model
    rows = jnp.asarray(x, jnp.float64 if jax.config.jax_enable_x64 else jnp.float32)
    values = applied(inner, rows)
    labels = model.predict(rows) if isinstance(model, Classifier) else None
    return labels, np.asarray(values, np.float64).reshape(len(x), -1)


def is_clear(values, k, least):
    """Where no vote of pairs of k classes hangs on rounding, and one class has the most.

    LIBSVM breaks ties of votes by the order of the labels.
    """
    first, second = np.triu_indices(k, 1)
    votes = np.stack([np.where(values > 0, first == c, second == c).sum(1) for c in range(k)], 1)
    votes = np.sort(votes, axis=1)
    return (votes[:, -1] > votes[:, -2]) & (np.abs(values).min(axis=1) > least)


def check_same(path, model, x, clear_share=0.8):
    """A file and a model have the same values, and the same labels where these are clear."""
    rtol = 1e-9 if jax.config.jax_enable_x64 else 1e-5
    (labels, values), (our_labels, ours) = their_values(path, x), our_values(model, x)
    close(ours, values, rtol=rtol, atol=rtol * np.abs(values).max())
    if our_labels is not None:
        clear = np.abs(values).min(axis=1) > 10 * rtol
        if isinstance(model.inner, OneVsOne):
            clear = is_clear(values, len(model.classes), 10 * rtol)
        assert clear.any() and clear.mean() >= clear_share
        equal(our_labels[clear], labels[clear])
