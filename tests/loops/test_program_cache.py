"""Compiled programs on disk, counted by JAX's own events, in processes of their own; and those in
memory, which are let go."""

import importlib
import itertools
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from counted import DATA, FITTING, KEY, count

import jaxsvm
from jaxsvm import kernels
from jaxsvm.loops import program_cache

STREAMING = importlib.import_module("jaxsvm.loops.streaming")

RUN = """
import collections, sys, warnings
import jax, jaxsvm
events = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name.rpartition("/")[2]]))
assert jax.config.jax_compilation_cache_dir is None, "importing sets nothing"
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    folder = jaxsvm.cache_programs(*sys.argv[1:])
    data = jaxsvm.dataset([[1.0], [2.0], [-1.0]], [1, 1, -1])
    run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=10)
print(folder, events["cache_misses"], events["cache_hits"], float(run.model.w[0]).hex(), sep="|")
print(*[str(warning.message) for warning in warned], sep="|")
"""

# The folder is named in the parent process, which computes nothing: its workers do.
WORKERS = """
import sys, jaxsvm
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from jaxsvm.estimators import SVMClassifier
if __name__ == "__main__":
    jaxsvm.cache_programs(sys.argv[1])
    x, y = load_iris(return_X_y=True)
    model = SVMClassifier(jaxsvm.pegasos(0.1), steps=50, random_state=0)
    print(*cross_val_score(model, x[:100, :2], y[:100], cv=2, n_jobs=2))
"""


def python(code, *argv, **environment):
    """The lines that a fresh process prints; no variable of the tests' own cache reaches it."""
    clean = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    command = [sys.executable, "-c", code, *map(str, argv)]
    options = {"capture_output": True, "text": True, "timeout": 300, "env": clean | environment}
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def numbers(line):
    folder, misses, hits, value = line.split("|")
    return folder, int(misses), int(hits), value


def kept(folder):
    """The files of programs, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in sorted(pathlib.Path(folder).glob("*-cache"))}


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    folder, misses, hits, value = numbers(python(RUN, tmp_path / "new" / "programs")[0])
    assert folder == str(tmp_path / "new" / "programs") and misses > 0
    before = kept(folder)
    assert len(before) >= misses, "each program is kept, however small"
    assert numbers(python(RUN, folder)[0]) == (folder, 0, misses + hits, value)
    assert kept(folder) == before
    for number, path in enumerate(before):
        text = path.read_bytes()
        path.write_bytes([b"", text[: len(text) // 2], b"\0" * len(text), text[:-1]][number % 4])
    lines = python(RUN, folder)
    assert numbers(lines[0])[3] == value, "damaged files cost a compilation each"
    assert "Error reading persistent compilation cache entry" in lines[1]


@pytest.mark.long
def test_worker_processes_of_scikit_learn_find_it(tmp_path):
    scores = python(WORKERS, tmp_path)[0]
    before = kept(tmp_path)
    assert before, "the workers have written what they compiled"
    assert python(WORKERS, tmp_path)[0] == scores
    assert kept(tmp_path) == before, "and read it the next time"


@pytest.mark.long
def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    lines = python(RUN, tmp_path / "file" / "programs")
    folder, misses, hits, value = lines[0].split("|")
    assert (folder, misses, hits) == ("None", "0", "0")
    (sentence,) = lines[1].split("|")
    where = f"{tmp_path}/file/programs cannot be written (Not a directory)"
    assert sentence.startswith(f"compiled programs are not kept, as {where}")
    assert "give another folder" in sentence


def test_the_folder_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, variables, folder in (
        ("linux", {}, tmp_path / ".cache"),
        ("linux", {"XDG_CACHE_HOME": str(tmp_path / "xdg")}, tmp_path / "xdg"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, tmp_path / ".cache"),
        ("darwin", {}, tmp_path / "Library" / "Caches"),
        ("win32", {"LOCALAPPDATA": str(tmp_path / "local")}, tmp_path / "local"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "platform", platform)
            patch.delenv("XDG_CACHE_HOME", raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            assert program_cache.user_cache_folder() == str(folder / "jaxsvm")


@pytest.mark.long
def test_without_a_name_it_is_the_folder_of_jax_or_of_the_platform(tmp_path):
    code = RUN.replace("assert jax.config", "assert True or jax.config")
    named = python(code, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"))
    assert numbers(named[0])[0] == str(tmp_path / "jax")
    assert numbers(python(code, XDG_CACHE_HOME=str(tmp_path))[0])[0] == str(tmp_path / "jaxsvm")
    homeless = "import os\nos.path.expanduser = lambda path: path\n" + code
    nowhere = python(homeless)
    assert nowhere[0].startswith("None|") and "there is no home folder" in nowhere[1]


# In memory


def on_features(f):
    phi = lambda x: f(jnp.concatenate([x, x * x], axis=-1))
    return count(2, jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)))


def on_kernel(f):
    solver = jaxsvm.decomposition(1.0, kernels.custom(lambda x, z: f(x @ z.T)))
    return count(2, solver, every=None)


PEGASOS = jaxsvm.pegasos(0.1)
NEW_FUNCTIONS = {  # calls, each with a function of its own, and the compiled functions
    "probe": (lambda f: count(2, PEGASOS, probe=lambda m: f(m.b)), [FITTING.run_chunk]),
    "kernel": (on_kernel, [FITTING.run_once]),
    "features": (on_features, [FITTING.run_chunk, FITTING.begin, FITTING.conclude]),
    "stream": (
        lambda f: jaxsvm.stream(PEGASOS, [DATA], KEY, probe=lambda m: f(m.b)),
        [STREAMING.run_batches],
    ),
}


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="maps are counted on Linux")
@pytest.mark.parametrize("name", NEW_FUNCTIONS)
def test_programs_of_functions_that_are_gone_are_released(monkeypatch, name):
    """Each holds maps of memory, of which Linux allows a process 65,530; those of the user's own
    functions stay."""
    call, compiled = NEW_FUNCTIONS[name]
    of_user = jax.jit(lambda x: x + 1)
    of_user(1.0)
    monkeypatch.setattr(program_cache, "_calls", itertools.repeat(256))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 0)
    for _ in range(5):
        call(lambda value: 2 * value)
        sizes = [function._cache_size() for function in compiled]
        assert all(0 < size <= 3 for size in sizes), sizes
    assert of_user._cache_size() == 1


def test_programs_are_kept_as_long_as_they_are_few(monkeypatch):
    monkeypatch.setattr(program_cache, "_calls", itertools.repeat(256))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 10**6)
    before = [count(3) and FITTING.run_chunk._cache_size() for _ in range(3)]
    assert before[0] == before[2] > 0
    monkeypatch.setattr(program_cache, "_calls", itertools.count(1))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 0)
    count(3)
    assert FITTING.run_chunk._cache_size() == before[0]
