"""Kernels against scikit-learn and NumPy in float64."""

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


def by_column(x, z):
    """exp(-sum_j gamma_j (x_j - z_j)^2)."""
    return np.exp(-(((x[:, None].astype(np.float64) - z[None]) ** 2) * GAMMA).sum(-1))


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
    close = lambda got, want: np.testing.assert_allclose(
        got, want, rtol=2e-5, atol=1e-5 * max(1, np.abs(own).max() / 10)
    )
    block = call(kernel, x, z)
    assert block.dtype == diag(kernel, x).dtype == jnp.float32
    close(block, want)
    close(diag(kernel, x), np.diag(own))
    index = np.array([4, 1, 1], np.int32)
    close(gram(kernel, x, index), own[np.ix_(index, index)])


@names
def test_block_is_the_formula_in_float64_and_positive_semidefinite(name, x64):
    X, _ = rows_for(name)
    got = call(make(name), X, X)
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, CASES[name](X, X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(diag(make(name), X), np.diag(CASES[name](X, X)), rtol=1e-12)
    if "sigmoid" not in name:  # which is not positive semi-definite
        values = np.linalg.eigvalsh(np.asarray(got))
        assert values[0] > -1e-13 * values[-1]


@pytest.mark.parametrize("name", [name for name in CASES if "GAMMA" not in name])
def test_a_kernel_prints_as_the_call_that_made_it(name):
    assert repr(make(name)) == name


@pytest.mark.long
def test_operators_are_sum_product_and_scale():
    a, b = kernels.rbf(1.5), kernels.linear()
    x, z = jnp.asarray(X, jnp.float32), jnp.asarray(Z, jnp.float32)
    np.testing.assert_allclose((a + b)(x, z), a(x, z) + b(x, z), rtol=1e-6)
    np.testing.assert_allclose((a * b)(x, z), a(x, z) * b(x, z), rtol=1e-6)
    for scaled in (2 * a, a * 2, np.float32(2) * a, jnp.float32(2) * a, a * jnp.float32(2)):
        assert isinstance(scaled, kernels.Kernel)
        np.testing.assert_array_equal(scaled(x, z), 2 * a(x, z))  # a power of 2: no rounding


@pytest.mark.long
def test_sums_and_products_take_plain_functions():
    x = jnp.asarray(X, jnp.float32)
    plain = lambda x, z: jnp.ones((x.shape[0], z.shape[0]), x.dtype)
    np.testing.assert_allclose(
        (kernels.rbf(1.0) + plain)(x, x), kernels.rbf(1.0)(x, x) + 1, rtol=1e-6
    )
    np.testing.assert_allclose((kernels.rbf(1.0) * plain)(x, x), kernels.rbf(1.0)(x, x), rtol=1e-6)


def test_a_plain_function_is_a_kernel():
    fn = lambda x, z: (x @ z.T) ** 2
    kernel, x = kernels.as_kernel(fn), jnp.asarray(X, jnp.float32)
    # 20 roundings of values up to 200
    np.testing.assert_allclose(kernel(x, x), (X @ X.T) ** 2, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kernel.diag(x), np.diag(X @ X.T) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(
        kernels.custom(fn, diag_fn=lambda x: jnp.zeros(x.shape[0])).diag(x), 0
    )
    assert kernels.as_kernel(kernel) is kernel
    with pytest.raises(TypeError, match="expected a kernel"):
        kernels.as_kernel(3.0)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, z: x @ x.T,
        lambda x, z: jnp.ones(x.shape[0]),
        lambda x, z: jnp.ones((z.shape[0], x.shape[0])),
    ],
)
def test_a_function_that_returns_the_wrong_shape_is_refused(fn):
    with pytest.raises(ValueError, match="shape"):
        kernels.as_kernel(fn)(jnp.ones((3, 2)), jnp.ones((4, 2)))


def test_gram_refuses_a_function_that_returns_the_wrong_shape():
    with pytest.raises(ValueError, match="shape"):
        kernels.as_kernel(lambda x, z: jnp.ones(x.shape[0])).gram(
            jnp.ones((3, 2)), jnp.array([0, 2], jnp.int32)
        )


def test_precomputed_reads_the_values_off_the_rows():
    table = jnp.asarray(pairwise.rbf_kernel(X), jnp.float32)
    kernel = kernels.precomputed()
    np.testing.assert_array_equal(kernel(table[:3], table), table[:3])
    np.testing.assert_array_equal(kernel.diag(table), jnp.diagonal(table))
    index = jnp.array([5, 0, 5], jnp.int32)
    np.testing.assert_array_equal(
        kernel.gram(table, index), np.asarray(table)[np.ix_([5, 0, 5], [5, 0, 5])]
    )
    np.testing.assert_array_equal((2 * kernel).gram(table, index), 2 * kernel.gram(table, index))
    with pytest.raises(ValueError, match="column for each"):
        kernel(table[:, :4], table)


def table(n=7, dtype=np.float32, **changes):
    """A data set whose rows are values worked out beforehand, the values at some places changed."""
    values = pairwise.rbf_kernel(np.random.default_rng(3).normal(size=(n, 2))).astype(dtype)
    for place, value in changes.get("values", {}).items():
        values[place] = value
    return jaxsvm.dataset(values, np.where(np.arange(n) % 2, 1, -1))


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.precomputed(),
        2.0 * kernels.precomputed(),
        kernels.precomputed() + kernels.precomputed(),
    ],
    ids=repr,
)
def test_a_precomputed_matrix_has_to_be_symmetric(kernel):
    kernel.validate(table())
    kernel.validate(table(values={(2, 5): table().x[2, 5] * (1 + 1e-6)}))  # a rounding or two
    with pytest.raises(ValueError, match=r"not symmetric: 0\.25 at \(2, 5\) and 9 at \(5, 2\)"):
        kernel.validate(table(values={(2, 5): 0.25, (5, 2): 9}))
    with pytest.raises(ValueError, match=r"has shape \(7, 7\), got \(7, 6\)"):
        kernel.validate(table()._replace(x=table().x[:, :6]))


def test_a_matrix_of_several_blocks_is_looked_at_to_the_end():
    n = 1100
    values = np.zeros((n, n), np.float32)
    data = table()._replace(x=values)
    data = data._replace(y=jnp.ones(n), index=jnp.arange(n, dtype=jnp.int32), weight=jnp.ones(n))
    kernels.precomputed().validate(data)
    values[1060, 1090] = 1
    with pytest.raises(ValueError, match=r"1 at \(1060, 1090\) and 0 at \(1090, 1060\)"):
        kernels.precomputed().validate(data._replace(x=values))


@pytest.mark.long
def test_vmap_over_sigma_equals_a_loop():
    x, z, sigmas = (
        jnp.asarray(X, jnp.float32),
        jnp.asarray(Z, jnp.float32),
        jnp.array([0.5, 1.0, 4.0]),
    )
    for factory in (kernels.rbf, kernels.laplacian):
        swept = jax.vmap(lambda sigma, factory=factory: factory(sigma)(x, z))(sigmas)
        stacked = jax.vmap(lambda kernel: kernel(x, z))(jax.vmap(factory)(sigmas))
        # fused differently: the exponent, up to 100, is rounded once or twice
        np.testing.assert_allclose(
            swept, [factory(sigma)(x, z) for sigma in sigmas], rtol=2e-5, atol=1e-12
        )
        np.testing.assert_allclose(stacked, swept, rtol=2e-6, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("factory", [kernels.rbf, kernels.laplacian])
def test_the_gradient_in_sigma_is_that_of_finite_differences(factory, x64):
    # distances of 0 among them
    total = lambda sigma: jnp.sum(factory(sigma)(X, X) * jnp.arange(7.0)[None, :])
    step = 1e-5
    central = (total(1.3 + step) - total(1.3 - step)) / (2 * step)
    # step^2, and rounding over the step
    np.testing.assert_allclose(jax.grad(total)(1.3), central, rtol=1e-8)


def test_rbf_far_from_the_origin_is_off_by_the_rounding_of_the_squared_norms():
    # rows around 100 (1, .., 1) have squared norms of 50,000, so distances are off by up to 4 eps
    # 100,000 = 0.05
    x = X.astype(np.float32) + np.float32(100)
    want = pairwise.rbf_kernel(x.astype(np.float64), gamma=0.5)
    got = np.asarray(kernels.rbf(1.0)(jnp.asarray(x), jnp.asarray(x)))
    np.testing.assert_allclose(got, want, atol=0.025)
    assert got.max() <= 1


def test_low_precision_rows_give_float32_values():
    with jax.numpy_dtype_promotion("strict"):
        x = jnp.asarray(X, jnp.bfloat16)
        got = kernels.rbf(1.5)(x, x)
    assert got.dtype == jnp.float32
    want = pairwise.rbf_kernel(np.asarray(x, np.float64), gamma=1 / 4.5)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


BAD = """rbf(0.0) rbf(-1.0) rbf(float('nan')) rbf(float('inf')) rbf(gamma=-1.0) rbf(1.0,gamma=1.0)
laplacian(0.0) polynomial(-1.0) polynomial(degree=2.5) sigmoid(0.0) scaled(linear(),-1.0)"""


@pytest.mark.parametrize("name", BAD.split())
def test_bad_parameters_raise_a_value_error_where_the_kernel_is_written(name):
    with pytest.raises(ValueError):
        make(name)


@pytest.mark.long
def test_an_array_of_widths_is_refused_with_the_way_to_sweep_it():
    with pytest.raises(ValueError, match="vmap"):
        kernels.rbf(jnp.ones(3))(jnp.ones((2, 2)), jnp.ones((2, 2)))
    sigmas = jnp.array([1.0, 2.0, 4.0])
    several = jax.vmap(lambda sigma: kernels.linear() + kernels.rbf(sigma))(sigmas)
    found = jax.vmap(lambda kernel: kernel(jnp.ones((1, 2)), jnp.zeros((1, 2))))(several)
    np.testing.assert_allclose(found[:, 0, 0], np.exp(-1 / np.array([1.0, 4.0, 16.0])), rtol=1e-6)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", ["dense", "far", "sparse", "sparse and dense"])
def test_one_gamma_a_column(form):
    x = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    x = x + 2.0**13 if form == "far" else np.where(np.abs(x) < 0.7, 0, x) if "sparse" in form else x
    rows = (
        jaxsvm.dataset(scipy.sparse.csr_array(x), (-1.0) ** np.arange(9)).x
        if "sparse" in form
        else x
    )
    other = x if form == "sparse and dense" else rows
    kernel, want = kernels.rbf(gamma=GAMMA), by_column(x, x)
    np.testing.assert_allclose(kernel(rows, other), want, atol=2e-6)
    np.testing.assert_allclose(
        kernels.matvec(kernel, rows, other, jnp.ones(9)), want.sum(1), atol=2e-5
    )
    assert np.array_equal(np.diag(kernel(rows, other)), np.ones(9)) and np.array_equal(
        kernel.diag(rows), np.ones(9)
    )


def test_one_gamma_a_column_where_products_are_too_coarse():
    """Two clusters 2,000 apart: distances within one are lost in squared norms with a large gamma
    of that column."""
    x = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    x[:4, 2] += 2000.0
    for gamma, atol in ((GAMMA, 1e-3), (GAMMA[[2, 0, 1, 3, 4]], 1e-6)):
        want = np.exp(-(((x[:, None].astype(np.float64) - x[None]) ** 2) * gamma).sum(-1))
        np.testing.assert_allclose(kernels.rbf(gamma=gamma)(x, x), want, atol=atol)


@pytest.mark.long
def test_the_gradient_in_one_gamma_a_column_is_that_of_finite_differences(x64):
    total = lambda gamma: jnp.sum(jnp.tanh(kernels.rbf(gamma=gamma)(X, Z)))
    steps = 1e-6 * np.eye(5)
    want = [(float(total(GAMMA + h)) - float(total(GAMMA - h))) / 2e-6 for h in steps]
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(GAMMA)), want, rtol=1e-6)


def test_bad_gammas_of_columns():
    one = lambda gamma: kernels.rbf(gamma=gamma)(jnp.ones((2, 3)), jnp.ones((2, 3)))
    with pytest.raises(
        ValueError,
        match="gamma must be a finite number above 0, got -1",
    ):
        one(np.array([1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match=r"got shape \(1, 3\)"):
        one(np.ones((1, 3)))
    with pytest.raises(
        ValueError, match="gamma holds one number for each of 2 columns, but the rows have 3"
    ):
        one(np.ones(2))
    with pytest.raises(TypeError, match="gamma must be a number, got True"):
        one(True)
    with pytest.raises(ValueError, match="budget.remove"):
        jaxsvm.budget.merge().check_kernel(kernels.rbf(gamma=np.ones(3)))


def test_a_model_with_one_gamma_a_column_is_saved_and_loaded(tmp_path):
    data = jaxsvm.dataset(X.astype(np.float32), [1, -1, 1, -1, 1, 1, -1])
    model = jaxsvm.fit(
        jaxsvm.decomposition(1.0, kernels.rbf(gamma=GAMMA)), data, jax.random.key(0)
    ).model
    jaxsvm.models.save(tmp_path / "model.npz", model)
    loaded = jaxsvm.models.load(tmp_path / "model.npz")
    assert np.array_equal(loaded(data.x), model(data.x))
    np.testing.assert_allclose(
        model(data.x) - model.b, by_column(X, X) @ np.asarray(model.coef), atol=1e-5
    )
    with pytest.raises(ValueError, match="rbf has one gamma for all columns"):
        jaxsvm.models.to_libsvm(model, tmp_path / "model.txt")


@pytest.mark.long
@pytest.mark.parametrize("block", [1, 3, 100])
def test_matvec_is_the_product_for_every_block_size(block):
    x, z = jnp.asarray(X, jnp.float32), jnp.asarray(Z, jnp.float32)
    coef = jnp.asarray(RNG.normal(size=(4, 2)), jnp.float32)
    want = pairwise.rbf_kernel(X, Z, gamma=0.5) @ np.asarray(coef, np.float64)
    np.testing.assert_allclose(kernels.matvec(kernels.rbf(1.0), x, z, coef, block), want, atol=2e-6)
    np.testing.assert_allclose(
        kernels.matvec(kernels.rbf(1.0), x, z, coef[:, 0], block), want[:, 0], atol=2e-6
    )
    with pytest.raises(
        ValueError, match="coef must hold a number for each of the 4 rows of z, got"
    ):
        kernels.matvec(kernels.rbf(1.0), x, z, coef[:3], block)


def test_functions_of_numpy_and_factories_are_no_kernels():
    data = jaxsvm.dataset(np.eye(4, 2), [1, -1, 1, -1])
    for wrong in (np.dot, np.add, dict, lambda x: x, kernels.rbf, 1.0, "rbf"):
        with pytest.raises(
            TypeError, match="must be a function of x, z|is the factory rbf|expected a kernel"
        ):
            jaxsvm.fit(jaxsvm.sdca(1.0, wrong), data, jax.random.key(0), steps=2)
    with pytest.raises(
        TypeError, match="asks for the values of its arguments: write it with jax.numpy"
    ):
        jaxsvm.fit(jaxsvm.sdca(1.0, lambda x, z: np.dot(x, z.T)), data, jax.random.key(0), steps=2)


def test_a_kernel_takes_two_matrices_of_the_same_columns():
    x = np.ones((3, 2), np.float32)
    for wrong in (x[0], x[:, :1], None, [[1.0, 2.0]], x.astype(str)):
        with pytest.raises((TypeError, ValueError), match="^(x|z) must (be|have) "):
            kernels.rbf(1.0)(x, wrong)
            kernels.rbf(1.0)(wrong, x)


@pytest.mark.parametrize(
    "kernel",
    [kernels.rbf(1.0), kernels.laplacian(1.0), kernels.rbf(1.0) + kernels.linear()],
    ids=str,
)
def test_rows_that_are_not_finite_are_like_no_row(kernel):
    z = jnp.ones((2, 2), jnp.float32)
    assert np.isnan(kernel(jnp.array([[np.nan, 1.0]], jnp.float32), z)).all()
    assert np.isnan(kernels.sqdist(jnp.array([[np.nan, 1.0]], jnp.float32), z)).all()


def test_a_row_whose_squares_overflow_is_far_from_all_others():
    far = jnp.array([[1e25, 0.0]], jnp.float32)
    assert kernels.rbf(1.0)(far, jnp.ones((2, 2), jnp.float32)).tolist() == [[0, 0]]


def test_a_function_that_fails_on_rows_is_told_what_it_has_to_be():
    x = jnp.ones((3, 2))
    with pytest.raises(
        TypeError, match=r"^the kernel, .*dot.*, expected a function \(n, d\), \(m, d\) -> \(n, m\)"
    ):
        kernels.custom(jnp.dot)(x, jnp.ones((4, 2)))
    with pytest.raises(ValueError, match=r"returned shape \(3, 2\) for 3 rows, expected \(3,\)"):
        kernels.custom(lambda x, z: x @ z.T, diag_fn=lambda x: x).diag(x)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda x, z: float(x[0, 0]) * x @ z.T,
            "asks for the values of its arguments: write it with jax.numpy",
        ),
        (lambda x, z: x @ z.T if x[0, 0] > 0 else z, "asks for the values of its arguments"),
        (
            lambda x, z: x.rows @ z.T,
            (
                r"fails for shapes \(3, 2\) and \(4, 2\), expected a "
                r"function .* .*has no attribute rows"
            ),
        ),
        (lambda x, z: {}["gamma"] * x @ z.T, "fails for shapes .*: 'gamma'"),
        (lambda x, z: 1 / 0, "fails for shapes .*division by zero"),
    ],
    ids=["float", "if", "attribute", "key", "division"],
)
def test_errors_of_a_function_name_the_kernel(fn, message):
    with pytest.raises(
        (TypeError, ValueError), match=f"^the kernel, the function <lambda>, {message}"
    ):
        jax.eval_shape(lambda x, z: kernels.custom(fn)(x, z), jnp.ones((3, 2)), jnp.ones((4, 2)))


def uneven(x, z):
    return jnp.exp(-(x[:, :1] ** 2) - 2 * z[:, 0])


KERNEL_USERS = {
    "decomposition": lambda k: jaxsvm.decomposition(1.0, k),
    "sdca": lambda k: jaxsvm.sdca(1.0, k),
    "kernel_pegasos": lambda k: jaxsvm.kernel_pegasos(0.1, k),
    "sum": lambda k: jaxsvm.smo(1.0, 0.5 * kernels.custom(k) + kernels.rbf(1.0)),
    "budget": lambda k: jaxsvm.bsgd(0.1, k, budget=4, maintain=jaxsvm.budget.remove()),
}


@pytest.mark.parametrize("name", KERNEL_USERS)
def test_a_function_that_is_not_symmetric_is_no_kernel(name):
    data = jaxsvm.dataset(RNG.normal(size=(20, 2)), np.where(np.arange(20) % 2, 1, -1))
    with pytest.raises(
        ValueError, match=r"^the kernel must be symmetric, got k\(x, z\) = .* for rows \d+ and \d+:"
    ):
        jaxsvm.fit(KERNEL_USERS[name](uneven), data, jax.random.key(0), steps=2)


NO_KERNELS = {
    "negative": (lambda x, z: -(x @ z.T), None, r"positive semi-definite, got k\(x, x\) = -"),
    "nan": (
        lambda x, z: jnp.log(x @ z.T),
        None,
        r"the kernel must give finite numbers, got (nan|-inf) for rows",
    ),
    "infinite": (
        lambda x, z: 1e38 * jnp.exp((x @ z.T) ** 2),
        None,
        "the kernel must give finite numbers, got inf",
    ),
    "diag": (
        lambda x, z: x @ z.T,
        lambda x: jnp.ones(x.shape[0]),
        r"diag_fn of kernels.custom must give k\(x, x\), got 1 where",
    ),
}


@pytest.mark.parametrize("name", NO_KERNELS)
def test_a_function_of_wrong_values_is_no_kernel(name):
    fn, diag, words = NO_KERNELS[name]
    data = jaxsvm.dataset(3 * RNG.normal(size=(20, 2)), np.where(np.arange(20) % 2, 1, -1))
    with pytest.raises(ValueError, match=words):
        jaxsvm.fit(
            jaxsvm.decomposition(1.0, kernels.custom(fn, diag_fn=diag)), data, jax.random.key(0)
        )
    right = kernels.custom(lambda x, z: x @ z.T, diag_fn=lambda x: jnp.sum(x * x, axis=1))
    assert jaxsvm.fit(jaxsvm.decomposition(1.0, right), data, jax.random.key(0)).converged


def test_parts_that_are_no_kernels_alone_may_be_one_together():
    """0.9 <x, z>, of a part that is negative; as part of a sum it is not looked at alone."""
    data = jaxsvm.dataset(3 * RNG.normal(size=(20, 2)), np.where(np.arange(20) % 2, 1, -1))
    minus = kernels.custom(lambda x, z: -0.1 * x @ z.T)
    fit = lambda kernel: jaxsvm.fit(jaxsvm.decomposition(1.0, kernel), data, jax.random.key(0))
    np.testing.assert_allclose(
        fit(kernels.linear() + minus).model(data.x), fit(0.9 * kernels.linear()).model(data.x),
        atol=1e-2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"semi-definite, got k\(x, x\) = -"):
        fit(kernels.linear() + 20 * minus)


def test_rows_of_weight_0_and_kernels_of_other_rows_are_not_compared():
    # not symmetric with a row beyond 5
    first = lambda x, z: x @ z.T + jnp.where(x[:, :1] > 5, 3, 0)
    x = np.array([[1.0], [-1.0], [9.0], [2.0]])
    data = jaxsvm.dataset(x, [1, -1, 1, 1], [1, 1, 0, 1])
    assert jaxsvm.fit(jaxsvm.sdca(1.0, first), data, jax.random.key(0), steps=2).finite
    with pytest.raises(ValueError, match="for rows [0-3] and [0-3]"):
        jaxsvm.fit(
            jaxsvm.sdca(1.0, first), data._replace(weight=jnp.ones(4)), jax.random.key(0), steps=2
        )


def test_a_selection_refuses_a_function_that_is_not_symmetric():
    data = jaxsvm.dataset(RNG.normal(size=(20, 2)), np.where(np.arange(20) % 2, 1, -1))
    with pytest.raises(ValueError, match="^the kernel must be symmetric"):
        jaxsvm.select(
            lambda C: jaxsvm.decomposition(C, uneven),
            data,
            jax.random.key(0),
            C=[1.0, 2.0],
            progress=False,
        )


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_rounding_of_a_symmetric_function_is_no_asymmetry(far):
    def squares(x, z):  # distances that lose their digits far from the origin
        return jnp.exp(-0.1 * ((x**2).sum(1)[:, None] + (z**2).sum(1)[None] - 2 * x @ z.T))

    data = jaxsvm.dataset(RNG.normal(size=(20, 5)) + far, np.where(np.arange(20) % 2, 1, -1))
    jaxsvm.fit(jaxsvm.kernel_pegasos(1.0, squares), data, jax.random.key(0), steps=2)


def test_complex_values_are_none_of_a_kernel():
    wave = kernels.custom(lambda x, z: jax.lax.complex(x @ z.T, x @ z.T))
    with pytest.raises(
        TypeError,
        match=r"^the kernel must return real numbers, got an array of complex64 of shape \(3, 3\)",
    ):
        jax.eval_shape(lambda x: wave(x, x), jnp.ones((3, 2)))
    with pytest.raises(
        TypeError, match="^the kernel must return real numbers, got an array of complex64"
    ):
        kernels.custom(lambda x, z: x @ z.T, diag_fn=lambda x: jax.lax.complex(x, x)[:, 0]).diag(
            jnp.ones((3, 2))
        )


@pytest.mark.parametrize("wrong", [None, "rbf", kernels.rbf])
def test_parts_of_kernels_are_kernels(wrong):
    for made in (kernels.sum_, kernels.product):
        with pytest.raises(TypeError, match="expected a kernel|factory rbf itself"):
            made(wrong, kernels.linear())
        with pytest.raises(TypeError, match="expected a kernel|factory rbf itself"):
            made(kernels.linear(), wrong)
    with pytest.raises(TypeError, match="expected a kernel|factory rbf itself"):
        kernels.scaled(wrong, 2.0)


NESTED = {
    "a + b": lambda a, b: a + b,
    "b + a": lambda a, b: b + a,
    "a * b": lambda a, b: a * b,
    "0.5 * a": lambda a, b: 0.5 * a,
    "0.5 * a * b + linear": lambda a, b: 0.5 * a * b + kernels.linear(),
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
    kernel, x = nested(name, terms), jnp.asarray(X, jnp.float32)
    models.save(path, kernel)
    uses = (
        lambda: kernel(x, x),
        lambda: kernel.diag(x),
        lambda: kernel.gram(x, np.arange(2)),
        lambda: repr(kernel),
        lambda: models.save(path, kernel),
        lambda: models.load(path),
    )
    yield from (len(pickle.dumps(kernel)), *map(calls_of, uses))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", NESTED)
def test_the_work_of_nested_kernels_grows_like_their_terms(name, tmp_path):
    few, many = (np.array([*work_of(name, terms, tmp_path / "k.npz")]) for terms in (4, 8))
    # a load checks each kernel with all that is nested in it, so its work grows like the square
    assert (few > 0).all() and (many <= np.array([2.5] * 6 + [4.5]) * few).all(), (few, many)


def test_a_sum_of_many_kernels_is_the_sum_of_their_blocks(tmp_path):
    terms, x, z = 40, X.astype(np.float32), Z.astype(np.float32)
    want = sum(pairwise.rbf_kernel(X, Z, gamma=1 / (2 * s**2)) for s in [1.0, *range(2, terms + 2)])
    kernel = nested("a + b", terms)
    models.save(tmp_path / "kernel.npz", kernel)
    for copy in (pickle.loads(pickle.dumps(kernel)), models.load(tmp_path / "kernel.npz")):
        np.testing.assert_allclose(copy(x, z), want, rtol=1e-5)
        np.testing.assert_allclose(copy.diag(x), np.full(len(x), terms + 1.0), rtol=1e-6)
        assert repr(copy) == repr(kernel)
        assert copy.differences and len(copy.gammas) == terms + 1


@pytest.mark.parametrize("name", ["a + b", "a * b", "0.5 * a"])
def test_a_part_that_returns_the_wrong_shape_or_takes_other_rows_is_refused(name):
    wrong = kernels.custom(lambda x, z: jnp.ones((x.shape[0], 1)))
    with pytest.raises(ValueError, match=r"shape \(7, 1\) for 7 and 4 rows, expected \(7, 4\)"):
        NESTED[name](wrong, kernels.linear())(X, Z)
    mixed = NESTED[name](kernels.linear(), kernels.linear()) + kernels.precomputed()
    with pytest.raises(ValueError, match="must have 5 columns"):
        mixed(X, np.ones((5, 3)))
    matrix = X @ X.T
    precomputed = NESTED[name](kernels.precomputed(), kernels.precomputed())
    want = precomputed(matrix, X)
    np.testing.assert_allclose(precomputed.gram(jnp.asarray(matrix), np.arange(7)), want, rtol=1e-6)
    with pytest.raises(ValueError, match="for each of the 4 training rows, got 7"):
        precomputed(matrix, Z)
