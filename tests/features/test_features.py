"""Feature maps against NumPy in float64, closed forms, scikit-learn and finite differences; solvers
on features."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import assert_same_bits as same
from sklearn.cluster import KMeans

import jaxsvm
from jaxsvm import Lifted, features, fit, kernels, losses, models, objectives, on_features, samplers
from jaxsvm.features import fourier, nystrom, orthogonal
from jaxsvm.models import Linear, Mapped

FITTING = importlib.import_module("jaxsvm.loops.fitting")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = np.sign(X @ [2.0, -1.0, 0.5] + 0.3 * RNG.normal(size=24))
LAND = X[[3, 11, 17, 5, 20, 8]]  # s = 6 everywhere, so that programs are shared
TWICE = X[[3, 11, 3, 17, 11, 3]]  # rank 3
OCTAHEDRON = np.concatenate([np.eye(3), -np.eye(3)])  # eigenvalues of multiplicity 1, 3, 2
SIGMA, KEY = 1.5, jax.random.key(0)

given = jax.jit(
    lambda kernel, landmarks, eps=1e-16: nystrom(None, kernel, landmarks=landmarks, eps=eps)
)
random = jax.jit(fourier, static_argnames=("dim", "features", "form"))
apply = jax.jit(lambda phi, x: phi(x))


def gaussian(x, z, sigma=SIGMA):
    return oracles.gaussian(x, z, 1 / (2 * sigma**2))


def cubic(x, z):
    return (x @ z.T + 1) ** 3


KERNELS = {
    "rbf": (lambda: kernels.rbf(SIGMA), gaussian),
    "polynomial": (lambda: kernels.polynomial(1.0, 1.0), cubic),
    "linear": (kernels.linear, lambda x, z: x @ z.T),  # rank 3
    "a plain function": (lambda: cubic, cubic),
}


def reference(gram, values, eps=0.0):
    """Phi of K_SS and K_.S, in NumPy, columns in falling order of eigenvalues, dropped ones 0."""
    value, vector = (a[..., ::-1] for a in np.linalg.eigh(gram))
    keep = value >= max(eps, len(gram) * np.finfo(float).eps * value[0])
    return values @ (vector * np.where(keep, np.abs(value), np.inf) ** -0.5)


def close(have, want, tol):
    """Equal up to `tol` of the largest value."""
    np.testing.assert_allclose(have, want, rtol=0, atol=tol * np.abs(np.asarray(want)).max())


# Nystrom maps. In float64 errors are eps D_11 / D_ss relatively, and D_11 / D_ss < 1e4 for the
# landmarks here: 1e-11


@pytest.mark.parametrize("name", KERNELS)
def test_nystrom_is_the_formula_up_to_signs_and_below_the_kernel(name, x64):
    kernel, formula = KERNELS[name]
    phi = (
        nystrom(None, kernel(), landmarks=LAND)
        if name == "a plain function"
        else given(kernel(), LAND)
    )
    gram, values, full = formula(LAND, LAND), formula(X, LAND), formula(X, X)
    got, want = np.asarray(apply(phi, X)), reference(gram, values)
    assert got.dtype == np.float64
    close(np.abs(got), np.abs(want), 1e-10)
    assert int(phi.rank) == np.linalg.matrix_rank(gram) == (want != 0).any(0).sum()
    own = got[[3, 11, 17, 5, 20, 8]]
    close(own @ own.T, gram, 1e-11)  # exact on the landmarks
    close(got @ got.T, values @ np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ values.T, 1e-10)
    square = (got**2).sum(1)
    assert np.linalg.eigvalsh(full - got @ got.T)[0] > -1e-11 * full.max()
    assert (square <= np.diag(full) * (1 + 1e-10)).all()
    if name == "rbf":
        assert square.min() < 0.9  # and not equal to it


def test_nystrom_in_float32_is_the_formula_up_to_its_conditioning():
    phi = given(kernels.rbf(SIGMA), LAND.astype("f"))
    got = np.asarray(apply(phi, X.astype("f")), np.float64)
    value = np.linalg.eigvalsh(gaussian(LAND, LAND))
    want = reference(gaussian(LAND, LAND), gaussian(X, LAND))
    assert int(phi.rank) == 6
    close(got @ got.T, want @ want.T, 6 * 1.2e-7 * value[-1] / value[0])  # s eps D_11 / D_ss
    assert (got**2).sum(1).max() <= 1 + 6 * 1.2e-7 * value[-1] / value[0]


def test_all_rows_as_landmarks_give_the_kernel(x64):
    got = apply(given(kernels.rbf(0.7), X), X)
    close(got @ got.T, gaussian(X, X, 0.7), 1e-11)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_copied_landmarks_lower_the_rank_and_change_nothing_else(dtype, x64):
    phi = given(kernels.rbf(SIGMA), TWICE.astype(dtype))
    got = np.asarray(apply(phi, X.astype(dtype)))
    once = X[[3, 11, 17]]
    want = reference(gaussian(once, once), gaussian(X, once))
    assert int(phi.rank) == 3 and got.dtype == dtype
    np.testing.assert_array_equal(got[:, 3:], 0)
    np.testing.assert_array_equal(phi.whitening[:, 3:], 0)
    # 3 kept eigenvalues above 0.2
    close(got @ got.T, want @ want.T, 1e-5 if dtype == "f" else 1e-11)
    # all the same row
    fresh = jax.jit(lambda: nystrom(None, kernels.rbf(SIGMA), landmarks=jnp.ones((6, 3), dtype)))()
    assert int(fresh.rank) == 1


def test_labels_cancel_in_the_signed_construction_of_the_paper(x64):
    rows = [3, 11, 17, 5, 20, 8]
    psi = Y[:, None] * gaussian(X, X) * Y[None, :]
    # of the signed matrix: its vectors are Y_S Q
    value, vector = np.linalg.eigh(psi[np.ix_(rows, rows)])
    signed = psi[:, rows] @ (vector * value**-0.5)[:, ::-1]
    ours = Y[:, None] * np.asarray(apply(given(kernels.rbf(SIGMA), LAND), X))
    assert (Y[rows] < 0).any() and (Y[rows] > 0).any()
    close(signed @ signed.T, ours @ ours.T, 1e-11)
    # eigenvalues are distinct: the rotation is one of signs
    close(np.abs(signed), np.abs(ours), 1e-10)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_the_threshold_is_absolute_and_relative(dtype, x64):
    size = 3 * np.finfo(dtype).eps
    root = lambda *values: jnp.diag(jnp.sqrt(jnp.asarray(values, dtype)))
    rank = lambda landmarks, eps=1e-30: int(given(kernels.linear(), landmarks, eps).rank)
    assert rank(root(1.0, 1.2 * size, 0.8 * size)) == 2
    assert rank(100 * root(1.0, 1.2 * size, 0.8 * size)) == 2  # relative
    assert rank(root(1.0, 1e-2, 1e-4)) == 3
    assert rank(root(1.0, 1e-2, 1e-4), 1e-3) == 2
    assert rank(0.1 * root(1.0, 1e-2, 1e-4), 1e-3) == 1  # absolute
    phi = given(kernels.linear(), root(1.0, 1e-2, 1e-4), 1e-3)
    close(
        np.abs(apply(phi, jnp.eye(3, dtype=dtype))),
        np.diag([1.0, 1.0, 0.0]),
        1e-6 if dtype == "f" else 1e-14,
    )


def test_the_threshold_outside_of_transformations():
    """The larger of eps and the rounding of float32 landmarks, which float64 does not see."""
    size = np.finfo(np.float32).eps
    root = lambda *values: np.diag(np.sqrt(values)).astype(np.float32)
    rank = lambda landmarks, **eps: int(
        nystrom(None, kernels.linear(), landmarks=landmarks, **eps).rank
    )
    assert (
        rank(root(1.0, 1.5 * size, 0.5 * size))
        == 2
        == rank(100 * root(1.0, 1.5 * size, 0.5 * size))
    )
    assert rank(root(1.0, 1e-2, 1e-4), eps=1e-3) == 2 and rank(root(1.0, 1e-2, 1e-4)) == 3


def test_nystrom_under_jit_and_vmap_over_sigma_equals_a_loop(x64):
    def grams(sigma):
        values = nystrom(None, kernels.rbf(sigma), landmarks=LAND)(X)
        return values @ values.T

    sigmas = jnp.array([0.5, 1.0, 2.0])
    swept = jax.jit(jax.vmap(grams))(sigmas)
    alone = jax.jit(grams)
    for sigma, got in zip(sigmas, swept, strict=True):
        close(got, alone(sigma), 1e-10)
        want = reference(gaussian(LAND, LAND, sigma), gaussian(X, LAND, sigma))
        close(got, want @ want.T, 1e-10)


@pytest.mark.long
def test_landmarks_are_drawn_from_the_rows_without_replacement():
    x = jnp.asarray(X, jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: nystrom(key, kernels.rbf(SIGMA), x, landmarks=6)))
    phi = draw(jax.random.split(KEY, 2000))
    hits = (np.asarray(phi.landmarks)[:, :, None] == X.astype("f")[None, None]).all(-1)
    assert (hits.sum(2) == 1).all() and (hits.sum(1) <= 1).all()  # rows, none of them twice
    # each row with probability 1/4; standard error sqrt(3/16 / 2000) = 0.0097
    np.testing.assert_allclose(hits.any(1).mean(0), 0.25, atol=5 * 0.0097)
    want = given(kernels.rbf(SIGMA), phi.landmarks[0])
    # the inverse: eps D_11 / D_ss
    close(phi.whitening[0] @ phi.whitening[0].T, want.whitening @ want.whitening.T, 1e-3)
    np.testing.assert_array_equal(np.sort(features.uniform(KEY, None, x, 24), 0), np.sort(x, 0))


@pytest.mark.parametrize(
    ("arguments", "landmarks", "message"),
    [
        (
            (KEY, None, X),
            25,
            "landmarks must be a number from 1 to the 24 rows to draw from, got 25",
        ),
        ((KEY, None, X), 0, "from 1 to the 24 rows to draw from, got 0"),
        ((KEY, None, X), -1, "got -1"),
        ((None, None, X), 6, "give a key and x"),
        ((KEY, None), 6, "give a key and x"),
        ((None, None), X[0], r"got shape \(3,\)"),
        ((None, None), X[None], r"got shape \(1, 24, 3\)"),
        ((None, None), 2.5, r"got shape \(\)"),
    ],
)
def test_nystrom_refuses(arguments, landmarks, message):
    with pytest.raises(ValueError, match=message):
        nystrom(arguments[0], kernels.rbf(1.0), *arguments[2:], landmarks=landmarks)
    with pytest.raises(ValueError, match="eps has shape"):
        nystrom(None, kernels.rbf(1.0), landmarks=X, eps=np.ones(2))
    with pytest.raises(TypeError, match="expected a kernel"):
        nystrom(None, 1.0, landmarks=X)


@pytest.mark.parametrize("landmarks", [LAND, TWICE], ids=["distinct", "copied"])
def test_both_ways_to_predict_are_equal(landmarks, x64):
    phi, w = given(kernels.rbf(SIGMA), landmarks), np.arange(1.0, 7.0)
    coef = np.asarray(phi.landmark_coef(w))
    close(gaussian(X, landmarks) @ coef, apply(phi, X) @ w, 1e-10)
    back = apply(phi, landmarks).T @ coef  # Phi_S' coef = w wherever a direction is kept
    close(back, np.where(np.arange(6) < int(phi.rank), w, 0), 1e-10)


@pytest.mark.parametrize("kind", ["nystrom", "paired", "phase", "sketch"])
def test_leading_dimensions(kind):
    x = jnp.asarray(X, jnp.float32)
    if kind == "nystrom":
        phi, dim = given(kernels.rbf(SIGMA), LAND.astype("f")), 6
    elif kind == "sketch":
        phi, dim = features.tensor_sketch(KEY, kernels.polynomial(), dim=3, features=8), 8
    else:
        phi, dim = random(KEY, kernels.rbf(SIGMA), dim=3, features=8, form=kind), 8
    got = apply(phi, x)
    assert got.shape == (24, dim)
    # one row and many are multiplied in another order: a few roundings, times D_ss^(-1/2) < 10
    np.testing.assert_allclose(apply(phi, x[None]), got[None], atol=1e-5)
    np.testing.assert_allclose(
        apply(phi, x.reshape(2, 3, 4, 3)), got.reshape(2, 3, 4, dim), atol=1e-5
    )
    np.testing.assert_allclose(apply(phi, x[0]), got[0], atol=1e-5)


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
        central = (
            (
                value(SIGMA + h * sigma, landmarks + h * move, eps)
                - value(SIGMA - h * sigma, landmarks - h * move, eps)
            )
            / 2
            / h
        )
        reverse = sigma * in_sigma + np.einsum("kij,ij->k", in_landmarks, move)
        assert np.abs(central).min() > 1e-2
        np.testing.assert_allclose(reverse, central, rtol=1e-6)
        np.testing.assert_allclose(
            forward(SIGMA, landmarks, eps, sigma, move)[1], reverse, rtol=1e-9
        )


# Fourier features

FORMS = pytest.mark.parametrize("form", ["paired", "phase"])
PAIRS = np.array([[0.3, 0.2, -0.4], [1.0, -0.5, 0.5], [0.5, 2.0, 1.0]])  # x - z: near, apart, far
DRAWS = 20000


def products(make, kernel, form, count):
    """<phi(x), phi(z)> for the pairs, one row for each of many keys."""

    def one(key):
        phi = make(key, kernel, dim=3, features=count, form=form)
        x = jnp.asarray(X[:3], jnp.float32)
        return jnp.einsum("ip,ip->i", phi(x), phi(x + PAIRS.astype("f")))

    return np.asarray(
        jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), DRAWS)), np.float64
    )


def moments(sample):
    """Mean and variance over the draws, each with its standard error."""
    centred = sample - sample.mean(0)
    variance = (centred**2).mean(0)
    return (
        sample.mean(0),
        np.sqrt(variance / DRAWS),
        variance,
        np.sqrt(((centred**4).mean(0) - variance**2) / DRAWS),
    )


def within(have, want, error):
    """At most 5 standard errors apart; the draws are fixed."""
    assert (np.abs(have - want) <= 5 * error).all(), (have, want, error)


@FORMS
def test_fourier_features_are_unbiased_with_the_variances_of_the_closed_forms(form):
    mean, error, variance, its_error = moments(products(fourier, kernels.rbf(SIGMA), form, 4))
    k = np.exp(-(PAIRS**2).sum(1) / (2 * SIGMA**2))
    within(mean, k, error)
    within(
        variance, (1 - k**2) ** 2 / 4 if form == "paired" else (1 + k**4 / 2 - k**2) / 4, its_error
    )
    assert (error < 0.01).all() and (its_error < 0.005).all()  # so that a factor off would show


def test_fourier_features_of_scaled_laplacian():
    mean, error, variance, its_error = moments(
        products(fourier, 3.0 * kernels.laplacian(2.0), "paired", 4)
    )
    k = np.exp(-np.abs(PAIRS).sum(1) / 2)  # k(2 delta) = k^2
    within(mean, 3 * k, error)
    within(variance, 9 * (1 - k**2) / 4, its_error)


def test_orthogonal_features_are_unbiased_with_less_variance():
    mean, error, variance, its_error = moments(
        products(orthogonal, 2.0 * kernels.rbf(SIGMA), "paired", 6)
    )
    k = np.exp(-(PAIRS**2).sum(1) / (2 * SIGMA**2))
    plain = 4 * (1 - k**2) ** 2 / 6
    within(mean, 2 * k, error)
    assert (variance <= plain + 5 * its_error).all()
    assert variance[1] < plain[1] - 10 * its_error[1]


@pytest.mark.parametrize("kernel", [kernels.rbf(SIGMA), 3.0 * kernels.laplacian(2.0)], ids=repr)
def test_paired_features_have_the_norm_of_the_kernel(kernel, x64):
    got = apply(random(KEY, kernel, dim=3, features=8), X)
    assert got.dtype == jnp.float64
    np.testing.assert_allclose((got**2).sum(1), kernel.diag(X), rtol=1e-14)


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
    assert (
        apply(phi, X.astype("f")).dtype
        == apply(phi, jnp.asarray(X, jnp.bfloat16)).dtype
        == jnp.float32
    )


def test_frequencies_of_orthogonal_features():
    make = jax.jit(
        jax.vmap(lambda key: orthogonal(key, kernels.rbf(SIGMA), dim=3, features=14).frequencies)
    )
    # (draws, 3, 7): groups of 3, 3 and 1
    v = np.asarray(make(jax.random.split(KEY, DRAWS)), np.float64)
    assert v.shape == (DRAWS, 3, 7)
    for group in (slice(0, 3), slice(3, 6)):
        part = v[:100, :, group]
        part = part / np.linalg.norm(part, axis=1, keepdims=True)
        np.testing.assert_allclose(
            part.transpose(0, 2, 1) @ part, np.broadcast_to(np.eye(3), (100, 3, 3)), atol=1e-5
        )
    square = (v**2).sum(1)
    # chi-squared of 3 degrees: mean 3, variance 6, fourth moment 252
    within(square.mean(0), 3, np.sqrt(6 / DRAWS))
    within(square.var(0), 6, np.sqrt((252 - 36) / DRAWS))
    within(v.mean(0), 0, np.sqrt(1 / DRAWS))
    within(np.einsum("kdq,keq->deq", v, v) / DRAWS, np.eye(3)[:, :, None], np.sqrt(2 / DRAWS))
    # groups are independent
    within((square[:, 0] * square[:, 3]).mean() - 9, 0, np.sqrt((15**2 - 81) / DRAWS))
    # and so are lengths
    within((square[:, 0] * square[:, 1]).mean() - 9, 0, np.sqrt((15**2 - 81) / DRAWS))


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
    (value, draws), slope = jax.jit(jax.vmap(jax.value_and_grad(total, has_aux=True)))(
        jnp.array([SIGMA - h, SIGMA, SIGMA + h, 4.0])
    )
    for drawn in jax.tree.leaves(draws):
        np.testing.assert_array_equal(drawn, np.broadcast_to(drawn[:1], drawn.shape))
    assert (draws[1] is None) == (form == "paired")
    # h^2, and rounding over h
    np.testing.assert_allclose(slope[1], (value[2] - value[0]) / (2 * h), rtol=1e-7)


@pytest.mark.parametrize(
    ("make", "kernel", "features", "form", "message"),
    [
        (fourier, kernels.rbf(1.0), 7, "paired", "even whole number above 0, got 7"),
        (orthogonal, kernels.rbf(1.0), 7, "paired", "even whole number above 0, got 7"),
        (fourier, kernels.rbf(1.0), 0, "phase", "a whole number of at least 1, got 0"),
        (fourier, kernels.rbf(1.0), 8.0, "paired", "got 8.0"),
        (fourier, kernels.polynomial(), 8, "paired", "a kernel of x - z with a known law"),
        (fourier, kernels.rbf(1.0) + kernels.rbf(2.0), 8, "paired", "with a known law"),
        (fourier, lambda x, z: x @ z.T, 8, "paired", "with a known law"),
        (
            orthogonal,
            kernels.laplacian(1.0),
            8,
            "paired",
            r"need the Gaussian kernel \(rbf\), got laplacian\(1.0\)",
        ),
        (orthogonal, kernels.linear(), 8, "paired", "with a known law"),
        (
            fourier,
            kernels.rbf(1.0),
            8,
            "cosine",
            "form must be one of 'paired', 'phase', got 'cosine'",
        ),
    ],
)
def test_fourier_refuses(make, kernel, features, form, message):
    with pytest.raises(ValueError, match=message):
        make(KEY, kernel, dim=3, features=features, form=form)


# Choices of landmarks


@pytest.mark.long
def test_k_means_is_that_of_scikit_learn_from_the_same_rows(x64):
    start = np.asarray(features.uniform(KEY, None, jnp.asarray(X), 6))
    nearest = lambda centres: ((X[:, None] - np.asarray(centres)[None]) ** 2).sum(-1).min(1).sum()
    costs = [nearest(start)]
    for steps in (1, 5):
        centres = np.asarray(
            nystrom(
                KEY, kernels.rbf(SIGMA), jnp.asarray(X), landmarks=6, choose=features.k_means(steps)
            ).landmarks
        )
        want = (
            KMeans(6, init=start, n_init=1, max_iter=steps, tol=0, algorithm="lloyd")
            .fit(X)
            .cluster_centers_
        )
        np.testing.assert_allclose(centres, want, atol=1e-12)
        costs.append(nearest(centres))
    assert costs[0] > costs[1] > costs[2]


def test_a_centre_without_rows_stays():
    x = jnp.array([[1.0], [1.0], [1.0], [4.0]])
    # three centres at 1: rows go to the first of them
    centres = np.asarray(features.k_means(3)(KEY, None, x, 4))
    np.testing.assert_array_equal(np.sort(centres, 0), x)


@pytest.mark.long
def test_leverage_scores_draw_in_proportion_to_the_scores():
    rows, ridge = np.concatenate([0.05 * X[:6], 4 * X[6:12]]), 0.5  # six alike, six on their own
    x = jnp.asarray(rows, jnp.float32)
    one = lambda key: features.leverage_scores(ridge, pilot=12)(key, kernels.rbf(SIGMA), x, 1)[0]
    drawn = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(KEY, 5000)))
    share = (drawn[:, None] == rows.astype("f")[None]).all(-1).mean(0)
    gram = gaussian(rows, rows)
    # all rows as the pilot sample: the exact ones
    score = np.diag(gram @ np.linalg.inv(gram + ridge * 12 * np.eye(12)))
    want = score / score.sum()
    assert want.max() > 1.5 * want.min()
    within(share, want, np.sqrt(want / 5000))


def test_leverage_scores_draw_different_rows_and_find_the_outlier():
    # 23 rows alike, and one on its own
    x = np.concatenate([0.01 * X[:23], [[20.0, 0.0, 0.0]]]).astype("f")
    draw = lambda key: (
        nystrom(
            key, kernels.rbf(SIGMA), jnp.asarray(x), landmarks=6, choose=features.leverage_scores()
        ).landmarks
    )
    drawn = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(KEY, 500)))
    hits = (drawn[:, :, None] == x[None, None]).all(-1)
    assert (hits.sum(2) == 1).all() and (hits.sum(1) <= 1).all()  # rows, none of them twice
    assert hits[:, :, 23].any(1).mean() > 0.9  # 0.25 uniformly
    with pytest.raises(ValueError, match="ridge must be a finite number above 0"):
        features.leverage_scores(0.0)


# Solvers on features

SOLVER = jaxsvm.pegasos(0.1, loss=losses.logistic)  # smooth: a rounding never changes a side


def train(dtype="f"):
    return jaxsvm.dataset(X.astype(dtype), Y)


def mapped(dtype="f"):
    return given(kernels.rbf(SIGMA), LAND.astype(dtype))


@jax.tree_util.register_static
class Double:
    """x -> 2 x, which keeps a list of the row numbers it is traced for."""

    def __init__(self):
        self.seen = []

    def __call__(self, x):
        self.seen.append(x.shape[0])
        return 2 * x


@pytest.mark.long
def test_an_update_is_that_of_the_inner_solver_on_features():
    data, phi = train(), mapped()
    solver, batch = (
        on_features(phi, SOLVER),
        jaxsvm.take(train(), jnp.array([2, 7, 7, -1], jnp.int32)),
    )
    state = solver.init(KEY, data)
    by_hand = data._replace(x=apply(phi, data.x)), batch._replace(x=apply(phi, batch.x))
    same(state, SOLVER.init(KEY, by_hand[0]))
    for _ in range(2):
        raw, prepared = (
            jaxsvm.step(solver, state, batch),
            jaxsvm.step(solver, state, solver.prepare(batch)),
        )
        want = jaxsvm.step(SOLVER, state, by_hand[1])
        for got in (raw, prepared):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want
            )
        state = raw[0]
    w = np.asarray(jaxsvm.step(solver, solver.init(KEY, data), batch)[0].params.w)
    # slope -y/2 at 0, step 1/lam
    pull = (Y[[2, 7, 7]] / 2) @ np.asarray(apply(phi, data.x))[[2, 7, 7]] / 3 / 0.1
    np.testing.assert_allclose(
        w, pull * min(1, 0.1**-0.5 / np.linalg.norm(pull)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.long
def test_prepared_rows_are_marked_by_their_type_and_never_lifted_twice():
    data, phi = train(), mapped()
    solver = on_features(phi, SOLVER)
    ready = solver.prepare(data)
    assert type(ready) is Lifted and type(data) is jaxsvm.Batch
    assert solver.prepare(ready) is ready
    np.testing.assert_allclose(ready.x, apply(phi, data.x), atol=1e-6)
    for field in ("y", "index", "weight"):
        np.testing.assert_array_equal(getattr(ready, field), getattr(data, field))
    assert type(jaxsvm.take(ready, jnp.array([1, -1], jnp.int32))) is Lifted
    assert repr(on_features(phi, jaxsvm.sdca(1.0)).sampler) == "epochs()"
    assert (
        on_features(phi, jaxsvm.sdca(1.0, kernels.linear())).needs_all_rows
        and solver.residual_of == "batch"
    )


@pytest.mark.long
def test_maps_inside_maps():
    data, phi = train(), mapped()
    solver = on_features(Double(), on_features(phi, SOLVER))
    ready, want = solver.prepare(data), apply(phi, 2 * data.x)
    assert type(ready) is Lifted
    np.testing.assert_allclose(ready.x, want, atol=1e-5)
    got = fit(solver, data, KEY, steps=60, every=20).model
    inner = fit(SOLVER, data._replace(x=want), KEY, steps=60, every=20).model
    assert (
        isinstance(got, Mapped)
        and isinstance(got.inner, Mapped)
        and isinstance(got.inner.inner, Linear)
    )
    np.testing.assert_allclose(got(data.x), inner(want), atol=1e-5)  # of scores around 1
    risk = np.logaddexp(0, -Y * np.asarray(inner(want))).mean()
    for rows in (data, ready):
        np.testing.assert_allclose(jaxsvm.risk_on(rows, losses.logistic)(got), risk, rtol=1e-5)


@pytest.mark.long
def test_features_made_at_once_and_in_each_step_make_the_same_run(monkeypatch):
    data, solver = train(), on_features(mapped(), SOLVER)
    runs = {"once": fit(solver, data, KEY, steps=60, every=20)}
    runs["prepared"] = fit(solver, solver.prepare(data), KEY, steps=60, every=20)
    runs["inner"] = fit(SOLVER, data._replace(x=apply(mapped(), data.x)), KEY, steps=60, every=20)
    monkeypatch.setattr(FITTING, "MEMORY", 0)
    jax.clear_caches()
    runs["step"] = fit(solver, data, KEY, steps=60, every=20)
    assert all(isinstance(run.model, Mapped) for name, run in runs.items() if name != "inner")
    want = runs["inner"].model.w
    for name, run in runs.items():
        w = run.model.w if name == "inner" else run.model.inner.w
        # 60 steps of a few roundings
        np.testing.assert_allclose(w, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())
        np.testing.assert_allclose(run.info.loss, runs["inner"].info.loss, rtol=2e-5)
        same(run.state.sampler, runs["inner"].state.sampler)
    scores = apply(mapped(), data.x) @ want
    np.testing.assert_allclose(
        runs["step"].model(data.x), scores, atol=1e-5 * np.abs(want).max() * 6
    )


@pytest.mark.long
def test_a_kernel_solver_on_features_lifts_all_rows_in_every_step():
    data, solver = train(), on_features(mapped(), jaxsvm.sdca(1.0, kernels.linear()))
    model = fit(solver, data, KEY, steps=960, every=24).model
    values, coef = (
        np.asarray(apply(mapped(), data.x), np.float64),
        np.asarray(model.inner.coef, np.float64),
    )
    w, alpha = coef @ values, coef * Y
    assert (alpha >= 0).all() and (alpha <= 1).all() and (alpha > 0).any()
    # of 1/2 |w|^2 + sum of losses
    gap = w @ w + np.maximum(1 - Y * (values @ w), 0).sum() - alpha.sum()
    assert -1e-4 < gap < 1e-2 * alpha.sum(), (gap, alpha.sum())  # 40 passes; the gap at 0 is 24
    np.testing.assert_allclose(model(data.x), values @ w, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "batch", "seen"),
    [
        (24, 1, {24}),  # once
        (23, 1, {24, 23, 1}),  # 23 in init, one in each step
        (5, 2, {24, 5, 2}),
        (2, 4, {24, 2, 4}),
    ],
)
def test_memory_decides_when_features_are_made(rows, batch, seen, monkeypatch):
    spy = Double()  # 3 float32 a row
    monkeypatch.setattr(FITTING, "MEMORY", rows * 12)
    sampler = samplers.uniform(batch)
    run = lambda data, key: fit(on_features(spy, SOLVER), data, key, steps=10, sampler=sampler)
    assert jax.eval_shape(run, train(), KEY).info.loss.shape == (1,)
    assert set(spy.seen) - {64} == seen - {64}


@pytest.mark.long
def test_a_run_cut_and_gone_on_with_is_the_whole_run(tmp_path, monkeypatch):
    data, solver = train(), on_features(mapped(), SOLVER)
    monkeypatch.setattr(FITTING, "MEMORY", 100)
    whole = fit(solver, data, KEY, steps=60, every=20)
    for cut in (20, 13):
        first = fit(solver, data, KEY, steps=cut, every=20)
        models.save(tmp_path / "run.npz", first.state)
        rest = fit(
            solver,
            data,
            steps=60 - cut,
            every=20,
            state=models.load(tmp_path / "run.npz"),
        )
        same(rest.state, whole.state)
        same(rest.model, whole.model)


@pytest.mark.long
def test_objectives_and_probes_on_prepared_rows_are_those_on_raw_rows():
    data, solver, loss = train(), on_features(mapped(), SOLVER), losses.logistic
    ready = solver.prepare(data)
    model = fit(solver, data, KEY, steps=60, every=20).model
    score = np.asarray(model(data.x), np.float64)
    risk = np.logaddexp(0, -Y * score).mean()
    primal = 0.05 * np.sum(np.asarray(model.inner.w, np.float64) ** 2) + risk
    found = []
    for rows in (data, ready):  # features in float32: a few roundings
        np.testing.assert_allclose(
            jaxsvm.error_on(rows)(model), np.mean(np.sign(score) != Y), rtol=1e-6
        )
        np.testing.assert_allclose(jaxsvm.risk_on(rows, loss)(model), risk, rtol=2e-5)
        found.append(jaxsvm.certificate(model, rows, 0.1, loss))
        np.testing.assert_allclose(found[-1].primal, primal, rtol=2e-5)
    np.testing.assert_allclose(objectives.primal(model, ready, 0.1, loss), primal, rtol=2e-5)
    np.testing.assert_allclose(found[0].gap, found[1].gap, atol=2e-5)
    assert float(found[0].gap) > 1e-3


def build(kind, sigma, dtype="f"):
    if kind == "fourier":
        return fourier(KEY, kernels.rbf(sigma), dim=3, features=8)
    return nystrom(None, kernels.rbf(sigma), landmarks=LAND.astype(dtype))


MAPS = pytest.mark.parametrize("kind", ["fourier", "nystrom"])


@pytest.mark.long
@MAPS
def test_a_sweep_of_fits_equals_a_loop_and_its_differences_are_the_gradient(kind, x64):
    held_out = jaxsvm.dataset(X[::2] + 0.1, Y[::2])
    data = jaxsvm.dataset(X[1::2], Y[1::2])

    def risk(lam, sigma):
        solver = on_features(build(kind, sigma, "d"), jaxsvm.pegasos(lam, loss=losses.logistic))
        return jaxsvm.risk_on(held_out, losses.logistic)(
            fit(solver, data, KEY, steps=20, every=20).model
        )

    h = 1e-5
    lams = 0.3 + np.array([0, h, -h, 0, 0, -0.25, 0])
    sigmas = SIGMA + np.array([0, 0, 0, h, -h, 0, 1])
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(risk, (0, 1))))(lams, sigmas)
    central = np.array([value[1] - value[2], value[3] - value[4]]) / (2 * h)
    assert np.abs(central).min() > 1e-3 and np.ptp(np.asarray(value)[[0, 5, 6]]) > 1e-2
    # h^2, and rounding over h
    np.testing.assert_allclose([slope[0][0], slope[1][0]], central, rtol=1e-6)
    if kind == "nystrom":
        alone = jax.jit(risk)
        np.testing.assert_allclose(
            value, [alone(*at) for at in zip(lams, sigmas, strict=True)], rtol=1e-11
        )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", ["nystrom", "fourier", "phase"])
def test_a_model_on_features_is_saved_and_loaded(kind, tmp_path):
    phi = (
        fourier(KEY, 2.0 * kernels.laplacian(1.0), dim=3, features=6, form="phase")
        if kind == "phase"
        else build(kind, SIGMA)
    )
    model = Mapped(
        phi, Linear(jnp.linspace(-1.0, 1.0, 8 if kind == "fourier" else 6), jnp.asarray(0.5))
    )
    models.save(tmp_path / "model.npz", model)
    loaded = models.load(tmp_path / "model.npz")
    same(loaded, model)
    np.testing.assert_array_equal(
        loaded(jnp.asarray(X, jnp.float32)), model(jnp.asarray(X, jnp.float32))
    )


@pytest.mark.long
def test_a_plain_function_is_a_feature_map():
    data = jaxsvm.dataset(
        np.random.default_rng(0).normal(size=(24, 3)).astype("f"), np.tile([1, -1], 12)
    )
    model = jaxsvm.fit(
        jaxsvm.on_features(lambda x: 2 * x, jaxsvm.pegasos(0.1)), data, jax.random.key(0), steps=5
    ).model
    np.testing.assert_allclose(model(data.x), 2 * data.x @ model.inner.w, rtol=1e-5)
    proof = jaxsvm.certificate(model, data, 0.1)
    assert float(proof.gap) >= 0
    np.testing.assert_allclose(
        float(jaxsvm.objectives.primal(model, data, 0.1)), float(proof.primal), rtol=1e-12
    )


@pytest.mark.long
def test_landmarks_keep_their_precision_where_rows_have_less():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(50, 3)), jnp.float32)
    phi = features.nystrom(
        jax.random.key(0), kernels.rbf(3.0), x, landmarks=8, choose=features.k_means(3)
    )
    low = x.astype(jnp.bfloat16)
    np.testing.assert_array_equal(phi(low), phi(low.astype(jnp.float32)))


def test_arguments_out_of_range_are_refused():
    for make, said in (
        (lambda: features.k_means(0), "steps must be"),
        (lambda: features.leverage_scores(pilot=0), "pilot must be"),
        (
            lambda: features.nystrom(
                None, kernels.linear(), landmarks=np.eye(2, dtype="f"), eps=-1.0
            ),
            "eps must be a finite number of at least 0",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            make()
    assert (
        int(features.nystrom(None, kernels.linear(), landmarks=[[1, 2], [3, 4]], eps=0.0).rank) == 2
    )
    assert (
        int(features.nystrom(None, kernels.linear(), landmarks=np.zeros((2, 2), "f"), eps=0.0).rank)
        == 0
    )


def test_rows_of_another_width_and_precomputed_kernels_are_refused():
    x = np.eye(3, dtype="f")
    maps = (
        features.nystrom(None, kernels.linear(), landmarks=x),
        features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=3, features=4),
    )
    for phi in maps:
        with pytest.raises(ValueError, match="x must have 3 columns, as many as it was made for"):
            phi(jnp.ones((2, 4)))
    for kernel in (kernels.precomputed(), 2.0 * kernels.precomputed() + kernels.linear()):
        with pytest.raises(ValueError, match="give the kernel itself, not a precomputed matrix"):
            features.nystrom(None, kernel, landmarks=x)
    with pytest.raises(ValueError, match="a matrix of rows, got shape"):
        features.nystrom(None, kernels.linear(), landmarks=np.zeros((0, 2)))


@pytest.mark.long
def test_the_decomposition_in_float64_keeps_directions_that_float32_cannot_tell():
    x = np.random.default_rng(0).normal(size=(64, 5)).astype("f")
    kernel = kernels.rbf(20.0)
    outside = features.nystrom(None, kernel, landmarks=x)
    inside = jax.jit(lambda x: features.nystrom(None, kernel, landmarks=x))(x)
    exact = np.exp(-((x[:, None].astype(float) - x[None]) ** 2).sum(-1) / 800)
    values = np.linalg.eigvalsh(exact)
    assert (
        int(outside.rank)
        == (values >= np.finfo("f").eps * np.trace(exact)).sum()
        > int(inside.rank)
    )
    np.testing.assert_allclose(outside(x) @ outside(x).T, exact, atol=2e-5)


@pytest.mark.parametrize("phi", [lambda x: x @ jnp.ones((5, 2)), lambda x: x[:, 0]])
def test_what_is_no_map_of_rows_is_refused(phi):
    data = jaxsvm.dataset(np.eye(4), [1, -1, 1, -1])
    with pytest.raises(
        (TypeError, ValueError),
        match=r"^phi(, .*expected a function \(n, d\)| must give a row of features)",
    ):
        jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)), data, jax.random.key(0), steps=2)


@pytest.mark.long
def test_leverage_scores_take_a_large_integer():
    key, kernel, x = jax.random.key(0), kernels.rbf(1.0), jnp.arange(12.0).reshape(6, 2)
    drawn = [
        features.leverage_scores(ridge=ridge, pilot=3)(key, kernel, x, 3)
        for ridge in (2**63, 2.0**63)
    ]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("form", ["paired", "phase"])
def test_fourier_features_shifted_to_rows_have_the_same_inner_products(form):
    """Of rows in three columns and four frequencies; those of other columns are refused."""
    rows = jnp.asarray(X + 5, jnp.float32)
    plain, shifted = (
        fourier(KEY, kernels.rbf(SIGMA), dim=3, features=8, form=form, x=x) for x in (None, rows)
    )
    if (
        form == "paired"
    ):  # cosines of differences; with phases they differ by a phase of each frequency
        np.testing.assert_allclose(
            shifted(rows) @ shifted(rows).T, plain(rows) @ plain(rows).T, atol=1e-5
        )
    for wrong in (rows[:, :2], rows[0]):
        with pytest.raises(ValueError, match="x must hold rows of dim=3 columns, got shape"):
            fourier(KEY, kernels.rbf(SIGMA), dim=3, features=8, form=form, x=wrong)


@pytest.mark.parametrize(
    ("phi", "message"),
    [
        (
            lambda x: x.astype(jnp.int32),
            " must give features that are floating-point numbers, got an array of int32",
        ),
        (
            lambda x: x > 0,
            " must give features that are floating-point numbers, got an array of bool",
        ),
        (
            lambda x: jax.lax.complex(x, x),
            " must give features that are floating-point numbers, got an array of complex64",
        ),
        (lambda x: x.features, ", the function <lambda>, fails for shapes .*no attribute"),
        (
            lambda x: x if x[0, 0] > 0 else -x,
            ", the function <lambda>, asks for the values of its arguments",
        ),
    ],
    ids=["integers", "booleans", "complex", "attribute", "if"],
)
@pytest.mark.parametrize("inner", [jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0)], ids=str)
def test_a_feature_map_that_gives_no_floating_point_numbers_is_named(phi, message, inner):
    with pytest.raises(TypeError, match=f"^phi{message}"):
        fit(on_features(phi, inner), jaxsvm.dataset(X, Y), KEY, steps=2)
