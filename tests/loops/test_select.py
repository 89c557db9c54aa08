"""`select` against scikit-learn's grid search on the same folds, and against runs of `fit` made one
by one."""

import contextlib
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from selecting import (
    CS,
    DATA,
    GAMMAS,
    GRID,
    KEY,
    PLANE,
    X,
    Y,
    assert_errors,
    cells,
    chosen,
    decisions,
    dual_of,
    grid_search,
    machine,
    rows,
    same,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC

import jaxsvm
from jaxsvm import features, kernels, losses
from jaxsvm.machines import newton_by_C, system_for_grid


@pytest.fixture(scope="module")
def found():
    return chosen(**GRID)


def test_errors_and_duals_of_every_fit_are_those_of_libsvm(found):
    assert_errors(found, 1 - grid_search(SVC(), {"C": CS, "gamma": GAMMAS}, found.fold))
    table = found.table
    for place, numbers, held in cells(found):
        model = SVC(**numbers).fit(X[~held], Y[~held])
        dual = table.primal[place] * (1 - table.gap[place])
        assert dual == pytest.approx(dual_of(X[~held], Y[~held], model), rel=1e-4)
        assert abs(table.support[place] - len(model.support_)) <= 3
    assert (table.gap >= 0).all() and (table.seconds > 0).all()
    assert table.mean[table.place] == table.mean.min()


def test_scores_are_decision_values_out_of_fold(found):
    for f in range(5):
        held = found.fold == f
        values = decisions(found.best, X[~held], Y[~held], X[held])
        np.testing.assert_allclose(found.scores[found.table.place][held], values, atol=5e-3)


def test_the_model_is_that_of_the_choice_on_all_rows(found):
    n, C = len(Y), found.best["C"]
    proof = jaxsvm.certificate(found.model, DATA, jaxsvm.lam_from_C(C, n))
    assert float(found.certificate.primal) == pytest.approx(float(proof.primal) * C * n, rel=1e-5)
    gap = pytest.approx(float(proof.gap) * C * n, rel=1e-2, abs=1e-5)
    assert float(found.certificate.gap) == gap
    other = chosen(**GRID, rule="one_se")
    assert other.chosen == other.one_se == found.one_se
    for run, numbers in ((found, found.best), (other, found.one_se)):
        np.testing.assert_allclose(run.model(DATA.x), decisions(numbers, X, Y, X), atol=5e-3)


@pytest.mark.long
def test_blocks_on_the_matrix_and_shared_rows(optimised):
    """More rows than the pair steps end with; a matrix that fits, and one that does not."""
    x, y = rows(1100, seed=1)
    axes = {"C": np.array([0.1, 10.0, 1000.0]), "gamma": np.array([0.1, 3.0])}
    made = [chosen(data=jaxsvm.dataset(x, y), folds=2, memory=m, **axes) for m in (None, 1e6)]
    for place, numbers, held in cells(made[0]):
        model = SVC(**numbers).fit(x[~held], y[~held])
        wanted = dual_of(x[~held], y[~held], model)
        missed = (model.predict(x[held]) != y[held]).mean()
        for table in (found.table for found in made):
            dual = table.primal[place] * (1 - table.gap[place])
            assert dual == pytest.approx(wanted, rel=1e-4)
            assert abs(table.folds[place] - missed) * held.sum() <= 2.001


@pytest.mark.long
def test_regression_with_the_tube_as_an_axis():
    y = (X[:, 0] ** 2 + X[:, 1]).astype(np.float32)
    data, rbf = jaxsvm.dataset(X, y, task="regression"), kernels.rbf(gamma=0.3)
    maker = lambda C, eps: jaxsvm.decomposition(C, rbf, loss=losses.eps_insensitive(eps))
    axes = {"C": np.array([0.1, 10.0]), "eps": np.array([0.01, 0.3])}
    found = chosen(maker, data, folds=3, **axes)
    theirs = {"C": axes["C"], "epsilon": axes["eps"]}
    scores = grid_search(SVR(gamma=0.3), theirs, found.fold, y=y, scoring="neg_mean_squared_error")
    np.testing.assert_allclose(found.table.folds, -scores, rtol=5e-3)
    absolute = chosen(maker, data, folds=3, score="risk", **axes)
    error = np.abs(absolute.scores[0, 0].astype(np.float64) - y)
    wanted = [error[found.fold == f].mean() for f in range(3)]
    np.testing.assert_allclose(absolute.table.folds[0, 0], wanted, rtol=1e-5)


POINTS = np.linspace(-1, 1, 31)
CURVE = POINTS[:, None].astype(np.float32) ** np.arange(1, 3)
SETS = {
    "separable": (CURVE, np.where(POINTS > 0, 1, -1)),
    "normal": rows(60, 3),
    "noise": (rows(40, 4)[0], np.random.default_rng(2).choice([-1, 1], 40)),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", SETS)
def test_leave_one_out_is_that_of_refits(name):
    x, y = SETS[name]
    axes = {"C": np.array([1.0, 5.0, 50.0]), "gamma": np.array([0.1, 1.0])}
    found = chosen(data=jaxsvm.dataset(x, y), folds="loo", tol=1e-5, **axes)
    assert sorted(found.fold) == list(range(len(y)))
    wanted, wide = np.zeros((3, 2, len(y))), x.astype(float)
    for (i, j, _), numbers, held in cells(found):
        wanted[i, j, held] = decisions(numbers, wide[~held], y[~held], wide[held], 1e-7)
    size = np.maximum(1, np.abs(wanted).max(-1, keepdims=True))
    np.testing.assert_allclose(found.scores / size, wanted / size, atol=2e-3)
    clear, wrong = np.abs(wanted) > 2e-3, found.table.folds[..., found.fold]
    assert np.array_equal(wrong[clear], ((wanted > 0) != (y > 0))[clear])


def errors_one_by_one(maker, data, found):
    """The share of wrong signs of runs of `fit` on the rows outside of each fold, by weights of
    0."""
    out, y = np.zeros(found.table.folds.shape), np.asarray(data.y)
    for place, numbers, held in cells(found):
        weight = jnp.asarray(~held, jnp.float32)
        values = jaxsvm.fit(maker(**numbers), data._replace(weight=weight), KEY).model(data.x)
        values = np.asarray(values)
        wrong = (values > 0) != (y > 0) if values.ndim == 1 else values.argmax(1) != y
        out[place] = wrong[held].mean()
    return out


def on_landmarks(C, gamma):
    rbf = kernels.rbf(gamma=gamma)
    phi = features.nystrom(jax.random.key(1), rbf, DATA.x, landmarks=20)
    return jaxsvm.on_features(phi, jaxsvm.sdca(C))


def on_a_budget(B):
    return jaxsvm.bsgd(0.01, kernels.rbf(gamma=0.5), budget=int(B))


def in_pairs(C):
    return jaxsvm.one_vs_one(machine(C, 0.3), classes=3)


THREE = jaxsvm.dataset(X, np.digitize(X[:, 0], [-0.5, 0.5]), task="multiclass")
KINDS = {
    "linear": (lambda C: jaxsvm.sdca(C), PLANE, {"C": [0.01, 1.0]}),
    "primal": (lambda lam: jaxsvm.pegasos(lam), PLANE, {"lam": [1e-3, 0.1]}),
    "nystrom": (on_landmarks, DATA, {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}),
    "budget": (on_a_budget, DATA, {"B": [10, 20]}),
    "classes": (in_pairs, THREE, {"C": [0.1, 10.0]}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_other_solvers_as_by_fit(kind):
    maker, data, axes = KINDS[kind]
    found = chosen(maker, data, folds=3, **axes)
    # rounding of another program may move a row over the boundary
    assert_errors(found, errors_one_by_one(maker, data, found))
    assert found.table.mean.min() < 0.45
    shared = kind == "classes"  # pairs of an exact machine, which are certified
    assert (found.certificate is None) != shared and np.isnan(found.table.gap).all() != shared
    shape = (len(data.y), 3) if kind == "classes" else (len(data.y),)
    assert found.model(data.x).shape == shape and np.isfinite(found.scores).all()


def test_cells_that_do_not_fit_the_memory_are_run_in_turns():
    maker, data, _ = KINDS["primal"]
    at = lambda memory: chosen(maker, data, folds=2, memory=memory, lam=[1e-3, 0.1])
    with pytest.raises(ValueError, match="the folds of one cell take") as refusal:
        at(1.0)
    room = float(re.search(r"take (\S+) bytes", str(refusal.value))[1])
    np.testing.assert_allclose(at(1.01 * room).scores, at(None).scores, rtol=1e-5, atol=1e-6)


def near_liblinear(found, map_of, atol, **options):
    """Scores out of fold, of rows that are mapped."""
    y = np.asarray(PLANE.y)
    for (*place, _), numbers, held in cells(found):
        z = map_of(numbers)
        model = LinearSVC(C=numbers["C"], dual=False, tol=1e-10, max_iter=10_000, **options)
        values = model.fit(z[~held], y[~held]).decision_function(z[held])
        np.testing.assert_allclose(found.scores[tuple(place)][held], values, atol=atol)


@pytest.mark.long
@pytest.mark.parametrize("system", [None, "eigen"])
def test_paths_of_newton_are_the_solutions_of_liblinear(system):
    maker = lambda C: newton_by_C(C, bias="feature", system=system, tol=1e-8)
    found = chosen(maker, PLANE, folds=3, C=[10.0, 0.01, 1.0])  # not in the order of the path
    near_liblinear(found, lambda numbers: X, 2e-3)


def test_the_system_of_a_grid_follows_the_rows():
    systems = {n: system_for_grid((20_000, n), False) for n in (512, 513, 2_048, 2_049)}
    assert systems == {512: None, 513: "eigen", 2_048: "eigen", 2_049: None}
    assert system_for_grid((20_000, 600), True) is None


@pytest.mark.long
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
    of = lambda gamma: kernels.rbf(gamma=gamma)
    phi = lambda gamma: features.nystrom(jax.random.key(1), of(gamma), X, landmarks=10)
    maker = lambda gamma, C: jaxsvm.on_features(phi(gamma), newton_by_C(C))
    found = chosen(maker, PLANE, folds=3, gamma=[0.1, 2.0], C=[0.1, 1.0])
    mapped = lambda numbers: np.asarray(phi(numbers["gamma"])(X))
    near_liblinear(found, mapped, 5e-3, fit_intercept=False)


@pytest.mark.long
@pytest.mark.parametrize(("wrapper", "memory"), [("one_vs_one", None), ("one_vs_rest", 1e5)])
def test_more_classes_by_exact_machines(wrapper, memory, tmp_path):
    """Errors of LIBSVM on the same folds; certificates are the sums of those of the problems."""
    y, pairs = np.digitize(X[:, 0] + 0.3 * X[:, 1] ** 2, [-0.6, 0.2, 0.9]), wrapper == "one_vs_one"
    data = jaxsvm.dataset(X, y, task="multiclass")
    maker = lambda C, gamma: getattr(jaxsvm, wrapper)(machine(C, gamma), classes=4)
    axes = {"C": np.array([0.1, 10.0]), "gamma": np.array([0.1, 1.0])}
    found = chosen(maker, data, folds=3, memory=memory, **axes)
    if memory is None:  # stopped after a fit, and resumed
        options = {"folds": 3, "save": tmp_path / "grid.npz"}
        with contextlib.suppress(ValueError):  # no cell was completed
            chosen(maker, data, seconds=1e-3, **options, **axes)
        same(found, chosen(maker, data, **options, **axes))
    theirs = SVC() if pairs else OneVsRestClassifier(SVC())
    names = axes if pairs else {f"estimator__{name}": axis for name, axis in axes.items()}
    assert_errors(found, 1 - grid_search(theirs, names, found.fold, y=y))
    assert 0 < found.table.gap.max() < 1e-2
    # the model on all rows, problem by problem
    C, total = found.best["C"], 0.0
    for problem in [(a, b) for b in range(4) for a in range(b)] if pairs else range(4):
        rows = np.isin(y, problem) if pairs else np.ones(200, bool)
        sign = np.where(y[rows] == (problem[0] if pairs else problem), 1, -1)
        model, n = found.model[problem], rows.sum()
        everywhere = dataclasses.replace(model, index=jnp.full(200, -1))
        part = jaxsvm.dataset(X[rows], sign)
        proof = jaxsvm.certificate(everywhere, part, jaxsvm.lam_from_C(C, n))
        total += float(proof.primal) * C * n
        values = decisions(found.best, X[rows], sign, X)
        np.testing.assert_allclose(model(data.x), values, atol=1e-2)
    assert float(found.certificate.primal) == pytest.approx(total, rel=1e-4)
    # out of fold, the values of the model trained without the fold
    held = found.fold == 1
    rest = jaxsvm.dataset(X[~held], y[~held], task="multiclass")
    without = jaxsvm.fit(maker(10.0, 1.0), rest, KEY, steps=1).model(data.x)
    np.testing.assert_allclose(found.scores[1, 1, held], without[held], atol=1e-2)


@pytest.mark.long
def test_nu_machines():
    maker = lambda gamma, nu: jaxsvm.nu_svc(nu, kernels.rbf(gamma=gamma))
    axes = {"gamma": np.array([0.1, 1.0]), "nu": np.array([0.2, 0.5])}
    found = chosen(maker, folds=3, **axes)
    assert_errors(found, 1 - grid_search(NuSVC(), axes, found.fold))


@pytest.mark.long
def test_weights_groups_and_given_folds():
    cell = {"C": [1.0], "gamma": [0.3]}
    used = np.arange(200) < 150
    groups = np.arange(200) // 10
    found = chosen(data=jaxsvm.dataset(X, Y, np.where(used, 1.0, 0.0)), groups=groups, **cell)
    assert np.array_equal(found.fold >= 0, used) and (found.fold[~used] == -1).all()
    assert np.array_equal(np.isfinite(found.scores[0, 0]), used)
    assert all(len(set(found.fold[groups == g])) == 1 for g in range(20))
    given = np.where(np.arange(200) < 100, -1, np.arange(200) % 2)
    found = chosen(folds=given, **cell)
    assert np.array_equal(found.fold, given)
    wanted = 1 - grid_search(SVC(), {name: np.array(axis) for name, axis in cell.items()}, given)
    assert np.abs(found.table.folds - wanted).max() * 50 <= 1.001
