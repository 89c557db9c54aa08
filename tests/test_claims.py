"""Figures of README.md and docs are those of their files, from which the tables are written.

claims.csv has the pattern of a text, and the table of one row that holds its figures.
"""

import csv
import pathlib
import re

import pytest

from benchmarks import tables
from benchmarks.common import saved
from benchmarks.speed import crossings

ROOT = pathlib.Path(__file__).parent.parent
FILES = [*ROOT.glob("README.md"), *ROOT.glob("docs/*.md")]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in FILES}
with open(pathlib.Path(__file__).with_name("claims.csv"), newline="") as lines:
    CLAIMS = {row["claim"]: row["table"] for row in csv.DictReader(lines)}


def agrees(shown, value):
    """Whether a figure is the value, rounded to its decimals."""
    decimals = len(shown.partition(".")[2])
    return shown.replace(",", "") == f"{float(value.rstrip('%') or 'nan'):.{decimals}f}"


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_what_its_file_says(claim):
    (row,) = tables.cells(CLAIMS[claim])
    found = [m.groups() for text in PAGES.values() for m in re.finditer(claim, text)]
    pairs = [pair for figures in found for pair in zip(figures, row, strict=True) if pair[0]]
    assert pairs and not [pair for pair in pairs if not agrees(*pair)]


@pytest.mark.parametrize("path", [ROOT / "benchmarks/README.md", *FILES], ids=lambda p: p.name)
def test_tables_are_written_from_their_files(path):
    assert tables.written(path.read_text()) == path.read_text()


def test_what_names_a_file_and_what_says_seconds_is_claimed():
    for text in PAGES.values():
        claimed = {table.split(" ")[0] for claim, table in CLAIMS.items() if re.search(claim, text)}
        claimed |= {*re.findall(r"<!-- table: (\S+)", text), "crossings.csv"}  # see below
        assert {*re.findall(r"results/(\w+\.csv)", text)} <= claimed
    speed = PAGES["docs/speed.md"].split("\n## ")[0]
    rows = re.findall(r"^\| (?!job ).*\d s\b.*", speed, re.M)
    assert len(rows) > 5 and all(any(re.search(c, row) for c in CLAIMS) for row in rows)


def test_the_page_of_linear_solvers_is_what_crossings_says(capsys):
    rows, text = saved("crossings"), PAGES["docs/linear.md"]
    for names, body in re.findall(r"\| rows \| .* \| C \| (.*) \|\n.*\n((?:\|.*\n)+)", text):
        columns = ["rows", "columns", "C", *names.replace("`", "").split(" | ")]
        for line in body.splitlines():
            n, d, _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            pairs = list(zip([n, d, *cells], columns, strict=True))
            assert any(all(a == row[k] or agrees(a, row[k]) for a, k in pairs) for row in rows)
    crossings.regret([row for row in rows if row["auto"]])
    near, peer, _ = re.findall(r"(\d+)%", capsys.readouterr().out)
    said = rf"in {near} % of\s+the runs, and at most twice \S+ time and 5 ms in {peer} %"
    assert re.search(said, text) and names
