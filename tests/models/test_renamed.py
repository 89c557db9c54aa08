"""Files and calls of version 0.3.0: runs load and go on, solvers and rows load, old options are told the new name."""

import pathlib

import jax
import numpy as np
import optax
import pytest

import jaxsvm
from jaxsvm import kernels, models, renamed, spaces, types
from jaxsvm.recipe import REGISTRY

RUNS = pathlib.Path(__file__).parents[1] / "fixtures" / "runs-0.3.0.npz"  # 12 steps of each, and the values of 20


@pytest.fixture(scope="module")
def old():
    return models.load(RUNS)


NAMES = (
    *("averaged(pegasos)", "sdca", "sdca linear", "decomposition", "smo", "lasvm", "bsgd", "bsca", "nogd", "projectron"),
    *("forgetron", "tightest", "sbp", "simba", "wolfe", "scs", "kernel_pegasos", "perceptron", "batch_perceptron", "asset"),
    "one_vs_rest",
)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_0_3_0_goes_on(name, old):
    """With the solver of the file; what it comes to is what 0.3.0 came to, but for roundings."""
    found = old["runs"][name]
    several = name == "one_vs_rest"
    y = np.asarray(old["y"])
    data = jaxsvm.dataset(old["x"], (y > 0).astype(int) if several else y, task="multiclass" if several else "binary")
    # lasvm visited one row a step then
    sampler = jaxsvm.samplers.epochs(1) if name == "lasvm" else None
    run = jaxsvm.fit(found["solver"], data, state=found["state"], steps=8, every=4, sampler=sampler)
    assert int(run.state.step) == 20
    assert found["curve"].evals.shape == found["curve"].step.shape
    want = np.asarray(found["values"])
    np.testing.assert_allclose(np.asarray(run.model(data.x)), want, atol=2e-5 * max(1, np.abs(want).max()))


@pytest.mark.long
def test_all_runs_of_the_file_are_tested(old):
    assert set(old["runs"]) == {*NAMES, "stream", "sparse"}


def test_a_stream_of_0_3_0_goes_on(old):
    state = old["runs"]["stream"]["state"]
    assert int(state.n_pending) == 1 and int(state.step) == 4
    x, y = np.asarray(old["x"]), np.asarray(old["y"])
    run = jaxsvm.stream(jaxsvm.averaged(jaxsvm.pegasos(0.1)), [(x[17:], y[17:])], state=state, batch_size=4)
    assert int(run.state.step) == 6


def test_sparse_rows_of_0_3_0_load(old):
    rows = old["runs"]["sparse"]["rows"]
    np.testing.assert_array_equal(np.asarray(rows.toarray()), np.maximum(np.asarray(old["x"]), 0))


def test_old_options_are_told_the_new_name():
    with pytest.raises(TypeError, match=r"sbp\(look=\) is sbp\(bound_every=\) since version 0.4: write bound_every"):
        jaxsvm.sbp(0.1, kernels.rbf(1.0), look=3)
    with pytest.raises(TypeError, match=r"expansion\(always=\) is expansion\(unconditional=\)"):
        spaces.expansion(kernels.rbf(1.0), always=True)
    with pytest.raises(TypeError, match=r"gradient\(measures=\) is gradient\(residual_scope=\)"):
        jaxsvm.gradient(jaxsvm.losses.hinge, optax.identity(), measures="whole")
    with pytest.raises(TypeError, match=r"Solver\(until=\) is Solver\(with_tol=\)"):
        jaxsvm.Solver(None, None, None, until=None)
    with pytest.raises(TypeError, match=r"Quadratic\(kink=\) is Quadratic\(l1=\)"):
        types.Quadratic(0.0, 1.0, kink=1.0)
    with pytest.raises(TypeError, match=r"Change\(moved=\) is Change\(replaced=\)"):
        jaxsvm.budget.Change(None, removed=None, moved=None, row=None)


def test_the_tables_name_what_there_is():
    for name in [*renamed.NAMES.values(), *renamed.FIELDS, *renamed.OPTIONS, *renamed.ADDED]:
        assert name in REGISTRY
    for name, new in [*renamed.FIELDS.items(), *((name, dict.fromkeys(make, None)) for name, make in renamed.ADDED.items())]:
        fields = getattr(REGISTRY[name], "_fields", None) or tuple(REGISTRY[name].__dataclass_fields__)
        assert {v or k for k, v in new.items()} <= set(fields)
        assert not {k for k, v in new.items() if v} & set(fields)
    assert not set(renamed.NAMES) & set(REGISTRY)
    assert jax.tree.leaves(renamed.OPTIONS)
