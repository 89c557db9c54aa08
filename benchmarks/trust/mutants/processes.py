"""Children of a process that has imported JAX, pytest and what tests need, but has not started JAX: forking it is safe."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import pytest

from .imports import ROOT, Hits, install

# Broad tests of processes of their own, and of files that no mutant changes: they would cost time and kill nothing.
LEFT_OUT = ("tests/sharding/", "tests/loops/test_kill.py", "tests/loops/test_program_cache.py", "tests/test_readme.py")
OPTIONS = ["-o", "addopts=", "-q", "-p", "no:cacheprovider", "-p", "no:nbmake", "--hypothesis-seed=0"]
LIBRARIES = """jax jax.numpy numpy scipy.optimize scipy.sparse scipy.stats optax chex pytest hypothesis.extra.numpy sklearn.svm
sklearn.model_selection sklearn.datasets sklearn.utils.estimator_checks sklearn.linear_model sklearn.kernel_approximation"""


def prepare(folder: pathlib.Path) -> None:
    """Set the environment as tests/conftest.py does, and import what every child needs."""
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))
    for name in LIBRARIES.split():
        __import__(name)
    import jax

    if "XLA_FLAGS" not in os.environ:
        import compiling

        os.environ["XLA_FLAGS"] = " ".join(compiling.known_flags(*compiling.FLAGS))
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        jax.config.update("jax_disable_most_optimizations", True)


def in_child(work: Callable[[Callable], None], log: pathlib.Path, cpu: float, wall: float) -> Iterator[dict]:
    """The messages of a forked child that runs `work(tell)`; the last is {"end": "exit", "wall" or a signal}."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(receiving)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu) + 1, int(cpu) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open(log, "w") as file, open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        pipe = os.fdopen(sending, "w", buffering=1)
        status = 1
        try:
            work(lambda message: pipe.write(json.dumps(message) + "\n"))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            pipe.flush()
            os._exit(status)
    os.close(sending)
    deadline, waiting, end = time.monotonic() + wall, b"", "wall"
    try:
        with os.fdopen(receiving, "rb", buffering=0) as pipe:
            while (left := deadline - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
                piece = pipe.read(1 << 16)
                if not piece:
                    _, status = os.waitpid(pid, 0)
                    end = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
                    break
                *whole, waiting = (waiting + piece).split(b"\n")
                yield from map(json.loads, whole)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # its own children too
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    yield {"end": end}  # SIGXCPU at the limit, SIGSEGV in a crash


class Chosen:
    """A pytest plugin: runs the tests of `order` in this order, and tells of each."""

    def __init__(self, order: list[str], tell: Callable[[dict], None]):
        self.order, self.tell = {name: place for place, name in enumerate(order)}, tell

    @pytest.hookimpl(trylast=True)  # after the order of tests/conftest.py
    def pytest_collection_modifyitems(self, items):
        """Leave the chosen tests, in their order."""
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logstart(self, nodeid):
        """Tell which test begins."""
        self.tell({"start": nodeid})

    def pytest_runtest_logreport(self, report):
        """Note failures."""
        if report.failed:
            self.tell({"failed": report.nodeid})

    def pytest_collectreport(self, report):
        """Tell of files that cannot be read."""
        if report.failed:
            self.tell({"failed": f"{report.nodeid} (collection)"})


class Recorder:
    """A pytest plugin: tells of each test its seconds of processor time and the statements that it ran."""

    def __init__(self, hits: Hits, tell: Callable[[dict], None]):
        self.hits, self.tell, self.failed = hits, tell, set()

    def pytest_collection_finish(self, session):
        """Tell what ran at imports."""
        self.tell({"test": "", "seconds": 0.0, "hits": self.hits.take()})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Tell what one test ran, where it passed."""
        began = time.process_time()
        done = yield
        if item.nodeid not in self.failed:
            self.tell({"test": item.nodeid, "seconds": round(time.process_time() - began, 3), "hits": self.hits.take()})
        return done

    def pytest_runtest_logreport(self, report):
        """Note failures."""
        if report.failed:
            self.failed.add(report.nodeid)


def run_pytest(arguments: list[str], plugin: object) -> int:
    """Run pytest; its exit status."""
    return int(pytest.main([*OPTIONS, *arguments], plugins=[plugin]))


def record(file: str, log: pathlib.Path, long: bool) -> dict:
    """What the tests of a file run: {"keys": [[file, statement], ...], "tests": {name: [seconds, [places in keys]]}}."""

    def work(tell):
        hits = Hits()
        install(hits.transform)
        run_pytest([file, "-m", "long" if long else "not long"], Recorder(hits, tell))
        tell({"keys": list(hits.keys)})

    found, tests = {"keys": []}, {}
    for message in in_child(work, log, 3000, 6000):
        if "test" in message:
            tests[message["test"]] = [message["seconds"], message["hits"]]
        found.update({k: message[k] for k in ("keys", "end") if k in message})
    used = sorted({hit for _, hits in tests.values() for hit in hits})
    place = {number: i for i, number in enumerate(used)}
    return {
        "keys": [found["keys"][number] for number in used if found["keys"]],
        "tests": {name: [seconds, [place[hit] for hit in hits]] for name, (seconds, hits) in tests.items()},
    }


def test_files() -> list[str]:
    """The files of tests."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return [file for file in files if not file.startswith(LEFT_OUT)]


def long_tests(files: list[str], folder: pathlib.Path) -> list[str]:
    """The names of the long tests, kept while the files stay as they are."""
    text = b"".join((ROOT / file).read_bytes() for file in files)
    path = folder / f"long-{hashlib.sha256(text).hexdigest()[:16]}.json"
    if path.exists():
        return json.loads(path.read_text())

    class Names:
        def pytest_collection_finish(self, session):
            names.extend(item.nodeid for item in session.items)

    def work(tell):
        run_pytest([*files, "-m", "long", "--collect-only"], Names())
        tell({"names": names})

    names: list[str] = []
    found = next(message["names"] for message in in_child(work, folder / "log.txt", 600, 3000) if "names" in message)
    path.write_text(json.dumps(found))
    return found


def records(folder: pathlib.Path, files: list[str], again: bool, long: bool) -> dict[tuple[str, str], dict]:
    """What the tests of each file run, short and long: recorded where missing or, with `again`, where the file has changed."""
    (folder / "records").mkdir(parents=True, exist_ok=True)
    found = {}
    for kind, file in itertools.product(("short", "long"), files):
        path = folder / "records" / f"{file.replace('/', '-')}.{kind}.json"
        version = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
        known = json.loads(path.read_text()) if path.exists() else {}
        if not known and (kind == "short" or long) or again and known and known["version"] != version:
            began = time.monotonic()
            known = {"version": version} | record(file, folder / "log.txt", kind == "long")
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps(known))
            partial.replace(path)
            seconds = sum(seconds for seconds, _ in known["tests"].values())
            print(f"recorded {file}: {len(known['tests'])} {kind} tests, {seconds:.0f} s of "
                  f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        if known:
            found[file, kind] = known
    for test in long_tests(files, folder):
        file = test.split("::")[0]
        if "keys" not in found.get((file, "long"), {}):  # not recorded: known by name, 2 seconds by guess
            found.setdefault((file, "long"), {"tests": {}})["tests"][test] = [2.0, []]
    return found
