"""Step sizes against their formulas in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import schedules

COUNTS = np.array([0, 1, 2, 9, 10, 11, 1000, 1_000_000], np.int32)


def eta0(lam):
    return min(lam**-0.25, 1 / lam)


def averaged(t, lam, start):
    after = eta0(lam) / (1 + lam * eta0(lam) * np.maximum(t - start, 0)) ** 0.75
    return np.where(t < start, eta0(lam) / (1 + lam * eta0(lam) * t), after)


CASES = {
    "inverse_time": (lambda: schedules.inverse_time(2.5), lambda t: 2.5 / (t + 1)),
    "inverse_time with offset": (lambda: schedules.inverse_time(2.5, 7.0), lambda t: 2.5 / (t + 8)),
    "inverse_time with array": (
        lambda: schedules.inverse_time(jnp.asarray(2.5)),
        lambda t: 2.5 / (t + 1),
    ),
    "inverse_sqrt": (lambda: schedules.inverse_sqrt(0.3), lambda t: 0.3 / np.sqrt(t + 1)),
    "bottou": (
        lambda: schedules.bottou(1e-3),
        lambda t: 1 / (1e-3 * (t + 1 / (eta0(1e-3) * 1e-3))),
    ),
    "bottou above lam = 1": (
        lambda: schedules.bottou(20.0),
        lambda t: 1 / (20.0 * (t + 1 / (eta0(20.0) * 20.0))),
    ),
    "averaged_sgd": (lambda: schedules.averaged_sgd(0.01, 10), lambda t: averaged(t, 0.01, 10)),
    "averaged_sgd from the start": (
        lambda: schedules.averaged_sgd(0.01, 0),
        lambda t: averaged(t, 0.01, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_schedule_is_its_formula_and_float32(name):
    make, formula = CASES[name]
    got = jax.jit(jax.vmap(make()))(COUNTS)
    assert got.dtype == jnp.float32
    # powers: some 10 roundings
    np.testing.assert_allclose(got, formula(COUNTS.astype(np.float64)), rtol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_schedule_takes_a_python_count(name):
    make, formula = CASES[name]
    np.testing.assert_allclose(make()(3), formula(np.float64(3)), rtol=2e-6)


@pytest.mark.long
def test_schedules_follow_float64(x64):
    t = np.arange(5)
    np.testing.assert_allclose(
        jax.vmap(schedules.inverse_time(jnp.asarray(2.5)))(t), 2.5 / (t + 1), rtol=1e-15
    )
    np.testing.assert_allclose(
        jax.vmap(schedules.inverse_sqrt(jnp.asarray(2.5)))(t), 2.5 / np.sqrt(t + 1), rtol=1e-15
    )
    got = jax.vmap(schedules.averaged_sgd(jnp.asarray(0.01), 2))(t)
    np.testing.assert_allclose(got, averaged(t, 0.01, 2), rtol=1e-14)


@pytest.mark.long
def test_the_scale_of_a_schedule_can_be_swept_and_differentiated():
    lams = jnp.array([0.1, 1.0, 10.0])
    for make in (
        lambda lam: schedules.inverse_time(1 / lam),
        schedules.bottou,
        lambda lam: schedules.averaged_sgd(lam, 2),
    ):
        at_five = lambda lam, make=make: make(lam)(jnp.int32(5))
        # fused arithmetic
        np.testing.assert_allclose(
            jax.vmap(at_five)(lams), [at_five(lam) for lam in lams], rtol=1e-6
        )
    slope = jax.grad(lambda scale: schedules.inverse_time(scale)(jnp.int32(4)))(2.0)
    np.testing.assert_allclose(slope, 0.2, rtol=1e-6)


@pytest.mark.parametrize("lam", [1e-6, 0.1, 1.0, 50.0])
def test_the_first_step_of_bottou_never_overshoots(lam):
    # 1 - eta lam is the first shrink factor, up to rounding
    assert 0 < float(schedules.bottou(lam)(0)) * lam <= 1 + 1e-6
    np.testing.assert_allclose(schedules.bottou_eta0(lam), eta0(lam), rtol=1e-6)


def test_averaged_sgd_starts_again_from_the_first_step_where_averaging_begins():
    schedule = schedules.averaged_sgd(0.1, 10)
    steps = [float(schedule(jnp.int32(t))) for t in range(13)]
    assert steps[10] == steps[0] > steps[9] > 0
    assert steps[10] > steps[11] > steps[12]
