"""BSGD against NumPy in float64: every step, what holds at each of them, other feeds."""

import functools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from budgets import (
    CUBIC,
    HANDS,
    KEY,
    LABELS,
    LAM,
    MAINTAINED,
    NEW,
    RBF,
    WEIGHT,
    D,
    N,
    T,
    X,
    agree,
    bsgd_by_hand,
    dataset,
    gaussian,
    live,
    make,
    orders,
    sqnorm,
    states,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import jaxsvm
from jaxsvm import budget, kernels, samplers
from jaxsvm.numerics import multiply_high
from jaxsvm.spaces import budgeted
from jaxsvm.types import take

property_test = settings(max_examples=25, deadline=None, derandomize=True, database=None)
close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
MERGE = "merge, look-up"
FEW, KINDS = (MERGE, "remove", "project"), ("twice", "batches")


def walk(kind):
    """Data and rows: those that the solver's own sampler draws over three passes; weights and rows
    that stand there twice, which add to the coefficient of a point and are the newest then; rows of
    a batch, which come one after the other with scores from before, and padding."""
    if kind == "twice":
        x, y = np.tile(X[: N // 3], (3, 1)), np.tile(LABELS[: N // 3], 3)
        return dataset(x, y, WEIGHT), orders(3)
    if kind == "batches":
        rows = np.asarray(orders(3)).reshape(-1, 3)
        rows = np.where(np.arange(rows.size).reshape(rows.shape) % 8 == 5, -1, rows)
        return dataset(weight=WEIGHT), jnp.asarray(rows)
    data, own = dataset(), make(budget.remove()).sampler
    return data, own.draw(own.init(KEY, data), 0, T)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("name", "kind"), [*product(HANDS, ["drawn"]), *product(FEW, KINDS)])
def test_every_step_is_that_of_the_paper(name, kind, x64):
    assert agree(name, *walk(kind)) >= {"drawn": 8, "twice": 11, "batches": 9}[kind]


@pytest.mark.long
@pytest.mark.parametrize("name", HANDS)
def test_with_room_for_all_rows_it_is_kernel_pegasos(name, x64):
    maintain, _, kernel, _ = HANDS[name]
    data, rows = dataset(weight=WEIGHT), orders(3)
    _, _, at_new, info = states(make(maintain, kernel=kernel, size=N), data, rows)
    solver = jaxsvm.kernel_pegasos(LAM, kernel)

    def step(state, index):
        state, info = solver.update(state, data._replace(index=index))
        return state, (solver.model(state, data)(jnp.asarray(NEW)), info)

    expected, told = jax.jit(lambda: lax.scan(step, solver.init(KEY, data), rows)[1])()
    for have, want in ((at_new, expected), (info.loss, told.loss)):
        close(have, want, rtol=1e-11, atol=1e-11)
    for have, want in ((info.support, told.support), (info.residual, told.residual)):
        equal(have, want)
    assert int(info.support[-1]) > 5


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", [MERGE, "merge, golden", "remove", "project"])
def test_what_maintenance_changed_bounds_the_distance_to_the_run_without_a_budget(name, x64):
    """On the rows that violated here: |w - u| <= (1/T) sum_t t |w_t - w_t'|, and the sum of
    formulae is that of the states."""
    maintain, by_hand, *_ = HANDS[name]
    data, rows = dataset(), orders(3)
    f, *_, info = states(make(maintain), data, rows)
    changed = [part for *_, part in bsgd_by_hand(data, rows, LAM, 5, by_hand, gaussian)]
    moves = np.where(np.asarray(info.residual) > 0, LABELS[np.asarray(rows)[:, 0]], 0)
    length = lambda *parts: max(sqnorm(*map(np.concatenate, zip(*parts, strict=True))), 0) ** 0.5
    before, seen, jumps, apart = (np.zeros((0, D)), np.zeros(0)), X[np.asarray(rows)[:, 0]], [], []
    for t in range(T):
        now, one, every = live(f, t), slice(t, t + 1), slice(t + 1)
        jumps.append(length(now, (before[0], -before[1]), (seen[one], -moves[one])))
        apart.append(length(now, (seen[every], -moves[every])))
        before = now
    close(jumps, changed, atol=1e-6)  # roots of rounding
    assert np.all(apart <= np.cumsum(changed) * (1 + 1e-9) + 1e-6) and apart[-1] > 0.1
    assert apart[-1] / (LAM * T) <= sum(part / (LAM * (t + 1)) for t, part in enumerate(changed))


# what holds at each step


@st.composite
def walks(draw):
    """A data set of N rows, some of them equal, and T visits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.sampled_from([2, 4, 9, N]))
    scale = draw(st.sampled_from([0.05, 1.0, 30.0]))
    x = (scale * rng.normal(size=(kinds, D)))[rng.integers(0, kinds, N)]
    y = np.where(rng.random(N) < draw(st.sampled_from([0.1, 0.5, 0.9])), 1.0, -1.0)
    y[:2] = 1, -1
    uneven = rng.choice([0, 0.5, 1, 2, 3], N) + 1e-3 * (np.arange(N) == 0)
    weight = draw(st.sampled_from([np.ones(N), uneven]))
    return x, y, weight, rng.integers(0, N, (T, 1)), draw(st.sampled_from([1e-3, 0.05, 1.0]))


def visits_to_a_full_budget(name, size, walk):
    """How often there was no room, where all holds that must."""
    x, y, weight, rows, lam = walk
    with jax.enable_x64(True):
        solver, drawn = make(MAINTAINED[name], lam, size=size), jnp.asarray(rows, jnp.int32)
        f, model, _, info = jax.tree.map(np.asarray, states(solver, dataset(x, y, weight), drawn))
    front, back, place = f.front, f.back, np.arange(size)
    assert np.all((front >= 0) & (back >= 0) & (front + back <= size))
    equal(info.support, front + back)
    above, below = place < front[:, None], place >= size - back[:, None]
    taken = above | below
    assert np.all(f.coef[~taken] == 0) and np.all(np.isfinite(f.coef)) and np.all(np.isfinite(f.x))
    assert name == "project()" or (np.all(f.coef[above] >= 0) and np.all(f.coef[below] <= 0))
    close(f.sqnorm[taken], (f.x**2).sum(-1)[taken], rtol=1e-12)
    close(model.coef, f.coef / (lam * np.arange(1, T + 1)[:, None]), rtol=1e-12)
    before, full = (np.zeros((0, D)), np.zeros(0)), 0
    for t, row in enumerate(rows[:, 0]):
        now = live(f, t)
        # no two of an age
        assert len(np.unique(f.birth[t][taken[t]])) == len(now[1])
        move = np.where(info.residual[t] > 0, y[row] * weight[row], 0.0)
        grown, coef = before
        twin = (grown == x[row]).all(1)
        if move != 0 and not np.any(twin):
            grown, coef = np.append(grown, x[row][None], 0), np.append(coef, move)
        elif move != 0:
            coef = coef + move * twin
        jump = sqnorm(np.concatenate([now[0], grown]), np.append(now[1], -coef))
        rounding = 1e-12 * (1 + np.abs(coef).sum()) ** 2
        if len(coef) <= size:
            assert jump <= rounding and len(now[1]) == len(coef)
        else:
            full += 1
            assert len(now[1]) == size
            # where labels differ a coefficient may be 0 again
            side = np.append(np.arange(size) < front[t - 1], move > 0)
            paired = np.where(side, side.sum(), (~side).sum()) > 1
            allowed = paired if name.startswith("merge") else True
            least = np.min(coef**2, where=allowed, initial=np.inf)
            if name == "remove()":
                close(jump, least, atol=rounding)
            assert jump <= least + rounding  # never worse than leaving a point out
        before = now
    return full


@pytest.mark.long
@pytest.mark.parametrize("name, size", [*product(MAINTAINED, [2, 5])])
def test_points_keep_their_places_and_the_function_changes_no_more_than_it_must(name, size):
    full, visit = [], functools.partial(visits_to_a_full_budget, name, size)
    property_test(given(walks())(lambda walk: full.append(visit(walk))))()
    assert sum(full) > 100


@pytest.mark.long
def test_a_state_whose_rows_wait_says_what_its_model_says():
    """Values between steps, at rows of the data and at new ones, and `written` changes nothing
    twice."""
    data = dataset(dtype=np.float32)
    space = budgeted(RBF, budget=4, maintain=budget.merge())

    @jax.jit
    def walk(f):
        def step(f, index):
            batch = take(data, index)
            f = space.add(f, jnp.float32(0.1), batch.y, batch)
            once, twice = f.flush(), f.flush().flush()
            same = jnp.all(once.x == twice.x) & jnp.all(once.sqnorm == twice.sqnorm)
            values = space.evaluate(f, data), space.evaluate(once, data), space.model(f)(data.x)
            return f, (*values, same, jnp.any(once.x != f.x))

        return lax.scan(step, f, orders(1))[1]

    value, after, model, same, waits = walk(space.zero(KEY, data))
    equal(value, after)
    close(value, model, atol=1e-6)
    assert np.all(same) and np.sum(waits) > 12


def test_places_of_the_two_signs_and_of_random_removals():
    """Lists of positive and negative points in Python. The hash of a removal stays the same from
    version to version."""

    def fmix32(h):  # the finaliser of MurmurHash3
        for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            h = (h ^ h >> shift) * multiplier % 2**32
        return h ^ h >> 16

    @jaxsvm.node
    class at_random(budget.Maintenance):
        def change(self, kernel, points, state):
            place = multiply_high(points.bits, jnp.uint32(5))
            return budget.remove_point(points, place), state

    space = budgeted(kernels.linear(), budget=5, maintain=at_random())
    add = jax.jit(lambda f, coef, row: space.add(f, 0.0 * coef[0], coef, row))
    data = dataset(dtype=np.float32)
    f, front, back = space.zero(KEY, data), [], []
    seed, coefs = int(f.seed), np.float32(0.5 + 0.01 * np.arange(N)) * np.where(X[:, 0] > 0, 1, -1)
    for t, coef in enumerate(coefs):
        f = add(f, jnp.asarray(coefs[[t]]), take(data, jnp.array([t])))
        own, other = (front, back) if coef > 0 else (back, front)
        if len(front) + len(back) < 5:
            own.append(coef)
            continue
        place = fmix32((seed + fmix32(t)) % 2**32) * 5 >> 32
        side, place = (front, place) if place < len(front) else (back, 4 - place)
        if side is own:
            own[place] = coef
        else:  # the last of the other sign takes the place
            other[place] = other[-1]
            other.pop()
            own.append(coef)
        assert np.asarray(f.coef).tolist() == front + back[::-1]
        assert (int(f.front), int(f.back)) == (len(front), len(back))
    assert front and back


@pytest.mark.long
def test_projection_does_not_depend_on_where_0_is():
    """Distances of rows far from 0 cancel: without care there is no inverse, and all coefficients
    are nan."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.sign(rng.normal(size=40))
    solver = jaxsvm.bsgd(1e-2, kernels.rbf(3.0), budget=20, maintain=budget.project())
    largest = []
    for offset in (0, 300):
        run = jaxsvm.fit(solver, jaxsvm.dataset((x + offset).astype(np.float32), y), KEY, steps=200)
        assert run.finite
        largest.append(np.abs(run.model.coef).max())
    assert largest[1] == pytest.approx(largest[0], rel=0.05)


@pytest.mark.long
def test_a_budget_above_the_dimension_loses_nothing_under_the_linear_kernel(x64):
    """Points depend on each other, and projection leaves the function as it is: linear Pegasos in
    NumPy."""
    data, rows = dataset(), orders(3)
    solver = make(budget.project(), kernel=kernels.linear(), size=D + 1)
    *_, at_new, info = states(solver, data, rows)
    s, expected = np.zeros(D), []
    for t, i in enumerate(np.asarray(rows)[:, 0]):
        s = s + (LABELS[i] * X[i] if t == 0 or LABELS[i] * (s @ X[i]) < LAM * t else 0)
        expected.append(NEW @ s / (LAM * (t + 1)))
    close(at_new, expected, atol=1e-8)
    assert int(info.support[-1]) == D + 1


@pytest.mark.long
@pytest.mark.parametrize("kernel, dim", [(kernels.linear(), 10), (CUBIC, 2)])
def test_a_budget_above_the_rank_of_the_kernel_projects_in_float32(kernel, dim):
    """50 points of rank 10: where rounding leaves no inverse, projection falls back to removal,
    which is far worse."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, dim)).astype(np.float32)
    score = x @ rng.normal(size=dim) if dim > 2 else x[:, 0] * x[:, 1]
    data, errors = jaxsvm.dataset(x, np.sign(score + 0.1 * rng.normal(size=600))), []
    for maintain in (budget.project(), budget.remove()):
        solver = jaxsvm.bsca(1.0, kernel, budget=50, maintain=maintain)
        run = jaxsvm.fit(solver, data, KEY, steps=3000)
        assert run.finite
        errors.append(float(jaxsvm.error_on(data)(run.model)))
    assert errors[0] < errors[1] - 0.02


# other feeds


@pytest.mark.long
@pytest.mark.parametrize("name, rows_at_once", list(zip(MAINTAINED, [1, 4, 4, 1], strict=True)))
def test_sparse_rows_make_the_run_of_dense_ones(name, rows_at_once, x64):
    x, new = X * (np.abs(X) > 0.5), jnp.asarray(NEW)
    options = {"steps": 40, "every": 40, "sampler": samplers.epochs(rows_at_once)}
    fit = lambda x: jaxsvm.fit(make(MAINTAINED[name]), dataset(x), KEY, **options)
    sparse, dense = fit(scipy.sparse.csr_matrix(x)), fit(x)
    equal(sparse.info.support, dense.info.support)
    for of in (lambda model: model(new), lambda model: model.x, lambda model: model.coef):
        close(of(sparse.model), of(dense.model), atol=1e-9)
    assert np.abs(dense.model.coef).max() > 0.1


@pytest.mark.long
@pytest.mark.parametrize("maintain", MAINTAINED.values(), ids=MAINTAINED)
def test_float32_makes_the_run_of_float64(maintain):
    """The same points go and merge; roundings are of float32, coefficients of s up to 10."""
    found = []
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            f, _, at_new, info = states(make(maintain), dataset(dtype=dtype), orders(3))
            assert at_new.dtype == f.x.dtype == f.coef.dtype == info.loss.dtype == dtype
            assert f.front.dtype == f.birth.dtype == info.evals.dtype == jnp.int32
            s = np.asarray(at_new, np.float64) * LAM * np.arange(1, T + 1)[:, None]
            found.append((s, (info.support, f.front, info.evals)))
    (ours, whole), (theirs, expected) = found
    close(ours, theirs, atol=2e-4)
    jax.tree.map(equal, whole, expected)


@pytest.mark.long
@pytest.mark.parametrize("maintain", list(MAINTAINED.values())[:2], ids=list(MAINTAINED)[:2])
def test_a_multiple_of_the_kernel_divides_lam(maintain, x64):
    """<w, phi> = c sum_j N_j k(x_j, .) / (lam t): the same rows violate, the same points merge."""
    data, rows = dataset(), orders(3)
    _, scaled, at_new, info = states(make(maintain, LAM, 3 * RBF), data, rows)
    _, plain, expected, told = states(make(maintain, LAM / 3), data, rows)
    close(at_new, expected, atol=1e-10)
    close(scaled.x, plain.x, atol=1e-10)
    close(3 * scaled.coef, plain.coef, atol=1e-10)
    close(info.loss, told.loss, atol=1e-10)


@pytest.mark.long
def test_evaluations_are_counted():
    """m for a row's value, and what maintenance may look at for a row that moves."""
    data, rows = dataset(dtype=np.float32), orders(3)
    for maintain, extra in zip(MAINTAINED.values(), (5, 2, 0, 36), strict=True):
        *_, info = states(make(maintain), data, rows)
        equal(info.evals, 5 + extra * (np.asarray(info.residual) > 0))


# kernels


KERNELS = [
    kernels.linear(),
    kernels.rbf(gamma=0.3),
    kernels.laplacian(2.0),
    kernels.polynomial(0.5, 1.5, degree=2),
    kernels.sigmoid(0.2, -0.5),
    2 * (kernels.linear() + 3 * kernels.rbf(1.0)) * kernels.rbf(2.0),
    kernels.laplacian(2.0) + kernels.linear(),  # one of them is none of products
    kernels.custom(lambda x, z: jnp.abs(x @ z.T)),
]


@pytest.mark.long
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_values_with_known_norms_are_those_of_a_call(kernel, x64):
    z = jnp.asarray(X)
    sparse = dataset(scipy.sparse.csr_matrix(X)).x
    rows = [(jnp.asarray(NEW),) * 2, (jnp.asarray(NEW[:1]),) * 2, (sparse, z)]
    for x, dense in rows[: 2 if "custom" in repr(kernel) else 3]:
        close(kernel.values(x, z, (z**2).sum(1)), kernel(dense, z), rtol=1e-12, atol=1e-13)


# what is refused


LINE, LAPLACIAN, VALUES = kernels.linear(), kernels.laplacian(2.0), kernels.precomputed()
merging = lambda of={}, **options: lambda: make(budget.merge(**of), **options)
removing = lambda **options: lambda: make(budget.remove(), **options)
NONE = "maintain (must be a maintenance such as|is the factory merge itself)"
REFUSED = [
    *((merging(size=size), f"budget must be .* got {size}") for size in (1, 2.5, True, -3)),
    (merging(kernel=LINE), r"only, got linear\(\): take kernels.rbf, or .*remove\(\) or .*project"),
    *(
        (merging(kernel=kernel), f"Gaussian kernel only, got {words}")
        for kernel, words in (
            (LAPLACIAN, r"laplacian\(2.0\)"),
            (3 * LAPLACIAN, r"scaled\(laplacian\(2.0\), 3.0\)"),
            (RBF + LINE, r"sum_\(rbf\(0.9\), linear\(\)\)"),
            (lambda x, z: x @ z.T, "custom"),
        )
    ),
    *((removing(kernel=k), "knows training rows only") for k in (VALUES, 2 * VALUES)),
    (removing(kernel=2.0), "expected a kernel or a function"),
    *((merging({"partners": k}), f"partners must be a .* or None, got {k}") for k in (0, True)),
    (merging({"search": "x"}), "search"),
    (merging(lam=0.0), "lam"),
    *((lambda wrong=w: make(wrong), NONE) for w in (None, "merge", 1.0, budget.merge, object())),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused(call, words):
    data = dataset(dtype=np.float32)
    for use in (lambda: call().init(KEY, data), lambda: jaxsvm.fit(call(), data, KEY, steps=1)):
        with pytest.raises((ValueError, TypeError), match=words):
            use()
