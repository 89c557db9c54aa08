"""The losses of ranking against sums over all pairs in NumPy, and the explicit pair problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import losses, objectives
from jaxsvm.numerics.wavelet import Ranges, key_bits, sums_by_key
from jaxsvm.risks import risk_of

N = 60
CASES = [  # grades, queries
    pytest.param(2, 1, id="labels"),
    pytest.param(7, 1, id="7 grades"),
    pytest.param(N, 6, id="many grades in 6 queries"),
    pytest.param(3, 25, id="3 grades in 25 queries"),
]


def rows(grades, queries, seed=0):
    """Grades, queries, weights and scores; some weights are 0."""
    rng = np.random.default_rng(seed)
    y, query = rng.integers(0, grades, N), rng.integers(0, queries, N)
    return y, query, rng.choice([0, 1, 1, 2, 3.5], N), 2 * rng.normal(size=N)


def pair_weights(y, query, weight, per_query=False):
    """c_ij of all pairs, (n, n)."""
    c = np.where((y[:, None] > y) & (query[:, None] == query), np.outer(weight, weight), 0.0)
    if per_query:
        for q in set(query):
            c[query == q] /= max(c[query == q].sum(), 1e-300)
    return c / c.sum()


def by_pairs(c, score, squared):
    """The risk and its slope from the differences of all pairs."""
    slack = np.maximum(1 - (score[:, None] - score), 0)
    pull = 2 * c * slack if squared else c * (slack > 0)
    return (c * (slack**2 if squared else slack)).sum(), pull.sum(axis=0) - pull.sum(axis=1)


def batch(y, query, weight, x=None):
    x = np.ones((len(y), 1)) if x is None else x
    return jaxsvm.dataset(x, y, weight, query=query)


@jax.jit
def evaluated(data, score):
    """Value and slope of all four losses, one program for all cases."""
    options = [(squared, per_query) for squared in (False, True) for per_query in (False, True)]
    of = lambda squared, per_query: losses.pairwise(squared=squared, per_query=per_query)
    return [risk_of(of(*each), data).value_and_slope(score) for each in options]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("grades", "queries"), CASES)
def test_value_and_slope_are_sums_over_all_pairs(grades, queries, x64):
    with jax.enable_x64(x64):
        y, query, weight, score = rows(grades, queries)
        score = score.astype(np.float64 if x64 else np.float32)
        found = evaluated(batch(y, query, weight, np.ones((N, 1), score.dtype)), jnp.asarray(score))
        close = dict(rtol=1e-11, atol=1e-12) if x64 else dict(rtol=3e-6, atol=3e-6)
        for (value, slope), (squared, per_query) in zip(found, [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True):
            c = pair_weights(y, query, weight, per_query)
            risk, u = by_pairs(c, score.astype(float), squared)
            np.testing.assert_allclose(value, risk, **close)
            np.testing.assert_allclose(slope, u, **close)


def test_ties_and_margins_of_one_are_the_same_pairs_from_both_sides():
    """Scores on a grid, where f_i - 1 and f_j + 1 round either way: the slope sums to 0, to the bit of the counts."""
    y, query, weight, _ = rows(5, 6)
    score = np.random.default_rng(3).integers(-20, 20, N) * np.float32(0.1)
    (_, slope), *_ = evaluated(batch(y, query, weight, np.ones((N, 1), "f")), jnp.asarray(score))
    assert abs(np.asarray(slope, float).sum()) < 1e-7
    value, _ = evaluated(batch(y, query, weight, np.ones((N, 1), "f")), jnp.asarray(score))[0]
    np.testing.assert_allclose(value, by_pairs(pair_weights(y, query, weight), score.astype(float), False)[0], rtol=1e-5)


def test_what_changes_nothing():
    """A constant for each query; grades relabelled in the same order; rows in another order; rows of weight 0."""
    y, query, weight, score = rows(5, 6)
    first = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
    shift = np.random.default_rng(4).normal(size=6)[query]
    order = np.random.default_rng(5).permutation(N)
    absent = weight == 0
    others = {
        "shift": (y, query, weight, score + shift, slice(None)),
        "relabelled": (y**3 + 0.5, query, weight, score, slice(None)),
        "order": (y[order], query[order], weight[order], score[order], order),
        "absent": (np.where(absent, 9, y), query, weight, np.where(absent, np.nan, score), slice(None)),
    }
    for name, (y, query, weight, score, place) in others.items():
        other = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
        for (value, slope), (value2, slope2) in zip(first, other, strict=True):
            np.testing.assert_allclose(value2, value, rtol=3e-6, err_msg=name)
            np.testing.assert_allclose(slope2, np.asarray(slope)[place], atol=3e-6, err_msg=name)


def test_a_query_of_small_weights_keeps_its_digits():
    """Partial sums over all queries would round it to the digits of the heaviest."""
    y, query, _, score = rows(5, 2)
    weight = np.random.default_rng(7).uniform(1, 2, N) * np.where(query == 0, 2.0**20, 1)
    weight = weight.astype("f").astype(float)
    found = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
    c = pair_weights(y, query, weight, per_query=True)
    for (value, slope), squared in zip(found[1::2], (False, True), strict=True):
        expected, pull = by_pairs(c, score.astype("f").astype(float), squared)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(slope, pull, atol=1e-6)


@pytest.mark.long
def test_the_derivative_in_the_scores_is_the_slope():
    data = batch(*rows(5, 6)[:3])
    risk = risk_of(losses.rank_squared_hinge, data)
    score = jnp.asarray(rows(5, 6)[3], jnp.float32)
    _, slope = risk.value_and_slope(score)
    np.testing.assert_allclose(jax.grad(lambda f: risk.value_and_slope(f)[0])(score), slope, rtol=1e-6)


def test_weight_two_is_two_copies():
    y, query, _, score = rows(5, 6)
    weight = np.r_[np.full(20, 2.0), np.ones(N - 20)]
    copies = np.r_[np.arange(20), np.arange(N)]
    merged = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
    copied = evaluated(batch(y[copies], query[copies], np.ones(len(copies))), jnp.asarray(score[copies], jnp.float32))
    for (value, slope), (value2, slope2) in zip(merged, copied, strict=True):
        np.testing.assert_allclose(value2, value, rtol=3e-6)
        slope2 = np.asarray(slope2)
        np.testing.assert_allclose(np.r_[slope2[:20] + slope2[20:40], slope2[40:]], slope, atol=3e-6)


def test_a_wavelet_matrix_sums_by_brute_force():
    rng = np.random.default_rng(6)
    for n, largest in ((1, 1), (37, 1), (64, 30), (50, 1000)):
        keys, bound = rng.integers(0, largest, n), rng.integers(0, largest, n)
        values = rng.normal(size=(2, n))
        start, end = (rng.integers(0, n + 1, (2, n)) for _ in range(2))
        start, end = np.minimum(start, end), np.maximum(start, end)
        ranges = [Ranges(*(jnp.asarray(a, jnp.int32) for a in pair)) for pair in zip(start, end, strict=True)]
        as_int = lambda a: jnp.asarray(a, jnp.int32)
        keys_array = as_int(keys)
        bits = key_bits(jnp.maximum(keys_array, as_int(bound)))
        below, above = sums_by_key(keys_array, jnp.asarray(values, jnp.float32), bits, as_int(bound), *ranges)
        for i in range(n):
            low, high = (slice(start[k, i], end[k, i]) for k in range(2))
            np.testing.assert_allclose(below[:, i], (values * (keys < bound[i]))[:, low].sum(axis=1), atol=1e-5)
            np.testing.assert_allclose(above[:, i], (values * (keys > bound[i]))[:, high].sum(axis=1), atol=1e-5)


def differences(x, y, query, weight):
    """The rows x_i - x_j of all pairs, and their weights."""
    c = pair_weights(y, query, weight)
    i, j = np.nonzero(c)
    return x[i] - x[j], c[i, j]


@pytest.mark.long
def test_ocas_finds_the_optimum_of_the_explicit_pair_problem():
    """LIBLINEAR on the differences, half of them turned round as it needs two classes."""
    lam = 1e-2
    y, query, weight, _ = rows(7, 1)
    x = np.random.default_rng(7).normal(size=(N, 4)).astype(np.float32)
    z, c = differences(x.astype(float), y, query, weight)
    sign = np.where(np.arange(len(z)) % 2, 1, -1)
    peer = LinearSVC(loss="hinge", C=1 / lam, fit_intercept=False, tol=1e-10, max_iter=10**6)
    w = peer.fit(sign[:, None] * z, sign, sample_weight=c).coef_[0]
    best = lam / 2 * w @ w + c @ np.maximum(1 - z @ w, 0)
    data = batch(y, query, weight, x)
    run = jaxsvm.fit(jaxsvm.ocas(lam, loss=losses.rank_hinge), data, jax.random.key(0), steps=60, every=10, tol=1e-6)
    assert run.converged
    found = float(objectives.primal(run.model, data, lam, losses.rank_hinge))
    assert best * (1 - 1e-6) <= found <= best * (1 + 2e-6)
    np.testing.assert_allclose(run.model.w, w, atol=2e-3)
    np.testing.assert_allclose(
        jaxsvm.risk_on(data, losses.rank_hinge)(run.model), c @ np.maximum(1 - z @ np.asarray(run.model.w, float), 0), rtol=1e-5
    )


def test_strong_regularisation_has_a_closed_form():
    """lam above max |x_i - x_j|^2: all pairs violate their margin, w = sum c_ij (x_i - x_j) / lam, after one plane."""
    y, query, weight, _ = rows(7, 6)
    x = np.random.default_rng(8).normal(size=(N, 4)).astype(np.float32)
    z, c = differences(x.astype(float), y, query, weight)
    lam = float((z**2).sum(axis=1).max())
    solver = jaxsvm.ocas(lam, loss=losses.rank_hinge)
    run = jaxsvm.fit(solver, batch(y, query, weight, x), jax.random.key(0), steps=60, every=10, tol=1e-6)
    assert int(run.state.step) == 10
    np.testing.assert_allclose(run.model.w, c @ z / lam, rtol=1e-4, atol=1e-7)


def test_solvers_of_single_rows_refuse_a_loss_that_couples_rows():
    couples = "loss must be one of single rows here, and pairwise.. couples rows: take a solver of joint risks, jaxsvm.ocas"
    for call in (
        lambda: jaxsvm.pegasos(0.1, loss=losses.rank_hinge),
        lambda: jaxsvm.sdca(1.0, loss=losses.rank_hinge),
    ):
        with pytest.raises(TypeError, match=couples):
            call()
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="ranking")
    with pytest.raises(TypeError, match=couples):
        jaxsvm.certificate(jaxsvm.models.Linear(jnp.ones(3), jnp.zeros(())), data, 1.0, losses.rank_hinge)
    with pytest.raises(TypeError, match="loss must be a loss such as"):
        jaxsvm.ocas(0.1, loss="rank_hinge")


@pytest.mark.long
def test_data_without_a_pair_are_refused_with_one_sentence():
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], query=[0, 1, 2], task="regression")
    with pytest.raises(ValueError, match="no two rows of one query have different grades"):
        jaxsvm.fit(jaxsvm.ocas(0.1, loss=losses.rank_hinge), data, jax.random.key(0))
    value, slope = risk_of(losses.rank_hinge, data).value_and_slope(jnp.arange(3.0))
    assert float(value) == 0 and not np.asarray(slope).any()
