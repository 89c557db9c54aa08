"""Stratified draws: each block by itself, weights without bias, feedback to the block it is of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import samplers
from jaxsvm.loops import checks

KEY = jax.random.key(5)


def rows(weight):
    weight = np.asarray(weight, np.float32)
    n = weight.shape[0]
    return jaxsvm.Batch(
        jnp.zeros((n, 1)), jnp.ones(n), jnp.arange(n, dtype=jnp.int32), jnp.asarray(weight)
    )


_init = jax.jit(lambda sampler, key, data: sampler.init(key, data))
_draw = jax.jit(lambda sampler, state, t, count: sampler.draw(state, t, count), static_argnums=3)
_feed = jax.jit(lambda sampler, state, index, progress: sampler.feedback(state, index, progress))


def draws(sampler, data, steps, start=0, key=KEY):
    return np.asarray(_draw(sampler, _init(sampler, key, data), jnp.int32(start), steps))


INNER = [samplers.epochs(2), samplers.uniform(2), samplers.uniform(2, replace=False)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("inner", INNER, ids=str)
def test_a_block_is_drawn_from_as_by_its_own_sampler(inner):
    weight = np.array([1, 0, 2, 1, 1, 1, 3, 0, 1, 1, 1, 1], np.float32)
    stratified = draws(samplers.strata(inner, blocks=3), rows(weight), 5)
    assert stratified.shape == (5, 6)
    for j in range(3):
        block = rows(weight[4 * j : 4 * j + 4])
        own = draws(inner, block, 5, key=jax.random.fold_in(KEY, j))
        assert (stratified[:, 2 * j : 2 * j + 2] == np.where(own >= 0, own + 4 * j, -1)).all()
    later = draws(samplers.strata(inner, blocks=3), rows(weight), 2, start=3)
    assert (stratified[3:] == later).all()


def test_an_epoch_visits_each_row_once_also_where_blocks_differ():
    weight = [1, 1, 1, 1, 1, 1, 1, 0, 1, 1]  # blocks of 4, 4 and 2 rows
    index = draws(samplers.strata(samplers.epochs(1), blocks=3), rows(weight), 12)
    assert index.max() == 9
    for j, block in enumerate(([0, 1, 2, 3], [4, 5, 6], [8, 9])):
        length = len(block)
        assert (
            sorted(index[:length, j].tolist())
            == block
            == sorted(index[length : 2 * length, j].tolist())
        )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("inner", [samplers.epochs(1), samplers.uniform(1)], ids=str)
def test_steps_have_no_bias(inner):
    """The mean over the rows that may be drawn, written out, is the weighted mean of all rows."""
    # the last block has no rows
    weight = np.array([1, 2, 5, 0, 1, 1, 0, 0, 0.5, 4, 1, 1, 0, 0, 0, 0])
    share = np.asarray(samplers.strata(inner, blocks=4).weight(rows(weight)), np.float64)
    loss = np.arange(16.0) ** 2
    blocks = [np.flatnonzero(weight[4 * j : 4 * j + 4]) + 4 * j for j in range(3)]
    chance = (
        (lambda b: weight[b] / weight[b].sum())
        if "uniform" in str(inner)
        else (lambda b: np.full(len(b), 1 / len(b)))
    )
    expected = np.mean([np.sum(chance(b) * share[b] * loss[b]) for b in blocks])
    assert expected == pytest.approx(np.average(loss, weights=weight), rel=1e-6)
    index = draws(samplers.strata(inner, blocks=4), rows(weight), 50)
    assert (index[:, 3] == -1).all() and (weight[index[:, :3]] > 0).all()


@pytest.mark.long
def test_feedback_goes_to_its_block():
    inner = samplers.acf(2)
    both, data = samplers.strata(inner, blocks=2), rows(np.ones(8))
    assert both.period(8) == inner.period(4) == 2
    state = _init(both, KEY, data)
    parts = [_init(inner, jax.random.fold_in(KEY, j), rows(np.ones(4))) for j in range(2)]
    for t in range(0, 12, 2):
        index = _draw(both, state, jnp.int32(t), 2)
        progress = 1 + (index % 3).astype(jnp.float32)
        state = _feed(both, state, index, progress)
        for j in range(2):
            own = index[:, 2 * j : 2 * j + 2] - 4 * j
            assert (_draw(inner, parts[j], jnp.int32(t), 2) == own).all()
            parts[j] = _feed(inner, parts[j], own, progress[:, 2 * j : 2 * j + 2])
    for j in range(2):
        np.testing.assert_allclose(state.inner.preference[j], parts[j].preference, rtol=1e-6)
    assert not (
        np.asarray(state.inner.preference[0]) == np.asarray(state.inner.preference[1])
    ).all()


@pytest.mark.long
def test_a_run_with_strata_reaches_the_optimum_of_the_plain_one():
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    data = jaxsvm.dataset(x, np.where(x[:, 0] + 0.5 * x[:, 1] > 0.1, 1, -1))
    plain = jaxsvm.fit(jaxsvm.sdca(1.0), data, KEY, steps=4000)
    blocks = jaxsvm.fit(
        jaxsvm.sdca(1.0),
        data,
        KEY,
        steps=1000,
        sampler=samplers.strata(samplers.shrinking(1), blocks=4),
    )
    np.testing.assert_allclose(blocks.model.w, plain.model.w, rtol=1e-4)
    assert blocks.state.solver.residual < 1e-4


def test_bad_input_gets_a_sentence():
    with pytest.raises(
        ValueError, match=r"inner must draw rows of one block, and whole\(\) draws all rows"
    ):
        samplers.strata(samplers.whole(), blocks=2)
    with pytest.raises(ValueError, match="has blocks of its own"):
        samplers.strata(samplers.strata(samplers.epochs(2), blocks=2), blocks=2)
    with pytest.raises(ValueError, match="blocks must be"):
        samplers.strata(samplers.epochs(2), blocks=0)
    with pytest.raises(TypeError, match="sampler"):
        samplers.strata(3, blocks=2)


def test_steps_on_several_devices_draw_in_blocks_of_their_own(monkeypatch):
    """One device takes all; of two, each needs blocks of its own, unless all rows are read."""
    check = lambda solver, sampler, n: checks.check_draws(solver, sampler, n)
    drawn, of_all = jaxsvm.pegasos(0.1), jaxsvm.decomposition(1.0, jaxsvm.kernels.linear())
    blocks = {k: samplers.strata(samplers.uniform(), blocks=k) for k in (3, 4)}
    for sampler in (samplers.uniform(), *blocks.values(), samplers.whole()):
        check(drawn, sampler, 10)
    monkeypatch.setattr(checks, "shards", lambda n: 2)
    check(of_all, samplers.uniform(), 10)
    check(drawn, samplers.whole(), 10)
    check(drawn, blocks[4], 12)
    for sampler, n, sentence in [
        (blocks[4], 10, "the 10 rows do not divide into the 4 blocks"),
        (blocks[3], 12, "lie on 2 devices, .* has 3 blocks: take a multiple of 2"),
        (samplers.uniform(), 10, "lie on 2 devices, .* draws from all of them at once"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            check(drawn, sampler, n)
