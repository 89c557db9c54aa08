"""The table of `select`, races, what is refused, and selections that are stopped or killed."""

import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from selecting import CS, GRID, PLANE, X, Y, chosen, in_parts, machine, same

import jaxsvm
from jaxsvm import kernels
from jaxsvm.loops.selection import Scores


@pytest.fixture(scope="module")
def found():
    return chosen(**GRID)


def table(mean, **axes):
    folds = np.stack([np.asarray(mean, float) - 0.01, np.asarray(mean, float) + 0.01], axis=-1)
    blank = np.full(folds.shape, np.nan)
    numbers = tuple(np.asarray(axis, float) for axis in axes.values())
    return Scores(folds, blank, blank, np.zeros(folds.shape, np.int32), blank, numbers, tuple(axes))


TIED = [[0.2, 0.1, 0.1], [0.1, 0.1, 0.3]]
PLACES = [  # the cell of the least error, that of one standard error
    (table(TIED, C=[1, 2], gamma=[1, 2, 3]), (0, 1), None),  # ties: the stronger regularisation
    (table(TIED, lam=[1, 2], sigma=[1, 2, 3]), (1, 1), None),
    (table(TIED, C=[2, 1], gamma=[3, 2, 1]), (1, 1), None),
    (table(TIED, eps=[1, 2], C=[3, 2, 1]), (1, 1), None),
    (table([0.2, 0.105, 0.1], C=[1, 10, 100]), (2,), (1,)),
    (table([0.1, 0.105, 0.2], lam=[1, 10, 100]), (0,), (1,)),
    (table([np.nan, 0.3, -np.inf, 0.2, np.inf], C=[1, 2, 3, 4, 5]), (3,), (3,)),
    (table(TIED, nu=[1, 2], C=[3, 2, 1]), (1, 1), None),
]


@pytest.mark.parametrize(("scores", "place", "one_se"), PLACES)
def test_the_place_of_the_choice(scores, place, one_se):
    assert scores.place == place
    assert one_se is None or scores.one_se_place == one_se


def test_a_table_of_scores(found):
    assert table(TIED, C=[1, 2], gamma=[1, 2, 3]).at((0, 1)) == {"C": 1.0, "gamma": 2.0}
    assert PLACES[4][0].se[2] == pytest.approx(np.std([0.09, 0.11], ddof=1) / np.sqrt(2))
    assert "0.2*" in str(PLACES[6][0])
    ax = pytest.importorskip("jaxsvm.plots").heatmap(found.table)
    assert ax.get_xlabel() == "gamma" and ax.get_ylabel() == "C"
    text = str(found.table)
    assert text.startswith("C | gamma") and text.count("*") == 1
    copy = jax.tree.map(lambda a: a, found)
    assert jax.tree.structure(copy) == jax.tree.structure(found)
    assert list(copy.table.axes) == ["C", "gamma"]


@pytest.mark.long
def test_divergence_is_left_out():
    """A score that is not a number in one cell: another one is chosen."""
    calls = []

    def score(values, y, weight):
        calls.append((values.shape, y.shape, weight.shape))
        return np.nan if np.ptp(values) < 0.1 else np.mean((values > 0) != (y > 0))

    found = chosen(folds=2, score=score, C=[1e-4, 1.0], gamma=[0.3])
    assert np.isnan(found.table.mean[0, 0]) and found.best == {"C": 1.0, "gamma": 0.3}
    assert calls == [((100,),) * 3] * 4


def test_grids_of_usual_values():
    assert np.allclose(jaxsvm.C_grid(), np.logspace(-1, 3, 8))
    distance = ((X[:, None].astype(float) - X[None]) ** 2).sum(-1)[np.triu_indices(200, 1)]
    wanted = np.logspace(-1.5, 2, 8) / np.median(distance)
    np.testing.assert_allclose(kernels.gamma_grid(X), wanted, rtol=1e-4)


@pytest.mark.long
def test_threads_change_nothing(found):
    same(found, chosen(**GRID, threads=1))


# What is refused

CELL = {"C": [1.0, 2.0], "gamma": [0.1]}
FAILS = "score, the function <lambda>, fails .* -> one number: .*"
ORDINARY = lambda C: jaxsvm.sdca(C)
VECTOR = "the axis C must be a vector of at least one finite number"
refused = lambda **options: lambda: chosen(**CELL | options)
scored = lambda score: lambda: chosen(ORDINARY, C=[0.1, 1.0], folds=2, score=score)
THREE = jaxsvm.dataset(X, np.arange(200) % 3, task="multiclass")
REFUSED = [  # calls, what the sentence says
    (lambda: chosen(C=[1.0], gama=[1.0]), "maker has no parameter named gama, only C, gamma"),
    (lambda: chosen(C=[1.0]), "maker needs gamma, but the axes are C"),
    (lambda: chosen(), "select needs at least one axis"),
    (refused(C=[1.0, -1.0]), "C must be a finite number above 0, got -1"),
    *((refused(C=wrong), VECTOR) for wrong in ([], [[1.0]], [np.nan], ["a"], 1.0)),
    (refused(folds=300), "200 rows are too few for 300 folds"),
    (refused(groups=[1, 2, 3]), "groups must name the group of each of the 200 rows"),
    (refused(folds=(Y < 0).astype(int)), "without fold 0 there is no row of class 1"),
    (refused(folds=2 * (np.arange(200) % 2)), "fold 1 holds no row"),
    (refused(folds=np.zeros(200, int)), "so that each leaves rows to train on"),
    (refused(score="accuracy"), "score must be one of 'error', 'risk'"),
    (refused(search="random"), "search must be one of 'grid', 'race'"),
    (refused(maker=max), "max.* argument"),  # it has no signature
    (refused(maker=machine(1.0, 1.0)), "maker must be a function"),
    (lambda: chosen(lambda C: C, C=[1.0]), "what maker returns must be a solver such as"),
    (refused(data=X), "data must be a Batch"),
    (refused(data=THREE), r"labels -1 and \+1"),
    (scored(lambda values, y: 0.0), FAILS + "takes 2 positional arguments but 3 were given"),
    (scored(lambda values, y, weight: values), FAILS + "only .* converted to Python scalars"),
    (scored(lambda values, y, weight: "low"), FAILS + "could not convert string to float"),
    (
        lambda: chosen(**GRID, folds=5, seconds=0, search="race"),
        "no cell was completed within 0 seconds: give more of them",
    ),
    (lambda: table([np.nan, np.inf], C=[1, 2]).place, "no cell of the table has a finite score"),
    (lambda: kernels.gamma_grid(np.ones((3, 2), np.float32)), "all 3 rows are equal"),
    (lambda: jaxsvm.C_grid(1), "size must be a whole number of at least 2"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_select_refuses(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


# Races


def worse_by_hand(scores, y, fold, folds, alive):
    """Cells whose errors exceed those of the best cell by two standard errors, paired by rows."""
    rows = np.isin(fold, folds)
    wrong = ((scores > 0) != (y > 0))[..., rows].astype(float)
    best = wrong[np.unravel_index(np.argmin(np.where(alive, wrong.mean(-1), np.inf)), alive.shape)]
    difference = wrong - best
    return alive & (difference.mean(-1) > 2 * difference.std(-1) / np.sqrt(rows.sum()))


def test_a_race_leaves_out_what_is_significantly_worse(found, tmp_path):
    race = {"search": "race", "save": tmp_path / "race.npz"}
    raced, alive = chosen(**GRID, **race), np.ones((4, 3), bool)
    for folds in ([0, 1], [2], [3], [4]):
        have, want = raced.table.folds[..., folds], found.table.folds[..., folds]
        np.testing.assert_array_equal(np.isfinite(have).all(-1), alive)
        # the first fits of a path are those of the grid, the others start elsewhere: equal to the
        # tolerance
        np.testing.assert_allclose(have[alive], want[alive], atol=0.026)
        alive &= ~worse_by_hand(raced.scores, Y, raced.fold, range(folds[-1] + 1), alive)
    made = np.isfinite(raced.table.folds).sum()
    assert 12 <= made < 60 and raced.status.startswith(f"{made} of 60 fits made")
    assert raced.best == found.best
    same(raced, chosen(**GRID, **race))
    with pytest.raises(ValueError, match="is of another call of select"):
        chosen(**GRID, save=race["save"])


@pytest.mark.long
def test_a_race_that_is_stopped_goes_on(tmp_path):
    part, _ = in_parts(0.05, search="race", save=tmp_path / "race.npz")
    same(chosen(**GRID, search="race"), part)


@pytest.mark.long
def test_races_of_programs_of_fit_and_of_own_scores():
    score = lambda values, y, weight: float(np.mean((values > 0) != (y > 0)))
    maker = lambda lam, scale: jaxsvm.on_features(lambda x: jnp.sin(scale * x), jaxsvm.pegasos(lam))
    axes = {"lam": [1e-3, 1e-2], "scale": [0.5, 100.0]}
    for options in ({}, {"score": score}):
        raced = chosen(maker, PLANE, search="race", **axes, **options)
        grid = chosen(maker, PLANE, **axes, **options)
        assert raced.best == grid.best
        made = np.isfinite(raced.table.folds)
        np.testing.assert_array_equal(raced.table.folds[made], grid.table.folds[made])
        assert made[raced.table.place].all() and not made.all()


# Files


@pytest.mark.long
def test_no_time_is_resumed(found, tmp_path):
    """Stopped after a few fits, again and again: the result of the call that was not stopped."""
    path, other = tmp_path / "grid.npz", tmp_path / "other.npz"
    part, counts = in_parts(0.02, save=path)
    assert len(counts) > 1 and counts == sorted(counts)
    same(found, part)
    begin = time.perf_counter()
    same(found, chosen(**GRID, save=path))
    assert time.perf_counter() - begin < 5
    with pytest.raises(ValueError, match="is of another call of select"):
        chosen(**GRID | {"C": CS[:3]}, save=path)
    np.savez(other, a=1)
    with pytest.raises(ValueError, match="is not one of select"):
        chosen(**GRID, save=other)
    other.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read as one of select"):
        chosen(**GRID, save=other)


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import selecting as t
t.jax.config.update("jax_compilation_cache_dir", sys.argv[3])
t.jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
t.jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
import time
from jaxsvm.loops import selection_file
write = selection_file.Results._write
def slow(self, path):
    write(self, path)
    print("saved", flush=True)
    time.sleep(0.02)
selection_file.Results._write = slow
selection_file.SHARE = 0
t.chosen(**t.GRID, save=sys.argv[2])
print("end", flush=True)
"""


@pytest.mark.long
def test_killed_at_random_moments(found, tmp_path):
    path, draw, killed = tmp_path / "grid.npz", np.random.default_rng(5), 0
    command = [sys.executable, "-c", CHILD, os.path.dirname(__file__), path, tmp_path / "cache"]
    for _ in range(10):
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        for _ in range(int(draw.integers(1, 8))):
            if child.stdout.readline() != "saved\n":
                break
        time.sleep(0.03 * draw.random())
        os.kill(child.pid, signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert killed >= 5 and path.exists()
    same(found, chosen(**GRID, save=path))


def test_time_that_suffices_for_some_cells():
    found = chosen(**GRID, seconds=0)
    assert found.status.startswith("out of time: ")
    assert np.isfinite(found.table.mean).sum() == len(CS)  # those of one program


@pytest.mark.long
def test_a_file_of_another_version_is_told(tmp_path):
    path = tmp_path / "all.npz"
    options = {"C": [0.1, 1.0], "folds": 2, "save": path}
    chosen(ORDINARY, **options)
    np.savez(path, **dict(np.load(path)) | {"format": np.asarray("jaxsvm select 1")})
    with pytest.raises(ValueError, match="was written by another version of this package: delete"):
        chosen(ORDINARY, **options)
