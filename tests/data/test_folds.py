"""Folds: counts, groups, and what is refused; scikit-learn's splitters promise the same."""

import jax
import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from jaxsvm.data import folds

KEY = jax.random.key(3)


def counts(fold, y, k):
    return np.array(
        [[np.sum((fold == i) & (y == value)) for value in np.unique(y)] for i in range(k)]
    )


@pytest.mark.parametrize("k", [2, 3, 7])
def test_each_class_is_dealt_evenly(k):
    y = np.random.default_rng(0).choice([0, 1, 2], size=101, p=[0.1, 0.3, 0.6])
    found = counts(folds(KEY, y, k), y, k)
    assert (found.max(axis=0) - found.min(axis=0) <= 1).all()
    assert np.ptp(found.sum(axis=1)) <= 1
    test_sizes = [
        len(test) for _, test in StratifiedKFold(k, shuffle=True, random_state=0).split(y, y)
    ]
    assert sorted(found.sum(axis=1)) == sorted(test_sizes)


def test_folds_are_drawn_from_the_key():
    y = np.tile([-1, 1], 50)
    first, again, other = folds(KEY, y, 5), folds(KEY, y, 5), folds(jax.random.key(4), y, 5)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.dtype == np.int32
    plain = folds(KEY, y, 5, stratify=False)
    assert (np.bincount(plain) == 20).all() and np.ptp(counts(plain, y, 5)[:, 0]) > 1


def test_groups_stay_whole_and_classes_even():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 40, size=400)
    y = np.where((groups % 4 == 0) ^ (rng.random(400) < 0.1), 1, -1)
    fold = folds(KEY, y, 4, groups=np.array([f"patient {g}" for g in groups]))
    assert all(len(np.unique(fold[groups == g])) == 1 for g in np.unique(groups))
    share = counts(fold, y, 4)[:, 1] / np.bincount(fold)
    assert np.ptp(np.bincount(fold)) <= 20 and np.ptp(share) < 0.1
    assert np.ptp(np.bincount(folds(KEY, y, 4, groups=groups, stratify=False))) <= 10
    alone = np.repeat(np.arange(8), 5)  # classes of one group each: every fold is as even
    assert (np.bincount(folds(KEY, alone, 4, groups=alone)) == 10).all()
