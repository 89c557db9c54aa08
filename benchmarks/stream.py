"""A file larger than the memory given to it, streamed: `python -m benchmarks.stream [gigabytes]` (4 by default).

Averaged Pegasos on minibatches of 64, 128 columns. Each figure comes from a process of its own: rows a second and the
largest resident memory, of the memory-mapped file and of the same rows as an array; then a run that is killed half-way
and gone on with, compared bit for bit. The file lies in a temporary folder.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

import jaxsvm
from benchmarks.common import write
from benchmarks.one_machine import resident

COLUMNS, BATCH, CHUNK = 128, 64, 131_072  # a chunk is 64 MiB
SOLVER = jaxsvm.averaged(jaxsvm.pegasos(1e-4), weights=lambda t: t + 1)


def make(folder: pathlib.Path, rows: int) -> None:
    """Rows of a noisy linear problem, written a block at a time."""
    random = np.random.default_rng(0)
    w = random.normal(size=COLUMNS).astype(np.float32)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int8, (rows,))
    for start in range(0, rows, CHUNK):
        stop = min(start + CHUNK, rows)
        block = random.standard_normal((stop - start, COLUMNS), np.float32) / COLUMNS**0.5
        x[start:stop] = block
        y[start:stop] = np.where(block @ w + 0.5 * random.standard_normal(stop - start, np.float32) > 0, 1, -1)
    x.flush()
    y.flush()


def child(folder: pathlib.Path, how: str) -> None:
    """One run; prints rows a second, resident memory before and after in GB, and the model's bytes."""
    x, y = (np.load(folder / name, mmap_mode="r") for name in ("x.npy", "y.npy"))
    if how == "memory":
        x, y = np.array(x), np.array(y)
    parts = jaxsvm.data.chunks(x, y, rows=CHUNK)
    options = dict(batch_size=BATCH - 1 if how == "odd" else BATCH)
    jaxsvm.stream(SOLVER, [parts[0]], jax.random.key(0), **options)  # compiles
    before, state = resident(), None
    if how == "kill":
        options["save"] = folder / "run.npz"
    if how == "resume":
        state = jaxsvm.models.load(folder / "run.npz")
        parts = parts[int(state.chunks) :]
    began = time.perf_counter()
    run = jaxsvm.stream(SOLVER, parts, jax.random.key(0), state=state, **options)
    seconds = time.perf_counter() - began
    made = int(run.state.step) - (int(state.step) if state else 0)
    print(made * options["batch_size"] / seconds, before, resident(), np.asarray(run.model.w).tobytes().hex())


def row(label, repeat, rows, pace, before, after) -> dict:
    return {"run": label, "repeat": repeat, "gigabytes": round(4e-9 * COLUMNS * rows, 2), "rows": rows,
            "rows_per_s": round(float(pace)), "resident_before_GB": f"{float(before):.2f}",
            "resident_GB": f"{float(after):.2f}"}  # fmt: skip


def start(folder: pathlib.Path, how: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stream", "--child", str(folder), how], stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(pathlib.Path(sys.argv[2]), sys.argv[3])
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    rows = int(gigabytes * 1e9 / (4 * COLUMNS))
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make(folder, rows)
        found = {}
        for repeat in range(3):
            for how in ("odd", "file", "memory"):
                pace, before, after, w = start(folder, how).communicate()[0].split()
                found.setdefault(how, []).append(float(pace))
                label = f"file, steps of {BATCH - 1} rows" if how == "odd" else how
                table.append(row(label, repeat, rows, pace, before, after))
        whole = w
        killed = start(folder, "kill")
        while not (folder / "run.npz").exists():
            time.sleep(0.01)
        time.sleep(rows / np.median(found["file"]) / 2)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        chunks = int(jaxsvm.models.load(folder / "run.npz").chunks)
        pace, before, after, w = start(folder, "resume").communicate()[0].split()
        bits = "the same bits" if w == whole else "OTHER BITS"
        label = f"killed after {chunks} of {-(-rows // CHUNK)} chunks, gone on with: {bits}"
        table.append(row(label, 0, rows, pace, before, after))
    write("stream", table)
    ratio = np.median(found["file"]) / np.median(found["memory"])
    print(f"file against memory, medians of 3: {ratio:.2f}")


if __name__ == "__main__":
    main()
