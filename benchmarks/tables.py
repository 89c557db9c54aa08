"""`python -m benchmarks.tables`: the tables of benchmarks/README.md and of docs, written from benchmarks/results/.

A marker stands before the heading of a table, and the lines below the heading are written again:

    <!-- table: FILE.csv | CONDITIONS | COLUMNS | CELLS -->

CONDITIONS choose rows of the file: `C=1 & job=exact .*`, regular expressions of the whole value. Rows with the same values of
COLUMNS make one row of the table; `-` makes one of each, `all` one of all. CELLS are `seconds as .1f`: the mean
of the values and its format, or `max of seconds as .1f`, `min of`, `count of`. Without a format the one
value is copied. `error where method=sbp as .1f` takes some of the rows only. Items are parted by `; `.
"""

from __future__ import annotations

import pathlib
import re
import statistics

from .common import saved

ROOT = pathlib.Path(__file__).parent.parent
TABLE = re.compile(r"(<!-- table: (.*?) -->\n\|[^\n]*\n\|[-|]+\n)((?:\|[^\n]*\n)*)", re.S)
CELL = re.compile(r"(?:(min|max|count) of )?(.+?)(?: where (.+?))?(?: as (.+))?")


def fits(row: dict, conditions: str) -> bool:
    """Whether a row has the values."""
    pairs = [part.split("=", 1) for part in conditions.split(" & ") if part != "-"]
    return all(re.fullmatch(value, row[key], re.S) for key, value in pairs)


def cell(rows: list[dict], spec: str) -> str:
    """A cell of rows that make one row of a table; empty where they have no value."""
    how, column, where, form = CELL.fullmatch(spec).groups()
    values = [row[column] for row in rows if row[column] and fits(row, where or "-")]
    if how == "count":
        return f"{len(values):,}"
    if not values:
        return ""
    if not form:
        (value,) = set(values)
        return value
    return format({"min": min, "max": max, None: statistics.fmean}[how](map(float, values)), form)


def cells(marker: str) -> list[list[str]]:
    """The rows of a table."""
    file, where, by, specs = " ".join(marker.split()).split(" | ")
    groups = {}
    for place, row in enumerate(saved(file.removesuffix(".csv"))):
        if fits(row, where):
            key = {"-": place, "all": 0}.get(by) if by in ("-", "all") else tuple(row[key] for key in by.split("; "))
            groups.setdefault(key, []).append(row)
    return [[cell(rows, spec) for spec in specs.split("; ")] for rows in groups.values()]


def written(text: str) -> str:
    """A document with its tables written again."""
    lines = lambda found: [f"| {' | '.join(row)} |\n" for row in cells(found[2])]
    return TABLE.sub(lambda found: found[1] + "".join(lines(found)), text)


def main() -> None:
    """Write the documents that have tables."""
    for path in (ROOT / "benchmarks/README.md", *(ROOT / "docs").glob("*.md")):
        if "<!-- table: " in path.read_text():
            path.write_text(written(path.read_text()))


if __name__ == "__main__":
    main()
