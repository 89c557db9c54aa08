"""Files written whole or not at all: threads, killed processes, links, permissions, names in bytes,
what is no file."""

import concurrent.futures
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
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


def listed(folder):
    return sorted(os.listdir(folder))


def test_threads_that_save_to_one_path(tmp_path):
    """Every save ends well, and whoever loads meanwhile finds one of the trees, whole."""
    path, trees = tmp_path / "tree.npz", [jnp.full(20_000, k) for k in range(4)]
    models.save(path, trees[0])
    stop = threading.Event()

    def read():
        while not stop.is_set():
            found = np.asarray(models.load(path))
            assert found.shape == (20_000,) and (found == found[0]).all()

    with concurrent.futures.ThreadPoolExecutor(5) as threads:
        reader = threads.submit(read)
        writers = [
            threads.submit(lambda t=t: [models.save(path, t) for _ in range(40)]) for t in trees
        ]
        failed = [writer.exception() for writer in writers]
        stop.set()
        failed.append(reader.exception())
    assert failed == [None] * 5 and listed(tmp_path) == ["tree.npz"]


CHILD = """
import sys
from jaxsvm.files import atomic_path
files = [atomic_path(path) for path in sys.argv[1:]]
for each in files:
    print(each.__enter__(), flush=True)
sys.stdin.read()
"""


def writing(*paths):
    """How to kill a process that writes these files, and its temporary ones."""
    command = [sys.executable, "-c", CHILD, *map(str, paths)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)
    files = [process.stdout.readline().strip() for _ in paths]
    return lambda: process.kill() or process.communicate(timeout=120), files


@pytest.mark.long
def test_what_a_killed_process_left_is_removed_by_the_next_save(tmp_path):
    """That of the same target only, and never a temporary file that is in use."""
    path = tmp_path / "tree.npz"
    kill, files = writing(tmp_path / "other.npz", path)
    kill()
    left = [os.path.basename(file) for file in files]
    names = re.compile(r"\.(other|tree)\.npz\.[0-9a-f]{16}\.part\.npz")
    assert listed(tmp_path) == left and all(map(names.fullmatch, left))
    with atomic_path(path) as mine:
        assert listed(tmp_path) == sorted([left[0], os.path.basename(mine)])
        models.save(path, jnp.ones(3))
        assert os.path.exists(mine), "in use by this thread"
        pathlib.Path(mine).write_bytes(b"the last one")
    assert path.read_bytes() == b"the last one" and listed(tmp_path) == [left[0], "tree.npz"]


@pytest.mark.long
def test_the_temporary_file_of_another_process_in_use_stays(tmp_path):
    path = tmp_path / "a.txt"
    kill, files = writing(path)
    put(path)
    assert os.path.exists(files[0])
    kill()
    put(path)
    assert listed(tmp_path) == ["a.txt"]


def test_a_new_temporary_file_taken_for_a_stale_one_is_made_again(tmp_path, monkeypatch):
    """Between its making and its lock another writer may come by."""
    flock, first, target = atomic.fcntl.flock, [], os.path.realpath(tmp_path / "a.txt")

    def late(file, how):
        if not first:
            first.append(file.name)
            atomic._remove_stale(target)
        return flock(file, how)

    monkeypatch.setattr(atomic.fcntl, "flock", late)
    put(tmp_path / "a.txt")
    assert first and listed(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "new"


def test_what_looks_like_a_temporary_file_stays(tmp_path):
    names = [f".a.txt.{'g' * 16}.part.txt", f".b.txt.{'0' * 16}.part.txt", "a.txt.7.part"]
    names += [".a.txt.part.txt", ".a.txt.0123.part.txt"]
    for name in names:
        (tmp_path / name).write_text("")
    link = f".a.txt.{'0' * 16}.part.txt"
    os.symlink("nowhere", tmp_path / link)
    (tmp_path / f".a.txt.{'f' * 16}.part.txt").write_text("")  # that of a killed process goes
    put(tmp_path / "a.txt")
    assert listed(tmp_path) == sorted([*names, link, "a.txt"])


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


def test_what_is_no_file_is_refused(written, tmp_path):
    write, path = written
    os.mkfifo(path)
    (tmp_path / "a").symlink_to("a")
    special = "is a pipe, a device or a socket, expected the name of a file"
    for wrong, error, words in (
        (path, OSError, special),
        ("/dev/full", OSError, "is a pipe, a device or a socket"),
        (tmp_path / "a", OSError, "is a symbolic link that leads to itself"),
        (tmp_path, IsADirectoryError, "is a folder, expected the name of a file"),
        (tmp_path / "no" / "a.npz", FileNotFoundError, "is in a folder that does not exist"),
    ):
        with pytest.raises(error, match=re.escape(f"{wrong} {words}")):
            write(wrong)
    assert stat.S_ISFIFO(path.stat().st_mode) and listed(tmp_path) == sorted(["a", path.name])


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    for error in (OSError(28, "No space left on device"), OSError(27, "File too large", None)):
        with pytest.raises(OSError) as caught, atomic_path(tmp_path / "a.txt") as temporary:
            error.filename = temporary if error.errno == 28 else None
            raise error
        assert caught.value.filename == str(tmp_path / "a.txt") and "part" not in str(caught.value)
    with pytest.raises(OSError, match="other.txt"), atomic_path(tmp_path / "a.txt"):
        open(tmp_path / "other.txt")


def test_permissions(written):
    """Of an existing file they stay, a new one gets those that the umask leaves; nobody reads what
    will be private."""
    write, path = written
    mode = lambda path: stat.S_IMODE(os.stat(path).st_mode)
    before = os.umask(0o027)
    try:
        write(path)
        assert mode(path) == 0o640
        for wanted in (0o604, 0o600):
            path.chmod(wanted)
            write(path)
            assert mode(path) == wanted
        with atomic_path(path) as temporary:
            assert mode(temporary) == 0o600
    finally:
        os.umask(before)


@pytest.mark.long
def test_names_in_bytes(tmp_path):
    folder = os.fsencode(tmp_path)
    for name, write in WRITERS.items():
        write(os.path.join(folder, name.encode()))
    assert listed(tmp_path) == sorted(WRITERS)
    assert models.load(os.path.join(folder, b"model.npz")).tolist() == [1, 1, 1]
    run, data = os.path.join(folder, b"run.npz"), jaxsvm.dataset(X, [1, -1, -1, 1])
    jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=4, save=run)
    assert int(models.load(run).step) == 4
    with pytest.raises(ValueError, match="x is a path: open it first"):
        jaxsvm.data.chunks(run, Y, rows=2)


def test_long_names(tmp_path):
    """Those that the file system just allows, of one byte and of three."""
    for name in ("a" * 251 + ".txt", "語" * 85):
        put(tmp_path / name)
        assert (tmp_path / name).read_text() == "new"
    assert len(os.listdir(tmp_path)) == 2


def test_without_locks(tmp_path, monkeypatch):
    """Other systems: files are replaced whole, what was left stays."""
    monkeypatch.setattr(atomic, "fcntl", None)
    left = tmp_path / f".a.txt.{'0' * 16}.part.txt"
    left.touch()
    put(tmp_path / "a.txt")
    put(tmp_path / "a.txt", "newer")
    assert (tmp_path / "a.txt").read_text() == "newer"
    assert listed(tmp_path) == [left.name, "a.txt"]


@pytest.fixture
def listening():
    """Ctrl-C as a terminal has it, also where this process was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_the_file(tmp_path, listening, times):
    """The second one does not."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        pathlib.Path(temporary).write_text("whole")
    assert path.read_text() == ("whole" if times == 1 else "old")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert list(tmp_path.iterdir()) == [path]
