"""Rows on four devices: where they lie, what a step of a linear solver sends, and the same model as
on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from collectives import by_depth
from conftest import COLUMNS, FITTING, binary_rows
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import jaxsvm
from jaxsvm import features, kernels, samplers

KEY = jax.random.key(0)
EPOCHS, UNIFORM = (
    samplers.strata(samplers.epochs(8), blocks=4),
    samplers.strata(samplers.uniform(8), blocks=4),
)
MAP = features.fourier(jax.random.key(2), kernels.rbf(1.0), dim=COLUMNS, features=32)


def relative(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return np.abs(found - wanted).max() / np.abs(wanted).max()


def test_rows_are_dealt_evenly_and_padded(mesh):
    data = jaxsvm.dataset(np.arange(10.0)[:, None], [1, -1] * 5)
    rows = jaxsvm.shard(data, mesh)
    assert rows.x.sharding == NamedSharding(rows.y.sharding.mesh, PartitionSpec("rows"))
    assert [np.asarray(part.data)[:, 0].tolist() for part in rows.x.addressable_shards] == [
        [0, 1, 1],
        [2, 3, 4],
        [5, 6, 6],
        [7, 8, 9],
    ]
    assert rows.weight.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1]
    assert rows.index.tolist() == [0, 1, -1, 3, 4, 5, 6, 7, -1, 9, 10, 11]
    assert set(rows.y.sharding.mesh.axis_types) == {AxisType.Auto}
    few = jaxsvm.shard(jaxsvm.dataset([[1.0], [2.0]], [1, -1]), mesh)
    assert few.weight.tolist() == [0, 1, 0, 1]


def test_sparse_rows_are_dealt_as_dense_ones(mesh):
    x, y = binary_rows(1000)
    sparse = jaxsvm.shard(jaxsvm.dataset(scipy.sparse.csr_matrix(x), y), mesh)
    dense = jaxsvm.shard(jaxsvm.dataset(x, y), mesh)
    assert (np.asarray(sparse.x.toarray()) == np.asarray(dense.x)).all()
    assert {len(part.data) for part in sparse.x.value.addressable_shards} == {250}


def test_bad_meshes_and_rows_get_a_sentence(mesh):
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    with pytest.raises(ValueError, match='mesh must have an axis "rows", got the axes x'):
        jaxsvm.shard(data, jax.make_mesh((4,), ("x",)))
    with pytest.raises(ValueError, match="blocks must be a multiple of the 4 devices .* got 6"):
        jaxsvm.shard(data, mesh, blocks=6)
    with pytest.raises(TypeError, match="mesh must be a mesh"):
        jaxsvm.shard(data, 4)
    rows = jaxsvm.shard(jaxsvm.dataset(*binary_rows(64)), mesh)
    explicit = jax.tree.map(
        lambda a: jax.device_put(np.asarray(a), NamedSharding(mesh, PartitionSpec("rows"))), rows
    )
    with pytest.raises(
        ValueError,
        match=r"axes of the types .*Explicit.*, expected Auto: lay the rows with jaxsvm.shard",
    ):
        jaxsvm.fit(jaxsvm.subgradient(0.1), explicit, KEY, steps=1)
    other = Mesh(mesh.devices, ("x",))
    elsewhere = jax.tree.map(
        lambda a: jax.device_put(np.asarray(a), NamedSharding(other, PartitionSpec("x"))), rows
    )
    with pytest.raises(ValueError, match=r"lie on 4 devices as .* expected the axis \"rows\""):
        jaxsvm.fit(jaxsvm.subgradient(0.1), elsewhere, KEY, steps=1)


def test_draws_across_devices_are_refused(pair):
    _, rows = pair(1024)
    with pytest.raises(
        ValueError,
        match=r"lie on 4 devices, and uniform\(\) draws .*sampler=strata\(uniform\(\), blocks=4\)",
    ):
        jaxsvm.fit(jaxsvm.pegasos(0.1), rows, KEY, steps=1)
    with pytest.raises(ValueError, match="has 2 blocks: take a multiple of 4 blocks"):
        jaxsvm.fit(
            jaxsvm.pegasos(0.1),
            rows,
            KEY,
            steps=1,
            sampler=samplers.strata(samplers.epochs(8), blocks=2),
        )
    uneven = jaxsvm.shard(jaxsvm.dataset(*binary_rows(1000)), rows.y.sharding.mesh, blocks=4)
    with pytest.raises(
        ValueError,
        match=r"1000 rows do not divide into the 16 blocks .* jaxsvm.shard\(data, blocks=16\)",
    ):
        jaxsvm.fit(
            jaxsvm.pegasos(0.1),
            uneven,
            KEY,
            steps=1,
            sampler=samplers.strata(samplers.epochs(8), blocks=16),
        )


SOLVERS = {
    "pegasos": (jaxsvm.pegasos(1e-3), EPOCHS, 64),
    "pegasos, single rows": (
        jaxsvm.pegasos(1e-3, bias="feature"),
        samplers.strata(samplers.epochs(1), blocks=4),
        64,
    ),
    "asset": (jaxsvm.asset(1e-3), UNIFORM, 64),
    "subgradient": (jaxsvm.subgradient(1e-3), None, 20),
    "asset on features": (jaxsvm.on_features(MAP, jaxsvm.asset(1e-3)), UNIFORM, 40),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_models_are_those_of_one_device(pair, name):
    solver, sampler, steps = SOLVERS[name]
    one, four = pair(1024)
    options = {"sampler": sampler, "every": steps // 2}
    here = jaxsvm.fit(solver, one, KEY, steps=steps, **options)
    there = jaxsvm.fit(solver, four, KEY, steps=steps, **options)
    x = binary_rows(1024)[0]
    assert relative(there.model(x), here.model(x)) < 1e-6
    assert there.finite and there.state.step == steps
    half = jaxsvm.fit(solver, four, KEY, steps=steps // 2, **options)
    rest = jaxsvm.fit(solver, four, steps=steps // 2, state=half.state, **options)
    assert (np.asarray(rest.model(x)) == np.asarray(there.model(x))).all()  # resumed: the same bits


def test_features_made_in_each_step_stay_on_their_device(pair, compiled, monkeypatch):
    monkeypatch.setattr(FITTING, "MEMORY", 0)
    jax.clear_caches()
    one, four = pair(1024)
    solver = SOLVERS["asset on features"][0]
    options = {"steps": 40, "every": 10, "sampler": UNIFORM}
    x = binary_rows(1024)[0]
    here, there = (jaxsvm.fit(solver, rows, KEY, **options).model(x) for rows in (one, four))
    assert relative(there, here) < 1e-6
    table = compiled(solver, four, UNIFORM)[1]
    others = [sent for of in table.values() for kind, sent in of.items() if kind != "all-reduce"]
    assert sum(numbers for _, numbers in others) <= 1, table  # of the draws, no features


@pytest.mark.parametrize(
    "name, most", [("pegasos", 4), ("pegasos, single rows", 4), ("asset", 4), ("subgradient", 1)]
)
def test_a_step_sends_the_gradient_only(pair, compiled, name, most):
    solver, sampler, _ = SOLVERS[name]
    program, table = compiled(solver, pair(4096)[1], sampler)
    loop = max(table)  # of the steps, inside of that over tables of draws where there are draws
    assert set(table[loop]) == {"all-reduce"}, table
    many, numbers = table[loop]["all-reduce"]
    assert many <= most and numbers <= COLUMNS + 16  # the gradient and a few numbers, in all
    others = [sent for depth in range(loop) for sent in table.get(depth, {}).values()]
    assert sum(sent for _, sent in others) <= 8, table  # a few numbers for a chunk
    rows = 4 * 4096 * (COLUMNS + 3) / 4  # bytes of the rows of a device
    assert program.memory_analysis().argument_size_in_bytes <= 1.3 * rows
    assert program.memory_analysis().temp_size_in_bytes <= 0.3 * rows


def test_the_reader_of_programs_sees_collectives_in_loops(mesh):
    """Programs of which we know what they send."""
    mesh = jaxsvm.shard(jaxsvm.dataset([[1.0]] * 4, [1, -1, 1, -1]), mesh).y.sharding.mesh
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rows",), ()))
    a = jax.device_put(jnp.ones((8, 5)), rows)

    def text(fn, out):
        return jax.jit(fn, out_shardings=out).lower(a).compile().as_text()

    assert by_depth(text(lambda a: 2 * a, rows)) == {}
    assert by_depth(text(lambda a: a.sum(axis=0), whole)) == {0: {"all-reduce": (1, 5)}}
    assert by_depth(text(lambda a: 2 * a, whole)) == {0: {"all-gather": (1, 40)}}
    looped = lambda a: jax.lax.fori_loop(
        0, 3, lambda i, w: w + jnp.tanh(a * w.sum()).sum(axis=0), jnp.ones(5)
    )
    assert by_depth(text(looped, whole)) == {1: {"all-reduce": (1, 5)}}


def test_a_loss_in_float64(mesh, x64):
    data = jaxsvm.dataset(binary_rows(512)[0].astype(np.float64), binary_rows(512)[1])
    rows = jaxsvm.shard(data, mesh)
    here, there = (
        jaxsvm.fit(jaxsvm.subgradient(1e-2), part, KEY, steps=50).model.w for part in (data, rows)
    )
    assert there.dtype == np.float64 and relative(there, here) < 1e-12
