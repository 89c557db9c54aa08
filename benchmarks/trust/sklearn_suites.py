"""`python -m benchmarks.trust.sklearn_suites`: scikit-learn's own tests of its machines, on ours.

`test_svm.py`, `test_bounds.py` and `test_sparse.py` of the installed scikit-learn are copied to a temporary folder, and run
there with our classes in the place of those of the same name. The table says of each test whether it passes, and why a test
that fails does not apply. The reasons are in sklearn_suites_reasons.csv beside this file. A test that fails without a reason
ends the command with status 1; so does a reason for a test that passes. Most of the time is compilation: what was compiled
is found again in the folder of JAX_COMPILATION_CACHE_DIR.

`--only TEXT` runs the tests whose name holds the text, and writes no table.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from .. import common

SUITES = ("test_svm", "test_bounds", "test_sparse")
REASONS = pathlib.Path(__file__).with_name("sklearn_suites_reasons.csv")
# what `svm` is in the copies: our classes, and scikit-learn's functions
NAMES = """
import sklearn.svm
from sklearn.svm import *
from jaxsvm.estimators import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM

def __getattr__(name):
    return getattr(sklearn.svm, name)
"""
FIXTURES = """
import pytest

@pytest.fixture
def global_random_seed():
    return 42  # as scikit-learn's
"""
REPLACED = (
    (r"^from sklearn import (.*), svm$", r"from sklearn import \1\nimport our_svm as svm"),
    (r"^from sklearn\.svm import", "from our_svm import"),
    (r"^from sklearn\.svm\.tests import", "import"),
)


def with_our_classes(text: str) -> str:
    """The source of a test module whose machines are ours."""
    for pattern, new in REPLACED:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def run_suites(only: str = "") -> list[dict[str, str]]:
    """The test, its result and the first line of its error, for each test of the suites."""
    found = importlib.util.find_spec("sklearn.svm.tests")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the installed scikit-learn has no tests: install it from PyPI")
    source = pathlib.Path(found.submodule_search_locations[0])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for suite in SUITES:
            text = (source / f"{suite}.py").read_text(encoding="utf-8")
            (folder / f"{suite}.py").write_text(with_our_classes(text), encoding="utf-8")
        (folder / "our_svm.py").write_text(NAMES)
        (folder / "conftest.py").write_text(FIXTURES)
        (folder / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=out.xml", "-k", only]
        path = f"import sys; sys.path[:0] = {[name, str(pathlib.Path(__file__).parents[2])]!r}; import pytest; "
        command[1:3] = ["-c", path + "sys.exit(pytest.main(sys.argv[1:]))"]
        subprocess.run([*command, *(f"{suite}.py" for suite in SUITES)], cwd=folder, stdout=subprocess.DEVNULL, check=False)
        return [row_of(case) for case in ElementTree.parse(folder / "out.xml").iter("testcase")]


def row_of(case: ElementTree.Element) -> dict[str, str]:
    """The test, its result, and what it said."""
    outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    result = {None: "passes", "skipped": "is skipped"}.get(outcome if outcome is None else outcome.tag, "fails")
    said = "" if outcome is None else " ".join(outcome.get("message", "").split())[:200]
    return {"test": f"{case.get('classname')}::{case.get('name')}", "result": result, "why it does not apply": "", "said": said}


def reasons() -> dict[str, str]:
    """Why tests do not apply, by a pattern of their names (* stands for any text)."""
    with open(REASONS, newline="", encoding="utf-8") as file:
        return {row["test"]: row["reason"] for row in csv.DictReader(file)}


def with_reasons(rows: list[dict[str, str]], known: dict[str, str]) -> list[str]:
    """Fill in the reasons; returns a line for each test without one, and each reason without a test that fails."""
    wrong, used = [], set()
    # brackets of parameters are no patterns
    patterns = {pattern: re.sub(r"[\[\]]", "?", pattern) for pattern in known}
    for row in rows:
        if row["result"] != "fails":
            continue
        fitting = [pattern for pattern, glob in patterns.items() if fnmatch.fnmatchcase(row["test"], glob)]
        used |= set(fitting)
        row["why it does not apply"] = known[fitting[0]] if fitting else ""
        if not fitting:
            wrong.append(f"{row['test']} fails without a reason: {row['said']}")
    return wrong + [f"{pattern}: no such test fails any more" for pattern in known if pattern not in used]


def main(argv: list[str] | None = None) -> int:
    """Run the suites; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="the tests whose name holds the text; no table is written")
    options = parser.parse_args(argv)
    rows = run_suites(options.only)
    wrong = with_reasons(rows, reasons())
    if options.only:
        wrong = [line for line in wrong if "no such test" not in line]
    table = [{key: row[key] for key in ("test", "result", "why it does not apply")} for row in rows]
    if options.only:
        print("\n".join("  ".join(row.values()) for row in table))
    else:
        common.write("sklearn_suites", table)
    for suite in SUITES:
        results = [row["result"] for row in rows if row["test"].startswith(f"{suite}::")]
        print(f"{suite}: {results.count('passes')} of {len(results)} pass, {results.count('is skipped')} skipped")
    print("\n".join(wrong))
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
