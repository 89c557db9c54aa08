"""States of sharded runs as files: laid over other devices as they were sharded, and damaged
folders."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import binary_rows
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxsvm
from jaxsvm import models
from jaxsvm.models.parts import TREE, _part_path, read_folder, spec_of

KEY = jax.random.key(0)


def test_a_state_goes_on_where_it_is_laid(pair, tmp_path):
    one, four = pair(1024)
    options = {"steps": 4, "every": 4}
    solver, path = jaxsvm.cocoa(0.1, blocks=4), tmp_path / "run.npz"
    half = jaxsvm.fit(solver, four, KEY, save=path, **options)
    whole = jaxsvm.fit(solver, four, state=half.state, **options)
    back = models.load(path, mesh=four.y.sharding.mesh)
    shardings = lambda run: [spec_of(a) for a in jax.tree.leaves(run.solver)]
    assert shardings(back) == shardings(half.state) and ["rows"] in [
        spec and spec[:1] for spec in shardings(back)
    ]
    assert back.solver.order.key.dtype == half.state.solver.order.key.dtype
    again = jaxsvm.fit(solver, four, state=back, **options)
    assert (
        np.asarray(again.model.w) == np.asarray(whole.model.w)
    ).all()  # the same devices: the same bits
    plain = models.load(path)
    assert all(len(a.sharding.device_set) == 1 for a in jax.tree.leaves(plain))
    alone = jaxsvm.fit(solver, one, state=plain, **options)
    np.testing.assert_allclose(alone.model.w, whole.model.w, rtol=1e-5, atol=1e-7)
    two = Mesh(np.array(jax.devices()[:2]), ("rows",))
    on_two = jaxsvm.fit(
        solver,
        jaxsvm.shard(jaxsvm.dataset(*binary_rows(1024)), two, blocks=4),
        state=models.load(path, mesh=two),
        **options,
    )
    np.testing.assert_allclose(on_two.model.w, whole.model.w, rtol=1e-5, atol=1e-7)


def test_arrays_that_the_mesh_does_not_divide_are_replicated(mesh, tmp_path):
    auto = jaxsvm.shard(jaxsvm.dataset([[1.0]] * 4, [1, -1, 1, -1]), mesh).y.sharding.mesh
    tree = {
        "rows": jax.device_put(jnp.arange(8.0), NamedSharding(auto, PartitionSpec("rows"))),
        "shape": jnp.ones(3),
    }
    models.save(tmp_path / "tree.npz", tree)
    three = Mesh(np.array(jax.devices()[:3]), ("rows",))
    for other in (three, Mesh(np.array(jax.devices()), ("x",))):
        back = models.load(tmp_path / "tree.npz", mesh=other)
        assert back["rows"].sharding.is_fully_replicated and back["rows"].tolist() == list(range(8))
    assert not models.load(tmp_path / "tree.npz", mesh=mesh)["rows"].sharding.is_fully_replicated


def parts(folder, places, values):
    folder.mkdir(exist_ok=True)
    text = np.frombuffer(json.dumps(places).encode(), np.uint8)
    np.savez(
        _part_path(str(folder), 1, 0),
        places=text,
        **{f"p{k}": np.asarray(v, np.float32) for k, v in enumerate(values)},
    )
    return str(folder)


def test_parts_make_up_whole_arrays_or_are_refused(tmp_path):
    shapes = {0: ((4, 2), np.dtype(np.float32))}
    read = lambda folder: read_folder(folder, 1, 1, shapes)[0]
    whole = parts(
        tmp_path / "whole",
        [[0, [[0, 2], [0, 2]]], [0, [[2, 4], [0, 2]]]],
        [np.zeros((2, 2)), np.ones((2, 2))],
    )
    assert read(whole).tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
    with pytest.raises(ValueError, match="do not make up whole arrays"):
        read(parts(tmp_path / "half", [[0, [[0, 2], [0, 2]]]], [np.zeros((2, 2))]))
    with pytest.raises(ValueError, match="part 0 of process 0 does not fit its array"):
        read(parts(tmp_path / "other", [[0, [[0, 2], [0, 2]]]], [np.zeros((2, 1))]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        models.load(tmp_path / "empty")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / TREE).write_bytes(b"PK")
    with pytest.raises(ValueError, match="is damaged"):
        models.load(tmp_path / "broken")
