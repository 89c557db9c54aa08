"""How long kernel machines go on where one update may end before its tolerance."""

import numpy as np
import pytest

import jaxsvm
from jaxsvm.estimators import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from jaxsvm.estimators.base import MergedRows
from jaxsvm.loops.fits import steps_of


@pytest.mark.parametrize(("n", "steps"), [(49_999, 1), (50_000, 10), (250_000, 50)])
def test_updates_of_exact_machines(n, steps):
    rows = MergedRows(np.ones((2, 1), np.float32), None, None, None, n, None)
    for machine in (SVC(), SVR(), NuSVC(), NuSVR(), OneClassSVM()):
        machine._gamma = 1.0
        assert machine._spec(rows).steps == steps
        machine.max_iter = 5
        assert machine._spec(rows).steps == 1, "max_iter bounds one update"


@pytest.mark.parametrize(("n", "steps"), [(49_999, 1), (50_000, None)])
def test_updates_of_folds(n, steps):
    """None: as many as `fit` makes."""
    data = jaxsvm.dataset(np.zeros((n, 1), np.float32), np.arange(n) % 2)
    exact = jaxsvm.decomposition(1.0, jaxsvm.kernels.rbf(1.0))
    assert steps_of(exact, None, data) == steps
    assert steps_of(exact, 7, data) == 7
    assert steps_of(jaxsvm.pegasos(1.0), None, data) is None
