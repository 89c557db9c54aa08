"""A share of the campaign `python -m benchmarks.robustness`: hostile input of every kind, judged by independent oracles."""

import collections
import json
import pathlib
import sys

import jax
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1]))
campaign = pytest.importorskip("benchmarks.robustness.campaign", reason="the folder benchmarks is not here")
cases = pytest.importorskip("benchmarks.robustness.cases")

# part -> (first seed, cases): two SIGKILLs and one SIGINT among them
SHARES = {
    "data": (100_000, 200),
    "factories": (120_000, 60),
    "loops": (100_000, 50),
    "exact": (100_000, 8),
    "files": (100_000, 60),
    "readers": (100_000, 150),
    "kills": (100_000, 2),
    "interrupts": (100_000, 1),
}


@pytest.fixture(autouse=True)
def user_settings():
    """JAX as users have it, with all frames in tracebacks: an exception of JAX would look as if it were ours."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        before = jax.config.jax_traceback_filtering
        jax.config.update("jax_traceback_filtering", "off")
        yield
        jax.config.update("jax_traceback_filtering", before)


@pytest.mark.long
@pytest.mark.parametrize("part", SHARES)
def test_a_share_of_the_campaign(part, tmp_path):
    """No silent wrong answer, no foreign traceback, no file loaded as something else."""
    first, count = SHARES[part]
    run = campaign.part_of(part)
    verdicts = [cases.judge(part, seed, run, tmp_path) for seed in range(first, first + count)]
    bad = [f"{v.verdict} {v.call}: {v.message} (seed {v.seed})" for v in verdicts if v.verdict in cases.BAD]
    assert not bad, "\n".join(bad)
    found = collections.Counter(v.verdict for v in verdicts)
    if count > 10:
        assert found["right"] >= count // 8 and found["refused"] >= count // 8, found
    assert not list(tmp_path.iterdir()), "files were left behind"


# What earlier campaigns found: an int32 C, dates and keys as a start, a NumPy function as a feature map, batches of lists,
# a bound that rounding made infinite, damaged SciPy matrices, a word of svmlight, a width whose square is 0, integers of 64 bits.
FOUND = {
    "data": (1255,),
    "factories": (50, 67, 97, 889, 1640, 1746, 2239),
    "loops": (140, 300, 463, 523, 735, 1396),
    "readers": (829,),
}


@pytest.mark.long
@pytest.mark.parametrize("part", FOUND)
def test_what_campaigns_found_stays_mended(part, tmp_path):
    run = campaign.part_of(part)
    verdicts = [cases.judge(part, seed, run, tmp_path) for seed in FOUND[part]]
    assert not [f"{v.verdict} {v.call}: {v.message}" for v in verdicts if v.verdict in cases.BAD]


def test_cases_are_decided_by_their_seeds(tmp_path):
    """The same verdicts, one after the other and in another order."""
    run = campaign.part_of("readers")
    once = [cases.judge("readers", seed, run, tmp_path) for seed in range(5)]
    again = [cases.judge("readers", seed, run, tmp_path) for seed in reversed(range(5))]
    assert [v[:3] for v in once] == [v[:3] for v in reversed(again)]


# The judge itself


def judged(fn, folder):
    return cases.judge("readers", 0, fn, folder)


def test_the_judge_knows_a_refusal_from_a_traceback(tmp_path):
    import jaxsvm

    rows = np.ones((2, 2))
    call = lambda fn, *a: judged(lambda case: case.attempt("call", fn, *a), tmp_path).verdict
    assert call(jaxsvm.dataset, rows, [1, -1]) == "right"
    assert call(jaxsvm.dataset, [[1, 1e9], [2, 3]], [1, -1]) == "warned"
    assert call(jaxsvm.dataset, rows, [1, 2]) == "refused"
    assert call(np.linalg.inv, rows) == "FOREIGN"
    assert call(jax.numpy.reshape, rows, (3,)) == "FOREIGN"
    assert call(lambda: {}["a"]) == "FOREIGN"


def test_the_judge_knows_other_verdicts(tmp_path):
    def fail(error):
        def run(case):
            raise error

        return judged(run, tmp_path).verdict

    assert fail(cases.Wrong("w")) == "WRONG"
    assert fail(cases.Different("d")) == "DIFFERENT"
    assert fail(RuntimeError("the campaign")) == "BROKEN"
    refused = judged(lambda case: case.attempt("call", __import__("jaxsvm").dataset, None, [1], must=True), tmp_path)
    assert refused.verdict == "WRONG" and "promises" in refused.message


# The command


def test_the_command_goes_on_where_it_was_cut(tmp_path, capsys):
    """Cases that are in the file are not run again; bad verdicts are listed with a command, and the status is 1."""
    out, table = tmp_path / "verdicts.jsonl", tmp_path / "table.csv"
    done = {"part": "readers", "call": "f()", "message": "", "seconds": 0.0, "verdict": "right"}
    lines = [json.dumps(done | {"seed": 0}), json.dumps(done | {"seed": 1, "verdict": "WRONG", "message": "off by 3"})]
    out.write_text("\n".join(lines) + '\n{"part": "rea')  # killed while it wrote
    arguments = ["--part", "readers", "--cases", "2", "--out", str(out), "--table", str(table)]
    assert campaign.main(arguments) == 1
    said = capsys.readouterr().out
    assert "off by 3" in said and "--part readers --cases 1 --seed 1" in said
    rows = table.read_text().splitlines()
    assert rows[0] == "part,cases,right,warned,refused,WRONG,FOREIGN,DIFFERENT,BROKEN"
    assert rows[1] == "readers,2,1,0,0,1,0,0,0" and rows[2] == "all,2,1,0,0,1,0,0,0"
    assert campaign.main(["--part", "readers", "--cases", "1", "--out", str(out), "--table", str(table)]) == 0


def test_a_whole_campaign_is_large_enough():
    """The figures that are promised: 10,000 cases, 100 kills over ten kinds of solver and more, 20 interrupts."""
    counts = campaign.COUNTS
    assert sum(counts.values()) - counts["kills"] - counts["interrupts"] >= 10_000
    assert counts["kills"] >= 100 and counts["interrupts"] >= 20
    from benchmarks.robustness import kills

    assert len(kills.kinds()) >= 10
