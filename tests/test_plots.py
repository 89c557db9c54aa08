"""Pictures: what is drawn, read back from the axes."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402

import jaxsvm  # noqa: E402
from jaxsvm import kernels, plots  # noqa: E402
from jaxsvm.models import Classifier, Expansion, Linear  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype(np.float32)
DATA = jaxsvm.dataset(X, np.where(X[:, 0] + 0.3 * RNG.normal(size=40) > 0, 1, -1))
SEEDS = jax.random.split(jax.random.key(0), 3)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def error(model):
    return jaxsvm.error_on(DATA)(model)


def fitted(key):
    return jaxsvm.fit(jaxsvm.pegasos(0.1), DATA, key, steps=60, every=20, probe=error)


RUNS = [fitted(key) for key in SEEDS]
BATCH = jax.vmap(fitted)(SEEDS)


def test_runs_without_a_probe_show_their_loss():
    info = RUNS[0].info._replace(probe=None)
    ax = plots.learning_curve({"a": info, "b": RUNS[1]})
    assert ax.get_ylabel() == "mean loss on the drawn rows"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), info.loss)


def test_a_line_for_each_run():
    ax = plots.learning_curve({"a": RUNS[0], "b": RUNS[1]})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    for line, run in zip(ax.lines, RUNS, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), [20, 40, 60])
        np.testing.assert_allclose(line.get_ydata(), run.info.probe)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps", "probe")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")


def test_a_batch_is_its_mean_and_a_band_from_least_to_largest():
    ax = plots.learning_curve(BATCH, value="loss", log="xy")
    by_run = np.stack([run.info.loss for run in RUNS])
    # float32: vmapped sums of 20 losses may round differently
    np.testing.assert_allclose(ax.lines[0].get_ydata(), by_run.mean(0), rtol=1e-5)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose(
        [corners.min(), corners.max()], [by_run.min(), by_run.max()], rtol=1e-5
    )
    assert (ax.get_legend(), ax.get_xscale(), ax.get_yscale()) == (None, "log", "log")


def test_evaluations_are_summed():
    ax = plots.learning_curve({"one": RUNS[0].info, "batch": BATCH}, value="residual", x="evals")
    for line in ax.lines:  # Pegasos spends one inner product a step
        np.testing.assert_array_equal(line.get_xdata(), [20, 40, 60])


def test_runs_of_a_batch_that_stopped_stand_still():
    # as `fit` has it under vmap: the last row again, with nothing spent
    info = BATCH.info._replace(
        step=BATCH.info.step.at[0].set(20), evals=BATCH.info.evals.at[0, 1:].set(0)
    )
    np.testing.assert_array_equal(plots.learning_curve(info).lines[0].get_xdata(), [20, 40, 60])
    np.testing.assert_allclose(
        plots.learning_curve(info, x="evals").lines[0].get_xdata(), [20, 100 / 3, 140 / 3]
    )


def test_a_function_of_the_curve():
    ax = plt.subplots()[1]
    assert plots.learning_curve(BATCH, value=lambda info: 100 * info.probe, ax=ax) is ax
    np.testing.assert_allclose(
        ax.lines[0].get_ydata(), 100 * np.mean(BATCH.info.probe, 0), rtol=1e-6
    )


@pytest.mark.parametrize(
    "runs, options, error, says",
    [
        (RUNS[0].model, {}, TypeError, "takes runs"),
        ({"a": 3}, {}, TypeError, "takes runs"),
        (RUNS[0], {"value": "gap"}, ValueError, "value must be one of"),
        (RUNS[0], {"x": "time"}, ValueError, "x must be one of"),
        (RUNS[0], {"log": True}, ValueError, "log must be one of"),
        (RUNS[0].info._replace(probe=None), {"value": "probe"}, ValueError, "has no probe"),
        (
            jax.tree.map(lambda a: a[:1], RUNS[0].info._replace(probe=None)),
            {},
            ValueError,
            "one row, so there is no curve: an exact machine",
        ),
        (
            {"b": RUNS[0].info._replace(probe=jnp.ones((3, 2)))},
            {},
            ValueError,
            "b must have one number for each look",
        ),
        (RUNS[0].info._replace(probe={"e": jnp.ones(3)}), {}, ValueError, "got a dict"),
        (jax.tree.map(lambda a: a[None], BATCH.info), {}, ValueError, "one axis of runs"),
        (jax.tree.map(lambda a: a[:0], RUNS[0].info), {}, ValueError, "made no step"),
    ],
)
def test_a_curve_that_cannot_be_drawn(runs, options, error, says):
    before = plt.get_fignums()
    with pytest.raises(error, match=says):
        plots.learning_curve(runs, **options)
    assert plt.get_fignums() == before  # no empty figure stays behind


def lines(ax):
    """The level lines of an axes, from -1 over 0 to +1."""
    (found,) = [c for c in ax.collections if isinstance(c, matplotlib.contour.QuadContourSet)]
    return [path.vertices for path in found.get_paths()]


def test_the_lines_of_a_model_are_where_its_values_are():
    logistic = LogisticRegression().fit(X, np.asarray(DATA.y))
    model = Linear(
        jnp.asarray(logistic.coef_[0], jnp.float32),
        jnp.asarray(logistic.intercept_[0], jnp.float32),
    )
    ax = plots.decision_region(model, DATA)
    for level, found in zip((-1, 0, 1), lines(ax), strict=True):
        # a linear function is interpolated exactly, in float32
        np.testing.assert_allclose(logistic.decision_function(found), level, atol=1e-4)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["-1", "+1"]


def test_the_fill_reaches_as_far_as_the_rows_and_their_margin():
    """Rows from -1 to 3 and from 0 to 20, with as much beside them on each side."""
    data = jaxsvm.dataset([[-1.0, 0.0], [3.0, 20.0]], [1, -1])
    left, right, low, high = (
        plots.decision_region(Linear(jnp.ones(2), jnp.zeros(())), data).images[0].get_extent()
    )
    np.testing.assert_allclose([left + right, low + high], [2, 20], rtol=1e-5)
    assert left < -1 and low < 0


def of_libsvm():
    found = SVC(C=1.0, gamma=0.5).fit(X, np.asarray(DATA.y))
    coef = np.zeros(len(X), np.float32)
    coef[found.support_] = found.dual_coef_[0]
    b = jnp.asarray(found.intercept_[0], jnp.float32)
    return found, Expansion(kernels.rbf(1.0), DATA.x, jnp.asarray(coef), b, DATA.index, "free")


def rings(ax):
    return next(c.get_offsets() for c in ax.collections if c.get_label() == "support vectors")


@pytest.mark.long
def test_support_vectors_are_ringed():
    found, model = of_libsvm()
    ax = plt.subplots()[1]
    assert plots.decision_region(model, DATA, ax=ax) is ax
    np.testing.assert_allclose(np.sort(rings(ax), 0), np.sort(found.support_vectors_, 0))
    # between points of the grid
    np.testing.assert_allclose(found.decision_function(lines(ax)[1]), 0, atol=2e-2)
    named = Classifier(model, ("no", "yes"))
    ax = plots.decision_region(named, DATA)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "no",
        "yes",
        "support vectors",
    ]
    assert len(plots.decision_region(named, DATA, support=False).get_legend().get_texts()) == 2


def test_padding_and_constant_columns():
    flat = DATA._replace(
        x=DATA.x.at[:, 1].set(3.0).at[0].set(1e6), weight=DATA.weight.at[0].set(0.0)
    )
    ax = plots.decision_region(Linear(jnp.ones(2), jnp.zeros(())), flat)
    assert ax.get_xlim()[1] < 10 and ax.get_ylim() == (2, 4)


@pytest.mark.long
def test_sparse_rows():
    from scipy.sparse import csr_matrix

    sparse = jaxsvm.dataset(csr_matrix(X), np.asarray(DATA.y))
    model = of_libsvm()[1]
    dense, padded = (
        plots.decision_region(model, DATA),
        plots.decision_region(Expansion(**vars(model) | {"x": sparse.x}), sparse),
    )
    np.testing.assert_allclose(rings(dense), rings(padded))


@pytest.mark.long
def test_regions_of_several_classes_by_scikit_learn():
    """As the documents say."""
    data = jaxsvm.dataset(X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0), task="multiclass")
    model = jaxsvm.estimators.SVC().fit(X, data.y)
    with pytest.raises(ValueError, match="one value a row, got shape .*DecisionBoundaryDisplay"):
        plots.decision_region(model.model_, data)
    drawn = DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict")
    np.testing.assert_array_equal(np.unique(drawn.response), [0, 1, 2])


@pytest.mark.parametrize(
    "model, data, error, says",
    [
        (RUNS[0], DATA, TypeError, "run.model"),
        (RUNS[0].model, X, TypeError, "must be a Batch"),
        (RUNS[0].model, DATA._replace(x=jnp.ones((40, 3))), ValueError, "two columns, got 3"),
        (RUNS[0].model, DATA._replace(y=DATA.y * 2), ValueError, "labels must be -1 and"),
        (lambda x: jnp.concatenate([x, x], 1), DATA, ValueError, "one value a row"),
        (lambda x: x[:, :1], DATA, ValueError, "one value a row"),
        (lambda x: x[:5, 0], DATA, ValueError, "one value a row"),
    ],
)
def test_a_region_that_cannot_be_drawn(model, data, error, says):
    before = plt.get_fignums()
    with pytest.raises(error, match=says):
        plots.decision_region(model, data)
    assert plt.get_fignums() == before
