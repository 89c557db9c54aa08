"""Every refusal of the ways in to data: a table of calls, and the word that tells one from the
others."""

import functools
import warnings
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import data as jdata
from jaxsvm import dataset
from jaxsvm.data import folds, split
from jaxsvm.data.class_numbers import encode

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
Y = [1, -1, 1]
KEY = jax.random.key(0)
COLUMN = np.array([[1], [-1], [1]])
HUNDRED = dataset(np.arange(100.0)[:, None], [1, -1] * 50)
FOUR = dataset(np.eye(4, 2), [1, -1, 1, -1])
EIGHT, GRADES, QUERY = np.eye(8, 3), [0, 1, 2, 0, 1, 1, 2, 0], [0, 0, 1, 1, 1, 2, 2, 2]
DENSE, SPARSE = np.ones((3, 2), np.float32), dataset(scipy.sparse.csr_matrix(np.eye(3, 2)), Y).x
of, csr = functools.partial, scipy.sparse.csr_matrix


def holding(value, *places, dtype=np.float64):
    """X with a value at some places."""
    x = np.array(X, dtype)
    x[tuple(zip(*places, strict=True))] = value
    return x


def broken(**field):
    """A sparse matrix whose arrays do not fit together."""
    x = csr(np.eye(2))
    vars(x).update(field)
    return x


def inside(x, y, weight=None, **more):
    """The call where all that it is given is traced."""
    return lambda: jax.jit(of(dataset, **more))(x, y, weight)


LARGE = "holds an infinity, or a number too large for float32, first in row"
CALLS = [
    (of(dataset, X, Y, task="clustering"), "^task must be .*'ranking', 'survival', got 'clust"),
    # targets
    (of(dataset, X, [0.5, np.nan, 1.0], task="regression"), "^y holds a NaN, first in row 1"),
    (of(dataset, X, [1, -1, np.nan]), "^y holds a NaN, first in row 2"),
    (of(dataset, X, [1, np.inf, -1]), "^y holds an infinity"),
    (of(dataset, X, list("cab"), task="binary"), "y holds 3 classes.*task='multiclass'"),
    (of(dataset, X, ["eggs"] * 3, classes=("ham", "spam")), "class 'eggs', which is not among"),
    (of(dataset, X, [1.0] * 3, classes=(0, 1), task="regression"), "^classes are of task 'binary'"),
    (of(dataset, X, [-1, 0, 1]), r"got -1, 0, 1; use one class .*: np\.where\(y == c, 1, -1\)"),
    (of(dataset, np.ones((9, 1)), np.arange(9)), r"got 0, 1, 2, 3, 4, \.\.\.; use one class"),
    (of(dataset, np.eye(3), [0, 1, 2]), "task='multiclass' for class numbers"),
    (of(dataset, np.eye(3), [1, 5, 7]), r"^(?!.*multiclass).*labels must be of two values"),
    *((of(dataset, X, [k] * 3), f"^all labels are {k}: a classifier") for k in (1, -1, 0)),
    (of(dataset, X, Y, [1, 0, 1]), "^all labels are 1: a classifier"),
    (of(dataset, [[1.0]], [1]), "^all labels are 1: a classifier"),
    (of(dataset, X, ["spam"] * 3), r"y holds a single class, \['spam'\]"),
    (of(dataset, X, [0, 2, 2], task="multiclass"), "^class numbers .*present, got 0, 2; "),
    (of(dataset, X, [0, 0, 0], task="multiclass"), r"^class numbers must be 0 \.\. k-1"),
    # values
    *(
        (of(dataset, holding(np.nan, (1, 1), (2, 0), dtype=d), Y), r"^x .* NaN, .*1: .*\(2 numbers")
        for d in (np.float16, np.float32, np.float64)
    ),
    *((of(dataset, holding(v, (2, 0)), Y), rf"^x {LARGE} 2: .*\(1 num") for v in (np.inf, -np.inf)),
    (of(dataset, holding(1e39, (1, 0)), Y), f"^x {LARGE} 1"),
    (
        of(dataset, jnp.asarray(holding(np.nan, (0, 0)), jnp.bfloat16), Y),
        "^x .*NaN, first in row 0",
    ),
    (of(dataset, X, Y, [np.nan, 1, 1]), "^weight holds a NaN, first in row 0"),
    (of(dataset, X, Y, [1, 1e39, 1]), f"^weight {LARGE} 1"),
    *((of(dataset, X, Y, w), "^weight must be at") for w in ([-1, 1, 1], [1, 1, -1e-9], [0] * 3)),
    (of(dataset, X, Y, np.full(3, 1e-60)), "weight"),  # their sum in float32 would divide by 0
    # shapes and types
    *(
        (of(dataset, np.zeros((n, d)), np.ones(n)), rf"^x has shape \({n}, {d}\): there must be")
        for n, d in ((0, 3), (3, 0), (0, 0))
    ),
    (of(dataset, [1.0, 2.0, 3.0], Y), r"^x must be a matrix .*\(3,\); use x.reshape"),
    (of(dataset, np.ones((3, 2, 2)), Y), r"^x must be a matrix .*\(3, 2, 2\); use x.reshape"),
    (of(dataset, 1.0, Y), r"^x must be a matrix .*got shape \(\)"),
    (of(dataset, [[1.0, 2.0], [3.0], [4.0]], Y), "^x must be .*its rows differ in length$"),
    (of(dataset, X, [[1], [1, 2], [1]]), "^y must be .*its rows differ in length$"),
    *(
        (of(dataset, x, Y), f"^x must be .*real numbers, got dtype {dtype}; convert it first$")
        for x, dtype in (
            (np.array(X, object), "object"),
            ([["a", "b"], ["c", "d"], ["e", "f"]], "<U1"),
            (np.array(X) + 1j, "complex128"),
            (np.zeros((3, 2), "datetime64[s]"), r"datetime64\[s\]"),
            ([[1.0, None]] * 3, "object"),
        )
    ),
    *(
        (of(dataset, X, y), "^y .* 3 rows of x, got")
        for y in ([1, -1], [*Y, 1], COLUMN.tolist(), 1)
    ),
    *((of(dataset, X, y), r"\(3, 1\); use np.ravel\(y\)$") for y in (COLUMN, COLUMN.astype(str))),
    (of(dataset, X, Y, COLUMN), r"got shape \(3, 1\); use np.ravel\(weight\)$"),
    *(
        (of(dataset, X, Y, w), "^weight .* 3 rows of x, got")
        for w in ([1, 1], COLUMN.tolist(), 1.0)
    ),
    # rows over devices
    (of(jdata.shard, FOUR, "cpu"), "^mesh must be a mesh such as jax.make_mesh.*got 'cpu'"),
    (of(jdata.shard, FOUR, jax.make_mesh((1,), ("data",))), '^mesh must have an axis "rows", got'),
    (of(jdata.shard, jax.tree.map(lambda a: a[:0], FOUR)), "^data has no rows"),
    # sparse rows
    (of(dataset, csr([[0, 1.0], [2.0, 0], [0, np.nan]]), Y), "^x holds a NaN, first in row 2: "),
    (of(dataset, csr(np.eye(3) * 1j), Y), "^x must be .*real numbers, got dtype complex128"),
    (of(dataset, csr((3, 2**31)), Y), "^x has 2147483648 columns, at most"),
    (of(dataset, csr((3, 0)), Y), r"^x has shape \(3, 0\): "),
    (of(dataset, X, csr(np.ones((3, 1)))), "^y is a sparse matrix, which is taken for x only"),
    *(
        (of(dataset, broken(**{name: np.array(value)}), [1, -1]), "^x is no valid sparse matrix")
        for name, value in (("data", [1.0]), ("indices", [9, 0]), ("indptr", [0, 5, 2]))
    ),
    (of(dataset, X, Y, sparse="yes"), "sparse must be one of False, True, 'auto', got 'yes'"),
    (of(dataset, X, Y, pad="yes"), "pad must be one of"),
    # queries
    (of(dataset, EIGHT, GRADES, query=QUERY[:3]), r"query must .* the 8 rows, got shape \(3,\)"),
    (of(dataset, EIGHT, QUERY, query=QUERY), "no two rows of one query have different grades"),
    (of(dataset, EIGHT, [1] * 8, task="ranking"), "no two rows of one query have different grades"),
    (of(dataset, EIGHT, np.arange(8) + 1.7e9, task="ranking"), "moves a grade by 7 and makes"),
    (of(dataset, EIGHT, GRADES, query=[np.nan, *range(7)]), "query holds a NaN, first in row 0"),
    (of(dataset, EIGHT, GRADES, query=QUERY, task="grades"), "task must be one of"),
    # inside of transformations
    (inside(np.ones(3), np.ones(3)), "x must be a matrix"),
    (inside(np.ones((0, 2)), np.ones(0)), "at least one row"),
    (inside(np.eye(30, 2), np.ones(7)), "y must hold one number for each of the 30 rows"),
    (inside(np.eye(30, 2), np.ones(30), np.ones(7)), "weight must hold one .* of the 30 rows"),
    (inside(np.array(X), np.array(Y), classes=(0, 1)), "classes number a y that is known"),
    # names of classes
    (of(encode, ["a", "z"], names=("a", "b")), r"class 'z', which is not among \['a', 'b'\]"),
    (of(encode, [1, 2], names=["1", "2"]), "y holds the class 1, which is not among"),
    (of(encode, [4, 4]), "y holds a single class"),
    (of(encode, [1.0, np.nan]), "y holds a NaN"),
    *(
        (of(encode, y), "^y (must hold class names|holds a NaN)")
        for y in (
            [None, "a"],
            np.array([1, np.nan, 2], object),
            [1, "1"],
            [1j, 2],
            np.array([None, None]),
            [[1], "a"],
        )
    ),
    *(
        (of(encode, ["a", "a"], names=names), "^names must (hold class names|be the classes in or)")
        for names in ([None, "a"], [1, 1.0], ["a", "a"], [True, 1])
    ),
    # parts
    *(
        (of(split, KEY, HUNDRED, *shares), r"^split takes two or more shares above 0, got \(")
        for shares in ((), (1,), (1, 0), (1, -1), (0.5, float("nan")), (1e308, Decimal("1e308")))
    ),
    (of(split, KEY, HUNDRED, 1000, 1), r"^100 rows are too few .*\(1000, 1\): a part would be emp"),
    *(
        (of(jaxsvm.take, FOUR, index), "^index must be a vector of row numbers, such as jnp.array")
        for index in (None, 1, "1", 1.5, [0.5], [True], np.ones(2), np.ones((2, 2), int), {0}, {})
    ),
    *(
        (of(jaxsvm.take, FOUR, index), f"^index must .*0 to 3, or -1 for padding, got {wrong}$")
        for index, wrong in (([4], 4), ([-2], -2), (np.array([0, 100]), 100), (jnp.array([-9]), -9))
    ),
    (of(jaxsvm.take, FOUR._replace(query=np.zeros(3, "i4")), [0]), "one query for each of its 4"),
    (of(folds, KEY, Y, 5), "3 rows are too few for 5 folds"),
    (of(folds, KEY, Y, 1), "k must be a whole number of at least 2"),
    (of(folds, KEY, Y, 2, groups=[0, 1]), r"groups must .* each of the 3 rows, got shape \(2,\)"),
    (of(folds, KEY, [1, -1, 1, 1], 3, groups=[0, 1, 1, 0]), "2 groups are too few for 3 folds"),
    (of(folds, KEY, [[1], [-1]], 2), "y must be a vector"),
    # maps of columns
    *(
        (of(fitted, wrong), "^x (must|has shape)")
        for fitted in (jdata.standardize, jdata.scale)
        for wrong in (None, "x", [[1.0]], DENSE[0], DENSE[None], DENSE[:0], np.array([["a"]]), FOUR)
    ),
    *(
        (of(fitted(DENSE), np.ones((3, 1))), "x must have 2 columns, as many as it was made for")
        for fitted in (jdata.standardize, jdata.scale)
    ),
    (of(jdata.standardize, SPARSE), "use jaxsvm.data.scale"),
    (of(jdata.standardize(DENSE), SPARSE), "use jaxsvm.data.scale"),
    (of(jdata.scale(DENSE), SPARSE), "was fitted on dense rows"),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_data_that_are_refused(call, words):
    """NumPy has nothing to warn of on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((ValueError, TypeError), match=words):
            call()
