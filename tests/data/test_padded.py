"""Data sets with padding: `dataset(pad=True)` gives what the rows without padding give."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import D, rows
from compiling import listen
from contract import ENGINES, FACTORIES

import jaxsvm
from jaxsvm import kernels, samplers

KEY = jax.random.key(3)
# cut in blocks with their padding, or with a map of rows without columns of zeros
OTHERS = ("cocoa", "on_features", "fogd")
SOLVERS = [
    case
    for case in FACTORIES
    if case in ENGINES or case.targets != "labels" or case.exact
    if not case.text.startswith(OTHERS)
]


def both(kind="weighted", targets="labels", **options):
    """The rows of the cases without and with padding."""
    x, y, weight, query = rows(kind, targets)
    tasks = {"labels": "binary", "classes": "multiclass", "grades": "ranking"}
    how = {"query": query, "task": tasks.get(targets, "regression"), **options}
    make = lambda pad: jaxsvm.dataset(x.astype(np.float32), y, weight, pad=pad, **how)
    return make(False), make(True)


@pytest.mark.long
@pytest.mark.parametrize("case", SOLVERS, ids=lambda case: case.text)
def test_a_run_is_that_without_padding(case):
    plain, padded = both(targets=case.targets)
    how = {"steps": 2} if case.exact else {"passes": 2.5, "every": 20}
    one, two = (jaxsvm.fit(case.at(), data, KEY, **how) for data in (plain, padded))
    np.testing.assert_array_equal(one.info.step, two.info.step)
    # visits in another order end within the tolerance of the solver
    atol = 0.1 if case.text.startswith(("crammer", "dual_descent")) else 2e-3
    np.testing.assert_allclose(two.info.loss, one.info.loss, rtol=1e-3, atol=atol)
    values, like = two.model(padded.x)[: len(plain.y)], one.model(plain.x)
    np.testing.assert_allclose(values, like, rtol=1e-3, atol=atol * (1 + np.abs(like).max()))
    if case.targets == "labels" and one.classes.names:
        sure = np.abs(like) > 10 * atol
        np.testing.assert_array_equal(two.predict(plain.x)[sure], one.predict(plain.x)[sure])


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "sampler",
    [
        samplers.uniform(3),
        samplers.uniform(3, replace=False),
        samplers.epochs(5),
        samplers.acf(5),
        samplers.shrinking(5),
        samplers.active_rows(5),
        samplers.pairs(4),
    ],
    ids=repr,
)
def test_a_sampler_draws_the_same_rows(sampler):
    drawn = []
    for data in both(targets="grades"):
        data = data._replace(weight=data.weight * 0.7)
        length = sampler.period(data.rows) if sampler.period else 6
        assert not sampler.period or length <= sampler.period(len(data.y))

        def turn(state, k):
            index = sampler.draw(state, k * length, length)
            return sampler.feedback(state, index, jnp.where(index % 3 == 0, 0.5, 0.0)), index

        walk = lambda data: jax.lax.scan(turn, sampler.init(KEY, data), jnp.arange(4))[1]
        drawn.append(np.asarray(jax.jit(walk)(data)))
    np.testing.assert_array_equal(*drawn)
    assert np.max(drawn) < len(rows("weighted").y)


def test_padding_is_rows_of_weight_0_and_columns_of_zeros():
    plain, padded = both()
    n = len(plain.y)
    assert (padded.rows, padded.x.shape) == (n, (512, 64)) and plain.rows == n
    assert jaxsvm.shard(padded, jax.make_mesh((1,), ("rows",)), blocks=3).rows == n
    parts = jaxsvm.shard(plain, jax.make_mesh((1,), ("rows",)), blocks=7)
    assert parts.rows == n < len(parts.y) and parts.weight.sum() == plain.weight.sum()
    assert not padded.weight[n:].any() and (padded.index[n:] == -1).all()
    np.testing.assert_array_equal(padded.x[:n, :D], plain.x)
    assert not padded.x[:, D:].any()
    np.testing.assert_array_equal(padded.y[:n], plain.y)
    assert repr(padded).startswith(f"Batch of {n} rows of {D} columns, padded to 512 of 64, float")
    sizes = {512: (512, 64), 514: (2048, 64), 2050: (4096, 128), 4098: (8192, 128)}
    for n, size in sizes.items():
        wide = jaxsvm.dataset(np.eye(n, size[1] - 1), [1, -1] * (n // 2), pad=True)
        assert wide.x.shape == size


@pytest.mark.long
@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, lambda x: x.astype(np.float64)])
def test_sparse_rows_and_several_targets_are_padded(form):
    x, y = np.eye(30, 40), np.stack([np.arange(30) % 2, np.arange(30) % 3 > 0], axis=1)
    data = jaxsvm.dataset(form(x), y, pad=True)
    assert data.x.shape == (512, 64) and data.y.shape == (512, 2) and data.rows == 30
    solver = jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=2)
    result, plain = (jaxsvm.fit(solver, each, KEY) for each in (data, jaxsvm.dataset(form(x), y)))
    np.testing.assert_array_equal(result.predict(form(x)), plain.predict(form(x)))


def test_a_padded_data_set_of_traced_rows():
    x, y = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0])
    make = jax.jit(lambda x: jaxsvm.dataset(x, y, pad=True))
    data, like = make(x), jaxsvm.dataset(x, y, pad=True)
    jax.tree.map(np.testing.assert_array_equal, data, like)


@pytest.mark.long
def test_probes_certificates_and_splits_see_the_rows_without_padding(tmp_path):
    plain, padded = both("padded")
    machine = jaxsvm.kernel_svm(1.0, kernels.rbf(gamma=1.0))
    one, two = (jaxsvm.fit(machine, data, KEY) for data in (plain, padded))
    for probe in (jaxsvm.error_on, jaxsvm.risk_on):
        value = probe(padded)(two.model)
        np.testing.assert_allclose(value, probe(plain)(one.model), rtol=1e-4)
        # rows without padding by the classifier, and as a probe of `fit`
        np.testing.assert_allclose(probe(plain)(two.classifier), value, rtol=1e-5)
    told = jaxsvm.fit(machine, padded, KEY, probe=probe(plain)).info.probe
    np.testing.assert_allclose(told[-1], value, rtol=1e-5)
    lam = 1 / float(plain.weight.sum())
    proof, like = (
        jaxsvm.certificate(run.model, data, lam) for run, data in ((two, padded), (one, plain))
    )
    np.testing.assert_allclose(proof.primal, like.primal, rtol=1e-5)
    np.testing.assert_allclose(proof.gap, like.gap, atol=1e-5)
    parts = [jaxsvm.data.split(KEY, data, 2, 1) for data in (plain, padded)]
    for part, like in zip(parts[1], parts[0], strict=True):
        np.testing.assert_array_equal(part.x[:, :D], like.x)
        np.testing.assert_array_equal(part.weight, like.weight)
    jaxsvm.models.save(tmp_path / "model.npz", two.classifier)
    loaded = jaxsvm.models.load(tmp_path / "model.npz")
    for x in (plain.x, padded.x[: len(plain.y)]):
        np.testing.assert_array_equal(loaded.predict(x), one.predict(plain.x))
        np.testing.assert_array_equal(two.predict(x), one.predict(plain.x))
    with pytest.raises(ValueError, match=f"x must have {D} columns"):
        two.predict(np.zeros((2, D + 1)))


@pytest.mark.long
def test_columns_of_a_frame_are_taken_by_name():
    pandas = pytest.importorskip("pandas")
    x, y, *_ = rows("plain")
    frame = pandas.DataFrame(x.astype(np.float32), columns=list("abc"))
    data = jaxsvm.dataset(frame, y, pad=True)
    result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    other = frame[["c", "a", "b"]]
    np.testing.assert_array_equal(result.predict(other), result.predict(frame))
    test = jaxsvm.dataset(other, y, pad=True)
    error = jaxsvm.error_on(test)(result.classifier)
    np.testing.assert_allclose(error, jaxsvm.error_on(data)(result.model), rtol=1e-6)


@pytest.mark.long
def test_select_and_sweep_take_padded_rows():
    run = lambda lam, data: jaxsvm.fit(jaxsvm.pegasos(lam), data, KEY, steps=48).model
    swept = jaxsvm.sweep(run, lam=jnp.array([0.01, 0.1]), progress=False)
    select = functools.partial(jaxsvm.select, jaxsvm.linear_svm, C=[0.1, 1.0], folds=3)
    plain, padded = both("plain")
    np.testing.assert_allclose(swept(padded).w[:, :D], swept(plain).w, rtol=1e-4, atol=1e-5)
    best, like = (select(data, KEY, progress=False).best for data in (padded, plain))
    assert best == like


def test_data_sets_of_many_shapes_share_programs():
    machine = jaxsvm.kernel_svm(1.0, kernels.rbf(gamma=0.5))
    random = np.random.default_rng(0)

    def job(n, d):
        x = random.normal(size=(n, d)).astype(np.float32)
        x = np.asarray(jaxsvm.data.standardize(x)(x))
        data = jaxsvm.dataset(x, np.sign(x[:, 0]), pad=True)
        for solver, how in ((machine, {}), (jaxsvm.pegasos(0.1), {"passes": 2})):
            result = jaxsvm.fit(solver, data, KEY, **how)
            jaxsvm.error_on(data)(result.model)
            result.predict(x)

    job(100, 3)
    events = listen()
    job(201, 17)
    assert not [event for event in events if event.endswith("backend_compile_duration")]


@pytest.mark.long
def test_a_run_of_one_update_is_one_program_and_an_error_at_most_another():
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    data, events = jaxsvm.dataset(x, np.sign(x[:, 0])), listen()
    programs = lambda: sum(event.endswith("backend_compile_duration") for event in events)
    for machine, most in (
        (jaxsvm.kernel_svm(1.0, kernels.rbf(0.5)), 2),
        (jaxsvm.linear_svm(1.0), 1),
    ):
        before, result = programs(), jaxsvm.fit(machine, data, KEY)
        assert result.converged and result.state.step == 1 and programs() == before + 1
        jaxsvm.error_on(data)(result.model)
        assert programs() <= before + most
        onwards = jaxsvm.fit(machine, data, state=result.state, steps=1)
        assert onwards.state.step == 2 and onwards.converged
