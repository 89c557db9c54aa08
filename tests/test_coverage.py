"""Conformal sets and intervals beside literal transcriptions of their definitions in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.coverage import from_values

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3)).astype(np.float32)
NAMES = np.array(["low", "middle", "high"])[
    np.digitize(X[:, 0] + 0.7 * RNG.normal(size=90), [-1, 1])
]
REAL = X[:, 0] + 0.3 * RNG.normal(size=90)
NEW = RNG.normal(size=(40, 3)).astype(np.float32)
W = jnp.asarray(RNG.normal(size=(3, 3)), jnp.float32)
MODELS = {
    2: models.Linear(jnp.array([1.0, 0.2, 0.0]), jnp.array(-0.5)),
    3: models.OneVsRest(models.Linear(W, jnp.zeros(3)), (True, True)),
}


def weight_below(scores, weights, at):
    return sum(w for s, w in zip(scores, weights, strict=True) if s < at)


def class_score(f, c):
    """How far the largest other value is above that of the class."""
    return max(f[j] for j in range(len(f)) if j != c) - f[c]


def rows_of(values):
    """(n, k) values; one value of two classes is that of the second, minus it of the first."""
    values = np.asarray(values)
    return np.stack([-values / 2, values / 2], axis=1) if values.ndim == 1 else values


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_sets_are_those_of_the_definition(k, weighted):
    names = NAMES if k == 3 else np.where(NAMES == "high", "high", "low")
    weight = RNG.random(90) if weighted else np.ones(90)
    weight[:5] = 0
    data = jaxsvm.dataset(X, names, weight, task="multiclass" if k == 3 else None)
    model = MODELS[k]
    made = jaxsvm.conformal(models.Classifier(model, data.classes.names), data, 0.2)
    place = np.searchsorted(made.classes, names)
    scores = [class_score(f, c) for f, c in zip(rows_of(model(X)), place, strict=True)]
    total, n = np.float32(weight).sum(), 85
    wanted = np.array(
        [
            [
                weight_below(scores, np.float32(weight), class_score(f, c))
                < 0.8 * total * (1 + 1 / n)
                for c in range(k)
            ]
            for f in rows_of(model(NEW))
        ]
    )
    np.testing.assert_array_equal(made.predict(NEW), wanted)
    assert 0 < wanted.mean() < 1
    assert made.sets(NEW)[0] == tuple(np.array(made.classes)[wanted[0]])


def test_intervals_are_order_statistics():
    model = MODELS[2]
    data = jaxsvm.dataset(X, REAL, task="regression")
    made = jaxsvm.conformal(model, data, 0.1)
    residual = np.sort(np.abs(REAL - np.asarray(model(X), float)))
    distance = residual[math.ceil(91 * 0.9) - 1]
    values = np.asarray(model(NEW), float)
    np.testing.assert_allclose(
        made.predict(NEW), np.stack([values - distance, values + distance], axis=1), atol=1e-5
    )
    with pytest.raises(AttributeError, match="the targets are real: predict"):
        made.sets(NEW)


@pytest.mark.parametrize("n", [9, 199])
def test_the_rank_is_exact_where_it_is_whole(n):
    """The scores are 1 .. n, so that the upper end is the rank ceil((1 - alpha)(n + 1)).

    Five rows of weight 0 are absent.
    """
    weight = np.repeat([1.0, 0.0], [n, 5])
    data = jaxsvm.dataset(np.zeros((n + 5, 1)), np.arange(1, n + 6), weight, task="regression")
    model = models.Linear(jnp.zeros(1), jnp.zeros(()))
    percent = np.arange(5, 96)
    upper = jax.jit(jax.vmap(lambda a: jaxsvm.conformal(model, data, a)(jnp.zeros((1, 1)))[0, 1]))
    rank = np.array([-(-(100 - int(p)) * (n + 1) // 100) for p in percent])
    wanted = np.where(rank <= n, rank, np.inf)
    np.testing.assert_allclose(upper(jnp.asarray(percent / 100, jnp.float32)), wanted, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_equal_scores_and_sets_without_a_class(alpha):
    values, new = (np.round(RNG.normal(size=(60, 3))).astype(np.float32) for _ in range(2))
    place = RNG.integers(0, 3, 60)
    classes = models.Classes(("a", "b", "c"))
    made = from_values(lambda rows: rows, values, place, np.ones(60), alpha, classes)
    scores = [class_score(f, c) for f, c in zip(values, place, strict=True)]
    wanted = [
        [sum(s < class_score(f, c) for s in scores) < (1 - alpha) * 61 - 1e-9 for c in range(3)]
        for f in new
    ]
    np.testing.assert_array_equal(made(new), wanted)


@pytest.mark.long
def test_too_few_rows_leave_everything_open():
    """Ten rows cannot tell 95 per cent."""
    data = jaxsvm.dataset(X[:10], REAL[:10], task="regression")
    assert np.isinf(jaxsvm.conformal(MODELS[2], data, 0.05).predict(NEW)).all()
    data = jaxsvm.dataset(X[:10], NAMES[:10], task="multiclass")
    assert jaxsvm.conformal(MODELS[3], data, 0.05).predict(NEW).all()


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3])
def test_a_selection_compares_its_values_with_those_out_of_fold(k):
    names = NAMES if k == 3 else np.where(NAMES == "high", "high", "low")
    weight = RNG.integers(0, 3, 90) * 1.0
    data = jaxsvm.dataset(X, names, weight, task="multiclass" if k == 3 else None)

    def maker(C):
        solver = jaxsvm.decomposition(C, kernels.rbf(gamma=0.3))
        return jaxsvm.one_vs_rest(solver, classes=3) if k == 3 else solver

    options = {"C": np.array([0.1, 1.0]), "folds": 4, "progress": False}
    found = jaxsvm.select(maker, data, KEY, **options)
    made, used = found.conformal(0.15), weight > 0
    place = np.searchsorted(made.classes, names)
    own = rows_of(found.scores[found.table.place])
    scores = [class_score(own[i], place[i]) for i in np.flatnonzero(used)]
    goal = 0.85 * weight.sum() * (1 + 1 / used.sum())
    for f, row in zip(rows_of(found.model(NEW)), made.predict(NEW), strict=True):
        for c in range(k):
            at = class_score(f, c)
            assert row[c] == (weight_below(scores, weight[used], at - 1e-6) < goal)


def test_intervals_of_a_selection_are_order_statistics_of_values_out_of_fold():
    data = jaxsvm.dataset(X, REAL, task="regression")
    maker = lambda C: jaxsvm.linear_svm(C, loss=losses.squared)
    options = {"C": np.array([0.1, 1.0]), "folds": 4, "progress": False}
    found = jaxsvm.select(maker, data, KEY, **options)
    residual = np.abs(REAL - found.scores[found.table.place])
    distance, values = np.sort(residual)[math.ceil(0.8 * 91) - 1], np.asarray(found.model(NEW))
    wanted = np.stack([values - distance, values + distance], axis=1)
    np.testing.assert_allclose(found.conformal(0.2).predict(NEW), wanted, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_coverage(alpha):
    """Over 300 draws of 60 rows within three standard errors of the exact rate."""
    rng, rates = np.random.default_rng(0), []
    for _ in range(300):
        x = rng.normal(size=(160, 2)).astype(np.float32)
        y = np.where(x[:, 0] + rng.normal(size=160) > 0, "b", "a")
        train = jaxsvm.dataset(x[:60], y[:60])
        model = jaxsvm.fit(jaxsvm.linear_svm(1.0), train, KEY).classifier
        held = jaxsvm.dataset(x[60:120], y[60:120])
        own = np.searchsorted(["a", "b"], y[120:])
        sets = jaxsvm.conformal(model, held, alpha).predict(x[120:])
        rates.append(sets[np.arange(40), own].mean())
    exact = math.ceil((1 - alpha) * 61 - 1e-9) / 61
    assert abs(np.mean(rates) - exact) < 3 * np.std(rates) / 300**0.5


@pytest.mark.long
def test_several_levels_at_once():
    """Under vmap over alpha, and jit; larger sets at smaller alpha."""
    data = jaxsvm.dataset(X, NAMES, task="multiclass")
    plain = data._replace(classes=None)
    alphas = jnp.array([0.05, 0.2, 0.6])
    sets = jax.jit(jax.vmap(lambda a: jaxsvm.conformal(MODELS[3], plain, a).predict(NEW)))(alphas)
    for alpha, row in zip(alphas, sets, strict=True):
        wanted = jaxsvm.conformal(MODELS[3], data, float(alpha)).predict(NEW)
        np.testing.assert_array_equal(row, wanted)
    assert (np.diff(sets.sum(axis=(1, 2))) < 0).all()
    real = jaxsvm.dataset(X, REAL, task="regression")
    ends = jax.vmap(lambda a: jaxsvm.conformal(MODELS[2], real, a)(NEW))(alphas)
    assert ends.shape == (3, 40, 2) and (ends[..., 0] < ends[..., 1]).all()


def test_sets_of_probabilities_and_files(tmp_path):
    """The values may be probabilities; a file keeps the sets."""
    data = jaxsvm.dataset(X, NAMES, task="multiclass")
    chances = jaxsvm.calibrate(MODELS[3], data)
    made = jaxsvm.conformal(chances, data, 0.2)
    assert made.classes == tuple(np.unique(NAMES))
    models.save(tmp_path / "sets.npz", made)
    again = models.load(tmp_path / "sets.npz")
    np.testing.assert_array_equal(again.predict(NEW), made.predict(NEW))
    assert again.sets(NEW) == made.sets(NEW)


@pytest.mark.long
def test_bad_input_gets_a_sentence():
    data = jaxsvm.dataset(X, NAMES, task="multiclass")
    for alpha in (0, 1, -0.1, float("nan")):
        with pytest.raises(ValueError, match="alpha must be between 0 and 1, such as 0.1, got"):
            jaxsvm.conformal(MODELS[3], data, alpha)
    with pytest.raises(TypeError, match="alpha must be a number"):
        jaxsvm.conformal(MODELS[3], data, "0.1")
    result = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.dataset(X, NAMES == "low"), KEY)
    with pytest.raises(TypeError, match="such as result.model or result.classifier, got"):
        jaxsvm.conformal(result, data)
    with pytest.raises(ValueError, match="data has 3 classes, and the model gives values of 2"):
        jaxsvm.conformal(result.model, data)
    infinite = models.Linear(jnp.full(3, jnp.nan), jnp.zeros(()))
    with pytest.raises(ValueError, match="decision values of 90 of 90 rows are not finite"):
        jaxsvm.conformal(infinite, jaxsvm.dataset(X, REAL, task="regression"))
