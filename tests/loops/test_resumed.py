"""States and files go on with the rows, numbers and functions that they were made with, and no
others."""

import functools
import pathlib
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
RBF, DROP = kernels.rbf(1.0), jaxsvm.budget.remove()

SIGNS = jnp.array([[-1.0, -1, 1]])
OTHER_ROWS = DATA._replace(x=DATA.x.at[7, 1].add(1.0))
SAME_WEIGHTS = [OTHER_ROWS, DATA._replace(x=DATA.x * SIGNS), DATA._replace(x=DATA.x[::-1])]
SAME_WEIGHTS += [DATA._replace(y=-DATA.y)]
OTHER_BOTH = OTHER_ROWS._replace(weight=2 * DATA.weight)
OTHER_WEIGHTS = DATA._replace(weight=DATA.weight.at[3].set(2.0))


def refused(words, solver, data, state):
    """The call is refused in these words, and nothing else is said."""
    with pytest.raises(ValueError, match=f"^state comes from a run with other {words}"):
        fit(solver, data, state=state, steps=2)


def on_kernel(make):
    """Each is refused with other kernels, other numbers, or both these and other rows."""
    solver = make(10.0, RBF)
    others = [("kernels", make(10.0, kernels.rbf(0.2)), DATA), ("numbers", make(1.0, RBF), DATA)]
    both = "rows or targets and numbers or functions: go on"
    return solver, True, [*others, (both, make(1.0, RBF), OTHER_ROWS)]


def first(x, z):
    return x @ z.T


def second(x, z):
    return (x @ z.T) ** 2


def in_features(seed):
    phi = jaxsvm.features.fourier(jax.random.key(seed), RBF, features=8, dim=3)
    return jaxsvm.on_features(phi, jaxsvm.sdca(1.0))


of_function = lambda fn: jaxsvm.decomposition(1.0, kernels.custom(fn))
PEGASOS, NEWTON, LINEAR = jaxsvm.pegasos(0.1), jaxsvm.newton(0.1), jaxsvm.sdca(1.0)
CURVED = jaxsvm.sdca(1.0, loss=losses.smooth_hinge(0.5))
LIFTED, NARROW = jaxsvm.on_features(jnp.tanh, PEGASOS), jaxsvm.nu_svc(0.3, kernels.rbf(0.2))
with_other = lambda words, solver: [(words, solver, DATA)]
STATES = {  # the solver, whether it holds sums over rows, and what else it does not go on with
    "decomposition": on_kernel(jaxsvm.decomposition),
    "pegasos": (PEGASOS, False, with_other("kernels or features", LIFTED)),
    "functions": (of_function(first), True, with_other("kernels", of_function(second))),
    "least squares": (jaxsvm.least_squares(0.1), True, []),
    "newton": (NEWTON, False, []),
    "lasvm": on_kernel(jaxsvm.lasvm),
    "smo": on_kernel(jaxsvm.smo),
    "sdca on a kernel": on_kernel(jaxsvm.sdca),
    "nu_svc": (jaxsvm.nu_svc(0.3, RBF), True, with_other("kernels", NARROW)),
    "wolfe": (jaxsvm.wolfe(0.3, RBF), True, []),
    "sdca": (LINEAR, True, [("numbers", jaxsvm.sdca(1.1), DATA), ("numbers", CURVED, DATA)]),
    "features": (in_features(0), True, with_other("kernels or features", in_features(1))),
    "interior_point": (jaxsvm.interior_point(1.0), False, []),
    "augmented_lagrangian": (jaxsvm.augmented_lagrangian(1.0), False, []),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", STATES)
def test_what_a_state_goes_on_with(name, tmp_path):
    """With the same rows and numbers; with others where it holds no sums over them."""
    solver, sums, others = STATES[name]
    twice = {name: 2.0 * value for name, value in vars(solver).items() if name in ("lam", "C")}
    another = solver.replace(**twice)
    state = fit(solver, DATA, KEY, steps=30, save=tmp_path / "run.npz").state
    fit(solver, jaxsvm.dataset(X.copy(), Y), state=state, steps=2)  # the same in other memory
    for data in SAME_WEIGHTS:
        if sums:
            refused("rows or targets", solver, data, state)
        else:
            assert fit(another, data, state=state, steps=2).finite
    refused("weights", solver, OTHER_WEIGHTS, state)
    for words, other, data in others:
        refused(words, other, data, state)
    loaded = models.load(tmp_path / "run.npz")
    fit(solver, DATA, state=loaded, steps=2)
    refused("rows or targets" if sums else "weights", solver, OTHER_BOTH, loaded)


ANEW = {
    "newton": (NEWTON, 1e-5),
    "interior_point": (jaxsvm.interior_point(1.0), 1e-4),
    "augmented_lagrangian": (jaxsvm.augmented_lagrangian(1.0), 1e-4),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ANEW)
def test_what_works_its_sums_out_anew_takes_other_rows(name):
    solver, atol = ANEW[name]
    state = fit(solver, DATA, KEY).state
    for data in SAME_WEIGHTS:
        again, fresh = fit(solver, data, state=state, steps=20), fit(solver, data, KEY)
        np.testing.assert_allclose(again.model.w, fresh.model.w, atol=atol)


@pytest.mark.long
def test_another_tolerance_goes_on_to_the_optimum_of_libsvm():
    rough = fit(jaxsvm.decomposition(10.0, RBF, tol=0.5), DATA, KEY)
    fine = fit(jaxsvm.decomposition(10.0, RBF, tol=1e-5), DATA, state=rough.state)
    theirs = SVC(C=10.0, gamma=0.5, tol=1e-8).fit(X, Y)
    np.testing.assert_allclose(fine.model(DATA.x), theirs.decision_function(X), atol=2e-4)


def spoilt(state):
    wrong = lambda a: -3 * a if a.dtype == np.float32 else a
    return state._replace(solver=jax.tree.map(wrong, state.solver))


ROUGH = {"steps": 300, "tol": 1e-4}
OTHER_NUMBERS = [  # the solver, two numbers, options, what becomes of the state
    (jaxsvm.newton, 0.1, 0.02, {}, lambda state: state),
    (jaxsvm.newton, 0.1, 0.02, {}, spoilt),
    (functools.partial(jaxsvm.wolfe, kernel=RBF), 0.3, 0.4, ROUGH, lambda state: state),
    (functools.partial(jaxsvm.nu_svc, kernel=RBF), 0.3, 0.4, ROUGH, lambda state: state),
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("make", "old", "new", "options", "change"), OTHER_NUMBERS)
def test_states_go_on_with_other_numbers_to_their_optimum(make, old, new, options, change):
    state = change(fit(make(old), DATA, KEY, steps=3).state)
    found = fit(make(new), DATA, state=state, **options)
    wanted = fit(make(new), DATA, KEY, **options)
    assert found.converged and wanted.converged
    values = wanted.model(X)
    atol = 0.02 * np.abs(values).max() if options else 1e-5
    np.testing.assert_allclose(found.model(X), values, atol=atol)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("solver", [PEGASOS, jaxsvm.decomposition(1.0, RBF)], ids=repr)
def test_a_state_that_a_transformed_function_closes_over(solver):
    """Its rows are traced, and so are not compared; the state is not."""
    state = fit(solver, DATA, KEY, steps=2).state
    values = lambda data: fit(solver, data, state=state, steps=2).model(X)
    np.testing.assert_allclose(jax.jit(values)(DATA), values(DATA), atol=1e-5)


@pytest.mark.long
def test_a_state_of_unknown_origin_is_taken():
    solver = jaxsvm.smo(1.0, RBF)
    state = fit(solver, DATA, KEY, steps=20).state
    assert fit(solver, DATA, state=state._replace(origin=None), steps=2).state.origin is not None


@pytest.mark.long
def test_streams_know_their_kernel_and_with_entries_for_rows_their_numbers():
    chunks, rows = [(X[:20], Y[:20]), (X[20:], Y[20:])], {"rows": 40}
    bsgd = lambda lam, kernel=RBF: jaxsvm.bsgd(lam, kernel, budget=8, maintain=DROP)
    state, sums = stream(bsgd(0.1), chunks, KEY).state, stream(LINEAR, chunks, KEY, **rows).state
    stream(bsgd(0.2), chunks, state=state)
    stream(LINEAR, chunks, state=sums, **rows)
    for solver, parts, of, options, words in (
        (bsgd(0.1, kernels.rbf(2.0)), chunks, state, {}, "kernels or features"),
        (bsgd(0.1, kernels.rbf(2.0)), [], state, {}, "kernels or features"),
        (jaxsvm.sdca(2.0), chunks, sums, rows, "numbers or functions"),
    ):
        with pytest.raises(ValueError, match=f"^state comes from a run with other {words}"):
            stream(solver, parts, state=of, **options)


# Files of select

CS = np.array([0.1, 1.0, 10.0], "f")
MACHINE = lambda C: jaxsvm.decomposition(C, RBF)


def chosen(maker=MACHINE, **options):
    return select(maker, DATA, KEY, C=CS, folds=2, progress=False, **options)


def with_scales(scale):
    return lambda C: jaxsvm.decomposition(C, kernels.rbf(gamma=jnp.array([scale] * 3, "f")))


def with_degree(degree):
    return lambda C: jaxsvm.decomposition(C, kernels.polynomial(1.0, 1.0, degree=degree))


PAIRS = {
    "an array": (with_scales(1), with_scales(50)),
    "a number of a kernel": (with_degree(2), with_degree(3)),
    "a loss": (MACHINE, lambda C: jaxsvm.decomposition(C, RBF, loss=losses.squared_hinge)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_a_file_of_select_belongs_to_its_solvers(name, tmp_path):
    path, (first, second) = tmp_path / "grid.npz", PAIRS[name]
    wanted, found = (chosen(first, save=path) for _ in range(2))
    np.testing.assert_array_equal(found.table.values, wanted.table.values)
    words = "is of another call of select, with other data, axes, solvers or options: delete"
    with pytest.raises(ValueError, match=words):
        chosen(second, save=path)


CHANGES = {
    "values of another shape": lambda a: {**a, "values": a["values"][:1]},
    "values of another type": lambda a: {**a, "values": a["values"].astype("f8").astype(str)},
    "done of another shape": lambda a: {**a, "done": a["done"].T},
    "done a scalar": lambda a: {**a, "done": np.True_},
    "no gap": lambda a: {k: v for k, v in a.items() if k != "gap"},
    "gap of strings": lambda a: {**a, "gap": np.full(np.shape(a["gap"]), "x")},
}


@pytest.mark.long
def test_an_edited_file_of_select_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "grid.npz"
    chosen(save=path)
    with np.load(path) as file:
        arrays = dict(file)
    for change in CHANGES.values():
        np.savez(path, **change(arrays))
        words = r"grid\.npz' cannot be read as one of select: delete it, or give another name"
        with pytest.raises(ValueError, match=words):
            chosen(save=path)


def full(self, path):
    raise OSError("disk full")


def by_another(self, *args, record=Results.record):
    pathlib.Path(self.saver.path).write_bytes(b"of another call")
    record(self, *args)


@pytest.mark.filterwarnings("ignore:the state could not be saved")
@pytest.mark.parametrize(
    ("method", "how", "words"),
    [("_write", full, r"\(disk full\)"), ("record", by_another, "another run has written")],
)
def test_a_selection_whose_results_cannot_be_saved_is_not_lost(
    tmp_path, monkeypatch, method, how, words
):
    """A file that another selection writes is left to it."""
    path, wanted = tmp_path / "grid.npz", chosen()
    monkeypatch.setattr(Results, method, how)
    with pytest.raises(jaxsvm.SaveError, match=f"the selection is complete, .*{words}") as caught:
        chosen(save=path)
    np.testing.assert_array_equal(caught.value.run.table.values, wanted.table.values)
    assert how is full or path.read_bytes() == b"of another call"


# What a state carries


@pytest.mark.long
def test_rows_of_many_are_not_read_where_nothing_depends_on_them(monkeypatch):
    monkeypatch.setattr(origin, "MANY", len(X) - 1)
    pegasos, sdca = (fit(s, DATA, KEY, steps=2).state.origin for s in (PEGASOS, LINEAR))
    known = [True, True, True, True, False]  # weights, features, numbers, classes; no columns
    assert (pegasos[1:] != 0).tolist() == (sdca[1:] != 0).tolist() == known
    assert pegasos[0] == 0 != sdca[0]


def test_rows_are_read_once_for_a_data_set(monkeypatch):
    data = jaxsvm.dataset(X + 1, Y)
    read, crc32 = [], zlib.crc32
    spy = lambda a, *more: read.append(len(a)) or crc32(a, *more)
    monkeypatch.setattr(origin.zlib, "crc32", spy)
    states = [fit(jaxsvm.sdca(0.1), data, KEY, steps=2).state for _ in range(5)]
    assert read.count(4 * X.size) == 1
    fit(jaxsvm.sdca(0.1), data, state=states[0], steps=2)
    assert read.count(4 * X.size) == 1
    del data
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


@pytest.mark.long
def test_a_constant_of_a_function_is_the_same_inside_of_jit():
    scale = 0.1  # which float32 rounds
    solver = jaxsvm.smo(1.0, kernels.custom(lambda x, z: jnp.exp(scale * (x @ z.T))))
    state = fit(solver, DATA, KEY, steps=20).state
    assert jax.jit(lambda state: fit(solver, DATA, state=state, steps=5))(state).finite
