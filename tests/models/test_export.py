"""Exported programs, run by JAX alone, against the models that they were made of."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax import export as jax_export
from oracles import gaussian
from samples import close
from sklearn.datasets import load_iris
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm.models import (
    Classifier,
    Expansion,
    Linear,
    Mapped,
    OneVsRest,
    export,
    from_libsvm,
    from_sklearn,
)

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (40, 4))
NEW = np.random.default_rng(1).normal(size=(150, 4)).astype(np.float32)
PHI = features.fourier(jax.random.key(1), kernels.rbf(2.0), dim=4, features=10)
LINEAR = Linear(X[0], jnp.float32(0.5), "free")


def expansion(kernel, x=X):
    return Expansion(kernel, x, X[:, 0], jnp.float32(0.25), jnp.arange(40, dtype=jnp.int32), "free")


def sparse_rows():
    x = scipy.sparse.csr_matrix(np.where(np.asarray(X) > 0, X, 0))
    return jaxsvm.dataset(x, np.sign(X[:, 0])).x


RBF = kernels.rbf(2.0)
MODELS = {
    "linear": lambda: LINEAR,
    "rbf": lambda: expansion(RBF),
    "laplacian": lambda: expansion(kernels.laplacian(2.0)),
    "sum": lambda: expansion(0.5 * RBF + kernels.polynomial(degree=2)),
    "sparse": lambda: expansion(RBF, sparse_rows()),
    "Fourier": lambda: Mapped(PHI, Linear(jnp.arange(10.0), jnp.float32(0.5))),
    "Nystrom": lambda: Mapped(
        features.nystrom(KEY, RBF, X, landmarks=6), Linear(jnp.arange(6.0), jnp.float32(0.5))
    ),
    "named": lambda: Classifier(LINEAR, ("no", "yes")),
    "rest": lambda: Classifier(OneVsRest(Linear(X[:3], X[:3, 0], "free"), (True, True)), (0, 1, 2)),
    "pairs": lambda: from_sklearn(SVC(gamma=0.3).fit(*load_iris(return_X_y=True))),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_a_program_gives_the_values_of_the_model(name):
    """For any number of rows, whole blocks of 64 or not; the bytes too."""
    model = MODELS[name]()
    program = export(model, columns=4 if "phi" in dir(model) else None)
    assert set(program.platforms) == {"cpu", "cuda", "tpu"}
    call = jax_export.deserialize(program.serialize()).call
    for n in (1, 64, 150):
        values = np.asarray(model(jnp.asarray(NEW[:n])))
        result = call(NEW[:n])
        assert result.shape == values.shape and result.dtype == values.dtype
        close(result, values, rtol=1e-5, atol=1e-5 * np.abs(values).max())


SCRIPT = """
import sys
sys.modules["jaxsvm"] = None
import numpy as np
from jax import export
with open(sys.argv[1], "rb") as file:
    decision_values = export.deserialize(file.read()).call
np.save(sys.argv[3], decision_values(np.load(sys.argv[2])))
try:
    import jaxsvm
except ImportError:
    print("alone")
"""


@pytest.mark.long
def test_a_file_runs_without_this_package(tmp_path):
    names = [tmp_path / name for name in ("model.bin", "x.npy", "values.npy")]
    export(expansion(RBF), names[0])
    np.save(names[1], NEW)
    command = [sys.executable, "-c", SCRIPT, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "alone\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.bin", "values.npy", "x.npy"]
    values = gaussian(NEW, X, 1 / 8) @ np.asarray(X[:, 0], np.float64) + 0.25
    close(np.load(names[2]), values, rtol=1e-4, atol=1e-5)


def test_the_compiler_does_not_compute_with_the_model():
    """What depends on the model alone would take the compiler minutes for many support vectors."""
    x = jax.random.normal(jax.random.key(0), (300, 30))
    model = Expansion(kernels.rbf(20.0), x, x[:, 0], jnp.float32(0.0), jnp.arange(300), "none")
    text = export(model, platforms="cpu").mlir_module()
    assert text.count("optimization_barrier") >= 1


@pytest.mark.long
def test_fixed_rows_blocks_platforms_and_precomputed_rows():
    program = export(LINEAR, rows=3, platforms="cpu")
    assert program.platforms == ("cpu",) and program.in_avals[0].shape == (3, 4)
    close(program.call(NEW[:3]), LINEAR(jnp.asarray(NEW[:3])), rtol=1e-6)
    with pytest.raises(ValueError, match="shape"):
        program.call(NEW[:4])
    small = export(LINEAR, block=7, platforms=["cpu"]).call(NEW)
    close(small, LINEAR(jnp.asarray(NEW)), rtol=1e-5, atol=1e-6)
    by_row = dataclasses.replace(expansion(kernels.precomputed()), x=jnp.zeros((40, 0)))
    assert export(by_row).in_avals[0].shape[1] == 40


@pytest.mark.long
def test_float64(x64):
    model, x = Linear(jnp.asarray(X[0], jnp.float64), jnp.float64(0.5)), NEW.astype(np.float64)
    program = export(model)
    assert (
        program.in_avals[0].dtype == np.float64 and export(LINEAR).in_avals[0].dtype == np.float32
    )
    close(program.call(x), x @ np.asarray(model.w) + 0.5, rtol=1e-12, atol=1e-12)


def test_flatbuffers_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    for name in [name for name in sys.modules if name.startswith("jax._src.export.ser")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"flatbuffers: pip install 'jaxsvm\[export\]'"):
        export(LINEAR, tmp_path / "a.bin")
    assert not list(tmp_path.iterdir())


def test_a_model_of_libsvm_is_exported(tmp_path):
    head = "svm_type epsilon_svr\nkernel_type linear\nnr_class 2\ntotal_sv 1\nrho -1\nSV\n"
    (tmp_path / "a.model").write_text(head + "2 1:1 3:1\n")
    program = export(from_libsvm(tmp_path / "a.model"))
    close(program.call(NEW[:5, :3]), 2 * (NEW[:5, 0] + NEW[:5, 2]) + 1, rtol=1e-5)
