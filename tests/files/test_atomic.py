"""Files written whole or not at all: threads, killed processes, links, permissions, names in bytes,
what is no file."""

import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import data as jdata
from jaxsvm import models
from jaxsvm.files import atomic, atomic_path

X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])
WRITERS = {
    "model.npz": lambda path: models.save(path, jnp.ones(3)),
    "text.csv": lambda path: put(path),
}


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    """A writer and the file that it writes."""
    return WRITERS[request.param], tmp_path / request.param


def put(path, text="new"):
    with atomic_path(path) as temporary, open(temporary, "w") as file:
        file.write(text)


def test_threads_that_save_to_one_path(tmp_path):
    """Every save ends well, and whoever loads meanwhile finds one of the trees, whole."""
    path, trees = tmp_path / "tree.npz", [jnp.full(20_000, k) for k in range(4)]
    models.save(path, trees[0])
    failed, stop = [], threading.Event()

    def attempt(work):
        try:
            work()
        except BaseException as error:
            failed.append(error)

    def read():
        while not stop.is_set():
            found = np.asarray(models.load(path))
            assert found.shape == (20_000,) and (found == found[0]).all()

    writers = [
        threading.Thread(
            target=attempt, args=(lambda tree=tree: [models.save(path, tree) for _ in range(40)],)
        )
        for tree in trees
    ]
    reader = threading.Thread(target=attempt, args=(read,))
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not failed and os.listdir(tmp_path) == ["tree.npz"]


@pytest.mark.long
def test_what_a_killed_process_left_is_removed_by_the_next_save(tmp_path):
    """That of the same target only, and never a temporary file that is in use."""
    code = """
        import os, signal, sys
        from jaxsvm.files import atomic_path
        paths = [os.path.join(sys.argv[1], name) for name in ("tree.npz", "other.npz")]
        open_files = [atomic_path(path) for path in paths]
        for each in open_files:
            each.__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    left = sorted(os.listdir(tmp_path))
    assert len(left) == 2 and all(
        re.fullmatch(r"\.(tree|other)\.npz\.[0-9a-f]{16}\.part\.npz", name) for name in left
    )
    with atomic_path(tmp_path / "tree.npz") as mine:
        assert sorted(os.listdir(tmp_path)) == sorted([left[0], os.path.basename(mine)])
        models.save(tmp_path / "tree.npz", jnp.ones(3))
        assert os.path.exists(mine), "in use by this thread"
        with open(mine, "wb") as file:
            file.write(b"the last one")
    assert (tmp_path / "tree.npz").read_bytes() == b"the last one"
    assert sorted(os.listdir(tmp_path)) == [left[0], "tree.npz"]


@pytest.mark.long
def test_the_temporary_file_of_another_process_in_use_stays(tmp_path):
    code = """
        import os, sys
        from jaxsvm.files import atomic_path
        with atomic_path(sys.argv[1]) as temporary:
            print(temporary, flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "a.txt")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        temporary = process.stdout.readline().strip()
        put(tmp_path / "a.txt")
        assert os.path.exists(temporary)
        process.kill()
    put(tmp_path / "a.txt")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_new_temporary_file_taken_for_a_stale_one_is_made_again(tmp_path, monkeypatch):
    """Between its making and its lock another writer may come by."""
    flock, first = atomic.fcntl.flock, []

    def patched(file, how):
        if not first:
            first.append(file.name)
            atomic._remove_stale(os.path.realpath(tmp_path / "a.txt"))
        return flock(file, how)

    monkeypatch.setattr(atomic.fcntl, "flock", patched)
    put(tmp_path / "a.txt")
    assert first and os.listdir(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "new"


def test_what_looks_like_a_temporary_file_stays(tmp_path):
    names = [
        ".a.txt.part.txt",
        ".a.txt.0123.part.txt",
        f".a.txt.{'g' * 16}.part.txt",
        f".b.txt.{'0' * 16}.part.txt",
        "a.txt.7.part",
    ]
    for name in names:
        (tmp_path / name).write_text("")
    os.symlink("nowhere", tmp_path / f".a.txt.{'0' * 16}.part.txt")
    put(tmp_path / "a.txt")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, f".a.txt.{'0' * 16}.part.txt", "a.txt"])


def test_links_stay_and_their_targets_are_replaced(written, tmp_path):
    write, path = written
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / path.name
    path.symlink_to(os.path.join("far", path.name))
    write(path)  # a link to a file that is not there yet
    assert path.is_symlink() and target.is_file()
    target.write_bytes(b"old")
    write(path)
    assert path.is_symlink() and target.read_bytes() != b"old"
    assert os.listdir(tmp_path / "far") == [path.name]


def test_a_link_to_itself(tmp_path):
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="a is a symbolic link that leads to itself"):
        put(tmp_path / "a")


def test_pipes_devices_and_folders_are_refused(written, tmp_path):
    write, path = written
    os.mkfifo(path)
    with pytest.raises(
        OSError,
        match=re.escape(f"{path} is a pipe, a device or a socket, expected the name of a file"),
    ):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    with pytest.raises(OSError, match="/dev/full is a pipe, a device or a socket"):
        write("/dev/full")
    with pytest.raises(
        IsADirectoryError, match=re.escape(f"{tmp_path} is a folder, expected the name of a file")
    ):
        write(tmp_path)
    with pytest.raises(
        FileNotFoundError, match="no/a.npz is in a folder that does not exist: make it first"
    ):
        write(tmp_path / "no" / "a.npz")
    assert os.listdir(tmp_path) == [path.name]


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    for error in (OSError(28, "No space left on device"), OSError(27, "File too large", None)):
        with pytest.raises(OSError) as caught, atomic_path(tmp_path / "a.txt") as temporary:
            error.filename = temporary if error.errno == 28 else None
            raise error
        assert caught.value.filename == str(tmp_path / "a.txt") and "part" not in str(caught.value)
    with pytest.raises(OSError, match="other.txt"), atomic_path(tmp_path / "a.txt"):
        open(tmp_path / "other.txt")


def test_permissions(written):
    """Of an existing file they stay, a new one gets those that the umask leaves."""
    write, path = written
    before = os.umask(0o027)
    try:
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_nobody_reads_what_will_be_private(tmp_path):
    path = tmp_path / "a.txt"
    path.touch(0o600)
    with atomic_path(path) as temporary:
        assert stat.S_IMODE(os.stat(temporary).st_mode) == 0o600


def test_names_in_bytes(tmp_path):
    folder = os.fsencode(tmp_path)
    for name, write in WRITERS.items():
        write(os.path.join(folder, name.encode()))
    assert sorted(os.listdir(tmp_path)) == sorted(WRITERS)
    assert models.load(os.path.join(folder, b"model.npz")).tolist() == [1, 1, 1]
    run = os.path.join(folder, b"run.npz")
    solver, data = jaxsvm.pegasos(0.1), jaxsvm.dataset(X, [1, -1, -1, 1])
    jaxsvm.fit(solver, data, jax.random.key(0), steps=4, save=run)
    assert int(models.load(run).step) == 4
    with pytest.raises(ValueError, match="x is a path: open it first"):
        jdata.chunks(run, Y, rows=2)


def test_long_names(tmp_path):
    """Those that the file system just allows, of one byte and of three."""
    for name in ("a" * 251 + ".txt", "語" * 85):
        put(tmp_path / name)
        assert (tmp_path / name).read_text() == "new"
    assert len(os.listdir(tmp_path)) == 2


def test_a_body_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        with atomic_path(path):
            raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_without_locks(tmp_path, monkeypatch):
    """Other systems: files are replaced whole, what was left stays."""
    monkeypatch.setattr(atomic, "fcntl", None)
    left = tmp_path / f".a.txt.{'0' * 16}.part.txt"
    left.touch()
    put(tmp_path / "a.txt")
    put(tmp_path / "a.txt", "newer")
    assert (tmp_path / "a.txt").read_text() == "newer" and sorted(os.listdir(tmp_path)) == [
        left.name,
        "a.txt",
    ]


@pytest.fixture
def listening():
    """Ctrl-C as a terminal has it, also where this process was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_file(tmp_path, listening):
    path = tmp_path / "a.txt"
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        signal.raise_signal(signal.SIGINT)
        pathlib.Path(temporary).write_text("whole")
    assert (
        path.read_text() == "whole"
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pathlib.Path(temporary).write_text("never")
    assert path.read_text() == "whole" and list(tmp_path.iterdir()) == [path]
