"""Part `commands`: commands with a full disk, a closed pipe, a closed stream, a killed process, a folder that is read-only.

Right: status 0 and the whole of every result; or another status, one line that says why wherever it can be printed, and
every file either as it was, or whole. The results are those of the same command with nothing in its way.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from .cases import Case, Foreign, Refused
from .kills import members

ROOT = pathlib.Path(__file__).parents[2]
DROP_BOUND, OVERRIDE = 24, 1  # of prctl: the right of root to write to folders that are read-only ends with the next program
COMMANDS = {
    "train": "train {rows} --model {model}",
    "train to the standard output": "train {rows} --model -",
    "train, certificate": "train {rows} --model {model} --kernel rbf --certificate",
    "predict": "predict {known} {rows}",
    "predict to a file": "predict {known} {rows} --out {out} --scores",
    "select": "select {rows} --kernel rbf --C 0.1:10:3 --gamma 0.1:1:2 --folds 2 --model {model} --save {save} --quiet",
    "sweep": "sweep {rows} --lam 1e-3:1e-1:3 --passes 2 --out {out}",
    "convert": "convert {rows} {made}",
    "info": "info {known}",
}
OUTPUTS = {"model": "model.npz", "out": "out.csv", "save": "save.npz", "made": "made.svm"}
WAYS = (
    "full standard output", "closed pipe", "closed standard output", "closed standard error", "full standard error",
    "both closed", "short files", "killed", "killed", "killed", "read-only folder", "no folder", "bad number",
)  # fmt: skip


class Ended(NamedTuple):
    """How a command ended, and what it left."""

    status: int | None  # None: killed
    output: bytes
    errors: str
    files: dict[str, bytes]


@functools.cache
def inputs() -> pathlib.Path:
    """A folder with rows and a model, which all may read."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="robustness_commands"))
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    np.savetxt(folder / "rows.csv", np.c_[x, np.where((x**2).sum(1) > 2.3, 1, -1)], delimiter=",", fmt="%.9g")
    subprocess.run([*program(), "train", folder / "rows.csv", "--model", folder / "known.npz"], check=True, capture_output=True,
                   cwd=ROOT)  # fmt: skip
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    return folder


def program() -> list[str]:
    """The command line of jaxsvm."""
    return [sys.executable, "-m", "jaxsvm"]


def words(name: str, folder: pathlib.Path) -> list[str]:
    """The arguments of a command whose results go to a folder."""
    paths = {key: str(folder / file) for key, file in OUTPUTS.items()}
    paths |= {"rows": str(inputs() / "rows.csv"), "known": str(inputs() / "known.npz")}
    return [word.format(**paths) for word in COMMANDS[name].split()]


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """The files of a folder; of archives the arrays, as their headers name versions and times."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if path.name == OUTPUTS["save"]:  # holds seconds, and a part of a grid
            continue
        text = path.read_bytes()
        try:
            arrays = members(text)
        except Exception:
            found[path.name] = text
            continue
        found[path.name] = b"".join(name.encode() + arrays[name] for name in sorted(arrays) if name != "header.npy")
    return found


@functools.cache
def whole(name: str) -> tuple[Ended, float]:
    """The command with nothing in its way, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the second finds what the first compiled
            began = time.monotonic()
            done = subprocess.run([*program(), *words(name, pathlib.Path(folder))], capture_output=True, cwd=ROOT)
            seconds = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.decode()}")
        return Ended(0, done.stdout, done.stderr.decode(), contents(pathlib.Path(folder))), seconds


def obstructed(case: Case, name: str, way: str, folder: pathlib.Path) -> Ended:
    """The command with something in its way."""
    arguments, how = words(name, folder), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    closed: list[int] = []
    prepare: list[Any] = []
    if way == "full standard output":
        how["stdout"] = open("/dev/full", "wb")
    if way == "full standard error":
        how["stderr"] = open("/dev/full", "wb")
    if way in ("closed standard output", "both closed"):
        prepare.append(lambda: os.close(1))
    if way in ("closed standard error", "both closed"):
        prepare.append(lambda: os.close(2))
    if way == "closed pipe":
        read, how["stdout"] = os.pipe()
        os.close(read)
        closed.append(how["stdout"])
    if way == "short files":
        size = int(case.random.integers(1, 2000))
        signal_free = lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        prepare += [signal_free, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))]
    if way == "read-only folder":
        folder.chmod(0o555)
        prepare.append(lambda: ctypes.CDLL(None).prctl(DROP_BOUND, OVERRIDE, 0, 0, 0))
    if way == "bad number":
        arguments += case.one((["--seed", "9" * 30], ["--label", "²"], ["--label=--5"], ["--label", "1e3"], ["--seed", "x"]))
        case.text += f" {arguments[-1]}"
    environment = os.environ | ({"PYTHONUNBUFFERED": "1"} if case.rarely(2) else {})
    if way in ("short files", "read-only folder"):
        arguments.append("--no-cache")
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    process = subprocess.Popen([*program(), *arguments], cwd=ROOT, env=environment,
                               preexec_fn=lambda: [step() for step in prepare], **how)  # fmt: skip
    for number in closed:
        os.close(number)
    if way == "killed":
        time.sleep(case.random.uniform(0, 1.1 * whole(name)[1]))
        process.kill()
    output, errors = process.communicate(timeout=120)
    folder.chmod(0o755) if folder.exists() else None
    status = None if process.returncode == -signal.SIGKILL else process.returncode
    return Ended(status, output or b"", (errors or b"").decode(), contents(folder))


def run(case: Case) -> None:
    """One case of the part."""
    name, way = list(COMMANDS)[case.seed % len(COMMANDS)], WAYS[case.seed // len(COMMANDS) % len(WAYS)]
    case.text, folder = f"{name}: {way}", case.folder / "results"
    folder.mkdir()
    folder.chmod(0o755)
    case.folder.chmod(0o755)
    case.folder.parent.chmod(0o755)
    (wanted, _), before = whole(name), {}
    if case.rarely(2) and wanted.files and way not in ("no folder", "read-only folder"):  # files of an earlier command
        for file in wanted.files:
            (folder / file).write_bytes(b"old")
            before[file] = b"old"
    if way == "no folder":
        folder.rmdir()
    found = obstructed(case, name, way, folder)
    case.judged = True
    for file, text in found.files.items():
        hidden = way == "killed" and file not in OUTPUTS.values()  # what a killed process was writing
        known = (wanted.files.get(file), before.get(file))
        case.expect(hidden or text in known, f"{file} holds something else, {len(text)} bytes; {found}"[:400])
    if found.status == 0:
        case.expect(found.files == wanted.files, f"status 0, and files {sorted(found.files)}")
        if way not in ("closed standard output", "both closed", "full standard output", "closed pipe"):
            case.expect(plain(found.output) == plain(wanted.output), f"status 0, and other output: {found.output[-300:]!r}")
        elif wanted.output and way != "closed standard output" and way != "both closed":
            case.expect(False, "status 0, and the output was lost")
        return
    if way == "killed":
        again = subprocess.run([*program(), *words(name, folder)], capture_output=True, cwd=ROOT)
        left = {file: text for file, text in contents(folder).items() if file in wanted.files}
        case.expect(again.returncode == 0 and left == wanted.files, f"made again: {again.stderr.decode()[-300:]}")
        return
    if "Traceback" in found.errors or "Exception ignored" in found.errors:
        raise Foreign(found.errors[-400:])
    spoken = [line for line in found.errors.splitlines() if re.match("jaxsvm.*: error|usage:|jaxsvm: ", line)]
    silent = way in ("closed standard error", "both closed", "full standard error")
    case.expect(silent or spoken, f"status {found.status} without a word: {found.errors[-300:]!r}")
    case.expect(found.status in (1, 2), f"status {found.status}: {found.errors[-300:]}")
    harmless = way in ("closed pipe", "full standard output", "closed standard output", "closed standard error",
                       "full standard error", "both closed")  # fmt: skip
    if harmless and "-" not in COMMANDS[name].split():  # the results are written, whatever becomes of the report
        case.expect(found.files == wanted.files, f"status {found.status}, and files {sorted(found.files)}: {found.errors[-300:]}")
    raise Refused(found.errors[-200:])


def plain(output: bytes) -> bytes:
    """The output without seconds and paths."""
    return re.sub(rb"\S*/\S*|[0-9.]+ (ms|s)\b", b"", output)
