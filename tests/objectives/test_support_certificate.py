"""The certificate on the support of a large expansion against sums over all rows in NumPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from certified import CONJUGATES, LOSSES, balanced, values
from oracles import weights_of, with_ones

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.features import fourier
from jaxsvm.models import Classifier, Expansion, Linear
from jaxsvm.objectives import certificates

N, LAM = 4200, 1e-3
RNG, KEY, RBF = np.random.default_rng(2), jax.random.key(0), kernels.rbf(1.0)
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
DATA = jaxsvm.dataset(X, Y)
SUPPORT = RNG.permutation(N)[:700]  # in no order
COEF = RNG.random(700) / (LAM * N) * Y[SUPPORT]


def gram(x, z):
    x, z = np.asarray(x, float), np.asarray(z, float)
    square = (x**2).sum(1)[:, None] + (z**2).sum(1)[None, :] - 2 * x @ z.T
    return np.exp(-square / 2)


def model_of(index, coef, bias="none", x=None):
    rows, b = jnp.asarray(X[index] if x is None else x), jnp.float32(0.2 * (bias != "none"))
    index = jnp.asarray(index, jnp.int32)
    return Expansion(RBF, rows, jnp.asarray(coef, jnp.float32), b, index, bias)


def expected(model, name="hinge"):
    """The objective and the gap, each kernel value by itself."""
    at, b, constant = np.unique(model.index), float(model.b), model.bias == "feature"
    full = np.bincount(model.index, np.asarray(model.coef, float), N)
    dual = balanced(full) if model.bias == "free" else full
    among, (own, moved) = gram(X[at], X[at]), (full[at], (full - dual)[at])
    score = gram(X, X[at]) @ own + b
    slope = -LAM * N * dual  # of the conjugate at -alpha / C
    loss = values(name, score, Y)
    terms = np.maximum(loss + CONJUGATES[name](slope, Y) - slope * score, 0)
    distance = moved @ among @ moved + constant * (b - dual.sum()) ** 2
    value = LAM / 2 * (own @ among @ own + constant * b * b) + loss.mean()
    return value, LAM / 2 * distance + terms.mean()


@pytest.fixture
def calls(monkeypatch):
    """How each certificate took its model, "support", "yes" or "no", and the points it saw."""
    seen, plain = [], certificates._on_support

    def spy(model, data):
        answer = plain(model, data)
        refused = np.all(np.asarray(answer.index) < 0)
        kind = "no" if refused else "yes" if answer is model else "support"
        seen.append((kind, len(answer.coef)))
        return answer

    monkeypatch.setattr(certificates, "_on_support", spy)
    return seen


@pytest.mark.parametrize(
    ("bias", "name"),
    [("none", "hinge"), ("feature", "hinge"), ("free", "hinge"), ("none", "eps_insensitive")],
)
def test_bounds_are_those_of_all_rows(bias, name, calls):
    # real targets with the tube; with a free bias coefficients are balanced nearly
    data = DATA if name == "hinge" else jaxsvm.dataset(X, Y, task="regression")
    model = model_of(SUPPORT, balanced(COEF) if bias == "free" else COEF, bias)
    proof = jaxsvm.certificate(model, data, LAM, LOSSES[name])
    assert proof.exact and calls == [("support", 768)]
    value, gap = expected(model, name)
    assert proof.primal == pytest.approx(value, rel=1e-9)
    assert proof.gap == pytest.approx(gap, rel=1e-6)


def test_points_of_coefficient_0_take_no_part(calls):
    coef = np.zeros(N)
    coef[SUPPORT] = COEF
    whole = jaxsvm.certificate(model_of(np.arange(N), coef), DATA, LAM)
    part = jaxsvm.certificate(model_of(SUPPORT, COEF), DATA, LAM)
    assert whole.gap == pytest.approx(part.gap, rel=1e-12)
    assert calls == [("support", 768)] * 2  # few sizes exist


@pytest.mark.long
def test_points_may_be_the_same_rows_but_no_others(calls):
    twice = model_of(np.tile(SUPPORT, 2), np.tile(COEF / 2, 2))
    own = jaxsvm.certificate(twice, DATA, LAM)
    assert own.gap == pytest.approx(expected(twice)[1], rel=1e-6)
    # points that claim to be rows of the data, and are others
    near = X[SUPPORT] + np.float32(0.1)
    proof = jaxsvm.certificate(model_of(SUPPORT, COEF / 2, x=near), DATA, LAM)
    primal = LAM / 2 * COEF / 2 @ gram(near, near) @ COEF / 2
    primal += np.maximum(1 - Y * (gram(X, near) @ COEF / 2), 0).mean()
    assert not proof.exact and proof.primal == pytest.approx(primal, rel=1e-5)
    assert proof.gap > own.primal - own.gap - proof.primal
    few = jaxsvm.dataset(X[:100], Y[:100])
    jaxsvm.certificate(model_of(np.arange(10), 0.1 * Y[:10]), few, LAM)
    assert [kind for kind, _ in calls] == ["support", "no", "yes"]


def test_a_model_of_more_rows_than_the_data():
    """Its coefficients are no dual point of the rows that are there."""
    model = model_of(SUPPORT, np.where(SUPPORT < 2100, 0, COEF))
    half = jaxsvm.dataset(X[:2100], Y[:2100])
    proof = jaxsvm.certificate(model, half, LAM)
    assert not proof.exact
    solver = jaxsvm.decomposition(1 / (LAM * 2100), RBF, bias="none", tol=1e-4)
    least = jaxsvm.certificate(jaxsvm.fit(solver, half, KEY).model, half, LAM)
    assert proof.primal - proof.gap <= least.primal


# dual coefficients that are given


def linear_rows():
    """5,003 rows of whole weights, and lam and C."""
    random = np.random.default_rng(5)
    x, weight = random.normal(size=(5003, 4)), random.integers(0, 3, 5003) * 1.0
    y = np.where(x[:, 0] + 0.4 * random.normal(size=5003) > 0.2, 1.0, -1.0)
    C = 1 / (LAM * weight.sum())
    return jaxsvm.dataset(x.astype(np.float32), y, weight), C, jaxsvm.lam_from_C(C, weight.sum())


ROWS, C, ROWS_LAM = linear_rows()
ROUGH = functools.partial(jaxsvm.dual_descent, C, tol=1e-2)


@functools.cache
def rough(bias="none", features=0, loss=losses.hinge):
    """A rough machine, on Fourier features if so many are asked for, and its coefficients."""
    phi = fourier(KEY, RBF, dim=4, features=features) if features else None
    solver = ROUGH(loss=loss, bias=bias)
    solver = jaxsvm.on_features(phi, solver) if features else solver
    run = jaxsvm.fit(solver, ROWS, KEY, steps=1)
    return solver, run.model, run.state.solver.coef


@pytest.mark.long
@pytest.mark.parametrize(("bias", "features"), [("none", 64), ("feature", 0)])
def test_given_coefficients_bound_a_linear_model(bias, features):
    solver, model, given = rough(bias, features)
    proof = jaxsvm.certificate(model, ROWS, ROWS_LAM, dual=given)
    rows, inner = (solver.phi(ROWS.x), model.inner) if features else (ROWS.x, model)
    y, weight, coef = (np.asarray(a, float) for a in (ROWS.y, ROWS.weight, given))
    x, w, bound = with_ones(np.asarray(rows, float), bias), weights_of(inner, bias), C * weight
    primal = w @ w / 2 + np.sum(bound * np.maximum(1 - y * (x @ w), 0))
    dual, scale = coef @ y - np.sum((coef @ x) ** 2) / 2, 1 / bound.sum()
    assert proof.exact
    assert proof.primal == pytest.approx(primal * scale, rel=1e-5 if features else 1e-9)
    # coefficients that float32 rounds above their bound are cut by 1e-6
    assert proof.gap == pytest.approx((primal - dual) * scale, rel=1e-3, abs=2e-6 * proof.primal)
    assert proof.gap < jaxsvm.certificate(model, ROWS, ROWS_LAM).gap
    again = jaxsvm.certificate(model, solver.prepare(ROWS), ROWS_LAM, dual=given)
    assert again.gap == pytest.approx(proof.gap, rel=1e-3)


SMALL = jaxsvm.dataset(np.float32([[1], [-1], [1]]), [1, -1, 1], [1, 1, 0])
FEW = (Linear(jnp.full(1, 2.0), jnp.zeros(())), SMALL, 0.1)
REFUSED = [
    (lambda coef: 2 * coef, {}, "not feasible"),
    (lambda coef: -coef, {}, "not feasible"),
    (lambda coef: coef[:10], {}, r"shape \(10,\), expected a number for each of the 5003"),
    (lambda coef: coef, {"passes": 1}, "dual is for linear models"),
    (lambda coef: coef, {"l1_ratio": 0.5}, "dual is for linear models"),
]


@pytest.mark.parametrize(("change", "options", "words"), REFUSED)
def test_what_is_no_dual_point_is_refused(change, options, words):
    _, model, coef = rough()
    with pytest.raises(ValueError, match=words):
        jaxsvm.certificate(model, ROWS, ROWS_LAM, dual=change(coef), **options)


def test_a_coefficient_of_a_row_of_weight_0_is_no_dual_point():
    """Nor is any one for an expansion."""
    for at, dual, words in (
        (FEW, [0.0, 0.0, 2.0], "not feasible"),
        ((model_of(SUPPORT, COEF), DATA, LAM), np.zeros(N), "dual is for linear models"),
    ):
        with pytest.raises(ValueError, match=words):
            jaxsvm.certificate(*at, dual=dual)
    # the optimum is w = 1 with an objective of 0.05
    proof = jaxsvm.certificate(*FEW, dual=[0.5, -0.5, 0.0])
    assert proof.primal == pytest.approx(0.2) and proof.gap == pytest.approx(0.15)


def test_digits_of_given_coefficients_are_kept():
    """float32 rounds 1/3 above the bound 1/3, and the coefficients would be cut."""
    data = jaxsvm.dataset(np.float32([[1], [-1]]), [1, -1])
    model = Linear(np.asarray([2 / 3]), np.zeros(()))
    proof = jaxsvm.certificate(model, data, 1.5, dual=[1 / 3, -1 / 3])
    assert abs(proof.gap) < 1e-12 and proof.primal == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.long
def test_given_coefficients_of_sparse_rows_and_of_nested_models():
    x = np.asarray(ROWS.x) * (np.random.default_rng(1).random(ROWS.x.shape) < 0.5)
    sparse = jaxsvm.dataset(scipy.sparse.csr_matrix(x), ROWS.y, ROWS.weight)
    dense = jaxsvm.dataset(x, ROWS.y, ROWS.weight)
    phi = fourier(KEY, RBF, dim=4, features=32)
    run = jaxsvm.fit(jaxsvm.on_features(phi, ROUGH(bias="feature")), dense, KEY, steps=1)
    gap = lambda model, rows: (
        jaxsvm.certificate(model, rows, ROWS_LAM, dual=run.state.solver.coef).gap
    )
    expected = gap(run.model, dense)
    assert gap(run.model, sparse) == pytest.approx(expected, rel=1e-3)
    named = Classifier(Classifier(run.model, (-1, 1)), (-1, 1))
    assert gap(named, dense) == pytest.approx(expected, rel=1e-9)


@pytest.mark.long
def test_given_coefficients_with_a_free_bias():
    run = jaxsvm.fit(jaxsvm.interior_point(C, bias="free", tol=1e-6), ROWS, KEY, steps=1)
    coef = np.asarray(run.state.solver.coef, float)
    certify = lambda dual: jaxsvm.certificate(run.model, ROWS, ROWS_LAM, dual=dual)
    proof = certify(coef)
    assert 0 <= proof.gap <= 1e-4 * proof.primal
    # the side of larger sum is scaled down: both by a half
    uneven, even = (certify(a).gap for a in (np.where(coef > 0, coef / 2, coef), coef / 2))
    assert uneven == pytest.approx(even, rel=1e-4) and even > proof.gap


@pytest.mark.long
def test_given_coefficients_under_jit():
    loss = losses.squared_hinge
    _, model, coef = rough("feature", 0, loss)
    bound = lambda coef: jaxsvm.certificate(model, ROWS, ROWS_LAM, loss, dual=coef).gap
    assert float(jax.jit(bound)(coef)) == pytest.approx(bound(coef), rel=0.02)
