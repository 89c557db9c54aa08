"""What a kernel is and what is none: symmetric values of two matrices of rows, and what the
sentence says where they are not."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import pairwise

import jaxsvm
from jaxsvm import kernels

RNG, KEY, plain = np.random.default_rng(0), jax.random.key(0), kernels.custom
X, Z = RNG.normal(size=(7, 5)), RNG.normal(size=(4, 5))
X32, Z32 = (jnp.asarray(rows, jnp.float32) for rows in (X, Z))
THREE, FOUR = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
RBF, LINE, VALUES = kernels.rbf(1.0), kernels.linear(), kernels.precomputed()
ROWS = jaxsvm.dataset(RNG.normal(size=(20, 2)), np.where(np.arange(20) % 2, 1, -1))
WIDE = ROWS._replace(x=3 * ROWS.x)


def fit(solver, data=ROWS):
    return jaxsvm.fit(solver, data, KEY, steps=2)


def exact(kernel, data=WIDE):
    return jaxsvm.fit(jaxsvm.decomposition(1.0, kernel), data, KEY)


def test_a_function_and_its_diagonal_are_a_kernel():
    norms = lambda x: jnp.sum(x * x, axis=1)
    assert exact(plain(lambda x, z: x @ z.T, diag_fn=norms)).converged


MINUS = plain(lambda x, z: -0.1 * x @ z.T)


@pytest.mark.long
def test_parts_that_are_no_kernels_alone_may_be_one_together():
    """0.9 <x, z>, of a part that is negative; as part of a sum it is not looked at alone."""
    values = [exact(kernel).model(WIDE.x) for kernel in (LINE + MINUS, 0.9 * LINE)]
    np.testing.assert_allclose(*values, atol=1e-2)


@pytest.mark.long
def test_rows_of_weight_0_and_kernels_of_other_rows_are_not_compared():
    # not symmetric with a row beyond 5
    first = lambda x, z: x @ z.T + jnp.where(x[:, :1] > 5, 3, 0)
    data = jaxsvm.dataset([[1.0], [-1.0], [9.0], [2.0]], [1, -1, 1, 1], [1, 1, 0, 1])
    assert fit(jaxsvm.sdca(1.0, first), data).finite
    with pytest.raises(ValueError, match="for rows [0-3] and [0-3]"):
        fit(jaxsvm.sdca(1.0, first), data._replace(weight=jnp.ones(4)))


@pytest.mark.long
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_rounding_of_a_symmetric_function_is_no_asymmetry(far):
    def squares(x, z):  # distances that lose their digits far from the origin
        return jnp.exp(-0.1 * ((x**2).sum(1)[:, None] + (z**2).sum(1)[None] - 2 * x @ z.T))

    data = jaxsvm.dataset(RNG.normal(size=(20, 5)) + far, np.where(np.arange(20) % 2, 1, -1))
    fit(jaxsvm.kernel_pegasos(1.0, squares), data)


def table(changes=()):
    """A data set whose rows are values worked out beforehand, the values at some places changed."""
    values = pairwise.rbf_kernel(np.random.default_rng(3).normal(size=(7, 2))).astype(np.float32)
    for place, value in dict(changes).items():
        values[place] = value
    return jaxsvm.dataset(values, np.where(np.arange(7) % 2, 1, -1))


def test_a_matrix_of_several_blocks_is_looked_at_to_the_end():
    n, values = 1100, np.zeros((1100, 1100), np.float32)
    rows = jnp.ones(n), jnp.arange(n, dtype=jnp.int32), jnp.ones(n)
    VALUES.validate(jaxsvm.Batch(values, *rows))
    values[1060, 1090] = 1
    with pytest.raises(ValueError, match=r"1 at \(1060, 1090\) and 0 at \(1090, 1060\)"):
        VALUES.validate(jaxsvm.Batch(values, *rows))


# what is refused


def uneven(x, z):
    return jnp.exp(-(x[:, :1] ** 2) - 2 * z[:, 0])


def values(kernel, x=THREE, z=FOUR):
    return lambda: kernels.as_kernel(kernel)(x, z)


def traced(kernel):
    return jax.eval_shape(lambda x, z: kernel(x, z), THREE, FOUR)


def columns(gamma):
    return lambda: kernels.rbf(gamma=gamma)(jnp.ones((2, 3)), jnp.ones((2, 3)))


vector = lambda x, z: jnp.ones(x.shape[0])
product = lambda x, z: x @ z.T
wave = plain(lambda x, z: jax.lax.complex(x @ z.T, x @ z.T))
BAD = """rbf(0.0) rbf(-1.0) rbf(float('nan')) rbf(float('inf')) rbf(gamma=-1.0) rbf(1.0,gamma=1.0)
laplacian(0.0) polynomial(-1.0) polynomial(degree=2.5) sigmoid(0.0) scaled(linear(),-1.0)"""
COMPLEX = "^the kernel must return real numbers, got an array of c"
SYMMETRIC = r"^the kernel must be symmetric, got k\(x, z\) = .* for rows \d+ and \d+:"
ASKS = "asks for the values of its arguments: write it with jax.numpy"
NAMED, NO_KERNEL = "^the kernel, the function <lambda>, ", "expected a kernel|factory rbf itself"
FUNCTION = r"^the kernel, .*dot.*, expected a function \(n, d\), \(m, d\) -> \(n, m\)"
USERS = [
    lambda k: jaxsvm.decomposition(1.0, k),
    lambda k: jaxsvm.sdca(1.0, k),
    lambda k: jaxsvm.kernel_pegasos(0.1, k),
    lambda k: jaxsvm.smo(1.0, 0.5 * plain(k) + RBF),
    lambda k: jaxsvm.bsgd(0.1, k, budget=4, maintain=jaxsvm.budget.remove()),
]
SELECT = functools.partial(jaxsvm.select, lambda C: jaxsvm.decomposition(C, uneven), ROWS, KEY)
REFUSED = [
    *((functools.partial(eval, name, vars(kernels).copy()), None) for name in BAD.split()),
    *((values(fn), "shape") for fn in (lambda x, z: x @ x.T, vector, lambda x, z: product(z, x))),
    (lambda: kernels.as_kernel(vector).gram(jnp.ones((3, 2)), jnp.array([0, 2])), "shape"),
    (lambda: plain(product, diag_fn=lambda x: x).diag(jnp.ones((3, 2))), r"\(3, 2\) for 3 rows"),
    (lambda: kernels.as_kernel(3.0), "expected a kernel"),
    (lambda: kernels.rbf(jnp.ones(3))(X32, X32), "vmap"),
    (columns(np.array([1.0, -1.0, 1.0])), "gamma must be a finite number above 0, got -1"),
    (columns(np.ones((1, 3))), r"got shape \(1, 3\)"),
    (columns(np.ones(2)), "gamma holds one number for each of 2 columns, but the rows have 3"),
    (columns(True), "gamma must be a number, got True"),
    (lambda: jaxsvm.budget.merge().check_kernel(kernels.rbf(gamma=np.ones(3))), "budget.remove"),
    (lambda: kernels.matvec(RBF, X32, Z32, jnp.ones(3), 3), "coef must .* each of the 4 rows of z"),
    *(
        (lambda at=at: RBF(*at), "^(x|z) must (be|have) ")
        for wrong in (X32[0], X32[:, :1], None, [[1.0, 2.0]], X.astype(str))
        for at in ((X32, wrong), (wrong, X32))
    ),
    (values(VALUES, X32[:, :4], X32), "column for each"),
    *(
        (lambda kernel=kernel, made=made: kernel.validate(made()), words)
        for kernel in (VALUES, 2.0 * VALUES, VALUES + VALUES)
        for made, words in (
            (
                lambda: table({(2, 5): 0.25, (5, 2): 9}),
                r"not symmetric: 0\.25 at \(2, 5\) and 9 at \(5, 2\)",
            ),
            (lambda: table()._replace(x=table().x[:, :6]), r"has shape \(7, 7\), got \(7, 6\)"),
        )
    ),
    *(
        (
            lambda wrong=wrong: fit(jaxsvm.sdca(1.0, wrong)),
            f"must be a function of x, z|{NO_KERNEL}",
        )
        for wrong in (np.dot, np.add, dict, lambda x: x, kernels.rbf, 1.0, "rbf")
    ),
    (lambda: fit(jaxsvm.sdca(1.0, lambda x, z: np.dot(x, z.T))), ASKS),
    (lambda: plain(jnp.dot)(THREE, FOUR), FUNCTION),
    *(
        (lambda fn=fn: traced(plain(fn)), NAMED + words)
        for fn, words in (
            (lambda x, z: float(x[0, 0]) * x @ z.T, ASKS),
            (lambda x, z: x @ z.T if x[0, 0] > 0 else z, ASKS),
            (lambda x, z: x.rows @ z.T, r"fails for shapes .* \(4, 2\), .*has no attribute rows"),
            (lambda x, z: {}["gamma"] * x @ z.T, "fails for shapes .*: 'gamma'"),
            (lambda x, z: 1 / 0, "fails for shapes .*division by zero"),
        )
    ),
    *((lambda use=use: fit(use(uneven)), SYMMETRIC) for use in USERS),
    (lambda: SELECT(C=[1.0, 2.0], progress=False), "^the kernel must be symmetric"),
    (lambda: exact(plain(lambda x, z: -product(x, z))), r"semi-definite, got k\(x, x\) = -"),
    (lambda: exact(LINE + 20 * MINUS), r"semi-definite, got k\(x, x\) = -"),
    (lambda: exact(plain(lambda x, z: jnp.log(x @ z.T))), "numbers, got (nan|-inf) for"),
    (lambda: exact(plain(lambda x, z: 1e38 * jnp.exp((x @ z.T) ** 2))), "finite numbers, got inf"),
    (lambda: exact(plain(product, diag_fn=lambda x: jnp.ones(x.shape[0]))), "diag_fn .*, got 1 "),
    (lambda: traced(wave), COMPLEX),
    (lambda: plain(product, diag_fn=lambda x: jax.lax.complex(x, x)[:, 0]).diag(X32), COMPLEX),
    *(
        (of, NO_KERNEL)
        for wrong in (None, "rbf", kernels.rbf)
        for of in (
            functools.partial(kernels.sum_, wrong, LINE),
            functools.partial(kernels.product, wrong, LINE),
            functools.partial(kernels.sum_, LINE, wrong),
            functools.partial(kernels.product, LINE, wrong),
            functools.partial(kernels.scaled, wrong, 2.0),
        )
    ),
    *(
        (functools.partial(call, join), words)
        for join in (operator.add, operator.mul, lambda a, b: 0.5 * a)
        for call, words in (
            (
                lambda join: join(plain(lambda x, z: vector(x, z)[:, None]), LINE)(X, Z),
                "expected .7, 4",
            ),
            (lambda join: (join(LINE, LINE) + VALUES)(X, np.ones((5, 3))), "must have 5 columns"),
            (lambda join: join(VALUES, VALUES)(X @ X.T, Z), "of the 4 training rows, got 7"),
        )
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def test_a_precomputed_matrix_is_symmetric_but_for_a_rounding_or_two():
    for changes in ({}, {(2, 5): table().x[2, 5] * (1 + 1e-6)}):
        for kernel in (VALUES, 2.0 * VALUES, VALUES + VALUES):
            kernel.validate(table(changes))
