"""States and files go on with the rows, numbers and functions that they were made with, and no
others."""

import importlib
import itertools
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import fit, kernels, losses, models, select, stream
from jaxsvm.loops import identity
from jaxsvm.loops.selection_file import Results
from jaxsvm.numerics import hashing

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
    "rows": ("rows", DATA._replace(x=DATA.x.at[7, 1].add(1.0))),
    "signs": ("rows", DATA._replace(x=DATA.x * jnp.array([[-1.0, -1, 1]]))),
    "order": ("rows", DATA._replace(x=DATA.x[::-1])),
    "targets": ("targets or queries", DATA._replace(y=-DATA.y)),
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
    both = "comes from a run with other rows and numbers or functions: go on"
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
    solver = jaxsvm.pegasos(0.1)
    state = fit(solver, DATA, KEY, steps=20).state
    for _, data in OTHERS.values():
        assert fit(jaxsvm.pegasos(0.2), data, state=state, steps=200).finite


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


def test_rows_of_many_are_not_read_where_nothing_depends_on_them(monkeypatch):
    module = importlib.import_module("jaxsvm.loops.fitting")
    monkeypatch.setattr(module, "MANY", len(X) - 1)
    origins = [
        fit(solver, DATA, KEY, steps=2).state.origin
        for solver in (jaxsvm.pegasos(0.1), jaxsvm.sdca(0.1))
    ]
    known = [True, True, True, False, True]  # features, numbers, names of classes; no columns
    assert not origins[0][:3].any() and origins[1][:3].all()
    assert all((origin[3:] != 0).tolist() == known for origin in origins)


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
    """Its rows and numbers are traced, the state is not."""
    state = fit(solver, DATA, KEY, steps=2).state
    values = jax.jit(lambda data: fit(solver, data, state=state, steps=2).model(X))
    np.testing.assert_allclose(
        values(DATA), fit(solver, DATA, state=state, steps=2).model(X), atol=1e-5
    )
    assert np.isnan(values(OTHERS["rows"][1])).all() == solver.needs_all_rows


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


def test_functions_are_told_apart_by_their_code_and_what_they_close_over():
    def kernel(scale):
        return kernels.custom(
            lambda x, z: jnp.exp(-scale * jnp.sum((x[:, None] - z[None]) ** 2, -1))
        )

    state = fit(jaxsvm.decomposition(1.0, kernel(1.0)), DATA, KEY).state
    fit(jaxsvm.decomposition(1.0, kernel(1.0)), DATA, state=state, steps=2)
    refused(
        "comes from a run with other kernels", jaxsvm.decomposition(1.0, kernel(2.0)), DATA, state
    )
    other = kernels.custom(lambda x, z: (x @ z.T) ** 2)
    refused("comes from a run with other kernels", jaxsvm.decomposition(1.0, other), DATA, state)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s._replace(coef=s.coef * 100),
        lambda s: s._replace(grad=s.grad[::-1]),
        lambda s: s._replace(coef=-s.coef),
        lambda s: s._replace(grad=s.grad.at[0].add(1e-3)),
    ],
    ids=["above C", "another gradient", "other signs", "one entry"],
)
def test_a_state_that_was_changed_is_refused_by_the_run_and_from_its_file(change, tmp_path):
    solver = jaxsvm.smo(1.0, RBF)
    state = fit(solver, DATA, KEY, steps=30).state
    models.save(tmp_path / "state.npz", state)
    fit(solver, DATA, state=models.load(tmp_path / "state.npz"), steps=2)
    changed = state._replace(solver=change(state.solver))
    refused("was changed after its run", solver, DATA, changed)
    models.save(tmp_path / "state.npz", changed)
    refused("was changed after its run", solver, DATA, models.load(tmp_path / "state.npz"))


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


def test_inside_of_transformations_other_numbers_give_nan():
    solve = jax.jit(
        lambda C, state: fit(jaxsvm.smo(C, RBF), DATA, state=state, steps=20).model(DATA.x)
    )
    state = fit(jaxsvm.smo(1.0, RBF), DATA, KEY, steps=20).state
    assert np.isfinite(solve(1.0, state)).all()
    assert np.isnan(solve(2.0, state)).all()


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
    solver = state.solver
    changed = state._replace(
        solver=jax.tree.map(lambda a: a * 2 if a.dtype.kind == "f" else a, solver)
    )
    with pytest.raises(ValueError, match="^state was changed after its run"):
        stream(jaxsvm.sdca(1.0), chunks, state=changed, rows=40)


# Files of select

CS = np.array([0.1, 1.0, 10.0], "f")
OPTIONS = {"C": CS, "folds": 2, "progress": False}


def with_scales(scales):
    return lambda C: jaxsvm.decomposition(C, kernels.rbf(gamma=jnp.array(scales, "f")))


def with_kernel(fn):
    return lambda C: jaxsvm.decomposition(C, kernels.custom(fn))


PAIRS = {
    "an array": (with_scales([1, 1, 1]), with_scales([50, 50, 50])),
    "a function": (with_kernel(lambda x, z: x @ z.T), with_kernel(lambda x, z: (x @ z.T + 1) ** 3)),
    "a constant of a function": (
        with_kernel(lambda x, z: (x @ z.T + 1) ** 2),
        with_kernel(lambda x, z: (x @ z.T + 1) ** 3),
    ),
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
        "jaxsvm.loops.selection_file.ResultFile._write",
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


# Numbers of arrays


def by_hand(a):
    """The number of an array of 32-bit words (n, d), in whole numbers of Python."""
    mask = 2**32 - 1

    def mix(v):
        v = ((v ^ (v >> 16)) * 0x85EBCA6B) & mask
        v = ((v ^ (v >> 13)) * 0xC2B2AE35) & mask
        return v ^ (v >> 16)

    golden, total = 0x9E3779B9, 0
    for i, row in enumerate(a.view(np.uint32).tolist()):
        factors = [mix(j * golden & mask) | 1 for j in range(len(row))] if len(row) > 1 else [1]
        words = [b ^ b >> 16 for b in row] if len(row) > 1 else row
        total += mix((sum(b * w for b, w in zip(words, factors, strict=True)) + i * golden) & mask)
    return total & mask


@pytest.mark.parametrize(
    "a",
    [
        X,
        X[:, :1].copy(),
        np.arange(12, dtype="i4").reshape(4, 3),
        np.zeros((0, 3), "f"),
        RNG.normal(size=(90, 999)).astype("f"),
    ],
    ids=["rows", "column", "whole numbers", "no rows", "several blocks"],
)
def test_the_number_of_an_array_is_the_same_on_the_host_and_by_hand(a):
    wanted = [by_hand(a), 0]
    np.testing.assert_array_equal(hashing.fingerprints([[a], []]), wanted)
    np.testing.assert_array_equal(hashing._on_device([[jnp.asarray(a)], []]), wanted)


def test_signs_and_whole_numbers_in_other_places_have_another_number():
    """Their words differ in the upper bits only, which products mod 2^32 may lose."""
    for values in ([-1, 1], [0, 1], range(9)):
        x = RNG.choice(np.array(values, np.float32), (50, 12))
        known = hashing.fingerprints([[x]])[0]
        for i, j in itertools.combinations(range(12), 2):
            swapped, turned = x.copy(), x.copy()
            swapped[:, [i, j]] = x[:, [j, i]]
            turned[0, [i, j]] = -x[0, [i, j]]
            assert known not in {hashing.fingerprints([[a]])[0] for a in (swapped, turned)}


def test_keys_and_other_types_have_numbers():
    small = (
        np.array([True, False]),
        jnp.ones((3, 2), jnp.bfloat16),
        np.ones((3, 2), np.float16),
        KEY,
        jax.random.split(KEY),
    )
    for a in (
        *small,
        np.arange(3) * 0.1,
        np.arange(6).reshape(3, 2),
        np.array([1 + 2j, 3], "c8"),
        np.float64(0.1),
    ):
        found = hashing.fingerprints([[a]])
        np.testing.assert_array_equal(found, hashing._on_device([[a]]))
        assert found[0]


def test_a_function_of_a_module_of_the_user_counts_by_its_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    parts = []
    for body in ("x @ z.T", "SCALE * x @ z.T", "(1 + x @ z.T) ** 2", "x @ z.T"):
        (tmp_path / "kernels_of_mine.py").write_text(
            f"SCALE = 2.0\ndef kernel(x, z):\n    return {body}\n"
        )
        monkeypatch.delitem(sys.modules, "kernels_of_mine", raising=False)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        parts.append(repr(identity.parts_of(importlib.import_module("kernels_of_mine").kernel)))
    assert parts[0] == parts[3] and len(set(parts)) == 3
    assert (
        identity.parts_of(np.linalg.norm)
        == identity.parts_of(np.linalg.norm)
        != identity.parts_of(np.linalg.det)
    )


def test_functions_differ_by_the_globals_that_they_read_and_not_by_names_of_attributes():
    code = "lambda x, z: SCALE * x @ z.T"
    parts = [
        repr(identity.parts_of(eval(code, {"SCALE": scale, "T": t})))
        for scale, t in ((1.0, 2), (1.0, 3), (4.0, 2))
    ]
    assert parts[0] == parts[1] != parts[2]


def test_functions_may_close_over_what_jax_cannot_take_apart():
    class Slots:
        __slots__ = ("scale",)

        def __init__(self, scale):
            self.scale = scale

    def kernel(table):
        return lambda x, z: table["scale"] * x @ z.T

    parts = [
        repr(identity.parts_of(kernel({"scale": scale, 1: Slots(of)})))
        for scale, of in ((1, 1), (1, 1), (1, 2), (2, 1))
    ]
    assert parts[0] == parts[1] and len(set(parts)) == 3
    table = {"scale": 1.0, 1: 2.0}
    assert fit(jaxsvm.decomposition(1.0, kernel(table)), DATA, KEY).converged


def test_functions_that_refer_to_themselves_and_objects_have_parts():
    def recursive(n):
        return n and recursive(n - 1)

    class Thing:
        def __init__(self, scale):
            self.scale, self.me = scale, self

        def __call__(self, x):
            return x * self.scale

    assert identity.parts_of(recursive) == identity.parts_of(recursive)
    texts = [identity.parts_of(Thing(scale)) for scale in (1.0, 1.0, 2.0)]
    assert texts[0] == texts[1] != texts[2]
    assert "0x" not in identity.parts_of(object())[0]
    static = jax.tree_util.register_static(
        type("Static", (), {"names": np.array(["a", "b"]), "scale": 2.0})
    )()
    assert identity.parts_of(static) == identity.parts_of(static)
    names = [
        identity.parts_of([np.array(names, object)])
        for names in (["a", "b"], ["a", "b"], ["a", "c"])
    ]
    assert names[0] == names[1] != names[2]


def test_tracers_that_a_function_keeps_in_a_list_are_no_part_of_it():
    """As of a factory that counts how often it is traced."""
    kept = []

    @jaxsvm.solver
    def counting(number):
        if isinstance(number, jax.core.Tracer):
            kept.append(number)
        return jaxsvm.sdca(number)

    first = fit(counting(1.0), DATA, KEY, steps=len(X))
    assert kept
    assert int(fit(counting(1.0), DATA, state=first.state, steps=len(X)).state.step) == 2 * len(X)


def test_a_constant_of_a_function_is_the_same_inside_of_jit():
    scale = 0.1  # which float32 rounds
    solver = jaxsvm.smo(1.0, kernels.custom(lambda x, z: jnp.exp(scale * (x @ z.T))))
    state = fit(solver, DATA, KEY, steps=20).state
    assert jax.jit(lambda state: fit(solver, DATA, state=state, steps=5))(state).finite
