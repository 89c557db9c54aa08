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
EPOCHS, SINGLE, UNIFORM = (
    samplers.strata(of, blocks=4)
    for of in (samplers.epochs(8), samplers.epochs(1), samplers.uniform(8))
)
MAP = features.fourier(jax.random.key(2), kernels.rbf(1.0), dim=COLUMNS, features=32)


def relative(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return np.abs(found - wanted).max() / np.abs(wanted).max()


def test_rows_are_dealt_evenly_and_padded(mesh):
    data = jaxsvm.dataset(np.arange(10.0)[:, None], [1, -1] * 5)
    rows = jaxsvm.shard(data, mesh)
    assert rows.x.sharding == NamedSharding(rows.y.sharding.mesh, PartitionSpec("rows"))
    dealt = [np.asarray(part.data)[:, 0].tolist() for part in rows.x.addressable_shards]
    assert dealt == [[0, 1, 1], [2, 3, 4], [5, 6, 6], [7, 8, 9]]
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


PEGASOS, SUBGRADIENT = jaxsvm.pegasos(0.1), jaxsvm.subgradient(0.1)


def laid(rows, mesh, axis):
    over = NamedSharding(mesh, PartitionSpec(axis))
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a), over), rows)


def test_bad_meshes_rows_and_draws_get_a_sentence(mesh, pair):
    data, (_, rows) = jaxsvm.dataset([[1.0], [-1.0]], [1, -1]), pair(1024)
    explicit, elsewhere = laid(rows, mesh, "rows"), laid(rows, Mesh(mesh.devices, ("x",)), "x")
    uneven = jaxsvm.shard(jaxsvm.dataset(*binary_rows(1000)), rows.y.sharding.mesh, blocks=4)
    of = lambda blocks: samplers.strata(samplers.epochs(8), blocks=blocks)
    fit = lambda rows, solver=PEGASOS, **how: lambda: jaxsvm.fit(solver, rows, KEY, steps=1, **how)
    for call, words in (
        (lambda: jaxsvm.shard(data, jax.make_mesh((4,), ("x",))), 'an axis "rows", got the axes x'),
        (lambda: jaxsvm.shard(data, mesh, blocks=6), "a multiple of the 4 devices .* got 6"),
        (lambda: jaxsvm.shard(data, 4), "mesh must be a mesh"),
        (fit(explicit, SUBGRADIENT), r"of the types .*Explicit.*, expected Auto: lay"),
        (fit(elsewhere, SUBGRADIENT), r'lie on 4 devices as .* expected the axis "rows"'),
        (fit(rows), r"lie on 4 devices, and uniform\(\) draws .*strata\(uniform\(\), blocks=4\)"),
        (fit(rows, sampler=of(2)), "has 2 blocks: take a multiple of 4 blocks"),
        (fit(uneven, sampler=of(16)), r"1000 rows do not divide .*shard\(data, blocks=16\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()


SOLVERS = {
    "pegasos": (jaxsvm.pegasos(1e-3), EPOCHS, 64),
    "pegasos, single rows": (jaxsvm.pegasos(1e-3, bias="feature"), SINGLE, 64),
    "asset": (jaxsvm.asset(1e-3), UNIFORM, 64),
    "subgradient": (jaxsvm.subgradient(1e-3), None, 20),
    "asset on features": (jaxsvm.on_features(MAP, jaxsvm.asset(1e-3)), UNIFORM, 40),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_models_are_those_of_one_device(pair, name):
    solver, sampler, steps = SOLVERS[name]
    one, four = pair(1024)
    options = {"sampler": sampler, "every": steps // 2}
    here, there = (jaxsvm.fit(solver, rows, KEY, steps=steps, **options) for rows in (one, four))
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
    body = lambda a, w: w + jnp.tanh(a * w.sum()).sum(axis=0)
    looped = lambda a: jax.lax.fori_loop(0, 3, lambda i, w: body(a, w), jnp.ones(5))
    assert by_depth(text(looped, whole)) == {1: {"all-reduce": (1, 5)}}


def test_a_loss_in_float64(mesh, x64):
    x, y = binary_rows(512)
    data = jaxsvm.dataset(x.astype(np.float64), y)
    fit = lambda rows: jaxsvm.fit(jaxsvm.subgradient(1e-2), rows, KEY, steps=50).model.w
    here, there = fit(data), fit(jaxsvm.shard(data, mesh))
    assert there.dtype == np.float64 and relative(there, here) < 1e-12
