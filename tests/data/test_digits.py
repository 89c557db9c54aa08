"""Warnings of columns whose digits are lost in float32."""

import numpy as np
import pytest

import jaxsvm

LABELS = np.tile([1, -1], 8)
STEPS = np.arange(16.0)
FAR = 1e8  # numbers of float32 are 8 apart there


@pytest.mark.parametrize("form", [np.asarray, "sparse"])
def test_the_first_column_that_loses_digits_is_named_once(form):
    x = np.stack([STEPS, FAR + 8 * STEPS, FAR + STEPS, FAR + STEPS / 2], axis=1)
    if form == "sparse":
        sparse = pytest.importorskip("scipy.sparse")
        form = sparse.csr_matrix
    with pytest.warns(UserWarning) as told:
        jaxsvm.dataset(form(x), LABELS)
    (message,) = [str(w.message) for w in told if "rounding to float32" in str(w.message)]
    assert "moves column 2 by" in message


def test_columns_that_float32_holds_exactly_are_not_named(recwarn):
    jaxsvm.dataset(np.stack([STEPS, FAR + 8 * STEPS], axis=1), LABELS)
    assert not [w for w in recwarn if "rounding to float32" in str(w.message)]


@pytest.mark.parametrize(("share", "is_told"), [(0.999, True), (1.001, False)])
def test_columns_whose_squares_vanish_are_told(share, is_told, recwarn):
    width = share * 100 * np.finfo(np.float32).tiny ** 0.5
    jaxsvm.dataset(np.stack([STEPS, width * LABELS / 2], axis=1), LABELS)
    assert bool([w for w in recwarn if "squares of such" in str(w.message)]) == is_told
