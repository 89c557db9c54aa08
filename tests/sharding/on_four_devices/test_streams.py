"""Streams on four devices: the model of one device, a few numbers sent a step, and runs that go
on."""

import importlib

import jax
import numpy as np
import pytest
import scipy.sparse
from collectives import by_depth
from conftest import COLUMNS, binary_rows, normal_rows

import jaxsvm
from jaxsvm import features, kernels, models

# the package has a function of this name
streams = importlib.import_module("jaxsvm.loops.streaming")

KEY = jax.random.key(0)
X, Y = normal_rows(1000)
MAP = features.fourier(jax.random.key(2), kernels.rbf(1.0), dim=COLUMNS, features=32)
SOLVERS = {
    "pegasos": jaxsvm.pegasos(1e-3, bias="free"),
    "asset": jaxsvm.asset(1e-3),
    "averaged": jaxsvm.averaged(jaxsvm.pegasos(1e-3)),
    "perceptron": jaxsvm.perceptron(),
    "features": jaxsvm.on_features(MAP, jaxsvm.pegasos(1e-3)),
    "bsgd": jaxsvm.bsgd(1e-2, kernels.rbf(0.1), budget=20),
    "bogd": jaxsvm.bogd(1e-2, kernels.rbf(0.1), budget=20),
    "fogd": jaxsvm.fogd(0.5, MAP),
}


def chunks(rows=160, x=X):
    return jaxsvm.data.chunks(jaxsvm.dataset(x, Y), rows=rows)


def relative(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return np.abs(found - wanted).max() / np.abs(wanted).max()


@pytest.mark.parametrize("name", SOLVERS)
def test_the_model_is_that_of_one_device(name, mesh):
    """With the same rows in the same steps: 62 of 16, and 8 rows that fill none."""
    solver, error = SOLVERS[name], jaxsvm.error_on(jaxsvm.dataset(X, Y))
    one = jaxsvm.stream(solver, chunks(), KEY, batch_size=16)
    four = jaxsvm.stream(solver, chunks(), KEY, batch_size=16, mesh=mesh, probe=error)
    state = four.state
    assert [int(count) for count in (state.step, state.n_pending, state.seen)] == [62, 8, 1000]
    # products of 123 columns with frequencies round otherwise in blocks of other sizes
    assert relative(four.model(X), one.model(X)) <= (5e-6 if name == "features" else 1e-6)
    assert relative(four.info.loss, one.info.loss) <= 1e-6 and four.info.probe.shape == (7,)
    for leaf in jax.tree.leaves(state.solver):
        assert leaf.sharding.is_fully_replicated and len(leaf.sharding.device_set) == 4
    waiting = state.pending.y
    assert len(waiting.sharding.device_set) == 4
    assert waiting.addressable_shards[0].data.shape == (4,)


@pytest.mark.parametrize("name", ["averaged", "features"])
def test_sparse_rows_and_features_of_each_step(mesh, monkeypatch, name):
    monkeypatch.setattr("jaxsvm.loops.fitting.MEMORY", 4000)
    x, solver = scipy.sparse.csr_matrix(binary_rows(1000)[0]), SOLVERS[name]
    one = jaxsvm.stream(solver, chunks(x=x), KEY, batch_size=16)
    four = jaxsvm.stream(solver, chunks(x=x), KEY, batch_size=16, mesh=mesh)
    # sums of sparse rows in another order
    assert relative(four.model(x.toarray()), one.model(x.toarray())) <= 5e-6


def test_a_step_sends_its_gradient_alone(mesh, monkeypatch):
    """No row leaves its device: one sum of the columns, and a few single numbers."""
    programs, run_batches = [], streams.run_batches

    def spy(*args, **kwargs):
        programs.append(run_batches.lower(*args, **kwargs).compile())
        return run_batches(*args, **kwargs)

    monkeypatch.setattr(streams, "run_batches", spy)
    jaxsvm.stream(jaxsvm.pegasos(1e-3), [chunks(640)[0]], KEY, batch_size=64, mesh=mesh)
    [program] = programs
    table = by_depth(program.as_text())
    assert set(table.pop(1)) == {"all-reduce"} and set(table) <= {0}
    numbers = sum(numbers for _, numbers in by_depth(program.as_text())[1].values())
    assert numbers <= COLUMNS + 8
    arguments = program.memory_analysis().argument_size_in_bytes
    assert arguments <= 1.3 * 4 * (COLUMNS + 3) * 640 / 4 + 4096


def test_a_stream_goes_on_on_any_number_of_devices(mesh, tmp_path):
    solver, path, parts = SOLVERS["pegasos"], tmp_path / "run.npz", chunks()
    whole = jaxsvm.stream(solver, parts, KEY, batch_size=16, mesh=mesh)
    jaxsvm.stream(solver, [parts[0], parts[1], parts[2]], KEY, batch_size=16, mesh=mesh, save=path)
    same = jaxsvm.stream(solver, parts[3:], state=models.load(path), mesh=mesh)
    assert all(map(np.array_equal, jax.tree.leaves(same.state), jax.tree.leaves(whole.state)))
    for other in (None, jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])):
        run = jaxsvm.stream(solver, parts[3:], state=models.load(path), mesh=other)
        assert relative(run.model(X), whole.model(X)) <= 1e-6
        assert int(run.state.step) == 62 and int(run.state.n_pending) == 8


def test_the_state_of_a_run_goes_on_on_any_number_of_devices(mesh):
    solver, parts = SOLVERS["pegasos"], chunks()
    two = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    whole = jaxsvm.stream(solver, parts, KEY, batch_size=16)
    for first in (None, two, mesh):
        half = jaxsvm.stream(solver, [parts[0], parts[1], parts[2]], KEY, batch_size=16, mesh=first)
        for second in (None, two, mesh):
            run = jaxsvm.stream(solver, parts[3:], state=half.state, mesh=second)
            assert relative(run.model(X), whole.model(X)) <= 1e-6
            assert len(run.state.step.sharding.device_set) == (1 if second is None else second.size)
    with pytest.raises(ValueError, match="multiple of the 4 devices .* batches of 1 rows"):
        jaxsvm.stream(solver, parts, state=jaxsvm.stream(solver, parts, KEY).state, mesh=mesh)


def test_the_default_batch_is_a_multiple_of_the_devices(mesh):
    run = jaxsvm.stream(SOLVERS["pegasos"], chunks(), KEY, mesh=mesh)
    assert int(run.state.step) == 250 and run.state.pending.y.shape == (4,)


ALONE = 'mesh must have the axis "rows" alone, got '
REFUSED = [  # options, what the sentence says
    ({"mesh": 4}, "mesh must be a mesh such as"),
    ({"mesh": ((4,), ("x",))}, ALONE + "x: make it"),
    ({"mesh": ((2, 2), ("runs", "rows"))}, ALONE + "runs, rows"),
    ({"batch_size": 6}, "batches must be a multiple of the 4 devices .* of 6 rows"),
    (
        {"solver": jaxsvm.sdca(1.0), "rows": 1000},
        "state for each row, and a stream on a mesh keeps",
    ),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_bad_meshes_and_batches_get_a_sentence(mesh, options, sentence):
    options = {"mesh": mesh, "solver": SOLVERS["pegasos"]} | options
    if isinstance(options["mesh"], tuple):
        options["mesh"] = jax.make_mesh(*options["mesh"])
    with pytest.raises((TypeError, ValueError), match=sentence):
        jaxsvm.stream(chunks=chunks(), key=KEY, **options)
