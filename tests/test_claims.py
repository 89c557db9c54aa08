"""Figures of README.md and docs are those of their files, from which the tables are written.

claims.csv has a text and the table of one row that holds its figures: `#` is a figure, `*` text up
to the next bar, and what stands in brackets may be left out.
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
WORDS = {r"\#": r"([\d.,]*\d)", r"\*\*": r"\*\*", r"\*": "[^|\n]*"}
WORDS |= {r"\[": "(?:", r"\]": ")?", r"\ ": r"\s"}
SYMBOLS = re.compile("|".join(map(re.escape, WORDS)))


def pattern(claim):
    return SYMBOLS.sub(lambda found: WORDS[found[0]], re.escape(claim))


with open(pathlib.Path(__file__).with_name("claims.csv"), newline="") as lines:
    CLAIMS = {pattern(row["claim"]): row["table"] for row in csv.DictReader(lines)}


def agrees(shown, value):
    """Whether a figure is the value, rounded to its decimals."""
    decimals = len(shown.partition(".")[2])
    return value and shown.replace(",", "") == f"{float(value.rstrip('%')):.{decimals}f}"


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_what_its_file_says(claim):
    (row,) = tables.cells(CLAIMS[claim])
    found = [m.groups() for text in PAGES.values() for m in re.finditer(claim, text)]
    assert found
    for figures in found:
        pairs = zip(figures, row, strict=True)
        assert not [pair for pair in pairs if pair[0] and not agrees(*pair)]


@pytest.mark.parametrize("path", [ROOT / "benchmarks/README.md", *FILES], ids=lambda p: p.name)
def test_tables_are_written_from_their_files(path):
    assert tables.written(path.read_text()) == path.read_text()


def test_what_names_a_file_and_what_says_seconds_is_claimed():
    for text in PAGES.values():
        claimed = {table.split(" ")[0] for claim, table in CLAIMS.items() if re.search(claim, text)}
        claimed |= {*re.findall(r"<!-- table: (\S+)", text), "crossings.csv"}  # see below
        assert {*re.findall(r"results/(\w+\.csv)", text)} <= claimed
    speed = PAGES["docs/speed.md"].split("\n## ")[0], PAGES["README.md"].partition("\n## Speed")[2]
    rows = [row for text in speed for row in re.findall(r"^\| (?!job ).*\d s\b.*", text, re.M)]
    assert len(rows) > 5
    assert not [row for row in rows if not any(re.search(claim, row) for claim in CLAIMS)]


def test_the_page_of_linear_solvers_is_what_crossings_says(capsys):
    rows, text, lines = saved("crossings"), PAGES["docs/linear.md"], 0
    heading = r"^\| rows \| columns \| not 0 \| C \| (.*) \|\n.*\n((?:\|.*\n)+)"
    for names, body in re.findall(heading, text, re.M):
        columns = ["rows", "columns", "C", *names.replace("`", "").split(" | ")]
        for line in body.splitlines():
            n, d, share, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            shown, lines = [n, d, *cells], lines + 1
            pairs = list(zip(shown, columns, strict=True))
            same = lambda row: all(a == row[k] or agrees(a, row[k]) for a, k in pairs)
            (row, *_) = filter(same, rows)
            assert agrees(share.rstrip("%"), str(100 * float(row["share"])))
    assert lines > 20
    crossings.regret([row for row in rows if row["auto"]])
    near, peer, right = re.findall(r"(\d+)%", capsys.readouterr().out)
    said = rf"in {near} % of\s+the runs, and at most twice \S+ time and 5 ms in {peer} %"
    assert right == "100" and re.search(said, text)
