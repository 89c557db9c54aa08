"""Kernels against scikit-learn and NumPy in float64."""

import functools
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.gaussian_process.kernels import Matern, RationalQuadratic
from sklearn.metrics import pairwise

import jaxsvm
from jaxsvm import kernels, models

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(7, 5)), RNG.normal(size=(4, 5))
X32, Z32 = (jnp.asarray(rows, jnp.float32) for rows in (X, Z))
RBF, LINE, VALUES = kernels.rbf(1.0), kernels.linear(), kernels.precomputed()
close, equal = np.testing.assert_allclose, np.testing.assert_array_equal

CASES = {
    "linear()": pairwise.linear_kernel,
    "rbf(1.5)": lambda x, z: pairwise.rbf_kernel(x, z, gamma=1 / (2 * 1.5**2)),
    "rbf(gamma=0.3)": lambda x, z: pairwise.rbf_kernel(x, z, gamma=0.3),
    "laplacian(2.0)": lambda x, z: pairwise.laplacian_kernel(x, z, gamma=1 / 2.0),
    "polynomial(0.5, 1.5, degree=2)": lambda x, z: pairwise.polynomial_kernel(
        x, z, degree=2, gamma=0.5, coef0=1.5
    ),
    "polynomial()": lambda x, z: pairwise.polynomial_kernel(x, z, degree=3, gamma=1, coef0=1),
    "sigmoid(0.2, -0.5)": lambda x, z: pairwise.sigmoid_kernel(x, z, gamma=0.2, coef0=-0.5),
    "sum_(rbf(1.5), linear())": lambda x, z: pairwise.rbf_kernel(x, z, gamma=1 / 4.5) + x @ z.T,
    "product(rbf(1.5), linear())": lambda x, z: (
        pairwise.rbf_kernel(x, z, gamma=1 / 4.5) * (x @ z.T)
    ),
    "matern12(1.5)": Matern(1.5, nu=0.5),
    "matern32(1.5)": Matern(1.5, nu=1.5),
    "matern52(0.3)": Matern(0.3, nu=2.5),
    "rational_quadratic(1.5, 0.7)": RationalQuadratic(1.5, 0.7),
    "cosine()": pairwise.cosine_similarity,
    "chi2(0.3)": lambda x, z: pairwise.chi2_kernel(x, z, gamma=0.3),
    "additive_chi2()": lambda x, z: (
        (pairwise.additive_chi2_kernel(x, z) + x.sum(1)[:, None] + z.sum(1)[None, :]) / 2
    ),
    "scaled(laplacian(2.0), 3.0)": lambda x, z: 3 * pairwise.laplacian_kernel(x, z, gamma=1 / 2.0),
}
GAMMA = np.array([0.3, 2.0, 1e-4, 0.7, 0.1])  # one for each column


def by_column(x, z, gamma=GAMMA):
    """exp(-sum_j gamma_j (x_j - z_j)^2)."""
    return np.exp(-(((x[:, None].astype(np.float64) - z[None]) ** 2) * gamma).sum(-1))


CASES["rbf(gamma=GAMMA)"] = by_column
CASES["sum_(scaled(rbf(gamma=GAMMA), 2.0), rbf(gamma=0.3))"] = lambda x, z: (
    2 * by_column(x, z) + pairwise.rbf_kernel(x, z, gamma=0.3)
)
names = pytest.mark.parametrize("name", CASES)
call = jax.jit(lambda kernel, x, z: kernel(x, z))
diag = jax.jit(lambda kernel, x: kernel.diag(x))
gram = jax.jit(lambda kernel, x, index: kernel.gram(x, index))


def rows_for(name):
    """Rows of any numbers; of at least 0, some of them 0, where the kernel takes only these."""
    return (np.maximum(X, 0), np.maximum(Z, 0)) if "chi2" in name else (X, Z)


def make(name):
    return eval(name, vars(kernels) | {"GAMMA": GAMMA})


@names
def test_block_diagonal_and_gram_are_the_formula_in_float32(name):
    (X, Z), kernel = rows_for(name), make(name)
    x, z = jnp.asarray(X, jnp.float32), jnp.asarray(Z, jnp.float32)
    want, own = CASES[name](X, Z), CASES[name](X, X)
    # some 20 roundings of terms up to |x|^2 = 15, to the third power in the cubic kernel
    near = functools.partial(close, rtol=2e-5, atol=1e-5 * max(1, np.abs(own).max() / 10))
    block = call(kernel, x, z)
    assert block.dtype == diag(kernel, x).dtype == jnp.float32
    near(block, want)
    near(diag(kernel, x), np.diag(own))
    index = np.array([4, 1, 1], np.int32)
    near(gram(kernel, x, index), own[np.ix_(index, index)])


@names
def test_block_is_the_formula_in_float64_and_positive_semidefinite(name, x64):
    X, _ = rows_for(name)
    got = call(make(name), X, X)
    assert got.dtype == jnp.float64
    close(got, CASES[name](X, X), rtol=1e-12, atol=1e-12)
    close(diag(make(name), X), np.diag(CASES[name](X, X)), rtol=1e-12)
    if "sigmoid" not in name:  # which is not positive semi-definite
        values = np.linalg.eigvalsh(np.asarray(got))
        assert values[0] > -1e-13 * values[-1]


@pytest.mark.parametrize("name", [name for name in CASES if "GAMMA" not in name])
def test_a_kernel_prints_as_the_call_that_made_it(name):
    assert repr(make(name)) == name


@pytest.mark.long
def test_operators_are_sum_product_and_scale():
    """Of plain functions, too."""
    a, b = kernels.rbf(1.5), LINE
    ones = lambda x, z: jnp.ones((x.shape[0], z.shape[0]), x.dtype)
    for kernel, want in (
        (a + b, a(X32, Z32) + b(X32, Z32)),
        (a * b, a(X32, Z32) * b(X32, Z32)),
        (a + ones, a(X32, Z32) + 1),
        (a * ones, a(X32, Z32)),
    ):
        close(kernel(X32, Z32), want, rtol=1e-6)
    for scaled in (2 * a, a * 2, np.float32(2) * a, jnp.float32(2) * a, a * jnp.float32(2)):
        assert isinstance(scaled, kernels.Kernel)
        equal(scaled(X32, Z32), 2 * a(X32, Z32))  # a power of 2: no rounding


def test_a_plain_function_is_a_kernel():
    fn = lambda x, z: (x @ z.T) ** 2
    kernel = kernels.as_kernel(fn)
    # 20 roundings of values up to 200
    close(kernel(X32, X32), (X @ X.T) ** 2, rtol=1e-4, atol=1e-4)
    close(kernel.diag(X32), np.diag(X @ X.T) ** 2, rtol=1e-5)
    equal(kernels.custom(fn, diag_fn=lambda x: jnp.zeros(x.shape[0])).diag(X32), 0)
    assert kernels.as_kernel(kernel) is kernel


def test_precomputed_reads_the_values_off_the_rows():
    table, index = jnp.asarray(pairwise.rbf_kernel(X), jnp.float32), jnp.array([5, 0, 5], jnp.int32)
    equal(VALUES(table[:3], table), table[:3])
    equal(VALUES.diag(table), jnp.diagonal(table))
    want = np.asarray(table)[np.ix_([5, 0, 5], [5, 0, 5])]
    equal(VALUES.gram(table, index), want)
    equal((2 * VALUES).gram(table, index), 2 * want)


@pytest.mark.long
@pytest.mark.parametrize("factory", [kernels.rbf, kernels.laplacian])
def test_vmap_over_sigma_equals_a_loop(factory):
    sigmas = jnp.array([0.5, 1.0, 4.0])
    swept = jax.vmap(lambda sigma: factory(sigma)(X32, Z32))(sigmas)
    stacked = jax.vmap(lambda kernel: kernel(X32, Z32))(jax.vmap(factory)(sigmas))
    # fused differently: the exponent, up to 100, is rounded once or twice
    close(swept, [factory(sigma)(X32, Z32) for sigma in sigmas], rtol=2e-5, atol=1e-12)
    close(stacked, swept, rtol=2e-6, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "at", "rtol"),
    [
        (kernels.rbf, 1.3, 1e-8),
        (kernels.laplacian, 1.3, 1e-8),
        (lambda gamma: kernels.rbf(gamma=gamma), GAMMA, 1e-6),
    ],
    ids=["rbf", "laplacian", "columns"],
)
def test_the_gradient_in_the_width_is_that_of_finite_differences(make, at, rtol, x64):
    # distances of 0 among them
    total = lambda width: jnp.sum(make(width)(X, X) * jnp.arange(7.0)[None, :])
    steps = 1e-5 * np.eye(np.size(at)).reshape(-1, *np.shape(at))
    central = [(total(at + step) - total(at - step)) / 2e-5 for step in steps]
    # step^2, and rounding over the step
    close(np.ravel(jax.grad(total)(jnp.asarray(at))), central, rtol=rtol)


def test_rbf_far_from_the_origin_is_off_by_the_rounding_of_the_squared_norms():
    # rows around 100 (1, .., 1) have squared norms of 50,000, so distances are off by up to 4 eps
    # 100,000 = 0.05
    x = X.astype(np.float32) + np.float32(100)
    got = np.asarray(jax.jit(RBF)(x, x))
    close(got, pairwise.rbf_kernel(x.astype(np.float64), gamma=0.5), atol=0.025)
    assert got.max() <= 1


@pytest.mark.long
def test_low_precision_rows_give_float32_values():
    with jax.numpy_dtype_promotion("strict"):
        x = jnp.asarray(X, jnp.bfloat16)
        got = kernels.rbf(1.5)(x, x)
    assert got.dtype == jnp.float32
    want = pairwise.rbf_kernel(np.asarray(x, np.float64), gamma=1 / 4.5)
    close(got, want, rtol=2e-5, atol=1e-5)


@pytest.mark.long
def test_a_sum_is_swept_over_the_width_of_a_part():
    sigmas = jnp.array([1.0, 2.0, 4.0])
    several = jax.vmap(lambda sigma: LINE + kernels.rbf(sigma))(sigmas)
    found = jax.vmap(lambda kernel: kernel(jnp.ones((1, 2)), jnp.zeros((1, 2))))(several)
    close(found[:, 0, 0], np.exp(-1 / np.array([1.0, 4.0, 16.0])), rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("form", ["dense", "far", "sparse", "sparse and dense"])
def test_one_gamma_a_column(form):
    x = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    x = x + 2.0**13 if form == "far" else np.where(np.abs(x) < 0.7, 0, x) if "sparse" in form else x
    sparse = jaxsvm.dataset(scipy.sparse.csr_array(x), (-1.0) ** np.arange(9)).x
    rows = sparse if "sparse" in form else x
    other = x if form == "sparse and dense" else rows
    kernel, want = kernels.rbf(gamma=GAMMA), by_column(x, x)
    close(kernel(rows, other), want, atol=2e-6)
    close(kernels.matvec(kernel, rows, other, jnp.ones(9)), want.sum(1), atol=2e-5)
    equal(np.diag(kernel(rows, other)), np.ones(9))
    equal(kernel.diag(rows), np.ones(9))


def test_one_gamma_a_column_where_products_are_too_coarse():
    """Two clusters 2,000 apart: distances within one are lost in squared norms with a large gamma
    of that column."""
    x = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    x[:4, 2] += 2000.0
    for gamma, atol in ((GAMMA, 1e-3), (GAMMA[[2, 0, 1, 3, 4]], 1e-6)):
        close(kernels.rbf(gamma=gamma)(x, x), by_column(x, x, gamma), atol=atol)


def test_a_model_with_one_gamma_a_column_is_saved_and_loaded(tmp_path):
    data = jaxsvm.dataset(X32, [1, -1, 1, -1, 1, 1, -1])
    solver = jaxsvm.decomposition(1.0, kernels.rbf(gamma=GAMMA))
    model, path = jaxsvm.fit(solver, data, jax.random.key(0)).model, tmp_path / "model.npz"
    models.save(path, model)
    equal(models.load(path)(data.x), model(data.x))
    close(model(data.x) - model.b, by_column(X, X) @ np.asarray(model.coef), atol=1e-5)
    with pytest.raises(ValueError, match="rbf has one gamma for all columns"):
        models.to_libsvm(model, tmp_path / "model.txt")


@pytest.mark.long
@pytest.mark.parametrize("block", [1, 3, 100])
def test_matvec_is_the_product_for_every_block_size(block):
    coef = jnp.asarray(RNG.normal(size=(4, 2)), jnp.float32)
    want = pairwise.rbf_kernel(X, Z, gamma=0.5) @ np.asarray(coef, np.float64)
    close(kernels.matvec(RBF, X32, Z32, coef, block), want, atol=2e-6)
    close(kernels.matvec(RBF, X32, Z32, coef[:, 0], block), want[:, 0], atol=2e-6)


@pytest.mark.parametrize("kernel", [RBF, kernels.laplacian(1.0), RBF + LINE], ids=str)
def test_rows_that_are_not_finite_are_like_no_row(kernel):
    for values in (kernel, kernels.sqdist):
        row = np.float32([[np.nan, 1.0]])
        assert np.isnan(jax.jit(values)(row, np.ones((2, 2), np.float32))).all()


@pytest.mark.long
def test_a_row_whose_squares_overflow_is_far_from_all_others():
    far = jnp.array([[1e25, 0.0]], jnp.float32)
    assert kernels.rbf(1.0)(far, jnp.ones((2, 2), jnp.float32)).tolist() == [[0, 0]]


NESTED = {
    "a + b": lambda a, b: a + b,
    "b + a": lambda a, b: b + a,
    "a * b": lambda a, b: a * b,
    "0.5 * a": lambda a, b: 0.5 * a,
    "0.5 * a * b + linear": lambda a, b: 0.5 * a * b + LINE,
}


def nested(name, terms):
    kernel = kernels.rbf(1.0)
    for i in range(terms):
        kernel = NESTED[name](kernel, kernels.rbf(2.0 + i))
    return kernel


def calls_of(use):
    """Calls of functions of the package."""
    calls = []
    sys.setprofile(lambda f, e, _: calls.append(e == "call" and "jaxsvm" in f.f_code.co_filename))
    try:
        use()
    finally:
        sys.setprofile(None)
    return sum(calls)


def work_of(name, terms, path):
    """Calls of functions in each use of a nested kernel, and the bytes of its pickle."""
    kernel = nested(name, terms)
    models.save(path, kernel)
    uses = (
        lambda: kernel(X32, X32),
        lambda: kernel.diag(X32),
        lambda: kernel.gram(X32, np.arange(2)),
        lambda: repr(kernel),
        lambda: models.save(path, kernel),
        lambda: models.load(path),
    )
    yield from (len(pickle.dumps(kernel)), *map(calls_of, uses))


@pytest.mark.long
@pytest.mark.parametrize("name", NESTED)
def test_the_work_of_nested_kernels_grows_like_their_terms(name, tmp_path):
    few, many = (np.array([*work_of(name, terms, tmp_path / "k.npz")]) for terms in (4, 8))
    # a load checks each kernel with all that is nested in it, so its work grows like the square
    assert (few > 0).all() and (many <= np.array([2.5] * 6 + [4.5]) * few).all(), (few, many)


def test_a_sum_of_many_kernels_is_the_sum_of_their_blocks(tmp_path):
    want = sum(pairwise.rbf_kernel(X, Z, gamma=1 / (2 * s**2)) for s in range(1, 42))
    kernel = nested("a + b", 40)
    models.save(tmp_path / "kernel.npz", kernel)
    for copy in (pickle.loads(pickle.dumps(kernel)), models.load(tmp_path / "kernel.npz")):
        close(jax.jit(copy)(X32, Z32), want, rtol=1e-5)
        close(copy.diag(X32), np.full(7, 41.0), rtol=1e-6)
        assert repr(copy) == repr(kernel) and copy.differences and len(copy.gammas) == 41


@pytest.mark.parametrize("name", ["a + b", "a * b", "0.5 * a"])
def test_values_worked_out_beforehand_are_parts(name):
    matrix, kernel = X @ X.T, NESTED[name](VALUES, VALUES)
    close(kernel.gram(jnp.asarray(matrix), np.arange(7)), kernel(matrix, X), rtol=1e-6)
