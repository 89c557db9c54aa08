"""Sizes that follow from arguments: refused with the number of bytes, before memory is taken."""

import resource

import jax
import numpy as np
import pytest

import jaxsvm
from jaxsvm import checks, features, kernels

KEY, RBF = jax.random.key(0), kernels.rbf(1.0)
ROWS = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
FEW = jaxsvm.dataset(ROWS[:40], np.arange(40) % 3, task="multiclass")
MORE = jaxsvm.dataset(np.tile(ROWS, (3, 1)), np.arange(6000) % 1000, task="multiclass")
TWO = jaxsvm.dataset(ROWS, np.where(ROWS[:, 0] > 0, 1, -1))

CASES = {  # what is too large, and its bytes
    "one_vs_one": (
        lambda: jaxsvm.fit(jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=2000), FEW, KEY),
        12 * 2000 * 1999000,
    ),
    "pairs": (
        lambda: jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=10**6),
        12 * 10**6 * 499999500000,
    ),
    "rows": (
        lambda: jaxsvm.fit(jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=1000), MORE, KEY),
        499500 * 6000 * 8,
    ),
    "one_vs_rest": (
        lambda: jaxsvm.fit(jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=10**6), MORE, KEY),
        24 * 10**9,
    ),
    "budget": (lambda: jaxsvm.fit(jaxsvm.bsgd(0.1, RBF, budget=2 * 10**9), TWO, KEY), None),
    "planes": (lambda: jaxsvm.fit(jaxsvm.ocas(0.1, planes=10**6), TWO, KEY), None),
    "fourier": (lambda: features.fourier(KEY, RBF, dim=5, features=2 * 10**9), 20 * 10**9),
    "orthogonal": (lambda: features.orthogonal(KEY, RBF, dim=50000, features=10), 3 * 4 * 50000**2),
    "cells": (
        lambda: jaxsvm.sweep(lambda a, b: a + b, a=np.ones(10**5), b=np.ones(10**5))(),
        64 * 10**10,
    ),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", CASES)
def test_what_memory_cannot_hold_is_refused_by_its_bytes(name):
    call, size = CASES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        ValueError,
        match=(
            rf"would take {'[0-9,]+' if size is None else f'{size:,}'} "
            rf"bytes, more than 17,179,869,184"
        ),
    ):
        call()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB


@pytest.mark.parametrize("classes", [2**20 + 1, 10**9, 2**40])
@pytest.mark.parametrize("wrapper", [jaxsvm.one_vs_rest, jaxsvm.one_vs_one])
def test_more_classes_than_can_be_told_apart_in_time_are_refused(wrapper, classes):
    with pytest.raises(
        ValueError, match=f"^classes must be a whole number from 2 to 1048576, got {classes}$"
    ):
        wrapper(jaxsvm.pegasos(0.1), classes=classes)


def test_the_limit_of_bytes_can_be_moved(monkeypatch):
    solver = jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=5)
    rows = jaxsvm.dataset(ROWS[:50], np.arange(50) % 5, task="multiclass")
    jax.eval_shape(solver.init, KEY, rows)  # 50 rows in 10 pairs, 4,000 bytes
    monkeypatch.setattr(checks, "MOST_BYTES", 3999)
    with pytest.raises(ValueError, match=r"50 rows in 10 pairs would take 4,000 bytes"):
        jax.eval_shape(solver.init, KEY, rows)


def test_class_numbers_are_those_below_their_number():
    values = np.array([0, 1, 1.5, 2, -1, 3, np.nan])
    assert checks.is_class_number(values, 3).tolist() == [v in (0, 1, 2) for v in values]
