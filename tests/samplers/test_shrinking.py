"""The shrinking sampler: which rows it draws, what it learns from feedback, and runs of dual
coordinate ascent with it."""

import functools

import drawing
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from drawing import by_liblinear, draw, feedback, init, rows
from oracles import assert_same_bits as same_bits

import jaxsvm
from jaxsvm import samplers
from jaxsvm.engines.coordinate_ascent import dual_coef

# 14 rows of positive weight
N, WEIGHT = (20, np.array([1, 0, 2, 0.5, 1, 3, 0, 1] + [1] * 8 + [0] * 4))
ALL = np.arange(N)
BY3, BY4, ONE = samplers.shrinking(3), samplers.shrinking(4), samplers.shrinking(4, rounds=1)
PERIOD = {BY3: 7, BY4: 5, ONE: 5}


def start(sampler, weight=None, seed=0):
    return drawing.start(sampler, rows(np.ones(N) if weight is None else weight), seed)


def tell(sampler, state, index, moves):
    """Feedback on (T, b) rows, those in `moves` with progress."""
    progress = np.where(np.isin(index, list(moves)), 0.25, 0).astype(np.float32)
    return feedback(sampler, state, jnp.asarray(index, jnp.int32), jnp.asarray(progress))


def play(sampler, state, moves):
    """Periods in which the rows of moves[k] move in period k: the rows drawn in each, and the state
    after it."""
    period, drawn = PERIOD[sampler], []
    for k, moving in enumerate(moves):
        index = draw(sampler, state, k * period, period)
        drawn.append(index)
        state = tell(sampler, state, index, moving)
    return drawn, state


def same_state(one, other):
    """In all that draws may depend on."""
    facts = lambda s: (s.active[: int(s.n_active)], s.n_active, s.progressed, s.step, s.rows)
    jax.tree.map(np.testing.assert_array_equal, facts(one), facts(other))


# draws


@pytest.mark.long
def test_draws_are_those_of_parts_in_whole_passes_and_between_them():
    _, state = play(BY3, start(BY3, WEIGHT), [{2, 5, 9}])
    for t in (0, 5, 14, 20, 1_000_000):
        whole = draw(BY3, state, t, 7)
        assert whole.dtype == np.int32 and whole.shape == (7, BY3.rows(N))
        parts = draw(BY3, state, t, 2), draw(BY3, state, t + 2, 5)
        np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.long
def test_a_whole_period_visits_every_row_exactly_once_where_the_batch_divides_them():
    state, seen = start(BY4), set()
    for k in (0, 1, 3, 100):  # nothing moves: all periods are whole
        index = draw(BY4, state, k * 5, 5)
        np.testing.assert_array_equal(np.sort(index.ravel()), ALL)
        seen.add(tuple(index.ravel()))
    assert len(seen) == 4  # in another order each
    assert tuple(draw(BY4, start(BY4, seed=1), 0, 5).ravel()) not in seen


@pytest.mark.parametrize("sampler", [BY3, BY4], ids=repr)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["all", "some"])
def test_a_whole_period_visits_every_row_at_least_once_and_none_of_weight_zero(sampler, weight):
    want = ALL if weight is None else np.flatnonzero(weight)
    for seed in range(5):
        index = draw(sampler, start(sampler, weight, seed), 0, PERIOD[sampler]).ravel()
        np.testing.assert_array_equal(np.unique(index), want)
        # the laps are whole passes themselves
        assert np.bincount(index).max() <= -(-index.size // len(want))


def test_between_whole_passes_the_moving_rows_are_visited_in_turn_in_a_new_order_each_lap():
    moving = {2, 5, 9, 11, 12}
    drawn, state = play(BY4, start(BY4, WEIGHT), [moving] * 3)
    for index in drawn[1:]:
        laps = index.reshape(-1, len(moving))
        assert all(set(lap) == moving for lap in laps)
        assert len({tuple(lap) for lap in laps}) > 1
    assert np.any(drawn[1] != drawn[2])


def test_sizes():
    sizes = [(s.rows(N), s.period(N), s.full_batch) for s in (BY3, BY4, samplers.shrinking())]
    assert sizes == [(3, 7, False), (4, 5, False), (16, 2, False)]


@pytest.mark.long
def test_a_vmap_over_keys_and_moves_does_what_each_does():
    sampler, period, data, keys = BY3, 7, rows(WEIGHT), jax.random.split(jax.random.key(3), 3)
    progress = np.random.default_rng(0).random((3, period, sampler.rows(N))) < 0.3
    progress = jnp.asarray(progress, jnp.float32)

    def two(key, progress):
        state = sampler.init(key, data)
        first = sampler.draw(state, 0, period)
        state = sampler.feedback(state, first, progress)
        return sampler.draw(state, period, period), state

    drawn, states = jax.jit(jax.vmap(two))(keys, progress)
    for i, key in enumerate(keys):
        state = init(sampler, key, data)
        state = feedback(sampler, state, jnp.asarray(draw(sampler, state, 0, period)), progress[i])
        same_state(state, jax.tree.map(lambda a, i=i: a[i], states))
        np.testing.assert_array_equal(drawn[i], draw(sampler, state, period, period))


@pytest.mark.long
def test_draws_are_the_same_with_float64_switched_on():
    want, before = play(BY3, start(BY3, WEIGHT), [{2, 5, 9}, {5}])
    with jax.enable_x64(True):
        wide = rows(WEIGHT)._replace(weight=jnp.asarray(WEIGHT, jnp.float64))
        got, after = play(BY3, init(BY3, jax.random.key(0), wide), [{2, 5, 9}, {5}])
    same_state(before, after)
    np.testing.assert_array_equal(got, want)


# feedback


LIVE, MOVING = set(np.flatnonzero(WEIGHT)), {0, 3, 8, 15}
STOPS = [{0, 3, 8}, {0, 8}, {8}, {0, 3, 10}, {3, 10}, {3}]
PERIODS = {  # sampler, the rows that move in each period, those that are drawn
    "two rounds": (BY3, [MOVING] * 6, [LIVE, MOVING, MOVING] * 2),
    "that divide the rows": (BY4, [MOVING] * 6, [LIVE, MOVING, MOVING] * 2),
    "one round": (ONE, [MOVING] * 6, [LIVE, MOVING] * 3),
    "a single row": (BY3, [{9}] * 3, [LIVE, {9}, {9}]),
    "rows that stop": (BY3, STOPS, [LIVE, {0, 3, 8}, {0, 8}, LIVE, {0, 3, 10}, {3, 10}]),
    "all rows stop": (BY4, [{0, 3}, *[set()] * 4], [LIVE, {0, 3}, LIVE, LIVE, LIVE]),
}


@pytest.mark.parametrize("name", PERIODS)
def test_after_a_whole_pass_as_many_periods_as_rounds_on_moving_rows_then_all_again(name):
    """A row that stops moving leaves at the end of a period and comes back in a pass."""
    sampler, moves, wanted = PERIODS[name]
    drawn, state = play(sampler, start(sampler, WEIGHT), moves)
    assert [set(index.ravel()) for index in drawn] == wanted
    assert int(state.n_active) == len(moves[-1])


def test_only_progress_above_zero_is_movement():
    state = start(BY4)
    index = draw(BY4, state, 0, 5)
    progress = jnp.asarray(np.where(index < 4, 1e-30, np.where(index < 8, -1.0, 0.0)), jnp.float32)
    state = feedback(BY4, state, jnp.asarray(index), progress)
    assert set(np.asarray(state.active[: int(state.n_active)])) == {0, 1, 2, 3}


def test_the_list_does_not_change_within_a_period():
    state = start(BY4, WEIGHT)
    index = draw(BY4, state, 0, 5)
    inside = tell(BY4, state, index[:3], set(ALL))
    assert int(inside.n_active) == 0 and int(inside.step) == 3
    np.testing.assert_array_equal(draw(BY4, inside, 0, 5), index)


@functools.cache
def _history():
    """Six periods as they went, with rows that move at some visits only."""
    rng, state, told = np.random.default_rng(6), start(BY4, WEIGHT), []
    for k in range(6):
        index = draw(BY4, state, 5 * k, 5)
        progress = (rng.random((5, 4)) < 0.3).astype(np.float32)
        told.append((index, progress))
        state = feedback(BY4, state, jnp.asarray(index), jnp.asarray(progress))
    return told, state


@pytest.mark.parametrize("cuts", [[1] * 5, [2, 3], [4, 1]], ids=str)
def test_feedback_in_pieces_is_feedback_at_once(cuts):
    told, want = _history()
    state, bounds = start(BY4, WEIGHT), np.cumsum([0, *cuts])
    for index, progress in told:
        for a, b in zip(bounds, bounds[1:], strict=False):
            # as `fit` tells it: a table of fixed size, the rows of steps that were not made -1
            shown, gain = np.full((5, 4), -1, np.int32), np.zeros((5, 4), np.float32)
            shown[: b - a], gain[: b - a] = index[a:b], progress[a:b]
            state = feedback(BY4, state, jnp.asarray(shown), jnp.asarray(gain))
    same_state(state, want)
    np.testing.assert_array_equal(draw(BY4, state, 31, 5), draw(BY4, want, 31, 5))


def test_feedback_against_a_plain_account():
    """Sets and loops in Python over the same history."""
    told, state = _history()
    moves, step = {}, 0
    for index, progress in told:
        now = {}
        for i, p in zip(index.ravel(), progress.ravel(), strict=True):
            now[i] = now.get(i, False) or p > 0  # moved at any visit of the period
        moves.update(now)
        step += len(index)
    moving = set(np.asarray(state.active[: int(state.n_active)]))
    assert moving == {i for i, moved in moves.items() if moved}
    assert int(state.step) == step


# runs

M, B, STEPS = 96, 8, 12  # a period is 12 steps


def _noisy():
    rng = np.random.default_rng(11)
    x = (rng.normal(size=(M, 4)) * [1.0, 0.8, 0.5, 0.3]).astype(np.float32)
    return x, np.where(x @ [1.0, -1.0, 0.5, 0.0] + 0.4 * rng.normal(size=M) > 0, 1.0, -1.0)


X, Y = _noisy()
SHRINK, EPOCHS = samplers.shrinking(B), samplers.epochs(B)
KEY = jax.random.key(0)
LONG = 4000 * STEPS


def objective(w, C):
    w, x = np.asarray(w, np.float64), X.astype(np.float64)
    return w @ w / 2 + C * np.maximum(1 - Y * (x @ w), 0).sum()


@functools.cache
def least(C):
    return objective(by_liblinear(X.astype(np.float64), Y, C=C), C)


def fit(solver, sampler=SHRINK, dtype=np.float32, **more):
    more = {"steps": 60, "every": STEPS} | more
    return jaxsvm.fit(solver, jaxsvm.dataset(X.astype(dtype), Y), KEY, sampler=sampler, **more)


@functools.cache
def _sixty():
    return fit(jaxsvm.sdca(10.0))


@pytest.mark.long
@pytest.mark.parametrize(("every", "taken"), [(5, [5, 10, 12]), (4, [4, 8, 12]), (100, [12])])
def test_pieces_fit_into_the_periods_and_their_length_does_not_change_the_bits(every, taken):
    run = fit(jaxsvm.sdca(10.0), every=every)
    wanted = [period + step for period in range(0, 60, 12) for step in taken]
    np.testing.assert_array_equal(run.info.step, wanted)
    same_bits((run.model, run.state.solver), (_sixty().model, _sixty().state.solver))
    same_state(run.state.sampler, _sixty().state.sampler)


@pytest.mark.long
def test_a_run_goes_on_where_it_was_cut():
    for cut in (24, 7, 30):  # also inside a whole pass, and inside a period on moving rows
        first = fit(jaxsvm.sdca(10.0), steps=cut)
        second = fit(jaxsvm.sdca(10.0), steps=60 - cut, state=first.state)
        same_bits((second.model, second.state.solver), (_sixty().model, _sixty().state.solver))
        same_state(second.state.sampler, _sixty().state.sampler)


def test_a_run_draws_fewer_rows_between_whole_passes():
    moving = int(fit(jaxsvm.sdca(10.0), steps=24).state.sampler.n_active)
    assert 0 < moving < M / 2


@pytest.mark.long
def test_runs_inside_jit_and_vmap_are_those_outside():
    Cs = jnp.array([0.1, 1.0, 10.0])
    together = jax.jit(jax.vmap(lambda C: fit(jaxsvm.sdca(C))))(Cs)
    for i, C in enumerate(Cs):
        alone = fit(jaxsvm.sdca(C))
        # other fusions round otherwise, over 60 steps on weights of size 1
        np.testing.assert_allclose(together.model.w[i], alone.model.w, rtol=1e-4, atol=1e-5)
        assert int(together.state.sampler.n_active[i]) == int(alone.state.sampler.n_active)


@pytest.mark.long
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_dual_ascent_reaches_the_optimum_of_liblinear(x64, C):
    run = fit(jaxsvm.sdca(C), dtype=np.float64, steps=LONG, tol=1e-6)
    assert run.converged
    assert abs(objective(run.model.w, C) / least(C) - 1) <= 1e-5


@pytest.mark.long
def test_at_large_C_fewer_visits_than_epochs_to_the_same_objective(x64):
    """Visits are inner products, counted by the solver; epochs get a quarter more and are still
    further away."""
    C = 100.0
    run = fit(jaxsvm.sdca(C), dtype=np.float64, steps=LONG, tol=1e-3)
    assert run.converged
    assert run.evals == B * int(run.state.step)  # one inner product a visit
    passes = -(-run.evals * 5 // (4 * M))
    other = fit(jaxsvm.sdca(C), EPOCHS, np.float64, steps=passes * STEPS, every=passes * STEPS)
    assert other.evals >= 1.25 * run.evals
    assert objective(run.model.w, C) <= least(C) * (1 + 1e-5) < objective(other.model.w, C)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("C", [0.1, 10.0, 100.0])
def test_a_run_that_met_its_tolerance_violates_no_row_by_much_more(x64, C):
    """alpha is taken from the solver's state, and everything else is worked out by hand."""
    tol = 1e-3
    run = fit(jaxsvm.sdca(C), dtype=np.float64, steps=LONG, tol=tol)
    assert run.converged
    alpha = np.asarray(dual_coef(run.state.solver)) * Y
    x = X.astype(np.float64)
    w = (alpha * Y) @ x
    np.testing.assert_allclose(run.model.w, w, rtol=1e-9, atol=1e-9 * C)
    assert alpha.min() >= 0 and alpha.max() <= C
    q = (x**2).sum(1)
    violation = abs(np.clip(alpha + (1 - Y * (x @ w)) / q, 0, C) - alpha) * q
    assert violation.max() <= 10 * tol  # rows moved by up to tol each after this one was visited
    assert (abs(np.clip(alpha + (1 - Y * (x @ (0.9 * w))) / q, 0, C) - alpha) * q).max() > 10 * tol


@pytest.mark.long
def test_the_residual_is_infinite_until_every_row_was_seen_and_counts_rows_once():
    run = fit(jaxsvm.sdca(10.0), steps=72, every=4)  # periods of 12: all, moving, moving, all
    residual = np.asarray(run.info.residual)
    assert np.isinf(residual[:2]).all() and np.isfinite(residual[2:]).all()
    changes = np.flatnonzero(residual[1:] != residual[:-1]) + 2  # pieces after which it is another
    np.testing.assert_array_equal(changes * 4, [12, 48])


@pytest.mark.long
def test_the_residual_of_a_pass_is_the_largest_move_in_it_by_hand(x64):
    C, x = 10.0, X.astype(np.float64)
    q = (x**2).sum(1)
    runs = [fit(jaxsvm.sdca(C), dtype=np.float64, steps=k * STEPS, tol=0.0) for k in range(5)]
    drawn = [draw(SHRINK, run.state.sampler, k * STEPS, STEPS) for k, run in enumerate(runs[:4])]
    first, later = runs[1].state, runs[4]
    alpha, w, worst, passes, seen = np.zeros(M), np.zeros(4), 0.0, [], set()
    for i in np.concatenate(drawn).ravel():
        new = np.clip(alpha[i] + (1 - Y[i] * (x[i] @ w)) / q[i], 0, C)
        worst = max(worst, abs(new - alpha[i]) * q[i])
        w += (new - alpha[i]) * Y[i] * x[i]
        alpha[i] = new
        seen.add(i)
        if len(seen) == M:
            passes.append(worst)
            worst, seen = 0.0, set()
    assert len(passes) == 2
    np.testing.assert_allclose(first.solver.residual, passes[0], rtol=1e-9)  # float64, 400 visits
    np.testing.assert_allclose(later.state.solver.residual, passes[1], rtol=1e-9)
    np.testing.assert_allclose(later.model.w, w, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_kernel_dual_ascent_reaches_the_dual_optimum_of_scipy(x64):
    C, kernel = 10.0, jaxsvm.kernels.rbf(1.0)
    run = fit(jaxsvm.sdca(C, kernel), dtype=np.float64, steps=400 * STEPS, tol=1e-6)
    assert run.converged
    x = X.astype(np.float64)
    gram = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    signed = Y[:, None] * gram * Y[None]
    dual = lambda a: (a @ signed @ a / 2 - a.sum(), signed @ a - 1)
    how = {"method": "L-BFGS-B", "options": {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-13}}
    found = scipy.optimize.minimize(dual, np.zeros(M), jac=True, bounds=[(0, C)] * M, **how)
    got = dual(np.asarray(run.model.coef) * Y)[0]
    assert abs(got - found.fun) <= 1e-5 * abs(found.fun)


@pytest.mark.long
def test_methods_that_report_no_progress_get_whole_passes():
    run = fit(jaxsvm.pegasos(0.1))
    state = run.state.sampler
    assert int(state.n_active) == 0 and int(state.step) == 60
    for k in range(5, 8):
        drawn = draw(SHRINK, state, k * STEPS, STEPS)
        np.testing.assert_array_equal(np.sort(drawn.ravel()), np.arange(M))
