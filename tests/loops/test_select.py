"""`select` against scikit-learn's grid search on the same folds, and against runs of `fit` made one
by one."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC

import jaxsvm
from jaxsvm import features, kernels, losses, select
from jaxsvm.loops.selection import Scores
from jaxsvm.machines import newton_by_C, system_for_grid

KEY = jax.random.key(0)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    return x, np.where(x[:, 0] * x[:, 1] + 0.5 * rng.normal(size=n) > 0, 1, -1)


X, Y = rows()
DATA = jaxsvm.dataset(X, Y)
CS, GAMMAS = np.logspace(-1, 3, 4), np.logspace(-2, 0.5, 3)
GRID = {"C": CS, "gamma": GAMMAS, "progress": False}


def machine(C, gamma):
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def grid_search(model, axes, fold, x=X, y=Y, **options):
    return GridSearchCV(model, axes, cv=PredefinedSplit(fold), refit=False, **options).fit(x, y)


def errors_of(search, shape, folds):
    scores = np.stack([search.cv_results_[f"split{i}_test_score"] for i in range(folds)], axis=1)
    return -scores.reshape(*shape, folds)


def dual_of(x, y, model, C, gamma):
    """The dual objective of LIBSVM's solution, with the kernel in float64."""
    coef = np.zeros(len(y))
    coef[model.support_] = model.dual_coef_[0]
    square = ((x[:, None].astype(np.float64) - x[None]) ** 2).sum(-1)
    return y @ coef - coef @ np.exp(-gamma * square) @ coef / 2


@pytest.fixture(scope="module")
def found():
    return select(machine, DATA, KEY, **GRID)


def test_errors_and_duals_of_every_fit_are_those_of_libsvm(found):
    search = grid_search(SVC(), {"C": CS, "gamma": GAMMAS}, found.fold)
    wanted = 1 + errors_of(search, (4, 3), 5)
    assert np.abs((found.table.folds - wanted) * np.bincount(found.fold)).max() <= 2.001
    dual = found.table.primal * (1 - found.table.gap)
    for i, C in enumerate(CS):
        for j, gamma in enumerate(GAMMAS):
            for f in range(5):
                train = found.fold != f
                model = SVC(C=C, gamma=gamma).fit(X[train], Y[train])
                assert dual[i, j, f] == pytest.approx(
                    dual_of(X[train], Y[train], model, C, gamma), rel=1e-4
                )
                assert abs(found.table.support[i, j, f] - len(model.support_)) <= 3
    assert (found.table.gap >= 0).all() and (found.table.seconds > 0).all()
    assert found.table.mean[found.table.place] == found.table.mean.min()


def test_certified_gaps_are_those_of_the_certificate(found):
    """The same fit by `fit`, certified by `objectives.certificate` on the rows that it was trained
    on."""
    C, gamma = CS[1], GAMMAS[1]
    for f in (0, 3):
        train = np.flatnonzero(found.fold != f)
        part = jaxsvm.dataset(X[train], Y[train])
        run = jaxsvm.fit(machine(C, gamma), part, KEY)
        wanted = jaxsvm.certificate(run.model, part, jaxsvm.lam_from_C(C, len(train)))
        assert found.table.primal[1, 1, f] == pytest.approx(
            float(wanted.primal) * C * len(train), rel=1e-3
        )
        assert found.table.gap[1, 1, f] < 5 * float(wanted.gap / wanted.primal) + 1e-5


def test_scores_are_decision_values_out_of_fold(found):
    i, j = found.table.place
    for f in range(5):
        held = found.fold == f
        model = SVC(C=CS[i], gamma=GAMMAS[j], tol=1e-6).fit(X[~held], Y[~held])
        np.testing.assert_allclose(
            found.scores[i, j, held], model.decision_function(X[held]), atol=5e-3
        )


def test_the_model_is_that_of_the_choice_on_all_rows(found):
    model = SVC(**found.best, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(found.model(DATA.x), model.decision_function(X), atol=5e-3)
    n, C = len(Y), found.best["C"]
    wanted = jaxsvm.certificate(found.model, DATA, jaxsvm.lam_from_C(C, n))
    assert float(found.certificate.primal) == pytest.approx(float(wanted.primal) * C * n, rel=1e-5)
    assert float(found.certificate.gap) == pytest.approx(
        float(wanted.gap) * C * n, rel=1e-2, abs=1e-5
    )
    other = select(machine, DATA, KEY, **GRID, rule="one_se")
    assert other.chosen == other.one_se == found.one_se
    model = SVC(**found.one_se, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(other.model(DATA.x), model.decision_function(X), atol=5e-3)


@pytest.mark.long
@pytest.mark.parametrize("n", [1100])
def test_blocks_on_the_matrix_and_shared_rows(n, optimised):
    """More rows than the pair steps end with; a matrix that fits, and one that does not."""
    x, y = rows(n, seed=1)
    data = jaxsvm.dataset(x, y)
    axes = {"C": np.array([0.1, 10.0, 1000.0]), "gamma": np.array([0.1, 3.0])}
    whole = select(machine, data, KEY, folds=2, progress=False, **axes)
    cached = select(machine, data, KEY, folds=2, progress=False, memory=1e6, **axes)
    for i, C in enumerate(axes["C"]):
        for j, gamma in enumerate(axes["gamma"]):
            for f in range(2):
                train = whole.fold != f
                model = SVC(C=C, gamma=gamma).fit(x[train], y[train])
                wanted = dual_of(x[train], y[train], model, C, gamma)
                missed = (model.predict(x[~train]) != y[~train]).mean()
                for found in (whole, cached):
                    table = found.table
                    assert table.primal[i, j, f] * (1 - table.gap[i, j, f]) == pytest.approx(
                        wanted, rel=1e-4
                    )
                    assert abs(table.folds[i, j, f] - missed) * (~train).sum() <= 2.001


def test_regression_with_the_tube_as_an_axis():
    x = X
    y = (x[:, 0] ** 2 + x[:, 1]).astype(np.float32)
    data = jaxsvm.dataset(x, y, task="regression")
    maker = lambda C, eps: jaxsvm.decomposition(
        C, kernels.rbf(gamma=0.3), loss=losses.eps_insensitive(eps)
    )
    axes = {"C": np.array([0.1, 10.0]), "eps": np.array([0.01, 0.3])}
    found = select(maker, data, KEY, folds=3, progress=False, **axes)
    search = grid_search(
        SVR(gamma=0.3),
        {"C": axes["C"], "epsilon": axes["eps"]},
        found.fold,
        x,
        y,
        scoring="neg_mean_squared_error",
    )
    np.testing.assert_allclose(found.table.folds, errors_of(search, (2, 2), 3), rtol=5e-3)
    absolute = select(maker, data, KEY, folds=3, progress=False, score="risk", **axes)
    values = absolute.scores[0, 0].astype(np.float64)
    for f in range(3):
        held = found.fold == f
        assert absolute.table.folds[0, 0, f] == pytest.approx(
            np.abs(values - y)[held].mean(), rel=1e-5
        )


POINTS = np.linspace(-1, 1, 31)
SETS = {
    "normal": rows(60, 3),
    "separable": (
        POINTS[:, None].astype(np.float32) ** np.arange(1, 3),
        np.where(POINTS > 0, 1, -1),
    ),
    "noise": (rows(40, 4)[0], np.random.default_rng(2).choice([-1, 1], 40)),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", SETS)
def test_leave_one_out_is_that_of_refits(name):
    x, y = SETS[name]
    axes = {"C": np.array([0.5, 5.0, 50.0]), "gamma": np.array([0.1, 1.0])}
    found = select(
        machine, jaxsvm.dataset(x, y), KEY, folds="loo", progress=False, tol=1e-5, **axes
    )
    assert sorted(found.fold) == list(range(len(y)))
    for i, C in enumerate(axes["C"]):
        for j, gamma in enumerate(axes["gamma"]):
            wanted = np.zeros(len(y))
            for r in range(len(y)):
                rest = np.arange(len(y)) != r
                model = SVC(C=C, gamma=gamma, tol=1e-7).fit(x[rest].astype(float), y[rest])
                wanted[r] = model.decision_function(x[r : r + 1].astype(float))[0]
            np.testing.assert_allclose(
                found.scores[i, j], wanted, atol=2e-3 * max(1, np.abs(wanted).max())
            )
            clear = np.abs(wanted) > 2e-3
            wrong = found.table.folds[i, j][found.fold]
            assert np.array_equal(wrong[clear], ((wanted > 0) != (y > 0))[clear])


def one_by_one(maker, data, fold, cells, **options):
    """The share of wrong signs of runs of `fit` on the rows outside of each fold, by weights of
    0."""
    out = []
    for numbers in cells:
        for f in range(fold.max() + 1):
            weight = jnp.asarray(np.where(fold == f, 0, 1), jnp.float32)
            run = jaxsvm.fit(maker(**numbers), data._replace(weight=weight), KEY, **options)
            values, held = np.asarray(run.model(data.x)), fold == f
            y = np.asarray(data.y)
            wrong = (values > 0) != (y > 0) if values.ndim == 1 else values.argmax(1) != y
            out.append(wrong[held].mean())
    return out


PLANE = jaxsvm.dataset(X, np.where(X[:, 0] + 0.5 * X[:, 1] + 0.2 * np.sin(9 * X[:, 2]) > 0, 1, -1))
KINDS = {
    "linear": (lambda C: jaxsvm.sdca(C), PLANE, {"C": [0.01, 1.0]}),
    "primal": (lambda lam: jaxsvm.pegasos(lam), PLANE, {"lam": [1e-3, 0.1]}),
    "nystrom": (
        lambda C, gamma: jaxsvm.on_features(
            features.nystrom(jax.random.key(1), kernels.rbf(gamma=gamma), DATA.x, landmarks=20),
            jaxsvm.sdca(C),
        ),
        DATA,
        {"C": [0.1, 1.0], "gamma": [0.1, 1.0]},
    ),
    "budget": (
        lambda B: jaxsvm.bsgd(0.01, kernels.rbf(gamma=0.5), budget=B),
        DATA,
        {"B": [10, 20]},
    ),
    "classes": (
        lambda C: jaxsvm.one_vs_one(machine(C, 0.3), classes=3),
        jaxsvm.dataset(X, np.digitize(X[:, 0], [-0.5, 0.5]), task="multiclass"),
        {"C": [0.1, 10.0]},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_other_solvers_as_by_fit(kind):
    maker, data, axes = KINDS[kind]
    found = select(maker, data, KEY, folds=3, progress=False, **axes)
    names = list(axes)
    cells = [
        dict(zip(names, [axes[n][i] for n, i in zip(names, c, strict=True)], strict=True))
        for c in np.ndindex(found.table.mean.shape)
    ]
    wanted = np.array(one_by_one(maker, data, found.fold, cells)).reshape(found.table.folds.shape)
    # rounding of another program may move a row over the boundary
    assert np.abs((found.table.folds - wanted) * np.bincount(found.fold)).max() <= 2.001
    assert found.table.mean.min() < 0.45
    shared = kind == "classes"  # pairs of an exact machine, which are certified
    assert (found.certificate is None) != shared and np.isnan(found.table.gap).all() != shared
    shape = (len(data.y), 3) if kind == "classes" else (len(data.y),)
    assert found.model(data.x).shape == shape and np.isfinite(found.scores).all()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("system", [None, "eigen"])
def test_paths_of_newton_are_the_solutions_of_liblinear(system):
    C = np.array([10.0, 0.01, 1.0])  # not in the order of the path
    found = select(
        lambda C: newton_by_C(C, bias="feature", system=system, tol=1e-8),
        PLANE,
        KEY,
        folds=3,
        progress=False,
        C=C,
    )
    for i, f in np.ndindex(3, 3):
        held = found.fold == f
        model = LinearSVC(C=C[i], dual=False, tol=1e-10, max_iter=10_000).fit(
            X[~held], np.asarray(PLANE.y)[~held]
        )
        np.testing.assert_allclose(
            found.scores[i, held], model.decision_function(X[held]), atol=2e-3
        )


@pytest.mark.parametrize(
    ("shape", "sparse", "system"),
    [
        ((20_000, 512), False, None),
        ((20_000, 513), False, "eigen"),
        ((20_000, 2_048), False, "eigen"),
        ((20_000, 2_049), False, None),
        ((20_000, 600), True, None),
    ],
)
def test_the_system_of_a_grid_follows_the_rows(shape, sparse, system):
    assert system_for_grid(shape, sparse) == system


def test_a_path_is_shorter_than_its_runs_from_nothing():
    solver, inner = newton_by_C(30.0), newton_by_C(10.0)
    before = jaxsvm.fit(inner, PLANE, KEY, steps=1).state
    state = before._replace(solver=before.solver.restart(), step=0)
    warm = jaxsvm.fit(solver, PLANE, KEY, steps=1, state=state)
    cold = jaxsvm.fit(solver, PLANE, KEY, steps=1)
    assert warm.converged and cold.converged and warm.state.solver.steps < cold.state.solver.steps
    np.testing.assert_allclose(warm.model.w, cold.model.w, atol=2e-3)


@pytest.mark.long
def test_no_path_where_the_features_are_those_of_the_first_axis():
    phi = lambda gamma: features.nystrom(
        jax.random.key(1), kernels.rbf(gamma=gamma), X, landmarks=10
    )
    maker = lambda gamma, C: jaxsvm.on_features(phi(gamma), newton_by_C(C))
    found = select(maker, PLANE, KEY, folds=3, progress=False, gamma=[0.1, 2.0], C=[0.1, 1.0])
    for i, j, f in np.ndindex(2, 2, 3):
        held, mapped = found.fold == f, np.asarray(phi(float(found.table.numbers[0][i]))(X))
        model = LinearSVC(C=found.table.numbers[1][j], dual=False, tol=1e-10, fit_intercept=False)
        model.fit(mapped[~held], np.asarray(PLANE.y)[~held])
        np.testing.assert_allclose(
            found.scores[i, j, held], model.decision_function(mapped[held]), atol=5e-3
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrapper", "memory"),
    [("one_vs_one", None), ("one_vs_rest", None), ("one_vs_one", 1e5), ("one_vs_rest", 1e5)],
)
def test_more_classes_by_exact_machines(wrapper, memory, tmp_path):
    """Errors of LIBSVM on the same folds; certificates are the sums of those of the problems."""
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1] ** 2, [-0.6, 0.2, 0.9])
    data = jaxsvm.dataset(X, y, task="multiclass")
    maker = lambda C, gamma: getattr(jaxsvm, wrapper)(machine(C, gamma), classes=4)
    axes = {"C": np.array([0.1, 10.0]), "gamma": np.array([0.1, 1.0])}
    found = select(maker, data, KEY, folds=3, progress=False, memory=memory, **axes)
    if memory is None:  # stopped after a fit, and resumed
        options = {"folds": 3, "progress": False, "save": tmp_path / "grid.npz"}
        with contextlib.suppress(ValueError):  # no cell was completed
            select(maker, data, KEY, seconds=1e-3, **options, **axes)
        same(found, select(maker, data, KEY, **options, **axes))
    theirs, names = SVC(), axes
    if wrapper == "one_vs_rest":
        theirs, names = (
            OneVsRestClassifier(SVC()),
            {f"estimator__{name}": axis for name, axis in axes.items()},
        )
    wanted = 1 + errors_of(grid_search(theirs, names, found.fold, y=y), (2, 2), 3)
    assert np.abs((found.table.folds - wanted) * np.bincount(found.fold)).max() <= 2.001
    assert 0 < found.table.gap.max() < 1e-2
    # the model on all rows, problem by problem
    C, total = found.best["C"], 0.0
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    for problem in pairs if wrapper == "one_vs_one" else range(4):
        rows = np.isin(y, problem) if wrapper == "one_vs_one" else np.ones(200, bool)
        first = problem[0] if wrapper == "one_vs_one" else problem
        part = jaxsvm.dataset(X[rows], np.where(y[rows] == first, 1, -1))
        model = found.model[problem]
        proof = jaxsvm.certificate(
            dataclasses.replace(model, index=jnp.full(200, -1)),
            part,
            jaxsvm.lam_from_C(C, rows.sum()),
        )
        total += float(proof.primal) * C * rows.sum()
        other = SVC(**found.best, tol=1e-6).fit(X[rows], np.where(y[rows] == first, 1, -1))
        np.testing.assert_allclose(model(data.x), other.decision_function(X), atol=1e-2)
    assert float(found.certificate.primal) == pytest.approx(total, rel=1e-4)
    # out of fold, the values of the model trained without the fold
    held = found.fold == 1
    without = jaxsvm.fit(
        maker(10.0, 1.0), jaxsvm.dataset(X[~held], y[~held], task="multiclass"), KEY, steps=1
    )
    np.testing.assert_allclose(found.scores[1, 1, held], without.model(data.x)[held], atol=1e-2)


@pytest.mark.long
def test_nu_machines():
    maker = lambda nu, gamma: jaxsvm.nu_svc(nu, kernels.rbf(gamma=gamma))
    axes = {"nu": np.array([0.2, 0.5]), "gamma": np.array([0.1, 1.0])}
    found = select(maker, DATA, KEY, folds=3, progress=False, **axes)
    # its first axis is the first by the alphabet, gamma
    search = grid_search(NuSVC(), axes, found.fold)
    wanted = 1 + errors_of(search, (2, 2), 3).swapaxes(0, 1)
    assert np.abs((found.table.folds - wanted) * np.bincount(found.fold)).max() <= 2.001


def table(mean, **axes):
    folds = np.stack([np.asarray(mean, float) - 0.01, np.asarray(mean, float) + 0.01], axis=-1)
    blank = np.full(folds.shape, np.nan)
    numbers = tuple(np.asarray(axis, float) for axis in axes.values())
    return Scores(folds, blank, blank, np.zeros(folds.shape, np.int32), blank, numbers, tuple(axes))


def test_ties_go_to_the_stronger_regularisation():
    same = [[0.2, 0.1, 0.1], [0.1, 0.1, 0.3]]
    assert table(same, C=[1, 2], gamma=[1, 2, 3]).place == (0, 1)
    assert table(same, lam=[1, 2], sigma=[1, 2, 3]).place == (1, 1)
    assert table(same, C=[2, 1], gamma=[3, 2, 1]).place == (1, 1)
    assert table(same, eps=[1, 2], C=[3, 2, 1]).place == (1, 1)
    assert table(same, C=[1, 2], gamma=[1, 2, 3]).at((0, 1)) == {"C": 1.0, "gamma": 2.0}


def test_one_standard_error():
    found = table([0.2, 0.105, 0.1], C=[1, 10, 100])
    assert found.se[2] == pytest.approx(np.std([0.09, 0.11], ddof=1) / np.sqrt(2))
    assert found.place == (2,) and found.one_se_place == (1,)
    assert table([0.1, 0.105, 0.2], lam=[1, 10, 100]).one_se_place == (1,)


def test_cells_that_are_not_finite_are_never_chosen():
    found = table([np.nan, 0.3, -np.inf, 0.2, np.inf], C=[1, 2, 3, 4, 5])
    assert found.place == found.one_se_place == (3,)
    assert "0.2*" in str(found)
    with pytest.raises(ValueError, match="no cell of the table has a finite score in all folds"):
        _ = table([np.nan, np.inf], C=[1, 2]).place


def test_divergence_is_left_out():
    """A score that is not a number in one cell: another one is chosen."""
    calls = []

    def score(values, y, weight):
        calls.append((values.shape, y.shape, weight.shape))
        return np.nan if np.ptp(values) < 0.1 else np.mean((values > 0) != (y > 0))

    found = select(
        machine, DATA, KEY, folds=2, progress=False, score=score, C=[1e-4, 1.0], gamma=[0.3]
    )
    assert np.isnan(found.table.mean[0, 0]) and found.best == {"C": 1.0, "gamma": 0.3}
    assert calls == [((100,),) * 3] * 4


def test_weights_groups_and_given_folds():
    weight = np.where(np.arange(200) < 150, 1.0, 0.0)
    data = jaxsvm.dataset(X, Y, weight)
    found = select(machine, data, KEY, C=[1.0], gamma=[0.3], progress=False)
    assert (found.fold[150:] == -1).all() and (found.fold[:150] >= 0).all()
    assert np.isnan(found.scores[0, 0, 150:]).all() and np.isfinite(found.scores[0, 0, :150]).all()
    groups = np.arange(200) // 10
    found = select(machine, DATA, KEY, groups=groups, C=[1.0], gamma=[0.3], progress=False)
    assert all(len(set(found.fold[groups == g])) == 1 for g in range(20))
    given = np.where(np.arange(200) < 100, -1, np.arange(200) % 2)
    found = select(machine, DATA, KEY, folds=given, C=[1.0], gamma=[0.3], progress=False)
    assert np.array_equal(found.fold, given)
    wanted = 1 + errors_of(grid_search(SVC(gamma=0.3), {"C": [1.0]}, given), (1, 1), 2)
    assert np.abs(found.table.folds - wanted).max() * 50 <= 1.001


def test_bad_input():
    call = lambda *args, **kwargs: select(*args, progress=False, **kwargs)
    axes = {"C": [1.0, 2.0], "gamma": [0.1]}
    vector = "the axis C must be a vector of at least one finite number"
    groups = r"groups must name the group of each of the 200 rows, got shape \(3,\)"
    for message, options in [
        ("maker has no parameter named gama, only C, gamma", {"C": [1.0], "gama": [1.0]}),
        ("maker needs gamma, but the axes are C", {"C": [1.0]}),
        ("select needs at least one axis", {}),
        (r"C must be a finite number above 0, got -1", axes | {"C": [1.0, -1.0]}),
        *((vector, axes | {"C": wrong}) for wrong in ([], [[1.0]], [np.nan], ["a"], 1.0)),
        ("200 rows are too few for 300 folds", axes | {"folds": 300}),
        (groups, axes | {"groups": [1, 2, 3]}),
        ("without fold 0 there is no row of class 1", axes | {"folds": (Y < 0).astype(int)}),
        ("fold 1 holds no row", axes | {"folds": 2 * (np.arange(200) % 2)}),
        ("so that each leaves rows to train on", axes | {"folds": np.zeros(200, int)}),
        ("score must be one of 'error', 'risk'", axes | {"score": "accuracy"}),
        ("search must be one of 'grid', 'race'", axes | {"search": "random"}),
    ]:
        with pytest.raises(ValueError, match=message):
            call(machine, DATA, KEY, **options)
    with pytest.raises(TypeError, match="max.* argument"):  # it has no signature
        call(max, DATA, KEY, **axes)
    with pytest.raises(TypeError, match="maker must be a function"):
        call(machine(1.0, 1.0), DATA, KEY, **axes)
    with pytest.raises(TypeError, match="what maker returns must be a solver such as .*, got"):
        call(lambda C: C, DATA, KEY, C=[1.0])
    with pytest.raises(TypeError, match="data must be a Batch"):
        call(machine, X, KEY, **axes)
    with pytest.raises(ValueError, match="labels -1 and \\+1"):
        call(machine, jaxsvm.dataset(X, np.arange(200) % 3, task="multiclass"), KEY, **axes)


def worse_by_hand(scores, y, fold, folds, alive):
    """Cells whose errors exceed those of the best cell by two standard errors, paired by rows."""
    rows = np.isin(fold, folds)
    wrong = ((scores > 0) != (y > 0))[..., rows].astype(float)
    best = wrong[np.unravel_index(np.argmin(np.where(alive, wrong.mean(-1), np.inf)), alive.shape)]
    difference = wrong - best
    return alive & (difference.mean(-1) > 2 * difference.std(-1) / np.sqrt(rows.sum()))


def test_a_race_leaves_out_what_is_significantly_worse(found, tmp_path):
    raced = select(machine, DATA, KEY, **GRID, search="race", save=tmp_path / "race.npz")
    alive = np.ones((4, 3), bool)
    for folds in ([0, 1], [2], [3], [4]):
        made = np.isfinite(raced.table.folds[..., folds]).all(-1)
        np.testing.assert_array_equal(made, alive)
        # the first fits of a path are those of the grid, the others start elsewhere: equal to the
        # tolerance
        np.testing.assert_allclose(
            raced.table.folds[alive][:, folds], found.table.folds[alive][:, folds], atol=0.026
        )
        alive &= ~worse_by_hand(raced.scores, Y, raced.fold, range(folds[-1] + 1), alive)
    assert 12 <= np.isfinite(raced.table.folds).sum() < 60 and raced.status.startswith(
        f"{np.isfinite(raced.table.folds).sum()} of 60 fits made"
    )
    assert raced.best == found.best
    again = select(machine, DATA, KEY, **GRID, search="race", save=tmp_path / "race.npz")
    same(raced, again)
    with pytest.raises(ValueError, match="is of another call of select"):
        select(machine, DATA, KEY, **GRID, save=tmp_path / "race.npz")


@pytest.mark.long
def test_a_race_that_is_stopped_goes_on(tmp_path):
    whole = select(machine, DATA, KEY, **GRID, search="race")
    for _ in range(70):
        with contextlib.suppress(ValueError):  # no cell was completed
            part = select(
                machine, DATA, KEY, **GRID, search="race", seconds=0.05, save=tmp_path / "race.npz"
            )
            if not part.status.startswith("out of time"):
                break
    else:
        raise AssertionError("not done in 70 calls")
    same(whole, part)


@pytest.mark.long
def test_races_of_programs_of_fit_and_of_own_scores():
    score = lambda values, y, weight: float(np.mean((values > 0) != (y > 0)))
    maker = lambda lam, scale: jaxsvm.on_features(lambda x: jnp.sin(scale * x), jaxsvm.pegasos(lam))
    axes = {"lam": [1e-3, 1e-2], "scale": [0.5, 100.0]}
    for options in ({}, {"score": score}):
        raced = select(maker, PLANE, KEY, progress=False, search="race", **axes, **options)
        grid = select(maker, PLANE, KEY, progress=False, **axes, **options)
        assert raced.best == grid.best
        made = np.isfinite(raced.table.folds)
        np.testing.assert_array_equal(raced.table.folds[made], grid.table.folds[made])
        assert made[raced.table.place].all() and not made.all()


def test_grids_of_usual_values():
    assert np.allclose(jaxsvm.C_grid(), np.logspace(-1, 3, 8))
    distance = ((X[:, None].astype(float) - X[None]) ** 2).sum(-1)[np.triu_indices(200, 1)]
    np.testing.assert_allclose(
        kernels.gamma_grid(X), np.logspace(-1.5, 2, 8) / np.median(distance), rtol=1e-4
    )
    with pytest.raises(ValueError, match="all 3 rows are equal"):
        kernels.gamma_grid(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="size must be a whole number of at least 2"):
        jaxsvm.C_grid(1)


def same(first, second):
    """Equal results, but for the seconds."""
    for name in ("folds", "gap", "primal", "support"):
        np.testing.assert_array_equal(getattr(first.table, name), getattr(second.table, name), name)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.best == second.best and first.one_se == second.one_se


def test_threads_change_nothing(found):
    same(found, select(machine, DATA, KEY, **GRID, threads=1))


@pytest.mark.long
def test_no_time_is_resumed(found, tmp_path):
    """Stopped after a few fits, again and again: the result of the call that was not stopped."""
    path, counts = tmp_path / "grid.npz", []
    for _ in range(70):
        with contextlib.suppress(ValueError):  # no cell was completed
            part = select(machine, DATA, KEY, **GRID, seconds=0.02, save=path)
            counts.append(int(np.isfinite(part.table.folds).sum()))
            if not part.status.startswith("out of time"):
                break
    else:
        raise AssertionError("not done in 70 calls")
    assert len(counts) > 1 and counts == sorted(counts)
    same(found, part)
    begin = time.perf_counter()
    same(found, select(machine, DATA, KEY, **GRID, save=path))
    assert time.perf_counter() - begin < 5
    with pytest.raises(ValueError, match="is of another call of select"):
        select(machine, DATA, KEY, C=CS[:3], gamma=GAMMAS, progress=False, save=path)
    other = tmp_path / "other.npz"
    np.savez(other, a=1)
    with pytest.raises(ValueError, match="is not one of select"):
        select(machine, DATA, KEY, **GRID, save=other)
    other.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read as one of select"):
        select(machine, DATA, KEY, **GRID, save=other)


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import test_select as t
t.jax.config.update("jax_compilation_cache_dir", sys.argv[3])
t.jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
t.jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
import os, pathlib
from jaxsvm.loops import selection_file
write = selection_file.Results._write
def slow(self, path):
    write(self, path)
    print("saved", flush=True)
    t.time.sleep(0.02)
selection_file.Results._write = slow
selection_file.SHARE = 0
t.select(t.machine, t.DATA, t.KEY, **t.GRID, save=sys.argv[2])
print("end", flush=True)
"""


@pytest.mark.long
def test_killed_at_random_moments(found, tmp_path):
    path, draw = tmp_path / "grid.npz", np.random.default_rng(5)
    killed = 0
    for _ in range(10):
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                os.path.dirname(__file__),
                str(path),
                str(tmp_path / "cache"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(int(draw.integers(1, 8))):
            if child.stdout.readline() != "saved\n":
                break
        time.sleep(0.03 * draw.random())
        os.kill(child.pid, signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert killed >= 5 and path.exists()
    resumed = select(machine, DATA, KEY, **GRID, save=path)
    same(found, resumed)


def test_heatmap_and_print(found):
    plots = pytest.importorskip("jaxsvm.plots")
    ax = plots.heatmap(found.table)
    assert ax.get_xlabel() == "gamma" and ax.get_ylabel() == "C"
    text = str(found.table)
    assert text.startswith("C | gamma") and text.count("*") == 1
    assert jax.tree.structure(jax.tree.map(lambda a: a, found)) == jax.tree.structure(found)
    assert list(jax.tree.map(lambda a: a, found).table.axes) == ["C", "gamma"]


@pytest.mark.parametrize(
    "score, words",
    [
        (lambda values, y: 0.0, "takes 2 positional arguments but 3 were given"),
        (lambda values, y, weight: values, "only .* can be converted to Python scalars"),
        (lambda values, y, weight: "low", "could not convert string to float"),
    ],
)
def test_a_score_that_gives_no_number_is_named(score, words):
    with pytest.raises(
        (TypeError, ValueError),
        match=f"^score, the function <lambda>, fails .* -> one number: .*{words}",
    ):
        select(
            lambda C: jaxsvm.sdca(C), DATA, KEY, C=[0.1, 1.0], folds=2, score=score, progress=False
        )


def test_time_that_suffices_for_no_cell_is_told():
    with pytest.raises(
        ValueError, match="no cell was completed within 0 seconds: give more of them"
    ):
        options = {"folds": 5, "seconds": 0, "progress": False, "search": "race"}
        select(machine, DATA, KEY, C=CS, gamma=GAMMAS, **options)
    found = select(machine, DATA, KEY, C=CS, gamma=GAMMAS, folds=3, seconds=0, progress=False)
    assert found.status.startswith("out of time: ")
    assert np.isfinite(found.table.mean).sum() == len(CS)  # those of one program


def test_a_file_of_another_version_is_told(tmp_path):
    path, call = (
        tmp_path / "all.npz",
        {"C": [0.1, 1.0], "folds": 2, "progress": False, "save": tmp_path / "all.npz"},
    )
    select(lambda C: jaxsvm.sdca(C), DATA, KEY, **call)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"format": np.asarray("jaxsvm select 1")})
    with pytest.raises(
        ValueError, match="was written by another version of this package: delete it"
    ):
        select(lambda C: jaxsvm.sdca(C), DATA, KEY, **call)
