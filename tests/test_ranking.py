"""The losses of ranking against sums over all pairs in NumPy, and the explicit pair problem."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import by_pairs
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import losses, objectives
from jaxsvm.numerics.wavelet import Ranges, key_bits, sums_by_key
from jaxsvm.risks import risk_of

N = 60
KEY = jax.random.key(0)
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


is_above = lambda y: y[:, None] > y
pair_weights = functools.partial(oracles.pair_weights, is_above)
differences = functools.partial(oracles.differences, is_above)
smooth_pairs = functools.partial(oracles.smooth_pairs, is_above)


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
        for (value, slope), (squared, per_query) in zip(
            found, [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True
        ):
            c = pair_weights(y, query, weight, per_query)
            risk, u = by_pairs(c, score.astype(float), squared)
            np.testing.assert_allclose(value, risk, **close)
            np.testing.assert_allclose(slope, u, **close)


def test_ties_and_margins_of_one_are_the_same_pairs_from_both_sides():
    """Scores on a grid, where f_i - 1 and f_j + 1 round either way: the slope sums to 0, to the bit
    of the counts."""
    y, query, weight, _ = rows(5, 6)
    score = np.random.default_rng(3).integers(-20, 20, N) * np.float32(0.1)
    (_, slope), *_ = evaluated(batch(y, query, weight, np.ones((N, 1), "f")), jnp.asarray(score))
    assert abs(np.asarray(slope, float).sum()) < 1e-7
    value, _ = evaluated(batch(y, query, weight, np.ones((N, 1), "f")), jnp.asarray(score))[0]
    np.testing.assert_allclose(
        value, by_pairs(pair_weights(y, query, weight), score.astype(float), False)[0], rtol=1e-5
    )


def test_what_changes_nothing():
    """A constant for each query; grades relabelled in the same order; rows in another order; rows
    of weight 0."""
    y, query, weight, score = rows(5, 6)
    first = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
    shift = np.random.default_rng(4).normal(size=6)[query]
    order = np.random.default_rng(5).permutation(N)
    absent = weight == 0
    others = {
        "shift": (y, query, weight, score + shift, slice(None)),
        "relabelled": (y**3 + 0.5, query, weight, score, slice(None)),
        "order": (y[order], query[order], weight[order], score[order], order),
        "absent": (
            np.where(absent, 9, y),
            query,
            weight,
            np.where(absent, np.nan, score),
            slice(None),
        ),
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
    np.testing.assert_allclose(
        jax.grad(lambda f: risk.value_and_slope(f)[0])(score), slope, rtol=1e-6
    )


@pytest.mark.long
def test_weight_two_is_two_copies():
    y, query, _, score = rows(5, 6)
    weight = np.r_[np.full(20, 2.0), np.ones(N - 20)]
    copies = np.r_[np.arange(20), np.arange(N)]
    merged = evaluated(batch(y, query, weight), jnp.asarray(score, jnp.float32))
    copied = evaluated(
        batch(y[copies], query[copies], np.ones(len(copies))),
        jnp.asarray(score[copies], jnp.float32),
    )
    for (value, slope), (value2, slope2) in zip(merged, copied, strict=True):
        np.testing.assert_allclose(value2, value, rtol=3e-6)
        slope2 = np.asarray(slope2)
        np.testing.assert_allclose(
            np.r_[slope2[:20] + slope2[20:40], slope2[40:]], slope, atol=3e-6
        )


def test_a_wavelet_matrix_sums_by_brute_force():
    rng = np.random.default_rng(6)
    for n, largest in ((1, 1), (37, 1), (64, 30), (50, 1000)):
        keys, bound = rng.integers(0, largest, n), rng.integers(0, largest, n)
        values = rng.normal(size=(2, n))
        start, end = (rng.integers(0, n + 1, (2, n)) for _ in range(2))
        start, end = np.minimum(start, end), np.maximum(start, end)
        ranges = [
            Ranges(*(jnp.asarray(a, jnp.int32) for a in pair))
            for pair in zip(start, end, strict=True)
        ]
        as_int = lambda a: jnp.asarray(a, jnp.int32)
        keys_array = as_int(keys)
        bits = key_bits(jnp.maximum(keys_array, as_int(bound)))
        sums = sums_by_key(keys_array, np.float32(values), bits, as_int(bound), *ranges)
        below, above = map(np.asarray, sums)
        for i in range(n):
            low, high = (slice(start[k, i], end[k, i]) for k in range(2))
            np.testing.assert_allclose(
                below[:, i], (values * (keys < bound[i]))[:, low].sum(axis=1), atol=1e-5
            )
            np.testing.assert_allclose(
                above[:, i], (values * (keys > bound[i]))[:, high].sum(axis=1), atol=1e-5
            )


@jax.jit
def hessians(data, score, direction):
    """The slope, the product and the diagonal of both Hessians."""
    found = []
    for per_query in (False, True):
        _, slope, hessian = risk_of(
            losses.pairwise(squared=True, per_query=per_query), data
        ).second_order(score)
        found.append((slope, hessian.product(direction), hessian.diagonal))
    return found


@pytest.mark.long(but=2)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize(("grades", "queries"), CASES)
def test_the_hessian_is_that_of_all_pairs(grades, queries, x64, ties):
    """A Laplacian of the violated pairs; ties: equal scores, and no differences of 1 that rounding
    decides."""
    with jax.enable_x64(x64):
        y, query, weight, score = rows(grades, queries)
        score = np.round(score * 8) / 8 + 2.0**-10 * y if ties else score  # exact numbers
        score = score.astype(np.float64 if x64 else np.float32)
        direction = np.random.default_rng(9).normal(size=N).astype(score.dtype)
        # rows of weight 0 may hold anything
        wild = np.where(weight > 0, direction, 1e20).astype(score.dtype)
        data = batch(y, query, weight, np.ones((N, 1), score.dtype))
        found = hessians(data, jnp.asarray(score), jnp.asarray(wild))
        tol = 1e-10 if x64 else 3e-6
        for (slope, product, diagonal), per_query in zip(found, (False, True), strict=True):
            c = pair_weights(y, query, weight, per_query)
            violated = 2 * c * (score[:, None].astype(float) - score < 1)
            laplacian = np.diag(violated.sum(axis=0) + violated.sum(axis=1)) - violated - violated.T
            np.testing.assert_allclose(product, laplacian @ direction, rtol=tol, atol=tol)
            np.testing.assert_array_equal(np.asarray(product)[weight == 0], 0)
            np.testing.assert_allclose(diagonal, np.diag(laplacian), rtol=tol, atol=tol)
            np.testing.assert_allclose(
                slope, by_pairs(c, score.astype(float), True)[1], rtol=tol, atol=tol
            )


def test_the_hessian_is_the_derivative_of_the_slope(x64):
    y, query, weight, score = rows(5, 6)
    data, direction = (
        batch(y, query, weight, np.ones((N, 1))),
        np.random.default_rng(9).normal(size=N),
    )
    shifted = lambda h: np.asarray(
        hessians(data, jnp.asarray(score + h * direction), jnp.asarray(direction))[0][0]
    )
    product = hessians(data, jnp.asarray(score), jnp.asarray(direction))[0][1]
    np.testing.assert_allclose(
        (shifted(1e-7) - shifted(-1e-7)) / 2e-7, product, rtol=1e-6, atol=1e-8
    )


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
    run = jaxsvm.fit(
        jaxsvm.ocas(lam, loss=losses.rank_hinge),
        data,
        jax.random.key(0),
        steps=60,
        every=10,
        tol=1e-6,
    )
    assert run.converged
    found = float(objectives.primal(run.model, data, lam, losses.rank_hinge))
    assert best * (1 - 1e-6) <= found <= best * (1 + 2e-6)
    np.testing.assert_allclose(run.model.w, w, atol=2e-3)
    np.testing.assert_allclose(
        jaxsvm.risk_on(data, losses.rank_hinge)(run.model),
        c @ np.maximum(1 - z @ np.asarray(run.model.w, float), 0),
        rtol=1e-5,
    )


SQUARED = losses.rank_squared_hinge


def by_newton(data, lam, tol=1e-14, **options):
    """A run of `newton` on the squared loss."""
    return jaxsvm.fit(jaxsvm.newton(lam, loss=SQUARED, **options), data, KEY, steps=3, tol=tol)


@pytest.mark.long
@pytest.mark.parametrize("queries", [6, 1])
def test_newton_finds_the_optimum_of_scipy_on_all_pairs(queries, x64):
    lam = 1e-2
    y, query, weight, _ = rows(7, queries)
    x = np.random.default_rng(8).normal(size=(N, 4)) * [1, 20, 1, 1] + [0, 100, 0, 0]
    w, least = smooth_pairs(x, y, query, weight, lam)
    run = by_newton(batch(y, query, weight, x), lam)
    assert run.converged and int(run.state.solver.steps) <= 10
    np.testing.assert_allclose(run.model.w, w, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        objectives.primal(run.model, batch(y, query, weight, x), lam, SQUARED), least, rtol=1e-10
    )
    single = by_newton(batch(y, query, weight, x.astype("f")), lam, tol=1e-6)
    assert single.converged and single.model.w.dtype == np.float32
    np.testing.assert_allclose(single.model.w, w, rtol=2e-3, atol=2e-4)


@pytest.mark.long
def test_newton_and_ocas_have_one_optimum():
    lam = 1e-3
    y, query, weight, _ = rows(7, 6)
    data = batch(y, query, weight, np.random.default_rng(8).normal(size=(N, 4)).astype(np.float32))
    value = lambda run: float(objectives.primal(run.model, data, lam, SQUARED))
    planes = jaxsvm.fit(jaxsvm.ocas(lam, loss=SQUARED), data, KEY, steps=200, every=10, tol=1e-5)
    newton = by_newton(data, lam, tol=1e-6)
    assert planes.converged and newton.converged
    assert abs(value(newton) / value(planes) - 1) <= 1.1e-5
    np.testing.assert_allclose(newton.model.w, planes.model.w, atol=1e-2)


@pytest.mark.long
def test_derivatives_of_newton_are_those_of_the_optimum_of_all_pairs(x64):
    """In lam and in the rows, against SciPy's optima nearby; of second order in lam; in the weights
    a sentence."""
    lam = 1e-2
    y, query, weight, _ = rows(7, 6)
    x = np.random.default_rng(8).normal(size=(N, 4))
    data = batch(y, query, weight, x)
    score = lambda w: jnp.sum(jnp.tanh(w))
    of_lam = lambda lam: score(by_newton(data, lam).model.w)
    of_rows = lambda x: score(by_newton(data._replace(x=x), lam).model.w)
    peer = lambda x, lam: float(score(smooth_pairs(x, y, query, weight, lam)[0]))
    slope = jax.jit(jax.grad(of_lam))
    h = 1e-4 * lam
    np.testing.assert_allclose(
        slope(lam), (peer(x, lam + h) - peer(x, lam - h)) / (2 * h), rtol=1e-5
    )
    np.testing.assert_allclose(jax.jvp(of_lam, (lam,), (1.0,))[1], slope(lam), rtol=1e-10)
    several = jax.vmap(jax.grad(of_lam))(jnp.array([lam, 2 * lam]))
    np.testing.assert_allclose(several, [slope(lam), slope(2 * lam)], rtol=1e-8)
    second = (slope(lam + h) - slope(lam - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.hessian(of_lam))(lam), second, rtol=1e-5)
    direction = np.random.default_rng(3).normal(size=x.shape)
    found = np.sum(np.asarray(jax.jit(jax.grad(of_rows))(jnp.asarray(x))) * direction)
    h = 1e-5
    np.testing.assert_allclose(
        found, (peer(x + h * direction, lam) - peer(x - h * direction, lam)) / (2 * h), rtol=1e-4
    )
    with pytest.raises(
        TypeError, match="losses of ranking have no derivatives in the weights of the rows"
    ):
        jax.grad(lambda weight: score(by_newton(data._replace(weight=weight), lam).model.w))(
            data.weight
        )


def test_what_newton_does_not_take_of_ranking_is_refused_with_one_sentence():
    for options, sentence in (
        (
            {"loss": losses.rank_hinge},
            r"newton needs a loss with a continuous slope.*got pairwise\(\)",
        ),
        (
            {"system": "cholesky"},
            "couples rows, so that its systems are not formed: take system='cg', got 'cholesky'",
        ),
        ({"system": "eigen"}, "take system='cg', got 'eigen'"),
        ({"bias": "free"}, "does not depend on a free bias: take bias='none'"),
        ({"loss": losses.crammer_singer}, "newton needs a loss with a continuous slope"),
    ):
        with pytest.raises(ValueError, match=sentence):
            jaxsvm.newton(0.1, **({"loss": SQUARED} | options))
    with pytest.raises(ValueError, match="no two rows of one query have different grades"):
        jaxsvm.fit(
            jaxsvm.newton(0.1, loss=SQUARED),
            jaxsvm.dataset(np.eye(3), [1, 1, 1], task="ranking"),
            KEY,
        )


@pytest.mark.long
def test_strong_regularisation_has_a_closed_form():
    """lam above max |x_i - x_j|^2: all pairs violate their margin, w = sum c_ij (x_i - x_j) / lam,
    after one plane."""
    y, query, weight, _ = rows(7, 6)
    x = np.random.default_rng(8).normal(size=(N, 4)).astype(np.float32)
    z, c = differences(x.astype(float), y, query, weight)
    lam = float((z**2).sum(axis=1).max())
    solver = jaxsvm.ocas(lam, loss=losses.rank_hinge)
    run = jaxsvm.fit(
        solver, batch(y, query, weight, x), jax.random.key(0), steps=60, every=10, tol=1e-6
    )
    assert int(run.state.step) == 10
    np.testing.assert_allclose(run.model.w, c @ z / lam, rtol=1e-4, atol=1e-7)


def test_solvers_of_single_rows_refuse_a_loss_that_couples_rows():
    couples = (
        "loss must be one of single rows here, and pairwise.. couples rows: "
        "take a solver of joint risks, jaxsvm.ocas"
    )
    for call in (
        lambda: jaxsvm.pegasos(0.1, loss=losses.rank_hinge),
        lambda: jaxsvm.sdca(1.0, loss=losses.rank_hinge),
    ):
        with pytest.raises(TypeError, match=couples):
            call()
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="ranking")
    with pytest.raises(TypeError, match=couples):
        jaxsvm.certificate(
            jaxsvm.models.Linear(jnp.ones(3), jnp.zeros(())), data, 1.0, losses.rank_hinge
        )
    with pytest.raises(TypeError, match="loss must be a loss such as"):
        jaxsvm.ocas(0.1, loss="rank_hinge")


@pytest.mark.long
def test_data_without_a_pair_are_refused_with_one_sentence():
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], query=[0, 1, 2], task="regression")
    with pytest.raises(ValueError, match="no two rows of one query have different grades"):
        jaxsvm.fit(jaxsvm.ocas(0.1, loss=losses.rank_hinge), data, jax.random.key(0))
    value, slope = risk_of(losses.rank_hinge, data).value_and_slope(jnp.arange(3.0))
    assert float(value) == 0 and not np.asarray(slope).any()
