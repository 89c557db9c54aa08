"""Nystrom maps and their landmarks against NumPy in float64, scikit-learn and finite
differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_maps import (
    KEY,
    LAND,
    PLACES,
    RBF,
    SIGMA,
    X32,
    X,
    Y,
    apply,
    close,
    cubic,
    equal,
    gaussian,
    given,
    hits_of,
    mapped,
    random,
    within,
)
from sklearn.cluster import KMeans

from jaxsvm import features, kernels
from jaxsvm.features import nystrom

TWICE = X[[3, 11, 3, 17, 11, 3]]  # rank 3
OCTAHEDRON = np.concatenate([np.eye(3), -np.eye(3)])  # eigenvalues of multiplicity 1, 3, 2
KERNELS = {
    "rbf": (lambda: kernels.rbf(SIGMA), gaussian),
    "polynomial": (lambda: kernels.polynomial(1.0, 1.0), cubic),
    "linear": (kernels.linear, lambda x, z: x @ z.T),  # rank 3
    "a plain function": (lambda: cubic, cubic),
}


def reference(gram, values):
    """Phi of K_SS and K_.S, in NumPy, columns in falling order of eigenvalues, dropped ones 0."""
    value, vector = (a[..., ::-1] for a in np.linalg.eigh(gram))
    keep = value >= len(gram) * np.finfo(float).eps * value[0]
    return values @ (vector * np.where(keep, np.abs(value), np.inf) ** -0.5)


# In float64 errors are eps D_11 / D_ss relatively, and D_11 / D_ss < 1e4 for the landmarks here:
# 1e-11


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_nystrom_is_the_formula_up_to_signs_and_below_the_kernel(name, x64):
    kernel, formula = KERNELS[name][0](), KERNELS[name][1]
    plain = name == "a plain function"
    phi = nystrom(None, kernel, landmarks=LAND) if plain else given(kernel, LAND)
    gram, values, full = formula(LAND, LAND), formula(X, LAND), formula(X, X)
    got, want = np.asarray(apply(phi, X)), reference(gram, values)
    assert got.dtype == np.float64
    close(np.abs(got), np.abs(want), 1e-10)
    assert int(phi.rank) == np.linalg.matrix_rank(gram) == (want != 0).any(0).sum()
    close(got[PLACES] @ got[PLACES].T, gram, 1e-11)  # exact on the landmarks
    close(got @ got.T, values @ np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ values.T, 1e-10)
    square = (got**2).sum(1)
    assert np.linalg.eigvalsh(full - got @ got.T)[0] > -1e-11 * full.max()
    assert (square <= np.diag(full) * (1 + 1e-10)).all()
    assert name != "rbf" or square.min() < 0.9  # and not equal to it


def test_nystrom_in_float32_is_the_formula_up_to_its_conditioning():
    phi, value = mapped(), np.linalg.eigvalsh(gaussian(LAND, LAND))
    got = np.asarray(apply(phi, X32), np.float64)
    want = reference(gaussian(LAND, LAND), gaussian(X, LAND))
    error = 6 * 1.2e-7 * value[-1] / value[0]  # s eps D_11 / D_ss
    assert int(phi.rank) == 6 and (got**2).sum(1).max() <= 1 + error
    close(got @ got.T, want @ want.T, error)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_copied_landmarks_lower_the_rank_and_change_nothing_else(dtype, x64):
    phi, once = given(kernels.rbf(SIGMA), TWICE.astype(dtype)), X[[3, 11, 17]]
    got = np.asarray(apply(phi, X.astype(dtype)))
    want = reference(gaussian(once, once), gaussian(X, once))
    assert int(phi.rank) == 3 and got.dtype == dtype
    equal(got[:, 3:], 0)
    equal(phi.whitening[:, 3:], 0)
    # 3 kept eigenvalues above 0.2
    close(got @ got.T, want @ want.T, 1e-5 if dtype == "f" else 1e-11)
    assert int(given(kernels.rbf(SIGMA), jnp.ones((6, 3), dtype)).rank) == 1


def test_labels_cancel_in_the_signed_construction_of_the_paper(x64):
    psi = Y[:, None] * gaussian(X, X) * Y[None, :]
    # of the signed matrix: its vectors are Y_S Q
    value, vector = np.linalg.eigh(psi[np.ix_(PLACES, PLACES)])
    signed = psi[:, PLACES] @ (vector * value**-0.5)[:, ::-1]
    ours = Y[:, None] * np.asarray(apply(mapped(dtype="d"), X))
    assert (Y[PLACES] < 0).any() and (Y[PLACES] > 0).any()
    close(signed @ signed.T, ours @ ours.T, 1e-11)
    # eigenvalues are distinct: the rotation is one of signs
    close(np.abs(signed), np.abs(ours), 1e-10)


@pytest.mark.parametrize("traced, dtype", [(True, "f"), (True, "d"), (False, "f")])
def test_the_threshold_is_absolute_and_relative(traced, dtype):
    """Outside of transformations the larger of eps and the rounding of float32 landmarks, which
    float64 does not see."""
    size = (3 if traced else 1) * np.finfo(dtype).eps
    root = lambda *values: np.diag(np.sqrt(values)).astype(dtype)
    plain = lambda kernel, rows, eps: nystrom(None, kernel, landmarks=rows, eps=eps)
    made = lambda rows, eps=1e-30: (given if traced else plain)(kernels.linear(), rows, eps)
    with jax.enable_x64(traced):
        for scale, values, eps, rank in (
            (1, (1.0, 1.2 * size, 0.8 * size), 1e-30, 2),
            (100, (1.0, 1.2 * size, 0.8 * size), 1e-30, 2),  # relative
            (1, (1.0, 1e-2, 1e-4), 1e-30, 3),
            (1, (1.0, 1e-2, 1e-4), 1e-3, 2),
            (0.1, (1.0, 1e-2, 1e-4), 1e-3, 1),  # absolute
        ):
            assert int(made(np.asarray(scale * root(*values), dtype), eps).rank) == rank
        found = np.abs(apply(made(root(1.0, 1e-2, 1e-4), 1e-3), np.eye(3, dtype=dtype)))
        close(found, np.diag([1.0, 1.0, 0.0]), 1e-6 if dtype == "f" else 1e-14)


def test_a_threshold_of_0_keeps_what_is_not_0():
    rank = lambda rows: int(nystrom(None, kernels.linear(), landmarks=rows, eps=0.0).rank)
    assert (rank([[1, 2], [3, 4]]), rank(np.zeros((2, 2), "f"))) == (2, 0)


@pytest.mark.long
def test_the_decomposition_in_float64_keeps_directions_that_float32_cannot_tell():
    x = np.random.default_rng(0).normal(size=(64, 5)).astype("f")
    kernel, exact = kernels.rbf(20.0), gaussian(x, x, 20.0)
    outside, inside = nystrom(None, kernel, landmarks=x), given(kernel, x)
    kept = (np.linalg.eigvalsh(exact) >= np.finfo("f").eps * np.trace(exact)).sum()
    assert int(outside.rank) == kept > int(inside.rank)
    np.testing.assert_allclose(outside(x) @ outside(x).T, exact, atol=2e-5)


@pytest.mark.long
def test_nystrom_under_vmap_over_sigma_is_the_formula(x64):
    sigmas = jnp.array([0.5, 1.0, 2.0])
    make = lambda sigma: nystrom(None, kernels.rbf(sigma), landmarks=LAND)(X)
    for sigma, got in zip(sigmas, jax.jit(jax.vmap(make))(sigmas), strict=True):
        want = reference(gaussian(LAND, LAND, sigma), gaussian(X, LAND, sigma))
        close(got @ got.T, want @ want.T, 1e-10)


@pytest.mark.parametrize("landmarks", [LAND, TWICE], ids=["distinct", "copied"])
def test_both_ways_to_predict_are_equal(landmarks, x64):
    phi, w = given(kernels.rbf(SIGMA), landmarks), np.arange(1.0, 7.0)
    coef = np.asarray(phi.landmark_coef(w))
    close(gaussian(X, landmarks) @ coef, apply(phi, X) @ w, 1e-10)
    back = apply(phi, landmarks).T @ coef  # Phi_S' coef = w wherever a direction is kept
    close(back, np.where(np.arange(6) < int(phi.rank), w, 0), 1e-10)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", ["phase", "nystrom", "paired", "sketch"])
def test_leading_dimensions(kind):
    if kind == "nystrom":
        phi, dim = mapped(), 6
    elif kind == "sketch":
        phi, dim = features.tensor_sketch(KEY, kernels.polynomial(), dim=3, features=8), 8
    else:
        phi, dim = random(KEY, RBF, dim=3, features=8, form=kind), 8
    got = apply(phi, X32)
    assert got.shape == (24, dim)
    # one row and many are multiplied in another order: a few roundings, times D_ss^(-1/2) < 10
    for rows, want in (
        (X32[None], got[None]),
        (X32.reshape(2, 3, 4, 3), got.reshape(2, 3, 4, dim)),
        (X32[0], got[0]),
    ):
        np.testing.assert_allclose(apply(phi, rows), want, atol=1e-5)


@pytest.mark.long
def test_landmarks_keep_their_precision_where_rows_have_less():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(50, 3)), jnp.float32)
    phi = nystrom(KEY, kernels.rbf(3.0), x, landmarks=8, choose=features.k_means(3))
    low = x.astype(jnp.bfloat16)
    equal(phi(low), phi(low.astype(jnp.float32)))


# Derivatives through the decomposition, of functions that do not see a rotation of the features


def invariant(sigma, landmarks, eps):
    """A weighted sum of Phi Phi', and of the predictions of ridge regression on Phi."""
    values = nystrom(None, kernels.rbf(sigma), landmarks=landmarks, eps=eps)(X)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(24, 24)))
    solved = jnp.linalg.solve(values.T @ values + 0.1 * jnp.eye(6), values.T @ Y)
    return jnp.stack([jnp.sum(weights * (values @ values.T)), jnp.dot(weights[0], values @ solved)])


value = lambda *at: forward(*at, 0.0, np.zeros((6, 3)))[0]
backward = jax.jit(jax.jacrev(invariant, (0, 1)))
forward = jax.jit(
    lambda sigma, landmarks, eps, *tangents: jax.jvp(
        lambda a, b: invariant(a, b, eps), (sigma, landmarks), tangents
    )
)


@pytest.mark.parametrize(
    ("landmarks", "eps", "rank"),
    [
        (LAND, 1e-16, 6),
        (OCTAHEDRON, 1e-16, 6),
        (TWICE, 1e-16, 3),
        (LAND, 0.1, None),
        (TWICE, 1e-3, 3),
    ],
    ids=["distinct", "equal eigenvalues", "copies", "dropped by eps", "copies moved apart"],
)
def test_derivatives_of_nystrom_are_those_of_finite_differences(landmarks, eps, rank, x64):
    found = int(given(kernels.rbf(SIGMA), landmarks, eps).rank)
    assert found == rank if rank else 0 < found < 6
    turn = np.random.default_rng(2).normal(size=(6, 3))
    if eps < 1e-3 and rank == 3:  # copies stay copies: apart they would span more, however near
        turn = turn[[0, 1, 0, 3, 1, 0]]
    in_sigma, in_landmarks = backward(SIGMA, landmarks, eps)
    assert np.isfinite(in_sigma).all() and np.isfinite(in_landmarks).all()
    h = 1e-5  # h^2 f''' / 6 and eps D_11 / D_ss / h: 1e-8 or so of the derivative
    for sigma, move in ((1.0, 0 * turn), (0.0, turn)):
        ends = [value(SIGMA + s * sigma, landmarks + s * move, eps) for s in (h, -h)]
        central = (ends[0] - ends[1]) / 2 / h
        reverse = sigma * in_sigma + np.einsum("kij,ij->k", in_landmarks, move)
        along = forward(SIGMA, landmarks, eps, sigma, move)[1]
        assert np.abs(central).min() > 1e-2
        np.testing.assert_allclose(reverse, central, rtol=1e-6)
        np.testing.assert_allclose(along, reverse, rtol=1e-9)


# Choices of landmarks


@pytest.mark.long
def test_landmarks_are_drawn_from_the_rows_without_replacement():
    draw = jax.jit(jax.vmap(lambda key: nystrom(key, RBF, X32, landmarks=6)))
    phi = draw(jax.random.split(KEY, 2000))
    # each row with probability 1/4; standard error sqrt(3/16 / 2000) = 0.0097
    share = hits_of(phi.landmarks, X).any(1).mean(0)
    np.testing.assert_allclose(share, 0.25, atol=5 * 0.0097)
    want = given(RBF, phi.landmarks[0])
    # the inverse: eps D_11 / D_ss
    close(phi.whitening[0] @ phi.whitening[0].T, want.whitening @ want.whitening.T, 1e-3)
    equal(np.sort(features.uniform(KEY, None, X32, 24), 0), np.sort(X32, 0))


@pytest.mark.long
def test_k_means_is_that_of_scikit_learn_from_the_same_rows(x64):
    start, options = np.asarray(features.uniform(KEY, None, jnp.asarray(X), 6)), {"n_init": 1}
    options |= {"tol": 0, "algorithm": "lloyd"}
    nearest = lambda centres: ((X[:, None] - np.asarray(centres)[None]) ** 2).sum(-1).min(1).sum()
    costs = [nearest(start)]
    for steps in (1, 5):
        choose = features.k_means(steps)
        phi = nystrom(KEY, kernels.rbf(SIGMA), jnp.asarray(X), landmarks=6, choose=choose)
        theirs = KMeans(6, init=start, max_iter=steps, **options).fit(X)
        np.testing.assert_allclose(phi.landmarks, theirs.cluster_centers_, atol=1e-12)
        costs.append(nearest(phi.landmarks))
    assert costs[0] > costs[1] > costs[2]


def test_a_centre_without_rows_stays():
    x = jnp.array([[1.0], [1.0], [1.0], [4.0]])
    # three centres at 1: rows go to the first of them
    centres = np.asarray(features.k_means(3)(KEY, None, x, 4))
    equal(np.sort(centres, 0), x)


@pytest.mark.long
def test_leverage_scores_draw_in_proportion_to_the_scores():
    rows, ridge = np.concatenate([0.05 * X[:6], 4 * X[6:12]]), 0.5  # six alike, six on their own
    x, choose = jnp.asarray(rows, jnp.float32), features.leverage_scores(ridge, pilot=12)
    draw = jax.jit(jax.vmap(lambda key: choose(key, RBF, x, 1)))
    share = hits_of(draw(jax.random.split(KEY, 5000)), rows)[:, 0].mean(0)
    gram = gaussian(rows, rows)
    # all rows as the pilot sample: the exact ones
    score = np.diag(gram @ np.linalg.inv(gram + ridge * 12 * np.eye(12)))
    want = score / score.sum()
    assert want.max() > 1.5 * want.min()
    within(share, want, np.sqrt(want / 5000))


def test_leverage_scores_draw_different_rows_and_find_the_outlier():
    # 23 rows alike, and one on its own
    x = np.concatenate([0.01 * X[:23], [[20.0, 0.0, 0.0]]]).astype("f")
    choose = features.leverage_scores()
    draw = lambda key: nystrom(key, RBF, jnp.asarray(x), landmarks=6, choose=choose).landmarks
    hits = hits_of(jax.jit(jax.vmap(draw))(jax.random.split(KEY, 500)), x)
    assert hits[:, :, 23].any(1).mean() > 0.9  # 0.25 uniformly


@pytest.mark.long
def test_leverage_scores_take_a_large_integer():
    kernel, x = kernels.rbf(1.0), jnp.arange(12.0).reshape(6, 2)
    choices = [features.leverage_scores(ridge, pilot=3) for ridge in (2**63, 2.0**63)]
    equal(*(choose(KEY, kernel, x, 3) for choose in choices))
