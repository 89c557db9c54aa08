"""Streams that are killed, interrupted or lose their folder go on to the bit; what is refused."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse
from refusing import each
from streamed import (
    AVERAGED,
    DATA,
    FIFTHS,
    HALVES,
    KEY,
    PEGASOS,
    PHI,
    SDCA,
    THREE,
    N,
    X,
    Y,
    in_one,
    pieces,
    same,
    stream,
    streams,
)

import jaxsvm
from jaxsvm import SaveError, kernels, models
from jaxsvm.data import chunks as cut

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
    folder, random = tmp_path_factory.mktemp("stream"), np.random.default_rng(3)
    x = random.normal(size=(2000, 6)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", np.sign(x[:, 0] + 0.5).astype(np.int8))
    return folder / "x.npy", folder / "y.npy"


def start(files, path, slow=0.05, **options):
    """A process that streams, from its first save on."""
    command = [sys.executable, "-c", CHILD, *files, path, slow, options]
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == "ready"
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return child


@pytest.mark.long
def test_killed_and_gone_on_with_to_the_bit(files, tmp_path):
    parts = cut(*(np.load(file, mmap_mode="r") for file in files), rows=50)
    solver = jaxsvm.averaged(jaxsvm.pegasos(0.01))
    whole = stream(parts, solver, batch_size=8)
    for wait in (0.02, 0.31):
        path = tmp_path / f"run{wait}.npz"
        child = start(files, path)
        time.sleep(wait)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        state = models.load(path)
        assert 0 < int(state.chunks) < len(parts) and int(state.seen) == 50 * int(state.chunks)
        for _ in range(2):  # the state is still whole
            rest = stream(parts[int(state.chunks) :], solver, batch_size=8, state=state)
            assert same(rest.model, whole.model) and same(rest.state, whole.state)


@pytest.mark.parametrize("back", [None, 5])
def test_a_stream_whose_folder_is_removed_is_not_lost(tmp_path, monkeypatch, back):
    """Before the third save; made again before the last one, which then holds the state."""
    folder, write, calls = tmp_path / "runs", models.save, []
    folder.mkdir()

    def save(path, tree):
        calls.append(path)
        if len(calls) == 3:
            shutil.rmtree(folder)
        if len(calls) == back:
            folder.mkdir()
        write(path, tree)

    monkeypatch.setattr(models, "save", save)
    error = pytest.raises(SaveError, match="the run stands at step 100")
    lost = contextlib.nullcontext() if back else error
    words = "could not be saved to .*folder that does not exist.*the run goes on"
    with pytest.warns(UserWarning, match=words) as warned, lost as caught:
        run = jaxsvm.stream(AVERAGED, FIFTHS, KEY, save=folder / "run.npz")
    assert len(warned) == 1 and warned[0].filename == __file__ and len(calls) == 5
    run = run if back else caught.value.run
    assert same(run[:3], stream(FIFTHS, AVERAGED)[:3]) and int(run.state.chunks) == 5
    assert not back or same(models.load(folder / "run.npz"), run.state)


def test_a_stream_that_goes_on_with_less_than_a_batch_is_finite():
    first = stream(pieces(10, 10), batch_size=10)
    run = stream([(X[20:23], Y[20:23])], state=first.state)
    assert run.finite and same(run.model, first.model)


def test_a_file_that_another_stream_writes_is_left_to_it(tmp_path):
    path = tmp_path / "run.npz"

    def chunks():
        yield from FIFTHS[:4]
        end = time.monotonic() + 20  # until all four are saved: no save is under way
        while not path.exists() or int(models.load(path).chunks) < 4:
            assert time.monotonic() < end
        time.sleep(0.2)  # the run notes when it wrote
        path.write_bytes(b"of another run")
        yield from FIFTHS[4:]

    words = "the run stands at step 100, .*another run has written"
    with pytest.warns(UserWarning, match="could not be saved"):
        with pytest.raises(SaveError, match=words) as caught:
            stream(chunks(), AVERAGED, save=path)
    assert path.read_bytes() == b"of another run" and int(caught.value.run.state.chunks) == 5


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"on_interrupt": "return"}])
def test_ctrl_c_keeps_what_was_reached(files, tmp_path, options):
    child = start(files, tmp_path / "run.npz", slow=0.2, **options)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    state = models.load(tmp_path / "run.npz")
    *words, chunks = out.split()
    assert child.returncode == 0 and 0 < int(chunks) == int(state.chunks) < 40
    assert words == (["interrupted"] if options else ["raised", "interrupted"])


def interrupted(chunks, raised=None):
    """The chunks, and then Ctrl-C, or an exception."""
    yield from chunks
    if raised:
        raise raised
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    yield HALVES[0]


def test_ctrl_c_before_the_first_chunk():
    """Without a state there is no run; with one it is returned as it stands."""
    with pytest.raises(KeyboardInterrupt, match="interrupted before its first chunk"):
        stream(interrupted([]))
    state = in_one(PEGASOS, 8).state
    run = stream(interrupted([]), state=state, on_interrupt="return")
    assert run.reason == "interrupted" and int(run.state.step) == int(state.step)
    with pytest.raises(KeyboardInterrupt) as caught:
        stream(interrupted([]), state=state)
    assert same(caught.value.run.state, state)


def test_an_interrupt_that_the_chunks_raise_is_no_end():
    """It is told by an exception that holds the run, or by the reason."""
    with pytest.raises(KeyboardInterrupt) as caught:
        stream(interrupted(HALVES, KeyboardInterrupt()))
    assert int(caught.value.run.state.chunks) == 2 and caught.value.run.reason == "interrupted"
    run = stream(interrupted(HALVES, KeyboardInterrupt()), on_interrupt="return")
    assert run.reason == "interrupted" and same(run.state, caught.value.run.state)


def test_ctrl_c_after_the_last_chunk_is_not_lost(monkeypatch):
    conclude = streams.conclude
    late = lambda *arguments: os.kill(os.getpid(), signal.SIGINT) or conclude(*arguments)
    monkeypatch.setattr(streams, "conclude", late)
    with pytest.raises(KeyboardInterrupt) as caught:
        stream(HALVES)
    assert int(caught.value.run.state.chunks) == 2
    run = stream(HALVES, on_interrupt="return")
    assert run.reason == "steps" and int(run.state.step) == 100


# What is refused

NAN = np.where(X > 2, np.nan, X)
SECOND = [(X[:50], Y[:50]), (X[50:], Y[50:], np.full(50, 2.0))]
HELD = "state holds 4 rows that wait for a batch, and n_pending is 3: it was changed"
held = lambda rows: in_one(PEGASOS, 8).state._replace(n_pending=np.int32(rows))
bounded = lambda chunks: stream(chunks, SDCA, rows=N, batch_size=1)
paired = lambda inner: stream([THREE], jaxsvm.one_vs_one(inner, classes=3), rows=N)
TWO = jaxsvm.one_vs_rest(PEGASOS, classes=2)
one = lambda *chunk, **options: lambda: stream([chunk], **options)
REFUSED = [  # calls, what the sentence says
    (one(X, Y, key=None), "stream needs a key"),
    (lambda: stream([]), "there is no chunk with rows"),
    (one(X[:0], Y[:0]), "there is no chunk with rows"),
    (lambda: stream([X]), "chunk 0 is a ndarray: give batches, or tuples"),
    (one(X, Y[:3]), "chunk 0 has 100 rows, targets of shape"),
    (one(X[:, 0], Y), "x of chunk 0 must be a matrix"),
    (one(X.astype(str), Y), "x of chunk 0 must be an array of real numbers, got dtype <U32"),
    (one(1e30 * X, Y), "x of chunk 0 holds numbers up to .* squares sum up to what is too large"),
    (one(np.ma.masked_less(X, 0), Y), "x of chunk 0 has masked entries"),
    (one([[1], [1, 2]], [1, -1]), "x of chunk 0 must be an array of numbers; its rows differ"),
    (lambda: stream(3), "chunks must be a sequence or an iterator of chunks, got int"),
    (lambda: stream([(X, Y), (X[:, :2], Y)]), "chunks must have the same columns"),
    (lambda: stream([(X, Y), (NAN, Y)]), "x of chunk 1 holds a NaN, first in row"),
    (one(X, np.where(Y < 0, 0, 1)), r"labels must be -1 and \+1, chunk 0 holds 0; "),
    (one(X, Y + 0.5, task="multiclass"), "class numbers must be 0 .* number them with np.unique"),
    (one(X, Y, -np.ones(N)), "chunk 0 holds a weight below 0"),
    (one(X, Y, task="ranking"), "task must be one of"),
    (one(X, Y, batch_size=0), "batch_size must be a whole number of at least 1, got 0"),
    (one(X, Y, save="/no/such/folder/run.npz"), ".*is in a folder that does not exist"),
    (one(X, Y, state=3), "state must be that of an earlier stream, got int"),
    (lambda: stream([], state=in_one(AVERAGED, 8).state), "state comes from another solver"),
    (lambda: stream(batch_size=8, state=in_one(PEGASOS, 1).state), "state comes from batches of"),
    (lambda: stream(batch_size=8, state=held(3)), HELD),
    (one(X, Y, solver=jaxsvm.sdca(1.0, kernels.rbf(1.0))), ".*reads all rows at every step"),
    (one(X, Y, solver=SDCA), ".*state for each row: say how many rows there are in all, rows="),
    (one(X, Y, solver=SDCA, rows=50), "rows=50, but the first chunk alone has 100"),
    (lambda: stream(solver=SDCA, state=in_one(SDCA, 1).state), ".*has a state for each row"),
    *each(".*has a bound for each", bounded, SECOND, SECOND[::-1], [(X, Y, np.arange(N) % 2)]),
    *each(".*begins with something of each row", paired, SDCA, jaxsvm.on_features(PHI, SDCA)),
    (lambda: stream([THREE], TWO), ".*takes class numbers 0 .. 1, the data hold 0, 1, 2"),
    (one(X, THREE.y, task="multiclass"), r".*takes labels -1 and \+1, the data hold 0, 1, 2"),
    (lambda: cut(X, Y, rows=0), "rows must be a whole number"),
    (lambda: cut(X, Y[:2], rows=5), "y must hold one number for each of the 100 rows"),
    (lambda: cut(X[0], Y, rows=5), "x must be a matrix"),
    (lambda: cut(scipy.sparse.csr_matrix(X), Y, rows=5), "x is a SciPy matrix: make it a Batch"),
    (lambda: cut("x.npy", Y, rows=5), "x is a path: open it first"),
    (lambda: cut(DATA, Y, rows=5), "a Batch has its own targets"),
    (lambda: cut(DATA, rows=30)[4], "chunk 4 of 4"),
    (lambda: cut(DATA, rows=30)[:2], ".*cut at the front only"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_streams_refuse(call, words):
    with pytest.raises((ValueError, TypeError, OSError, IndexError), match=f"^{words}"):
        call()


@pytest.mark.long
def test_targets_are_those_of_the_solver():
    assert stream([(X, Y + 0.5)], jaxsvm.asset(0.1, loss=jaxsvm.losses.squared)).finite


def test_a_bar_is_drawn(capsys):
    for chunks, said in ((cut(DATA, rows=30), "4/4 chunks"), (iter(HALVES), "2 chunks")):
        stream(chunks, progress=True)
        assert f"{said}, loss" in capsys.readouterr().err
