"""Differences of sparse rows."""

import jax
import numpy as np
import scipy.sparse

from jaxsvm.numerics import pad_rows
from jaxsvm.numerics.products import differences


def test_differences_of_sparse_rows_are_those_of_dense_ones():
    random = np.random.default_rng(0)
    dense = ((random.random((12, 7)) < 0.5) * random.normal(size=(12, 7))).astype(np.float32)
    dense[3] = dense[9]  # a difference of 0
    of_halves = jax.jit(lambda rows: differences(rows, 6))
    found = of_halves(pad_rows(scipy.sparse.csr_matrix(dense)))
    np.testing.assert_allclose(found.toarray(), dense[:6] - dense[6:], atol=1e-6)
    want = ((dense[:6] != 0) | (dense[6:] != 0)).sum(1)
    np.testing.assert_array_equal(found.length, want)
    np.testing.assert_array_equal(of_halves(dense), dense[:6] - dense[6:])
