"""The queries of rows: from arrays and files, through all that takes rows apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import models

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
Y = [0, 1, 2, 0, 1, 1, 2, 0]
NAMES = ["a", "a", "b", "b", "b", "c", "c", "c"]
NUMBERS = [0, 0, 1, 1, 1, 2, 2, 2]


def data():
    return jaxsvm.dataset(X, Y, query=NAMES)


@pytest.mark.long
def test_queries_are_numbered_and_go_with_their_rows():
    batch = data()
    assert batch.query.dtype == jnp.int32 and batch.query.tolist() == NUMBERS
    assert jaxsvm.take(batch, [7, -1, 2]).query.tolist()[::2] == [2, 1]
    for part in jaxsvm.data.split(jax.random.key(0), batch, 1, 1):  # rows in a random order
        place = [int(np.flatnonzero((X == row).all(axis=1))[0]) for row in np.asarray(part.x)]
        assert part.query.tolist() == [NUMBERS[i] for i in place]
    chunks = [part.query.tolist() for part in jaxsvm.data.chunks(batch, rows=3)]
    assert sum(chunks, []) == NUMBERS
    phi = jaxsvm.features.nystrom(None, jaxsvm.kernels.linear(), landmarks=np.eye(3, dtype="f"))
    assert jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)).prepare(batch).query.tolist() == NUMBERS


def test_data_without_queries_have_no_leaf_for_them():
    plain = jaxsvm.dataset(X, [1, -1] * 4)
    assert plain.query is None and len(jax.tree.leaves(plain)) == 4
    assert jaxsvm.take(plain, [1, -1]).query is None


def test_files_hold_queries(tmp_path):
    models.save(tmp_path / "batch.npz", data())
    assert models.load(tmp_path / "batch.npz").query.tolist() == NUMBERS


@pytest.mark.long
def test_select_keeps_queries_whole():
    rng = np.random.default_rng(1)
    query = rng.integers(0, 10, 40)
    y = np.where(rng.random(40) < 0.5, 1, -1)
    batch = jaxsvm.dataset(rng.normal(size=(40, 2)), y, query=query)
    found = jaxsvm.select(jaxsvm.newton, batch, jax.random.key(0), lam=[0.1, 1.0], folds=4)
    fold = np.asarray(found.fold)
    assert all(len(set(fold[query == q])) == 1 for q in range(10)) and len(set(fold)) == 4
