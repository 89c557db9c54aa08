"""Probabilities beside scikit-learn's calibration, and beside transcriptions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import sklearn.base
import sklearn.svm
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import jaxsvm
from jaxsvm import calibration, kernels, models
from jaxsvm.loops.scoring import _one_minus_auc

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
IRIS = load_iris()
NAMES = np.array(["red", "green", "blue"])[IRIS.target]
X = (IRIS.data + RNG.normal(size=IRIS.data.shape)).astype(np.float32)  # so that classes overlap
WEIGHT = RNG.integers(0, 4, 150) * 1.0
TASK = {2: None, 3: "multiclass"}


def held_out(k):
    """The odd rows of two or three classes."""
    return np.flatnonzero((np.arange(150) % 2 == 1) & (IRIS.target >= 3 - k))


def machine(k):
    """A machine of scikit-learn for the even rows of k classes."""
    used = np.flatnonzero((np.arange(150) % 2 == 0) & (IRIS.target >= 3 - k))
    return sklearn.svm.LinearSVC().fit(X[used], NAMES[used])


@pytest.mark.long(but=5)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("method", calibration.METHODS)
def test_probabilities_are_those_of_scikit_learn(method, k, weighted):
    theirs, used = machine(k), held_out(k)
    weight = WEIGHT[used] if weighted else np.ones(len(used))
    copies = np.repeat(used, weight.astype(int))
    reference = CalibratedClassifierCV(FrozenEstimator(theirs), method=method)
    reference.fit(X[copies], NAMES[copies])
    data = jaxsvm.dataset(X[used], NAMES[used], weight, task=TASK[k])
    made = jaxsvm.calibrate(models.from_sklearn(theirs), data, method=method)
    assert made.classes == tuple(theirs.classes_)
    chances = made.predict_proba(X)
    np.testing.assert_allclose(chances, reference.predict_proba(X), atol=2e-4)
    np.testing.assert_array_equal(made.predict(X), np.array(made.classes)[chances.argmax(1)])
    np.testing.assert_allclose(made.of_values(theirs.decision_function(X)), chances, atol=1e-5)


def test_pairs_are_sigmoids_of_differences_coupled():
    theirs, used = machine(3), held_out(3)
    data = jaxsvm.dataset(X[used], NAMES[used], WEIGHT[used], task="multiclass")
    ours = models.from_sklearn(theirs)
    made = jaxsvm.calibrate(ours, data, coupling="pairs")
    halved = models.Mapped(jax.tree_util.Partial(lambda x: x / 2), ours.inner)
    mapped = jaxsvm.calibrate(halved, data._replace(x=2 * data.x), coupling="pairs")
    np.testing.assert_allclose(mapped.predict_proba(2 * X), made.predict_proba(X), atol=1e-5)
    values, weight = theirs.decision_function(X), WEIGHT[used]
    place, of_pairs = np.unique(NAMES, return_inverse=True)[1], []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        f, among = values[:, a] - values[:, b], np.isin(place[used], (a, b))
        of_pairs.append(platt(f[used][among], place[used][among] == a, weight[among])(f))
    for row, r in zip(made.predict_proba(X)[:20], np.transpose(of_pairs), strict=False):
        objective = lambda p, r=r: sum(
            ((1 - q) * p[a] - q * p[b]) ** 2
            for q, (a, b) in zip(r, ((0, 1), (0, 2), (1, 2)), strict=True)
        )
        sums = {"type": "eq", "fun": lambda p: p.sum() - 1}
        best = scipy.optimize.minimize(
            objective, np.full(3, 1 / 3), bounds=[(0, 1)] * 3, constraints=sums, tol=1e-14
        )
        np.testing.assert_allclose(row, best.x, atol=1e-3)


def platt(score, positive, weight):
    """The sigmoid by SciPy, as a function of scores."""
    mass = np.array([weight[~positive].sum(), weight[positive].sum()])
    target = np.where(positive, (mass[1] + 1) / (mass[1] + 2), 1 / (mass[0] + 2))
    loss = lambda ab: (
        weight @ (np.logaddexp(0, -(ab[0] * score + ab[1])) + target * (ab[0] * score + ab[1]))
    )
    a, b = scipy.optimize.minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    return lambda score: 1 / (1 + np.exp(a * score + b))


@pytest.mark.long
def test_pairs_of_a_one_vs_one_are_their_own_values():
    """As in LIBSVM, not differences of votes."""
    used = held_out(3)
    data = jaxsvm.dataset(X[used], NAMES[used], task="multiclass")
    solver = jaxsvm.one_vs_one(jaxsvm.decomposition(1.0, kernels.rbf(gamma=0.1)), classes=3)
    even = jaxsvm.dataset(X[::2], NAMES[::2], task="multiclass")
    model = jaxsvm.fit(solver, even, KEY).model
    made = jaxsvm.calibrate(model, data, coupling="pairs")
    pairs = np.asarray(jax.jit(lambda model: model.pairs(X[used]))(model), float)
    place = np.asarray(data.y).astype(int)
    r = np.stack(
        [
            platt(pairs[among, j], place[among] == a, np.ones(among.sum()))(pairs[:, j])
            for j, (a, b) in enumerate(((0, 1), (0, 2), (1, 2)))
            for among in [np.isin(place, (a, b))]
        ],
        axis=1,
    )
    wanted = calibration.couple(r, 3, np)
    np.testing.assert_allclose(made.predict_proba(X[used]), wanted, atol=1e-3)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_two_classes_are_coupled_to_the_same(method):
    theirs, used = models.from_sklearn(machine(2)), held_out(2)
    data = jaxsvm.dataset(X[used], NAMES[used])
    rest, pairs = (
        jaxsvm.calibrate(theirs, data, method=method, coupling=coupling).predict_proba(X)
        for coupling in calibration.COUPLINGS
    )
    np.testing.assert_allclose(rest, pairs, atol=1e-5)


@st.composite
def rows_of_scores(draw):
    n = draw(st.integers(1, 30))
    whole = lambda low, high: np.array(
        draw(st.lists(st.integers(low, high), min_size=n, max_size=n))
    )
    weight = whole(0, 3) * 1.0
    weight[draw(st.integers(0, n - 1))] = 1.0
    return whole(-5, 5) / 2, whole(0, 1) == 1, weight


@settings(deadline=None, max_examples=100)
@given(rows_of_scores())
def test_isotonic_functions_are_those_of_scikit_learn(rows):
    """With ties, weights of 0, and one class."""
    score, positive, weight = rows
    used = weight > 0
    theirs = IsotonicRegression(out_of_bounds="clip")
    theirs.fit(score[used], positive[used] * 1.0, weight[used])
    made, at = calibration.fit_isotonic(score, positive, weight), np.linspace(-3, 3, 49)
    np.testing.assert_allclose(made(at, np), theirs.predict(at), atol=1e-12)
    assert len(made.score) == len(made.value) == len(score)
    assert (np.diff(made.score) >= 0).all() and (np.diff(made.value) >= 0).all()


def test_a_row_that_no_curve_takes_has_equal_probabilities():
    """As in scikit-learn, where the isotonic curves of all classes are 0."""
    values = np.random.default_rng(2).normal(size=(40, 3))
    place = values.argmax(axis=1)
    curves = calibration.fit_curves(values, place, np.ones(40), "isotonic", "rest")
    at = np.r_[values, np.full((1, 3), -9.0)]
    p = np.empty((41, 3))
    for c in range(3):
        theirs = IsotonicRegression(out_of_bounds="clip").fit(values[:, c], place == c)
        p[:, c] = theirs.predict(at[:, c])
    assert not p[-1].any()
    p[-1] = 1
    found = calibration.probabilities(curves, at, "rest", np)
    np.testing.assert_allclose(found, p / p.sum(axis=1, keepdims=True), atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(rows_of_scores())
def test_a_sigmoid_is_at_its_minimum(rows):
    """The gradient of Platt's likelihood is 0, for separate classes and for one class too."""
    score, positive, weight = rows
    with jax.enable_x64(True):
        pad = lambda a: np.pad(a, (0, 30 - len(a)))
        made = jax.jit(calibration.fit_sigmoid)(
            *map(jnp.asarray, map(pad, (score, positive, weight)))
        )
    mass = np.array([weight[~positive].sum(), weight[positive].sum()])
    target = np.where(positive, (mass[1] + 1) / (mass[1] + 2), 1 / (mass[0] + 2))
    slope, offset = float(made.slope), float(made.offset)
    rest = weight * (target - 1 / (1 + np.exp(slope * score + offset)))
    assert abs(rest @ score) < 1e-6 * weight.sum() and abs(rest.sum()) < 1e-6 * weight.sum()


def chance(values, weight, place, other):
    """The log-loss at other values of probabilities that were fitted to these."""
    columns = calibration.columns_of(values, "rest")
    curve = calibration.fit_curves(columns, place, weight, "sigmoid", "rest")
    p = calibration.probabilities(curve, calibration.columns_of(other, "rest"), "rest")
    own = jnp.take_along_axis(p, place[:, None], axis=1)
    return -jnp.mean(jnp.log(jnp.maximum(own, 1e-3)))


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3])
def test_derivatives_are_those_of_the_minimiser(k):
    """Those of its numbers too, not of the last step alone."""
    rng = np.random.default_rng(1)
    place = rng.integers(0, k, 40).astype(np.int32)
    values = rng.normal(size=(40, 3)) + 1.5 * np.eye(3)[place]
    values = values if k == 3 else values[:, 1] - values[:, 0]
    weight = rng.random(40) + 0.5
    with jax.enable_x64(True):
        other = jnp.asarray(0.9 * values)
        slope = jax.grad(chance, (0, 1))(jnp.asarray(values), jnp.asarray(weight), place, other)
        for part, direction in enumerate((rng.normal(size=values.shape), rng.normal(size=40))):
            zero = np.zeros_like(values), np.zeros(40)
            moved = lambda h, part=part, d=direction, zero=zero: [
                jnp.asarray(a + h * (d if number == part else zero[number]))
                for number, a in enumerate((values, weight))
            ]
            at = lambda h, moved=moved: float(chance(*moved(h), place, other))
            wanted = (at(1e-5) - at(-1e-5)) / 2e-5
            assert float(jnp.vdot(slope[part], direction)) == pytest.approx(
                wanted, rel=1e-3, abs=1e-7
            )
            assert abs(wanted) > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("coupling", calibration.COUPLINGS)
def test_several_machines_at_once(coupling):
    """`calibrate` under vmap and jit is a loop of it."""
    used = held_out(3)
    data = jaxsvm.dataset(X[used], NAMES[used], task="multiclass")
    model = models.from_sklearn(machine(3)).inner
    several = jax.tree.map(lambda a: jnp.stack([jnp.asarray(a), 2 * jnp.asarray(a)]), model)
    plain = data._replace(classes=None)

    @jax.jit
    @jax.vmap
    def chances(model):
        made = jaxsvm.calibrate(model, plain, coupling=coupling)
        return made.predict_proba(jnp.asarray(X))

    for k, row in enumerate(chances(several)):
        one = jax.tree.map(lambda a, k=k: a[k], several)
        made = jaxsvm.calibrate(one, data, coupling=coupling)
        np.testing.assert_allclose(row, made.predict_proba(X), atol=2e-3)
        assert np.allclose(row.sum(axis=1), 1, atol=1e-5)


def test_two_classes_under_jit():
    data = jaxsvm.dataset(X[held_out(2)], NAMES[held_out(2)])
    model = models.from_sklearn(machine(2)).inner
    plain = data._replace(classes=None)
    made = jax.jit(lambda model: jaxsvm.calibrate(model, plain)(X))(model)
    np.testing.assert_allclose(made, jaxsvm.calibrate(model, data).predict_proba(X), atol=1e-3)


def test_a_file_holds_the_probabilities(tmp_path):
    data = jaxsvm.dataset(X[held_out(3)], NAMES[held_out(3)], task="multiclass")
    for method in calibration.METHODS:
        made = jaxsvm.calibrate(models.from_sklearn(machine(3)), data, method=method)
        models.save(tmp_path / "model.npz", made)
        again = models.load(tmp_path / "model.npz")
        assert again.classes == made.classes and again.coupling == made.coupling
        np.testing.assert_array_equal(again.predict_proba(X), made.predict_proba(X))


def test_names_are_those_of_the_model():
    """Rows to fit to may lack a class, or have their names in another order."""
    model = models.from_sklearn(machine(3))  # blue, green, red
    some = np.flatnonzero(NAMES != "blue")
    made = jaxsvm.calibrate(model, jaxsvm.dataset(X[some], NAMES[some]))
    assert made.classes == ("blue", "green", "red")
    chances = made.predict_proba(X)
    assert chances[NAMES == "red", 2].mean() > 0.7 > 0.1 > chances[:, 0].mean()
    with pytest.raises(ValueError, match="data has 2 classes, and the model gives values of 3"):
        jaxsvm.calibrate(model.inner, jaxsvm.dataset(X[some], NAMES[some]))
    other = np.where(NAMES == "red", "pink", NAMES)
    with pytest.raises(ValueError, match="the rows have the class 'pink', which is not among"):
        jaxsvm.calibrate(model, jaxsvm.dataset(X, other, task="multiclass"))


def test_bad_input_gets_a_sentence():
    data = jaxsvm.dataset(X[held_out(2)], NAMES[held_out(2)])
    result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    with pytest.raises(ValueError, match="one of 'sigmoid', 'isotonic', got 'platt'"):
        jaxsvm.calibrate(result.model, data, method="platt")
    with pytest.raises(ValueError, match="are fitted outside of jit, vmap and grad"):
        jax.jit(lambda model: jaxsvm.calibrate(model, data, method="isotonic")(X))(result.model)
    with pytest.raises(ValueError, match="coupling must be one of 'rest', 'pairs'"):
        jaxsvm.calibrate(result.model, data, coupling="ovr")
    with pytest.raises(TypeError, match="such as result.model or result.classifier, got"):
        jaxsvm.calibrate(result, data)
    with pytest.raises(TypeError, match="such as result.model or result.classifier, got"):
        jaxsvm.calibrate(jaxsvm.calibrate(result.model, data), data)
    real = jaxsvm.dataset(X[:4], [0.5, 1.5, -2.0, 1.0], task="regression")
    with pytest.raises(ValueError, match="labels -1 and \\+1, or class numbers from 0 to 1, got"):
        jaxsvm.calibrate(result.model, real)
    infinite = models.Linear(jnp.full(4, jnp.inf), jnp.zeros(()))
    with pytest.raises(ValueError, match="decision values of .* rows are not finite"):
        jaxsvm.calibrate(infinite, data)
    with pytest.raises(TypeError, match="data must be a Batch"):
        jaxsvm.calibrate(result.model, X)


# Selections


def selection(k, coupling="ovr", **options):
    used = np.flatnonzero(IRIS.target >= 3 - k)
    data = jaxsvm.dataset(X[used], NAMES[used], WEIGHT[used], task=TASK[k])
    wrap = {"ovr": jaxsvm.one_vs_rest, "ovo": jaxsvm.one_vs_one}[coupling]

    def maker(C):
        solver = jaxsvm.decomposition(C, kernels.rbf(gamma=0.1))
        return wrap(solver, classes=3) if k == 3 else solver

    options = {"folds": 3, **options}
    made = jaxsvm.select(maker, data, KEY, C=np.array([0.1, 10.0]), progress=False, **options)
    return made, data


@pytest.mark.long
@pytest.mark.parametrize("method", calibration.METHODS)
@pytest.mark.parametrize("k", [2, 3])
def test_probabilities_of_a_selection_are_fitted_to_values_out_of_fold(method, k):
    fold = np.arange(50 * k) % 4 - 1  # rows of fold -1 are in all training sets
    made, data = selection(k, folds=fold)
    chances = made.calibrated(method)
    assert chances.classes == tuple(np.unique(NAMES[IRIS.target >= 3 - k]))
    values, used = made.scores[made.table.place], fold >= 0
    used &= np.asarray(data.weight) > 0
    assert np.isnan(values[~used]).all() and np.isfinite(values[used]).all()

    class OutOfFold(sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator):
        """Whose rows are decision values."""

        def fit(self, X, y):
            self.classes_ = np.arange(k)
            return self

        def predict(self, X):
            raise NotImplementedError

        def decision_function(self, X):
            return X[:, 0] if k == 2 else X

    rows = values.reshape(len(values), -1)[used]
    place = np.where(np.asarray(data.y) > 0, np.asarray(data.y), 0).astype(int)[used]
    copies = np.repeat(np.arange(len(rows)), np.asarray(data.weight)[used].astype(int))
    reference = CalibratedClassifierCV(FrozenEstimator(OutOfFold().fit(None, None)), method=method)
    reference.fit(rows[copies], place[copies])
    x = np.asarray(data.x)
    at = np.asarray(made.model(x)).reshape(len(values), -1)
    np.testing.assert_allclose(chances.predict_proba(x), reference.predict_proba(at), atol=2e-4)


@pytest.mark.long
def test_what_a_selection_cannot_calibrate():
    made, _ = selection(3, "ovo")
    assert np.allclose(made.calibrated().predict_proba(X).sum(axis=1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="scores holds the votes of a OneVsOne"):
        made.calibrated(coupling="pairs")
    real = jaxsvm.dataset(X, IRIS.target * 1.0, task="regression")
    squared = lambda C: jaxsvm.linear_svm(C, loss=jaxsvm.losses.squared)
    given = {"C": np.ones(1), "folds": 3, "progress": False}
    made = jaxsvm.select(squared, real, KEY, **given)
    with pytest.raises(ValueError, match="the targets are real: probabilities are those of"):
        made.calibrated()
    for score in ("log_loss", "brier", "auc"):
        with pytest.raises(ValueError, match=f"score='{score}' is of classes, and the targets"):
            jaxsvm.select(squared, real, KEY, score=score, **given)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("k", [2, 3])
def test_scores_of_probabilities_are_those_of_calibrated(k):
    """Probabilities come from sigmoids of all values out of fold: transcribed with SciPy."""
    made, data = selection(k, score="log_loss")
    brier, area = (selection(k, score=score)[0].table.folds for score in ("brier", "auc"))
    place = np.where(np.asarray(data.y) > 0, np.asarray(data.y), 0).astype(int)
    weight = np.asarray(data.weight, float)
    for cell in range(2):
        values = made.scores[cell].astype(float).reshape(len(place), -1)
        curves, live = [], weight > 0
        for c in range(values.shape[1]):
            is_class = place[live] == (c if k == 3 else 1)
            curves.append(platt(values[live, c], is_class, weight[live]))
        for fold in range(3):
            own = (made.fold == fold) & live
            columns = [curve(values[own, c]) for c, curve in enumerate(curves)]
            p = np.stack(columns if k == 3 else [1 - columns[0], columns[0]], axis=1)
            p /= p.sum(axis=1, keepdims=True)
            share = weight[own]
            assert made.table.folds[cell, fold] == pytest.approx(
                log_loss(place[own], p, sample_weight=share), rel=1e-4
            )
            squares = share @ ((p - np.eye(k)[place[own]]) ** 2).sum(axis=1) / share.sum()
            squares = squares if k == 3 else squares / 2
            assert brier[cell, fold] == pytest.approx(squares, rel=1e-4)
            if k == 2:
                assert squares == pytest.approx(
                    brier_score_loss(place[own], p[:, 1], sample_weight=share)
                )
            areas = [
                roc_auc_score(place[own] == c, values[own, j], sample_weight=share)
                for j, c in enumerate(range(k) if k == 3 else [1])
            ]
            assert area[cell, fold] == pytest.approx(1 - np.mean(areas), rel=1e-9, abs=1e-12)


def test_the_area_counts_ties_as_one_half():
    values, place = np.round(RNG.normal(size=(60, 3))), RNG.integers(0, 3, 60)
    weight = RNG.random(60)
    wanted = [roc_auc_score(place == c, values[:, c], sample_weight=weight) for c in range(3)]
    made = 1 - _one_minus_auc(values, place * 1.0, weight)
    assert made == pytest.approx(np.mean(wanted))
    assert np.isnan(_one_minus_auc(values[:, 0], np.ones(60), weight))


@pytest.mark.long
def test_a_race_and_leave_one_out_by_log_loss():
    """A fold of one row has a loss; a race compares losses of rows."""
    made, _ = selection(2, score="log_loss", folds="loo")
    assert np.isfinite(made.table.folds).all() and 0 < made.table.mean.min() < 0.7
    grid, _ = selection(2, score="log_loss", folds=5)
    race, _ = selection(2, score="log_loss", folds=5, search="race")
    assert race.chosen == grid.chosen
    place = grid.table.place
    np.testing.assert_allclose(race.table.folds[place], grid.table.folds[place], rtol=1e-5)
