"""Parts `kills` and `interrupts`: a run that is broken off at any moment goes on from its file to the same bits.

Calls of `select` are made again, with the file that the killed one left. A process imports the
package once and starts no backend; every run is a fork of it, which can be killed alone.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import features, kernels, models, samplers

from .cases import Case, Different, Foreign

EVERY, LOOKS = 20, 100
PATIENCE = 120  # seconds for one run


def rows(classes: int = 2) -> Any:
    """A small problem."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)).astype("f4")
    if classes > 2:
        return jaxsvm.dataset(x, np.arange(60) % classes, task="multiclass")
    return jaxsvm.dataset(x, np.where(x[:, 0] + 0.5 * random.normal(size=60) > 0, 1, -1))


def fitted(solver: Any, classes: int = 2, every: int = EVERY, looks: int = LOOKS, **options: Any):
    """A run of `fit`: (save, state) -> its result."""

    def go(save: str | None, state: Any = None) -> Any:
        left = every * looks - (0 if state is None else int(state.step))
        key = jax.random.key(1) if state is None else None
        return jaxsvm.fit(solver, rows(classes), key, steps=left, every=every, save=save, state=state, **options)

    return go


def streamed(solver: Any):
    """A run of `stream`: (save, state) -> its result."""

    def go(save: str | None, state: Any = None) -> Any:
        random = np.random.default_rng(3)
        x = random.normal(size=(60 * LOOKS, 3)).astype("f4")
        parts = jaxsvm.data.chunks(x, np.where(x[:, 0] > 0, 1, -1), rows=60)
        parts = parts if state is None else parts[int(state.chunks) :]
        return jaxsvm.stream(solver, parts, jax.random.key(1) if state is None else None, save=save, state=state, batch_size=7)

    return go


@functools.cache
def kinds() -> dict[str, Any]:
    """Runs of all kinds of solver."""
    rbf = kernels.rbf(1.0)
    phi = functools.partial(features.fourier, kernel=rbf, dim=3, features=16)
    return {
        "pegasos": fitted(jaxsvm.pegasos(0.01, bias="free")),
        "asset": fitted(jaxsvm.asset(0.01, average_from=100)),
        "sdca": fitted(jaxsvm.sdca(1.0, rbf)),
        "decomposition": fitted(jaxsvm.decomposition(100.0, rbf, tol=1e-7, working_set=8, rounds=1), every=1),
        "bsgd": fitted(jaxsvm.bsgd(0.01, rbf, budget=10)),
        "bsca, acf": fitted(jaxsvm.bsca(1.0, rbf, budget=10), sampler=samplers.acf()),
        "projectron": fitted(jaxsvm.projectron(rbf, budget=10)),
        "one_vs_rest": fitted(jaxsvm.one_vs_rest(jaxsvm.pegasos(0.01), classes=3), classes=3),
        "sbp": fitted(jaxsvm.sbp(0.2, rbf)),
        "stream of bsgd": streamed(jaxsvm.bsgd(0.01, rbf, budget=10)),
        "stream on features": lambda save, state=None: streamed(jaxsvm.on_features(phi(jax.random.key(2)),
        jaxsvm.pegasos(0.01)))(save, state),
    }  # fmt: skip


def selected(**options: Any):
    """A call of `select` that saves: path -> the numbers of its result."""

    def go(path: str) -> Any:
        maker = lambda C, gamma: jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))
        found = jaxsvm.select(maker, rows(), jax.random.key(1), save=path, progress=False, **options)
        return found.table.values, found.model

    return go


@functools.cache
def calls() -> dict[str, Any]:
    """Calls that are made again with the file that was left."""
    grid: dict[str, Any] = {"C": np.geomspace(0.1, 1000, 8), "gamma": np.geomspace(0.01, 10, 6)}
    return {
        "select, grid": selected(**grid),
        "select, race": selected(search="race", **grid),
    }


# In a fork of the process below


def child(words: list[str]) -> int:
    """One run: `whole NAME RESULT`, `begin NAME FILE` or `resume NAME FILE RESULT`."""
    how, name, *paths = words
    if name in calls():
        result = calls()[name](paths[0] if how != "whole" else paths[0] + ".file")
        if how != "begin":
            models.save(paths[-1], result)
        return 0
    run = kinds()[name]
    if how == "whole":
        result = run(None)
        models.save(paths[0], (result.model, result.state))
    if how == "begin":
        try:
            result = run(paths[0])
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run has come to its end, what follows is not its part
        except KeyboardInterrupt as error:
            if not hasattr(error, "run"):  # before the first chunk
                return 3
            result = error.run
        models.save(paths[0] + ".reached", result.state)
    if how == "resume":
        state = models.load(paths[0]) if os.path.exists(paths[0]) else None
        result = run(paths[0] + ".again", state)
        models.save(paths[1], (result.model, result.state))
    return 0


def serve() -> None:
    """Read runs from standard input, fork for each, write the number of the process and how it ended."""
    # What a fork compiles, the next ones find.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    for line in sys.stdin:
        number = os.fork()
        if not number:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                code = child(line.rstrip("\n").split("\t"))
            except BaseException as error:
                print("failed", type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(code)
        print(number, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)


# In the process that runs cases


@functools.cache
def server() -> tuple[subprocess.Popen, pathlib.Path]:
    """The process that forks, and a folder for what it makes."""
    folder = tempfile.TemporaryDirectory()
    log = open(pathlib.Path(folder.name) / "log", "w")
    environment = dict(os.environ)
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(folder.name) / "cache"))
    program = [sys.executable, "-c", "from benchmarks.trust.robustness.kills import serve; serve()"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                               cwd=pathlib.Path(__file__).parents[3])  # fmt: skip

    def close():
        process.stdin.close()
        process.wait(timeout=30)
        log.close()
        folder.cleanup()

    atexit.register(close)
    return process, pathlib.Path(folder.name)


def start(*words: Any) -> int:
    """Begin a run; the number of its process."""
    process, _ = server()
    process.stdin.write("\t".join(map(str, words)) + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def end() -> int:
    """Wait for the run that was begun; how it ended."""
    return int(server()[0].stdout.readline())


@functools.cache
def whole(name: str) -> tuple[bytes, float]:
    """Model and state of the run that nothing breaks off, and the seconds that it takes once it is compiled."""
    path = server()[1] / f"{name}.npz"
    for _ in range(2):
        began = time.monotonic()
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
        start("whole", name, path)
        if end() != 0:
            raise RuntimeError(f"the whole run of {name} failed: {(server()[1] / 'log').read_text()[-500:]}")
    return path.read_bytes(), time.monotonic() - began


def break_off(case: Case, how: signal.Signals, name: str) -> None:
    """Begin, send the signal at a random moment, go on from the file, and compare."""
    case.text = f"{how.name} in a run of {name}"
    wanted, seconds = whole(name)
    path, result = case.folder / "run.npz", case.folder / "result.npz"
    number = start("begin", name, path)
    until = time.monotonic() + PATIENCE
    early = how is signal.SIGKILL and case.rarely(6)  # perhaps before the first save
    while not path.exists() and not early and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(case.random.uniform(0, 1.5 if early else 0.3))
    with contextlib.suppress(ProcessLookupError):  # it may have come to its end
        os.kill(number, how)
    code = end()
    if code not in (0, -how, 3):
        raise Foreign(f"the run ended with exit code {code}: {(server()[1] / 'log').read_text()[-300:]}")
    if how is signal.SIGINT and code == 0:
        reached, kept = int(models.load(f"{path}.reached").step), int(models.load(path).step)
        if not kept <= reached <= kept + EVERY:  # Ctrl-C may have come while the last look was written
            raise Different(f"the run returned step {reached}, its file holds step {kept}")
        if case.rarely(2):  # go on from what the run returned
            path = path.with_name("run.npz.reached")
    at = int(models.load(path).step) if path.exists() else 0
    case.text += f", file at step {at}"
    start("resume", name, path, result)
    code = end()
    if code != 0:
        raise Foreign(f"going on ended with exit code {code}: {(server()[1] / 'log').read_text()[-300:]}")
    case.judged = True  # by the run that nothing broke off
    if members(result.read_bytes()) != members(wanted):
        raise Different("the run that went on has other bits than the whole run")


def kill_call(case: Case, name: str) -> None:
    """Begin a call, kill it at a random moment, make it again with the files that it left, and compare."""
    wanted, seconds = whole(name)
    path, result = case.folder / "run.npz", case.folder / "result.npz"
    number, delay = start("begin", name, path), case.random.uniform(0, 1.1 * seconds)
    case.text = f"SIGKILL after {delay:.2f} of {seconds:.2f} s of {name}"
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):  # it may have come to its end
        os.kill(number, signal.SIGKILL)
    code = end()
    if code not in (0, -signal.SIGKILL):
        raise Foreign(f"the call ended with exit code {code}: {(server()[1] / 'log').read_text()[-300:]}")
    left = sorted(p.name for p in case.folder.iterdir())
    start("resume", name, path, result)
    if end() != 0:
        raise Foreign(f"made again, it failed; files {left}: {(server()[1] / 'log').read_text()[-300:]}")
    case.judged = True  # by the call that nothing killed
    if members(result.read_bytes()) != members(wanted):
        raise Different("the call that was made again has other bits than the one that nothing killed")


def members(text: bytes) -> dict[str, bytes]:
    """The arrays of a file as bytes, without the header that names versions."""
    with zipfile.ZipFile(io.BytesIO(text)) as file:
        return {name: file.read(name) for name in file.namelist()}


def run(case: Case) -> None:
    """A run or a call that is killed."""
    names = [*kinds(), *calls()]
    name = names[case.seed % len(names)]
    if name in calls():
        kill_call(case, name)
    else:
        break_off(case, signal.SIGKILL, name)


def interrupt(case: Case) -> None:
    """A run that meets Ctrl-C."""
    names = list(kinds())
    break_off(case, signal.SIGINT, names[case.seed % len(names)])
