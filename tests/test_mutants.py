"""The command `python -m benchmarks.trust.mutants`: the changes it makes, and what it says of those
that no test notices."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT))
changes = pytest.importorskip(
    "benchmarks.trust.mutants.changes", reason="the folder benchmarks is not here"
)
campaign = pytest.importorskip("benchmarks.trust.mutants.campaign")
imports = pytest.importorskip("benchmarks.trust.mutants.imports")

TOY = '''
def clip(value: "float | int", low: int = 3) -> "int":
    """The value, at least low: 1 + 2."""
    if value < low:
        raise ValueError(f"expected {low + 1}, got {value - 1}")
    assert value != 7
    return value


def name(a, b):
    first = a - 2.0
    if first == "x":
        warnings.warn("1" + str(a * b), stacklevel=2)
    return first, b


class Point:
    def __repr__(self):
        return 1 + 2

    def norm(self):
        return max(-self.x, self.y)


LIMIT = 1 + 2
'''


def made(seed=0):
    return list(changes.changes("jaxsvm/toy.py", TOY, seed))


def test_each_kind_of_change_is_made_and_texts_are_left_alone():
    found = {(c.function, c.change) for c in made()}
    assert {f for f, _ in found} == {"clip", "name", "Point.norm"}
    assert ("clip", "return value -> return low") in found
    assert ("name", "a - 2.0 -> a + 2.0") in found and ("name", "2.0 -> 4.0") in found
    assert ("name", "first == 'x' -> first != 'x'") in found
    assert ("name", "return (first, b) -> return (b, first)") in found
    assert ("Point.norm", "-self.x -> self.x") in found
    assert ("Point.norm", "max(-self.x, self.y) -> min(-self.x, self.y)") in found
    # nothing of the message, the assertion, the annotations, the default
    assert {c for f, c in found if f == "clip"} <= {
        "value < low -> value <= low",
        "value < low -> value >= low",
        "if value < low: -> if not value < low:",
        "return value -> return low",
    }
    assert not any("str(a" in c for _, c in found)


def test_equal_seeds_make_equal_changes():
    assert made(3) == made(3)
    assert len({tuple(made(seed)) for seed in range(8)}) > 1


def test_a_change_is_found_again_where_lines_have_shifted():
    change = next(c for c in made() if c.kind == "comparison")
    shifted = "# a comment\n\n" + TOY
    scope = {}
    tree = changes.changed(change.file, shifted, change)
    exec(compile(tree, "toy", "exec"), scope)
    assert ast.unparse(tree).replace(
        change.change.split(" -> ")[1], change.change.split(" -> ")[0]
    ) == ast.unparse(ast.parse(TOY))
    at_limit = [lambda: scope["clip"](3, 3)]  # `<=` refuses 3, and `>=` too
    for call in at_limit:
        with pytest.raises(ValueError, match="expected 4, got 2"):
            call()


def test_the_statements_that_run_are_noted():
    hits = imports.Hits()
    scope = {}
    exec(compile(hits.transform("jaxsvm/toy.py", TOY), "toy", "exec"), scope)
    hits.take()
    assert scope["clip"](5) == 5
    keys = list(hits.keys)
    ran = ["clip: assert value != 7", "clip: if value < low:", "clip: return value"]
    assert sorted(keys[i][1] for i in hits.take()) == ran
    assert hits.take() == []
    assert scope["clip"].__doc__ == "The value, at least low: 1 + 2."


def test_survivors_are_reported_and_equivalent_changes_are_not(monkeypatch, capsys):
    first, second, third = (c._asdict() for c in made()[:3])
    verdicts = [
        first | {"verdict": "alive"},
        second | {"verdict": "killed"},
        third | {"verdict": "alive"},
    ]
    reasons = {(third["file"], third["line"], third["change"]): "no test can tell"}
    monkeypatch.setattr(campaign, "equivalents", lambda: reasons)
    rows = campaign.report(verdicts)
    said = capsys.readouterr().out
    assert first["change"] in said and second["change"] not in said and third["change"] not in said
    assert rows[-1] == {
        "folder": "all",
        "changes": 3,
        "killed": 1,
        "alive": 1,
        "equivalent": 1,
        "unreached": 0,
    }


def test_every_equivalent_change_is_one_of_the_sources():
    """An entry whose line is gone says nothing; each has a reason."""
    for (file, line, change), reason in campaign.equivalents().items():
        lines = [text.strip() for text in (ROOT / file).read_text().splitlines()]
        assert line in lines and " -> " in change and len(reason) > 10, (file, line)


@pytest.mark.long
def test_the_command_runs_changes_and_goes_on(tmp_path):
    """Changes of a schedule are noticed by its tests; the second call has nothing left to do."""
    start = [
        sys.executable,
        "-m",
        "benchmarks.trust.mutants",
        "--part",
        "schedules.py",
        "--count",
        "2",
        "--work",
        str(tmp_path),
    ]
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {
        "PYTHONPATH": str(ROOT)
    }
    options = {"cwd": ROOT, "env": environment, "check": True, "capture_output": True, "text": True}
    table = tmp_path / "counts.csv"
    said = subprocess.run(
        [*start, "--tests", "tests/test_schedules.py", "--table", str(table)], **options
    ).stdout
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert "recorded tests/test_schedules.py" in said and len(verdicts) == 2
    assert {v["verdict"] for v in verdicts} <= {"killed", "alive"} and any(
        v["by"] for v in verdicts
    )
    assert table.read_text().splitlines()[0] == "folder,changes,killed,alive,equivalent,unreached"
    assert (
        "1/"
        not in subprocess.run(
            [*start, "--tests", "tests/test_schedules.py", "--table", str(table)], **options
        ).stdout
    )
