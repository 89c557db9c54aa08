"""Streams: chunks change nothing, rows wait for their batch, runs go on to the bit after a kill,
memory stays bounded."""

import contextlib
import functools
import importlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import features, kernels, models, samplers, types

# the package has a function of this name
streams = importlib.import_module("jaxsvm.loops.streaming")

KEY = jax.random.key(0)
N, D = 100, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, D)).astype(np.float32)
Y = np.sign(X @ np.array([1.0, -1, 0.5, 0], np.float32) + 0.3 * RANDOM.normal(size=N)).astype(
    np.float32
)
DATA = jaxsvm.dataset(X, Y)
SOLVERS = {
    "pegasos": jaxsvm.pegasos(0.1, bias="free"),
    "averaged": jaxsvm.averaged(jaxsvm.pegasos(0.1)),
    "perceptron": jaxsvm.perceptron(),
    "sdca": jaxsvm.sdca(1.0),
}


def pieces(sizes):
    """(x, y) tuples of these sizes, one after the other."""
    ends = np.cumsum(sizes)
    return [(X[start:end], Y[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def near(a, b):
    """The same steps in another program: a few roundings of float32."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def same(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@functools.cache
def in_one(name, b):
    return jaxsvm.stream(SOLVERS[name], [(X, Y)], KEY, rows=N, batch_size=b)


# What a stream is


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("b", [1, 8])
def test_a_stream_is_a_run_over_the_rows_in_their_order(name, b):
    """To the bit, but for the rows that do not fill a batch."""
    run = in_one(name, b)
    assert (
        int(run.state.step) == N // b
        and int(run.state.n_pending) == N % b
        and int(run.state.seen) == 0
    )
    fit = jaxsvm.fit(
        SOLVERS[name], DATA, KEY, steps=N // b, sampler=samplers.epochs(b, shuffle=False)
    )
    near(run.model, fit.model)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["pegasos", "sdca"]),
    st.sampled_from([1, 8]),
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
)
def test_where_chunks_end_changes_nothing(name, b, sizes):
    sizes = [20, *sizes]  # the first decides the size of the program
    while sum(sizes) > N:
        sizes.pop()
    sizes += [N - sum(sizes)]
    run = jaxsvm.stream(SOLVERS[name], pieces(sizes), KEY, rows=N, batch_size=b)
    assert same(run.model, in_one(name, b).model) and int(run.state.chunks) <= len(sizes)
    assert same(run.state.solver, in_one(name, b).state.solver)


def test_pending_rows_are_the_last_ones():
    state = in_one("pegasos", 8).state
    held = int(state.n_pending)
    assert held == 4
    assert np.array_equal(state.pending.x[-held:], X[-held:]) and np.array_equal(
        state.pending.index[-held:], np.arange(N)[-held:]
    )


def test_rows_that_wait_for_a_batch_are_as_many_as_the_state_says():
    state = in_one("pegasos", 8).state
    with pytest.raises(
        ValueError,
        match="^state holds 4 rows that wait for a batch, and n_pending is 3: it was changed",
    ):
        jaxsvm.stream(
            SOLVERS["pegasos"], [(X, Y)], batch_size=8, state=state._replace(n_pending=np.int32(3))
        )


def test_rows_that_wait_for_a_batch_keep_their_weights(tmp_path):
    """Chunks of 5 rows, in steps of 8, saved in between, are the steps written out in NumPy."""
    weight = np.random.default_rng(5).uniform(0.2, 3, N).astype(np.float32)
    parts = list(jaxsvm.data.chunks(DATA._replace(weight=weight), rows=5))
    solver = jaxsvm.pegasos(0.1, project=False)
    part = jaxsvm.stream(solver, parts[:9], KEY, batch_size=8)
    models.save(tmp_path / "state.npz", part.state)
    state = models.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(state.pending.weight[-5:], weight[40:45])
    run = jaxsvm.stream(solver, parts[9:], batch_size=8, state=state)
    w = np.zeros(D)
    for t in range(1, N // 8 + 1):
        x, y, c = (a[8 * (t - 1) : 8 * t].astype(np.float64) for a in (X, Y, weight))
        w = (1 - 1 / t) * w + ((y * (x @ w) < 1) * c * y) @ x / 8 / (0.1 * t)
    np.testing.assert_allclose(run.model.w, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(run.state.pending.index[-4:], np.arange(96, 100))


@pytest.mark.long
def test_a_second_pass_over_a_dual_method():
    parts = jaxsvm.data.chunks(DATA, rows=30)
    twice = jaxsvm.stream(SOLVERS["sdca"], [*parts, *parts], KEY, rows=N, batch_size=1)
    fit = jaxsvm.fit(
        SOLVERS["sdca"], DATA, KEY, steps=2 * N, sampler=samplers.epochs(1, shuffle=False)
    )
    near(twice.model, fit.model)


@pytest.mark.long
def test_many_classes_of_a_dual_method():
    """One against the rest begins alike whatever the classes of the rows to come; pairs do not, and
    are refused."""
    y = (np.arange(N) % 3).astype(np.float32)
    data, many = (
        jaxsvm.dataset(X, y, task="multiclass"),
        jaxsvm.one_vs_rest(SOLVERS["sdca"], classes=3),
    )
    parts = jaxsvm.data.chunks(data, rows=30)
    run = jaxsvm.stream(many, [*parts, *parts], KEY, rows=N)
    near(
        run.model,
        jaxsvm.fit(many, data, KEY, steps=2 * N, sampler=samplers.epochs(1, shuffle=False)).model,
    )
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=D, features=8)
    for inner in (SOLVERS["sdca"], jaxsvm.on_features(phi, SOLVERS["sdca"])):
        with pytest.raises(
            ValueError, match="begins with something of each row .*: use fit, or one_vs_rest"
        ):
            jaxsvm.stream(jaxsvm.one_vs_one(inner, classes=3), parts, KEY, rows=N)
    pairs = jaxsvm.one_vs_one(SOLVERS["pegasos"], classes=3)
    fit = jaxsvm.fit(pairs, data, KEY, steps=N, sampler=samplers.epochs(1, shuffle=False))
    near(jaxsvm.stream(pairs, parts, KEY).model, fit.model)


@pytest.mark.long
def test_the_curve_has_a_row_for_each_chunk():
    run = jaxsvm.stream(
        SOLVERS["pegasos"], pieces([40, 40, 3, 17]), KEY, batch_size=8, probe=jaxsvm.error_on(DATA)
    )
    assert run.info.step.tolist() == [5, 10, 10, 12]
    assert np.isnan(run.info.loss[2]) and np.isfinite(np.delete(run.info.loss, 2)).all()
    assert run.info.evals.tolist() == [40, 40, 0, 16]
    assert run.info.probe.shape == (4,) and run.info.probe[-1] == jaxsvm.error_on(DATA)(run.model)
    assert run.status.startswith("stopped after 12 steps; residual ")


def test_one_compilation_whatever_the_chunks():
    before = streams.run_batches._cache_size()
    solver = jaxsvm.pegasos(0.037, bias="feature")
    jaxsvm.stream(solver, pieces([20, 5, 1, 30, 20, 24]), KEY, batch_size=4)
    jaxsvm.stream(jaxsvm.pegasos(0.1, bias="feature"), pieces([20, 80]), KEY, batch_size=4)
    assert streams.run_batches._cache_size() == before + 1


def test_rows_of_weight_0_are_left_out():
    weight = np.ones(N, np.float32)
    weight[::3] = 0
    wild = np.where(weight[:, None] == 0, 1e3, X).astype(np.float32)
    run = jaxsvm.stream(
        SOLVERS["pegasos"],
        [(wild[:50], Y[:50], weight[:50]), (wild[50:], Y[50:], weight[50:])],
        KEY,
        batch_size=4,
    )
    keep = weight > 0
    assert same(
        run.model, jaxsvm.stream(SOLVERS["pegasos"], [(X[keep], Y[keep])], KEY, batch_size=4).model
    )


def test_a_chunk_without_a_row_of_positive_weight_is_read_once():
    """It is counted, so that a stream that is resumed reads none again."""
    parts = pieces([20, 10, 30, 40])
    parts[1] = (*parts[1], np.zeros(10, np.float32))
    first = jaxsvm.stream(SOLVERS["sdca"], parts[:3], KEY, batch_size=4, rows=N)
    read = int(first.state.chunks)
    assert read == 3
    resumed = jaxsvm.stream(SOLVERS["sdca"], parts[read:], batch_size=4, state=first.state, rows=N)
    whole = jaxsvm.stream(SOLVERS["sdca"], parts, KEY, batch_size=4, rows=N)
    assert same(resumed.state, whole.state) and int(whole.state.chunks) == 4


@pytest.mark.long
@pytest.mark.parametrize("most", [2**31, 1000])
def test_features_are_lifted_by_the_chunk_or_by_the_step(monkeypatch, most):
    monkeypatch.setattr("jaxsvm.loops.fitting.MEMORY", most)
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=D, features=32 + 2 * (most == 1000))
    solver = jaxsvm.on_features(phi, jaxsvm.pegasos(0.1))
    run = jaxsvm.stream(solver, jaxsvm.data.chunks(DATA, rows=30), KEY, batch_size=4)
    fit = jaxsvm.fit(solver, DATA, KEY, steps=N // 4, sampler=samplers.epochs(4, shuffle=False))
    # products of other shapes round otherwise
    np.testing.assert_allclose(run.model(DATA.x), fit.model(DATA.x), atol=1e-5)


@pytest.mark.long
def test_sparse_chunks():
    data = jaxsvm.dataset(
        scipy.sparse.random(N, 50, 0.1, random_state=0, format="csr", dtype=np.float32), Y
    )
    solver = SOLVERS["averaged"]
    run = jaxsvm.stream(solver, jaxsvm.data.chunks(data, rows=30), KEY, batch_size=4)
    near(
        run.model,
        jaxsvm.fit(
            solver, data, KEY, steps=N // 4, sampler=samplers.epochs(4, shuffle=False)
        ).model,
    )


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint8])
def test_other_dtypes_become_float32(dtype):
    x = (10 * np.abs(X)).astype(dtype)
    run = jaxsvm.stream(SOLVERS["pegasos"], [(x, Y.astype(int))], KEY)
    assert run.model.w.dtype == jnp.float32
    assert same(
        run.model, jaxsvm.stream(SOLVERS["pegasos"], [(x.astype(np.float32), Y)], KEY).model
    )


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
    return types.SparseRows(
        index, np.take_along_axis(x, index, 1), np.full(len(x), D, np.int32), D
    ), y


FILLED = {
    "targets": lambda x, y: (x, y),
    "weights": weighted,
    "sparse": sparse_rows,
    "batch": lambda x, y: jaxsvm.Batch(x, y, np.arange(len(y), dtype=np.int32), weighted(x, y)[2]),
    "reversed": lambda x, y: [x[:, ::-1], y],
}


@pytest.mark.long(but=4)
@pytest.mark.parametrize(("solver", "b", "way"), [
    *((solver, b, "weights") for solver in ("pegasos", "asset") for b in (1, 7, 50)),
    *(("pegasos", 7, way) for way in FILLED if way != "weights"),
    ("asset", 7, "sparse"),
])  # fmt: skip
def test_arrays_that_are_filled_again_are_read_before(solver, b, way):
    """Rows, targets and weights are those of the chunk when it was given, to the bit."""
    solver, parts = getattr(jaxsvm, solver)(0.1), [FILLED[way](x, y) for x, y in pieces([20] * 5)]
    run, again = (
        jaxsvm.stream(solver, chunks, KEY, batch_size=b) for chunks in (parts, filled_again(parts))
    )
    assert same((run.model, run.state), (again.model, again.state))


def test_jax_rows_over_a_buffer_are_read_before():
    """`device_put` may share the memory of an array of NumPy."""
    memory = np.empty(20 * D * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # where JAX shares it
    buffer = memory[start : start + 20 * D * 4].view(np.float32).reshape(20, D)

    def chunks():
        for x, y in pieces([20] * 5):
            buffer[:] = x
            yield jax.device_put(buffer), y

    runs = [
        jaxsvm.stream(jaxsvm.pegasos(0.1), parts, KEY) for parts in (chunks(), pieces([20] * 5))
    ]
    assert same(runs[0].model, runs[1].model)


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

    assert same(
        jaxsvm.stream(SOLVERS["pegasos"], chunks(), KEY, batch_size=1).model,
        in_one("pegasos", 1).model,
    )
    assert len(threads) == 1 and threading.get_ident() not in threads
    assert "sqlite3, within the generator" in " ".join(jaxsvm.stream.__doc__.split())


# Going on


CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import time, numpy as np, jax, jaxsvm
x, y = (np.load(name, mmap_mode="r") for name in sys.argv[1:3])
path, slow = sys.argv[3], float(sys.argv[4])
parts = jaxsvm.data.chunks(x, y, rows=50)
def slowly():
    for part in parts:
        time.sleep(slow)
        yield part
print("ready", flush=True)
solver, options = jaxsvm.averaged(jaxsvm.pegasos(0.01)), dict(batch_size=8, save=path)
try:
    run = jaxsvm.stream(solver, slowly(), jax.random.key(0), **options, **eval(sys.argv[5]))
except KeyboardInterrupt as error:
    run = error.run
    print("raised", end=" ")
print(run.reason, int(run.state.chunks), flush=True)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    random = np.random.default_rng(3)
    x = random.normal(size=(2000, 6)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", np.sign(x[:, 0] + 0.5).astype(np.int8))
    return folder


def start(files, path, slow=0.05, **options):
    child = [
        sys.executable,
        "-c",
        textwrap.dedent(CHILD),
        files / "x.npy",
        files / "y.npy",
        path,
        str(slow),
        repr(options),
    ]
    child = subprocess.Popen(list(map(str, child)), stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == "ready"
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return child


@pytest.mark.long
def test_killed_and_gone_on_with_to_the_bit(files, tmp_path):
    parts = jaxsvm.data.chunks(
        np.load(files / "x.npy", mmap_mode="r"), np.load(files / "y.npy", mmap_mode="r"), rows=50
    )
    solver = jaxsvm.averaged(jaxsvm.pegasos(0.01))
    whole = jaxsvm.stream(solver, parts, KEY, batch_size=8)
    for wait in (0.02, 0.31):
        path = tmp_path / f"run{wait}.npz"
        child = start(files, path)
        time.sleep(wait)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        state = models.load(path)
        assert 0 < int(state.chunks) < len(parts) and int(state.seen) == 50 * int(state.chunks)
        for _ in range(2):  # the state is still whole
            rest = jaxsvm.stream(solver, parts[int(state.chunks) :], batch_size=8, state=state)
            assert same(rest.model, whole.model) and same(rest.state, whole.state)


@pytest.fixture
def passing_folder(tmp_path, monkeypatch):
    """A folder that is removed before the third save and made again before the save of the number
    that is set."""
    folder, back, write, calls = tmp_path / "runs", [None], models.save, []
    folder.mkdir()

    def save(path, tree):
        calls.append(path)
        if len(calls) == 3:
            shutil.rmtree(folder)
        if len(calls) == back[0]:
            folder.mkdir()
        write(path, tree)

    monkeypatch.setattr(models, "save", save)
    return folder, back, calls


def test_a_stream_whose_folder_is_removed_is_not_lost(passing_folder):
    folder, _, calls = passing_folder
    whole = jaxsvm.stream(SOLVERS["averaged"], pieces([20] * 5), KEY)
    with pytest.warns(
        UserWarning, match="could not be saved to .*folder that does not exist.*the run goes on"
    ) as warned:
        with pytest.raises(jaxsvm.loops.SaveError, match="the run stands at step 100") as caught:
            jaxsvm.stream(SOLVERS["averaged"], pieces([20] * 5), KEY, save=folder / "run.npz")
    assert len(warned) == 1 and warned[0].filename == __file__ and len(calls) == 5
    assert same(caught.value.run[:3], whole[:3]) and int(caught.value.run.state.chunks) == 5


def test_a_stream_whose_folder_comes_back_saves_its_last_state(passing_folder):
    folder, back, _ = passing_folder
    back[0] = 5
    with pytest.warns(UserWarning, match="could not be saved"):
        run = jaxsvm.stream(SOLVERS["averaged"], pieces([20] * 5), KEY, save=folder / "run.npz")
    assert same(models.load(folder / "run.npz"), run.state) and int(run.state.chunks) == 5


def test_a_file_that_another_stream_writes_is_left_to_it(tmp_path):
    path = tmp_path / "run.npz"

    def chunks():
        yield from pieces([20] * 5)[:4]
        end = time.monotonic() + 20  # until all four are saved: no save is under way
        while not path.exists() or int(models.load(path).chunks) < 4:
            assert time.monotonic() < end
        time.sleep(0.2)  # the run notes when it wrote
        path.write_bytes(b"of another run")
        yield from pieces([20] * 5)[4:]

    with pytest.warns(UserWarning, match="could not be saved"):
        with pytest.raises(
            jaxsvm.loops.SaveError, match="the run stands at step 100, .*another run has written"
        ) as caught:
            jaxsvm.stream(SOLVERS["averaged"], chunks(), KEY, save=path)
    assert path.read_bytes() == b"of another run" and int(caught.value.run.state.chunks) == 5


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", "return"])
def test_ctrl_c_keeps_what_was_reached(files, tmp_path, how):
    child = start(
        files, tmp_path / "run.npz", slow=0.2, **({} if how == "raise" else {"on_interrupt": how})
    )
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    state = models.load(tmp_path / "run.npz")
    *words, chunks = out.split()
    assert child.returncode == 0 and 0 < int(chunks) == int(state.chunks) < 40
    assert words == (["raised", "interrupted"] if how == "raise" else ["interrupted"])


def interrupting(chunks, number):
    """The chunks, with Ctrl-C before that of this number."""
    for i, chunk in enumerate(chunks):
        if i == number:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        yield chunk


def test_ctrl_c_before_the_first_chunk():
    """Without a state there is no run; with one it is returned as it stands."""
    with pytest.raises(KeyboardInterrupt, match="interrupted before its first chunk"):
        jaxsvm.stream(SOLVERS["pegasos"], interrupting(pieces([50, 50]), 0), KEY)
    state = in_one("pegasos", 8).state
    run = jaxsvm.stream(
        SOLVERS["pegasos"], interrupting(pieces([50, 50]), 0), state=state, on_interrupt="return"
    )
    assert run.reason == "interrupted" and int(run.state.step) == int(state.step)
    with pytest.raises(KeyboardInterrupt) as caught:
        jaxsvm.stream(SOLVERS["pegasos"], interrupting(pieces([50, 50]), 0), state=state)
    assert same(caught.value.run.state, state)


def test_an_interrupt_that_the_chunks_raise_is_no_end():
    """It is told by an exception that holds the run, or by the reason."""

    def broken():
        yield from pieces([50, 30])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        jaxsvm.stream(SOLVERS["pegasos"], broken(), KEY)
    assert int(caught.value.run.state.chunks) == 2 and caught.value.run.reason == "interrupted"
    run = jaxsvm.stream(SOLVERS["pegasos"], broken(), KEY, on_interrupt="return")
    assert run.reason == "interrupted" and same(run.state, caught.value.run.state)


def test_ctrl_c_after_the_last_chunk_is_not_lost(monkeypatch):
    conclude = streams.conclude

    def late(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return conclude(*arguments)

    monkeypatch.setattr(streams, "conclude", late)
    with pytest.raises(KeyboardInterrupt) as caught:
        jaxsvm.stream(SOLVERS["pegasos"], pieces([50, 50]), KEY)
    assert int(caught.value.run.state.chunks) == 2
    run = jaxsvm.stream(SOLVERS["pegasos"], pieces([50, 50]), KEY, on_interrupt="return")
    assert run.reason == "steps" and int(run.state.step) == 100


@pytest.mark.long
@pytest.mark.parametrize("b", [3, 50, 77, 250])
def test_batches_of_any_size_are_those_of_fit(b):
    run = jaxsvm.stream(SOLVERS["pegasos"], pieces([40, 7, 53]), KEY, batch_size=b)
    assert int(run.state.step) == N // b and int(run.state.n_pending) == N % b
    if N // b:
        fit = jaxsvm.fit(
            SOLVERS["pegasos"], DATA, KEY, steps=N // b, sampler=samplers.epochs(b, shuffle=False)
        )
        near(run.model, fit.model)


def test_a_stream_in_another_thread():
    made = []
    thread = threading.Thread(
        target=lambda: made.append(jaxsvm.stream(SOLVERS["pegasos"], [(X, Y)], KEY))
    )
    thread.start()
    thread.join(60)
    assert same(made[0].model, in_one("pegasos", 1).model)


def test_a_finished_stream_is_returned_as_it_stands():
    run = in_one("averaged", 8)
    again = jaxsvm.stream(SOLVERS["averaged"], [], state=run.state)
    assert (
        same(again.model, run.model)
        and again.status == "no step was made; the run stands at step 12"
    )
    with pytest.raises(ValueError, match="state comes from another solver"):
        jaxsvm.stream(SOLVERS["pegasos"], [], state=run.state)


def test_rows_matter_to_solvers_with_a_state_for_each_row_only():
    runs = [
        jaxsvm.stream(jaxsvm.asset(0.1), pieces([50, 50]), KEY, rows=rows)
        for rows in (None, 10_000)
    ]
    assert same(runs[0].model, runs[1].model)


def test_bounds_of_rows_are_not_guessed():
    parts = [(X[:50], Y[:50]), (X[50:], Y[50:], np.full(50, 2.0))]
    for chunks in (parts, parts[::-1], [(X, Y, np.arange(N) % 2)]):
        with pytest.raises(
            ValueError, match="has a bound for each row, which a stream cannot know beforehand"
        ):
            jaxsvm.stream(SOLVERS["sdca"], chunks, KEY, rows=N, batch_size=1)
    with pytest.raises(ValueError, match="has a state for each row"):
        jaxsvm.stream(SOLVERS["sdca"], [(X, Y)], state=in_one("sdca", 1).state)


@pytest.mark.long
def test_chunks_prepared_beforehand_are_not_lifted_again():
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=D, features=D)
    solver = jaxsvm.on_features(phi, jaxsvm.pegasos(0.1))
    runs = [
        jaxsvm.stream(solver, jaxsvm.data.chunks(data, rows=30), KEY)
        for data in (DATA, solver.prepare(DATA))
    ]
    np.testing.assert_allclose(runs[0].model(DATA.x), runs[1].model(DATA.x), atol=1e-5)
    with pytest.raises(ValueError, match="chunks must have the same columns"):
        jaxsvm.stream(solver, [DATA, solver.prepare(DATA)], KEY)


def test_the_batch_of_a_state_goes_on():
    run = jaxsvm.stream(SOLVERS["pegasos"], [(X, Y)], state=in_one("pegasos", 8).state)
    assert int(run.state.step) == 2 * N // 8


# Chunks


def test_chunks_are_a_sequence():
    parts = jaxsvm.data.chunks(X, Y, rows=30)
    assert len(parts) == 4 and [len(p.y) for p in parts] == [30, 30, 30, 10]
    assert np.array_equal(np.concatenate([p.x for p in parts]), X) and np.array_equal(
        parts[-1].x, X[90:]
    )
    assert len(parts[2:]) == 2 and np.array_equal(parts[2:][0].y, Y[60:90]) and len(parts[4:]) == 0
    with pytest.raises(IndexError):
        parts[4]
    with pytest.raises(ValueError, match="cut at the front only"):
        parts[:2]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_chunks_of_a_memory_map_are_read_from_the_file(tmp_path, dtype):
    x = (X * 9).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    parts = jaxsvm.data.chunks(mapped, Y, rows=30)
    assert all(np.array_equal(part.x, x[30 * i : 30 * i + 30]) for i, part in enumerate(parts))
    assert not isinstance(parts[0].x, np.memmap)
    # part of a map, whose offset lies
    assert np.array_equal(jaxsvm.data.chunks(mapped[10:], Y[10:], rows=30)[0].x, x[10:40])
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[0] = 9
    # what was changed in memory counts
    assert (jaxsvm.data.chunks(changed, Y, rows=30)[0].x[0] == 9).all()
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(500)
    with pytest.raises(ValueError, match="has become shorter than the 100 rows that it had"):
        parts[3]


# What is refused


def bad(chunks, message, error=ValueError, **options):
    return pytest.param(chunks, error, f"^{message}", options, id=message[:40])


NO_CHUNK = "there is no chunk with rows"
WORDS = "x of chunk 0 must be an array of real numbers, got dtype <U32"
LARGE = "x of chunk 0 holds numbers up to .* squares sum up to what is too large for float32"
RAGGED = "x of chunk 0 must be an array of numbers; its rows differ"
NAN = "x of chunk 1 holds a NaN, first in row"
NUMBERS = "class numbers must be 0 .* number them with np.unique"
NO_BATCH = "batch_size must be a whole number of at least 1, got 0"
NO_FOLDER = ".*is in a folder that does not exist"


@pytest.mark.parametrize(
    ("chunks", "error", "message", "options"),
    [
        bad([(X, Y)], "stream needs a key", key=None),
        bad([], NO_CHUNK),
        bad([(X[:0], Y[:0])], NO_CHUNK),
        bad([X], "chunk 0 is a ndarray: give batches, or tuples", TypeError),
        bad([(X, Y[:3])], "chunk 0 has 100 rows, targets of shape"),
        bad([(X[:, 0], Y)], "x of chunk 0 must be a matrix"),
        bad([(X.astype(str), Y)], WORDS),
        bad([(1e30 * X, Y)], LARGE),
        bad([(np.ma.masked_less(X, 0), Y)], "x of chunk 0 has masked entries"),
        bad(
            [([[1], [1, 2]], [1, -1])], "x of chunk 0 must be an array of numbers; its rows differ"
        ),
        bad(3, "chunks must be a sequence or an iterator of chunks, got int", TypeError),
        bad([(X, Y), (X[:, :2], Y)], "chunks must have the same columns"),
        bad([(X, Y), (np.where(X > 2, np.nan, X), Y)], NAN),
        bad([(X, np.where(Y < 0, 0, 1))], r"labels must be -1 and \+1, chunk 0 holds 0; "),
        bad([(X, Y + 0.5)], NUMBERS, task="multiclass"),
        bad([(X, Y, -np.ones(N))], "chunk 0 holds a weight below 0"),
        bad([(X, Y)], "task must be one of", task="ranking"),
        bad([(X, Y)], NO_BATCH, batch_size=0),
        bad([(X, Y)], NO_FOLDER, FileNotFoundError, save="/no/such/folder/run.npz"),
        bad([(X, Y)], "state must be that of an earlier stream, got int", TypeError, state=3),
    ],
)
def test_bad_input(chunks, error, message, options):
    with pytest.raises(error, match=message):
        jaxsvm.stream(SOLVERS["pegasos"], chunks, **(dict(key=KEY) | options))


def test_solvers_that_cannot_be_streamed():
    with pytest.raises(ValueError, match="reads all rows at every step"):
        jaxsvm.stream(jaxsvm.sdca(1.0, kernels.rbf(1.0)), [(X, Y)], KEY)
    with pytest.raises(
        ValueError, match="has a state for each row: say how many rows there are in all, rows="
    ):
        jaxsvm.stream(jaxsvm.sdca(1.0), [(X, Y)], KEY)
    with pytest.raises(ValueError, match="^rows=50, but the first chunk alone has 100"):
        jaxsvm.stream(jaxsvm.sdca(1.0), [(X, Y)], KEY, rows=50)
    with pytest.raises(ValueError, match="state comes from batches of other rows"):
        jaxsvm.stream(SOLVERS["pegasos"], [(X, Y)], state=in_one("pegasos", 1).state, batch_size=8)


@pytest.mark.long
def test_targets_are_those_of_the_solver():
    real = jaxsvm.asset(0.1, loss=jaxsvm.losses.squared)
    assert jaxsvm.stream(real, [(X, Y + 0.5)], KEY).finite
    three = (np.arange(N) % 3).astype(np.float32)
    assert jaxsvm.stream(
        jaxsvm.one_vs_rest(SOLVERS["pegasos"], classes=3), [(X, three)], KEY
    ).finite
    with pytest.raises(ValueError, match="takes class numbers 0 .. 1, the data hold 0, 1, 2"):
        jaxsvm.stream(jaxsvm.one_vs_rest(SOLVERS["pegasos"], classes=2), [(X, three)], KEY)
    with pytest.raises(ValueError, match=r"takes labels -1 and \+1, the data hold 0, 1, 2"):
        jaxsvm.stream(SOLVERS["pegasos"], [(X, three)], KEY, task="multiclass")


def test_chunks_refuse():
    for arguments, rows, message in (
        ((X, Y), 0, "rows must be a whole number"),
        ((X, Y[:2]), 5, ("y must hold one number for each of the 100 rows")),
        ((X[0], Y), 5, "x must be a matrix"),
        ((scipy.sparse.csr_matrix(X), Y), 5, ("x is a SciPy matrix: make it a Batch")),
        (("x.npy", Y), 5, "x is a path: open it first"),
        ((DATA, Y), 5, "a Batch has its own targets"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxsvm.data.chunks(*arguments, rows=rows)


def test_a_bar_is_drawn(capsys):
    jaxsvm.stream(SOLVERS["pegasos"], jaxsvm.data.chunks(DATA, rows=30), KEY, progress=True)
    assert "4/4 chunks, loss" in capsys.readouterr().err
    jaxsvm.stream(SOLVERS["pegasos"], iter(pieces([50, 50])), KEY, progress=True)
    assert "2 chunks, loss" in capsys.readouterr().err
