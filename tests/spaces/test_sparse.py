"""Sparse rows stand where dense rows stand: every kernel, solver and feature map, and nothing is
made dense."""

import dataclasses
import importlib
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from oracles import assert_same_bits

import jaxsvm
from jaxsvm import features, kernels, losses, models, numerics, samplers
from jaxsvm.numerics import sparse_products
from jaxsvm.types import SparseRows, take

FITTING = importlib.import_module("jaxsvm.loops.fitting")
lift = importlib.import_module("jaxsvm.wrappers.feature_space")

N, D = 60, 40
MATRIX = scipy.sparse.random(N, D, 0.1, random_state=0, format="csr", dtype=np.float32)
Y = np.sign(np.random.default_rng(0).normal(size=N))
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def sparse():
    return jaxsvm.dataset(MATRIX, Y)


@pytest.fixture(scope="module")
def dense():
    return jaxsvm.dataset(MATRIX.toarray(), Y)


# What rows are asked for


@pytest.mark.long
def test_shape_dtype_and_rows(sparse, dense):
    x = sparse.x
    assert isinstance(x, SparseRows)
    assert (x.shape, x.ndim, x.dtype) == ((N, D), 2, jnp.float32)
    assert x.index.shape == x.value.shape == (N, -(-int(np.diff(MATRIX.indptr).max()) // 8) * 8)
    assert x.astype(jnp.bfloat16).dtype == jnp.bfloat16
    assert np.array_equal(x[jnp.array([5, 3])].toarray(), dense.x[jnp.array([5, 3])])
    drawn = take(sparse, jnp.array([7, -1]))
    assert np.array_equal(drawn.x.toarray()[0], dense.x[7]) and drawn.weight.tolist() == [1, 0]
    assert np.array_equal(take(sparse, jnp.array([7])).x.toarray(), dense.x[7:8])


@pytest.mark.parametrize("columns", [(), (3,)])
def test_products_both_ways(sparse, dense, columns):
    """Also of rows that are pointed at; sums of at most 40 products of size about 1."""
    random = np.random.default_rng(1)
    right = random.normal(size=(D, *columns)).astype("f4")
    left = random.normal(size=(*columns, N)).astype("f4")
    x, rows, dot = np.asarray(dense.x), np.array([7, 3, 7], np.int32), jax.jit(numerics.dot)
    np.testing.assert_allclose(dot(sparse.x, right), x @ right, atol=1e-5)
    np.testing.assert_allclose(dot(left, sparse.x), left @ x, atol=1e-5)
    drawn = dataclasses.replace(sparse.x, rows=jnp.asarray(rows))
    np.testing.assert_allclose(dot(drawn, right), x[rows] @ right, atol=1e-5)
    if columns == ():
        added = jax.jit(numerics.add_rows)(right, left, sparse.x)
        np.testing.assert_allclose(added, right + left @ x, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel",
    [
        kernels.laplacian(2.0),
        kernels.linear(),
        kernels.rbf(1.0),
        kernels.polynomial(0.5),
        kernels.sigmoid(0.1),
        kernels.rbf(1.0) + 2.0 * kernels.linear(),
    ],
    ids=repr,
)
def test_kernel_blocks(sparse, dense, kernel):
    want = np.asarray(kernel(dense.x, dense.x[:7]))
    for a, b in ((sparse.x, sparse.x[:7]), (sparse.x, dense.x[:7]), (dense.x, sparse.x[:7])):
        np.testing.assert_allclose(kernel(a, b), want, atol=2e-6 * np.abs(want).max())
    turned = kernel(sparse.x[:7], sparse.x)
    np.testing.assert_allclose(turned, want.T, atol=2e-6 * np.abs(want).max())
    np.testing.assert_allclose(kernel.diag(sparse.x), kernel.diag(dense.x), rtol=1e-5)


def test_blocks_of_sparse_pairs(sparse, dense, monkeypatch):
    monkeypatch.setattr(numerics.products, "_DENSE", 7 * D)  # seven rows at a time
    found = numerics.cross_products(sparse.x, sparse.x)
    np.testing.assert_allclose(found, dense.x @ dense.x.T, atol=1e-5)


@pytest.mark.long
def test_gradients_through_products(sparse, dense):
    w = jnp.linspace(-1, 1, D)
    value = lambda x: lambda w: jnp.sum(jnp.tanh(numerics.dot(x, w)))
    np.testing.assert_allclose(jax.grad(value(sparse.x))(w), jax.grad(value(dense.x))(w), atol=1e-5)


# Solvers: the same draws, the same model

RBF = kernels.rbf(1.0)
AVERAGED = jaxsvm.averaged(jaxsvm.pegasos(1e-2, bias="feature"))


def on_landmarks(x, **options):
    """Pegasos on a map that is made of the rows."""
    phi = features.nystrom(KEY, RBF, x, landmarks=10, **options)
    return jaxsvm.on_features(phi, jaxsvm.pegasos(1e-2))


def made(solver, x):
    return solver if isinstance(solver, jaxsvm.Solver) else solver(x)


METHODS = [  # solvers, or functions of the rows that make them
    AVERAGED,
    jaxsvm.sdca(1.0, bias="feature"),
    jaxsvm.sdca(1.0, RBF),
    pytest.param(on_landmarks, id="landmarks"),
    jaxsvm.asset(1e-2),
    jaxsvm.kernel_pegasos(1e-2, RBF),
    pytest.param(partial(on_landmarks, choose=features.k_means()), id="k-means"),
    jaxsvm.wolfe(0.1, RBF),
    jaxsvm.scs(0.1, capacity=20, fresh_sample=True),
    jaxsvm.simba(0.3, horizon=200.0),
    jaxsvm.batch_perceptron(0.05, RBF),
    jaxsvm.cocoa(1.0, blocks=4),
    jaxsvm.cpsp(0.1, RBF, points=4),
    jaxsvm.one_vs_rest(jaxsvm.sdca(1.0, bias="feature"), classes=3),
    jaxsvm.tightest_perceptron(RBF, budget=5),
    jaxsvm.bpas(1.0, RBF, budget=5),
    jaxsvm.nogd(0.1, RBF, budget=5, features=3),
]


@pytest.mark.long
@pytest.mark.parametrize("solver", METHODS, ids=repr)
def test_methods_in_float64(solver, x64):
    x = scipy.sparse.random(N, 8, 0.5, random_state=0, format="csr")
    kinds = {"weight": np.resize([1.0, 2.0, 0.5], N)}
    if getattr(solver, "targets", None) == 3:
        kinds |= {"y": np.arange(N) % 3, "task": "multiclass"}
    forms = [jaxsvm.dataset(**{"x": rows, "y": Y} | kinds) for rows in (x, x.toarray())]
    runs = [jaxsvm.fit(made(solver, data.x), data, KEY, steps=40, every=1) for data in forms]
    have, want = runs
    assert np.abs(want.model(x.toarray())).max() > 0.1
    np.testing.assert_allclose(have.model(forms[0].x), want.model(x.toarray()), atol=1e-9)
    errors = [jaxsvm.error_on(data)(run.model) for data, run in zip(forms, runs, strict=True)]
    np.testing.assert_allclose(*errors)
    np.testing.assert_allclose(have.model(x.toarray()), want.model(x.toarray()), atol=1e-9)
    np.testing.assert_allclose(have.info.loss, want.info.loss, rtol=1e-9)
    np.testing.assert_allclose(have.info.residual, want.info.residual, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(have.info.support, want.info.support)


def test_residuals_of_weights_and_of_a_last_batch_are_those_of_dense_rows():
    x = scipy.sparse.random(13, 8, 0.5, random_state=0, format="csr")
    runs = [
        jaxsvm.fit(
            jaxsvm.pegasos(0.1),
            jaxsvm.dataset(rows, Y[:13], np.resize([1.0, 2.0, 0.5], 13)),
            KEY,
            steps=4,
            every=1,
            sampler=samplers.epochs(4, shuffle=False),
        )
        for rows in (x, x.toarray())
    ]
    np.testing.assert_allclose(*(run.info.residual for run in runs), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("batch", [4, 16])
def test_batches(sparse, dense, batch):
    feed = samplers.epochs(batch)
    for solver in (jaxsvm.pegasos(1e-2), jaxsvm.sdca(1.0)):
        have, want = (
            jaxsvm.fit(solver, data, KEY, steps=60, every=60, sampler=feed)
            for data in (sparse, dense)
        )
        np.testing.assert_allclose(have.model.w, want.model.w, atol=1e-5)
        np.testing.assert_allclose(have.info.loss, want.info.loss, rtol=1e-5)
        np.testing.assert_array_equal(have.info.evals, want.info.evals)


@pytest.mark.long
@pytest.mark.parametrize("solver", METHODS[1:4], ids=repr)
def test_certificates(sparse, dense, solver):
    """In float64 on both sides, of one model: equal but for the rows' float32."""
    model = full = jaxsvm.fit(made(solver, sparse.x), sparse, KEY, steps=300).model
    if isinstance(getattr(model, "x", None), SparseRows):
        full = dataclasses.replace(model, x=model.x.toarray())
    for passes in (0, 3):
        have = jaxsvm.certificate(model, sparse, 1 / N, passes=passes)
        want = jaxsvm.certificate(full, dense, 1 / N, passes=passes)
        np.testing.assert_allclose(have[:3], want[:3], rtol=1e-9, atol=1e-12)
        assert have.exact == want.exact and have.gap >= 0


@pytest.mark.long
def test_a_model_with_sparse_support_is_saved_and_loaded(sparse, tmp_path):
    model = jaxsvm.fit(jaxsvm.sdca(1.0, kernels.rbf(1.0)), sparse, KEY, steps=100).model
    models.save(tmp_path / "model.npz", model)
    assert_same_bits(models.load(tmp_path / "model.npz"), model)


def test_runs_resume_to_the_bit(sparse):
    whole = jaxsvm.fit(AVERAGED, sparse, KEY, steps=90, every=10)
    part = jaxsvm.fit(AVERAGED, sparse, KEY, steps=40, every=10)
    rest = jaxsvm.fit(AVERAGED, sparse, steps=50, every=10, state=part.state)
    assert_same_bits(rest.model, whole.model)


@pytest.mark.long
def test_a_sweep_and_a_gradient_over_sparse_rows(sparse, dense):
    def risk(lam, data):
        solver = jaxsvm.asset(lam, loss=losses.logistic, bias="none")
        return jaxsvm.risk_on(data, losses.logistic)(jaxsvm.fit(solver, data, KEY, steps=40).model)

    lams = jnp.array([1e-2, 1e-1])
    have, want = (jaxsvm.sweep(risk, lam=lams, progress=False)(data) for data in (sparse, dense))
    np.testing.assert_allclose(have, want, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(risk)(1e-2, sparse), jax.grad(risk)(1e-2, dense), rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kernel", [None, kernels.rbf(1.0)], ids=repr)
def test_nothing_of_the_size_of_the_dense_rows(kernel):
    """Compiled for 4,000 rows of 50,000 columns, 5 numbers each: the program's memory is that of
    the padded rows."""
    n, d, r = 4000, 50_000, 5
    index = np.random.default_rng(0).integers(0, d // r, (n, r)) + np.arange(r) * (d // r)
    length = jnp.full(n, r, jnp.int32)
    x = SparseRows(jnp.asarray(np.sort(index, axis=1), jnp.int32), jnp.ones((n, r)), length, d)
    y = jnp.where(jnp.arange(n) % 2, 1.0, -1.0)
    data = jaxsvm.Batch(x, y, jnp.arange(n, dtype=jnp.int32), jnp.ones(n))
    solver = jaxsvm.sdca(1.0, kernel)
    run = jax.jit(lambda data: jaxsvm.fit(solver, data, KEY, steps=20, every=20).model)
    temporary = run.lower(data).compile().memory_analysis().temp_size_in_bytes
    padded = n * r * 8
    assert temporary < 4 * padded + 20 * d * 4 < n * d * 4 / 100


# Rows that are only pointed at


@pytest.mark.long
def test_rows_of_rows_that_are_pointed_at(sparse, dense):
    some = take(sparse, jnp.arange(10, 50), copy=False)
    for copy in (True, False):
        again = take(some, jnp.array([3, 7, -1]), copy=copy)
        assert np.array_equal(again.x.toarray()[:2], dense.x[jnp.array([13, 17])])
        assert again.weight.tolist() == [1, 1, 0]
    assert np.array_equal(some.x[jnp.array([3])].toarray(), dense.x[13:14])
    blocks = numerics.blocked(lambda rows: rows.toarray(), some.x, 7)
    assert np.array_equal(blocks, dense.x[10:50])


@pytest.mark.long
@pytest.mark.parametrize(("columns", "narrow"), [(D, jnp.uint16), (2**16 + 1, jnp.int32)])
def test_packed_rows_are_the_rows(columns, narrow):
    """Rows without a number, full rows and all between, at the ends too; read, multiplied, and in
    derivatives."""
    random = np.random.default_rng(0)
    for first, last in ((0, 23), (23, 0), (0, 0), (23, 23), (11, 0)):
        long = np.array([first, 5, 0, 0, 9, 8, 1, 7, last])
        full = np.zeros((9, columns), np.float32)
        for row, many in zip(full, long, strict=True):
            row[random.choice(columns, many, replace=False)] = random.normal(size=many)
        x = jaxsvm.dataset(scipy.sparse.csr_matrix(full), np.arange(9), task="regression").x
        packed = x.packed
        assert packed.index.dtype == narrow and packed.shape == x.shape and x.packed is packed
        assert packed.index.shape == packed.value.shape == x.value.shape  # whatever the numbers
        assert np.array_equal(packed.toarray(), full)
        assert packed.materialize().index.dtype == jnp.int32
        assert np.array_equal(packed[jnp.array([8, 4, 0])].toarray(), full[[8, 4, 0]])
        rows = jnp.array([8, 2, 4, 0, 4, 8])
        drawn = dataclasses.replace(packed, rows=rows)
        assert np.array_equal(drawn.toarray(), full[rows])
        w, coef = random.normal(size=columns).astype("f"), random.normal(size=6).astype("f")
        np.testing.assert_allclose(numerics.dot(drawn, jnp.asarray(w)), full[rows] @ w, atol=1e-5)
        products = numerics.dot(jnp.asarray(coef), drawn)
        np.testing.assert_allclose(products, coef @ full[rows], atol=1e-5)
        for each in (packed, drawn):
            c = jnp.asarray(random.normal(size=each.shape[0]).astype("f"))
            added = numerics.add_rows(jnp.asarray(w), c, each)
            np.testing.assert_allclose(added, w + np.asarray(c) @ each.toarray(), atol=1e-5)
        slope = jax.grad(lambda w: jnp.dot(coef, numerics.dot(drawn, w)))(jnp.asarray(w))
        np.testing.assert_allclose(slope, coef @ full[rows], atol=1e-5)


LENGTHS = [([0], 70_000), ([30], 30), *(([0, 3, 0, 30, 8, 7, 9], d) for d in (30, 70_000))]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("lengths", "columns"), LENGTHS)
def test_rows_packed_from_their_entries(lengths, columns):
    """The entries, rows, norms and products are those of the matrix, and so are its columns."""
    random = np.random.default_rng(2)
    x = scipy.sparse.lil_matrix((len(lengths), columns), dtype=np.float32)
    for row, many in enumerate(lengths):
        chosen = random.choice(columns, many, replace=False)
        x[row, chosen] = random.choice([-2.0, 0.5, 3.0], many)
    x = x.tocsr()
    packed = numerics.pack_lists(x.indices, x.data, np.diff(x.indptr), columns)
    assert packed.shape == x.shape and packed.offsets is not None
    entries = numerics.listed_entries(packed)
    for part, want in zip(entries, (x.indices, x.data, np.diff(x.indptr)), strict=True):
        assert np.array_equal(part, want)
    taken = random.integers(0, len(lengths), 5)
    chosen = dataclasses.replace(packed, rows=jnp.asarray(taken, jnp.int32))
    again = numerics.pack_lists(*numerics.listed_entries(chosen), columns)
    assert np.array_equal(numerics.listed_entries(again)[0], x[taken].indices)
    assert np.array_equal(numerics.listed_entries(again)[1], x[taken].data)
    for form in (packed, packed[jnp.asarray(taken)], packed[int(taken[0])]):
        assert form.columns == columns
    rows = packed[jnp.asarray(taken)]
    assert np.array_equal(rows.index.shape, rows.value.shape) and rows.offsets is None
    index, value, lengths = map(np.asarray, (rows.index, rows.value, rows.length))
    for row, i in enumerate(taken):
        assert np.array_equal(index[row, : lengths[row]], x[i].indices)
        assert np.array_equal(value[row, : lengths[row]], x[i].data)
    sqnorms = np.asarray(x.multiply(x).sum(1)).ravel()
    assert np.array_equal(jax.jit(numerics.sqnorms)(packed), sqnorms)
    w = random.integers(-3, 4, columns).astype(np.float32)
    assert np.array_equal(jax.jit(numerics.dot)(packed, w), x @ w)
    assert np.array_equal(np.asarray(packed.materialize().toarray())[:, :50], x.toarray()[:, :50])


@pytest.mark.long
@pytest.mark.parametrize(
    ("feed", "longest"),
    [(samplers.uniform(4), 24), (samplers.uniform(64), 7), (samplers.epochs(16), 37)],
    ids=repr,
)
@pytest.mark.parametrize(
    "solver",
    [jaxsvm.pegasos(1e-2, loss=losses.logistic), AVERAGED, jaxsvm.sdca(1.0)],
    ids=["logistic", "averaged", "sdca"],
)
def test_a_run_on_packed_rows_has_the_bits_of_one_on_padded_rows(solver, longest, feed):
    """Outside transformations loops walk through packed rows, inside through those that they were
    handed. The mean of the iterates is a sum of products, which programs round once or twice."""
    random = np.random.default_rng(longest)
    full = np.zeros((90, 300), np.float32)
    for row, many in zip(full, random.integers(0, longest, 90, endpoint=True), strict=True):
        row[random.choice(300, many, replace=False)] = random.normal(size=many)
    y = np.where(random.normal(size=90) > 0, 1, -1)
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(full), y)
    assert FITTING.pack_rows(data.x) is not None

    def go(data):
        run = jaxsvm.fit(solver, data, KEY, steps=40, every=20, sampler=feed)
        return (run.state.solver, run.info.loss, run.info.residual), run.model.w

    (have, w), (want, same_w) = go(data), jax.jit(go)(data)
    jax.tree.map(np.testing.assert_array_equal, have, want)
    np.testing.assert_allclose(w, same_w, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_loops_walk_through_packed_rows(sparse, monkeypatch):
    """Where a step draws a few rows and more; a step on all rows takes them as they are, and so do
    rows of odd widths."""
    assert FITTING.pack_rows(sparse.x) is sparse.x.packed
    odd = dataclasses.replace(sparse.x, index=sparse.x.index[:, :7], value=sparse.x.value[:, :7])
    pointed_at = dataclasses.replace(sparse.x, rows=jnp.arange(3))
    for x in (sparse.x.packed, pointed_at, odd, jnp.ones((2, 2))):
        assert FITTING.pack_rows(x) is None
    asked, walkable = [], FITTING.pack_rows
    monkeypatch.setattr(FITTING, "pack_rows", lambda x: asked.append(x) or walkable(x))
    jaxsvm.fit(jaxsvm.pegasos(1e-2), sparse, KEY, steps=2, sampler=samplers.uniform(3))
    jaxsvm.fit(jaxsvm.subgradient(1e-2), sparse, KEY, steps=2)
    assert not asked
    jaxsvm.fit(jaxsvm.pegasos(1e-2), sparse, KEY, steps=2, sampler=samplers.uniform(4))
    assert len(asked) == 1


def test_packed_rows_are_not_pickled(sparse):
    again = pickle.loads(pickle.dumps(sparse.x if sparse.x.packed is not None else None))
    assert "packed" not in vars(again) and np.array_equal(again.toarray(), sparse.x.toarray())


@pytest.mark.long
def test_rows_of_odd_widths_that_are_pointed_at(sparse, dense):
    x = dataclasses.replace(sparse.x, index=sparse.x.index[:, :7], value=sparse.x.value[:, :7],
                            length=jnp.minimum(sparse.x.length, 7))  # fmt: skip
    w, rows = jnp.linspace(-1, 1, D), jnp.array([59, 0, 7, 59])
    drawn = dataclasses.replace(x, rows=rows)
    np.testing.assert_allclose(numerics.dot(drawn, w), (x.toarray() @ w)[rows], atol=1e-5)
    coef = jnp.array([0.5, 0.0, -1.0, 2.0])
    added = numerics.add_rows(w, coef, drawn)
    np.testing.assert_allclose(added, w + coef @ x.toarray()[rows], atol=1e-5)


@pytest.mark.long
def test_large_batches_lifted_by_the_step(sparse, dense, monkeypatch):
    monkeypatch.setattr(lift, "BLOCK", 16)
    monkeypatch.setattr(FITTING, "MEMORY", 0)
    phi, feed = features.fourier(KEY, RBF, dim=D, features=16), samplers.epochs(50)
    solver = jaxsvm.on_features(phi, jaxsvm.pegasos(1e-2))
    run = lambda data: jaxsvm.fit(solver, data, KEY, steps=3, every=3, sampler=feed).model(data.x)
    np.testing.assert_allclose(run(sparse), run(dense), atol=1e-5)


@pytest.mark.long
def test_sums_of_narrow_numbers_are_wide():
    ones = scipy.sparse.csr_matrix(np.ones((2, 1000), np.float32))
    x = jaxsvm.dataset(ones, [1, -1]).x.astype(jnp.bfloat16)
    products = numerics.cross_products(x, x)
    assert products.dtype == jnp.float32 and float(products[0, 1]) == 1000


@pytest.mark.long
@pytest.mark.parametrize("lanes", [3, 8])
@pytest.mark.parametrize("few", [1, 8])
def test_many_weights_at_once(sparse, dense, few, lanes):
    """As in a sweep over lambda: vmap of the walk equals the plain sum, lanes in turn or
    together."""
    scale = jnp.arange(1.0, lanes + 1)
    coef = jnp.where(jnp.arange(lanes * few).reshape(lanes, few) % 3 == 0, 0.0, 0.1)
    w, rows = jnp.ones((lanes, D)), jnp.arange(20, 20 + few)
    many = jnp.arange(lanes)[:, None] + rows[None, :]
    for x in (sparse.x, sparse.x.packed):
        some = lambda i, x=x: take(sparse._replace(x=x), i, copy=False).x
        walk = lambda w, some=some: numerics.dot(some(rows), w)
        scores = jax.jit(jax.vmap(walk))(w * scale[:, None])
        want = scale[:, None] * jnp.sum(dense.x[rows], axis=1)[None, :]
        np.testing.assert_allclose(scores, want, atol=2e-5)
        add = lambda w, coef, i, some=some: numerics.add_rows(w, coef, some(i))
        have = jax.jit(jax.vmap(add, (0, 0, None)))(w, coef, rows)
        np.testing.assert_allclose(have, w + coef @ dense.x[rows], atol=1e-6)
        each = jax.vmap(add, (None, None, 0))(w[0], coef[0], many)
        want = jnp.stack([w[0] + coef[0] @ dense.x[i] for i in many])
        np.testing.assert_allclose(each, want, atol=1e-6)


@pytest.mark.long
def test_rows_of_many_data_sets_at_once(sparse, dense):
    """vmap over the rows themselves, as over feature scalings."""
    scale, rows, w = jnp.arange(1.0, 10), jnp.arange(20, 28), jnp.linspace(-1, 1, D)
    scaled = lambda s: dataclasses.replace(sparse.x, value=s * sparse.x.value)
    move = lambda s: take(sparse._replace(x=scaled(s)), rows, copy=False).x
    want = dense.x[rows] @ w
    have = jax.vmap(lambda s: numerics.dot(move(s), w))(scale)
    np.testing.assert_allclose(have, jnp.outer(scale, want), atol=1e-4)
    have = jax.vmap(lambda s: numerics.add_rows(w, want, move(s)))(scale)
    np.testing.assert_allclose(have, w[None, :] + jnp.outer(scale, want @ dense.x[rows]), atol=1e-4)


def test_columns_are_not_taken(sparse):
    with pytest.raises(IndexError, match="sparse rows are taken by row only"):
        sparse.x[:, :2]


def test_the_derivative_of_a_sum_of_pointed_rows_is_that_of_dense_rows(sparse, dense):
    """In the weights, the coefficients and the stored values."""
    index, random = jnp.array([7, 3, 7], jnp.int32), np.random.default_rng(0)
    w, coef, u = (jnp.asarray(random.normal(size=n).astype("f4")) for n in (D, 3, D))

    def of_sparse(w, coef, value):
        rows = dataclasses.replace(sparse.x, value=value, rows=index)
        return jnp.dot(u, sparse_products.added(w, coef, rows))

    slopes = jax.jit(jax.jacfwd(of_sparse, (0, 1)))(w, coef, sparse.x.value)
    np.testing.assert_allclose(slopes[0], u, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], dense.x[index] @ u, rtol=1e-5, atol=1e-6)
    # the row 7 is added twice
    towards = jnp.zeros_like(sparse.x.value).at[7, 0].set(1)
    slope = jax.jvp(lambda value: of_sparse(w, coef, value), (sparse.x.value,), (towards,))[1]
    np.testing.assert_allclose(slope, (coef[0] + coef[2]) * u[sparse.x.index[7, 0]], rtol=1e-5)
    # the scores, in the values and in the weights
    scores = lambda w, value: sparse_products.scores(
        dataclasses.replace(sparse.x, value=value, rows=index), w
    )
    slope = jax.jvp(scores, (w, sparse.x.value), (u, towards))[1]
    own = jnp.array([1.0, 0.0, 1.0]) * w[sparse.x.index[7, 0]]
    np.testing.assert_allclose(slope, dense.x[index] @ u + own, rtol=1e-5, atol=1e-5)
