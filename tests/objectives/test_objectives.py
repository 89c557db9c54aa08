"""Duals, KKT residuals, errors, risks and conversions against NumPy in float64."""

import dataclasses
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from certified import (
    EXACT,
    GRAM,
    KERNEL,
    LINEAR,
    LOSSES,
    PROBLEMS,
    WEIGHT,
    X32,
    N,
    X,
    Y,
    dataset,
    dual_by_hand,
    expansion,
    in_box,
    line,
    optimum,
    scores_and_square,
    shares,
    values,
)
from compiling import listen

import jaxsvm
from jaxsvm import error_on, kernels, objectives, risk_on
from jaxsvm.models import Linear


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "eps_insensitive"])
def test_dual_from_scratch(name):
    rng, loss = np.random.default_rng(13), LOSSES[name]
    for problem, (lam, weight) in enumerate(PROBLEMS):
        coef, data = in_box(name, lam, weight, rng), dataset(name, weight)
        alpha = coef * Y if loss.labels else coef
        for kernel, gram, space in ((KERNEL, GRAM, "rbf"), (None, LINEAR, "linear")):
            with jax.enable_x64(True):
                found = float(objectives.dual(jnp.asarray(alpha), data, lam, kernel, loss))
            assert found == pytest.approx(dual_by_hand(coef, gram, name, lam, weight), rel=1e-11)
            assert found <= optimum(name, "none", problem, space)[0] + EXACT


def test_dual_outside_of_the_bounds_is_minus_infinity():
    """Of a row of weight 0 the bounds are 0 and 0. Else it could cancel others in |w|^2 and lift D
    above the optimum."""
    data, bound = dataset(weight=WEIGHT), shares(WEIGHT) / 0.3
    inside = jnp.asarray(0.5 * bound, jnp.float32)
    dual = lambda alpha: float(objectives.dual(alpha, data, 0.3))
    assert np.isfinite(dual(inside)) and WEIGHT[0] == 0
    for place, value in ((4, 1.01 * bound[4]), (4, -0.01), (0, 0.1)):
        assert dual(inside.at[place].set(value)) == -np.inf


@pytest.mark.parametrize("C", [0.1, 0.3, 1.7])
def test_dual_forgives_what_rounding_to_float32_added_to_a_bound(C):
    data, lam = dataset(), objectives.lam_from_C(C, N)
    alpha = jnp.full(N, np.nextafter(np.float32(C), np.float32(np.inf)))
    dual = lambda factor: float(objectives.dual(factor * alpha, data, lam))
    assert np.isfinite(dual(0.999)) and dual(1.0) == pytest.approx(dual(0.999), rel=0.01, abs=0.01)
    assert dual(1.00001) == -np.inf


def test_kkt_residual_from_scratch():
    rng = np.random.default_rng(14)
    for lam, weight in PROBLEMS:
        bound, data = shares(weight) / lam, dataset(weight=weight)
        coef = np.float32(in_box("hinge", lam, weight, rng)).astype(float)
        for bias in ("none", "feature"):
            b = float(np.float32(coef.sum())) if bias == "feature" else 0.0
            square = np.ones(N) + (bias == "feature")
            alpha, margin = coef * Y, Y * (GRAM @ coef + b)
            want = np.abs(np.clip(alpha + (1 - margin) / square, 0, bound) - alpha) * square
            found = jaxsvm.kkt_residual(expansion(coef, b, bias), data, lam)
            # 1e-6 at the bounds
            assert float(found) == pytest.approx(want[bound > 0].max(), rel=1e-5)
        coef = np.float32(in_box("hinge", lam, weight, rng, "free")).astype(float)
        alpha, b = coef * Y, 0.3
        value, edge = Y - (GRAM @ coef + np.float32(b)), 1e-6 * bound
        grows, falls = (alpha < bound - edge) & (bound > 0), alpha > edge
        up, low = np.where(Y > 0, grows, falls), np.where(Y > 0, falls, grows)
        found = jaxsvm.kkt_residual(expansion(coef, b, "free"), data, lam)
        assert float(found) == pytest.approx(value[up].max() - value[low].min(), rel=1e-6)


def test_kkt_residual_of_a_point_of_coefficient_0_that_is_no_training_row():
    index = np.where(np.arange(N) == 3, -1, np.arange(N))
    model = expansion(0.01 * Y * (index >= 0), index=index)
    assert np.isfinite(jaxsvm.kkt_residual(model, dataset(), 0.3))


def test_conversions_and_nu():
    assert objectives.lam_from_C(2.0, 50) == 0.01 and objectives.C_from_lam(0.01, 50) == 2.0
    back = objectives.lam_from_C(objectives.C_from_lam(0.3, 7.5), 7.5)
    assert back == pytest.approx(0.3, rel=1e-15)
    assert objectives.lam_from_C(Fraction(1, 2), 10) == 0.2
    np.testing.assert_allclose(objectives.lam_from_C(jnp.array([1.0, 2.0]), 10), [0.1, 0.05])
    assert jax.jit(objectives.C_from_lam)(0.5, 10.0) == jnp.float32(0.2)
    model = line([0.7, -0.4])
    w = np.asarray(model.w, float)
    margin, length = Y * (X @ w), np.linalg.norm(w)
    for weight in (None, WEIGHT):
        want = shares(weight) @ np.maximum(1 - margin, 0) / length
        nu = float(jaxsvm.nu_from(model, dataset(weight=weight)))
        assert nu == pytest.approx(want, rel=EXACT)
    # 3.0: at u/|u| the water level of volume n nu is 1/|u|.
    volume = np.maximum(1 / length - margin / length, 0).mean()
    assert volume == pytest.approx(float(jaxsvm.nu_from(model, dataset())), rel=1e-6)


@pytest.mark.parametrize(("bias", "level"), [("none", 2.0), ("free", 2.5)])
def test_lam_from_nu_counts_weights_as_copies(bias, level):
    """Rows at +1 and -1 of weights 2 and 4, |v| = 1: a volume of 6 rises over both rows, or with a
    bias over the first."""
    weighted = jaxsvm.dataset([[1.0], [-1.0]], [1, -1], [2, 4])
    copies = jaxsvm.dataset([[1.0]] * 2 + [[-1.0]] * 4, [1] * 2 + [-1] * 4)
    for p, data in (([0.5, 0.5], weighted), ([0.25] * 2 + [0.125] * 4, copies)):
        lam = objectives.lam_from_nu(1.0, jnp.array(p), data, kernels.linear(), bias)
        # of weight 6, p / weight <= 1/4
        assert float(lam) == pytest.approx(level / (6 / 4), rel=1e-6)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_error_and_risk_weigh_their_rows(weight):
    data, share, model = dataset(weight=weight), shares(weight), line([0.3, 0.2], -0.1, "free")
    score, _ = scores_and_square(model)
    wrong = share @ (Y * score < 0)
    assert 0.1 < wrong < 0.9
    # in the dtype of the model
    assert float(error_on(data)(model)) == pytest.approx(wrong, rel=1e-6)
    for name in ("hinge", "logistic"):
        want = share @ values(name, score, Y)
        assert float(risk_on(data, LOSSES[name])(model)) == pytest.approx(want, rel=1e-6)
    sweep = jax.jit(jax.vmap(lambda b: error_on(data)(dataclasses.replace(model, b=b))))
    found = sweep(jnp.array([-0.1, 100.0]))
    np.testing.assert_allclose(found, [wrong, share @ (Y < 0)], rtol=1e-6)
    events = listen()  # the error of another number of rows is no program
    assert float(error_on(jaxsvm.dataset(X32[:17], Y[:17]))(model)) == pytest.approx(
        np.mean(Y[:17] * score[:17] < 0), rel=1e-6
    )
    assert not any(event.endswith("backend_compile_duration") for event in events)


@pytest.mark.long
def test_scores_that_are_not_finite_are_errors_and_an_infinite_risk():
    data, y = dataset(weight=WEIGHT), jnp.asarray(Y, jnp.float32)
    scored = lambda bad: lambda x: jnp.where(bad, jnp.nan, y)
    assert WEIGHT[5] > 0
    for model, error, risk in (
        (line([np.nan, np.nan]), 1.0, np.inf),
        (line([np.inf, np.inf]), 1.0, np.inf),
        (scored(np.arange(N) == 5), WEIGHT[5] / WEIGHT.sum(), np.inf),  # a single row
        (scored(WEIGHT == 0), 0.0, 0.0),  # rows of weight 0 do not count
    ):
        both = jax.jit(lambda model=model: (error_on(data)(model), risk_on(data)(model)))
        assert [*map(float, both())] == [pytest.approx(error), risk]
    assert float(jax.jit(error_on(data))(line([np.inf, np.nan]))) == pytest.approx(1)
    many = jaxsvm.dataset(X32, np.arange(N) % 3, task="multiclass")
    some = lambda x: jnp.where(x[:, :1] > 0, jnp.nan, jnp.eye(3)[jnp.arange(N) % 3])
    assert float(error_on(many)(some)) == pytest.approx(np.mean(X32[:, 0] > 0))


def test_a_sweep_does_not_choose_a_run_that_diverged():
    # a constant answer errs on a fifth of the rows
    data = jaxsvm.dataset(X32, np.where(np.arange(N) % 5 > 0, 1.0, -1.0))
    error = lambda scale: error_on(data)(Linear(scale * jnp.array([0.1, 0.1]), -jnp.ones(())))
    found = jaxsvm.sweep(error, scale=jnp.array([1.0, jnp.nan]), progress=False)()
    assert float(found[1]) == pytest.approx(1)
    assert jaxsvm.sweep.table(found, scale=jnp.array([1.0, 2.0])).best == {"scale": 1.0}


def test_numbers_of_other_libraries_and_wider_than_jax_has_are_taken():
    data, model, coef = dataset(), line([1, 1]), expansion(0.01 * Y)
    for number in (Fraction(1, 4), Decimal("0.25"), np.float16(0.25), np.longdouble(0.25)):
        for objective in (objectives.primal, lambda *at: jaxsvm.certificate(*at).gap):
            assert objective(model, data, number) == objective(model, data, 0.25)
        found, want = (jaxsvm.kkt_residual(coef, data, lam) for lam in (number, 0.25))
        assert found == want


def test_labels_of_the_other_kind_are_refused_by_error_on_and_ones_are_of_either_kind():
    rows = lambda y: jaxsvm.Batch(jnp.eye(3), jnp.asarray(y, "f"), jnp.arange(3), jnp.ones(3))
    one, three = line([1.0, -1.0, 1.0]), lambda x: x
    for y, model, error in (
        ([1, 1, 1], one, 1 / 3),
        ([1, 1, 1], three, 2 / 3),
        ([1, -1, -1], one, 1 / 3),
        ([0, 1, 1], three, 1 / 3),
    ):
        assert float(error_on(rows(y))(model)) == pytest.approx(error)
    for y, model, words in (([0, 1, 1], one, "class numbers"), ([1, -1, -1], three, "labels -1")):
        with pytest.raises(ValueError, match=f"hold {words}"):
            error_on(rows(y))(model)
