"""The kernels that are less common: rows far away, derivatives, sparse rows, names, features."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn import svm
from sklearn.gaussian_process.kernels import Matern, RationalQuadratic
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.metrics import pairwise

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm.estimators import SVC, FourierFeatures

RNG = np.random.default_rng(1)
X = np.abs(RNG.normal(size=(40, 3))) * (RNG.random((40, 3)) < 0.8)
Y = np.where(X[:, 0] + 0.3 * X[:, 1] ** 2 > 0.9, 1, -1)
KEY = jax.random.key(0)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_right_for_near_rows_far_from_the_origin_in_float32(nu):
    x = np.float32(1000 + RNG.normal(size=(6, 3)))
    x = np.concatenate([x, np.nextafter(x, np.float32(2000)), x]).astype(np.float32)
    got = kernels.matern(0.7, nu=nu)(x, x)
    want = Matern(0.7, nu=nu)(x.astype(np.float64))
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda s: kernels.matern(s, nu=0.5), 0.7),
        (lambda s: kernels.matern(s), 0.7),
        (lambda s: kernels.matern(s, nu=2.5), 0.7),
        (lambda s: kernels.rational_quadratic(s, 0.4), 0.7),
        (lambda s: kernels.rational_quadratic(0.7, s), 0.4),
        (lambda s: kernels.chi2(s), 0.7),
    ],
    ids=["matern 1/2", "matern 3/2", "matern 5/2", "width", "alpha", "chi2"],
)
def test_derivatives_in_each_parameter(make, number, x64):
    total = jax.jit(lambda s: jnp.sum(jnp.sin(make(s)(X, X))))
    step = 1e-5
    want = (total(number + step) - total(number - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(number), want, rtol=1e-7)
    np.testing.assert_allclose(jax.jvp(total, (number,), (1.0,))[1], want, rtol=1e-7)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.matern(0.7, nu=0.5),
        kernels.matern(0.7),
        kernels.matern(0.7, nu=2.5),
        kernels.rational_quadratic(0.7, 0.4),
        kernels.cosine(),
        kernels.chi2(0.7),
        kernels.additive_chi2(),
    ],
    ids=repr,
)
def test_derivatives_in_the_rows_where_some_are_equal_or_zero(kernel, x64):
    """Finite at equal rows and at rows of zeros, and right where the kernel is smooth."""
    x = np.concatenate([X[:5], X[:2], np.zeros((1, 3))])
    total = jax.jit(jax.value_and_grad(lambda x: jnp.sum(jnp.cos(kernel(x, x)))))
    assert np.isfinite(total(x)[1]).all()
    apart, along, step = np.abs(RNG.normal(size=(8, 3))) + 0.1, RNG.normal(size=(8, 3)), 1e-6
    want = (total(apart + step * along)[0] - total(apart - step * along)[0]) / (2 * step)
    np.testing.assert_allclose(np.vdot(total(apart)[1], along), want, rtol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.matern(0.7),
        kernels.matern(0.7, nu=0.5),
        kernels.rational_quadratic(0.7),
        kernels.cosine(),
        kernels.chi2(0.7),
        kernels.additive_chi2(),
    ],
    ids=repr,
)
def test_sparse_rows_have_the_values_of_dense_ones(kernel):
    rows, dense = jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y).x, np.float32(X)

    @jax.jit
    def values(rows, dense):
        pairs = (dense, dense), (rows, rows), (rows, dense), (dense, rows)
        return [kernel(*pair) for pair in pairs], kernel.diag(rows), kernel.diag(dense)

    (want, *blocks), *diagonals = values(rows, dense)
    for block in blocks:
        np.testing.assert_allclose(block, want, atol=1e-3 if "12" in repr(kernel) else 1e-5)
    np.testing.assert_allclose(*diagonals, atol=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kernel", [kernels.chi2(1.0), 2 * kernels.additive_chi2()], ids=repr)
@pytest.mark.parametrize("sparse", [False, True])
def test_negative_numbers_are_refused_by_kernels_of_histograms(kernel, sparse):
    x = X.copy()
    x[3, 1] = -0.25
    assert np.isnan(kernel(x, x)[3]).all() and np.isnan(kernel(x, x)[:, 3]).all()
    assert np.isfinite(np.delete(np.delete(np.asarray(kernel(x, x)), 3, 0), 3, 1)).all()
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(x) if sparse else x, Y)
    for solver in (jaxsvm.decomposition(1.0, kernel), jaxsvm.sbp(0.1, kernel)):
        with pytest.raises(ValueError, match=r"takes rows of .* at least 0, got -0.25 in row 3"):
            jaxsvm.fit(solver, data, KEY, steps=1)
    light = data._replace(weight=data.weight.at[3].set(0))
    assert jaxsvm.fit(jaxsvm.decomposition(1.0, kernels.rbf(1.0)), light, KEY, steps=1).converged


@pytest.mark.parametrize("number", [1e-15, 1e15])
def test_cosine_and_chi2_of_tiny_and_huge_rows(number):
    x = np.float32(X[:6] * number)
    keep = x.any(axis=1)
    got = np.asarray(kernels.additive_chi2()(x, x)) / number
    np.testing.assert_allclose(
        got, np.asarray(kernels.additive_chi2()(np.float32(X[:6]), np.float32(X[:6]))), rtol=1e-5
    )
    clf = SVC(kernel="cosine", C=10).fit(x[keep], Y[:6][keep])
    want = svm.SVC(kernel=pairwise.cosine_similarity, C=10).fit(X[:6][keep], Y[:6][keep])
    np.testing.assert_allclose(
        clf.decision_function(x[keep]), want.decision_function(X[:6][keep]), atol=5e-3
    )


NAMED = {  # as of scikit-learn, at gamma = 0.5 or width 1
    "matern12": Matern(1.0, nu=0.5),
    "matern32": Matern(1.0, nu=1.5),
    "matern52": Matern(1.0, nu=2.5),
    "rational_quadratic": RationalQuadratic(1.0, 1.0),
    "cosine": pairwise.cosine_similarity,
    "chi2": lambda x, z: pairwise.chi2_kernel(x, z, gamma=0.5),
    "additive_chi2": lambda x, z: pairwise.additive_chi2_kernel(x, z) / 2,  # free bias: the same
}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED)
def test_estimators_know_the_names(name):
    clf = SVC(kernel=name, gamma=0.5, C=3.0, tol=1e-4).fit(X, Y)
    want = svm.SVC(kernel=NAMED[name], C=3.0, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(clf.decision_function(X), want.decision_function(X), atol=2e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", NAMED)
def test_files_know_the_names(name, tmp_path):
    data = jaxsvm.dataset(X, Y)
    machine = jaxsvm.decomposition(3.0, kernels.by_name(name, 0.5))
    path = tmp_path / "m.npz"
    jaxsvm.models.save(path, jaxsvm.fit(machine, data, KEY, tol=1e-5).model)
    want = svm.SVC(kernel=NAMED[name], C=3.0, tol=1e-6).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(jaxsvm.models.load(path)(data.x), want, atol=2e-3)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "kernel",
    [kernels.matern(0.7, nu=0.5), kernels.rational_quadratic(0.7, 0.4), kernels.matern(0.7)],
    ids=repr,
)
def test_fourier_features_of_kernels_of_several_widths(kernel):
    """Errors of random features fall as 1 / sqrt(p): here 1 / sqrt(20,000) = 0.007 a value."""
    x = np.float32(X)
    made = jax.jit(lambda x: features.fourier(KEY, kernel, dim=3, features=40_000)(x))
    phi = np.asarray(made(x))
    want = np.asarray(jax.jit(kernel)(x, x))
    np.testing.assert_allclose(phi @ phi.T, want, atol=0.03)
    assert abs(np.mean(phi @ phi.T - want)) < 0.01
    with pytest.raises(ValueError, match="need the Gaussian kernel"):
        features.orthogonal(KEY, kernel, dim=3, features=4)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_tensor_sketch_is_unbiased(degree):
    kernel = kernels.polynomial(0.5, 0.8, degree=degree)
    x, many = np.float32(X[:6]), 400
    sketch = lambda key: features.tensor_sketch(key, kernel, dim=3, features=64)(x)
    phi = np.asarray(jax.jit(jax.vmap(sketch))(jax.random.split(KEY, many)))
    values, want = phi @ phi.mT, (0.5 * X[:6] @ X[:6].T + 0.8) ** degree
    error = np.abs(values.mean(0) - want)
    assert (error < 5 * values.std(0) / many**0.5 + 1e-5).all()
    u = 0.5 * np.sum(X[:6] ** 2, 1) + 0.8
    bound = (2 + 3**degree) * np.outer(u, u) ** degree / 64
    assert (values.var(0) < 1.2 * bound).all()  # as of Avron, Nguyen and Woodruff


def test_tensor_sketch_is_the_count_sketch_of_the_tensor():
    """Degree 2 written out: feature b sums s_c s_e u_c u_e over h_c + h_e = b modulo p."""
    p, kernel = 8, kernels.polynomial(0.5, 0.8, degree=2)
    phi = features.tensor_sketch(KEY, kernel, dim=3, features=p)
    at = functools.partial(jax.jit(lambda phi, x: phi(x)), phi)
    sign, bucket = np.asarray(phi.sign), np.asarray(phi.bucket)
    u = np.append(np.sqrt(0.5) * X[0], np.sqrt(0.8))
    want = np.zeros(p)
    for c in range(4):
        for e in range(4):
            want[(bucket[0, c] + bucket[1, e]) % p] += sign[0, c] * sign[1, e] * u[c] * u[e]
    dense, sparse = at(np.float32(X)), jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y).x
    np.testing.assert_allclose(dense[0], want, atol=1e-5)
    np.testing.assert_allclose(at(sparse), dense, atol=1e-5)
    assert phi.features == p and phi.dim == 3


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_additive_chi2_features_are_those_of_scikit_learn(steps):
    got = np.asarray(jax.jit(features.additive_chi2(dim=3, steps=steps))(np.float32(X)))
    want = AdditiveChi2Sampler(sample_steps=steps).fit_transform(X)
    np.testing.assert_allclose(got, want, atol=1e-5)
    product = pairwise.additive_chi2_kernel(X) / 2 + X.sum(1, keepdims=True) / 2 + X.sum(1) / 2
    np.testing.assert_allclose(
        got @ got.T, product, atol=np.max(product) * {1: 0.25, 2: 0.12, 3: 0.06}[steps]
    )
    slope = jax.grad(lambda x: features.additive_chi2(dim=3)(x).sum())(jnp.zeros((1, 3)))
    assert (slope == 0).all()


def test_chi2_features():
    x, kernel = jnp.asarray(X, jnp.float32), kernels.chi2(0.5)
    phi = features.chi2(KEY, kernel, dim=3, features=20_000)
    np.testing.assert_allclose(phi(x) @ phi(x).T, kernel(x, x), atol=0.05)
    assert phi(x).shape == (40, phi.features) and np.isnan(phi(-x - 1)).all()
    rows = jaxsvm.dataset(scipy.sparse.csr_matrix(x), Y).x
    np.testing.assert_allclose(phi(rows), phi(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: features.tensor_sketch(
            KEY, kernels.polynomial(0.5, 1.0, degree=2), dim=3, features=256
        ),
        lambda: features.chi2(KEY, kernels.chi2(0.5), dim=3, features=256),
    ],
    ids=["tensor_sketch", "chi2"],
)
def test_files_know_the_maps(make, tmp_path):
    data, phi, path = jaxsvm.dataset(X, Y), make(), tmp_path / "m.npz"
    fitted = jaxsvm.fit(
        jaxsvm.on_features(phi, jaxsvm.dual_descent(10.0)), data, KEY, tol=1e-3
    ).model
    jaxsvm.models.save(path, fitted)
    values = jaxsvm.models.load(path)(data.x)
    assert np.mean(np.sign(values) == Y) > 0.9
    np.testing.assert_array_equal(values, fitted(data.x))


@pytest.mark.long
@pytest.mark.parametrize("name", ["matern12", "matern32", "rational_quadratic"])
def test_the_estimator_of_fourier_features_knows_the_names(name):
    phi = FourierFeatures(name, gamma=0.5, n_components=20_000, random_state=0).fit_transform(X)
    want = kernels.by_name(name, 0.5)(X, X)
    np.testing.assert_allclose(phi @ phi.T, want, atol=0.05)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kernels.matern(1.0, nu=1.0), "nu must be .*0.5.*1.5.*2.5"),
        (lambda: kernels.matern(-1.0), "sigma must be"),
        (lambda: kernels.rational_quadratic(1.0, 0.0), "alpha must be"),
        (lambda: kernels.chi2(0.0), "gamma must be"),
        (
            lambda: features.tensor_sketch(KEY, kernels.rbf(1.0), dim=2, features=4),
            "polynomial kernel of degree 1 and more, got rbf",
        ),
        (
            lambda: features.tensor_sketch(KEY, kernels.polynomial(degree=0), dim=2, features=4),
            "polynomial kernel of degree 1 and more",
        ),
        (
            lambda: features.chi2(KEY, kernels.additive_chi2(), dim=2, features=4),
            r"need kernels.chi2, got additive_chi2\(\)",
        ),
        (lambda: features.additive_chi2(dim=2, steps=0), "steps must be"),
        (lambda: features.additive_chi2(dim=2)(jnp.ones((3, 4))), "2 columns"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
