"""Runs outside of programs: their time, files, Ctrl-C and bars; no run is lost."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from counted import DATA, FITTING, KEY, WHOLE, count, interrupt, interrupt_at
from oracles import assert_same_bits as same
from plain import plain

import jaxsvm
from jaxsvm import fit, models
from jaxsvm.loops import saving
from jaxsvm.types import Fit, RunState


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


def test_seconds(path):
    run = count(1000, seconds=0)
    assert int(run.state.step) == 4 and run.status.startswith("out of time: stopped after 4 steps")
    assert int(count(8, seconds=1e6).state.step) == 8
    models.save(path, run)
    assert models.load(path).reason == "seconds"


def test_save_writes_after_every_piece(path, monkeypatch):
    found, write = [], models.save
    spy = lambda *args: (write(*args), found.append(int(models.load(path).step)))
    monkeypatch.setattr(models, "save", spy)
    run = count(10, save=path)
    assert found == [4, 8, 10] and os.listdir(path.parent) == ["run.npz"]
    same(models.load(path), run.state)
    assert isinstance(models.load(path), RunState)


class Unknown(NamedTuple):
    """A state that nobody registered."""

    t: int


def test_what_cannot_be_saved_is_refused_before_the_first_step(path, monkeypatch):
    os.mkfifo(path)
    init, broken = lambda key, data: Unknown(jnp.zeros(())), lambda state, batch=None: 1 / 0
    unknown = plain(init, broken, broken)
    monkeypatch.setattr(FITTING, "run_chunk", lambda *_, **how: pytest.fail("a piece was made"))
    for solver, name, error, words in (
        (unknown, "a.npz", ValueError, "cannot save Unknown.*jaxsvm.register"),
        (WHOLE, "run.npz", OSError, "run.npz is a pipe, a device or a socket"),
        (WHOLE, "", IsADirectoryError, "is a folder, expected the name of a file"),
        (WHOLE, "no/run.npz", FileNotFoundError, "is in a folder that does not exist: make it"),
    ):
        with pytest.raises(error, match=words):
            count(8, solver, save=path.parent / name)


def full_disk(monkeypatch, times):
    """Renaming into place fails at the saves of these numbers, counted from 0; all saves that were
    tried are counted."""
    replace, tried = os.replace, []

    def patched(*args):
        tried.append(None)
        if len(tried) - 1 in times:
            raise OSError(28, "No space left on device")
        return replace(*args)

    monkeypatch.setattr(os, "replace", patched)
    return tried


def test_a_run_whose_last_state_cannot_be_saved_is_not_lost(path, monkeypatch):
    whole, tried = count(10), full_disk(monkeypatch, range(1, 99))
    said = f"could not be saved to {path} ([Errno 28] No space left"
    words = "the run stands at step 10, .*No space left on device.*error.run"
    with pytest.warns(UserWarning, match=re.escape(said)) as warned:
        with pytest.raises(jaxsvm.SaveError, match=words) as caught:
            fit(WHOLE, DATA, KEY, steps=10, every=4, save=path)
    assert len(tried) == 3 and len(warned) == 1 and warned[0].filename == __file__
    assert isinstance(caught.value, OSError) and isinstance(caught.value.run, Fit)
    assert caught.value.__cause__.errno == 28
    same(tuple(caught.value.run), tuple(whole))
    assert int(models.load(path).step) == 4 and os.listdir(path.parent) == ["run.npz"]
    with warnings.catch_warnings(), pytest.raises(jaxsvm.SaveError) as caught:
        warnings.simplefilter("error")
        count(10, save=path)
    same(tuple(caught.value.run), tuple(whole))
    error = pickle.loads(pickle.dumps(jaxsvm.SaveError("no space", {"w": 1})))
    assert str(error) == "no space" and error.run == {"w": 1}


def test_a_state_that_could_not_be_saved_is_tried_again(path, monkeypatch):
    tried = full_disk(monkeypatch, (0, 1))
    with pytest.warns(UserWarning, match="could not be saved") as warned:
        run = count(12, save=path)
    assert len(tried) == 3 and len(warned) == 1
    same(models.load(path), run.state)


@pytest.mark.parametrize(
    ("how", "error"), [("return", jaxsvm.SaveError), ("raise", KeyboardInterrupt)]
)
def test_ctrl_c_where_nothing_could_be_saved(path, monkeypatch, how, error):
    full_disk(monkeypatch, range(99))
    interrupt(monkeypatch, 3)
    with pytest.warns(UserWarning, match="could not be saved"), pytest.raises(error) as caught:
        count(save=path, on_interrupt=how)
    assert int(caught.value.run.state.step) == 8
    assert isinstance(caught.value.__cause__, OSError), "what kept it from being saved is said"


@pytest.mark.long
@pytest.mark.parametrize("before", [None, b"of an earlier run"])
def test_a_file_that_another_run_writes_is_left_to_it(path, before):
    """The run whose state would replace that of another one ends with a sentence, and is not
    lost."""
    if before:
        path.write_bytes(before)
    write = lambda: path.exists() and path.write_bytes(b"of another run")
    probe = lambda model: jax.debug.callback(write) or model.b
    with pytest.warns(UserWarning, match="could not be saved .*another run has written") as warned:
        words = "the run stands at step 12, .*another run has written"
        with pytest.raises(jaxsvm.SaveError, match=words) as caught:
            count(12, save=path, probe=probe)
    assert path.read_bytes() == b"of another run" and len(warned) == 1
    same(caught.value.run.model, count(12).model)
    path.unlink()  # a file that is gone is written anew
    run = count(12, save=path)
    same(models.load(path), run.state)


RACING = """
import sys, jax, numpy as np, jaxsvm
x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
data = jaxsvm.dataset(x, np.sign(x[:, 0]))
print("ready", flush=True), sys.stdin.readline()
try:
    key = jax.random.key(int(sys.argv[2]))
    run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, key, steps=300, every=1, save=sys.argv[1])
    print("saved", int(run.state.step))
except jaxsvm.SaveError as error:
    print(error)
"""


@pytest.mark.long
def test_two_processes_that_save_to_one_file(path):
    command = [sys.executable, "-W", "ignore", "-c", RACING, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen([*command, str(k)], **pipes) for k in range(2)]
    assert [run.stdout.readline() for run in runs] == ["ready\n"] * 2
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    texts = [run.communicate()[0] for run in runs]
    saved, failed = sorted(texts, key=lambda text: "another run has written" in text)
    assert saved == "saved 300\n" and "another run has written" in failed
    assert int(models.load(path).step) == 300


# Ctrl-C


@pytest.fixture
def listening():
    """Ctrl-C as a terminal has it, also where this process was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("call", "step"), [(1, 0), (2, 4), (3, 8)])
def test_ctrl_c_within_a_piece_returns_what_was_reached(call, step, path, monkeypatch):
    """A state that is in the file is not written again; an older file stays where none is."""
    writes, save = [], models.save
    path.write_bytes(b"of an earlier run")
    with monkeypatch.context() as patch:
        patch.setattr(models, "save", lambda *args: writes.append(args) or save(*args))
        interrupt(patch, call)
        run = count(save=path, on_interrupt="return")
    assert run.reason == "interrupted" and run.status.startswith("interrupted: ")
    assert int(run.state.step) == step and float(run.model.w[0]) == step
    assert run.info.step.tolist() == list(range(4, step + 1, 4))
    assert len(writes) == step // 4
    if step:
        same(models.load(path), run.state)
    else:
        assert path.read_bytes() == b"of an earlier run"
    same(count(12 - step, state=run.state).state, count(12).state)


def test_ctrl_c_within_save_returns_what_was_reached(path, monkeypatch):
    monkeypatch.setattr(models, "save", interrupt_at(2, lambda *args: None))
    run = count(save=path, on_interrupt="return")
    assert int(run.state.step) == 8 and run.info.step.tolist() == [4, 8]
    assert run.status == "interrupted: stopped after 8 steps; residual 2.0e+00"


def test_ctrl_c_just_before_a_save_comes_after_it(path, monkeypatch, listening):
    """The file holds the run that is returned, and the curve its last row."""
    save = saving.Saver.save

    def interrupted(saver, state):
        if int(state.step) == 8:
            signal.raise_signal(signal.SIGINT)
        save(saver, state)

    monkeypatch.setattr(saving.Saver, "save", interrupted)
    run = count(save=path, on_interrupt="return")
    assert int(run.state.step) == 8 and run.info.step.tolist() == [4, 8]
    same(models.load(path), run.state)


def test_ctrl_c_ends_a_script_with_the_run_in_the_exception(monkeypatch, capsys):
    words = "interrupted: stopped after 8 steps.*field run of this exception"
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(KeyboardInterrupt, match=words) as caught:
            count(progress=True)
    # Python ends with the signal for this very class only
    assert type(caught.value) is KeyboardInterrupt
    run, err = caught.value.run, capsys.readouterr().err
    assert run.reason == "interrupted" and run.info.step.tolist() == [4, 8]
    same(run.state, count(8).state)
    assert "8/30 steps" in err and err.endswith("\n"), "the line of the bar is ended"


def test_a_second_ctrl_c_does_not_lose_the_run(monkeypatch, listening):
    """It comes while the model of the interrupted run is worked out."""
    original = FITTING.conclude
    interrupt(monkeypatch, 2)
    late = lambda *args: signal.raise_signal(signal.SIGINT) or original(*args)
    monkeypatch.setattr(FITTING, "conclude", late)
    with pytest.raises(KeyboardInterrupt) as caught:
        count()
    assert int(caught.value.run.state.step) == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import jax, jaxsvm
data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
options = dict(steps=2**30, every=100, save=sys.argv[1]) | eval(sys.argv[2])
run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), **options)
print("goes on", run.reason, int(run.state.step))
"""


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"on_interrupt": "return"}])
def test_sigint_in_a_script(path, options):
    """By default the process ends as any Python process does; it goes on only if it asks for
    that."""
    command = [sys.executable, "-c", INTERRUPTED, str(path), repr(options)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, **pipes)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    step = int(models.load(path).step)
    assert step > 0
    if options:
        assert child.returncode == 0 and out.split() == ["goes", "on", "interrupted", str(step)]
    else:
        assert child.returncode == -signal.SIGINT and not out
        assert f"KeyboardInterrupt: interrupted: stopped after {step} steps" in err


# Bars


def test_progress(capsys):
    count(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.rstrip("\n").split("\r")[-1]
    assert re.match(r"\[#{24}\] 30/30 steps, loss 28\.5, residual -20, 0 s left", last), err
    assert err.endswith("\n")
    count()
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_after_every_chunk(monkeypatch):
    """Also where one call makes several chunks otherwise."""
    shown = []
    bar = type("Bar", (FITTING.Bar,), {"show": lambda self, count, note="": shown.append(count)})
    monkeypatch.setattr(FITTING, "Bar", bar)
    count(solver=jaxsvm.sdca(1.0), progress=True)
    assert shown == [4, 8, 12, 16, 20, 24, 28, 30]
