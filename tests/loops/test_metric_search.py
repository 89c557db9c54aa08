"""`metric_search`: metrics by gradients of machines, beside plain NumPy in float64."""

import jax
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels
from jaxsvm.loops import learned_metric

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
N, D = 90, 4
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = np.where(X[:, 1] ** 2 + 0.2 * RNG.normal(size=N) > 0.5, 1, -1)
AXES = {"C": np.array([1.0, 10.0]), "gamma": np.array([0.05, 0.5])}


def maker(C, gamma):
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def search(data, maker=maker, axes=AXES, **options):
    options = {"rounds": 2, "progress": False, **options}
    return jaxsvm.metric_search(maker, data, KEY, **options, **axes)


def outer_by_hand(model, gamma, x, weight):
    """The mean outer product of the gradients of sum_i c_i exp(-gamma |x - x_i|^2)."""
    points, coef = np.asarray(model.x, float), np.asarray(model.coef, float)
    difference = x[:, None, :] - points[None]
    values = np.exp(-gamma * (difference**2).sum(-1)) * coef[None]
    slopes = -2 * gamma * (values[..., None] * difference).sum(1)
    return (weight[:, None] * slopes).T @ slopes / weight.sum()


def root_by_hand(x, outer, old, weight, diagonal):
    metric = old @ outer @ old
    metric = np.diag(np.diag(metric)) if diagonal else metric
    spread = np.cov(x.T, aweights=weight, ddof=0)
    metric = metric * np.trace(spread) / np.trace(metric @ spread)
    values, vectors = np.linalg.eigh(metric)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_a_round_is_that_of_the_paper(diagonal, weighted):
    weight = RNG.integers(0, 3, N).astype(float) if weighted else np.ones(N)
    data = jaxsvm.dataset(X, Y, weight)
    root, by_hand = learned_metric._identity(data, diagonal), np.eye(D)
    for _ in range(2):
        rows = X.astype(float) @ by_hand
        model = jaxsvm.fit(maker(10.0, 0.3), data._replace(x=rows.astype(np.float32)), KEY).model
        outer = outer_by_hand(model, 0.3, rows, weight)
        by_hand = root_by_hand(X.astype(float), outer, by_hand, weight, diagonal)
        root = learned_metric._next_root(maker(10.0, 0.3), data, KEY, root)
        full = np.diag(root) if diagonal else np.asarray(root)
        assert np.allclose(full, by_hand, atol=2e-3)


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_model_is_the_machine_on_the_metric_of_all_rows(diagonal):
    data = jaxsvm.dataset(X, Y)
    found = search(data, diagonal=diagonal)
    assert found.round > 0 and found.errors.shape == (3,)
    assert found.importances.argmax() == 1 and found.importances.sum() == pytest.approx(1)
    root = learned_metric._identity(data, diagonal)
    for table in found.tables[: found.round]:
        root = learned_metric._next_root(maker(**table.at(table.place)), data, KEY, root)
    metric = np.asarray(root, float)
    assert np.allclose(found.metric, metric**2 if diagonal else metric @ metric, atol=1e-5)
    rows = X * metric[None] if diagonal else X @ metric
    one = jaxsvm.fit(maker(**found.chosen), jaxsvm.dataset(rows, Y), KEY).model
    assert np.allclose(found.model(X), one(rows.astype(np.float32)), atol=2e-3)
    assert np.array_equal(found.predict(X), np.where(np.asarray(found.model(X)) > 0, 1, -1))


def test_scores_are_of_metrics_that_did_not_see_the_fold():
    """Labels of a fold do not change the metric that its rows are judged by."""
    data, fold = jaxsvm.dataset(X, Y), np.arange(N) % 3
    found = search(data, rounds=1, folds=fold)
    for k in range(3):
        weight = np.where(fold == k, 0.0, 1.0)
        part = jaxsvm.dataset(X, np.where(fold == k, -Y, Y), weight)
        first = found.tables[0]
        solver = maker(**first.at(first.place))
        root = learned_metric._next_root(solver, part, KEY, learned_metric._identity(part, False))
        rows = X @ np.asarray(root)
        for i, C in enumerate(AXES["C"]):
            for j, gamma in enumerate(AXES["gamma"]):
                train = jaxsvm.dataset(rows, Y, weight)
                model = jaxsvm.fit(maker(C, gamma), train, KEY).model
                wrong = (np.asarray(model(train.x)) > 0) != (Y > 0)
                assert found.tables[1].folds[i, j, k] == pytest.approx(wrong[fold == k].mean())


@pytest.mark.parametrize("wrap", [jaxsvm.one_vs_rest, jaxsvm.one_vs_one])
def test_several_classes(wrap):
    y = np.digitize(X[:, 2], [-0.5, 0.5])
    data = jaxsvm.dataset(X, y, task="multiclass")
    found = search(data, lambda C: wrap(maker(C, 0.2), classes=3), {"C": AXES["C"]}, rounds=1)
    assert found.round == 1 and found.importances.argmax() == 2
    assert (found.predict(X) == y).mean() > 0.8


def test_real_targets_and_saved_models(tmp_path):
    data = jaxsvm.dataset(X, np.sin(2 * X[:, 3]), task="regression")
    squared = lambda C, gamma: jaxsvm.decomposition(
        C, kernels.rbf(gamma=gamma), loss=jaxsvm.losses.squared
    )
    found = search(data, squared, diagonal=True)
    assert found.round > 0 and found.importances[3] > 0.9
    jaxsvm.models.save(tmp_path / "model.npz", found.model)
    assert np.allclose(jaxsvm.models.load(tmp_path / "model.npz")(X), found.model(X), atol=1e-6)


def test_rounds_end_at_a_constant_function_with_the_machine_of_select():
    options = {
        "axes": {"C": np.array([1e-30]), "gamma": np.array([1.0])},
        "folds": np.arange(N) % 3,
    }
    found = search(jaxsvm.dataset(X, Y), **options)
    one = jaxsvm.select(
        maker, jaxsvm.dataset(X, Y), KEY, folds=options["folds"], progress=False, **options["axes"]
    )
    assert found.round == 0 and len(found.tables) == 1 and (found.metric == np.eye(D)).all()
    assert np.array_equal(found.model(X), one.model(X))


def test_later_rounds_look_at_neighbours_in_the_order_of_the_numbers():
    axes = {"C": np.array([10.0, 0.1, 1000.0, 1.0, 100.0]), "gamma": np.array([0.2])}
    found = search(jaxsvm.dataset(X, Y), axes=axes, rounds=1)
    C = sorted(axes["C"])
    place = C.index(found.tables[0].at(found.tables[0].place)["C"])
    assert found.tables[1].axes["C"].tolist() == C[max(place - 1, 0) : place + 2]


def test_groups_stay_together_and_the_score_is_that_of_the_call():
    groups = np.arange(N) // 9
    count = lambda values, y, weight: float(np.sum((values > 0) != (y > 0)))
    found = search(jaxsvm.dataset(X, Y), groups=groups, score=count, rounds=1)
    one = jaxsvm.select(
        maker, jaxsvm.dataset(X, Y), KEY, groups=groups, score=count, progress=False, **AXES
    )
    assert np.array_equal(found.tables[0].folds, one.table.folds)
    assert (found.tables[1].folds == np.round(found.tables[1].folds)).all()


@pytest.mark.parametrize("missing", [False, True])
def test_several_targets(missing):
    y = np.stack([X[:, 0] > 0, X[:, 1] ** 2 > 0.5], 1).astype(float)
    y[:20, 1] = np.nan if missing else y[:20, 1]
    data = jaxsvm.dataset(X, y)
    many = lambda C: jaxsvm.multi_output(maker(C, 0.2), outputs=2)
    found = search(data, many, {"C": AXES["C"]}, rounds=1)
    assert set(np.argsort(found.importances)[-2:]) == {0, 1}
    assert found.predict(X).shape == (N, 2)


def test_votes_on_features_are_judged_by_the_values_of_pairs():
    data = jaxsvm.dataset(X, np.digitize(X[:, 2], [-0.5, 0.5]), task="multiclass")
    votes = jaxsvm.fit(jaxsvm.one_vs_one(maker(10.0, 0.2), classes=3), data, KEY).model
    scale = learned_metric.Metric(np.full(D, 2.0, np.float32))
    ones = np.ones(N, np.float32)
    outer = learned_metric._outer(jaxsvm.models.Mapped(scale, votes), X / 2, ones)
    assert np.allclose(outer, 4 * learned_metric._outer(votes, X, ones), rtol=1e-4)
    by_hand = sum(
        outer_by_hand(votes[pair], 0.2, X.astype(float), ones.astype(float))
        for pair in ((0, 1), (0, 2), (1, 2))
    )
    assert np.allclose(learned_metric._outer(votes, X, ones), by_hand, atol=1e-4)


DATA = jaxsvm.dataset(X, Y)
BAD = {
    "rounds must be a whole number from 1 to 20": lambda: search(DATA, rounds=0),
    "diagonal must be True or False": lambda: search(DATA, diagonal=1),
    "takes dense rows": lambda: search(jaxsvm.dataset(X, Y, sparse=True)),
    "there is one fold": lambda: search(DATA, score="log_loss"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_gets_one_sentence(message):
    with pytest.raises((ValueError, TypeError), match=message):
        BAD[message]()


def test_one_fold_is_a_validation_set():
    fold = np.where(np.arange(N) < 30, 0, -1)
    found = jaxsvm.select(maker, DATA, KEY, folds=fold, rule="one_se", progress=False, **AXES)
    assert found.table.folds.shape == (2, 2, 1) and np.isnan(found.table.se).all()
    assert found.one_se == found.best
    model = jaxsvm.fit(maker(10.0, 0.05), jaxsvm.dataset(X[30:], Y[30:]), KEY).model
    wrong = (np.asarray(model(X[:30])) > 0) != (Y[:30] > 0)
    assert found.table.folds[1, 0, 0] == pytest.approx(wrong.mean())
