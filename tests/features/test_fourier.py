"""Fourier and orthogonal features against closed forms of their moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_maps import DRAWS, KEY, SIGMA, X32, X, apply, equal, random, within

from jaxsvm import kernels
from jaxsvm.features import fourier, orthogonal

FORMS = pytest.mark.parametrize("form", ["paired", "phase"])
PAIRS = np.array([[0.3, 0.2, -0.4], [1.0, -0.5, 0.5], [0.5, 2.0, 1.0]])  # x - z: near, apart, far
NEAR = np.exp(-(PAIRS**2).sum(1) / (2 * SIGMA**2))
L1 = np.exp(-np.abs(PAIRS).sum(1) / 2)  # k(2 delta) = k^2
RBF, LAPLACIAN = kernels.rbf(SIGMA), 3.0 * kernels.laplacian(2.0)


def moments(make, kernel, form, count):
    """Mean and variance of <phi(x), phi(z)> over the draws, for the pairs, each with its standard
    error."""

    def one(key):
        phi = make(key, kernel, dim=3, features=count, form=form)
        return jnp.einsum("ip,ip->i", phi(X32[:3]), phi(X32[:3] + PAIRS.astype("f")))

    keys = jax.random.split(jax.random.key(5), DRAWS)
    sample = np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)
    centred = sample - sample.mean(0)
    variance = (centred**2).mean(0)
    fourth = (centred**4).mean(0) - variance**2
    return sample.mean(0), np.sqrt(variance / DRAWS), variance, np.sqrt(fourth / DRAWS)


@pytest.mark.parametrize(
    ("kernel", "form", "want", "spread"),
    [
        (RBF, "paired", NEAR, (1 - NEAR**2) ** 2 / 4),
        (RBF, "phase", NEAR, (1 + NEAR**4 / 2 - NEAR**2) / 4),
        (LAPLACIAN, "paired", 3 * L1, 9 * (1 - L1**2) / 4),
    ],
)
def test_fourier_features_are_unbiased_with_the_variances_of_the_closed_forms(
    kernel, form, want, spread
):
    mean, error, variance, its_error = moments(fourier, kernel, form, 4)
    within(mean, want, error)
    within(variance, spread, its_error)
    # so that a factor off would show
    assert kernel is LAPLACIAN or ((error < 0.01).all() and (its_error < 0.005).all())


def test_orthogonal_features_are_unbiased_with_less_variance():
    mean, error, variance, its_error = moments(orthogonal, 2.0 * RBF, "paired", 6)
    plain = 4 * (1 - NEAR**2) ** 2 / 6
    within(mean, 2 * NEAR, error)
    assert (variance <= plain + 5 * its_error).all()
    assert variance[1] < plain[1] - 10 * its_error[1]


@pytest.mark.parametrize("kernel", [RBF, LAPLACIAN], ids=repr)
def test_paired_features_have_the_norm_of_the_kernel(kernel, x64):
    got = apply(random(KEY, kernel, dim=3, features=8), X)
    assert got.dtype == jnp.float64
    np.testing.assert_allclose((got**2).sum(1), kernel.diag(X), rtol=1e-14)


@pytest.mark.long
@FORMS
def test_fourier_features_are_the_formula(form, x64):
    phi = random(KEY, kernels.rbf(SIGMA), dim=3, features=8, form=form)
    angle = X @ np.asarray(phi.frequencies) / SIGMA
    if form == "paired":
        want = np.concatenate([np.cos(angle), np.sin(angle)], 1) / 2
    else:
        assert phi.shift.min() >= 0 and np.pi < phi.shift.max() < 2 * np.pi
        want = np.cos(angle + np.asarray(phi.shift)) / 2
    np.testing.assert_allclose(apply(phi, X), want, atol=1e-14)
    for rows in (X.astype("f"), jnp.asarray(X, jnp.bfloat16)):
        assert apply(phi, rows).dtype == jnp.float32


@pytest.mark.long
def test_paired_features_shifted_to_rows_have_the_same_inner_products():
    """Of rows in three columns and four frequencies: cosines of differences."""
    rows = jnp.asarray(X + 5, jnp.float32)
    maps = (fourier(KEY, RBF, dim=3, features=8, x=x) for x in (None, rows))
    plain, shifted = (np.asarray(jax.jit(phi)(rows)) for phi in maps)
    np.testing.assert_allclose(shifted @ shifted.T, plain @ plain.T, atol=1e-5)


def test_frequencies_of_orthogonal_features():
    make = lambda key: orthogonal(key, RBF, dim=3, features=14).frequencies
    # (draws, 3, 7): groups of 3, 3 and 1
    v = np.asarray(jax.jit(jax.vmap(make))(jax.random.split(KEY, DRAWS)), np.float64)
    assert v.shape == (DRAWS, 3, 7)
    for group in (slice(0, 3), slice(3, 6)):
        part = v[:100, :, group]
        part = part / np.linalg.norm(part, axis=1, keepdims=True)
        want = np.broadcast_to(np.eye(3), (100, 3, 3))
        np.testing.assert_allclose(part.transpose(0, 2, 1) @ part, want, atol=1e-5)
    square = (v**2).sum(1)
    # chi-squared of 3 degrees: mean 3, variance 6, fourth moment 252
    within(square.mean(0), 3, np.sqrt(6 / DRAWS))
    within(square.var(0), 6, np.sqrt((252 - 36) / DRAWS))
    within(v.mean(0), 0, np.sqrt(1 / DRAWS))
    within(np.einsum("kdq,keq->deq", v, v) / DRAWS, np.eye(3)[:, :, None], np.sqrt(2 / DRAWS))
    for other in (3, 1):  # groups are independent, and so are lengths
        product = (square[:, 0] * square[:, other]).mean()
        within(product - 9, 0, np.sqrt((15**2 - 81) / DRAWS))


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "form"), [(fourier, "paired"), (fourier, "phase"), (orthogonal, "phase")]
)
def test_maps_of_all_widths_share_their_draws_and_derivatives_reach_the_width(make, form, x64):
    weights = np.random.default_rng(3).normal(size=(24, 24))

    def total(sigma):
        phi = make(KEY, kernels.rbf(sigma), dim=3, features=8, form=form)
        values = phi(X)
        return jnp.sum(weights * (values @ values.T)), (phi.frequencies, phi.shift)

    h = 1e-5
    of = jax.jit(jax.vmap(jax.value_and_grad(total, has_aux=True)))
    (value, draws), slope = of(jnp.array([SIGMA - h, SIGMA, SIGMA + h, 4.0]))
    for drawn in jax.tree.leaves(draws):
        equal(drawn, np.broadcast_to(drawn[:1], drawn.shape))
    assert (draws[1] is None) == (form == "paired")
    # h^2, and rounding over h
    np.testing.assert_allclose(slope[1], (value[2] - value[0]) / (2 * h), rtol=1e-7)
