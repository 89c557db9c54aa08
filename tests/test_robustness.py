"""A share of the campaign `python -m benchmarks.trust.robustness`: hostile input of every kind,
judged by independent oracles."""

import collections
import json
import pathlib
import sys

import jax
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1]))
campaign = pytest.importorskip(
    "benchmarks.trust.robustness.campaign", reason="the folder benchmarks is not here"
)
cases = pytest.importorskip("benchmarks.trust.robustness.cases")
answers = pytest.importorskip("benchmarks.trust.robustness.answers")
faults = pytest.importorskip("benchmarks.trust.robustness.faults")

# part -> (first seed, cases): two SIGKILLs and one SIGINT among them; the fuzzed ones are those of
# `files`
SHARES = {
    "data": (100_000, 450),
    "factories": (120_000, 30),
    "loops": (100_000, 25),
    "exact": (100_000, 4),
    "answers": (100_016, 14),
    "selections": (100_000, 5),
    "files": (100_000, 60),
    "kills": (100_000, 2),
    "interrupts": (100_000, 1),
}


USERS = {
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_traceback_filtering": "off",
}


@pytest.fixture(autouse=True)
def user_settings():
    """JAX as users have it, in all threads, with all frames: an exception of JAX would look as if
    it were ours."""
    before = {name: getattr(jax.config, name) for name in USERS}
    for name, value in USERS.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


# A part of it for every run of the tests: the parts that compile little, and some kinds of answers.
SHORT = {"data": 16, "files": 6}
ANSWERS = {
    "kernel_block": 12,
    "objective_values": 2,
    "run_gone_on_with": 1,
    "dual_stream": 2,
    "weighted_stream": 3,
    "small_cache": 1,
    "several_classes": 1,
    "other_program": 2,
}


def judged_cases(part, seeds, folder):
    """The counts of verdicts, none of which is bad."""
    run = campaign.part_of(part)
    verdicts = [cases.judge(part, seed, run, folder) for seed in seeds]
    bad = [
        f"{v.verdict} {v.call}: {v.message} (seed {v.seed})"
        for v in verdicts
        if v.verdict in campaign.BAD
    ]
    assert not bad, "\n".join(bad)
    return collections.Counter(v.verdict for v in verdicts)


@pytest.mark.long
@pytest.mark.parametrize("part", SHORT)
def test_a_short_share(part, tmp_path):
    judged_cases(part, range(200_000, 200_000 + SHORT[part]), tmp_path)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_of_each_kind(kind, tmp_path):
    kinds = list(answers.KINDS)
    first, step = 10_000 * len(kinds) + kinds.index(kind), len(kinds)
    found = judged_cases("answers", range(first, first + ANSWERS[kind] * step, step), tmp_path)
    assert found["right"] == ANSWERS[kind]


@pytest.mark.long
@pytest.mark.parametrize("part", SHARES)
def test_a_share_of_the_campaign(part, tmp_path):
    """No silent wrong answer, no foreign traceback, no file loaded as something else, and most
    answers judged."""
    first, count = SHARES[part]
    found = judged_cases(part, range(first, first + count), tmp_path)
    accepted = sum(found[kind] for kind in campaign.ACCEPTED)
    assert accepted >= count / 8
    if part != "factories":  # most solvers have no formula of a few steps
        assert found["unjudged"] <= 0.3 * accepted, found
    assert not list(tmp_path.iterdir()), "files were left behind"


# What earlier campaigns found: an int32 C, dates and keys as a start, a NumPy function as a feature
# map, batches of lists,
# a bound that rounding made infinite, damaged SciPy matrices, a width whose square is 0,
# integers of 64 bits.
FOUND = {
    "data": (1255,),
    "factories": (50, 67, 97, 889, 1640, 1746, 2239),
    "loops": (140, 300, 463, 523, 735, 1396),
    "fuzzed liblinear": (475,),  # a count of classes that is no number
}


@pytest.mark.long
@pytest.mark.parametrize("part", FOUND)
def test_what_campaigns_found_stays_mended(part, tmp_path):
    judged_cases(part, FOUND[part], tmp_path)


def test_cases_are_decided_by_their_seeds(tmp_path):
    """The same verdicts, one after the other and in another order."""
    run = campaign.part_of("data")
    once = [cases.judge("data", seed, run, tmp_path) for seed in range(5)]
    again = [cases.judge("data", seed, run, tmp_path) for seed in reversed(range(5))]
    assert [v[:3] for v in once] == [v[:3] for v in reversed(again)]


# The judge itself


def judged(fn, folder):
    return cases.judge("data", 0, fn, folder)


def test_the_judge_knows_a_refusal_from_a_traceback(tmp_path):
    import jaxsvm

    rows = np.ones((2, 2))

    def call(fn, *a, twin=lambda: None):
        def run(case):
            case.twin = twin
            case.attempt("call", fn, *a)
            case.compare(True, "")

        return judged(run, tmp_path).verdict

    assert call(jaxsvm.dataset, rows, [1, -1]) == "right"
    assert call(jaxsvm.dataset, [[1, 1e9], [2, 3]], [1, -1]) == "warned"
    assert call(jaxsvm.dataset, rows, [1, 1]) == "refused"
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
    assert judged(lambda case: case.attempt("call", str), tmp_path).verdict == "unjudged"
    assert judged(lambda case: case.compare(False, "off by 3"), tmp_path).verdict == "WRONG"
    refused = judged(
        lambda case: case.attempt("call", __import__("jaxsvm").dataset, None, [1], must=True),
        tmp_path,
    )
    assert refused.verdict == "WRONG" and "promises" in refused.message


def test_the_judge_asks_for_the_valid_twin_of_a_refusal(tmp_path):
    """Refused as its twin is taken; wrong where the twin is refused, too; a refusal without a twin
    is no verdict."""
    import jaxsvm

    def refused(twin):
        def run(case):
            case.twin = twin
            case.attempt("call", jaxsvm.dataset, None, [1])

        return judged(run, tmp_path).verdict

    assert refused(lambda: jaxsvm.dataset(np.eye(2), [1, -1])) == "refused"
    assert refused(lambda: jaxsvm.dataset(np.eye(2), [1, 1])) == "WRONG"
    assert refused(lambda: np.linalg.inv(np.ones((2, 2)))) == "WRONG"
    assert refused(None) == "BROKEN"


@pytest.mark.long
def test_a_package_that_refuses_what_is_right_gets_bad_verdicts(tmp_path, monkeypatch):
    """Every sampler and every tolerance refused, in a sentence: no right answer is left of
    arguments of `fit`."""
    import jaxsvm

    fit, loops, package = (
        jaxsvm.fit,
        campaign.importlib.import_module("benchmarks.trust.robustness.loops"),
        cases.PACKAGE,
    )

    def refuses(*args, sampler=None, tol=None, **how):
        if sampler is not None or tol is not None:
            raise ValueError("no sampler and no tolerance are taken by this copy of the package")
        return fit(*args, **how)

    loops.known()["plain"]  # made by the package itself
    monkeypatch.setattr(jaxsvm, "fit", refuses)
    monkeypatch.setattr(cases, "PACKAGE", str(pathlib.Path(__file__).parent))
    monkeypatch.setattr(cases.refusal_fault, "__defaults__", (str(pathlib.Path(__file__).parent),))
    judge = lambda seed: cases.judge("loops", seed, loops.fit_arguments, tmp_path).verdict
    found = [judge(seed) for seed in range(4)]
    assert package and found.count("WRONG") == 4, found


# Planted faults


def test_each_fault_can_be_planted():
    """Thirty of them, in all kinds of folders; each text is there once."""
    assert len({fault.name for fault in faults.FAULTS}) == len(faults.FAULTS) == 30
    assert len({fault.file.split("/")[0] for fault in faults.FAULTS}) >= 15
    lost = {
        fault.name: faults.count_of(fault) for fault in faults.FAULTS if faults.count_of(fault) != 1
    }
    assert not lost, lost


@pytest.mark.long
def test_a_planted_fault_is_seen(tmp_path):
    """In a copy, which is as it was afterwards."""
    fault = next(fault for fault in faults.FAULTS if fault.name == "folds")
    faults.copy_to(tmp_path)
    planted = tmp_path / "jaxsvm" / fault.file
    before = planted.read_bytes()
    assert not faults.fails(tmp_path, fault.tests, tmp_path / "cache")
    assert (
        faults.seen_by(fault, tmp_path, tmp_path / "cache", named=True) == f"short: {fault.tests}"
    )
    assert planted.read_bytes() == before == (faults.ROOT / "jaxsvm" / fault.file).read_bytes()


# The command


def test_the_command_goes_on_where_it_was_cut(tmp_path, capsys):
    """Cases that are in the file are not run again; bad verdicts are listed with a command, and the
    status is 1."""
    out, table = tmp_path / "verdicts.jsonl", tmp_path / "table.csv"
    done = {"part": "data", "call": "f()", "message": "", "seconds": 0.0, "verdict": "right"}
    lines = [
        json.dumps(done | {"seed": 0}),
        json.dumps(done | {"seed": 1, "verdict": "WRONG", "message": "off by 3"}),
    ]
    out.write_text("\n".join(lines) + '\n{"part": "da')  # killed while it wrote
    arguments = ["--part", "data", "--cases", "2", "--out", str(out), "--table", str(table)]
    assert campaign.main(arguments) == 1
    said = capsys.readouterr().out
    assert "off by 3" in said and "--part data --cases 1 --seed 1" in said
    rows = table.read_text().splitlines()
    assert (
        rows[0] == "part,cases,right,warned,refused,unjudged,WRONG,FOREIGN,DIFFERENT,BROKEN,judged"
    )
    assert rows[1] == "data,2,1,0,0,0,1,0,0,0,100 %" and rows[2] == "all,2,1,0,0,0,1,0,0,0,100 %"
    arguments[3] = "1"
    assert campaign.main(arguments) == 0


def test_a_whole_campaign_is_large_enough():
    """The figures that are promised: 10,000 cases and 3,000 more for each kind of file, 200 kills
    over all loops, 20 interrupts."""
    counts = campaign.COUNTS
    fuzzed = [count for part, count in counts.items() if part.startswith("fuzzed")]
    assert len(fuzzed) == 3 and min(fuzzed) >= 3000
    assert sum(counts.values()) - sum(fuzzed) - counts["kills"] - counts["interrupts"] >= 10_000
    assert counts["kills"] >= 200 and counts["interrupts"] >= 20
    from benchmarks.trust.robustness import kills

    assert len(kills.kinds()) >= 10 and len(kills.calls()) == 2
