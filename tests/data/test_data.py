"""The checked way in: what comes in is read, and every dtype is followed."""

import re
import warnings
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

import jaxsvm
from jaxsvm import data as jdata
from jaxsvm import dataset
from jaxsvm.data import breast_cancer, split, standardize
from jaxsvm.data.class_numbers import encode
from jaxsvm.data.from_scipy import stored_range

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
Y = [1, -1, 1]
csr = scipy.sparse.csr_matrix


def warned(*args, **options):
    """What `dataset` warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset(*args, **options)
    return caught


# What comes in


def test_fields():
    data = dataset(X, Y)
    assert isinstance(data, jaxsvm.Batch)
    assert all(isinstance(field, jax.Array) for field in data[:4]) and data.query is None
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)
    np.testing.assert_array_equal(data.index, [0, 1, 2])
    np.testing.assert_array_equal(data.weight, [1, 1, 1])
    assert [field.dtype.name for field in data[:4]] == ["float32", "float32", "int32", "float32"]
    np.testing.assert_array_equal(dataset(X, Y, [0, 2.5, 1]).weight, [0, 2.5, 1])
    data = dataset(X, [0.5, 0.5, 0.5], task="regression")
    np.testing.assert_array_equal(data.y, [0.5, 0.5, 0.5])
    assert dataset([[1.0]], [3], task="regression").y.tolist() == [3.0]


@pytest.mark.parametrize(
    ("dtype", "x64", "of_x", "of_y"),
    [
        ("int8", False, "float32", "float32"),
        ("int64", False, "float32", "float32"),
        ("uint8", False, "float32", "float32"),
        ("bool", False, "float32", "float32"),
        ("int64", True, "float32", "float32"),
        ("float16", False, "float16", "float32"),
        ("bfloat16", False, "bfloat16", "float32"),
        ("float64", False, "float32", "float32"),
        ("float64", True, "float64", "float64"),
        ("float32", True, "float32", "float32"),
    ],
)
def test_dtypes(dtype, x64, of_x, of_y):
    """Whole numbers and booleans become float32, narrow rows stay, float64 stays with x64."""
    with jax.enable_x64(x64):
        dtype = jnp.dtype(dtype)
        x = (np.eye(2) * (1 + 1e-9)).astype(dtype)
        real = jnp.issubdtype(dtype, jnp.floating)
        y, weight = np.array([1, -1], dtype if real else int), np.ones(2, dtype)
        narrow = dtype.itemsize == 2  # of JAX
        data = dataset(*(jnp.asarray(a) if narrow else a for a in (x, y, weight)))
        assert [a.dtype for a in data[:4]] == [of_x, of_y, "int32", of_y]
        np.testing.assert_array_equal(np.asarray(data.x), x.astype(of_x))
        np.testing.assert_array_equal(data.y, [1, -1])


def test_numbers_beyond_float32_are_taken_with_x64(x64):
    x = np.array([[1e39, 1.0], [2e39, 1e39], [3e39, 2e39]])
    assert not warned(x, Y)
    np.testing.assert_array_equal(np.asarray(dataset(x, Y).x), x)


def test_jax_arrays_tuples_and_lists_are_taken():
    for make in (jnp.asarray, np.asarray, tuple):
        data = dataset(make(X), make(Y))
        np.testing.assert_array_equal(data.x, X)
        np.testing.assert_array_equal(data.y, Y)


# Names of classes


@pytest.mark.parametrize(
    ("y", "names", "numbers", "options"),
    [
        ([0, 1, 1], (0, 1), [-1, 1, 1], {}),
        ([1, 2, 1], (1, 2), [-1, 1, -1], {}),
        ([True, False, True], (False, True), [1, -1, 1], {}),
        ([0.5, -2.0, 0.5], (-2.0, 0.5), [1, -1, 1], {}),
        (["spam", "ham", "spam"], ("ham", "spam"), [1, -1, 1], {}),
        (np.array(["b", "a", "b"], object), ("a", "b"), [1, -1, 1], {}),
        ([1, -1, 1], (-1, 1), [1, -1, 1], {}),
        # strings of more names, and class numbers, from 0
        (["c", "a", "b"], ("a", "b", "c"), [2, 0, 1], {}),
        (["c", "a", "c"], ("a", "c"), [1, 0, 1], {"task": "multiclass"}),
        ([2, 0, 1], (0, 1, 2), [2, 0, 1], {"task": "multiclass"}),
        # rows of a test set, with the names of the training rows
        (["spam"] * 3, ("ham", "spam"), [1, 1, 1], {"classes": ("ham", "spam")}),
        ([5, 5, 9], (3, 5, 9), [1, 1, 2], {"classes": (3, 5, 9)}),
    ],
)
def test_names_are_numbered_in_their_order(y, names, numbers, options):
    made = dataset(X, y, **options)
    assert made.classes.names == names and type(made.classes.names[0]) is type(names[0])
    assert made.y.tolist() == numbers and made.y.dtype == np.float32


def test_rows_of_weight_0_have_no_say_in_the_names():
    made = dataset(X, [0, 7, 1], [1, 0, 2])
    assert made.classes.names == (0, 1) and made.y.tolist()[::2] == [-1, 1]


def test_encode_more_classes_and_given_names():
    assert encode(["c", "a", "b", "a"])[0].tolist() == [2, 0, 1, 0]
    labels, names = encode([5, 9], names=(9, 5))
    assert labels.tolist() == [1, -1] and names == (9, 5)


# Sparse rows


SPARSE = [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array]


@pytest.mark.parametrize("make", SPARSE)
def test_sparse_rows(make):
    x = np.array([[0, 2.5, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])
    made = dataset(make(x), Y).x
    assert (
        made.shape == (3, 4)
        and made.index.shape == (3, 8)
        and made.length.tolist() == [2, 0, 1]
        and made.dtype == jnp.float32
    )
    assert np.array_equal(made.toarray(), x.astype(np.float32))


def test_sparse_rows_with_wide_numbers_repeats_and_stored_zeros():
    x = scipy.sparse.csr_matrix(([1.0, 2.0, 0.0, 4.0], ([0, 0, 1, 2], [1, 1, 0, 3])), shape=(3, 5))
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    held = x.copy()
    made = dataset(x, Y).x
    assert made.length.tolist() == [1, 0, 1] and made.index.dtype == jnp.int32
    assert np.array_equal(made.toarray(), x.toarray())
    assert (x != held).nnz == 0 and x.nnz == held.nnz  # the caller's matrix is as it was


def test_a_dense_array_becomes_sparse_on_demand():
    x = np.zeros((50, 65), np.float32)
    x[np.arange(50), np.arange(50)] = np.arange(1, 51)
    y = [1, -1] * 25
    few = x[:, :64]  # few columns: dense rows are faster
    half = np.ones((4, 100))
    half[:, ::2] = 0
    for rows, sparse, becomes in (
        (x, "auto", True),
        (x, True, True),
        (x, False, False),
        (few, "auto", False),
        (few, True, True),
        (half, "auto", False),
        (scipy.sparse.csr_matrix(half), False, True),
    ):
        made = dataset(rows, y[: rows.shape[0]], sparse=sparse).x
        assert isinstance(made, jaxsvm.types.SparseRows) == becomes
        dense = rows.toarray() if scipy.sparse.issparse(rows) else rows
        assert np.array_equal(made.toarray() if becomes else made, dense)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(1, 30))
def test_ranges_of_stored_columns_are_those_of_the_array(seed, density, d):
    """Few entries and many take two ways to them; a column without a zero is not stretched to 0."""
    random = np.random.default_rng(seed)
    dense = random.choice([-3.0, -1.0, 2.0, 5.0], (6, d)) * (random.random((6, d)) < density)
    dense[:, 0] = random.choice([4.0, 6.0], 6) if seed % 2 else dense[:, 0]
    columns, low, high = stored_range(scipy.sparse.csr_matrix(dense.astype(np.float32)))
    assert np.array_equal(columns, np.flatnonzero(dense.any(0)))
    assert np.array_equal(low, dense.min(0)[columns]) and low.dtype == np.float64
    assert np.array_equal(high, dense.max(0)[columns])


# Warnings


def test_warning_on_scale():
    x = np.array([[0.0, 0.0, 5.0], [1.0, 2500.0, 5.0], [0.5, 100.0, 5.0]])
    with pytest.warns(UserWarning) as caught:
        dataset(x, Y)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "the ranges of the columns go from 1 to 2.5e+03: solvers converge "
        "slowly on such rows; scale them, first or by "
        "on_features, for example with jaxsvm.data.standardize"
    )
    assert caught[0].filename == __file__, "the warning points at the caller"


MOVED = np.array([[1.0, 1e6], [2.0, 1e6 + 1e-4], [3.0, 1e6 - 1e-4]])
ROUNDED = "rounding to float32 moves column 1 by 0.0001, .*: subtract it beforehand"
BEYOND = np.array([[2**40], [2**40 + 1], [2**40 + 3]])
REAL = {"task": "regression"}


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        ([[0.0, 0.0], [1.0, 1000.0], [0.0, 1.0]], Y, {}, None),  # 1,000 is not above it
        ([[7.0, 0.0], [7.0, 1e6], [7.0, 1.0]], Y, {}, None),  # a constant column has no range
        ([[1e6, 0.0], [1e6 + 1, 1.0], [1e6, 1.0]], Y, {}, None),  # an offset is no range
        ([[5.0, 5.0]] * 3, Y, {}, None),
        # digits that float32 does not have
        *((form(MOVED), Y, {}, ROUNDED) for form in (np.asarray, csr)),
        *((form(BEYOND), Y, {}, "to float32 moves column 0") for form in (np.asarray, csr)),
        # most are one number, whose rounding hides no difference
        (np.ones((5, 1)), [0.1, 0.1, 0.1, 0.1, 5.0], REAL, None),
        (np.ones((3, 1)), [1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3], REAL, "to float32 moves y"),
        (np.ones((5, 1)), [1e9 + 0.1] * 4 + [1e9 + 0.3], REAL, "to float32 moves y"),
        # far from 0, but for a zero that is not stored and widens the column
        (csr([[2e3, 0], [2001, 3], [2002, 0]]), Y, {}, r"column 0 .*far from 0 \(2000 to 2002\)"),
        (csr([[2e3, 0], [2001, 3], [0, 0]]), Y, {}, None),
    ],
)
def test_warnings_of_columns_and_targets(x, y, options, words):
    caught = [str(warning.message) for warning in warned(x, y, **options)]
    if words is None:
        assert not caught
    else:
        assert any(re.search(words, message) for message in caught)


def test_numbers_that_float32_holds_are_no_loss(x64):
    rows = np.array([[1e6, 0.0], [1e6 + 1e-4, 1.0], [1e6 - 1e-4, 1.0]])
    assert not warned(rows[:, 1:], Y)  # 64-bit numbers are on
    made = dataset(rows, Y).x
    assert made.dtype == np.float64 and np.array_equal(made, rows)


# Maps of columns


@pytest.mark.long
def test_standardize():
    x = jax.random.normal(jax.random.key(0), (200, 3)) * jnp.array([[1.0, 50.0, 1e-3]]) + jnp.array(
        [[0.0, 9.0, 1.0]]
    )
    scale = standardize(x)
    z = scale(x)
    # the third column holds 1 + 0.001 noise in float32
    np.testing.assert_allclose(jnp.mean(z, 0), 0, atol=1e-3)
    np.testing.assert_allclose(jnp.std(z, 0), 1, rtol=1e-3)
    assert z.dtype == x.dtype and len(jax.tree.leaves(scale)) == 2
    np.testing.assert_array_equal(jax.jit(lambda s, x: s(x))(scale, x[:4]).shape, (4, 3))


@pytest.mark.parametrize("value", [0.0, 0.1, 1234.567, -1e-3])
def test_constant_columns_become_0(value):
    """Also where the mean of equal numbers is not that number in float32."""
    x = jnp.stack([jnp.full(1000, value), jnp.arange(1000.0)], axis=1)
    z = standardize(x)(x)
    np.testing.assert_array_equal(z[:, 0], 0)
    np.testing.assert_allclose(jnp.std(z[:, 1]), 1, rtol=1e-5)


def test_standardize_keeps_float64_and_saves_and_loads(tmp_path, x64):
    x = jnp.asarray(X, jnp.float64)
    scale = standardize(x)
    jaxsvm.models.save(tmp_path / "scale.npz", scale)
    again = jaxsvm.models.load(tmp_path / "scale.npz")
    assert type(again) is jdata.Standardize and scale(x).dtype == jnp.float64
    np.testing.assert_array_equal(again(x), scale(x))


def test_scale_takes_columns_to_0_1_and_keeps_zeros_of_sparse_rows(tmp_path):
    x = np.array([[1.0, 5, -2], [3, 5, 4], [2, 5, 0]], np.float32)
    scaled = jaxsvm.data.scale(x)(x)
    np.testing.assert_allclose(scaled, MinMaxScaler().fit_transform(x), atol=1e-6)
    random = np.random.default_rng(0)
    dense = np.where(random.random((40, 9)) < 0.3, random.normal(size=(40, 9)), 0).astype("f")
    rows = jaxsvm.dataset(scipy.sparse.csr_matrix(dense), np.arange(40) % 2).x
    made = jaxsvm.data.scale(rows)
    np.testing.assert_allclose(made(rows).toarray(), MaxAbsScaler().fit_transform(dense), atol=1e-6)
    np.testing.assert_allclose(made(jnp.asarray(dense)), made(rows).toarray(), atol=1e-6)
    jaxsvm.models.save(tmp_path / "scale.npz", made)
    again = jaxsvm.models.load(tmp_path / "scale.npz")
    assert again.low is None and np.array_equal(again.width, made.width)


# Parts


def hundred():
    y = np.where(np.arange(100) % 2, 1, -1)
    return dataset(np.arange(100.0)[:, None], y, np.arange(100) % 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shares", "sizes"),
    [
        ((0.8, 0.2), [80, 20]),
        ((1, 1, 1), [33, 34, 33]),
        ((99, 1), [99, 1]),
        ((Fraction(1, 10), Decimal("0.2"), np.float32(0.7)), [10, 20, 70]),
    ],
)
def test_split_deals_every_row_once_with_all_it_has(shares, sizes):
    data, dealt = hundred(), []
    for part, size in zip(split(jax.random.key(1), data, *shares), sizes, strict=True):
        rows = np.asarray(part.x[:, 0]).astype(int)
        np.testing.assert_array_equal(part.index, np.arange(size))
        assert part.index.dtype == jnp.int32
        np.testing.assert_array_equal(part.y, data.y[rows])
        np.testing.assert_array_equal(part.weight, data.weight[rows])
        assert size < 20 or part.weight.min() == 0
        dealt += rows.tolist()
    assert sorted(dealt) == list(range(100)), "every row stands in exactly one part"
    assert dealt != sorted(dealt), "in random order"


def test_split_is_a_function_of_its_key():
    one, again, other = (split(jax.random.key(k), hundred(), 1, 1)[0].x for k in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.long
def test_rows_that_are_taken():
    data = dataset(np.eye(4, 2), [1, -1, 1, -1])
    assert jaxsvm.take(data, [3, -1]).weight.tolist() == [1, 0]
    assert jaxsvm.take(data, []).y.shape == (0,)


# breast_cancer


def test_breast_cancer_is_scikit_learns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = breast_cancer()
    x, y = load_breast_cancer(return_X_y=True)
    np.testing.assert_array_equal(data.x, x.astype(np.float32))
    np.testing.assert_array_equal(data.y, np.where(y == 0, 1, -1))  # scikit-learn's 0 is malignant
    assert int((data.y == 1).sum()) == 212 and int((data.y == -1).sum()) == 357
    np.testing.assert_array_equal(breast_cancer(columns=[3, 0]).x, data.x[:, [3, 0]])
    assert breast_cancer(columns=range(4)).x.shape == (569, 4)


def test_breast_cancer_in_x64(x64):
    data = breast_cancer()
    x, _ = load_breast_cancer(return_X_y=True)
    np.testing.assert_allclose(data.x, x, rtol=1e-6)
    assert data.y.dtype == data.x.dtype
