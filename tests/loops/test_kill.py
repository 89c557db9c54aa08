"""Runs that are killed at any moment, also while they save, lose nothing that was saved."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import oracles
import pytest

import jaxsvm
from jaxsvm import fit, kernels, models
from jaxsvm.types import RunState

TESTS = pathlib.Path(oracles.__file__).parent
STEPS, EVERY, KILLS = 3000, 10, 10  # of each of the two solvers


def problem():
    x = jax.random.normal(jax.random.key(1), (40, 3))
    return jaxsvm.dataset(x, jnp.where(x[:, 0] + 0.3 * x[:, 1] > 0, 1, -1))


SOLVERS = {
    "rows": jaxsvm.pegasos(0.01, bias="free"),
    "kernel": jaxsvm.kernel_pegasos(0.01, kernels.rbf(1.0)),
}

# One process imports once and starts no backend; each run is a fork of it, so that it can be killed
# alone.
PARENT = """
import os, sys
sys.path[:0] = sys.argv[1:]
import test_kill_problem as t
for line in sys.stdin:
    name, path = line.split(maxsplit=1)
    child = os.fork()
    if not child:
        try:
            options = dict(steps=t.STEPS, every=t.EVERY, save=path.strip())
            t.jaxsvm.fit(t.SOLVERS[name], t.problem(), t.jax.random.key(0), **options)
        except BaseException as error:
            print("failed", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


CACHED = """
jax.config.update("jax_compilation_cache_dir", {cache!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
"""


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A function that starts a run and returns its process number and how to wait for its end."""
    folder = tmp_path_factory.mktemp("kill")
    lines = pathlib.Path(__file__).read_text().split("\n# One process")[0]
    (folder / "test_kill_problem.py").write_text(lines + CACHED.format(cache=str(folder / "cache")))
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(folder), str(TESTS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(name, path):
        process.stdin.write(f"{name} {path}\n")
        process.stdin.flush()
        return int(process.stdout.readline()), lambda: int(process.stdout.readline())

    yield start
    process.stdin.close()
    process.wait(timeout=60)


@pytest.mark.long
@pytest.mark.parametrize("name", SOLVERS)
def test_killed_at_random_moments(name, parent, tmp_path):
    """Ten kills each: two at any time since the start, eight soon after the first save."""
    solver, data, chance = SOLVERS[name], problem(), random.Random(f"kills of {name}")
    whole = fit(solver, data, jax.random.key(0), steps=STEPS, every=EVERY)
    between = 0
    for kill in range(KILLS):
        path = tmp_path / f"run{kill}.npz"
        child, wait = parent(name, path)
        if kill < KILLS - 2:
            end = time.monotonic() + 60
            while not path.exists():
                assert time.monotonic() < end, "no save within a minute"
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.15))
        else:
            time.sleep(chance.uniform(0, 1.0))
        with contextlib.suppress(ProcessLookupError):  # a fast machine may have come to the end
            os.kill(child, signal.SIGKILL)
        assert wait() in (-signal.SIGKILL, 0), "the run failed by itself"
        others = [p for p in os.listdir(tmp_path) if not p.endswith(".npz")]
        # at most what was being written stays behind
        assert all(p.endswith(".part") for p in others)
        start = {"key": jax.random.key(0), "steps": STEPS}
        if path.exists():
            state = models.load(path)
            step = int(state.step)
            assert isinstance(state, RunState) and step % EVERY == 0
            between += 0 < step < STEPS
            start = {"state": state, "steps": STEPS - step}
        run = fit(solver, data, every=EVERY, **start)
        oracles.assert_same_bits((run.model, run.state), (whole.model, whole.state))
        models.save(path, run.state)
        mine = [p for p in os.listdir(tmp_path) if p.startswith(f".{path.name}.")]
        assert not mine, "the next save removes what was being written"
    assert between >= KILLS // 2, "that many are killed between the first save and the end"
