"""Joint risks against sums written out in NumPy, and biases against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxsvm
from jaxsvm import losses, risks

RANDOM = np.random.default_rng(3)
N = 40
WEIGHT = RANDOM.integers(0, 4, size=N).astype(float)
SHARE = WEIGHT / WEIGHT.sum()
Y = np.where(RANDOM.random(N) < 0.3, -1.0, 1.0)
F = RANDOM.normal(size=N) * 2
FORMULAS = {
    "hinge": (losses.hinge, lambda f: np.maximum(0, 1 - Y * f)),
    "squared_hinge": (losses.squared_hinge, lambda f: np.maximum(0, 1 - Y * f) ** 2),
    "logistic": (losses.logistic, lambda f: np.logaddexp(0, -Y * f)),
    "eps_insensitive": (losses.eps_insensitive(0.3), lambda f: np.maximum(0, np.abs(f - Y) - 0.3)),
}
each = pytest.mark.parametrize("name", FORMULAS)


def risk_of(loss):
    return risks.risk_of(
        loss, jaxsvm.Batch(jnp.zeros((N, 1)), jnp.asarray(Y), jnp.arange(N), jnp.asarray(WEIGHT))
    )


@each
def test_value_slope_and_conjugate_are_those_of_the_sum(name, x64):
    loss, formula = FORMULAS[name]
    total = lambda f: np.where(SHARE > 0, SHARE * formula(f), 0).sum()
    risk = risk_of(loss)
    value, u = jax.jit(risk.value_and_slope)(F)
    np.testing.assert_allclose(value, total(F), rtol=1e-12)
    assert not np.any(np.asarray(u)[SHARE == 0])
    for _ in range(20):
        other = F + RANDOM.normal(size=N)
        assert total(other) >= value + u @ (other - F) - 1e-12
    np.testing.assert_allclose(jax.jit(risk.conjugate)(u), u @ F - value, rtol=1e-12)


@pytest.mark.long
def test_rows_of_weight_zero_may_hold_anything():
    risk = risk_of(losses.squared_hinge)
    wild = np.where(WEIGHT > 0, F, np.inf)
    value, u = risk.value_and_slope(jnp.asarray(wild, "f"))
    plain, slope = risk.value_and_slope(jnp.asarray(np.where(WEIGHT > 0, F, 0), "f"))
    assert value == plain and np.array_equal(u, slope)


def test_a_joint_loss_makes_its_own_risk():
    data, made = jaxsvm.dataset([[1.0], [2.0]], [1, -1]), risks.Risk(lambda f: (jnp.sum(f), f))

    class Joint:
        def joint(self, rows):
            assert rows is data
            return made

    assert risks.risk_of(Joint(), data) is made


@pytest.mark.long(but=1)
@each
def test_the_best_bias_is_that_of_scipy(name, x64):
    loss, formula = FORMULAS[name]
    total = lambda f: np.where(SHARE > 0, SHARE * formula(f), 0).sum()
    risk = risk_of(loss)
    b, value, u = jax.jit(lambda f: risks.best_bias(risk, f))(jnp.asarray(F))
    grid = np.linspace(-10, 10, 4001)
    start = grid[np.argmin([total(F + b) for b in grid])]
    best = scipy.optimize.minimize_scalar(
        lambda b: total(F + b), bracket=(start - 0.01, start + 0.01), tol=1e-12
    )
    np.testing.assert_allclose(value, min(best.fun, total(F + start)), rtol=1e-9)
    np.testing.assert_allclose(total(F + float(b)), value, rtol=1e-12)
    assert abs(u.sum()) < 1e-14
    free = risks.Risk(lambda f: risks.best_bias(risk, f)[1:], risk.conjugate)
    np.testing.assert_array_equal(free.value_and_slope(jnp.asarray(F))[1], u)
    np.testing.assert_allclose(-free.conjugate(u), value - u @ F, rtol=1e-9)
    for _ in range(20):  # a lower bound for all responses and all biases
        other = F + RANDOM.normal(size=N)
        assert total(other + RANDOM.normal()) >= value + u @ (other - F) - 1e-12


@pytest.mark.long(but=1)
@pytest.mark.parametrize("size", [1e6, 1e30, np.inf])
def test_rows_of_weight_zero_do_not_change_the_best_bias(size):
    """They would widen the interval that is searched, to where no digits are left."""
    risk = risk_of(losses.squared_hinge)
    plain = risks.best_bias(risk, jnp.asarray(np.where(WEIGHT > 0, F, 0), "f"))
    wild = risks.best_bias(risk, jnp.asarray(np.where(WEIGHT > 0, F, size), "f"))
    for one, other in zip(plain, wild, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_a_bias_without_effect_does_not_grow():
    """A risk that no bias changes has b = 0; one that all lower biases minimise is at rest
    there."""
    apart = risks.Risk(
        lambda f: (
            jnp.maximum(1 - f[0] + f[1], 0),
            jnp.where(f[0] - f[1] < 1, jnp.array([-1.0, 1.0]), 0),
        )
    )
    one_class = risks.Risk(lambda f: (jnp.maximum(1 + f, 0).sum(), jnp.where(f > -1, 1.0, 0.0)))
    f = jnp.array([0.5, 0.25])
    assert risks.best_bias(apart, f)[0] == 0
    b, value, _ = risks.best_bias(one_class, f)
    assert value == 0 and risks.best_bias(one_class, f + b)[0] == 0


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_the_best_bias_is_a_breakpoint_of_the_hinge_at_all_scales(scale):
    f = (F * scale).astype("f")
    b, value, u = risks.best_bias(risk_of(losses.hinge), jnp.asarray(f))
    breaks = np.sort(Y - f.astype(float))
    exact = np.array([np.sum(SHARE * np.maximum(0, 1 - Y * (f + each))) for each in breaks])
    np.testing.assert_allclose(value, exact.min(), rtol=1e-5)
    lowest = breaks[exact <= exact.min() * (1 + 1e-12)][0]  # of equally good ones
    np.testing.assert_allclose(b, lowest, rtol=2e-6)
    assert abs(u.sum()) < 1e-6
