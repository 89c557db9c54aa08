"""Kernels of differences do not change when all rows move, however far: against float64, and
against themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import budget, features, kernels, samplers
from jaxsvm.numerics import offset

KEY, RNG = jax.random.key(0), np.random.default_rng(0)
PLAIN = RNG.normal(size=(24, 2))
LABELS = np.where(PLAIN[:, 0] * PLAIN[:, 1] + 0.3 * RNG.normal(size=24) > 0, 1, -1)
EPS = float(np.finfo(np.float32).eps)


def squares(x, z):
    return ((x[:, None] - z[None]) ** 2).sum(-1)


def gauss(x, z, s):
    return np.exp(-squares(x, z) / (2 * s * s))


def laplace(x, z, s):
    return np.exp(-np.abs(x[:, None] - z[None]).sum(-1) / s)


def cauchy(x, z, s):
    return 1 / (1 + squares(x, z) / s**2)


RBF, WIDE = kernels.rbf(1.0), kernels.laplacian(2.0)
LAPLACIAN, CUSTOM = kernels.laplacian, kernels.custom
# Each with its formula, both with widths in units of the rows.
KERNELS = {
    "rbf": (lambda s: kernels.rbf(gamma=0.5 / s**2), gauss),
    "laplacian": (lambda s: LAPLACIAN(1.5 * s), lambda x, z, s: laplace(x, z, 1.5 * s)),
    "sum": (lambda s: kernels.rbf(s) + LAPLACIAN(s), lambda *a: gauss(*a) + laplace(*a)),
    "product": (lambda s: kernels.rbf(s) * LAPLACIAN(s), lambda *a: gauss(*a) * laplace(*a)),
    "scaled": (lambda s: 2.0 * kernels.rbf(s), lambda *a: 2 * gauss(*a)),
    "custom": (lambda s: CUSTOM(lambda x, z: 1 / (1 + kernels.sqdist(x, z) / s**2)), cauchy),
    "of differences": (lambda s: CUSTOM(lambda x, z: cauchy_of(x, z, s), differences=True), cauchy),
}


def cauchy_of(x, z, s):
    """In JAX, of differences of rows."""
    return 1 / (1 + jnp.sum((x[:, None] - z[None]) ** 2, -1) / s**2)


each_kernel = pytest.mark.parametrize("name", KERNELS)
OFFSETS, SCALES = (0, 1, 100, 1e4, 1e6), (1e-4, 1e-3, 1, 1e3, 1e6)


def moved(by, scale=1.0):
    """Rows whose first column lies `by` widths from 0, as float32 holds them; and these in
    float64."""
    held = (scale * (PLAIN + [by, 0])).astype(np.float32)
    return jnp.asarray(held), held.astype(np.float64)


@pytest.mark.long
@each_kernel
def test_the_error_is_relative_to_the_spread_of_the_rows(name):
    """The promise of `rbf`: (8 + 4 sqrt(d)) eps gamma max |x - mean|^2 in the exponent, gamma = 1/2
    in units of the rows."""
    make, formula = KERNELS[name]
    call = jax.jit(lambda x, z, scale: make(scale)(x, z))
    for by in OFFSETS:
        for scale in SCALES:
            x, exact = moved(by, scale)
            apart = exact - exact.mean(axis=0)
            most = (8 + 4 * 2**0.5) * EPS * (apart**2).sum(1).max() / scale**2
            want = formula(exact, exact[:5], scale)
            bound = 4 * (most + 8 * EPS) * np.maximum(want, EPS)
            for got in (make(scale)(x, x[:5]), call(x, x[:5], jnp.float32(scale))):
                assert np.all(np.abs(np.asarray(got, float) - want) <= bound), (by, scale)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbf", "laplacian", "custom"])
@pytest.mark.parametrize(
    "form", [jnp.asarray, lambda x: jaxsvm.dataset(scipy.sparse.csr_matrix(x), LABELS[:8]).x]
)
@pytest.mark.filterwarnings("ignore:column:UserWarning")
def test_equal_rows_are_at_distance_0(name, form):
    """Exactly, however many columns there are, and however far the rows are from 0 and from each
    other."""
    k = KERNELS[name][0](1.0)
    for columns, scale in ((2, 1e4), (300, 1.0), (300, 1e4)):
        rows = (scale * RNG.normal(size=(8, columns)) + 7 * scale).astype(np.float32)
        rows[5] = rows[2]
        x = form(rows)
        peak = float(k.diag(x)[0])
        got = np.asarray(k(x, x))
        assert np.all(np.diag(got) == peak) and got[5, 2] == got[2, 5] == peak
        assert np.all(np.asarray(k.diag(x)) == peak)


@pytest.mark.long
def test_rows_near_the_origin_keep_their_bits():
    x = jnp.asarray(RNG.normal(size=(50, 4)) * [1, 1e-3, 1e3, 0] + [0, 1e-3, 100, 0], jnp.float32)
    assert np.all(np.asarray(offset(x)) == 0)
    assert np.all(np.asarray(offset(jnp.asarray((RNG.random((50, 3)) > 0.9).astype("f")))) == 0)


@pytest.mark.long
def test_the_shift_is_the_same_in_any_program():
    x = jnp.asarray(RNG.normal(size=(50, 4)) * [1, 1e-3, 1e3, 0] + [1e4, 3, 1e6, 0.3], jnp.float32)
    plain = np.asarray(offset(x))
    assert np.array_equal(plain, jax.jit(offset)(x))
    assert np.array_equal(plain, jax.vmap(offset)(jnp.stack([x, x]))[1])
    # order, copies, padding
    assert np.array_equal(plain, offset(jnp.concatenate([x[::-1], x, jnp.zeros((3, 4))])))
    half = np.ptp(np.asarray(x), axis=0) / 2
    middle = (np.asarray(x).max(axis=0) + np.asarray(x).min(axis=0)) / 2
    assert np.all((np.abs(plain - middle) <= half / 4 + 1e-6) | (plain == 0))
    assert np.all(np.asarray(offset(x))[[0, 2, 3]] != 0)
    back = np.asarray((x - plain[None]) + plain[None])
    assert np.array_equal(back, x)


@pytest.mark.long
def test_derivatives_do_not_see_the_shift():
    x, _ = moved(1e3)
    near = x - jnp.asarray([[1e3, 0]], jnp.float32)
    value = lambda x, sigma: jnp.sum(jnp.tanh(kernels.rbf(sigma)(x, x[:3])))
    slope = jax.grad(value, argnums=(0, 1))
    for far, want in zip(slope(x, 1.0), slope(near, 1.0), strict=True):
        np.testing.assert_allclose(far, want, rtol=2e-4, atol=2e-4)


@pytest.mark.long
def test_small_distances_between_far_clusters():
    """Products leave none of their digits, differences do."""
    x = PLAIN.astype(np.float32)
    x[12:] += 3000
    got = kernels.rbf(gamma=1.0)(jnp.asarray(x), jnp.asarray(x))
    np.testing.assert_allclose(got, np.exp(-squares(x.astype(float), x.astype(float))), atol=1e-6)
    assert_right(x, kernels.rbf(gamma=1.0), lambda x, z: np.exp(-squares(x, z)), C=10.0)


# Exact machines beside scikit-learn's


def assert_right(x, kernel, formula, C):
    """Decision values within 1e-3 of SVC's in float64 on the same rows, and a certificate that
    holds there."""
    data = jaxsvm.dataset(x, LABELS)
    rows = np.asarray(data.x, np.float64)
    gram = formula(rows, rows)
    peer = SVC(kernel="precomputed", C=C, tol=1e-8).fit(gram, LABELS)
    run = jaxsvm.fit(jaxsvm.decomposition(C, kernel, tol=1e-4), data, KEY)
    assert run.converged
    score = np.asarray(run.model(data.x), float)
    np.testing.assert_allclose(score, peer.decision_function(gram), atol=1e-3)

    def primal(coef, score):
        return (coef @ gram @ coef / 2 + C * np.maximum(1 - LABELS * score, 0).sum()) / (C * len(x))

    best = np.zeros(len(x))
    best[peer.support_] = peer.dual_coef_[0]
    best = primal(best, peer.decision_function(gram))
    found = jaxsvm.certificate(run.model, data, 1 / (C * len(x)))
    coef = np.asarray(run.model.coef, float)
    assert abs(float(found.primal) - primal(coef, gram @ coef + float(run.model.b))) <= 1e-6
    assert float(found.primal) - best <= float(found.gap) + 1e-9
    assert float(found.dual) <= best + 1e-9


@pytest.mark.long
@each_kernel
@pytest.mark.filterwarnings("ignore:rounding to float32:UserWarning")
def test_decomposition_is_right_far_from_the_origin(name):
    make, formula = KERNELS[name]
    for by, scale in ((0, 1), (1000, 1), (1e4, 1), (1e6, 1), (0, 1e-3), (1e4, 1e-3), (1e4, 1e4)):
        own = lambda x, z, s=scale: formula(x, z, s)
        assert_right(scale * (PLAIN + [by, 0]), make(float(scale)), own, C=10.0)


@pytest.mark.long
def test_rows_so_far_apart_that_the_kernel_is_the_identity():
    """gamma = 1 on rows x 1e4: the optimum is 5e-7 n C, where distances that are no 0 on the
    diagonal led to 41,667."""
    x = 1e4 * PLAIN
    assert_right(x, kernels.rbf(gamma=1.0), lambda x, z: np.exp(-squares(x, z)), C=1e6)


@pytest.mark.long
def test_a_kernel_of_no_width_is_finite():
    solver, data = jaxsvm.decomposition(1.0, kernels.rbf(1e-30)), jaxsvm.dataset(PLAIN, LABELS)
    run = jaxsvm.fit(solver, data, KEY)
    assert run.finite and np.all(np.isfinite(np.asarray(run.model(PLAIN))))


# Every space: rows of few bits are moved without rounding, so that the functions are the same but
# for roundings

ROWS = np.round(8 * PLAIN) / 8  # multiples of 1/8, which float32 holds up to 2^21
FAR = np.array([2.0**20, 0])
SOLVERS = {
    "kernel_pegasos": lambda: jaxsvm.kernel_pegasos(0.1, RBF),
    "sdca": lambda: jaxsvm.sdca(1.0, RBF),
    "sdca bias": lambda: jaxsvm.sdca(1.0, RBF, bias="feature"),
    "perceptron average": lambda: jaxsvm.perceptron(RBF, average=True),
    "constrained_sgd": lambda: jaxsvm.constrained_sgd(1.0, RBF),
    "smo": lambda: jaxsvm.smo(1.0, RBF),
    "decomposition": lambda: jaxsvm.decomposition(1.0, RBF, tol=1e-5),
    "mixed": lambda: jaxsvm.decomposition(1.0, RBF * RBF + 0.5 * RBF, tol=1e-5),
    "lasvm": lambda: jaxsvm.lasvm(1.0, RBF),
    "sbp": lambda: jaxsvm.sbp(0.3, RBF),
    "batch_perceptron": lambda: jaxsvm.batch_perceptron(0.1, RBF),
    "wolfe": lambda: jaxsvm.wolfe(0.1, RBF),
    "scs": lambda: jaxsvm.scs(0.1, RBF, capacity=12),
    "bsgd merge": lambda: jaxsvm.bsgd(0.1, RBF, budget=6),
    "bsgd remove": lambda: jaxsvm.bsgd(0.1, RBF, budget=6, maintain=budget.remove()),
    "bsgd project": lambda: jaxsvm.bsgd(0.1, RBF, budget=6, maintain=budget.project()),
    "bsca": lambda: jaxsvm.bsca(1.0, RBF, budget=24),
    "projectron_plus": lambda: jaxsvm.projectron_plus(RBF, budget=6),
    "nogd": lambda: jaxsvm.nogd(0.1, RBF, budget=6, features=3),
    "bogd": lambda: jaxsvm.bogd(0.1, RBF, budget=6),
    "one_vs_rest": lambda: jaxsvm.one_vs_rest(jaxsvm.sdca(1.0, RBF), classes=2),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SOLVERS)
def test_every_space_takes_rows_far_from_the_origin(name):
    task = "multiclass" if name == "one_vs_rest" else "binary"
    solver, values = SOLVERS[name](), []
    feed = None if solver.sampler is not None and solver.sampler.full_batch else samplers.epochs(1)
    for rows in (ROWS.astype("f"), (ROWS + FAR).astype("f")):
        data = jaxsvm.dataset(rows, LABELS > 0, task=task)
        how = {"steps": 48, "every": 24, "sampler": feed}
        values.append(np.asarray(jaxsvm.fit(solver, data, jax.random.key(1), **how).model(rows)))
    near, far = values
    assert np.abs(near).max() > 0.1
    # Merged points are between rows, where float32 has steps of 1/8 at 2^20.
    np.testing.assert_allclose(far, near, rtol=0, atol=0.15 if name == "bsgd merge" else 2e-4)


@pytest.mark.long
def test_a_loop_of_ones_own_is_right_too():
    """`update` on rows as they are, without the form that `fit` gives them."""
    solver = jaxsvm.sdca(1.0, RBF)
    near, far = (jaxsvm.dataset(rows.astype("f"), LABELS) for rows in (ROWS, ROWS + FAR))
    states = []
    for data in (near, far):
        state = solver.init(KEY, data)
        for i in range(10):
            state, _ = jaxsvm.step(solver, state, data._replace(index=jnp.array([i], jnp.int32)))
        states.append(solver.model(state, data)(data.x))
    np.testing.assert_allclose(*states, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kernel"),
    [(name, k) for name in ("nystrom", "fourier") for k in (RBF, WIDE)] + [("orthogonal", RBF)],
)
def test_every_feature_map_takes_rows_far_from_the_origin(name, kernel):
    images = []
    for rows in (ROWS.astype("f"), (ROWS + FAR).astype("f")):
        if name == "nystrom":
            phi = features.nystrom(None, kernel, landmarks=rows[:8])
        else:
            phi = getattr(features, name)(KEY, kernel, dim=2, features=64, x=rows)
        image = np.asarray(phi(rows), float)
        images.append(image @ image.T)
    np.testing.assert_allclose(*images, atol=1e-4)


def test_k_means_far_from_the_origin():
    rows = np.concatenate([np.zeros((5, 1)), np.ones((5, 1))]).astype("f")
    centres = features.k_means(10)(jax.random.key(3), None, jnp.asarray(rows + 2.0**20), 2)
    assert sorted(np.ravel(centres) - 2.0**20) == [0, 1]


def test_a_map_of_rows_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"x must hold rows of dim=2 columns, got shape \(4, 3\)"):
        features.fourier(KEY, RBF, dim=2, features=4, x=np.ones((4, 3)))


@pytest.mark.long
def test_streams_take_rows_far_from_the_origin():
    """The shift is that of the first chunk, and goes along with the state."""
    runs, solver = [], SOLVERS["bsgd remove"]()
    for by in (0 * FAR, FAR):
        rows = (ROWS + by).astype("f")
        chunks = [(rows[k : k + 6], LABELS[k : k + 6]) for k in range(0, 24, 6)]
        runs.append(jaxsvm.stream(solver, chunks, KEY).model(rows))
    np.testing.assert_allclose(*runs, atol=2e-4)
