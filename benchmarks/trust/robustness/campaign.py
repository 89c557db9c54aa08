"""The campaign: processes that run cases, the file of verdicts, the table of counts."""

from __future__ import annotations

import argparse
import atexit
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import shutil
import sys
import tempfile
import time

BAD = ("WRONG", "FOREIGN", "DIFFERENT", "BROKEN")
ACCEPTED = ("right", "warned", "unjudged")
VERDICTS = ("right", "warned", "refused", "unjudged", *BAD)
COUNTS = {  # part -> cases of a whole campaign
    "data": 3200,
    "factories": 2400,
    "loops": 1600,
    "exact": 400,
    "answers": 800,
    "selections": 100,
    "files": 1600,
    "kills": 200,
    "interrupts": 20,
}
MODULES = {  # the module and function of parts that have other names than theirs
    "data": ("rows", "run"),
    "interrupts": ("kills", "interrupt"),
}
FUZZED = ("damaged", "libsvm", "liblinear")
COUNTS |= {f"fuzzed {name}": 3000 for name in FUZZED}
MODULES |= {f"fuzzed {name}": ("fuzzed", name) for name in FUZZED}
SECONDS = 300  # a case that takes longer hangs


def part_of(name: str):
    """The function that runs a case of a part."""
    module, function = MODULES.get(name, (name, "run"))
    return getattr(importlib.import_module(f"benchmarks.trust.robustness.{module}"), function)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust.robustness",
    description=importlib.import_module(__package__).__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--part", action="append", choices=list(COUNTS), help="one part, or several; none: all")
    parser.add_argument("--cases", type=int, help="cases of each part; none: those of the whole campaign")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; with --cases 1 one case is run again")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds; the same command goes on from there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines of verdicts: cases in it are not run again")
    parser.add_argument("--table", type=pathlib.Path, help="the table of counts; none: benchmarks/results/robustness.csv")
    parser.add_argument("--verbose", action="store_true", help="print every case as it ends")
    return parser.parse_args(argv)


def work(pipe) -> None:
    """A process that runs the cases that it is sent; it compiles for itself and shares what is compiled."""
    import jax

    # JAX hides frames of its own from a traceback: an exception of its own would look as if it were ours.
    jax.config.update("jax_traceback_filtering", "off")
    from .cases import judge

    pipe.send("ready")
    sys.stderr = open(os.devnull, "w")  # progress bars and warnings of other packages
    with tempfile.TemporaryDirectory() as folder:
        while True:
            job = pipe.recv()
            if job is None:
                return
            part, seed = job
            began = time.monotonic()
            verdict = judge(part, seed, part_of(part), pathlib.Path(folder))
            pipe.send(verdict._asdict() | {"seconds": round(time.monotonic() - began, 3)})


class Worker:
    """A process and the case that it works on."""

    def __init__(self, context):
        self.context, self.job = context, None
        self.start()

    def start(self) -> None:
        """Begin a process."""
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=work, args=(other,))
        self.process.start()
        other.close()
        try:
            self.pipe.recv()
        except EOFError:
            sys.exit("a process of the campaign could not begin")

    def give(self, job: tuple[str, int]) -> None:
        """Send a case."""
        self.job, self.began = job, time.monotonic()
        self.pipe.send(job)

    def ended(self, ready: bool) -> dict | None:
        """The verdict, where there is one; a process that hangs is killed, and one that died is replaced."""
        what = None
        if ready:
            try:
                found = self.pipe.recv()
                self.job = None
                return found
            except (EOFError, ConnectionResetError):
                self.process.join()
                what = f"the process died with exit code {self.process.exitcode}"
        elif time.monotonic() - self.began > SECONDS:
            self.process.kill()
            self.process.join()
            what = f"no answer within {SECONDS} seconds"
        if what is None:
            return None
        part, seed = self.job
        self.job = None
        self.start()
        return {"part": part, "seed": seed, "verdict": "FOREIGN", "call": "", "message": what, "seconds": SECONDS}

    def close(self) -> None:
        """End the process."""
        if self.job is None:
            self.pipe.send(None)
        else:
            self.process.kill()
        self.process.join()


def run_all(jobs: list[tuple[str, int]], processes: int, seconds: float | None, tell) -> None:
    """Run the cases on some processes; `tell` gets each verdict."""
    from jaxsvm.loops.progress import Bar

    context, began = multiprocessing.get_context("spawn"), time.monotonic()
    workers = [Worker(context) for _ in range(max(1, min(processes, len(jobs))))]
    bar, made, coming, bad = Bar(len(jobs), "cases"), 0, iter(jobs), 0
    try:
        while True:
            over = seconds is not None and time.monotonic() - began > seconds
            for worker in workers:
                if worker.job is None and not over and (job := next(coming, None)) is not None:
                    worker.give(job)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                return
            ready = multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=1)
            for worker in busy:
                verdict = worker.ended(worker.pipe in ready)
                if verdict is not None:
                    made += 1
                    bad += verdict["verdict"].isupper()
                    tell(verdict)
                    bar.show(made, f"{bad} bad")
    finally:
        for worker in workers:
            worker.close()
        bar.close()


def known_verdicts(path: pathlib.Path) -> dict[tuple[str, int], dict]:
    """The verdicts of earlier calls; a last line that was cut off by a kill is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            verdict = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[verdict["part"], verdict["seed"]] = verdict
    return found


def judged_share(counts: dict) -> str:
    """The share of accepted cases that an independent answer judged, in percent."""
    accepted = sum(counts[kind] for kind in ACCEPTED)
    return f"{100 * (1 - counts['unjudged'] / accepted):.0f} %" if accepted else ""


def main(argv: list[str] | None = None) -> int:
    """The campaign; 1 if there was a bad verdict."""
    chosen = options(argv)
    parts = chosen.part or list(COUNTS)
    # Parts take turns, so that a call that is cut short has met all of them.
    counts = {part: chosen.cases or COUNTS[part] for part in parts}
    jobs = [(i / counts[part], part, chosen.seed + i) for part in parts for i in range(counts[part])]
    jobs = [(part, seed) for _, part, seed in sorted(jobs)]
    before = known_verdicts(chosen.out) if chosen.out else {}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # what one process compiles, the others find
        os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="robustness")
        atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

    from benchmarks import common

    log = open(chosen.out, "a", buffering=1) if chosen.out else None
    verdicts = [before[job] for job in jobs if job in before]

    def tell(verdict):
        verdicts.append(verdict)
        if log:
            log.write(json.dumps(verdict) + "\n")
        if chosen.verbose:
            print(verdict, flush=True)

    left = [job for job in jobs if job not in before]
    began = time.monotonic()
    if left:
        run_all(left, chosen.jobs, chosen.seconds, tell)
    table = []
    for part in parts:
        mine = [v for v in verdicts if v["part"] == part]
        table.append({"part": part, "cases": len(mine)} | {k: sum(v["verdict"] == k for v in mine) for k in VERDICTS})
    table.append({"part": "all"} | {k: sum(row[k] for row in table) for k in ("cases", *VERDICTS)})
    for row in table:
        row["judged"] = judged_share(row)
    bad = sorted((v for v in verdicts if v["verdict"] in BAD), key=lambda v: (v["part"], v["message"], v["seed"]))
    for v in bad:
        print(f"{v['verdict']} {v['call']}\n    {v['message']}\n    python -m benchmarks.trust.robustness --part {v['part']} "
              f"--cases 1 --seed {v['seed']}")  # fmt: skip
    whole = not chosen.part and chosen.cases is None
    if chosen.table or whole:
        target = chosen.table or common.RESULTS / "robustness.csv"
        common.RESULTS = target.parent
        common.write(target.stem, table)
    else:
        for row in table:
            print("  ".join(f"{k}={v}" for k, v in row.items()))
    print(f"{len(verdicts)} of {len(jobs)} cases, {len(bad)} bad, {time.monotonic() - began:.0f} s; {common.device()}")
    return 1 if bad else 0
