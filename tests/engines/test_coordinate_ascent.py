"""What a step of coordinate ascent says of itself."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm


def test_the_loss_of_a_batch_is_the_weighted_mean_before_the_step():
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(6, 2)), np.array([1.0, 2.0, 0.0, 0.5, 3.0, 1.0])
    data = jaxsvm.dataset(x, np.tile([1, -1], 3), weight)
    solver = jaxsvm.sdca(0.3)
    state = solver.init(jax.random.key(0), data)
    for rows in ([0, 1, 2, 4], [3, 5, 1, -1]):
        batch, model = jaxsvm.take(data, jnp.array(rows, jnp.int32)), solver.model(state)
        share = np.asarray(batch.weight) / np.sum(np.asarray(batch.weight) > 0)
        slack = np.maximum(1 - np.asarray(batch.y) * np.asarray(model(batch.x)), 0)
        state, info = jaxsvm.step(solver, state, batch)
        np.testing.assert_allclose(info.loss, share @ slack, rtol=1e-5)
