"""The numbers of a table of scores."""

import numpy as np

from jaxsvm.loops.selection import Scores


def table(folds):
    folds = np.asarray(folds, np.float64)
    names = ("C", "gamma")[: folds.ndim - 1]
    numbers = tuple(np.arange(1.0, k + 1) for k in folds.shape[:-1])
    return Scores(folds, *(np.zeros_like(folds) for _ in range(4)), numbers, names)


def test_standard_errors_are_over_the_folds_whatever_the_axes():
    folds = np.random.default_rng(0).random((1, 4, 3))
    spread = np.sqrt(((folds - folds.mean(-1, keepdims=True)) ** 2).sum(-1) / 2 / 3)
    np.testing.assert_allclose(table(folds).se, spread, rtol=1e-12)
    np.testing.assert_allclose(table(folds.transpose(1, 0, 2)).se, spread.T, rtol=1e-12)
    assert np.isnan(table(folds[..., :1]).se).all() and table(folds[0, :, :1]).se.shape == (4,)
