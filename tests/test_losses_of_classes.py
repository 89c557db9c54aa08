"""The loss of Crammer and Singer, of scores (b, k), against sums over classes, the simplex by
bisection and brute-force conjugates."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import losses

LOSS = losses.crammer_singer
value, slope, conjugate, dual_step = (
    jax.jit(getattr(LOSS, name)) for name in ("value", "slope", "conjugate", "dual_step")
)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


RNG = np.random.default_rng(0)
F, Y = RNG.normal(size=(60, 4)) * 2, RNG.integers(0, 4, 60).astype(np.int32)
OWN = np.eye(4)[Y]


def by_hand(f, y):
    """The highest score, others raised by 1, above that of the own class."""
    own = np.eye(f.shape[1], dtype=f.dtype)[y]
    return np.max(f + 1 - own, axis=1) - np.sum(f * own, axis=1)


def test_solvers_of_single_scores_refuse_it_where_they_are_written():
    sentence = "loss must be one of single scores here, .* needs a score of each class: take "
    sentence += r"jaxsvm.ocas\(lam, .*, or another loss and jaxsvm.one_vs_rest\(solver, classes=k\)"
    for name in "sdca pegasos asset bottou_sgd interior_point subgradient".split():
        with pytest.raises(ValueError, match=sentence):
            getattr(jaxsvm, name)(0.1, loss=LOSS)


@dtypes
def test_the_value_is_the_formula_and_keeps_the_dtype(dtype, x64):
    f = F.astype(dtype)
    assert value(f, Y).dtype == dtype
    # scores up to 8
    np.testing.assert_allclose(value(f, Y), by_hand(f, Y), atol=32 * np.finfo(dtype).eps)


def test_the_slope_is_a_subgradient(x64):
    got = np.asarray(slope(F, Y))
    assert np.any(got == 0) and np.any(got != 0)
    for other in (F[::-1], np.zeros_like(F), F + OWN, F * 5):
        below = by_hand(F, Y) + np.sum(got * (other - F), axis=1)
        assert np.min(by_hand(other, Y) - below) > -1e-12


def test_the_slope_at_ties_is_none_for_the_own_class_and_the_first_of_others():
    # own class level with both others; both others level
    f = jnp.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    got = slope(f, jnp.array([1, 1], jnp.int32))
    np.testing.assert_array_equal(got, [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]])


def test_the_conjugate_is_linear_on_the_simplex_and_infinite_off_it(x64):
    y, own = np.full(4, 2, np.int32), np.eye(3)[2]
    p = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [-0.1, 0.6, 0.5], [0.3, 0.3, 0.3]])
    got = conjugate(p - own, y)
    # sup over f of <u, f> - l(f): shifting f changes nothing on the simplex, where the supremum is
    # at f = -raised
    np.testing.assert_allclose(got[:2], [-0.5, 0.0], atol=1e-15)
    assert np.all(np.isinf(got[2:]))
    grid = np.array(list(itertools.product(np.linspace(-3, 3, 25), repeat=3)))
    brute = np.max((p[:2] - own) @ grid.T - by_hand(grid, np.full(len(grid), 2)), axis=1)
    # the supremum is attained at whole numbers
    np.testing.assert_allclose(got[:2], brute, atol=1e-12)


def test_the_fenchel_young_gap_is_non_negative_and_zero_at_the_slope(x64):
    gap = lambda u: value(F, Y) + conjugate(u, Y) - np.sum(u * F, axis=1)
    assert np.min(gap(np.random.default_rng(1).dirichlet(np.ones(4), 60) - OWN)) > -1e-12
    np.testing.assert_allclose(gap(slope(F, Y)), 0, atol=1e-12)


def simplex(z):
    """The nearest point of the simplex to each row, by bisection for the level."""
    low, high = z.max(axis=1) - 1, z.max(axis=1)
    for _ in range(80):
        level = (low + high) / 2
        above = np.sum(np.maximum(z - level[:, None], 0), axis=1) > 1
        low, high = np.where(above, level, low), np.where(above, high, level)
    return np.maximum(z - level[:, None], 0)


@pytest.mark.parametrize(
    ("dtype", "q", "C"),
    [(t, *at) for t in "fd" for at in ((1.0, 1.0), (0.3, 5.0), (50.0, 1e3), (1.0, 1e-3))]
    + [("f", 1.0, 1e-6), ("f", 1e-4, 1e-4), ("f", 1e-30, 1.0)],  # tiny
)
def test_the_dual_step_is_the_maximiser_on_the_simplex(dtype, q, C, usual_promotion):
    f, eps = F.astype(dtype), np.finfo(dtype).eps
    rest = np.full(60, q, dtype), np.full(60, C, dtype)
    q, C = (float(column[0]) for column in rest)
    coef = (C * (OWN - np.random.default_rng(2).dirichlet(np.ones(4), 60))).astype(dtype)
    with jax.enable_x64(dtype == "d"):
        got = np.asarray(dual_step(coef, f, Y, *rest))
    assert got.dtype == dtype
    # z = q C p's target, free of the division by q C; shifted, since only differences count
    z = q * (C * OWN - coef) + f - OWN
    p = simplex((z - z.max(axis=1, keepdims=True)) / (q * C))
    # The point that is projected carries roundings of its scores, over q C; p itself is at most 1.
    size = np.minimum(1, eps * (1 + 8 / (q * C))) * 16
    np.testing.assert_allclose(got / C, OWN - p, atol=size)
    feasible = OWN - got / C
    # Whatever the size of the scores, the answer stays dual feasible to rounding.
    np.testing.assert_allclose(feasible.sum(axis=1), 1, atol=16 * eps)
    assert feasible.min() > -4 * eps


def test_the_dual_step_keeps_strict_dtypes():
    one, f = np.ones(60, np.float32), np.float32(F)
    assert jax.eval_shape(LOSS.dual_step, f, f, jnp.asarray(Y), one, one).dtype == jnp.float32


@pytest.mark.parametrize("C", [1.0, 0.01, 1e-6])
def test_the_dual_step_of_a_row_of_zeros_gives_all_to_the_classes_that_score_highest(
    C, usual_promotion
):
    """A row at margin 1, whose coefficients are optimal as they are, keeps them."""
    f = jnp.array([[0.0, 0.0, 0.0], [0.0, 2.0, 1.0], [1.0, 1.0, 4.0]])
    # scores raised by 1 off the own class: ties of two, of two, one winner
    y = jnp.array([1, 1, 0], jnp.int32)
    want = C * np.array([[-0.5, 1.0, -0.5], [0.0, 0.0, 0.0], [1.0, 0.0, -1.0]])
    got = dual_step(jnp.zeros((3, 3)), f, y, jnp.zeros(3), jnp.full(3, C))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_dual_step_is_zero_where_C_is_zero(usual_promotion):
    f = jnp.asarray(F, jnp.float32)
    np.testing.assert_array_equal(dual_step(0 * f, f, Y, jnp.ones(60), jnp.zeros(60)), 0)


@pytest.mark.long
def test_it_is_called_with_scores_and_targets():
    score, y = jnp.array([[0.5, 0.0, 2.0], [1.0, 3.0, 0.5]]), jnp.array([0.0, 1.0])
    np.testing.assert_array_equal(LOSS(score, y), LOSS.value(score, y))
    slope = jax.grad(lambda score: jnp.sum(LOSS(score, y)))(score)
    np.testing.assert_array_equal(slope, LOSS.slope(score, y))
