"""The checked way in: every refusal is read, every dtype is followed."""

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

import jaxsvm
from jaxsvm import data as jdata
from jaxsvm import dataset
from jaxsvm.data import breast_cancer, split, standardize
from jaxsvm.data.class_numbers import encode
from jaxsvm.data.from_scipy import stored_range

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
Y = [1, -1, 1]


def refused(message, *args, **kwargs):
    """dataset(...) raises ValueError with this in its message, and NumPy has nothing to warn of on
    the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            dataset(*args, **kwargs)


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


def test_weights_are_kept():
    np.testing.assert_array_equal(dataset(X, Y, [0, 2.5, 1]).weight, [0, 2.5, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.bool_])
def test_whole_numbers_and_booleans_become_float32(dtype):
    x = np.array([[0, 1], [1, 0]], dtype)
    data = dataset(x, [1, -1])
    assert data.x.dtype == jnp.float32 and data.y.dtype == jnp.float32
    np.testing.assert_array_equal(data.x, x.astype(np.float32))


def test_whole_numbers_become_float32_in_x64_too(x64):
    data = dataset(np.array([[0, 1], [1, 0]]), [1, -1])
    assert data.x.dtype == data.y.dtype == data.weight.dtype == jnp.float32
    assert data.index.dtype == jnp.int32


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_rows_stay_and_their_targets_are_float32(dtype):
    x = jnp.asarray(X, dtype)
    data = dataset(x, jnp.asarray(Y, dtype), jnp.ones(3, dtype))
    assert data.x.dtype == dtype and data.y.dtype == data.weight.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(data.x, np.float32), X)
    np.testing.assert_array_equal(data.y, np.asarray(Y, np.float32))


def test_float64_becomes_float32_without_x64():
    data = dataset(np.array(X, np.float64) + 1e-9, np.array(Y, np.float64))
    assert data.x.dtype == data.y.dtype == data.weight.dtype == jnp.float32


def test_float64_stays_with_x64(x64):
    x = np.array(X, np.float64) + 1e-9
    data = dataset(x, Y)
    assert data.x.dtype == data.y.dtype == data.weight.dtype == jnp.float64
    np.testing.assert_array_equal(np.asarray(data.x), x)
    assert dataset(x.astype(np.float32), Y).x.dtype == jnp.float32


def test_jax_arrays_tuples_and_lists_are_taken():
    for x, y in (
        (jnp.asarray(X), jnp.asarray(Y)),
        (tuple(map(tuple, X)), tuple(Y)),
        (np.asarray(X), np.asarray(Y, bool) * 2.0 - 1),
    ):
        assert dataset(x, [1, -1, 1]).x.shape == (3, 2)
        assert dataset(X, y if -1 in np.asarray(y) else Y).y.shape == (3,)


def test_one_column_and_two_rows_are_enough():
    assert dataset([[1.0], [2.0]], [1, -1]).x.shape == (2, 1)


def test_regression_takes_any_finite_targets():
    data = dataset(X, [0.5, 0.5, 0.5], task="regression")
    np.testing.assert_array_equal(data.y, [0.5, 0.5, 0.5])
    assert dataset([[1.0]], [3], task="regression").y.tolist() == [3.0]
    refused("y holds a NaN, first in row 1", X, [0.5, np.nan, 1.0], task="regression")


def test_unknown_task():
    refused(
        "^task must be one of 'binary', 'multiclass', 'multilabel', 'regression', 'ranking', "
        "'survival', got 'clustering'$",
        X,
        Y,
        task="clustering",
    )


# What is refused: labels


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([0, 1, 1], (0, 1)),
        ([1, 2, 1], (1, 2)),
        ([True, False, True], (False, True)),
        ([0.5, -2.0, 0.5], (-2.0, 0.5)),
        (["spam", "ham", "spam"], ("ham", "spam")),
        (np.array(["b", "a", "b"], object), ("a", "b")),
        ([1, -1, 1], (-1, 1)),
    ],
)
def test_two_names_are_numbered_in_their_order(y, names):
    made = jaxsvm.dataset(X, y)
    assert made.classes.names == names and type(made.classes.names[0]) is type(names[0])
    assert made.y.tolist() == [1 if name == names[1] else -1 for name in y]
    assert made.y.dtype == np.float32


def test_rows_of_weight_0_have_no_say_in_the_names():
    made = jaxsvm.dataset(X, [0, 7, 1], [1, 0, 2])
    assert made.classes.names == (0, 1) and made.y.tolist()[::2] == [-1, 1]


def test_strings_of_more_names_are_class_numbers():
    made = jaxsvm.dataset(X, ["c", "a", "b"])
    assert made.classes.names == ("a", "b", "c") and made.y.tolist() == [2, 0, 1]
    made = jaxsvm.dataset(X, ["c", "a", "c"], task="multiclass")
    assert made.classes.names == ("a", "c") and made.y.tolist() == [1, 0, 1]
    refused("y holds 3 classes.*task='multiclass'", X, ["c", "a", "b"], task="binary")


def test_rows_of_a_test_set_take_the_names_of_the_training_rows():
    made = jaxsvm.dataset(X, ["spam"] * 3, classes=("ham", "spam"))
    assert made.y.tolist() == [1, 1, 1]
    made = jaxsvm.dataset(X, [5, 5, 9], classes=(3, 5, 9))
    assert made.y.tolist() == [1, 1, 2] and made.classes.names == (3, 5, 9)
    refused(
        "y holds the class 'eggs', which is not among", X, ["eggs"] * 3, classes=("ham", "spam")
    )
    refused("classes are of task 'binary' or", X, [1.0] * 3, classes=(0, 1), task="regression")


def test_three_labels():
    refused(
        r"got -1, 0, 1; use one class against the rest: np\.where\(y == c, 1, -1\)", X, [-1, 0, 1]
    )


def test_many_labels_are_not_all_shown():
    refused(r"got 0, 1, 2, 3, 4, \.\.\.; use one class", np.ones((9, 1)), np.arange(9))


@pytest.mark.parametrize("label", [1, -1, 0])
def test_a_single_class(label):
    refused(rf"^all labels are {label}: a classifier needs rows of both classes$", X, [label] * 3)


def test_a_class_whose_rows_have_no_weight():
    refused("^all labels are 1: a classifier needs rows of both classes$", X, Y, [1, 0, 1])


def test_one_row_is_a_single_class():
    refused("all labels are 1", [[1.0]], [1])


# What is refused: values


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan(dtype):
    x = np.array(X, dtype)
    x[1, 1] = x[2, 0] = np.nan
    refused(r"^x holds a NaN, first in row 1: drop or fill in such rows \(2 numbers\)$", x, Y)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity(value):
    x = np.array(X)
    x[2, 0] = value
    refused(
        (
            r"^x holds an infinity, or a number too large for float32, "
            r"first in row 2: .* \(1 numbers\)$"
        ),
        x,
        Y,
    )


def test_bfloat16_nan():
    refused("^x holds a NaN, first in row 0", jnp.asarray(X, jnp.bfloat16).at[0, 0].set(jnp.nan), Y)


def test_float64_beyond_float32():
    x = np.array(X)
    x[1, 0] = 1e39
    refused(r"^x holds an infinity, or a number too large for float32, first in row 1", x, Y)


def test_float64_beyond_float32_is_taken_with_x64(x64):
    x = np.array([[1e39, 1.0], [2e39, 1e39], [3e39, 2e39]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(np.asarray(dataset(x, Y).x), x)


def test_nan_and_infinity_in_targets_and_weights():
    refused("^y holds a NaN, first in row 2", X, [1, -1, np.nan])
    refused("^y holds an infinity", X, [1, np.inf, -1])
    refused("^weight holds a NaN, first in row 0", X, Y, [np.nan, 1, 1])
    refused(
        "^weight holds an infinity, or a number too large for float32, first in row 1",
        X,
        Y,
        [1, 1e39, 1],
    )


@pytest.mark.parametrize("weight", [[-1, 1, 1], [1, 1, -1e-9], [0, 0, 0]])
def test_weights_below_0_and_none_above(weight):
    refused(
        "^weight must be at least 0 everywhere and above 0 somewhere; 0 leaves a row out$",
        X,
        Y,
        weight,
    )


def test_weights_too_small_for_float32_do_not_vanish():
    """A sum of weights that is 0 in the dtype of the run would divide by 0."""
    with pytest.raises(ValueError, match="weight"):
        dataset(X, Y, np.full(3, 1e-60))


# What is refused: shapes and types


@pytest.mark.parametrize(
    ("shape", "shown"), [((0, 3), r"\(0, 3\)"), ((3, 0), r"\(3, 0\)"), ((0, 0), r"\(0, 0\)")]
)
def test_no_rows_or_no_columns(shape, shown):
    refused(
        f"^x has shape {shown}: there must be at least one row and one column$",
        np.zeros(shape),
        np.ones(shape[0]),
    )


@pytest.mark.parametrize(
    ("x", "shown"),
    [([1.0, 2.0, 3.0], r"\(3,\)"), (np.ones((3, 2, 2)), r"\(3, 2, 2\)"), (1.0, r"\(\)")],
)
def test_what_is_no_matrix_is_not_made_one_silently(x, shown):
    advice = "" if shown == r"\(\)" else r"; use x\.reshape\(len\(x\), -1\)$"
    refused(rf"^x must be a matrix with a row for each example, got shape {shown}{advice}", x, Y)


def test_ragged_rows():
    refused(
        "^x must be an array of numbers; its rows differ in length$", [[1.0, 2.0], [3.0], [4.0]], Y
    )
    refused("^y must be an array of numbers; its rows differ in length$", X, [[1], [1, 2], [1]])


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.array(X, object), "object"),
        ([["a", "b"], ["c", "d"], ["e", "f"]], "<U1"),
        (np.array(X) + 1j, "complex128"),
        (np.zeros((3, 2), "datetime64[s]"), r"datetime64\[s\]"),
        ([[1.0, None]] * 3, "object"),
    ],
    ids=["object", "strings", "complex", "dates", "none"],
)
def test_other_types(x, dtype):
    refused(f"^x must be an array of real numbers, got dtype {dtype}; convert it first$", x, Y)


def test_a_single_name_is_refused():
    refused(r"y holds a single class, \['spam'\]", X, ["spam"] * 3)


@pytest.mark.parametrize("y", [[1, -1], [1, -1, 1, 1], [[1], [-1], [1]], 1])
def test_targets_of_another_shape(y):
    refused(r"^y must hold one number for each of the 3 rows of x, got shape \(", X, y)


def test_a_column_is_told_to_be_flat():
    column = np.array([[1], [-1], [1]])
    refused(r"got shape \(3, 1\); use np.ravel\(y\)$", X, column)
    refused(r"got shape \(3, 1\); use np.ravel\(y\)$", X, column.astype(str))
    refused(r"got shape \(3, 1\); use np.ravel\(weight\)$", X, Y, column)


@pytest.mark.parametrize("weight", [[1, 1], [[1], [1], [1]], 1.0])
def test_weights_of_another_shape(weight):
    refused(r"^weight must hold one number for each of the 3 rows of x, got shape \(", X, Y, weight)


SPARSE = [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array]


@pytest.mark.parametrize("make", SPARSE)
def test_sparse_rows(make):
    x = np.array([[0, 2.5, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])
    made = jaxsvm.dataset(make(x), Y).x
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
    made = jaxsvm.dataset(x, Y).x
    assert made.length.tolist() == [1, 0, 1] and made.index.dtype == jnp.int32
    assert np.array_equal(made.toarray(), x.toarray())
    assert (x != held).nnz == 0 and x.nnz == held.nnz  # the caller's matrix is as it was


def test_sparse_rows_are_checked():
    bad = scipy.sparse.csr_matrix(np.array([[0, 1.0], [2.0, 0], [0, np.nan]]))
    refused("^x holds a NaN, first in row 2: ", bad, Y)
    refused(
        r"^x must be a matrix of real numbers, got dtype complex128",
        scipy.sparse.csr_matrix(np.eye(3) * 1j),
        Y,
    )
    refused(r"^x has 2147483648 columns, at most", scipy.sparse.csr_matrix((3, 2**31)), Y)
    refused(r"^x has shape \(3, 0\): ", scipy.sparse.csr_matrix((3, 0)), Y)
    refused(
        r"^y is a sparse matrix, which is taken for x only",
        X,
        scipy.sparse.csr_matrix(np.ones((3, 1))),
    )


def test_class_numbers():
    assert jaxsvm.dataset(X, [2, 0, 1], task="multiclass").y.tolist() == [2, 0, 1]
    refused(
        "^class numbers must be 0 .. k-1, k >= 2, each of them present, got 0, 2; ",
        X,
        [0, 2, 2],
        task="multiclass",
    )
    refused("^class numbers must be 0 .. k-1", X, [0, 0, 0], task="multiclass")


def test_encode_more_classes_and_given_names():
    assert encode(["c", "a", "b", "a"])[0].tolist() == [2, 0, 1, 0]
    labels, names = encode([5, 9], names=(9, 5))
    assert labels.tolist() == [1, -1] and names == (9, 5)
    with pytest.raises(ValueError, match=r"y holds the class 'z', which is not among \['a', 'b'\]"):
        encode(["a", "z"], names=("a", "b"))
    with pytest.raises(ValueError, match="y holds a single class"):
        encode([4, 4])
    with pytest.raises(ValueError, match="y holds a NaN"):
        encode([1.0, np.nan])


# The one warning


def test_warning_on_scale():
    x = np.array([[0.0, 0.0, 5.0], [1.0, 2500.0, 5.0], [0.5, 100.0, 5.0]])
    with pytest.warns(UserWarning) as caught:
        dataset(x, Y)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "the ranges of the columns go from 1 to 2.5e+03: solvers converge "
        "slowly on such rows; scale them first, for "
        "example with jaxsvm.data.standardize"
    )
    assert caught[0].filename == __file__, "the warning points at the caller"


@pytest.mark.parametrize(
    "x",
    [
        [[0.0, 0.0], [1.0, 1000.0], [0.0, 1.0]],  # a factor of 1,000 is not above it
        [[7.0, 0.0], [7.0, 1e6], [7.0, 1.0]],  # a constant column has no range
        [[1e6, 0.0], [1e6 + 1, 1.0], [1e6, 1.0]],  # an offset is no range
        [[5.0, 5.0]] * 3,
    ],
    ids=["factor 1000", "constant", "offset", "all constant"],
)
def test_no_warning(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset(x, Y)


# standardize


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


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, 1234.567, -1e-3])
def test_constant_columns_become_0(value):
    """Also where the mean of equal numbers is not that number in float32."""
    x = jnp.stack([jnp.full(1000, value), jnp.arange(1000.0)], axis=1)
    z = standardize(x)(x)
    np.testing.assert_array_equal(z[:, 0], 0)
    np.testing.assert_allclose(jnp.std(z[:, 1]), 1, rtol=1e-5)


@pytest.mark.long
def test_standardize_keeps_float64(x64):
    x = jnp.asarray(X, jnp.float64)
    assert standardize(x)(x).dtype == jnp.float64


def test_standardize_saves_and_loads(tmp_path):
    scale = standardize(jnp.asarray(X))
    jaxsvm.models.save(tmp_path / "scale.npz", scale)
    again = jaxsvm.models.load(tmp_path / "scale.npz")
    assert type(again) is jdata.Standardize
    np.testing.assert_array_equal(again(jnp.asarray(X)), scale(jnp.asarray(X)))


# split


@pytest.fixture(scope="module")
def hundred():
    x = np.arange(100.0)[:, None]
    weight = np.arange(100) % 3
    return dataset(x, np.where(np.arange(100) % 2, 1, -1), weight)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shares", "sizes"),
    [
        ((1, 1), [50, 50]),
        ((0.8, 0.2), [80, 20]),
        ((3, 1, 1), [60, 20, 20]),
        ((1, 1, 1), [33, 34, 33]),
        ((99, 1), [99, 1]),
    ],
)
def test_split_sizes_and_disjoint(hundred, shares, sizes):
    parts = split(jax.random.key(1), hundred, *shares)
    assert [part.y.shape[0] for part in parts] == sizes
    rows = np.concatenate([part.x[:, 0] for part in parts]).astype(int)
    assert sorted(rows) == list(range(100)), "every row stands in exactly one part"
    assert rows.tolist() != sorted(rows), "in random order"


@pytest.mark.long
def test_split_renumbers_and_keeps_everything_else(hundred):
    for part in split(jax.random.key(2), hundred, 2, 1):
        rows = np.asarray(part.x[:, 0]).astype(int)
        np.testing.assert_array_equal(part.index, np.arange(len(rows)))
        assert part.index.dtype == jnp.int32
        np.testing.assert_array_equal(part.y, hundred.y[rows])
        np.testing.assert_array_equal(part.weight, hundred.weight[rows])
        assert part.weight.min() == 0


def test_split_is_a_function_of_its_key(hundred):
    one, again, other = (split(jax.random.key(k), hundred, 1, 1)[0].x for k in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("shares", [(), (1,), (1, 0), (1, -1), (0.5, float("nan"))])
def test_split_refuses_shares(hundred, shares):
    with pytest.raises(ValueError, match=r"^split takes two or more shares above 0, got \("):
        split(jax.random.key(0), hundred, *shares)


def test_split_refuses_empty_parts(hundred):
    with pytest.raises(
        ValueError,
        match=r"^100 rows are too few for the shares \(1000, 1\): a part would be empty$",
    ):
        split(jax.random.key(0), hundred, 1000, 1)


# breast_cancer


def test_breast_cancer_is_scikit_learns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = breast_cancer()
    x, y = load_breast_cancer(return_X_y=True)
    np.testing.assert_array_equal(data.x, x.astype(np.float32))
    np.testing.assert_array_equal(data.y, np.where(y == 0, 1, -1))  # scikit-learn's 0 is malignant
    assert int((data.y == 1).sum()) == 212 and int((data.y == -1).sum()) == 357


def test_breast_cancer_columns():
    np.testing.assert_array_equal(breast_cancer(columns=[3, 0]).x, breast_cancer().x[:, [3, 0]])
    assert breast_cancer(columns=range(4)).x.shape == (569, 4)


def test_breast_cancer_in_x64(x64):
    data = breast_cancer()
    x, _ = load_breast_cancer(return_X_y=True)
    np.testing.assert_allclose(data.x, x, rtol=1e-6)
    assert data.y.dtype == data.x.dtype


# Digits that float32 does not have


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
def test_a_column_whose_variation_rounding_takes_is_named(form):
    x = np.array([[1.0, 1e6], [2.0, 1e6 + 1e-4], [3.0, 1e6 - 1e-4]])
    with pytest.warns(
        UserWarning,
        match=r"rounding to float32 moves column 1 by 0.0001, .*: subtract it beforehand",
    ):
        dataset(form(x), Y)
    with pytest.warns(UserWarning, match="rounding to float32 moves column 0"):
        dataset(form(np.array([[2**40], [2**40 + 1], [2**40 + 3]])), Y)


def test_numbers_that_float32_holds_are_no_loss(x64):
    rows = np.array([[1e6, 0.0], [1e6 + 1e-4, 1.0], [1e6 - 1e-4, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        data = dataset(rows[:, 1:], Y)  # 64-bit numbers are on
        assert data.x.dtype == np.float64
    assert np.array_equal(dataset(rows, Y).x, rows)


def test_a_sparse_column_far_from_zero_is_named():
    x = np.array([[2000.0, 0.0], [2001.0, 3.0], [2002.0, 0.0]])
    with pytest.warns(
        UserWarning, match=r"column 0 of the sparse x lies far from 0 \(2000 to 2002\)"
    ):
        dataset(scipy.sparse.csr_matrix(x), Y)
    x[2, 0] = 0.0  # a zero that is not stored widens the column
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset(scipy.sparse.csr_matrix(x), Y)


# Wrong arguments


@pytest.mark.parametrize(
    "index",
    [None, 1, "1", 1.5, [0.5], [True], np.ones(2), np.ones((2, 2), int), np.array([True]), {0}, {}],
)
def test_take_takes_row_numbers(index):
    data = jaxsvm.dataset(np.eye(4, 2), [1, -1, 1, -1])
    with pytest.raises(
        TypeError, match="^index must be a vector of row numbers, such as jnp.array"
    ):
        jaxsvm.take(data, index)


@pytest.mark.parametrize("index", [[4], [-2], np.array([0, 100]), jnp.array([-9, 0])])
def test_take_refuses_rows_that_are_not_there(index):
    """They gave the last row, or whatever lay behind it."""
    data = jaxsvm.dataset(np.eye(4, 2), [1, -1, 1, -1])
    with pytest.raises(
        ValueError,
        match="^index must hold row numbers from 0 to 3, or -1 for padding, got (4|-2|100|-9)$",
    ):
        jaxsvm.take(data, index)
    assert jaxsvm.take(data, [3, -1]).weight.tolist() == [1, 0]
    assert jaxsvm.take(data, []).y.shape == (0,)


def test_class_numbers_are_told_of_multiclass():
    with pytest.raises(ValueError, match="task='multiclass' for class numbers"):
        jaxsvm.dataset(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="labels must be of two values") as refused:
        jaxsvm.dataset(np.eye(3), [1, 5, 7])
    assert "multiclass" not in str(refused.value)


@pytest.mark.parametrize("fitted", [jdata.standardize, jdata.scale])
def test_maps_of_columns_take_matrices(fitted):
    x = np.ones((3, 2), np.float32)
    for wrong in (
        None,
        "x",
        [[1.0]],
        x[0],
        x[None],
        x[:0],
        np.array([["a"]]),
        jaxsvm.dataset(np.eye(2), [1, -1]),
    ):
        with pytest.raises((TypeError, ValueError), match="^x (must|has shape)"):
            fitted(wrong)
    with pytest.raises(ValueError, match="x must have 2 columns, as many as it was made for"):
        fitted(x)(np.ones((3, 1)))


def test_what_is_no_class_name_is_refused():
    for y in (
        [None, "a"],
        np.array([1, np.nan, 2], object),
        [1, "1"],
        [1j, 2],
        np.array([None, None]),
        [[1], "a"],
    ):
        with pytest.raises(ValueError, match="^y (must hold class names|holds a NaN)"):
            encode(y)
    for names in ([None, "a"], [1, 1.0], ["a", "a"], [True, 1]):
        with pytest.raises(
            ValueError, match="^names must (hold class names|be the classes in order, each once)"
        ):
            encode(["a", "a"], names=names)
    with pytest.raises(ValueError, match="y holds the class 1, which is not among"):
        encode([1, 2], names=["1", "2"])


def test_a_broken_sparse_matrix_is_refused():
    for field, value in (
        ("data", np.ones(1)),
        ("indices", np.array([9, 0], "i4")),
        ("indptr", np.array([0, 5, 2], "i4")),
    ):
        x = scipy.sparse.csr_matrix(np.eye(2))
        setattr(x, field, value)
        with pytest.raises(ValueError, match="^x is no valid sparse matrix"):
            dataset(x, [1, -1])


@pytest.mark.long
def test_split_takes_numbers_of_other_libraries():
    data = dataset(np.eye(10), [1, -1] * 5)
    shares = (Fraction(1, 10), Decimal("0.2"), np.float32(0.7))
    assert [len(part.y) for part in split(jax.random.key(0), data, *shares)] == [1, 2, 7]
    with pytest.raises(ValueError, match="two or more shares"):
        split(jax.random.key(0), data, 1e308, 1e308)


@pytest.mark.parametrize(("y", "warns"), [
    ([0.1, 0.1, 0.1, 0.1, 5.0], False),  # most are one number, whose rounding hides no difference
    ([1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3], True),
    ([1e9 + 0.1] * 4 + [1e9 + 0.3], True),
])  # fmt: skip
def test_targets_that_lose_their_differences_are_warned_of(y, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset(np.ones((len(y), 1)), y, task="regression")
    assert any("rounding to float32 moves y" in str(warning.message) for warning in caught) == warns


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
    with pytest.raises(ValueError, match="sparse must be one of False, True, 'auto', got 'yes'"):
        dataset(x, y, sparse="yes")


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


def test_scale_takes_columns_to_0_1_and_keeps_zeros_of_sparse_rows(tmp_path):
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

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
    for call, message in (
        (lambda: jaxsvm.data.standardize(rows), "use jaxsvm.data.scale"),
        (lambda: jaxsvm.data.standardize(dense)(rows), "use jaxsvm.data.scale"),
        (lambda: jaxsvm.data.scale(dense)(rows), "was fitted on dense rows"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
