"""Steps on the pairs of one working set."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsvm.engines.dual_qp import Dual
from jaxsvm.engines.smo_step import coordinate_step, index_row, pair_step, solve
from jaxsvm.types import Quadratic


def test_a_working_set_makes_so_many_steps_on_pairs(x64):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(8, 2)), jnp.asarray(np.tile([1.0, -1.0], 4))
    gram = jnp.asarray(np.exp(-((x[:, None] - x) ** 2).sum(-1)))
    bounds = Quadratic(jnp.where(y > 0, 0.0, -5.0), jnp.where(y > 0, 5.0, 0.0))
    dual, error = Dual(jnp.zeros(8), y, bounds, jnp.diag(gram)), jnp.zeros(())
    end = jax.jit(solve, static_argnames="bias")(gram, dual, error, jnp.zeros(()), "free", 3)
    step = jax.jit(lambda dual, error: pair_step(lambda i: index_row(gram, i), dual, error)[:2])
    for _ in range(3):
        dual, error = step(dual, error)
    assert int(end.steps) == 3
    np.testing.assert_allclose(end.dual.coef, dual.coef, atol=1e-14)


def test_a_step_on_a_coordinate_ends_at_the_kink_by_hand():
    """D = 2 c_0 + 0.05 c_1 - (|c_0| + |c_1|) / 2 - (c_0^2 + c_1^2) / 2, with |c_i| <= 1."""
    bounds = Quadratic(-jnp.ones(2), jnp.ones(2), jnp.full(2, 0.5))
    dual = Dual(jnp.array([-0.3, 0.1]), jnp.array([2.3, -0.05]), bounds, jnp.ones(2))
    step = jax.jit(lambda dual: coordinate_step(lambda i: jnp.eye(2)[i], dual, jnp.zeros(())))
    for coef, gap in (([0, 0.1], 2.8), ([1, 0.1], 1.5), ([1, 0], 0.55), ([1, 0], 0)):
        dual, _, made = step(dual)
        np.testing.assert_allclose(dual.coef, coef, atol=1e-6)
        np.testing.assert_allclose(dual.grad, np.subtract([2, 0.05], coef), atol=1e-6)
        np.testing.assert_allclose(made.gap, gap, atol=1e-6)
