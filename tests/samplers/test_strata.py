"""Stratified draws: each block by itself, weights without bias, feedback to the block it is of."""

import jax
import numpy as np
import pytest
from drawing import draw, feedback, init, rows

import jaxsvm
from jaxsvm import samplers
from jaxsvm.loops import checks

KEY = jax.random.key(5)


def draws(sampler, data, steps, start=0, key=KEY):
    return draw(sampler, init(sampler, key, data), start, steps)


INNER = [samplers.epochs(2), samplers.uniform(2), samplers.uniform(2, replace=False)]


@pytest.mark.long
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
        once, again = np.sort(index[: 2 * len(block), j].reshape(2, -1), axis=1).tolist()
        assert once == block == again
    index = draws(samplers.strata(samplers.epochs(1), blocks=1), rows(weight), 9)
    assert sorted(index[:, 0].tolist()) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("inner", [samplers.epochs(1), samplers.uniform(1)], ids=str)
def test_steps_have_no_bias(inner):
    """The mean over the rows that may be drawn, written out, is the weighted mean of all rows."""
    # the last block has no rows
    weight = np.array([1, 2, 5, 0, 1, 1, 0, 0, 0.5, 4, 1, 1, 0, 0, 0, 0])
    share = np.asarray(samplers.strata(inner, blocks=4).weight(rows(weight)), np.float64)
    loss = np.arange(16.0) ** 2
    blocks = [np.flatnonzero(weight[4 * j : 4 * j + 4]) + 4 * j for j in range(3)]
    chance = weight if "uniform" in str(inner) else np.ones(16)
    expected = np.mean([np.average(share[b] * loss[b], weights=chance[b]) for b in blocks])
    assert expected == pytest.approx(np.average(loss, weights=weight), rel=1e-6)
    index = draws(samplers.strata(inner, blocks=4), rows(weight), 50)
    assert (index[:, 3] == -1).all() and (weight[index[:, :3]] > 0).all()


@pytest.mark.long
def test_feedback_goes_to_its_block():
    inner = samplers.acf(2)
    both, data = samplers.strata(inner, blocks=2), rows(np.ones(8))
    assert both.period(8) == inner.period(4) == 2
    state = init(both, KEY, data)
    parts = [init(inner, jax.random.fold_in(KEY, j), rows(np.ones(4))) for j in range(2)]
    for t in range(0, 12, 2):
        index = draw(both, state, t, 2)
        progress = 1 + (index % 3).astype(np.float32)
        state = feedback(both, state, index, progress)
        for j in range(2):
            own = index[:, 2 * j : 2 * j + 2] - 4 * j
            assert (draw(inner, parts[j], t, 2) == own).all()
            parts[j] = feedback(inner, parts[j], own, progress[:, 2 * j : 2 * j + 2])
    for j in range(2):
        np.testing.assert_allclose(state.inner.preference[j], parts[j].preference, rtol=1e-6)
    assert not np.array_equal(*state.inner.preference)


@pytest.mark.long
def test_a_run_with_strata_reaches_the_optimum_of_the_plain_one():
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    data = jaxsvm.dataset(x, np.where(x[:, 0] + 0.5 * x[:, 1] > 0.1, 1, -1))
    plain, feed = jaxsvm.sdca(1.0), samplers.strata(samplers.shrinking(1), blocks=4)
    blocks = jaxsvm.fit(plain, data, KEY, steps=1000, sampler=feed)
    plain = jaxsvm.fit(plain, data, KEY, steps=4000)
    np.testing.assert_allclose(blocks.model.w, plain.model.w, rtol=1e-4)
    assert blocks.state.solver.residual < 1e-4


def test_steps_on_several_devices_draw_in_blocks_of_their_own(monkeypatch):
    """One device takes all; of two, each needs blocks of its own, unless all rows are read."""
    check = checks.check_draws
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
