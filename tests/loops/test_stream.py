"""Streams: chunks change nothing, rows wait for their batch, and what chunks are."""

import contextlib
import os
import sqlite3
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamed import (
    AVERAGED,
    DATA,
    FIFTHS,
    HALVES,
    KEY,
    PEGASOS,
    PHI,
    RARE,
    SDCA,
    THREE,
    D,
    N,
    X,
    Y,
    fitted,
    in_one,
    near,
    pieces,
    same,
    stream,
    streams,
)

import jaxsvm
from jaxsvm import features, kernels, models, types
from jaxsvm.data import chunks as cut

# What a stream is

REST, PAIRS = jaxsvm.one_vs_rest(SDCA, classes=3), jaxsvm.one_vs_one(PEGASOS, classes=3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("solver", "b", "data", "passes"),
    [
        *((PEGASOS, b, DATA, 1) for b in (8, 1, 3, 50, 77, 250)),
        *((solver, b, DATA, 1) for solver in (AVERAGED, jaxsvm.perceptron(), SDCA) for b in (1, 8)),
        (SDCA, 1, DATA, 2),
        (REST, 1, THREE, 2),  # one against the rest begins alike whatever classes come
        (PAIRS, 1, THREE, 1),
        (AVERAGED, 4, jaxsvm.dataset(RARE, Y), 1),
    ],
)
def test_a_stream_is_a_run_over_the_rows_in_their_order(solver, b, data, passes):
    """But for the rows that do not fill a batch."""
    parts = passes * [*cut(data, rows=30)]
    run = stream(parts, solver, rows=N, batch_size=b)
    found = (int(run.state.step), int(run.state.n_pending), int(run.state.seen))
    assert found == (*divmod(passes * N, b), 0)
    near(run.model, fitted(solver, b, data, passes).model)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([PEGASOS, SDCA]),
    st.sampled_from([1, 8]),
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
)
def test_where_chunks_end_changes_nothing(solver, b, sizes):
    sizes = [20, *sizes]  # the first decides the size of the program
    while sum(sizes) > N:
        sizes.pop()
    sizes += [N - sum(sizes)]
    run, whole = stream(pieces(*sizes), solver, rows=N, batch_size=b), in_one(solver, b)
    assert same(run.model, whole.model) and int(run.state.chunks) <= len(sizes)
    assert same(run.state.solver, whole.state.solver)


def test_rows_that_wait_for_a_batch_keep_their_weights(tmp_path):
    """Chunks of 5 rows, in steps of 8, saved in between, are the steps written out in NumPy."""
    weight = np.random.default_rng(5).uniform(0.2, 3, N).astype(np.float32)
    parts = list(cut(DATA._replace(weight=weight), rows=5))
    solver, path = jaxsvm.pegasos(0.1, project=False), tmp_path / "state.npz"
    models.save(path, stream(parts[:9], solver, batch_size=8).state)
    state = models.load(path)
    assert int(state.n_pending) == 5
    np.testing.assert_array_equal(state.pending.weight[-5:], weight[40:45])
    np.testing.assert_array_equal(state.pending.x[-5:], X[40:45])
    run = stream(parts[9:], solver, batch_size=8, state=state)
    w = np.zeros(D)
    for t in range(1, N // 8 + 1):
        x, y, c = (a[8 * (t - 1) : 8 * t].astype(np.float64) for a in (X, Y, weight))
        w = (1 - 1 / t) * w + ((y * (x @ w) < 1) * c * y) @ x / 8 / (0.1 * t)
    np.testing.assert_allclose(run.model.w, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(run.state.pending.index[-4:], np.arange(96, 100))


@pytest.mark.long
def test_the_curve_has_a_row_for_each_chunk():
    error = jaxsvm.error_on(DATA)
    run = stream(pieces(40, 40, 3, 17), batch_size=8, probe=error)
    assert run.info.step.tolist() == [5, 10, 10, 12]
    assert np.isnan(run.info.loss[2]) and np.isfinite(np.delete(run.info.loss, 2)).all()
    assert run.info.evals.tolist() == [40, 40, 0, 16]
    assert run.info.probe.shape == (4,) and run.info.probe[-1] == error(run.model)
    assert run.status.startswith("stopped after 12 steps; residual ")


def test_one_compilation_whatever_the_chunks():
    before, (one, two) = (
        streams.run_batches._cache_size(),
        (jaxsvm.pegasos(lam, bias="feature") for lam in (0.037, 0.1)),
    )
    stream(pieces(20, 5, 1, 30, 20, 24), one, batch_size=4)
    stream(pieces(20, 80), two, batch_size=4)
    assert streams.run_batches._cache_size() == before + 1


@pytest.mark.long
def test_rows_of_weight_0_are_left_out():
    keep = np.arange(N) % 3 > 0
    wild = np.where(keep[:, None], X, 1e3).astype(np.float32)
    weight = keep.astype(np.float32)
    run = stream([(wild[:50], Y[:50], weight[:50]), (wild[50:], Y[50:], weight[50:])], batch_size=4)
    assert same(run.model, stream([(X[keep], Y[keep])], batch_size=4).model)


def test_a_chunk_without_a_row_of_positive_weight_is_read_once():
    """It is counted, so that a stream that is resumed reads none again."""
    parts, options = pieces(20, 10, 30, 40), {"solver": SDCA, "batch_size": 4, "rows": N}
    parts[1] = (*parts[1], np.zeros(10, np.float32))
    state = stream(parts[:3], **options).state
    assert int(state.chunks) == 3
    resumed, whole = stream(parts[3:], state=state, **options), stream(parts, **options)
    assert same(resumed.state, whole.state) and int(whole.state.chunks) == 4


@pytest.mark.long
@pytest.mark.parametrize("most", [2**31, 1000])
def test_features_are_lifted_by_the_chunk_or_by_the_step(monkeypatch, most):
    monkeypatch.setattr("jaxsvm.loops.fitting.MEMORY", most)
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=D, features=32 + 2 * (most == 1000))
    solver = jaxsvm.on_features(phi, jaxsvm.pegasos(0.1))
    run = stream(cut(DATA, rows=30), solver, batch_size=4)
    # products of other shapes round otherwise
    np.testing.assert_allclose(run.model(X), fitted(solver, 4).model(X), atol=1e-5)


@pytest.mark.long
def test_chunks_prepared_beforehand_are_not_lifted_again():
    solver = jaxsvm.on_features(PHI, jaxsvm.pegasos(0.1))
    both = DATA, solver.prepare(DATA)
    plain, lifted = (stream(cut(data, rows=30), solver).model(X) for data in both)
    np.testing.assert_allclose(plain, lifted, atol=1e-5)
    with pytest.raises(ValueError, match="chunks must have the same columns"):
        stream(both, solver)


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint8])
def test_other_dtypes_become_float32(dtype):
    x = (10 * np.abs(X)).astype(dtype)
    run = stream([(x, Y.astype(int))])
    assert run.model.w.dtype == jnp.float32
    assert same(run.model, stream([(x.astype(np.float32), Y)]).model)


def filled_again(parts):
    """The parts in arrays that are filled again, and spoilt as soon as the next part is asked
    for."""
    buffers = jax.tree.map(np.empty_like, parts[0])
    for part in parts:
        jax.tree.map(lambda buffer, a: np.copyto(buffer[: len(a)], a), buffers, part)
        yield jax.tree.map(lambda buffer, a: buffer[: len(a)], buffers, part)
        jax.tree.map(lambda buffer: buffer.fill(1), buffers)


def weighted(x, y):
    return x, y, np.where(x[:, 0] > 0, np.float32(2), np.float32(1))


def sparse_rows(x, y):
    """Sparse rows of the columns in a random order."""
    index = np.argsort(x, axis=1).astype(np.int32)
    values = np.take_along_axis(x, index, 1)
    return types.SparseRows(index, values, np.full(len(x), D, np.int32), D), y


def batches(x, y):
    return jaxsvm.Batch(x, y, np.arange(len(y), dtype=np.int32), weighted(x, y)[2])


WAYS = (lambda x, y: (x, y)), weighted, sparse_rows, batches, lambda x, y: [x[:, ::-1], y]


@pytest.mark.long(but=6)
@pytest.mark.parametrize(("make", "b", "way"), [
    *((jaxsvm.pegasos, 7, way) for way in WAYS),
    (jaxsvm.asset, 1, weighted), (jaxsvm.asset, 50, weighted), (jaxsvm.asset, 7, sparse_rows),
    (jaxsvm.pegasos, 1, weighted), (jaxsvm.pegasos, 50, weighted),
])  # fmt: skip
def test_arrays_that_are_filled_again_are_read_before(make, b, way):
    """Rows, targets and weights are those of the chunk when it was given, to the bit."""
    parts = [way(x, y) for x, y in FIFTHS]
    run, again = (stream(given, make(0.1), batch_size=b) for given in (parts, filled_again(parts)))
    assert same((run.model, run.state), (again.model, again.state))


def test_jax_rows_over_a_buffer_are_read_before():
    """`device_put` may share the memory of an array of NumPy."""
    memory = np.empty(20 * D * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # where JAX shares it
    buffer = memory[start : start + 20 * D * 4].view(np.float32).reshape(20, D)

    def chunks():
        for x, y in FIFTHS:
            buffer[:] = x
            yield jax.device_put(buffer), y

    assert same(stream(chunks()).model, stream(FIFTHS).model)


def test_a_database_is_read_in_the_thread_that_opens_it():
    """A connection of sqlite3 belongs to the thread that opened it: that of the generator."""
    threads = set()

    def chunks():
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute("create table rows (a real, b real, c real, d real, y real)")
            database.executemany("insert into rows values (?, ?, ?, ?, ?)", np.c_[X, Y].tolist())
            cursor = database.execute("select * from rows order by rowid")
            while rows := cursor.fetchmany(30):
                threads.add(threading.get_ident())
                table = np.array(rows, np.float32)
                yield table[:, :-1], table[:, -1]

    assert same(stream(chunks(), batch_size=1).model, in_one(PEGASOS, 1).model)
    assert len(threads) == 1 and threading.get_ident() not in threads
    assert "sqlite3, within the generator" in " ".join(jaxsvm.stream.__doc__.split())


def test_a_stream_in_another_thread():
    made = []
    thread = threading.Thread(target=lambda: made.append(stream()))
    thread.start()
    thread.join(60)
    assert same(made[0].model, in_one(PEGASOS, 1).model)


def test_rows_matter_to_solvers_with_a_state_for_each_row_only():
    few, many = (stream(HALVES, jaxsvm.asset(0.1), rows=rows) for rows in (None, 10_000))
    assert same(few.model, many.model)


@pytest.mark.long
def test_a_finished_stream_goes_on_or_is_returned_as_it_stands():
    run = in_one(AVERAGED, 8)
    again = stream([], AVERAGED, state=run.state)
    assert same(again.model, run.model)
    assert again.status == "no step was made; the run stands at step 12"
    run = stream(state=in_one(PEGASOS, 8).state)
    assert int(run.state.step) == 2 * N // 8  # in batches of the state


# Chunks


def test_chunks_are_a_sequence():
    parts = cut(X, Y, rows=30)
    assert len(parts) == 4 and [len(p.y) for p in parts] == [30, 30, 30, 10]
    assert np.array_equal(np.concatenate([p.x for p in parts]), X)
    assert np.array_equal(parts[-1].x, X[90:])
    assert len(parts[2:]) == 2 and np.array_equal(parts[2:][0].y, Y[60:90]) and len(parts[4:]) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_chunks_of_a_memory_map_are_read_from_the_file(tmp_path, dtype):
    x, path = (X * 9).astype(dtype), tmp_path / "x.npy"
    np.save(path, x)
    mapped, changed = (np.load(path, mmap_mode=mode) for mode in "rc")
    parts = cut(mapped, Y, rows=30)
    assert all(np.array_equal(part.x, x[30 * i : 30 * i + 30]) for i, part in enumerate(parts))
    assert not isinstance(parts[0].x, np.memmap)
    # part of a map, whose offset lies
    assert np.array_equal(cut(mapped[10:], Y[10:], rows=30)[0].x, x[10:40])
    changed[0] = 9  # what was changed in memory counts
    assert (cut(changed, Y, rows=30)[0].x[0] == 9).all()
    os.truncate(path, 500)
    with pytest.raises(ValueError, match="has become shorter than the 100 rows that it had"):
        parts[3]
