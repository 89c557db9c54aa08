"""States of sharded runs go on from a file, on as many devices as the rows then lie on."""

import jax
import numpy as np
import pytest
from conftest import binary_rows
from jax.sharding import Mesh

import jaxsvm
from jaxsvm import models

KEY = jax.random.key(0)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_a_state_goes_on_where_its_rows_lie(pair, tmp_path, devices):
    _, four = pair(1024)
    options = {"steps": 4, "every": 4}
    solver, path = jaxsvm.cocoa(0.1, blocks=4), tmp_path / "run.npz"
    half = jaxsvm.fit(solver, four, KEY, save=path, **options)
    whole = jaxsvm.fit(solver, four, state=half.state, **options)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("rows",))
    rows = jaxsvm.shard(jaxsvm.dataset(*binary_rows(1024)), mesh, blocks=4)
    again = jaxsvm.fit(solver, rows, state=models.load(path), **options)
    assert devices < 4 or (np.asarray(again.model.w) == np.asarray(whole.model.w)).all()
    np.testing.assert_allclose(again.model.w, whole.model.w, rtol=1e-5, atol=1e-7)
