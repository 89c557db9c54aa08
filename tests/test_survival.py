"""Pairs of censored times against sums over explicit pairs in NumPy, SciPy, and plain ranking."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import losses, objectives
from jaxsvm.models import Linear
from jaxsvm.risks import risk_of

N = 40
KEY = jax.random.key(0)
COLUMN = Linear(jnp.ones(1), jnp.zeros(()))  # the score is the column
COLUMN64 = Linear(np.ones(1), np.zeros(()))
HINGE, SQUARED = (losses.pairwise(squared=s, censored=True) for s in (False, True))
OPTIONS = [(squared, per_query) for squared in (False, True) for per_query in (False, True)]


def rows(seed=0, n=N):
    """Signed times with ties of events and of censored rows, queries, weights and scores."""
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, 9, n), rng.random(n) < 0.6
    weight = rng.choice([0, 1, 1, 2, 3.5], n)
    return np.where(event, time, -time), rng.integers(0, 3, n), weight, 2 * rng.normal(size=n)


def is_comparable(y):
    """Whether row i is known to have its event after row j, (n, n), as scikit-survival says."""
    time, event = np.abs(y), y > 0
    later = time[:, None] > time
    outlived = (time[:, None] == time) & ~event[:, None]
    return event & (later | outlived)


pair_weights = functools.partial(oracles.pair_weights, is_comparable)
differences = functools.partial(oracles.differences, is_comparable)
smooth_optimum = functools.partial(oracles.smooth_pairs, is_comparable)


def by_pairs(c, score, squared, direction):
    """The risk, its slope, and of the square the product with its Hessian."""
    violated = 2 * c * (1 - (score[:, None] - score) > 0)
    laplacian = np.diag(violated.sum(axis=0) + violated.sum(axis=1)) - violated - violated.T
    return *oracles.by_pairs(c, score, squared), laplacian @ direction


def concordance(c, score):
    """The share of pairs in the right order; scores within 1e-8 count one half."""
    difference = score[:, None] - score
    tied = np.abs(difference) <= 1e-8
    return (c * np.where(tied, 0.5, difference > 0)).sum() / c.sum()


def batch(y, query, weight, x=None):
    """A batch that is not checked."""
    x = np.ones((len(y), 1), "f") if x is None else x
    as_real = lambda a: jnp.asarray(a, x.dtype)
    query = jnp.asarray(query, jnp.int32)
    return jaxsvm.Batch(jnp.asarray(x), as_real(y), jnp.arange(len(y)), as_real(weight), query)


@jax.jit
def evaluated(data, score, direction):
    """Value, slope and Hessian product of all four losses, and the concordance index."""
    found = []
    for squared, per_query in OPTIONS:
        loss = losses.pairwise(squared=squared, per_query=per_query, censored=True)
        risk = risk_of(loss, data)
        if squared:
            value, slope, hessian = risk.second_order(score)
            found.append((value, slope, hessian.product(direction)))
        else:
            found.append((*risk.value_and_slope(score), jnp.zeros_like(score)))
    column = Linear(jnp.ones_like(score[:1]), jnp.zeros_like(score[0]))
    return found, objectives.concordance_on(data._replace(x=score[:, None]))(column)


def check(y, query, weight, score, close):
    """The four losses and the index of these rows are those of the explicit pairs."""
    direction = np.random.default_rng(9).normal(size=len(y)).astype(score.dtype)
    data = batch(y, query, weight, np.ones((len(y), 1), score.dtype))
    found, index = evaluated(data, jnp.asarray(score), jnp.asarray(direction))
    for values, (squared, per_query) in zip(found, OPTIONS, strict=True):
        c = pair_weights(y, query, weight, per_query)
        expected = by_pairs(c, score.astype(float), squared, direction.astype(float))
        for value, theirs in zip(values[: 3 if squared else 2], expected, strict=False):
            np.testing.assert_allclose(value, theirs, **close)
    c = pair_weights(y, query, weight)
    theirs = concordance(c, score.astype(float)) if c.any() else np.nan
    np.testing.assert_allclose(index, theirs, **close)


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_all_that_is_summed_is_a_sum_over_explicit_pairs(data):
    """Few times, queries, weights and scores, so that all of them are tied; some have no pair."""
    n = 12
    drawn = lambda values: np.array(data.draw(st.lists(values, min_size=n, max_size=n)))
    time = drawn(st.integers(1, 4))
    y = np.where(drawn(st.sampled_from([True, False])), time, -time)
    weight = drawn(st.sampled_from([0.0, 1.0, 1.0, 2.5]))
    # multiples of 1/4: differences of 1 are exact
    score = drawn(st.integers(-8, 8)).astype("f") / 4
    check(y, drawn(st.integers(0, 2)), weight, score, dict(rtol=3e-6, atol=3e-6))


@pytest.mark.long
@pytest.mark.parametrize("x64", [True, False])
def test_real_scores_in_both_precisions(x64):
    with jax.enable_x64(x64):
        y, query, weight, score = rows()
        close = dict(rtol=1e-11, atol=1e-12) if x64 else dict(rtol=3e-6, atol=3e-6)
        check(y, query, weight, score.astype(np.float64 if x64 else np.float32), close)


def test_scores_within_1e_8_are_equal(x64):
    """In float64, where such scores are told apart; and not where they differ by a little more."""
    y = np.array([1.0, 2.0, 3.0, -3.0])
    for step, expected in ((0.9e-8, 1 / 4), (1.1e-8, 0.0)):
        score = 0.5 - step * np.arange(4)
        data = jaxsvm.dataset(score[:, None], y, task="survival")
        found = float(objectives.concordance_on(data)(COLUMN64))
        assert concordance(pair_weights(y, y * 0, y * 0 + 1), score) == expected
        np.testing.assert_allclose(found, expected, atol=1e-15)


@jax.jit
def ranked(data, score):
    """Value and slope of the losses of plain ranking."""
    plain = losses.rank_hinge, losses.rank_squared_hinge
    return [risk_of(loss, data).value_and_slope(score) for loss in plain]


@pytest.mark.long
def test_with_all_events_it_is_ranking_by_time():
    y, query, weight, score = rows(1)
    score = score.astype("f")
    data = batch(np.abs(y), query, weight, score[:, None])
    found, index = evaluated(data, jnp.asarray(score), jnp.ones(N))
    for theirs, ours in zip(ranked(data, jnp.asarray(score)), found[::2], strict=True):
        for one, other in zip(theirs, ours[:2], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    # no scores are equal
    np.testing.assert_allclose(index, objectives.pair_accuracy_on(data)(COLUMN), rtol=1e-6)


def padded(values):
    """N numbers, zeros after the given ones."""
    return np.pad(np.asarray(values, "f"), (0, N - len(values)))


def test_a_censored_row_is_no_lower_one():
    """By hand: events at 1 and 3, censored at 2 and 3.

    The pairs are (row 1, row 0), (2, 0), (3, 0), (3, 2), of differences 0.5, 0.25, 0 and -0.25."""
    y, score = padded([1, -2, 3, -3]), padded([0, 0.5, 0.25, 0])
    data = batch(y, np.zeros(N), padded([1, 1, 1, 1]))
    ((value, slope, _), *_), index = evaluated(data, jnp.asarray(score), jnp.ones(N))
    assert float(value) == (0.5 + 0.75 + 1 + 1.25) / 4
    assert slope.tolist()[:4] == [0.75, -0.25, 0.0, -0.5]
    assert float(index) == 2.5 / 4


def test_absent_rows_and_other_units_of_time_change_nothing():
    y, query, weight, score = rows(2)
    score = score.astype("f")
    absent, direction = weight == 0, jnp.ones(N)
    first = evaluated(batch(y, query, weight), jnp.asarray(score), direction)
    for other_y, other_score in (
        (np.where(absent, np.nan, y), np.where(absent, np.nan, score)),
        (np.where(absent, 1.0, y), np.where(absent, 1e20, score).astype("f")),
        (np.sign(y) * np.exp(np.abs(y)), score),
    ):
        other = evaluated(batch(other_y, query, weight), jnp.asarray(other_score), direction)
        for one, two in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(two, one, rtol=3e-6, atol=3e-6)


def test_weight_two_is_two_copies():
    y, query, _, score = rows(3)
    copies = np.r_[np.arange(10), np.arange(N - 10)]
    once = 1.0 + (np.arange(N) < 10) - (np.arange(N) >= N - 10)
    (one, _), (two, _) = (
        evaluated(batch(y[i], query[i], weight), jnp.asarray(score[i], jnp.float32), jnp.ones(N))
        for i, weight in ((np.arange(N), once), (copies, np.ones(N)))
    )
    for (value, slope, _), (value2, slope2, _) in zip(one, two, strict=True):
        np.testing.assert_allclose(value2, value, rtol=3e-6)
        slope2 = np.asarray(slope2)
        merged = np.r_[slope2[:10] + slope2[10:20], slope2[20:]]
        np.testing.assert_allclose(merged, slope[: N - 10], atol=3e-6)


def hinge_optimum(x, y, query, weight, lam):
    """The optimal value of the hinge, between bounds: SciPy on the dual of the explicit pairs."""
    z, c = differences(x, y, query, weight)
    value = lambda a: (a @ z) @ (a @ z) / (2 * lam) - a.sum()
    slope = lambda a: z @ (a @ z) / lam - 1
    options = {"maxiter": 10**5, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-10}
    bounds = [(0, each) for each in c]
    a = scipy.optimize.minimize(value, c / 2, jac=slope, bounds=bounds, options=options).x
    w = a @ z / lam
    return w, -value(a), lam / 2 * w @ w + c @ np.maximum(1 - z @ w, 0)


@pytest.mark.long
@pytest.mark.parametrize("bits", [64, 32])
def test_newton_finds_the_optimum_of_scipy_on_all_pairs(bits):
    with jax.enable_x64(bits == 64):
        lam, dtype = 1e-2, np.dtype(f"f{bits // 8}")
        y, query, weight, _ = rows(4)
        x = np.random.default_rng(8).normal(size=(N, 4))
        w, least = smooth_optimum(x, y, query, weight, lam)
        data = jaxsvm.dataset(x.astype(dtype), y, weight, query=query, task="survival")
        run = jaxsvm.fit(jaxsvm.newton(lam, loss=SQUARED), data, KEY, steps=1, tol=bits * 1e-9)
        assert run.converged and run.model.w.dtype == dtype
        np.testing.assert_allclose(run.model.w, w, rtol=2e-3, atol=2e-4)
        found = objectives.primal(run.model, data, lam, SQUARED)
        np.testing.assert_allclose(found, least, rtol=1e-5)
        z, c = differences(x, y, query, weight)
        risk = c @ np.maximum(1 - z @ np.asarray(run.model.w, float), 0) ** 2
        np.testing.assert_allclose(jaxsvm.risk_on(data, SQUARED)(run.model), risk, rtol=1e-5)


@pytest.mark.long
def test_the_gap_of_ocas_bounds_the_distance_to_the_optimum_of_scipy():
    lam = 1e-2
    y, query, weight, _ = rows(5)
    x = np.random.default_rng(8).normal(size=(N, 4)).astype("f")
    w, low, high = hinge_optimum(x.astype(float), y, query, weight, lam)
    assert high - low < 1e-6 * high
    data = jaxsvm.dataset(x, y, weight, query=query, task="survival")
    solver = jaxsvm.ocas(lam, loss=HINGE)
    for tol in (0.1, 1e-5):
        run = jaxsvm.fit(solver, data, KEY, steps=200, every=1, tol=tol)
        found = float(objectives.primal(run.model, data, lam, HINGE))
        assert run.converged and low * (1 - 1e-6) <= found
        assert found - high <= float(run.info.residual[-1]) * found + 1e-6 * found
    np.testing.assert_allclose(run.model.w, w, atol=3e-3)
    with pytest.raises(TypeError, match="couples rows: take a solver of joint risks, jaxsvm.ocas"):
        jaxsvm.certificate(run.model, data, lam, HINGE)


@pytest.mark.long
def test_several_lam_at_once_are_a_loop_and_have_derivatives(x64):
    y, query, weight, _ = rows(6)
    x = np.random.default_rng(8).normal(size=(N, 4))
    data = jaxsvm.dataset(x, y, weight, query=query, task="survival")
    solved = lambda lam: (
        jaxsvm.fit(jaxsvm.newton(lam, loss=SQUARED), data, KEY, steps=3, tol=1e-14).model.w
    )
    lams = jnp.array([1e-3, 1e-2, 1.0])
    several = jax.vmap(solved)(lams)
    np.testing.assert_allclose(several, [solved(lam) for lam in lams], rtol=1e-6, atol=1e-9)
    h, peer = 1e-6, lambda lam: smooth_optimum(x, y, query, weight, lam)[0]
    slope = (peer(1e-2 + h) - peer(1e-2 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.jacobian(solved))(1e-2), slope, rtol=1e-3, atol=1e-3)


def survival_rows(n, seed=0):
    """Exponential times of which some 40 % are censored: rows, structured times and true scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype("f")
    score = x[:, 0] - x[:, 1] + 0.5 * x[:, 2]
    time, end = rng.exponential(np.exp(score)), rng.exponential(1.7, n)
    y = np.empty(n, [("event", bool), ("time", float)])
    y["event"], y["time"] = time <= end, np.minimum(time, end)
    return x, y, score


@pytest.mark.long
def test_the_machine_orders_new_rows_nearly_as_well_as_the_true_scores():
    x, y, score = survival_rows(1000)
    assert 0.35 < 1 - y["event"].mean() < 0.45
    train, test = slice(0, 500), slice(500, None)
    data = jaxsvm.dataset(x[train], y[train], task="survival")
    run = jaxsvm.fit(jaxsvm.newton(1e-3, loss=SQUARED), data, KEY, steps=1)
    held_out = jaxsvm.dataset(x[test], y[test], task="survival")
    c = pair_weights(np.where(y["event"], 1, -1) * y["time"], np.zeros(1000), np.ones(1000))
    true = concordance(c[test, test], score[test])
    found = float(objectives.concordance_on(held_out)(run.model))
    assert 0.75 < true and true - 0.02 < found


def test_a_structured_array_and_signed_times_are_the_same_data():
    x, y, _ = survival_rows(30)
    signed = np.where(y["event"], y["time"], -y["time"])
    whole = np.empty(30, [("died", bool), ("days", np.int16)])
    whole["died"], whole["days"] = y["event"], 1 + np.arange(30)
    sign = np.where(y["event"], 1, -1)
    for times, expected in ((y, signed), (whole, sign * (1 + np.arange(30)))):
        data = jaxsvm.dataset(x, times, task="survival")
        np.testing.assert_array_equal(data.y, expected.astype("f"))
    traced = jax.jit(lambda y: jaxsvm.dataset(x, y, task="survival").y)(signed.astype("f"))
    np.testing.assert_array_equal(traced, signed.astype("f"))


@pytest.mark.long
def test_probes_of_traced_times_without_a_pair_are_nan():
    y, query, weight, score = rows(7)
    data = batch(y, query, weight, score.astype("f")[:, None])
    of_times = jax.jit(lambda y: objectives.concordance_on(data._replace(y=y))(COLUMN))
    assert np.isnan(of_times(-np.abs(data.y))) and np.isfinite(of_times(data.y))
    models = Linear(np.float32([[1], [-1], [np.nan]]), np.zeros(3, np.float32))
    values = jax.jit(jax.vmap(objectives.concordance_on(data)))(models)
    np.testing.assert_allclose(values[0] + values[1], 1, rtol=1e-6)
    assert np.isnan(values[2])


@pytest.mark.long
def test_select_takes_a_function_and_no_score_of_single_rows():
    x, y, _ = survival_rows(60)
    data = jaxsvm.dataset(x, y, task="survival")
    maker = lambda lam: jaxsvm.newton(lam, loss=SQUARED)

    def score(values, times, weight):
        held_out = jaxsvm.dataset(values[:, None], times, weight, task="survival")
        return 1 - float(objectives.concordance_on(held_out)(COLUMN))

    found = jaxsvm.select(maker, data, KEY, lam=[1e-2, 1e6], score=score, folds=3, progress=False)
    fold, times = found.fold, np.asarray(data.y, float)
    for f in range(3):
        part = fold == f
        training = data._replace(weight=jnp.asarray(~part, jnp.float32))
        run = jaxsvm.fit(maker(1e-2), training, KEY, steps=1)
        c = pair_weights(times[part], np.zeros(part.sum()), np.ones(part.sum()))
        values = np.asarray(x[part] @ run.model.w, float)
        np.testing.assert_allclose(found.table.folds[0, f], 1 - concordance(c, values), atol=2e-3)
    for solver in (maker, lambda lam: jaxsvm.ocas(lam, loss=losses.rank_hinge)):
        with pytest.raises(ValueError, match="score='error' is of single rows, and the loss of"):
            jaxsvm.select(solver, data, KEY, lam=[1e-2, 1.0], progress=False)


def structured(event, time, names=("event", "time")):
    y = np.empty(3, [(names[0], np.asarray(event).dtype), (names[1], np.asarray(time).dtype)])
    y[names[0]], y[names[1]] = event, time
    return y


def test_bad_input_gets_one_sentence():
    x, seen = np.eye(3), [True, False, True]
    times = lambda *args, **options: jaxsvm.dataset(x, *args, task="survival", **options)
    late = "no event is earlier than the time of another row of its query"
    good = times([1.0, -1.0, 2.0])
    times([-1.0, 2.0, -2.0])  # has a pair, of equal times
    for call, expected in (
        (lambda: times([1.0, 0.0, 2.0]), "y must hold times, .*finite and not 0, got 0$"),
        (lambda: times([1.0, np.nan, 2.0]), "y holds a NaN"),
        (lambda: times([-1.0, -2.0, -3.0]), "no row has an event: y must hold .time where"),
        (lambda: times([-1.0, -2.0, 3.0]), late),
        (lambda: times([2.0, 2.0, -1.0]), late),
        (lambda: times([1.0, 2.0, 3.0], query=[0, 1, 2]), late),
        (lambda: times([1.0, 2.0, 3.0], [0, 0, 1]), late),
        (
            lambda: times(structured(seen, [1.0, 0.0, 2.0])),
            "times must be finite and above 0, got 0 in row 1",
        ),
        (lambda: times(structured(seen, [1.0, 2.0, np.inf])), "got inf in row 2"),
        (lambda: times(structured(seen, [1.0, 2.0, -3.0])), "got -3 in row 2"),
        (
            lambda: times(structured([1.0, 2.0, 3.0], seen)),
            "two fields, booleans that say whether the event was observed, then times, got",
        ),
        (lambda: times(structured([1, 0, 1], [1.0, 2.0, 3.0])), "must have two fields"),
        (
            lambda: times(np.sign([1, -1, 1]) * (1.7e9 + np.arange(3))),
            "moves a time by 2 and makes different times of a query equal: number them from 1 on",
        ),
        (lambda: times([1.7e9, -1.7e9 - 1, 3e9]), "moves a time by 1 and makes"),
        (
            lambda: objectives.concordance_on(good._replace(y=-jnp.abs(good.y))),
            "no row has an event",
        ),
        (
            lambda: jaxsvm.fit(
                jaxsvm.newton(1.0, loss=SQUARED), good._replace(y=good.y - 1), KEY, steps=1
            ),
            "y must hold times",
        ),
        (
            lambda: jaxsvm.error_on(good)(Linear(jnp.ones(3), jnp.zeros(()))),
            "labels -1 and .1, but the data of error_on hold class numbers, or real targets",
        ),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
