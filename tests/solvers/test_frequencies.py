"""Adaptive coordinate frequencies against algorithm 2 in NumPy, and runs with them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_same_bits
from test_bsca import ALIKE, KEY, LABELS, WEIGHT, ByHand, N, dataset, dual, make, primal

import jaxsvm
from jaxsvm import kernels, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef
from jaxsvm.samplers.coordinate_frequencies import _systematic as systematic

# adaptive coordinate frequencies

LOW, HIGH, QUANTA = 1 / 20, 20.0, 2**-14  # shares of an epoch are kept to 2^-16, in float32 before
PART = np.where(np.arange(N) % 5 == 3, 0, WEIGHT)  # some rows of weight 0
ONE, BY5, FROZEN = samplers.acf(), samplers.acf(5), samplers.acf(5, change=0.0)

_init = jax.jit(lambda sampler, key, data: sampler.init(key, data))
_draw = jax.jit(lambda sampler, state, t, count: sampler.draw(state, t, count), static_argnums=3)
_tell = jax.jit(lambda sampler, state, index, progress: sampler.feedback(state, index, progress))


def begin(sampler, weight=None, dtype=np.float32, seed=0):
    return _init(sampler, jax.random.key(seed), dataset(weight=weight, dtype=dtype))


def draw(sampler, state, t, count):
    return np.asarray(_draw(sampler, state, jnp.int32(t), count))


def period(sampler):
    return sampler.period(N)


def plain(state):
    """A state without its key."""
    return [np.asarray(leaf) for leaf in state[1:]]


def same_state(one, other):
    jax.tree.map(np.testing.assert_array_equal, plain(one), plain(other))


def account(p, mean, index, gain, first, change=0.2):
    """The loop of algorithm 2 over one epoch."""
    p, total = p.copy(), np.size(index)
    for i, value in zip(np.ravel(index), np.ravel(gain), strict=True):
        if first:
            mean += value / total
            continue
        if mean > 0:
            p[i] = np.clip(
                p[i] * np.exp(min(change * (value / mean - 1), np.log(HIGH / LOW))), LOW, HIGH
            )
        mean = (1 - 1 / len(p)) * mean + value / len(p)
    return p, mean


@pytest.mark.parametrize(("weight", "change"), [(None, 0.2), (PART, 1.0)], ids=["all", "some"])
def test_preferences_are_those_of_algorithm_2(weight, change, x64):
    """Gains of very different size, by row and by visit: with change 1 some hit both ends and the
    cap; -1 is passed over."""
    sampler = samplers.acf(5, change=change)
    state, rng = begin(sampler, weight, np.float64), np.random.default_rng(3)
    p, mean = np.where(PART > 0, 1.0, 0.0) if weight is not None else np.ones(N), 0.0
    size, seen = np.exp(rng.normal(size=N) * 3), []
    for epoch in range(8):
        index = draw(sampler, state, 5 * epoch, 5)
        gain = rng.exponential(size=index.shape) * size[index] * (rng.random(index.shape) < 0.6)
        shown, told = np.insert(index, 2, -1, axis=1), np.insert(gain, 2, 7.0, axis=1)
        before, state = state, _tell(sampler, state, jnp.asarray(shown), jnp.asarray(told))
        p, mean = account(p, mean, index, gain, epoch == 0, change)
        np.testing.assert_allclose(state.preference, p, rtol=1e-12)
        np.testing.assert_allclose(state.mean, mean, rtol=1e-12)
        assert int(state.step) == 5 * (epoch + 1)
        if epoch == 0:
            np.testing.assert_array_equal(state.preference, before.preference)
        seen += [p.max(), p[p > 0].min()]
    assert max(seen) > 2 and min(seen) < 0.5
    if weight is not None:
        assert max(seen) == HIGH and min(seen) == LOW and np.all((p > 0) == (PART > 0))
    assert np.all(np.abs(np.bincount(state.schedule, minlength=N) - 25 * p / p.sum()) < 1 + QUANTA)


def test_preferences_stay_where_nothing_was_gained_and_of_rows_of_weight_zero(x64):
    state, never = begin(BY5, PART, np.float64), np.flatnonzero(PART == 0)
    for epoch in range(3):
        state = _tell(BY5, state, jnp.asarray(draw(BY5, state, 5 * epoch, 5)), jnp.zeros((5, 5)))
        np.testing.assert_array_equal(state.preference, PART > 0)
        assert float(state.mean) == 0
    told = np.resize(never, (5, 5)).astype(np.int32)  # a solver that says more than it should
    state = _tell(BY5, state, jnp.asarray(told), jnp.ones((5, 5)))
    state = _tell(BY5, state, jnp.asarray(told), jnp.ones((5, 5)))
    np.testing.assert_array_equal(state.preference, PART > 0)
    assert not np.isin(never, state.schedule).any()


def by_preference(p, key=KEY, epoch=0, total=None):
    """Visits of each row in one epoch."""
    total = total or len(p)
    made = systematic(key, jnp.asarray(p), jnp.int32(epoch), jnp.int32(len(p)), total)
    assert made.shape == (total,) and made.dtype == np.int32 and np.all(np.diff(made) >= 0)
    return np.bincount(made, minlength=len(p))


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(float(np.float32(LOW)), HIGH, width=32), min_size=N, max_size=N),
    st.lists(st.booleans(), min_size=N, max_size=N).filter(any),
    st.integers(0, 2**31 - 1),
    st.sampled_from([N, N + 1, 2 * N - 1]),
)
def test_an_epoch_has_its_length_and_visits_each_row_floor_or_ceil_of_its_share(
    p, there, epoch, total
):
    p = np.where(there, p, 0).astype(np.float32)
    times, share = (
        by_preference(p, epoch=epoch, total=total),
        total * p.astype(float) / p.astype(float).sum(),
    )
    assert times.sum() == total and np.all(times[p == 0] == 0)
    assert np.all(np.abs(times - share) < 1 + QUANTA)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["spread", "first"])
def test_an_epoch_of_a_million_rows_drifts_nowhere(kind):
    """Also not in the sum of the first rows, where roundings would add up."""
    n, rng = 10**6, np.random.default_rng(1)
    p = {
        "spread": np.exp(rng.uniform(np.log(LOW), np.log(HIGH), n)),
        "first": np.where(np.arange(n) < 10, HIGH, LOW),
    }[kind].astype(np.float32)
    times, share = by_preference(p, epoch=7), n * p.astype(float) / p.astype(float).sum()
    assert times.sum() == n and np.all(times[p == 0] == 0)
    assert np.all(np.abs(times - share) < 1 + QUANTA + 1e-6 * share)  # float32, and its sum of p
    # the first k rows together, too: up to 2^-16 a row makes up for roundings
    assert np.abs(np.cumsum(times) - np.cumsum(share)).max() < 2 + n * 2**-16


@pytest.mark.long
@pytest.mark.parametrize("sampler", [ONE, BY5], ids=repr)
def test_the_first_epoch_visits_every_row_and_permuted_epochs_need_no_change(sampler):
    length = period(sampler)
    assert length == -(-N // sampler.rows(N)) and sampler.weight(dataset(weight=WEIGHT)).shape == (
        N,
    )
    first = draw(sampler, begin(sampler), 0, length)
    times = np.bincount(first.ravel(), minlength=N)
    assert times.sum() == length * sampler.rows(N) and times.min() == 1 and times.max() <= 2
    if sampler is ONE:
        epochs = draw(samplers.acf(change=0.0), begin(samplers.acf(change=0.0)), 0, 10 * N).reshape(
            10, N
        )
        np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(N), (10, 1)))
        assert len(np.unique(epochs, axis=0)) == 10


@pytest.mark.long
@pytest.mark.parametrize("n, positive", [(100_000, 1), (1_000_000, 10)])
def test_few_rows_of_weight_among_many_share_the_whole_schedule(n, positive):
    """10^5 visits of one row: whole numbers that wrap at 2^16 would draw rows of weight 0."""
    rows = np.sort(np.random.default_rng(0).choice(n, positive, replace=False))
    weight = jnp.zeros(n).at[rows].set(1)
    data = jaxsvm.Batch(jnp.zeros((n, 1)), jnp.ones(n), jnp.arange(n, dtype=jnp.int32), weight)
    schedule = np.asarray(samplers.acf().init(KEY, data).schedule)
    drawn, times = np.unique(schedule, return_counts=True)
    np.testing.assert_array_equal(drawn, rows)
    assert np.all(np.abs(times - n / positive) <= 1)


@pytest.mark.long
def test_frozen_preferences_are_kept_over_a_hundred_epochs():
    p = np.exp(np.random.default_rng(2).uniform(np.log(LOW), np.log(HIGH), N)).astype(np.float32)
    p[[3, 11]] = 0
    state = begin(FROZEN, (p > 0).astype(float))._replace(
        preference=jnp.asarray(p), step=jnp.int32(5)
    )
    times, gain, between = (
        np.zeros(N),
        np.random.default_rng(3).exponential(size=(5, 5)).astype(np.float32),
        [],
    )
    share = 25 * p.astype(float) / p.astype(float).sum()
    # with the old schedule
    state = _tell(FROZEN, state, jnp.asarray(draw(FROZEN, state, 0, 5)), jnp.asarray(gain))
    for epoch in range(100):
        index = draw(FROZEN, state, 10 + 5 * epoch, 5)
        once = np.bincount(index.ravel(), minlength=N)
        assert np.all(np.abs(once - share) < 1 + QUANTA)
        times += once
        between.append(index.ravel())
        state = _tell(FROZEN, state, jnp.asarray(index), jnp.asarray(gain))
    np.testing.assert_array_equal(state.preference, p)
    assert np.abs(times - 100 * share).max() < 2
    assert len(np.unique(between, axis=0)) == 100


@pytest.mark.long
@pytest.mark.parametrize("sampler", [ONE, BY5], ids=repr)
def test_draws_are_those_of_single_steps_at_any_step(sampler):
    state = begin(sampler, PART)
    length = period(sampler)
    for epoch in range(2):  # uneven preferences
        index = draw(sampler, state, epoch * length, length)
        state = _tell(sampler, state, jnp.asarray(index), jnp.asarray(index == 2, jnp.float32))
    assert float(state.preference[2]) == HIGH

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 1_000_000_000))
    def check(t):
        whole = draw(sampler, state, t, 5)
        assert whole.dtype == np.int32 and whole.shape == (5, sampler.rows(N))
        np.testing.assert_array_equal(
            whole, np.concatenate([draw(sampler, state, t, 2), draw(sampler, state, t + 2, 3)])
        )
        assert set(whole.ravel()) <= set(np.flatnonzero(PART))

    check()


@pytest.mark.parametrize("cuts", [[1] * 5, [2, 3], [4, 1]], ids=str)
def test_feedback_in_pieces_is_feedback_at_once(cuts):
    state, rng, bounds = begin(BY5, PART), np.random.default_rng(0), np.cumsum([0, *cuts])
    pieces = state
    for epoch in range(3):
        index, gain = (
            draw(BY5, state, 5 * epoch, 5),
            rng.exponential(size=(5, 5)).astype(np.float32),
        )
        state = _tell(BY5, state, jnp.asarray(index), jnp.asarray(gain))
        for a, b in zip(bounds, bounds[1:], strict=False):
            # as `fit` tells it: a table of fixed size, the rows of steps that were not made -1
            shown, told = np.full((5, 5), -1, np.int32), np.zeros((5, 5), np.float32)
            shown[: b - a], told[: b - a] = index[a:b], gain[a:b]
            pieces = _tell(BY5, pieces, jnp.asarray(shown), jnp.asarray(told))
        same_state(state, pieces)


@pytest.mark.long
def test_a_vmap_over_keys_and_gains_does_what_each_does():
    data, keys = dataset(weight=PART, dtype=np.float32), jax.random.split(jax.random.key(3), 3)
    gain = jnp.asarray(np.random.default_rng(0).exponential(size=(3, 5, 5)), jnp.float32)

    def adapted(key, gain, feed):
        state = BY5.init(key, data)._replace(mean=jnp.float32(0.5), step=jnp.int32(5))
        return feed(state, BY5.draw(state, 5, 5), gain)

    def together(key, gain):
        state = adapted(key, gain, BY5.feedback)
        return BY5.draw(state, 10, 5), state._replace(key=jax.random.key_data(state.key))

    drawn, states = jax.jit(jax.vmap(together))(keys, gain)
    for k, key in enumerate(keys):
        state = adapted(key, gain[k], lambda *told: _tell(BY5, *told))
        # other fusions round otherwise
        np.testing.assert_allclose(states.preference[k], state.preference, rtol=1e-5)
        np.testing.assert_array_equal(states.schedule[k], state.schedule)
        np.testing.assert_array_equal(drawn[k], draw(BY5, state, 10, 5))


# --------------------------------------------------------------------------------------------- runs
# with such frequencies


@pytest.mark.long
@pytest.mark.parametrize("change", [0.0, 0.2])
def test_acf_bsca_by_hand(change, x64):
    """Algorithms 1 and 2 together on the rows drawn; with no change a run of permuted epochs."""
    sampler, data = samplers.acf(change=change), dataset()
    now, p, mean, run = ByHand(), np.ones(N), 0.0, None
    for epoch in range(5):
        old = begin(sampler, None, np.float64, 0) if run is None else run.state.sampler
        run = jaxsvm.fit(
            make(),
            data,
            KEY if run is None else None,
            steps=N,
            every=N,
            sampler=sampler,
            state=run and run.state,
        )
        index = draw(sampler, old._replace(key=run.state.sampler.key), epoch * N, N)
        if epoch == 0 or change == 0:
            np.testing.assert_array_equal(np.sort(index.ravel()), np.arange(N))
        gain = np.array([now.step(rows)[0] for rows in index])
        p, mean = account(p, mean, index, gain, epoch == 0, change)
        np.testing.assert_allclose(
            np.asarray(dual_coef(run.state.solver.inner)) * LABELS, now.alpha, atol=1e-10
        )
        np.testing.assert_allclose(run.state.sampler.preference, p, rtol=1e-8)
        np.testing.assert_allclose(run.info.residual[-1], now.residual["summands"], atol=1e-9)
        share = N * p / p.sum()
        times = np.bincount(np.ravel(run.state.sampler.schedule), minlength=N)
        assert np.all(np.abs(times - share) < 1 + QUANTA)
    assert now.margin > ALIKE
    assert (p.min() < 1 < p.max()) if change else np.all(p == 1)


@pytest.mark.long
def test_a_run_goes_on_where_it_was_cut_to_the_bit():
    """Pieces that do not divide an epoch, cuts inside of one and between two."""
    solver, data, sampler = make(), dataset(dtype=np.float32), samplers.acf(5)  # epochs of 5 steps
    fit = functools.partial(jaxsvm.fit, solver, data, sampler=sampler)
    whole = fit(KEY, steps=35, every=5)
    assert len(np.unique(whole.state.sampler.preference)) > 3
    for cut in (15, 17):
        first = fit(KEY, steps=cut, every=3)
        second = fit(steps=35 - cut, every=3, state=first.state)
        assert_same_bits((second.state.solver, second.model), (whole.state.solver, whole.model))
        same_state(second.state.sampler, whole.state.sampler)
    np.testing.assert_array_equal(first.info.step, [3, 5, 8, 10, 13, 15, 17])


M, SCALES = 64, [5.0, 1.0, 0.2]


@jax.jit
def _gaps(data, sampler, key):
    """Dual coefficients after each epoch, and the kernel evaluations spent."""
    solver = jaxsvm.sdca(100.0, kernels.rbf(1.0))
    run = jaxsvm.fit(
        solver, data, key, steps=400 * M, every=M, sampler=sampler, probe=lambda model: model.coef
    )
    return run.info.probe, jnp.cumsum(run.info.evals)


@pytest.mark.long
def test_rows_of_different_worth_need_fewer_kernel_evaluations_to_a_gap(x64):
    """Columns of scales 1 to 25 at a large C: a quarter fewer at least on each of five problems, to
    1 % of the primal value."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(M, 3)) * SCALES
        y = np.where(x @ [1.0, -1.0, 0.5] + 0.2 * rng.normal(size=M) > 0, 1.0, -1.0)
        kernel, spent = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2), []
        for sampler in (samplers.acf(), samplers.epochs()):
            coefs, evals = _gaps(dataset(x, y), sampler, jax.random.key(seed))
            values = [(primal(c, kernel, y, 100.0), dual(c, kernel, y)) for c in np.asarray(coefs)]
            spent.append(
                next(float(e) for (P, D), e in zip(values, evals, strict=True) if P - D <= 0.01 * P)
            )
        assert spent[0] < 0.75 * spent[1]
