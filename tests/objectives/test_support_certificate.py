"""The certificate on the support of a large expansion against sums over all rows in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, losses
from jaxsvm.models import Classifier, Expansion, Linear
from jaxsvm.objectives import certificates

N, LAM, SIGMA = 4200, 1e-3, 1.0
RNG, KEY = np.random.default_rng(2), jax.random.key(0)
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
DATA = jaxsvm.dataset(X, Y)
SUPPORT = RNG.permutation(N)[:700]  # in no order
ALPHA = RNG.random(700) / (LAM * N)


def gram(x, z):
    x, z = np.asarray(x, float), np.asarray(z, float)
    square = (x**2).sum(1)[:, None] + (z**2).sum(1)[None, :] - 2 * x @ z.T
    return np.exp(-square / (2 * SIGMA**2))


def model_of(index, coef, bias, x=None):
    rows = X[index] if x is None else x
    parts = (
        jnp.asarray(rows),
        jnp.asarray(coef, jnp.float32),
        jnp.float32(0.0 if bias == "none" else 0.2),
    )
    return Expansion(kernels.rbf(SIGMA), *parts, jnp.asarray(index, jnp.int32), bias)


def expected(model, bias):
    """The objective and the gap, each kernel value by itself."""
    full = np.zeros(N)
    np.add.at(full, np.asarray(model.index), np.asarray(model.coef, float))
    b = float(model.b)
    dual = full.copy()
    if bias == "free":
        up, down = dual[dual > 0].sum(), -dual[dual < 0].sum()
        dual = np.where(dual > 0, dual * min(up, down) / up, dual * min(up, down) / down)
    matrix = gram(X, X)
    score = matrix @ full + b
    slope = -LAM * N * Y * dual  # of the conjugate at -alpha / C
    loss = np.maximum(1 - Y * score, 0)
    terms = np.maximum(loss + slope * 1 + LAM * N * dual * score, 0)
    moved = full - dual
    constant = bias == "feature"
    distance = moved @ matrix @ moved + constant * (b - dual.sum()) ** 2
    value = LAM / 2 * (full @ matrix @ full + constant * b * b) + loss.mean()
    return value, LAM / 2 * distance + terms.mean()


@pytest.fixture
def calls(monkeypatch):
    """How each certificate took its model: "support", "yes" or "no"."""
    seen, shapes, plain = [], [], certificates._on_support

    def spy(model, data):
        answer = plain(model, data)
        refused = np.all(np.asarray(answer.index) < 0)
        seen.append("no" if refused else "yes" if answer is model else "support")
        shapes.append(answer.coef.shape)
        return answer

    monkeypatch.setattr(certificates, "_on_support", spy)
    seen_and_shapes = seen, shapes
    return seen_and_shapes


@pytest.mark.parametrize("bias", ["none", "feature", "free"])
def test_bounds_are_those_of_all_rows(bias, calls):
    coef = ALPHA * Y[SUPPORT]
    if bias == "free":  # to be balanced nearly
        up, down = coef[coef > 0].sum(), -coef[coef < 0].sum()
        coef = np.where(coef > 0, coef * min(up, down) / up, coef * min(up, down) / down)
    model = model_of(SUPPORT, coef, bias)
    proof = jaxsvm.certificate(model, DATA, LAM)
    assert proof.exact and calls[0] == ["support"]
    value, gap = expected(model, bias)
    assert proof.primal == pytest.approx(value, rel=1e-9)
    assert proof.gap == pytest.approx(gap, rel=1e-6)


def test_points_of_coefficient_0_take_no_part(calls):
    index = np.arange(N)
    coef = np.zeros(N)
    coef[SUPPORT] = ALPHA * Y[SUPPORT]
    whole = jaxsvm.certificate(model_of(index, coef, "none"), DATA, LAM)
    part = jaxsvm.certificate(model_of(SUPPORT, coef[SUPPORT], "none"), DATA, LAM)
    assert whole.gap == pytest.approx(part.gap, rel=1e-12)
    assert calls == (["support"] * 2, [(768,)] * 2)  # few sizes exist


def test_points_may_be_the_same_rows_but_no_others(calls):
    coef = ALPHA * Y[SUPPORT] / 2
    twice = model_of(np.tile(SUPPORT, 2), np.tile(coef, 2), "none")
    assert jaxsvm.certificate(twice, DATA, LAM).gap == pytest.approx(
        expected(twice, "none")[1], rel=1e-6
    )
    # points that claim to be rows of the data, and are others
    others = model_of(SUPPORT, coef, "none", X[SUPPORT] + 0.1)
    proof = jaxsvm.certificate(others, DATA, LAM)
    score = gram(X, X[SUPPORT] + np.float32(0.1)) @ coef
    own = jaxsvm.certificate(twice, DATA, LAM)
    primal = LAM / 2 * coef @ gram(X[SUPPORT], X[SUPPORT]) @ coef
    primal += np.maximum(1 - Y * score, 0).mean()
    assert not proof.exact and proof.primal == pytest.approx(primal, rel=1e-5)
    assert proof.gap > own.primal - own.gap - proof.primal
    few = jaxsvm.dataset(X[:100], Y[:100])
    jaxsvm.certificate(model_of(np.arange(10), 0.1 * Y[:10], "none"), few, LAM)
    assert calls[0] == ["support", "no", "support", "yes"]


def test_of_real_targets(calls):
    data = jaxsvm.dataset(X, Y, task="regression")
    loss = losses.eps_insensitive(0.1)
    run = jaxsvm.fit(jaxsvm.decomposition(0.05, kernels.rbf(SIGMA), loss=loss), data, KEY, steps=5)
    proof = jaxsvm.certificate(run.model, data, jaxsvm.lam_from_C(0.05, N), loss)
    assert proof.exact and 0 <= proof.gap <= 1e-3 * proof.primal and calls[0] == ["support"]


def test_a_model_of_more_rows_than_the_data():
    """Its coefficients are no dual point of the rows that are there."""
    coef = np.where(SUPPORT < 2100, 0, ALPHA * Y[SUPPORT])
    model = model_of(SUPPORT, coef, "none")
    half = jaxsvm.dataset(X[:2100], Y[:2100])
    proof = jaxsvm.certificate(model, half, LAM)
    assert not proof.exact
    best = jaxsvm.fit(
        jaxsvm.decomposition(1 / (LAM * 2100), kernels.rbf(SIGMA), bias="none", tol=1e-4), half, KEY
    )
    least = jaxsvm.certificate(best.model, half, LAM)
    assert proof.primal - proof.gap <= least.primal


# dual coefficients that are given


def linear_case(bias, loss=losses.hinge):
    """A rough machine on 5,003 rows, its dual coefficients, and rows with a constant."""
    random = np.random.default_rng(5)
    x, weight = random.normal(size=(5003, 4)), random.integers(0, 3, 5003) * 1.0
    y = np.where(x[:, 0] + 0.4 * random.normal(size=5003) > 0.2, 1.0, -1.0)
    data = jaxsvm.dataset(x.astype(np.float32), y, weight)
    C = 1 / (LAM * weight.sum())
    solver = jaxsvm.dual_descent(C, loss=loss, bias=bias, tol=1e-2)
    return data, solver, jaxsvm.lam_from_C(C, weight.sum()), C


def by_hand(rows, y, bound, w, coef):
    """Primal and dual of the hinge."""
    primal = w @ w / 2 + np.sum(bound * np.maximum(1 - y * (rows @ w), 0))
    sum_ = coef @ rows
    return primal, coef @ y - sum_ @ sum_ / 2


@pytest.mark.parametrize("bias", ["none", "feature"])
@pytest.mark.parametrize("map_features", [False, True])
def test_given_coefficients_bound_a_linear_model(bias, map_features):
    data, solver, lam, C = linear_case(bias)
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=4, features=64)
    solver = jaxsvm.on_features(phi, solver) if map_features else solver
    run = jaxsvm.fit(solver, data, KEY, steps=1)
    coef = run.state.solver.coef
    proof = jaxsvm.certificate(run.model, data, lam, dual=coef)
    rows = np.asarray(phi(data.x) if map_features else data.x, float)
    inner = run.model.inner if map_features else run.model
    w = np.asarray(inner.w, float)
    if bias == "feature":
        rows, w = np.c_[rows, np.ones(len(rows))], np.append(w, float(inner.b))
    bound = C * np.asarray(data.weight, float)
    primal, dual = by_hand(rows, np.asarray(data.y, float), bound, w, np.asarray(coef, float))
    scale = 1 / bound.sum()
    assert proof.exact
    assert proof.primal == pytest.approx(primal * scale, rel=1e-5 if map_features else 1e-9)
    # coefficients that float32 rounds above their bound are cut by 1e-6
    assert proof.gap == pytest.approx((primal - dual) * scale, rel=1e-3, abs=2e-6 * proof.primal)
    assert proof.gap < jaxsvm.certificate(run.model, data, lam).gap
    lifted = solver.prepare(data)
    again = jaxsvm.certificate(run.model, lifted, lam, dual=coef)
    assert again.gap == pytest.approx(proof.gap, rel=1e-3)


def test_what_is_no_dual_point_is_refused():
    data, solver, lam, C = linear_case("none")
    run = jaxsvm.fit(solver, data, KEY, steps=1)
    coef, model = run.state.solver.coef, run.model
    with pytest.raises(ValueError, match="not feasible"):
        jaxsvm.certificate(model, data, lam, dual=2 * coef)
    with pytest.raises(ValueError, match="not feasible"):
        jaxsvm.certificate(model, data, lam, dual=-coef)
    with pytest.raises(ValueError, match=r"shape \(10,\), expected a number for each of the 5003"):
        jaxsvm.certificate(model, data, lam, dual=coef[:10])
    for options in ({"passes": 1}, {"l1_ratio": 0.5}):
        with pytest.raises(ValueError, match="dual is for linear models"):
            jaxsvm.certificate(model, data, lam, dual=coef, **options)
    expansion = model_of(SUPPORT, ALPHA * Y[SUPPORT], "none")
    with pytest.raises(ValueError, match="dual is for linear models"):
        jaxsvm.certificate(expansion, DATA, LAM, dual=jnp.zeros(N))


def test_a_coefficient_of_a_row_of_weight_0_is_no_dual_point():
    data = jaxsvm.dataset(np.float32([[1], [-1], [1]]), [1, -1, 1], [1, 1, 0])
    model = Linear(jnp.full(1, 2.0), jnp.zeros(()))
    with pytest.raises(ValueError, match="not feasible"):
        jaxsvm.certificate(model, data, 0.1, dual=[0.0, 0.0, 2.0])
    # the optimum is w = 1 with an objective of 0.05
    proof = jaxsvm.certificate(model, data, 0.1, dual=[0.5, -0.5, 0.0])
    assert proof.primal == pytest.approx(0.2) and proof.gap == pytest.approx(0.15)


def test_digits_of_given_coefficients_are_kept():
    """float32 rounds 1/3 above the bound 1/3, and the coefficients would be cut."""
    data = jaxsvm.dataset(np.float32([[1], [-1]]), [1, -1])
    model = Linear(np.asarray([2 / 3]), np.zeros(()))
    proof = jaxsvm.certificate(model, data, 1.5, dual=[1 / 3, -1 / 3])
    assert abs(proof.gap) < 1e-12 and proof.primal == pytest.approx(2 / 3, rel=1e-12)


def test_given_coefficients_of_sparse_rows_and_of_nested_models():
    data, solver, lam, _ = linear_case("feature")
    x = np.asarray(data.x) * (np.random.default_rng(1).random(data.x.shape) < 0.5)
    sparse = jaxsvm.dataset(scipy.sparse.csr_matrix(x), data.y, data.weight)
    dense = jaxsvm.dataset(x, data.y, data.weight)
    phi = features.fourier(KEY, kernels.rbf(1.0), dim=4, features=32)
    on_map = jaxsvm.on_features(phi, solver)
    run = jaxsvm.fit(on_map, dense, KEY, steps=1)
    coef = run.state.solver.coef
    expected = jaxsvm.certificate(run.model, dense, lam, dual=coef).gap
    assert jaxsvm.certificate(run.model, sparse, lam, dual=coef).gap == pytest.approx(
        expected, rel=1e-3
    )
    named = Classifier(Classifier(run.model, (-1, 1)), (-1, 1))
    assert jaxsvm.certificate(named, dense, lam, dual=coef).gap == pytest.approx(expected, rel=1e-9)


def test_given_coefficients_with_a_free_bias():
    data, _, _, C = linear_case("none")
    run = jaxsvm.fit(jaxsvm.interior_point(C, bias="free", tol=1e-6), data, KEY, steps=1)
    lam = jaxsvm.lam_from_C(C, float(np.sum(np.asarray(data.weight))))
    proof = jaxsvm.certificate(run.model, data, lam, dual=run.state.solver.coef)
    assert 0 <= proof.gap <= 1e-4 * proof.primal
    # the side of larger sum is scaled down: both by a half
    coef = np.asarray(run.state.solver.coef, float)
    uneven = jaxsvm.certificate(run.model, data, lam, dual=np.where(coef > 0, coef / 2, coef))
    even = jaxsvm.certificate(run.model, data, lam, dual=coef / 2)
    assert uneven.gap == pytest.approx(even.gap, rel=1e-4) and even.gap > proof.gap


def test_given_coefficients_under_jit():
    data, solver, lam, _ = linear_case("feature", losses.squared_hinge)
    run = jaxsvm.fit(solver, data, KEY, steps=1)
    bound = lambda coef: (
        jaxsvm.certificate(run.model, data, lam, losses.squared_hinge, dual=coef).gap
    )
    coef = run.state.solver.coef
    assert float(jax.jit(bound)(coef)) == pytest.approx(bound(coef), rel=0.02)
