"""LASVM against a transcription of the paper in NumPy, and its ends against LIBSVM and closed
forms."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import sklearn.svm
from cases import maker
from compiling import as_users

import jaxsvm
from jaxsvm import kernels
from jaxsvm.numerics import sqdist

N, D, C, SIGMA = 40, 2, 2.0, 0.8  # one shape for all data sets, so that programs are compiled once
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
LABELS = np.where(X[:, 0] + 0.8 * RNG.normal(size=N) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(6, D))
KEY = jax.random.key(2)
BOTH = pytest.mark.parametrize("bias", ["free", "none"])


gaussian = functools.partial(oracles.gaussian, gamma=1 / (2 * SIGMA**2))


K = gaussian(X, X)


dataset = maker(X, LABELS)


def make(**choices):
    return jaxsvm.lasvm(choices.pop("C", C), choices.pop("kernel", kernels.rbf(SIGMA)), **choices)


@jax.jit
def trace(solver, state, data, rows):
    """All states and infos of steps on given rows (t, b)."""

    def step(state, index):
        state, info = solver.update(state, data._replace(index=index))
        return state, (state, info)

    return jax.lax.scan(step, state, rows)[1]


def orders(times, seed=0):
    """`times` passes in random orders, (t, 1)."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(
        np.concatenate([rng.permutation(N) for _ in range(times)])[:, None], jnp.int32
    )


def states(solver, data, rows):
    return trace(solver, solver.init(KEY, data), data, rows)


def finish(solver, data, tol=1e-10, steps=6000):
    """The passes and the finishing."""
    run = jaxsvm.fit(solver, data, KEY, steps=steps, every=100, tol=tol)
    assert run.converged
    return run, np.asarray(run.model.coef, np.float64)


def dual(coef, y=LABELS, kernel=K):
    return y @ coef - coef @ kernel @ coef / 2


def libsvm(C, x=X, y=LABELS, weight=None):
    """Signed coefficients, and b."""
    made = sklearn.svm.SVC(C=C, gamma=1 / (2 * SIGMA**2), tol=1e-12).fit(x, y, weight)
    coef = np.zeros(len(y))
    coef[made.support_] = made.dual_coef_[0]
    return coef, made.intercept_[0]


def violation(coef, y, C, bias, rows):
    """LIBSVM's among some rows; without a bias the largest |projected derivative|."""
    pull, low, high = (
        (y - K @ coef)[rows],
        np.where(y > 0, 0, -C)[rows],
        np.where(y > 0, C, 0)[rows],
    )
    up = np.max(pull, where=coef[rows] < high, initial=-np.inf)
    down = np.min(pull, where=coef[rows] > low, initial=np.inf)
    return up - down if bias == "free" else max(up, -down)


# by hand, in NumPy


class ByHand:
    """The paper's state, with g on S alone, and its procedures; of rows within 1e-4 of the
    violation the first is taken."""

    def __init__(self, kernel, y, C, bias, S):
        self.kernel, self.y, self.free = kernel, y, bias == "free"
        self.low, self.high = np.where(y > 0, 0, -C), np.where(y > 0, C, 0)
        self.a, self.g, self.S, self.evals_parts = np.zeros(len(y)), {s: y[s] for s in S}, set(S), 0

    def extremes(self, more=()):
        up, down = (
            [s for s in self.S if self.a[s] < self.high[s]],
            [s for s in self.S if self.a[s] > self.low[s]],
        )
        gmax, gmin = (
            max((self.g[s] for s in up), default=-np.inf),
            min((self.g[s] for s in down), default=np.inf),
        )
        room = 1e-4 * max(max(gmax, *more, -np.inf) - min(gmin, *more, np.inf), 0)
        i = min((s for s in up if self.g[s] >= gmax - room), default=None)
        j = min((s for s in down if self.g[s] <= gmin + room), default=None)
        return i, j, gmax, gmin

    def pair(self, i, j):
        if i is None or j is None or self.g[i] <= self.g[j]:
            return
        bend = self.kernel[i, i] + self.kernel[j, j] - 2 * self.kernel[i, j]
        t = min((self.g[i] - self.g[j]) / bend, self.high[i] - self.a[i], self.a[j] - self.low[j])
        self.move({i: t, j: -t})

    def single(self, i):
        t = (
            np.clip(self.a[i] + self.g[i] / self.kernel[i, i], self.low[i], self.high[i])
            - self.a[i]
        )
        if t != 0:
            self.move({i: t})

    def move(self, steps):
        self.evals_parts += len(steps)
        for i, t in steps.items():
            self.a[i] += t
            for s in self.S:
                self.g[s] -= t * self.kernel[i, s]

    def process(self, k):
        if k in self.S:
            return
        g, y = self.y[k] - sum(self.a[s] * self.kernel[k, s] for s in self.S), self.y[k]
        i, j, gmax, gmin = self.extremes([g])
        if self.free and gmin < gmax and ((y > 0 and g < gmin) or (y < 0 and g > gmax)):
            return
        if not self.free and y * g < 0:
            return
        self.S.add(k)
        self.g[k] = g
        if not self.free:
            self.single(k)
        else:
            self.pair(*(k, j) if y > 0 else (i, k))

    def reprocess(self):
        if self.free:
            self.pair(*self.extremes()[:2])
            _, _, gmax, gmin = self.extremes()
        else:
            move = [
                s
                for s in self.S
                if (self.a[s] < self.high[s] if self.g[s] > 0 else self.a[s] > self.low[s])
            ]
            if move:
                top = max(abs(self.g[s]) for s in move)
                self.single(min(s for s in move if abs(self.g[s]) >= top - 1e-4 * top))
            gmax = gmin = 0
        self.S -= {
            s
            for s in self.S
            if self.a[s] == 0 and (self.g[s] >= gmax if self.y[s] < 0 else self.g[s] <= gmin)
        }


def lasvm_by_hand(kernel, y, C, S, rows, passes, bias):
    """Coefficients, S and the kernel rows spent after each step."""
    now, trace = ByHand(kernel, y, C, bias, S), []
    for t, k in enumerate(rows):
        if t < passes * len(y):
            now.process(k)
        now.reprocess()
        trace.append((now.a.copy(), np.isin(np.arange(len(y)), list(now.S)), now.evals_parts))
    return [np.array(part) for part in zip(*trace, strict=True)]


@pytest.mark.long(but=2)
@BOTH
@pytest.mark.parametrize("C", [0.5, 5.0])
def test_every_step_is_that_of_the_paper(bias, C, x64):
    """Coefficients, S and what a step costs, over two passes and a pass of finishing."""
    data, solver, rows = dataset(), make(C=C, bias=bias, passes=2), orders(3)
    begun = np.flatnonzero(solver.init(KEY, data).in_set)
    state, info = states(solver, data, rows)
    coef, inside, spent = lasvm_by_hand(K, LABELS, C, begun, np.asarray(rows)[:, 0], 2, bias)
    # 120 steps of rounding, 1e-16 each, on coefficients up to 5
    np.testing.assert_allclose(state.dual.coef, coef, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(state.in_set, inside)
    np.testing.assert_array_equal(np.cumsum(info.evals), N * spent)
    np.testing.assert_allclose(
        state.dual.grad + state.dual.compensation, LABELS - coef @ K, rtol=0, atol=1e-12
    )
    # some joined, some left
    assert np.any(inside[:-1] & ~inside[1:]) and np.any(inside[1:] & ~inside[:-1])


# where it ends


@pytest.mark.long
@BOTH
def test_one_pass_and_the_finishing_end_at_the_optimum_on_the_rows_kept(bias, x64):
    run, coef = finish(make(bias=bias), dataset(), tol=1e-8)
    rows = np.flatnonzero(run.state.solver.in_set)
    assert len(rows) < N
    np.testing.assert_allclose(
        violation(coef, LABELS, C, bias, rows), run.info.residual[-1], atol=1e-12
    )
    assert (
        violation(coef, LABELS, C, bias, rows)
        <= 1e-8
        < violation(coef, LABELS, C, bias, np.arange(N))
    )
    if bias == "free":
        expected, b = libsvm(C, X[rows], LABELS[rows])
        np.testing.assert_allclose(
            dual(coef), dual(expected, LABELS[rows], K[np.ix_(rows, rows)]), rtol=1e-8
        )
        np.testing.assert_allclose(run.model.b, b, atol=1e-6)


@pytest.mark.long
def test_derivatives_are_those_of_the_problem_on_the_rows_kept(x64):
    """Against differences of LIBSVM's solutions on S."""
    run, _ = finish(make(), dataset())
    S = np.flatnonzero(run.state.solver.in_set)

    def score(C):
        return jnp.tanh(make(C=C).model(run.state.solver, dataset())(jnp.asarray(NEW))).sum()

    def by_libsvm(C):
        coef, b = libsvm(C, X[S], LABELS[S])
        return np.tanh(gaussian(NEW, X[S]) @ coef + b).sum()

    h = 1e-4  # h^2 of truncation, and 1e-8 / h of LIBSVM's own error
    np.testing.assert_allclose(
        jax.grad(score)(C), (by_libsvm(C + h) - by_libsvm(C - h)) / (2 * h), rtol=1e-3
    )


@pytest.mark.long
@pytest.mark.parametrize("copies", ["of the other label", "alike"])
def test_duplicates(copies, x64):
    """Pairs without curvature go to the nearer bound."""
    half = N // 2
    x, y = np.tile(X[:half], (2, 1)), np.tile(LABELS[:half], 2)
    y[half:] *= 1 if copies == "alike" else np.where(np.arange(half) < 6, -1, 1)
    _, coef = finish(make(passes=10), dataset(x, y))
    gram = gaussian(x, x)
    np.testing.assert_allclose(dual(coef, y, gram), dual(libsvm(C, x, y)[0], y, gram), rtol=1e-8)


# what holds at each step


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("C", [0.5, 20.0])
def test_sum_box_and_absence_in_float32(bias, C):
    weight = np.tile([2.0, 1.0, 0.0, 0.7, 1.0], N // 5)
    data = dataset(weight=weight, dtype=np.float32)
    state, info = states(make(C=C, bias=bias, passes=2), data, orders(4))
    coef, inside, eps = (
        np.asarray(state.dual.coef, np.float64),
        np.asarray(state.in_set),
        np.finfo(np.float32).eps,
    )
    bound = np.float64(np.float32(C) * weight.astype(np.float32))
    assert np.all((LABELS * coef >= 0) & (LABELS * coef <= bound))
    assert np.any(LABELS * coef == bound)
    assert np.all(coef[~inside] == 0) and not np.any(inside[:, weight == 0])
    if (
        bias == "free"
    ):  # the last step's own rounding, and two ends that were near enough to be taken
        assert np.abs(coef.sum(1)).max() <= 6 * eps * bound.max()
    pull = np.asarray(state.dual.grad, np.float64) + np.asarray(state.dual.compensation)
    # float32 kernel values, of a few roundings each
    assert np.abs(pull - (LABELS - coef @ K)).max() <= 4 * eps * np.abs(coef).sum(1).max()
    np.testing.assert_array_equal(
        np.isinf(info.residual), np.arange(4 * N) < np.argmin(np.isinf(info.residual))
    )


def test_a_pass_is_over_when_every_row_of_positive_weight_was_visited(x64):
    data = dataset(weight=np.where(np.arange(N) < 3, 0.0, 1.0))
    rows = jnp.asarray([*range(N), *range(10), *range(10), *range(N - 1, 9, -1), 5, 6], jnp.int32)[
        :, None
    ]
    state, info = states(make(passes=2), data, rows)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(state.passes)) + 1, [N - 1, 2 * N + 9])
    np.testing.assert_array_equal(np.isfinite(info.residual), np.arange(len(rows)) >= 2 * N + 9)


@pytest.mark.long
@pytest.mark.parametrize(("bias", "C"), [("free", 2.0), ("none", 0.02)])
def test_kernel_rows_are_counted_as_they_are_computed_and_none_is_where_nothing_moves(bias, C):
    made = []

    def counted(x, z):
        jax.debug.callback(lambda: made.append(x.shape[0]))
        return jnp.exp(-sqdist(x, z) / (2 * SIGMA**2))

    kernel = kernels.custom(counted, diag_fn=lambda x: jnp.ones(x.shape[0], x.dtype))
    state, info = states(
        make(C=C, bias=bias, kernel=kernel, passes=2), dataset(dtype=np.float32), orders(3)
    )
    jax.block_until_ready(state)
    jax.effects_barrier()
    assert sum(made) * N == int(info.evals.sum())
    assert int(info.evals.max()) == (4 * N if bias == "free" else 2 * N)
    if (
        bias == "none"
    ):  # C is so small that all margins are below 1: each row goes to its bound, once
        assert sum(made) == N and not np.any(info.evals[N:])
        np.testing.assert_array_equal(
            state.dual.coef[-1], np.float32(C) * LABELS.astype(np.float32)
        )


@pytest.mark.long
def test_rows_of_a_batch_are_taken_in_turn_and_padding_is_passed_over(x64):
    data, solver, rows = dataset(), make(), orders(2)
    one, _ = states(solver, data, rows)
    padded = np.insert(np.asarray(rows).reshape(-1, 4), 2, -1, axis=1)
    four, info = states(solver, data, jnp.asarray(padded))
    last = lambda state: jax.tree.map(lambda a: np.asarray(a[-1]), state)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-12), last(four), last(one))
    assert np.isfinite(info.residual[-1])


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("passes", [1, 3])
def test_many_rows_a_step_make_the_visits_of_one_row_a_step(bias, passes, x64):
    """Kernel rows in memory change what a step costs, and nothing else; some are computed before
    they are needed."""
    data, rows = dataset(), orders(passes + 2)
    one, one_info = states(make(bias=bias, passes=passes), data, rows)
    for memory in (None, 0):
        many, info = states(
            make(bias=bias, passes=passes, memory=memory), data, jnp.asarray(rows).reshape(-1, N)
        )
        last = lambda state: jax.tree.map(lambda a: np.asarray(a[-1]), state)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, atol=1e-12), last(many), last(one)
        )
        assert np.all(np.asarray(info.evals) % N == 0) and np.all(np.asarray(info.evals[0]) >= N)
        if memory is None:  # each row is computed once an update at most
            assert np.all(np.asarray(info.evals) <= N * N) and np.sum(info.evals) < np.sum(
                one_info.evals
            )
        np.testing.assert_allclose(np.sum(info.progress), np.sum(one_info.progress), rtol=1e-9)


@pytest.mark.long(but=1)
@BOTH
def test_with_a_tolerance_the_update_that_ends_the_passes_goes_on_to_it(bias, x64):
    data = dataset()
    run = jaxsvm.fit(make(bias=bias, C=20.0), data, KEY, steps=50, tol=1e-6)
    assert run.converged and int(run.state.step) == 1
    coef, rows = np.asarray(run.model.coef), np.flatnonzero(run.state.solver.in_set)
    assert 0 < len(rows) < N and violation(coef, LABELS, 20.0, bias, rows) <= 1e-6
    loose = jaxsvm.fit(make(bias=bias, C=20.0, tol=0.1), data, KEY)
    assert loose.converged and 1e-3 < float(loose.info.residual[-1]) <= 0.1


@pytest.mark.long
def test_its_program_copies_no_kernel_rows_and_selects_next_rows_in_a_branch_only():
    """4,096 rows: what XLA would copy or compute at each step of a loop is in the text of the
    program."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4096, 3)).astype("f")
    data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, 1, -1))
    solver = make()
    state, batch = (
        jax.eval_shape(solver.init, KEY, data),
        data._replace(index=jnp.arange(4096, dtype=jnp.int32)),
    )
    program = jax.jit(solver.update).lower(state, batch).compile(as_users()).as_text()
    store = re.search(r"f32\[(\d+),4096\]\S* dynamic-update-slice", program)
    assert store, (
        "no store of kernel rows found: the text of programs has changed, and this test with it"
    )
    assert not re.search(rf"= f32\[{store[1]},4096\]\S* copy\(", program)
    functions = re.split(r"\n(?=%|ENTRY)", program)
    (selects,) = [f.split(" ")[0] for f in functions if 'custom_call_target="TopK"' in f]
    assert re.search(rf"branch_computations=.*{re.escape(selects)}\b", program)


# beginnings


@pytest.mark.long
def test_a_few_rows_of_each_class_begin():
    weight = np.where(np.flatnonzero(LABELS > 0)[:, None] == np.arange(N), 1, 0).sum(0) * (
        np.arange(N) < 6
    ) + (LABELS < 0)
    data = dataset(weight=weight.astype(float), dtype=np.float32)
    few = int(np.sum((LABELS > 0) & (weight > 0)))
    assert 0 < few < 5
    begun = [np.asarray(make().init(jax.random.key(k), data).in_set) for k in range(4)]
    for inside in begun:
        assert (np.sum(inside & (LABELS > 0)), np.sum(inside & (LABELS < 0))) == (few, 5)
        assert not np.any(inside & (weight == 0))
    assert len({inside.tobytes() for inside in begun}) == 4


def test_rows_of_a_start_are_in_the_set(x64):
    alpha = LABELS * libsvm(C)[0]
    in_set = make(start=jnp.asarray(alpha)).init(KEY, dataset()).in_set
    assert np.all(np.asarray(in_set)[alpha > 0])


@pytest.mark.long
def test_a_start_at_the_optimum_stays_there(x64):
    coef, _ = libsvm(C)
    run, found = finish(make(start=jnp.asarray(LABELS * coef)), dataset())
    np.testing.assert_allclose(found, coef, atol=1e-6)
    np.testing.assert_allclose(dual(found), dual(coef), rtol=1e-8)


@pytest.mark.long
def test_rows_of_one_class_have_no_support_vectors(x64):
    data = dataset()._replace(y=jnp.ones(N))
    run, coef = finish(make(), data)
    assert np.all(coef == 0) and float(run.model.b) == 1


def test_where_all_rows_might_leave_the_extremes_stay():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(100, 2)).astype(np.float32), np.zeros(100)
    y[:5] = 5
    data = jaxsvm.dataset(x, y, task="regression")
    loss, kernel = jaxsvm.losses.eps_insensitive(0.1), jaxsvm.kernels.rbf(gamma=1.0)
    made = sklearn.svm.SVR(C=1.0, gamma=1.0, epsilon=0.1, tol=1e-6).fit(x, y)
    run = jaxsvm.fit(
        jaxsvm.lasvm(1.0, kernel, loss=loss, passes=4),
        data,
        jax.random.key(1),
        steps=1_000,
        tol=1e-3,
    )
    np.testing.assert_allclose(run.model(data.x), made.predict(x), atol=2e-2)
