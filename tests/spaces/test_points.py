"""Functions of points that are held less a shift."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import budget, kernels, spaces


@pytest.mark.parametrize("far", [0.0, 100.0])
def test_points_of_a_model_on_a_budget_are_rows_where_they_came_from(far):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) + np.float32(far)
    data = jaxsvm.dataset(x, np.where(x[:, 0] > far, 1, -1))
    solver = jaxsvm.bsgd(0.1, kernels.rbf(1.0), budget=8, maintain=budget.remove())
    model = jaxsvm.fit(solver, data, jax.random.key(0), steps=60).model
    points = np.asarray(model.x)[np.asarray(model.coef) != 0]
    apart = np.abs(points[:, None] - x).max(axis=2).min(axis=1)
    assert len(points) == 8 and apart.max() < 1e-4 * max(far, 1)
    value = lambda rows: np.exp(-((rows[:, None] - points) ** 2).sum(-1) / 2)
    coef = np.asarray(model.coef)[np.asarray(model.coef) != 0]
    np.testing.assert_allclose(model(data.x), value(x) @ coef, atol=1e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kernel", [kernels.linear(), kernels.rbf(1.0)], ids=str)
def test_a_row_that_comes_again_is_one_point(kernel):
    data = jaxsvm.dataset(np.array([[1.0, 0.0], [5.0, 5.0]], np.float32), [1, -1])
    space = spaces.budgeted(kernel, budget=4, maintain=budget.remove())
    f = space.zero(jax.random.key(0), data)
    add = lambda f, coef, row: space.add(f, jnp.zeros(()), coef[None], jaxsvm.take(data, row[None]))
    add = jax.jit(add)
    for row, coef, support in ((0, 1.0, 1), (0, -1.0, 1), (0, 1.0, 1), (1, 2.0, 2), (0, 0.5, 2)):
        f = add(f, np.float32(coef), np.int32(row))
        assert int(space.support(f)) == support
    np.testing.assert_allclose(np.sort(np.asarray(space.model(f).coef)), [0, 0, 1.5, 2.0])
    f = add(f, np.float32(-4), np.int32(0))  # to the other side
    np.testing.assert_allclose(np.sort(np.asarray(space.model(f).coef)), [-2.5, 0, 0, 2.0])
