"""Faults that were planted, one at a time, and what sees each: `python -m benchmarks.trust.robustness.faults`.

Twelve were drawn to try the campaign and the tests, eighteen were added of other kinds in other folders. A fault is a text of
a file and what replaces it, so that it outlives shifted lines; `tests/test_robustness.py` checks that each text is still there.
The command plants a fault in a copy of the package and runs the short tests that are named with it, then the whole files, then
the campaign's share, until one of them fails.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[3]
CAMPAIGN = "tests/test_robustness.py"
SECONDS = 900  # a run that takes longer has not seen the fault


class Fault(NamedTuple):
    """A text of a file of the package and what replaces it."""

    name: str
    file: str
    old: str
    new: str
    what: str
    tests: str  # pytest's arguments: the short tests that see it


FAULTS = (
    Fault("pinball", "losses.py", "f < y, -self.tau * jnp.ones_like(f)", "f < y, self.tau * jnp.ones_like(f)",
          "sign in the slope of pinball", "tests/test_losses.py -k pinball"),
    Fault("folds", "data/fold_numbers.py", "    fold[order] = np.arange(n) % k",
          "    fold[order] = np.minimum(np.arange(n) % (k + 1), k - 1)",
          "last fold twice as large", "tests/data/test_folds.py"),
    Fault("cache", "engines/kernel_cache.py", "jnp.where(evicted, old_owner, n)", "jnp.full_like(old_owner, n)",
          "evicted kernel rows stay in the index", f"{CAMPAIGN} -k small_cache"),
    Fault("pairs", "wrappers/multiclass.py", "places = jnp.ones((), dtype), np.triu_indices(self.classes, 1)",
          "places = jnp.ones((), dtype), np.tril_indices(self.classes, -1)[::-1]",
          "another order of the pairs, right for three classes", f"{CAMPAIGN} -k several_classes"),
    Fault("shifts", "numerics/centring.py", "return centred(x, shift), centred(z, shift)",
          "return centred(x, offset(x)), centred(z, shift)",
          "the two sides of a block with shifts of their own", f"{CAMPAIGN} -k kernel_block"),
    Fault("waiting", "loops/streaming.py", "last._replace(index=index)",
          "last._replace(index=index, weight=np.ones_like(last.weight))",
          "weights of rows that wait for a batch are lost", f"{CAMPAIGN} -k weighted_stream"),
    Fault("narrow", "objectives/evaluate.py", "args = cast((arrays, tuple(carried(thing) for thing in statics)), jnp.float64)",
          "args = cast((arrays, tuple(carried(thing) for thing in statics)), jnp.float32)",
          "objectives and certificates in float32", f"{CAMPAIGN} -k objective_values"),
    Fault("resumed", "loops/streaming.py", "(int(state.seen), int(state.chunks))", "(0, int(state.chunks))",
          "a resumed stream numbers its rows from 0", f"{CAMPAIGN} -k dual_stream"),
    Fault("tolerance", "engines/dual_qp.py", "jnp.maximum(tol - rounding, jnp.maximum(tol, rounding) / 2)", "4 * tol",
          "four times the tolerance", "tests/solvers/test_exact.py tests/solvers/test_exact_runs.py"),
    Fault("nu slope", "implicit.py", "scale * (d_total - jnp.sum(d_bound, axis=1))",
          "scale * (jnp.sum(d_bound, axis=1) - d_total)",
          "sign in the derivatives of nu machines", "tests/test_implicit_cases.py -k closed_form"),
    Fault("rho", "models/libsvm.py", 'coef, -np.array(header["rho"]), width, k)', 'coef, np.array(header["rho"]), width, k)',
          "sign of rho of files of LIBSVM", f"{CAMPAIGN} -k other_program"),
    Fault("gains", "samplers/active_set.py", "per_visit(gain, visits) < per_visit(full_gain, s.count)",
          "per_visit(gain, visits) > per_visit(full_gain, s.count)",
          "gains of active_rows swapped", "tests/samplers/test_active_rows.py -k follow_the_rule"),
    # Of our own
    Fault("draws", "samplers/with_replacement.py", 'side="right"', 'side="left"',
          "off by one in rows drawn by weight", "tests/samplers/test_samplers.py -k 'proportion or adjacent'"),
    Fault("views", "data/chunking.py", "part.ctypes.data - root.ctypes.data", "part.ctypes.data - a.ctypes.data",
          "a part of a memory map is read from the beginning of the file", "tests/loops/test_stream.py -k memory_map"),
    Fault("schedule", "schedules.py", "_number(count, lam) + 1 / (eta0 * lam)", "_number(count, lam) + 1 + 1 / (eta0 * lam)",
          "off by one in Bottou's schedule", "tests/test_schedules.py"),
    Fault("diagonal", "kernels.py", "return self.of(lambda part: part.diag(x))",
          "return self.of(lambda part: 2 * part.diag(x))",
          "twice the diagonal in a combination of kernels", f"{CAMPAIGN} -k kernel_block"),
    Fault("merged", "budget/merging.py", "(coef_i + coef_j) * max_s", "(coef_i + coef_j)",
          "missing factor in the coefficient of a merged point", "tests/budget -k 'changed_bounds or no_point'"),
    Fault("pair number", "models/multiclass.py", "a * (2 * k - a - 1) // 2 + b - a - 1", "a * (k - 1) + b - a - 1",
          "number of a pair, right for three classes", f"{CAMPAIGN} -k several_classes"),
    Fault("sparse slope", "numerics/sparse_products.py", "dw + scatter(dcoef.T, x).T + scatter(coef.T, tangent).T",
          "dw + scatter(dcoef.T, x).T",
          "a term of the derivative of sparse sums is missing", "tests/spaces/test_sparse.py -k pointed_rows"),
    Fault("share", "objectives/evaluate.py", "return weight / weight.sum()",
          "return weight / weight.shape[0]",
          "weights that do not sum to 1", f"{CAMPAIGN} -k objective_values"),
    Fault("phase", "features/random_fourier.py", 'at_zero / (q if form == "paired" else features / 2)',
          'at_zero / (q if form == "paired" else features)',
          "missing factor in the phase form of Fourier features", "tests/features/test_fourier.py -k features_are_the_formula"),
    Fault("balanced", "estimators/classifier.py", "weight.sum() / (k * totals)", "weight.sum() / totals",
          "missing factor in class_weight='balanced'", "tests/estimators/test_estimators.py -k balanced"),
    Fault("average", "averaging.py", "1 / (number + 1)", "1 / (number + 2)",
          "off by one in the shares of an average", "tests/wrappers/test_averaging.py -k uniform_average"),
    Fault("held out", "loops/scoring.py", "np.average(losses[rows], weights=weights[rows])", "np.average(losses[rows])",
          "weights lost in the scores of select", f"{CAMPAIGN} -k selections"),
    Fault("smooth slope", "implicit.py", "lax.custom_linear_solve(product, -d, solve",
          "lax.custom_linear_solve(product, d, solve",
          "sign in the derivatives of smooth linear machines", "tests/solvers/test_newton.py -k derivatives_of_a_run"),
    Fault("constant", "spaces/intercept.py", "self.inner.gram(batch) + 1", "self.inner.gram(batch)",
          "missing 1 in the products of rows with a constant feature", f"{CAMPAIGN} -k run_gone_on_with"),
    Fault("empty chunk", "loops/chunks.py", "while the next one is fetched\n        number += 1",
          "while the next one is fetched\n        number += int(number < 0 or len(batch.y) > 0)",
          "a chunk without rows is not counted", "tests/loops/test_stream.py -k is_read_once"),
    Fault("tie", "estimators/pairs.py", "votes_of(score >= 0, k)", "votes_of(score > 0, k)",
          "the vote of a value of 0", "tests/estimators/test_parity_svc.py -k pair_value_of_0"),
    Fault("primal", "solvers/dual/crammer_singer.py", "(jnp.sum(w * w) + jnp.sum(b * b)) / 2 + loss", "jnp.sum(w * w) / 2 + loss",
          "the gap without the bias", "tests/solvers/test_crammer_singer.py -k reports_its_gap"),
    Fault("rank", "coverage.py", "mass + mass / jnp.maximum(n, 1)", "mass + 0 / jnp.maximum(n, 1)",
          "off by one in the rank of a conformal set", "tests/test_coverage.py -k rank_is_exact"),
)  # fmt: skip


def count_of(fault: Fault, package: pathlib.Path = ROOT / "jaxsvm") -> int:
    """How often the text of a fault is in its file: once, or it can no longer be planted."""
    return (package / fault.file).read_text().count(fault.old)


def copy_to(folder: pathlib.Path) -> None:
    """The package, its tests and the campaign in another folder."""
    ignore = shutil.ignore_patterns("__pycache__", "results", ".*_cache")
    for name in ("jaxsvm", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)


def fails(folder: pathlib.Path, tests: str, cache: pathlib.Path, marker: str = "not long") -> bool:
    """Whether a run of tests in the folder fails.

    Raises:
        RuntimeError: there are no such tests.
    """
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", marker, *shlex.split(tests)]
    environment = os.environ | {"PYTHONPATH": str(folder), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    try:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest {tests} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.returncode == 1


def stages(fault: Fault) -> list[tuple[str, str, str]]:
    """What is run, in order: a name for the table, the tests, and the marker of pytest."""
    own = fault.tests.split(" -k ")[0]
    return [
        (f"short: {fault.tests}", fault.tests, "not long"),
        ("short: the campaign", f"{CAMPAIGN} -k 'share or answer'", "not long"),
        (f"long: {own}", own if own != CAMPAIGN else f"{own} -k 'share or answer'", ""),
        ("long: the campaign", f"{CAMPAIGN} -k 'share or answer'", ""),
    ]


def seen_by(fault: Fault, folder: pathlib.Path, cache: pathlib.Path, named: bool) -> str:
    """The first run that fails with the fault in the copy; "" if none does."""
    path = folder / "jaxsvm" / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise RuntimeError(
            f"{fault.file} holds the text of the fault {fault.name!r} {text.count(fault.old)} times, expected once"
        )
    try:
        path.write_text(text.replace(fault.old, fault.new))
        for name, tests, marker in stages(fault)[: 1 if named else 4]:
            if fails(folder, tests, cache, marker):
                return name
        return ""
    finally:
        path.write_text(text)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()


def write(rows: list[dict]) -> None:
    """Put these rows into the table, in place of those of earlier calls."""
    from benchmarks import common

    path = common.RESULTS / "faults.csv"
    known = {}
    if path.exists():
        with open(path, newline="") as file:
            known = {row["fault"]: row for row in csv.DictReader(file)}
    known |= {row["fault"]: row for row in rows}
    common.write("faults", [known[fault.name] for fault in FAULTS if fault.name in known])


def main(argv: list[str] | None = None) -> int:
    """The table; 1 if a fault is not seen, or if a test fails without one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust.robustness.faults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults by name; none: all")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a fault first")
    parser.add_argument("--named", action="store_true", help="the named tests only")
    chosen = parser.parse_args(argv)
    unknown = set(chosen.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    faults = [fault for fault in FAULTS if not chosen.names or fault.name in chosen.names]
    table = []
    with tempfile.TemporaryDirectory(prefix="faults") as name:
        folder = pathlib.Path(name) / "copy"
        cache = pathlib.Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or pathlib.Path(name) / "cache")
        folder.mkdir()
        copy_to(folder)
        own = [] if chosen.no_baseline else sorted({fault.tests for fault in faults})
        broken = [tests for tests in own if fails(folder, tests, cache)]
        for tests in broken:
            print(f"fails without a fault: {tests}", flush=True)
        for fault in faults:
            began = time.monotonic()
            seen = seen_by(fault, folder, cache, chosen.named)
            row = {"fault": fault.name, "file": fault.file, "what": fault.what, "seen by": seen or "nothing"}
            table.append(row | {"seconds": round(time.monotonic() - began)})
            print("  ".join(map(str, table[-1].values())), flush=True)
    lost = [row for row in table if row["seen by"] == "nothing"]
    print(f"{len(table) - len(lost)} of {len(table)} faults seen")
    write(table)
    return 1 if lost or broken else 0


if __name__ == "__main__":
    sys.exit(main())
