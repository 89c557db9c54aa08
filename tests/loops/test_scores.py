"""The numbers of a table of scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm.loops.selection import Scores


def table(folds):
    folds = np.asarray(folds, np.float64)
    names = ("C", "gamma")[: folds.ndim - 1]
    numbers = tuple(np.arange(1.0, k + 1) for k in folds.shape[:-1])
    return Scores(folds, *(np.zeros_like(folds) for _ in range(4)), numbers, names)


def test_standard_errors_are_over_the_folds_whatever_the_axes():
    folds = np.random.default_rng(0).random((1, 4, 3))
    spread = np.sqrt(((folds - folds.mean(-1, keepdims=True)) ** 2).sum(-1) / 2 / 3)
    np.testing.assert_allclose(table(folds).se, spread, rtol=1e-12)
    np.testing.assert_allclose(table(folds.transpose(1, 0, 2)).se, spread.T, rtol=1e-12)
    assert np.isnan(table(folds[..., :1]).se).all() and table(folds[0, :, :1]).se.shape == (4,)


@pytest.mark.long
def test_gaps_are_those_of_certificates_of_each_fold():
    random = np.random.default_rng(1)
    x = random.normal(size=(60, 2))
    data = jaxsvm.dataset(x, np.where(x[:, 0] + random.normal(size=60) > 0, 1, -1))
    machine = lambda C: jaxsvm.decomposition(C, jaxsvm.kernels.rbf(1.0))
    key, tol = jax.random.key(0), 0.2
    found = jaxsvm.select(machine, data, key, folds=3, C=[1.0], tol=tol, progress=False)
    for fold, (gap, primal) in enumerate(
        zip(found.table.gap[0], found.table.primal[0], strict=True)
    ):
        rest = data._replace(weight=jnp.asarray(found.fold != fold, jnp.float32))
        proof = jaxsvm.certificate(jaxsvm.fit(machine(1.0), rest, key, tol=tol), rest, C=1.0)
        np.testing.assert_allclose(gap, proof.gap / proof.primal, rtol=1e-3)
        np.testing.assert_allclose(primal, proof.primal * rest.weight.sum(), rtol=1e-4)
        assert gap > 1e-3
