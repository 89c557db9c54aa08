"""Programs on disk that are not traced again: the same bits, and never the program of something else."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import features, kernels, losses
from jaxsvm.loops import programs, stored_programs
from jaxsvm.loops.stored_programs import FOLDER, StoredPrograms, _describe, _rebuild, _Unknown

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
DATA = jaxsvm.dataset(X, np.sign(X[:, 0] + 0.3 * X[:, 1]))
SOLVERS = {
    "pegasos": lambda: jaxsvm.pegasos(0.1),
    "averaged": lambda: jaxsvm.averaged(jaxsvm.pegasos(0.1)),
    "asset": lambda: jaxsvm.asset(0.1, loss=losses.logistic),
    "sdca": lambda: jaxsvm.sdca(1.0),
    "sbp": lambda: jaxsvm.sbp(0.1, kernels.rbf(gamma=0.5)),
    "scs": lambda: jaxsvm.scs(0.1, kernels.rbf(gamma=0.5), capacity=20),
    "bsca": lambda: jaxsvm.bsca(1.0, kernels.rbf(gamma=0.5), budget=8),
    "decomposition": lambda: jaxsvm.decomposition(1.0, kernels.polynomial(degree=2)),
    "nu_svc": lambda: jaxsvm.nu_svc(0.3, kernels.rbf(gamma=0.5)),
    "newton": lambda: jaxsvm.newton(0.1),
    "augmented_lagrangian": lambda: jaxsvm.augmented_lagrangian(1.0),
    "on_features": lambda: jaxsvm.on_features(
        features.nystrom(KEY, kernels.rbf(gamma=0.5), DATA.x, landmarks=8), jaxsvm.pegasos(0.1)
    ),
    "one_vs_rest": lambda: jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Programs are kept in this folder; JAX's own cache stays as it is, but for its name."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache
    monkeypatch.setenv(stored_programs.VARIABLE, str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_enable_compilation_cache", True)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_enable_compilation_cache", before[1])


def chunk_arguments(solver, data=DATA):
    solver, sampler = programs.as_argument(solver, jnp.float32), solver.sampler or jaxsvm.samplers.uniform(1)
    run = programs.init_run(solver, sampler, KEY, data)
    return (solver, sampler, None, data, None, run, None, np.int32(3)), {"every": 4}


def stored():
    """The programs of a process that has none yet."""
    return StoredPrograms(programs.run_chunk.__wrapped__, {}, ("every", "lift"))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    raw = lambda leaf: np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(raw(one), raw(other))


@pytest.mark.parametrize(
    "name", ["decomposition", *(pytest.param(n, marks=pytest.mark.long) for n in SOLVERS if n != "decomposition")]
)
def test_a_program_from_disk_gives_the_same_and_is_not_traced(folder, monkeypatch, name):
    data = DATA if name != "one_vs_rest" else jaxsvm.dataset(X, np.arange(40) % 3, task="multiclass")
    args, named = chunk_arguments(SOLVERS[name](), data)
    expected = jax.jit(programs.run_chunk.__wrapped__, static_argnames=("every", "lift"))(*args, **named)
    (first,) = stored()(args, named)
    with monkeypatch.context() as patch:
        patch.setattr(stored_programs, "_trace", lambda *_: pytest.fail("traced again"))
        again = stored()
        (second,) = again(args, named)
        (third,) = again(args, named)
    assert len(again) == 1
    for result in (first, second, third):
        assert_same(result, expected)


def test_numbers_are_no_part_of_a_program(folder):
    """Another C is the same file; another kernel, shape or length of a chunk is another one."""
    files = lambda: len(list((folder / FOLDER).iterdir()))
    run = stored()
    (one,) = run(*chunk_arguments(jaxsvm.decomposition(1.0, kernels.rbf(gamma=0.5))))
    count = files()
    (other,) = run(*chunk_arguments(jaxsvm.decomposition(2.0, kernels.rbf(gamma=0.1))))
    assert files() == count and len(run) == 1
    assert np.abs(one[0].solver.dual.coef).max() <= 1 < np.abs(other[0].solver.dual.coef).max()
    run(*chunk_arguments(jaxsvm.decomposition(1.0, kernels.linear())))
    args, named = chunk_arguments(jaxsvm.decomposition(1.0, kernels.rbf(gamma=0.5)))
    run(args, named | {"every": 5})
    assert len(run) == 3


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[:-1], lambda b: b[: len(b) // 2], lambda b: b[:40] + b"\0" + b[41:]]
)
def test_a_damaged_file_is_made_anew(folder, damage):
    args, named = chunk_arguments(jaxsvm.pegasos(0.1))
    (expected,) = stored()(args, named)
    contents = {path: path.read_bytes() for path in (folder / FOLDER).iterdir()}
    for path, content in contents.items():
        path.write_bytes(damage(content))
    (result,) = stored()(args, named)
    assert_same(result, expected)
    path = max(contents, key=lambda path: path.stat().st_mtime_ns)
    assert path.read_bytes() != damage(contents[path])


def test_other_source_files_make_other_programs(folder, monkeypatch):
    args, named = chunk_arguments(jaxsvm.pegasos(0.1))
    stored()(args, named)
    before = {*(folder / FOLDER).iterdir()}
    monkeypatch.setattr(stored_programs, "SOURCES", ["another"])
    stored()(args, named)
    assert len({*(folder / FOLDER).iterdir()} - before) == 1


def test_functions_of_users_are_not_kept(folder):
    """Another process may hold another function under the same name."""

    def schedule(t):
        return 1.0 / (t + 1)

    for thing in (schedule, lambda t: t, (1, schedule), object()):
        with pytest.raises(_Unknown):
            _describe(thing)
    inner = jaxsvm.pegasos(0.1)
    plain = jaxsvm.Solver(inner.init, inner.update, inner.model)
    run = stored()
    assert run(*chunk_arguments(plain)) == () and len(run) == 0
    probe = (lambda model: jnp.sum(model.w),)
    args, named = chunk_arguments(inner)
    assert run((*args[:2], programs.as_argument(probe[0], jnp.float32), *args[3:]), named) == ()


@pytest.mark.long
def test_without_flatbuffers_programs_are_traced(tmp_path):
    """JAX does not require the package."""
    plain, _ = python(RUN)[0].split()
    for _ in range(2):
        value, n_traced = python("import sys; sys.modules['flatbuffers'] = None\n" + RUN, tmp_path)[0].split()
        assert value == plain and int(n_traced) == 3
    assert not (tmp_path / FOLDER).exists()


def test_nothing_is_kept_without_a_folder_and_inside_of_transformations(folder, monkeypatch):
    args, named = chunk_arguments(jaxsvm.pegasos(0.1))
    run = stored()
    seen = []
    jax.vmap(lambda count: seen.append(run((*args[:-1], count), named)) or count)(np.arange(2, dtype=np.int32))
    assert seen == [()]
    with jax.debug_nans(True):
        assert run(args, named) == ()
    jax.config.update("jax_compilation_cache_dir", str(folder / "other"))
    assert run(args, named) == ()  # the user chose another folder for JAX's cache
    monkeypatch.delenv(stored_programs.VARIABLE)
    assert run(args, named) == ()


def test_a_program_that_cannot_be_written_as_a_file_runs(folder):
    """Calls into Python have no place in a file: the caller traces its own program."""
    calls = []

    def double(x):
        return jax.pure_callback(lambda a: calls.append(1) or 2 * a, jax.ShapeDtypeStruct((), jnp.float32), x)

    double.__module__, double.__qualname__ = "jaxsvm.loops.programs", "double"
    for _ in range(2):
        run = StoredPrograms(double, {}, ())
        assert run((jnp.float32(1),), {}) == () and len(run) == 0


@pytest.mark.parametrize("name", SOLVERS)
def test_structures_survive_a_description(name):
    tree = jax.tree.structure((SOLVERS[name](), {"b": None, "a": [1, (2,)]}, DATA))
    assert _rebuild(_describe(tree)) == tree


RUN = """
import collections, sys
import jax, jaxsvm
from jaxsvm import kernels
traced = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: traced.append(about.get("fun_name")) if event.endswith("jaxpr_trace_duration") else None
)
if len(sys.argv) > 1:
    jaxsvm.cache_programs(sys.argv[1])
data = jaxsvm.dataset([[1.0], [2.0], [-1.0]], [1, 1, -1])
run = jaxsvm.fit(jaxsvm.decomposition(1.0, kernels.rbf(gamma=0.5)), data, jax.random.key(0))
print(float(run.model(data.x)[0]).hex(), len({"run_chunk", "init_run", "conclude", "flat"} & set(traced)))
"""


def python(code, *argv):
    """The first line that a fresh process prints; no variable of the tests' own cache reaches it."""
    clean = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    done = subprocess.run([sys.executable, "-c", code, *map(str, argv)], capture_output=True, text=True, timeout=300, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.mark.long
def test_a_second_process_traces_nothing(tmp_path):
    plain, _ = python(RUN)[0].split()
    first, n_traced = python(RUN, tmp_path)[0].split()
    assert int(n_traced) > 0 and os.listdir(tmp_path / FOLDER)
    kept = {path: path.read_bytes() for path in pathlib.Path(tmp_path / FOLDER).iterdir()}
    again, n_again = python(RUN, tmp_path)[0].split()
    assert int(n_again) == 0 and plain == first == again
    assert kept == {path: path.read_bytes() for path in pathlib.Path(tmp_path / FOLDER).iterdir()}
