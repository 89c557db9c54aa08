"""Derivatives of exact solutions: no free coefficient, rows that repeat, memory, refusals."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solutions import (
    INDEX,
    LABELS,
    STEP,
    WEIGHT,
    N,
    X,
    Z,
    attach,
    directions,
    exact,
    gradient,
    held_out,
    moved,
    objective,
    sets,
    start,
)

import jaxsvm
from jaxsvm import implicit, kernels, losses
from jaxsvm.implicit import solution


def balanced(name):
    """7 rows of each class, weight 1: with a small C all coefficients of the hinge are C."""
    rows = np.concatenate([np.flatnonzero(LABELS > 0)[:7], np.flatnonzero(LABELS < 0)[:7]])
    return start(name, x=X[rows], y=start(name)["y"][rows], weight=np.ones(14), C=0.02)


@pytest.mark.long
@pytest.mark.parametrize(
    "name, own", [("hinge", 1.0), ("eps_insensitive", 0.6), ("eps_insensitive", 3.0)]
)
def test_without_a_free_coefficient_b_is_the_midpoint(name, own, x64):
    p = balanced(name) | {"own": own}
    if own == 0.6:  # as many targets far above the tube as below
        p["y"] = np.tile([2.0, -2.0, 0.1, 1.9, -2.2, 0.0, 0.2], 2)
    where = sets(name, "free", p)
    assert np.all(where[0] != 0)
    assert own == 3.0 or np.any(where[0] == 1)
    coef, b = exact(name, "free", p, where)
    _, found = gradient(p, coef, b, name, "free")
    for key, direction in directions(name, p).items():
        if key == "weight":  # the sum of the coefficients has to stay 0, so these do not move alone
            continue
        either = [
            held_out(name, "free", moved(p, key, direction, by), where) for by in (STEP, -STEP)
        ]
        np.testing.assert_allclose(
            np.vdot(found[key], direction),
            (either[0] - either[1]) / (2 * STEP),
            rtol=1e-6,
            atol=1e-8,
        )


@pytest.mark.long
def test_one_class_alone_bounds_b_from_one_side(x64):
    # coef = 0 and b = y = 1, whatever the rows are
    p = start("hinge", y=np.ones(N))
    found = jax.jit(jax.grad(lambda p: attach(p, jnp.zeros(N), 1.0, "hinge", "free")[1]))(p)
    np.testing.assert_allclose(np.sum(found["y"]), 1)
    for key in ("C", "sigma", "x", "weight"):
        np.testing.assert_array_equal(found[key], 0)


@pytest.mark.long
@pytest.mark.parametrize("bias", ["free", "none"])
def test_a_row_twice_is_a_row_of_twice_the_weight(bias, x64):
    name, p = "hinge", start("hinge")
    coef, b = exact(name, bias, p, sets(name, bias, p))
    twice = lambda a: np.concatenate([a, a])
    double = p | {"x": twice(X), "y": twice(LABELS), "weight": twice(WEIGHT / 2)}
    data = lambda p: jaxsvm.Batch(p["x"], p["y"], jnp.arange(2 * N, dtype=jnp.int32), p["weight"])

    def one(p):
        c, b_ = solution(
            twice(coef / 2), b, kernels.rbf(p["sigma"]), data(p), p["C"], losses.hinge, bias
        )
        return jnp.sum(jnp.tanh(kernels.rbf(p["sigma"])(Z, p["x"]) @ c + b_))

    _, want = gradient(p, coef, b, name, bias)
    found = jax.jit(jax.grad(one))(double)
    # the ridge: the square root of the rounding unit at most
    np.testing.assert_allclose(found["C"], want["C"], rtol=1e-7)
    np.testing.assert_allclose(found["sigma"], want["sigma"], rtol=1e-7)
    np.testing.assert_allclose(found["x"][:N] + found["x"][N:], want["x"], rtol=1e-6, atol=1e-8)


@pytest.mark.long
def test_float32_is_close_to_float64(x64):
    name, bias, p = "hinge", "free", start("hinge")
    coef, b = exact(name, bias, p, sets(name, bias, p))
    _, want = gradient(p, coef, b, name, bias)
    single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (p, coef, b))
    _, found = gradient(*single, name, bias)
    for key in ("C", "sigma", "x", "weight"):
        assert found[key].dtype == jnp.float32
        # rounding units of 6e-8 times the condition of the system, some hundreds
        np.testing.assert_allclose(
            found[key], want[key], rtol=2e-3, atol=2e-4 * np.abs(want[key]).max()
        )


@pytest.mark.long
def test_more_free_coefficients_than_allowed_have_no_derivative(x64):
    name, bias, p = "hinge", "free", start("hinge")
    where = sets(name, bias, p)
    coef, b = exact(name, bias, p, where)
    along = jax.jit(
        lambda C, free: jax.jvp(
            lambda C: objective(p | {"C": C}, coef, b, name, bias, free=free), (C,), (jnp.ones(()),)
        ),
        static_argnums=1,
    )
    held = int(np.sum(where[0] == 0))
    want = [held_out(name, bias, p | {"C": 1.5 + by}, where) for by in (0, STEP, -STEP)]
    enough, few = along(jnp.array(1.5), held), along(jnp.array(1.5), held - 1)
    np.testing.assert_allclose(enough[0], want[0], rtol=1e-13)
    np.testing.assert_allclose(enough[1], (want[1] - want[2]) / (2 * STEP), rtol=1e-6)
    np.testing.assert_allclose(few[0], want[0], rtol=1e-13)
    assert np.isnan(few[1])


@pytest.mark.long
def test_sparse_rows_have_the_derivatives_of_dense_ones(x64):
    name, bias, p = "eps_insensitive", "free", start("eps_insensitive")
    coef, b = exact(name, bias, p, sets(name, bias, p))
    columns, lengths = jnp.tile(jnp.arange(2, dtype=jnp.int32), (N, 1)), jnp.full(N, 2, jnp.int32)

    @functools.partial(jax.jit, static_argnums=2)
    def slopes(x, sigma, make):
        total = lambda x, sigma: sum(
            map(jnp.sum, attach(p | {"sigma": sigma}, coef, b, name, bias, x=make(x)))
        )
        return jax.grad(total, argnums=(0, 1))(x, sigma)

    want = slopes(X, 0.9, lambda x: x)
    found = slopes(X, 0.9, lambda x: jaxsvm.SparseRows(columns, x, lengths, 2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found, want)


def sizes(fn, *args):
    """How many numbers the arrays hold that a computation makes."""
    shapes = re.findall(r"[a-z]+\d*\[([\d,]*)\]", str(jax.make_jaxpr(fn)(*args)))
    return [int(np.prod([int(k) for k in shape.split(",") if k])) for shape in shapes]


@pytest.mark.long
def test_blocks_change_nothing_and_no_whole_matrix_is_made(monkeypatch, x64):
    name, bias, p = "hinge", "free", start("hinge")
    where = sets(name, bias, p)
    coef, b = exact(name, bias, p, where)
    held = int(np.sum(where[0] == 0))
    _, want = gradient(p, coef, b, name, bias)
    monkeypatch.setattr(implicit, "BLOCK", 3)
    # another function: not the one compiled already
    slope = jax.grad(
        lambda p: (lambda c, b: jnp.sum(jnp.tanh(c)) + b)(
            *attach(p, coef, b, name, bias, free=held)
        )
    )
    largest = max(sizes(slope, p))
    blocks = -(-(held + 2) // 3)
    assert max(3 * N, (held + 1) ** 2) <= largest < min(blocks * 3 * N, N * N)
    again = jax.jit(jax.grad(lambda p: objective(p, coef, b, name, bias, free=held)))(p)
    for key in ("C", "sigma", "x", "weight"):
        np.testing.assert_allclose(again[key], want[key], rtol=1e-8, atol=1e-10)


def test_values_are_given_back_and_nothing_is_worked_out():
    data = jaxsvm.Batch(
        jnp.asarray(X, jnp.float32), jnp.asarray(LABELS, jnp.float32), INDEX, jnp.ones(N)
    )
    coef = jnp.arange(N, dtype=jnp.float32)
    call = lambda coef, b: solution(coef, b, kernels.rbf(1.0), data, 1.0, losses.hinge)
    found = call(coef, 2.0)
    np.testing.assert_array_equal(found[0], coef)
    assert found[1] == 2 and found[1].dtype == jnp.float32
    assert max(sizes(call, coef, 2.0)) == 2 * N  # the rows: no kernel value
    blocked_off = jax.grad(lambda coef: jnp.sum(call(coef, 2.0)[0]))(coef)
    np.testing.assert_array_equal(blocked_off, 0)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"loss": losses.logistic}, "not quadratic"),
        ({"bias": "feature"}, "bias must be one of"),
        ({"C": jnp.ones(3)}, "C has shape"),
        ({"coef": jnp.zeros(N + 1)}, "one number for each of the 18 rows"),
        ({"free": 0}, "free must be a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(changes, text):
    data = jaxsvm.Batch(jnp.zeros((N, 2)), jnp.ones(N), INDEX, jnp.ones(N))
    usual = {
        "coef": jnp.zeros(N),
        "b": 0.0,
        "kernel": kernels.linear(),
        "data": data,
        "C": 1.0,
        "loss": losses.hinge,
    }
    with pytest.raises(ValueError, match=text):
        solution(**(usual | changes))


def test_parts_move_as_their_linear_system_does(x64):
    """Two sums of coefficients, free ones and one at its upper bound: central differences of the
    system solved in NumPy."""
    rng = np.random.default_rng(8)
    x, coef, level = (
        rng.normal(size=(5, 2)),
        np.array([[0.3, 0.5, 0, 1, 0], [0, 0, 0.4, 0, 0.2]]),
        np.array([0.7, -0.2]),
    )
    free = [(0, 0), (0, 1), (1, 2), (1, 4)]

    def gram(p):
        return np.exp(-p["gamma"] * ((p["x"][:, None] - p["x"]) ** 2).sum(-1))

    def solved(p):
        values, matrix, right = gram(p), np.zeros((6, 6)), np.zeros(6)
        for row, (k, i) in enumerate(free):
            matrix[row, :4] = [values[i, j] for _, j in free]
            matrix[row, 4 + k] = matrix[4 + k, row] = 1
            right[row] = p["linear"][i] - values[i, 3] * p["high"][0, 3]
        right[4:] = p["total"] - [p["high"][0, 3], 0]
        found, all_coef = np.linalg.solve(matrix, right), np.zeros((2, 5))
        all_coef[0, 3] = p["high"][0, 3]
        all_coef[tuple(zip(*free, strict=True))] = found[:4]
        return all_coef, found[4:]

    at = {"gamma": 0.7, "x": x, "high": np.ones((2, 5)), "total": coef.sum(1)}
    # what makes coef and level the solution
    at["linear"] = gram(at) @ coef.sum(0) + level[[0, 0, 1, 0, 1]]
    np.testing.assert_allclose(solved(at)[0], coef, atol=1e-12)

    @jax.jit
    def tangent(step):
        def attached(p):
            parts = implicit.Parts(p["linear"], jnp.zeros((2, 5)), p["high"], p["total"])
            return implicit.parts_solution(
                jnp.asarray(coef), jnp.asarray(level), kernels.rbf(gamma=p["gamma"]), p["x"], parts
            )

        return jax.jvp(attached, (jax.tree.map(jnp.asarray, at),), (step,))[1]

    for name, value in at.items():
        step = {k: np.zeros(np.shape(v)) for k, v in at.items()} | {
            name: rng.normal(size=np.shape(value))
        }
        ends = [solved({k: v + h * step[k] for k, v in at.items()}) for h in (-1e-6, 1e-6)]
        for got, low, high in zip(tangent(step), *ends, strict=True):
            np.testing.assert_allclose(got, (high - low) / 2e-6, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_free_coefficients_of_one_sum_have_a_closed_form():
    """c = total K^-1 1 / 1' K^-1 1 at level -total / 1' K^-1 1: the derivatives in the total."""
    from jaxsvm.implicit import Parts, parts_solution

    x = np.array([[0.0], [0.6], [2.0]], np.float32)
    gram = np.exp(-0.5 * (x - x.T).astype(np.float64) ** 2)
    share = np.linalg.solve(gram, np.ones(3))
    share, level = share / share.sum(), -1 / share.sum()

    def solution_at(total):
        one, fixed = jnp.ones((1, 3), jnp.float32), jnp.asarray(share[None], jnp.float32)
        parts = Parts(jnp.zeros(3, jnp.float32), -one, one, total[None])
        return parts_solution(
            fixed, jnp.asarray([level], jnp.float32), kernels.rbf(gamma=0.5), jnp.asarray(x), parts
        )

    slopes = jax.jit(jax.jacobian(solution_at))(jnp.float32(1))
    np.testing.assert_allclose(slopes[0][0], share, rtol=1e-4)
    np.testing.assert_allclose(slopes[1][0], level, rtol=1e-4)
