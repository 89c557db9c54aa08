"""Projections against optax, SciPy and their optimality conditions."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize

from jaxsvm import projections

box_section = jax.jit(projections.box_section)


class Params(NamedTuple):
    w: jax.Array
    b: jax.Array


def test_keep_moves_the_parameters_to_the_projection_of_where_the_update_led():
    tx = optax.chain(
        optax.sgd(1.0), projections.keep(lambda p: jax.tree.map(lambda a: jnp.clip(a, -1, 1), p))
    )
    params = {"a": jnp.array([0.5, -0.5]), "b": jnp.array(0.25)}
    grads = {"a": jnp.array([-3.0, 0.25]), "b": jnp.array(9.0)}
    updates, _ = tx.update(grads, tx.init(params), params)
    after = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(after["a"], [1.0, -0.75])
    np.testing.assert_array_equal(after["b"], -1.0)


def test_keep_needs_the_parameters():
    tx = projections.keep(projections.ball(1.0))
    with pytest.raises(ValueError, match="needs the parameters"):
        tx.update(jnp.ones(2), tx.init(jnp.ones(2)))


@pytest.mark.long
def test_ball_is_the_projection_of_optax():
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.5, 3.0, 1e6):
        w = jnp.asarray(rng.normal(size=5) * size, jnp.float32)
        want = optax.projections.projection_l2_ball(w, scale=1.5)
        # a few roundings of the factor
        np.testing.assert_allclose(projections.ball(1.5)(w), want, rtol=1e-6)


TREES = [
    5 * jnp.eye(2),
    jnp.asarray(np.random.default_rng(1).normal(size=(3, 3)), jnp.float32),
    jnp.arange(6.0).reshape(2, 3),  # another shape than square
    jnp.ones((2, 3, 4)),
    jnp.float32(7.0),
    [jnp.ones((2, 2)), {"b": jnp.full(3, -2.0)}],
    {"w": jnp.full((2, 2), 0.1), "b": jnp.zeros(())},  # inside
    (),
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_ball_takes_the_norm_of_all_numbers_of_an_array_or_tree(tree):
    wanted = functools.partial(optax.projections.projection_l2_ball, scale=1.5)
    both = jax.jit(lambda tree: (projections.ball(1.5)(tree), wanted(tree)))(tree)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), *both)


def test_keep_projects_a_matrix_of_a_product_onto_the_ball():
    tx = optax.chain(
        optax.sgd(1.0), projections.keep(projections.product({"w": projections.ball(1.0)}))
    )
    params = {"w": jnp.eye(2), "b": jnp.ones(2)}
    updates, _ = tx.update({"w": -4 * jnp.eye(2), "b": -jnp.ones(2)}, tx.init(params), params)
    after = optax.apply_updates(params, updates)
    np.testing.assert_allclose(after["w"], np.eye(2) / np.sqrt(2), rtol=1e-6)
    np.testing.assert_array_equal(after["b"], [2.0, 2.0])


@pytest.mark.long
def test_box_section_of_a_matrix_is_that_of_its_numbers():
    x, normal = jnp.arange(6.0).reshape(2, 3), jnp.array([[1.0, -1.0, 1.0], [2.0, 1.0, -1.0]])
    got = projections.box_section(x, 0.0, 2.0, normal, 1.0)
    np.testing.assert_allclose(
        got.ravel(), box_section(x.ravel(), 0.0, 2.0, normal.ravel(), 1.0), atol=1e-5
    )


def test_ball_leaves_points_inside_and_zero_as_they_are():
    for w in (jnp.zeros(3), jnp.array([0.6, 0.8, 0.0]), jnp.array([1e-30, 0.0, 0.0])):
        np.testing.assert_array_equal(projections.ball(1.25)(w), w)
    np.testing.assert_array_equal(projections.ball(0.0)(jnp.array([3.0, 4.0])), 0)


@pytest.mark.long
def test_ball_has_a_finite_gradient_at_zero():
    assert np.all(np.isfinite(jax.jacobian(projections.ball(1.0))(jnp.zeros(3))))


def test_product_projects_the_named_parts_and_no_others():
    sets = {"w": projections.ball(1.0)}
    got = projections.product(sets)({"w": jnp.array([3.0, 4.0]), "b": jnp.array(9.0)})
    np.testing.assert_allclose(got["w"], [0.6, 0.8], rtol=1e-6)
    assert float(got["b"]) == 9.0
    got = projections.product(sets)(Params(jnp.array([3.0, 4.0]), jnp.array(9.0)))
    np.testing.assert_allclose(got.w, [0.6, 0.8], rtol=1e-6)
    assert isinstance(got, Params) and float(got.b) == 9.0


def problem(seed, n=6):
    rng = np.random.default_rng(seed)
    low, high = -rng.random(n), rng.random(n) + 0.1
    normal = rng.choice([-1.0, 1.0], n) * (0.5 + rng.random(n))
    offset = normal @ (low + (high - low) * rng.random(n))  # attainable
    return 3 * rng.normal(size=n), low, high, normal, offset


@pytest.mark.parametrize("seed", range(4))
def test_box_section_is_the_nearest_point_that_scipy_finds(seed, x64):
    x, low, high, normal, offset = problem(seed)
    got = np.asarray(box_section(x, low, high, normal, offset))
    found = optimize.minimize(
        lambda v: np.sum((v - x) ** 2) / 2,
        np.clip(x, low, high),
        jac=lambda v: v - x,
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "eq", "fun": lambda v: normal @ v - offset, "jac": lambda v: normal},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    np.testing.assert_allclose(got, found.x, atol=1e-5)  # SLSQP's own accuracy


@pytest.mark.parametrize("seed", range(4))
def test_box_section_meets_its_optimality_conditions(seed, x64):
    x, low, high, normal, offset = problem(seed)
    v = np.asarray(box_section(x, low, high, normal, offset))
    assert np.all((v >= low) & (v <= high))
    np.testing.assert_allclose(normal @ v, offset, atol=1e-13)
    pull = (x - v) / normal  # t where free; beyond t where a bound holds v back
    free = (v > low) & (v < high)
    t = np.mean(pull[free])
    np.testing.assert_allclose(pull[free], t, atol=1e-12)
    back = (x - t * normal - v)[~free]
    assert np.all(np.where(v == low, -1, 1)[~free] * back >= -1e-12)


def test_box_section_is_the_dual_box_of_a_support_vector_machine_in_float32():
    rng = np.random.default_rng(9)
    y = np.where(rng.random(200) < 0.3, -1, 1).astype(np.float32)
    x = rng.normal(size=200).astype(np.float32)
    v = box_section(x, 0.0, 0.5, y)
    assert v.dtype == jnp.float32
    assert float(v.min()) >= 0 and float(v.max()) <= 0.5
    # a rounding of each entry
    assert abs(float(np.sum(np.asarray(v, np.float64) * y))) < 200 * 1e-7
    feasible = box_section(v, 0.0, 0.5, y)
    np.testing.assert_allclose(feasible, v, atol=1e-6)  # a point of the set is its own projection


@pytest.mark.long
def test_box_section_takes_a_box_without_an_upper_end():
    # as in the dual of the squared hinge: v1 = v2 + v3 nearest to (1, 2, -1) is (1.5, 1.5, 0)
    got = projections.box_section(
        jnp.array([1.0, 2.0, -1.0]), 0.0, jnp.inf, jnp.array([1.0, -1.0, -1.0])
    )
    np.testing.assert_allclose(got, [1.5, 1.5, 0.0], rtol=1e-6)


def test_a_projection_of_another_shape_is_refused():
    """It was broadcast: all weights moved by one number."""
    params = jnp.array([3.0, 4.0])
    for wrong in (jnp.linalg.norm, lambda w: w[:1], lambda w: {"w": w}, lambda w: None):
        tx = projections.keep(wrong)
        with pytest.raises(
            ValueError, match="projection must return parameters of the shapes it was given, "
        ):
            tx.update(params, tx.init(params), params)
    for wrong in (None, 1.0, "ball"):
        with pytest.raises(
            TypeError, match="projection must be a function of the parameters, got "
        ):
            projections.keep(wrong)
    with pytest.raises(ValueError, match="radius must be a finite number of at least 0, got -1"):
        projections.ball(-1)


@pytest.mark.parametrize("radius", [2**31, 2**63, 10**30])
def test_a_large_integer_is_a_radius(radius):
    w = jnp.asarray([3.0, 4.0])
    np.testing.assert_array_equal(projections.ball(radius)(w), w)
