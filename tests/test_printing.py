"""What `print` shows of results: the numbers themselves, and nothing under tracing."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import kernels

DATA = jaxsvm.dataset([[1.0], [-1.0], [3.0], [2.0]], [1, -1, 1, -1])
KEY = jax.random.key(0)
MACHINE = jaxsvm.decomposition(1.0, kernels.linear())


def test_a_fit_says_what_was_fitted_how_it_ended_and_its_curve():
    result = jaxsvm.fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=20, every=5)
    first, second, third = str(result).splitlines()
    assert first == f"Fit of {result.model!r}" and second == result.status
    losses = np.asarray(result.info.loss)
    assert third == (
        f"loss {losses[0]:.3g} to {losses[-1]:.3g} in 4 rows of the curve (.info); 20 evaluations"
    )
    one = jaxsvm.fit(MACHINE, DATA, KEY)
    assert re.search(r"\n1 row of the curve \(.info\); \d+ evaluations$", repr(one))
    none = jaxsvm.fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=0)
    assert repr(none).splitlines()[1:] == [none.status]


def test_a_certificate_is_a_sentence():
    result = jaxsvm.fit(MACHINE, DATA, KEY)
    proof = jaxsvm.certificate(result.model, DATA, lam=1 / 4)
    first, second = str(proof).splitlines()
    found = re.fullmatch(
        r"Certificate: the objective (\S+) is at most (\S+) above its minimum, (\S+) % of it", first
    )
    primal, gap, share = map(float, found.groups())
    np.testing.assert_allclose(primal, proof.primal, rtol=1e-5)
    np.testing.assert_allclose(gap, proof.gap, rtol=1e-2)
    np.testing.assert_allclose(share, 100 * proof.gap / proof.primal, rtol=6e-2)
    assert second.endswith("of the model's own coefficients)")
    linear = jaxsvm.fit(jaxsvm.pegasos(0.25), DATA, KEY, steps=3)
    assert "worked out" in repr(jaxsvm.certificate(linear.model, DATA, lam=1 / 4))
    for gap, is_loose in ((0.05, False), (0.2, True)):
        assert ("is loss=" in repr(jaxsvm.types.Certificate(1.0, 1 - gap, gap, False))) == is_loose


def test_a_data_set_tells_its_size_and_targets():
    assert repr(DATA) == "Batch of 4 rows of 1 columns, float32; targets -1 (2), 1 (2)"
    sparse = jaxsvm.dataset(scipy.sparse.eye(4, format="csr"), [1, -1, 1, 1])
    assert repr(sparse) == "Batch of 4 sparse rows of 4 columns, float32; targets -1 (1), 1 (3)"
    real = jaxsvm.dataset(np.arange(20.0)[:, None], np.arange(20) / 4, task="regression")
    assert repr(real) == "Batch of 20 rows of 1 columns, float32; targets from 0 to 4.75"


@pytest.mark.parametrize("y", [[1, -1], np.zeros(0), np.array(["a", "b"]), None, 2.0, np.eye(2)])
@pytest.mark.parametrize("x", [[[1.0], [2.0]], np.ones(2), np.ones((2, 1)), [[1], [2, 3]], None])
def test_a_batch_of_wrong_fields_has_a_line_too(x, y):
    """Messages of errors print what came, whatever it is."""
    assert repr(jaxsvm.Batch(x, y, None, None)).startswith("Batch")


def test_a_selection_tells_its_choice():
    make = lambda C: jaxsvm.decomposition(C, kernels.linear())
    found = jaxsvm.select(make, DATA, KEY, C=np.array([0.1, 1.0]), folds=2, progress=False)
    first, second, third = str(found).splitlines()
    best = float(np.nanmin(found.table.values))
    assert first == f"Selection of C = {found.chosen['C']:.4g} (best); least score {best:.4g}"
    assert second == found.status and third == str(found.certificate).splitlines()[0]


@pytest.mark.long
def test_runs_of_a_batch_and_values_that_are_not_known():
    run = lambda lam: jaxsvm.fit(jaxsvm.pegasos(lam), DATA, KEY, steps=4)
    both = lambda of: jax.jit(jax.vmap(of))(jnp.array([0.1, 0.2]))
    batch = both(run)
    assert str(batch).splitlines()[1] == batch.status
    proofs = both(lambda lam: jaxsvm.certificate(run(lam).model, DATA, lam))
    assert repr(proofs).startswith("Certificates of 2 models: gap ")
    seen = []
    jax.jit(lambda lam: seen.append(repr(run(lam))))(0.1)
    assert seen == ["Fit of Linear, without values"]
    shapes = jax.eval_shape(lambda: DATA)
    assert repr(shapes) == "Batch of rows without values"
