"""States and files go on with the rows, numbers and functions that they were made with, and no
others."""

import gc
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import fit, kernels, losses, models, select, stream
from jaxsvm.loops import origin
from jaxsvm.loops.selection_file import Results

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = np.where((X**2).sum(1) > 2.3, 1, -1)
DATA = jaxsvm.dataset(X, Y)
RBF = kernels.rbf(1.0)

# a maker of C and sigma, and the steps of its run
MACHINES = {
    "decomposition": (lambda C=10.0, sigma=1.0: jaxsvm.decomposition(C, kernels.rbf(sigma)), None),
    "smo": (lambda C=10.0, sigma=1.0: jaxsvm.smo(C, kernels.rbf(sigma)), 30),
    "lasvm": (lambda C=10.0, sigma=1.0: jaxsvm.lasvm(C, kernels.rbf(sigma)), 30),
    "sdca": (lambda C=10.0, sigma=1.0: jaxsvm.sdca(C, kernels.rbf(sigma)), 30),
    "nu_svc": (lambda C=10.0, sigma=1.0: jaxsvm.nu_svc(0.03 * C, kernels.rbf(sigma)), None),
}


def refused(words, solver, data, state, **options):
    """The call is refused in these words, and nothing else is said."""
    with pytest.raises(ValueError, match=f"^state {words}"):
        fit(solver, data, state=state, steps=2, **options)


OTHERS = {
    "rows": ("rows or targets", DATA._replace(x=DATA.x.at[7, 1].add(1.0))),
    "signs": ("rows or targets", DATA._replace(x=DATA.x * jnp.array([[-1.0, -1, 1]]))),
    "order": ("rows or targets", DATA._replace(x=DATA.x[::-1])),
    "targets": ("rows or targets", DATA._replace(y=-DATA.y)),
    "weights": ("weights", DATA._replace(weight=DATA.weight.at[3].set(2.0))),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", MACHINES)
def test_sums_over_rows_go_on_with_the_same_rows_and_numbers_only(name):
    make, steps = MACHINES[name]
    state = fit(make(), DATA, KEY, steps=steps).state
    fit(make(), DATA, state=state, steps=2)
    fit(make(), jaxsvm.dataset(X.copy(), Y), state=state, steps=2)  # the same in other memory
    for what, data in OTHERS.values():
        refused(f"comes from a run with other {what}", make(), data, state)
    refused("comes from a run with other kernels", make(sigma=0.2), DATA, state)
    if name == "nu_svc":  # begins anew with another nu
        assert fit(make(C=1.0), DATA, state=state, tol=1e-5).converged
        return
    refused("comes from a run with other numbers", make(C=1.0), DATA, state)
    both = "comes from a run with other rows or targets and numbers or functions: go on"
    refused(both, make(C=1.0), OTHERS["rows"][1], state)


@pytest.mark.long
def test_a_linear_machine_and_one_on_features_are_told_apart_by_their_numbers():
    solver = jaxsvm.on_features(
        jaxsvm.features.fourier(KEY, RBF, features=8, dim=3), jaxsvm.sdca(1.0)
    )
    other = jaxsvm.on_features(
        jaxsvm.features.fourier(jax.random.key(1), RBF, features=8, dim=3), jaxsvm.sdca(1.0)
    )
    state = fit(solver, DATA, KEY, steps=10).state
    fit(solver, DATA, state=state, steps=2)
    refused("comes from a run with other kernels or features", other, DATA, state)
    state = fit(jaxsvm.sdca(1.0), DATA, KEY, steps=10).state
    refused("comes from a run with other numbers", jaxsvm.sdca(1.1), DATA, state)
    refused(
        "comes from a run with other numbers",
        jaxsvm.sdca(1.0, loss=losses.smooth_hinge(0.5)),
        DATA,
        state,
    )


def test_another_tolerance_goes_on_to_the_optimum_of_libsvm():
    rough = fit(jaxsvm.decomposition(10.0, RBF, tol=0.5), DATA, KEY)
    fine = fit(jaxsvm.decomposition(10.0, RBF, tol=1e-5), DATA, state=rough.state)
    theirs = SVC(C=10.0, gamma=0.5, tol=1e-8).fit(X, Y)
    np.testing.assert_allclose(fine.model(DATA.x), theirs.decision_function(X), atol=2e-4)


def test_states_that_hold_no_sums_go_on_with_other_rows_and_numbers():
    """But not with other weights, of which the sampler holds sums."""
    solver = jaxsvm.pegasos(0.1)
    state = fit(solver, DATA, KEY, steps=20).state
    for name in ("rows", "signs", "order", "targets"):
        assert fit(jaxsvm.pegasos(0.2), OTHERS[name][1], state=state, steps=200).finite
    refused("comes from a run with other weights", solver, OTHERS["weights"][1], state)


@pytest.mark.parametrize(
    "make",
    [lambda number: jaxsvm.nu_svc(number, RBF), lambda number: jaxsvm.wolfe(number, RBF)],
    ids=["nu_svc", "wolfe"],
)
def test_states_with_sums_of_the_rows_go_on_with_other_numbers_alone(make):
    """The optimum is that of a run from the start."""
    state = fit(make(0.3), DATA, KEY, steps=3).state
    for what, data in OTHERS.values():
        refused(f"comes from a run with other {what}", make(0.3), data, state)
    options = {"steps": 300, "tol": 1e-4}
    found, wanted = (
        fit(make(0.4), DATA, state=state, **options),
        fit(make(0.4), DATA, KEY, **options),
    )
    assert found.converged and wanted.converged
    np.testing.assert_allclose(
        found.model(X), wanted.model(X), atol=0.02 * np.abs(wanted.model(X)).max()
    )


def test_least_squares_adds_no_rows_to_the_sums_of_others():
    state = fit(jaxsvm.least_squares(0.1), DATA, KEY).state
    for what, data in OTHERS.values():
        refused(f"comes from a run with other {what}", jaxsvm.least_squares(0.1), data, state)


def test_a_state_of_no_kernel_does_not_go_on_with_features():
    """Of as many columns as the rows."""
    on_features = jaxsvm.on_features(jnp.tanh, jaxsvm.pegasos(0.1))
    state = fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=2).state
    refused("comes from a run with other kernels or features", on_features, DATA, state)


@pytest.mark.parametrize(
    "solver",
    [jaxsvm.pegasos(0.1), jaxsvm.decomposition(1.0, RBF)],
    ids=["pegasos", "decomposition"],
)
def test_a_state_that_a_transformed_function_closes_over(solver):
    """Its rows are traced, and so are not compared; the state is not."""
    state = fit(solver, DATA, KEY, steps=2).state
    values = jax.jit(lambda data: fit(solver, data, state=state, steps=2).model(X))
    np.testing.assert_allclose(
        values(DATA), fit(solver, DATA, state=state, steps=2).model(X), atol=1e-5
    )


def test_newton_goes_on_with_other_rows_but_not_with_other_weights():
    data = OTHERS["rows"][1]
    solver = jaxsvm.newton(0.1)
    again = fit(solver, data, state=fit(solver, DATA, KEY).state)
    np.testing.assert_allclose(again.model.w, fit(solver, data, KEY).model.w, atol=1e-5)
    refused(
        "comes from a run with other weights",
        solver,
        OTHERS["weights"][1],
        fit(solver, DATA, KEY).state,
    )


def test_newton_goes_on_with_another_number_to_its_own_optimum():
    state = fit(jaxsvm.newton(0.1), DATA, KEY).state
    fresh = fit(jaxsvm.newton(0.02), DATA, KEY)
    for start in (
        state,
        state._replace(
            solver=jax.tree.map(lambda a: -3 * a if a.dtype == np.float32 else a, state.solver)
        ),
    ):
        warm = fit(jaxsvm.newton(0.02), DATA, state=start)
        assert warm.converged
        np.testing.assert_allclose(warm.model.w, fresh.model.w, atol=1e-5)


def test_what_works_its_sums_out_anew_takes_other_rows_but_not_other_weights():
    for solver in (jaxsvm.interior_point(1.0), jaxsvm.augmented_lagrangian(1.0)):
        state = fit(solver, DATA, KEY).state
        for name in ("rows", "signs", "order", "targets"):
            data = OTHERS[name][1]
            again, fresh = fit(solver, data, state=state, steps=20), fit(solver, data, KEY)
            np.testing.assert_allclose(again.model.w, fresh.model.w, atol=1e-4)
        refused("comes from a run with other weights", solver, OTHERS["weights"][1], state)


def test_a_saved_run_carries_what_it_was_made_of(tmp_path):
    solver = jaxsvm.smo(1.0, RBF)
    fit(solver, DATA, KEY, steps=20, save=tmp_path / "run.npz")
    state = models.load(tmp_path / "run.npz")
    fit(solver, DATA, state=state, steps=2)
    refused("comes from a run with other rows", solver, OTHERS["rows"][1], state)


def test_a_state_of_unknown_origin_is_taken():
    solver = jaxsvm.smo(1.0, RBF)
    state = fit(solver, DATA, KEY, steps=20).state
    assert fit(solver, DATA, state=state._replace(origin=None), steps=2).state.origin is not None


def test_streams_know_their_kernel_and_with_entries_for_rows_their_numbers():
    chunks = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    state = stream(jaxsvm.bsgd(0.1, RBF, budget=8), chunks, KEY).state
    stream(jaxsvm.bsgd(0.2, RBF, budget=8), chunks, state=state)
    for more in (chunks, []):
        with pytest.raises(
            ValueError, match="^state comes from a run with other kernels or features"
        ):
            stream(jaxsvm.bsgd(0.1, kernels.rbf(2.0), budget=8), more, state=state)
    state = stream(jaxsvm.sdca(1.0), chunks, KEY, rows=40).state
    stream(jaxsvm.sdca(1.0), chunks, state=state, rows=40)
    with pytest.raises(ValueError, match="^state comes from a run with other numbers or functions"):
        stream(jaxsvm.sdca(2.0), chunks, state=state, rows=40)


# Files of select

CS = np.array([0.1, 1.0, 10.0], "f")
OPTIONS = {"C": CS, "folds": 2, "progress": False}


def with_scales(scales):
    return lambda C: jaxsvm.decomposition(C, kernels.rbf(gamma=jnp.array(scales, "f")))


def with_degree(degree):
    return lambda C: jaxsvm.decomposition(C, kernels.polynomial(1.0, 1.0, degree=degree))


PAIRS = {
    "an array": (with_scales([1, 1, 1]), with_scales([50, 50, 50])),
    "a number of a kernel": (with_degree(2), with_degree(3)),
    "a loss": (
        lambda C: jaxsvm.decomposition(C, RBF),
        lambda C: jaxsvm.decomposition(C, RBF, loss=losses.squared_hinge),
    ),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", PAIRS)
def test_a_file_of_select_belongs_to_its_solvers(name, tmp_path):
    path, (first, second) = tmp_path / "grid.npz", PAIRS[name]
    wanted = select(first, DATA, KEY, save=path, **OPTIONS)
    found = select(first, DATA, KEY, save=path, **OPTIONS)
    np.testing.assert_array_equal(found.table.values, wanted.table.values)
    with pytest.raises(
        ValueError,
        match="is of another call of select, with other data, axes, solvers or options: delete",
    ):
        select(second, DATA, KEY, save=path, **OPTIONS)


CHANGES = {
    "values of another shape": lambda a: {**a, "values": a["values"][:1]},
    "values of another type": lambda a: {**a, "values": a["values"].astype("f8").astype(str)},
    "done of another shape": lambda a: {**a, "done": a["done"].T},
    "done a scalar": lambda a: {**a, "done": np.True_},
    "no gap": lambda a: {k: v for k, v in a.items() if k != "gap"},
    "gap of strings": lambda a: {**a, "gap": np.full(np.shape(a["gap"]), "x")},
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_edited_file_of_select_is_refused_in_a_sentence(name, tmp_path):
    path = tmp_path / "grid.npz"
    maker = lambda C: jaxsvm.decomposition(C, RBF)
    select(maker, DATA, KEY, save=path, **OPTIONS)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **CHANGES[name](arrays))
    with pytest.raises(
        ValueError,
        match=r"grid\.npz' cannot be read as one of select: delete it, or give another name",
    ):
        select(maker, DATA, KEY, save=path, **OPTIONS)


@pytest.mark.filterwarnings("ignore:the state could not be saved")
def test_a_selection_whose_results_cannot_be_saved_is_not_lost(tmp_path, monkeypatch):
    maker = lambda C: jaxsvm.decomposition(C, RBF)
    wanted = select(maker, DATA, KEY, **OPTIONS)
    monkeypatch.setattr(
        "jaxsvm.loops.selection_file.Results._write",
        lambda self, path: (_ for _ in ()).throw(OSError("disk full")),
    )
    with pytest.raises(
        jaxsvm.loops.SaveError, match=r"the selection is complete, but its results .* \(disk full\)"
    ) as caught:
        select(maker, DATA, KEY, save=tmp_path / "grid.npz", **OPTIONS)
    np.testing.assert_array_equal(caught.value.run.table.values, wanted.table.values)


@pytest.mark.filterwarnings("ignore:the state could not be saved")
def test_a_file_that_another_selection_writes_is_left_to_it(tmp_path, monkeypatch):
    path, record = tmp_path / "grid.npz", Results.record

    def patched(self, *args):
        path.write_bytes(b"of another call")
        record(self, *args)

    monkeypatch.setattr(Results, "record", patched)
    with pytest.raises(
        jaxsvm.loops.SaveError, match="the selection is complete, .*another run has written"
    ):
        select(lambda C: jaxsvm.decomposition(C, RBF), DATA, KEY, save=path, **OPTIONS)
    assert path.read_bytes() == b"of another call"


# What a state carries


def test_rows_of_many_are_not_read_where_nothing_depends_on_them(monkeypatch):
    monkeypatch.setattr(origin, "MANY", len(X) - 1)
    pegasos, sdca = (
        fit(solver, DATA, KEY, steps=2).state.origin
        for solver in (jaxsvm.pegasos(0.1), jaxsvm.sdca(0.1))
    )
    known = [True, True, True, True, False]  # weights, features, numbers, classes; no columns
    assert (pegasos[1:] != 0).tolist() == (sdca[1:] != 0).tolist() == known
    assert pegasos[0] == 0 != sdca[0]


def test_rows_are_read_once_for_a_data_set(monkeypatch):
    data = jaxsvm.dataset(X + 1, Y)
    read, crc32 = [], zlib.crc32
    monkeypatch.setattr(
        origin.zlib, "crc32", lambda a, *more: read.append(len(a)) or crc32(a, *more)
    )
    states = [fit(jaxsvm.sdca(0.1), data, KEY, steps=2).state for _ in range(5)]
    assert read.count(4 * X.size) == 1
    fit(jaxsvm.sdca(0.1), data, state=states[0], steps=2)
    assert read.count(4 * X.size) == 1
    del data
    gc.collect()
    fit(jaxsvm.sdca(0.1), jaxsvm.dataset(X + 1, Y), state=states[0], steps=2)
    assert read.count(4 * X.size) == 2


def test_checksums_are_those_of_the_values():
    """Of the type that they have in JAX, on the host and on a device; one bit makes another."""
    of = lambda *parts: origin.crc_of(list(parts))
    assert of(X) == of(jnp.asarray(X)) == of(X.astype(np.float64)) != of(-X)
    assert of(KEY) == of(jax.random.key(0)) != of(jax.random.key(1))
    half = jnp.asarray(X, jnp.bfloat16)
    assert of(half) == of(np.asarray(half)) != of(half.at[0, 0].add(1))
    assert len({of(X, Y), of(Y, X), of(X), of(X, "a"), of("a", X), of()}) == 6
    assert jax.jit(lambda x: jnp.int32(of(x)))(X) == 0  # not known


def test_functions_are_told_apart_by_their_names():
    def first(x, z):
        return x @ z.T

    def second(x, z):
        return (x @ z.T) ** 2

    make = lambda fn: jaxsvm.decomposition(1.0, kernels.custom(fn))
    state = fit(make(first), DATA, KEY).state
    fit(make(first), DATA, state=state, steps=2)
    refused("comes from a run with other kernels", make(second), DATA, state)


def test_a_constant_of_a_function_is_the_same_inside_of_jit():
    scale = 0.1  # which float32 rounds
    solver = jaxsvm.smo(1.0, kernels.custom(lambda x, z: jnp.exp(scale * (x @ z.T))))
    state = fit(solver, DATA, KEY, steps=20).state
    assert jax.jit(lambda state: fit(solver, DATA, state=state, steps=5))(state).finite
