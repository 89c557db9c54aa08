"""CPSP against the optimum of LIBSVM, products of kernels in NumPy, and drawn landmarks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import maker
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import cpsp, features, kernels, objectives
from jaxsvm.solvers.planes.cpsp import _fixed_point

KEY = jax.random.key(0)
N, LAM, GAMMA = 60, 0.01, 0.5
RBF = kernels.rbf(gamma=GAMMA)
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, 3)) * np.array([1.0, 0.5, 2.0])
Y = np.where(np.sin(2 * X[:, 0]) + X[:, 2] + 0.3 * RANDOM.normal(size=N) > 0, 1.0, -1.0)


gaussian = functools.partial(oracles.gaussian, gamma=GAMMA)


def primal(f, square):
    return LAM / 2 * square + np.maximum(0, 1 - Y * f).mean()


dataset = maker(X, Y)


def value(model):
    """The objective of an expansion, in NumPy."""
    points, coef = np.asarray(model.x, np.float64), np.asarray(model.coef, np.float64)
    return primal(
        gaussian(X, points) @ coef + float(model.b), coef @ gaussian(points, points) @ coef
    )


@pytest.mark.long
@pytest.mark.parametrize("bias", ["none", "free"])
def test_many_points_reach_the_optimum_of_the_kernel(bias, x64):
    run = jaxsvm.fit(
        cpsp(LAM, RBF, points=25, bias=bias), dataset(), KEY, steps=900, every=50, tol=1e-4
    )
    assert run.converged and np.asarray(run.info.support)[-1] == 25
    exact = jaxsvm.fit(
        jaxsvm.decomposition(1 / (LAM * N), RBF, bias=bias), dataset(), KEY, tol=1e-8
    )
    best = value(exact.model)
    if bias == "free":
        other = SVC(C=1 / (LAM * N), gamma=GAMMA, tol=1e-9).fit(X, Y)
        alpha, vectors = other.dual_coef_[0], other.support_vectors_
        libsvm = primal(other.decision_function(X), alpha @ gaussian(vectors, vectors) @ alpha)
        np.testing.assert_allclose(best, libsvm, rtol=1e-6)
    assert best * (1 - 1e-9) <= value(run.model) <= 1.04 * best
    certificate = objectives.certificate(run.model, dataset(), LAM)
    assert float(certificate.primal - certificate.gap) <= best * (1 + 1e-9)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_are_orthonormal_in_the_span_and_the_objective_falls(dtype, x64):
    data = dataset(dtype=dtype)
    solver = cpsp(LAM, RBF, points=8)
    step, model_of, last = jax.jit(solver.update), jax.jit(solver.model), np.inf
    state = jax.jit(solver.init)(KEY, data)
    tolerance, sizes = (1e-5, 1e-12)[dtype == "float64"], []
    for _ in range(60):
        state, info = step(state, data)
        model, size = model_of(state), int(state.basis.size)
        points = np.asarray(model.x, np.float64)[:size]
        factor, found = (
            np.asarray(state.basis.factor)[:size, :size],
            np.asarray(state.basis.features),
        )
        np.testing.assert_allclose(factor @ factor.T, gaussian(points, points), atol=tolerance)
        np.testing.assert_allclose(factor @ found[:size], gaussian(points, X), atol=tolerance)
        assert not np.any(found[size:])
        new = value(model)
        np.testing.assert_allclose(
            LAM / 2 * np.sum(np.square(state.best.w)) + float(state.best.risk),
            new,
            rtol=10 * tolerance,
        )
        assert new <= last * (1 + 10 * tolerance)
        assert np.isinf(info.residual) == (size < 8) and info.support == size
        last = new
        sizes.append(size)
    assert sizes[0] == 1 and sizes[-1] == 8 and np.all(np.diff(sizes) >= 0)


@pytest.mark.long
def test_points_do_more_than_as_many_drawn_rows(x64):
    data = dataset()
    run = jaxsvm.fit(cpsp(LAM, RBF, points=6), data, KEY, steps=300, every=50, tol=1e-3)
    drawn = []
    for seed in range(3):
        phi = features.nystrom(jax.random.key(seed), RBF, data.x, landmarks=6)
        other = jaxsvm.fit(
            jaxsvm.on_features(phi, jaxsvm.ocas(LAM)), data, KEY, steps=100, tol=1e-3
        )
        drawn.append(float(objectives.primal(other.model, data, LAM)))
    assert value(run.model) < min(drawn)


@pytest.mark.long
def test_the_first_points_are_the_centres_of_clusters():
    centres = np.array([[0.0, 0.0], [20.0, 20.0]])
    kinds = np.arange(40) % 2
    x = centres[kinds] + 0.2 * np.random.default_rng(1).normal(size=(40, 2))
    data = dataset(x, np.where(kinds, 1.0, -1.0), dtype="float32")
    run = jaxsvm.fit(cpsp(LAM, RBF, points=2), data, KEY, steps=40)
    found = np.asarray(run.model.x)
    means = np.stack([x[kinds == kind].mean(0) for kind in (0, 1)])
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], means, atol=0.05)


def test_the_fixed_point_is_a_maximum(x64):
    """Of a sum of Gaussians of both signs, from where one of them is largest; the peak by a
    grid."""
    rows, e = np.array([[0.0], [0.5], [3.0]]), np.array([1.0, 0.7, -0.8])

    def residual(b):
        terms = jnp.asarray(e) * jnp.exp(
            -GAMMA * jnp.sum((jnp.asarray(rows) - b[None]) ** 2, axis=1)
        )
        return jnp.sum(terms), terms @ jnp.asarray(rows) / jnp.sum(terms), jnp.asarray(True)

    b, _ = jax.jit(lambda b: _fixed_point(residual, b))(jnp.zeros(1))
    grid = np.linspace(-1, 2, 300_001)
    best = grid[np.argmax(gaussian(grid[:, None], rows) @ e)]
    np.testing.assert_allclose(b, best, atol=2e-4)
