"""The command: draws changes, runs them, keeps verdicts, and writes the tables."""

from __future__ import annotations

import argparse
import collections
import importlib
import itertools
import json
import pathlib
import time
import tomllib
from collections.abc import Iterable

from . import changes, processes
from .imports import ROOT, install

EQUIVALENT = pathlib.Path(__file__).parent / "equivalent.toml"
VERDICTS = ("killed", "alive", "equivalent", "unreached")
QUICK = 12  # seconds of the tests that are tried first


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust.mutants",
    description=importlib.import_module(__package__).__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--count", type=int, default=320, help="changes, in equal parts of all folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", action="append", help="a folder or file below jaxsvm/, or several; none: all")
    parser.add_argument("--share", default="0/1", help="of several processes side by side this one, for instance 0/2 and 1/2")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds; the same command goes on from there")
    parser.add_argument("--limit", type=float, default=90, help="seconds of tests for a change that the first ones do not notice")
    parser.add_argument(
        "--again", action="store_true", help="run those alive and unreached again: after new tests, or with a larger limit"
    )
    parser.add_argument("--tests", action="append", help="a file of tests, or several; none: all")
    parser.add_argument("--long", action="store_true", help="record long tests too, once; they are used from then on")
    parser.add_argument("--rerecord", action="store_true", help="record test files again that have changed")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants", help="folder of records and verdicts")
    parser.add_argument("--table", type=pathlib.Path, help="counts; none: benchmarks/results/mutants.csv for a whole run")
    return parser.parse_args(argv)


def folder_of(file: str) -> str:
    """`solvers` of jaxsvm/solvers/dual/sdca.py, and `.` of jaxsvm/losses.py."""
    parts = file.split("/")
    return parts[1] if len(parts) > 2 else "."


def drawn(count: int, seed: int, reached: set[tuple[str, str]], parts: list[str] | None) -> list[changes.Change]:
    """Changes in functions that tests run: equal parts of all folders, in an order that the seed decides."""
    pools = collections.defaultdict(list)
    for path in sorted((ROOT / "jaxsvm").rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if parts is None or any(file.startswith(f"jaxsvm/{part}") for part in parts):
            found = changes.changes(file, path.read_text(), seed)
            pools[folder_of(file)] += [change for change in found if (file, change.function) in reached]
    for pool in pools.values():
        pool.sort(key=lambda change: changes.digest(seed, *change.name))
    turns = itertools.zip_longest(*(pools[name] for name in sorted(pools)))
    return list(itertools.islice((change for turn in turns for change in turn if change is not None), count))


class Tests:
    """Which tests run which statements."""

    def __init__(self, records: dict[tuple[str, str], dict]):
        self.seconds, self.hits, self.in_file = {}, {}, collections.defaultdict(set)
        self.of, self.functions = collections.defaultdict(set), set()
        for (file, _), found in records.items():
            for test, (seconds, hits) in found["tests"].items():
                self.seconds[test], self.hits[test] = seconds, len(hits)
                self.in_file[file].add(test)
                for hit in hits:
                    self.of[tuple(found["keys"][hit])].add((file, test))
            self.functions.update((source, statement.split(": ")[0]) for source, statement in found.get("keys", ()))

    def order(self, change: changes.Change) -> list[str]:
        """Tests of a change: first the short ones that run little else.

        JAX traces a function once for several tests of a file. Those that do not run the statement come later, as if they ran as
        much as those of their file that do.
        """
        direct, cost = collections.defaultdict(set), {}
        for file, test in self.of[change.file, change.statement]:
            direct[file].add(test)
        for file, tests in direct.items():
            least = min(self.hits[test] for test in tests)
            for test in self.in_file[file]:
                cost[test] = (0.5 + self.seconds[test]) * (self.hits[test] if test in tests else 2 * max(least, self.hits[test]))
        return sorted(set(cost) - {""}, key=cost.__getitem__)

    def near(self, test: str, change: changes.Change) -> bool:
        """Whether the file of a test has the name or the folder of the module."""
        file = test.split("::")[0]
        return pathlib.Path(change.file).stem in file or folder_of(change.file) == file.split("/")[1]

    def within(self, tests: list[str], limit: float) -> list[str]:
        """As many as end within `limit` seconds, one at least; a file takes half a second to read."""
        total, files = 0.0, set()
        for count, test in enumerate(tests):
            total += self.seconds[test] + 0.02 + 0.5 * (test.split("::")[0] not in files)
            files.add(test.split("::")[0])
            if total > limit and count:
                return tests[:count]
        return tests


def run(change: changes.Change, tests: list[str], tests_of: Tests, seed: int, log: pathlib.Path) -> str | None:
    """The test that fails under the change, or does not end; None where all pass."""
    usual = sum(tests_of.seconds[test] for test in tests)

    def work(tell):
        source = (ROOT / change.file).read_text()
        tree = changes.changed(change.file, source, change, seed)
        compile(tree, change.file, "exec")  # a mistake here is ours, not what a test notices
        install(lambda file, source: tree, lambda file: file == change.file)
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        status = processes.run_pytest(["-x", "-m", "", *files], processes.Chosen(tests, tell))
        tell({"status": status})

    cpu = 30 + 6 * usual
    last, status = "", None
    for message in processes.in_child(work, log, cpu, 60 + 10 * cpu):
        last, status = message.get("start", last), message.get("status", status)
        if "failed" in message:
            return message["failed"]
        if message.get("end", "exit") != "exit":
            return f"{last} ({message['end']})"
    if status is None:
        raise RuntimeError(f"the child did not reach its end: {log.read_text()[-2000:]}")
    return None if status == 0 else f"pytest ended with status {status}"


def judge(change: changes.Change, tests: Tests, seed: int, limit: float, log: pathlib.Path) -> dict:
    """The verdict on one change."""
    began = time.monotonic()
    order = tests.order(change)
    first = tests.within(order, min(QUICK, limit))
    by = run(change, first, tests, seed, log) if first else None
    rest = [] if by else tests.within(sorted(order[len(first) :], key=lambda test: not tests.near(test, change)), limit)
    by = by or (run(change, rest, tests, seed, log) if rest else None)
    verdict = "killed" if by else "alive" if first or rest else "unreached"
    return change._asdict() | {"verdict": verdict, "by": by, "tests": len(first) + len(rest),
                               "seconds": round(time.monotonic() - began, 1)}  # fmt: skip


def known_verdicts(path: pathlib.Path) -> dict[tuple, dict]:
    """The last verdict on each change; a line that was cut off by a kill is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            verdict = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[tuple(verdict[name] for name in ("file", "function", "line", "change"))] = verdict
    return found


def equivalents(path: pathlib.Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Reasons why a change cannot be noticed, by file, line and change."""
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    return {(entry["file"], entry["line"], entry["change"]): entry["reason"] for entry in entries}


def report(verdicts: Iterable[dict]) -> list[dict]:
    """Prints those alive; counts by folder."""
    reasons, table = equivalents(), collections.defaultdict(collections.Counter)
    for verdict in sorted(verdicts, key=lambda v: (v["file"], v["number"])):
        kind = verdict["verdict"]
        if kind != "killed" and (verdict["file"], verdict["line"], verdict["change"]) in reasons:
            kind = "equivalent"
        table[folder_of(verdict["file"])][kind] += 1
        if kind in ("alive", "unreached"):
            print(f"{kind} {verdict['file']}:{verdict['number']} {verdict['function']}\n    {verdict['line']}\n"
                  f"    {verdict['change']}")  # fmt: skip
    rows = [
        {"folder": name, "changes": sum(table[name].values())} | {v: table[name][v] for v in VERDICTS} for name in sorted(table)
    ]
    rows.append({"folder": "all"} | {k: sum(row[k] for row in rows) for k in ("changes", *VERDICTS)})
    return rows


def main(argv: list[str] | None = None) -> int:
    """Run the changes that have no verdict yet; print those alive and the counts."""
    chosen = options(argv)
    began = time.monotonic()
    chosen.work.mkdir(parents=True, exist_ok=True)
    processes.prepare(chosen.work)
    tests = Tests(processes.records(chosen.work, chosen.tests or processes.test_files(), chosen.rerecord, chosen.long))
    sample = drawn(chosen.count, chosen.seed, tests.functions, chosen.part)
    path = chosen.work / "verdicts.jsonl"
    known = known_verdicts(path)
    reasons = equivalents()
    is_open = lambda c: known[c.name]["verdict"] != "killed" and (c.file, c.line, c.change) not in reasons
    turn, of = map(int, chosen.share.split("/"))
    left = [c for c in sample[turn::of] if c.name not in known or (chosen.again and is_open(c))]
    with open(path, "a", buffering=1) as log:
        for done, change in enumerate(left, 1):
            if chosen.seconds is not None and time.monotonic() - began > chosen.seconds:
                break
            verdict = judge(change, tests, chosen.seed, chosen.limit, chosen.work / f"log{turn}.txt")
            log.write(json.dumps(verdict) + "\n")
            print(f"{done}/{len(left)} {verdict['verdict']} {change.file}:{change.number} {change.change} | {verdict['by']}, "
                  f"{verdict['seconds']} s", flush=True)  # fmt: skip
    known = known_verdicts(path)  # those of other shares too
    rows = report(known[change.name] for change in sample if change.name in known)

    from benchmarks import common

    if chosen.table or not chosen.part and all(change.name in known for change in sample):
        target = chosen.table or common.RESULTS / "mutants.csv"
        common.RESULTS = target.parent
        common.write(target.stem, rows)
    else:
        for row in rows:
            print("  ".join(f"{k}={v}" for k, v in row.items()))
    return 0
