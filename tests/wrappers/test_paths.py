"""Which solvers are fitted along a path of C."""

import pytest

from jaxsvm import decomposition, kernels, one_vs_one, one_vs_rest, pegasos
from jaxsvm.wrappers.paths import MOST_CLASSES, machine_of

EXACT = decomposition(1.0, kernels.rbf(1.0))


@pytest.mark.parametrize(
    ("solver", "is_exact"),
    [
        (EXACT, True),
        (one_vs_rest(EXACT, classes=MOST_CLASSES + 1), True),
        (one_vs_one(EXACT, classes=MOST_CLASSES), True),
        (one_vs_one(EXACT, classes=MOST_CLASSES + 1), False),
        (pegasos(1.0), False),
        (one_vs_one(pegasos(1.0), classes=3), False),
    ],
    ids=str,
)
def test_exact_machines_have_paths_but_for_pairs_of_many_classes(solver, is_exact):
    machine, wrapper = machine_of(solver)
    assert (machine is not None) == is_exact
    assert (wrapper is not None) == (is_exact and machine is not solver)
