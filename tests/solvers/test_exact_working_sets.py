"""Working sets and kept kernel rows of the exact kernel solvers, and what is compiled of them."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import as_users
from exact_machines import KEY, Box, D, dataset, fit, gaussian, libsvm, solver
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from test_exact import exact

from jaxsvm import kernels, losses
from jaxsvm._node import cast
from jaxsvm.engines import kernel_cache as kept
from jaxsvm.engines.blocks import select_working_set
from jaxsvm.engines.dual_qp import Dual
from jaxsvm.types import Quadratic

# working sets


@functools.partial(jax.jit, static_argnums=2)
def _choose(dual, stays, size):
    return select_working_set(dual, stays, size)


@pytest.mark.parametrize(
    "n, size, stays", [(8, 8, 4), (9, 8, 4), (11, 8, 4), (33, 32, 8), (40, 8, 0)]
)
def test_a_working_set_holds_each_row_once(n, size, stays):
    numbers = st.sampled_from([-np.inf, -3e38, -1.0, 0.0, 1e-30, 1.0, 2.0, 3e38, np.inf])

    @exact
    @given(
        st.lists(st.tuples(numbers, st.sampled_from([0, 1, 2, 3])), min_size=n, max_size=n),
        st.randoms(use_true_random=False),
    )
    def check(drawn, random):
        pull = np.array([p for p, _ in drawn], np.float32)
        place = np.array([k for _, k in drawn])  # on low, inside, on high, on both
        coef = np.select([place == 0, place == 2], [-1.0, 1.0], 0.0).astype(np.float32)
        low, high = (np.where(place == 3, 0, side).astype(np.float32) for side in (-1, 1))
        keep = np.array(random.sample(range(n), n)[:stays], np.int32)
        dual = Dual(
            jnp.asarray(coef),
            jnp.asarray(pull),
            Quadratic(jnp.asarray(low), jnp.asarray(high)),
            jnp.ones(n),
        )
        got = np.asarray(_choose(dual, jnp.asarray(keep), size))
        assert got.dtype == np.int32 and got.shape == (size,)
        assert len(set(got.tolist())) == size and 0 <= got.min() and got.max() < n
        if size == n:
            return
        assert set(keep) <= set(got)
        # The rest: those that rise fastest of what was left, then those that fall fastest.
        others = np.setdiff1d(np.arange(n), keep)
        up, down = np.where(coef < high, pull, -np.inf), np.where(coef > low, -pull, -np.inf)
        most, first = np.finfo(np.float32).min, got[: (size - stays) // 2]
        rest, second = np.setdiff1d(others, first), got[len(first) : size - stays]
        for score, chosen, among in ((up, first, others), (down, second, rest)):
            found, best = (np.sort(np.maximum(score[k], most))[::-1] for k in (chosen, among))
            np.testing.assert_array_equal(found, best[: len(chosen)])

    check()


# kept rows

MANY, Q = 300, 96  # more rows than slots, more wanted than a chunk
TABLE_X = np.random.default_rng(5).normal(size=(MANY, D))
TABLE = gaussian(TABLE_X, TABLE_X).astype(np.float32)  # a precomputed kernel, whose rows are exact


@jax.jit
def _subtract(total, lost, held, index, by):
    return kept.subtract((total, lost, held), kernels.precomputed(), jnp.asarray(TABLE), index, by)


@pytest.mark.long
@pytest.mark.parametrize("memory", [0, 64 * 4 * MANY, 1e9], ids=["least", "few", "all"])
def test_rows_are_subtracted_as_in_float64_and_kept(memory):
    slots = kept.num_slots(jnp.asarray(TABLE), memory)
    room = memory == 1e9
    assert (slots > MANY) == room

    @settings(exact, max_examples=8)
    @given(
        st.lists(
            st.tuples(st.integers(0, 2**32 - 1), st.integers(0, Q), st.integers(Q, MANY)),
            min_size=1,
            max_size=8,
        )
    )
    @example([(k, Q, MANY) for k in range(12)])  # round and round
    @example([(0, 0, MANY), (0, Q, MANY), (0, Q, MANY), (1, 1, Q)])
    def check(asked):
        held, ever = kept.empty(jnp.asarray(TABLE), slots), set()
        for seed, many, among in asked:
            rng = np.random.default_rng(seed)
            index = rng.choice(among, Q, replace=False).astype(np.int32)
            by = np.where(
                rng.permutation(Q) < many, rng.normal(size=Q) * 10.0 ** rng.integers(-3, 4, Q), 0
            ).astype(np.float32)
            total, lost = (rng.normal(size=(2, MANY)) * [[1], [1e-8]]).astype(np.float32)
            had, made = {i for i in range(MANY) if int(held.slot[i]) >= 0}, int(held.n_computed)
            *sums, held = jax.tree.map(np.asarray, _subtract(total, lost, held, index, by))
            need = set(index[by != 0].tolist())
            ever |= need
            # the model: row -> slot
            there = {i: int(held.slot[i]) for i in range(MANY) if held.slot[i] >= 0}
            assert set(there) <= had | need and len(set(there.values())) == len(there)
            assert {k: i for i, k in there.items()} == {
                k: int(i) for k, i in enumerate(held.owner) if i >= 0
            }
            np.testing.assert_array_equal(held.value[list(there.values())], TABLE[list(there)])
            assert int(held.n_computed) - made == len(need - had)
            if room:  # nothing is worked out twice
                assert int(held.n_computed) == len(ever) and set(there) == ever
            by = by.astype(np.float64)
            want = total.astype(np.float64) + lost - by @ TABLE[index]
            size = np.abs(total) + np.abs(by) @ TABLE[index]
            off = np.abs(sums[0].astype(np.float64) + sums[1] - want)
            assert np.all(off <= 4 * np.finfo(np.float32).eps * size)

    check()


MID = 150  # rows: some are thrown out, blocks grow


@functools.cache
def larger():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(MID, D)).astype(np.float32)
    y = np.where(x[:, 0] + 1.5 * rng.normal(size=MID) > 0, 1.0, -1.0)
    return x, y


@pytest.mark.long
@pytest.mark.parametrize("memory", [0, None], ids=["least", "all"])
def test_memory_changes_the_cost_only(memory):
    x, y = larger()
    gram = gaussian(x, x, 0.7)
    run = fit(
        solver(C=10.0, kernel=kernels.rbf(0.7), memory=memory, working_set=16),
        dataset(x=x, y=y),
        tol=1e-4,
    )
    part, (coef, _) = Box(losses.hinge, y, 10.0), libsvm(y, gram, C=10.0, tol=1e-6)
    assert run.converged
    assert part.value(run.model.coef, gram) == pytest.approx(part.value(coef, gram), rel=1e-6)
    support = int(run.info.support[-1])
    assert support * MID <= run.evals
    if memory is None:
        assert run.evals <= MID * MID  # no row twice
    if memory == 0:
        assert run.evals > MID * MID  # too few slots to keep them all


# what is compiled


def loop_copies(program, shape):
    """Copies of an array of `shape` in bodies of loops, and in what these call."""
    blocks = dict(
        re.findall(r"^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}", program, flags=re.S | re.M)
    )
    bodies = {name for text in blocks.values() for name in re.findall(r"body=%?([\w.-]+)", text)}
    assert bodies and bodies <= set(blocks), (
        "no loops found: the text of programs has changed, and this test with it"
    )
    waiting, inside = list(bodies), set()
    while waiting:
        name = waiting.pop()
        if name not in inside:
            inside.add(name)
            waiting += [
                other for other in re.findall(r"%?([\w.-]+)", blocks[name]) if other in blocks
            ]
    found = [
        re.findall(rf"= {re.escape(shape)}\S* copy(?:-start)?\(.*", blocks[name])
        for name in sorted(inside)
    ]
    return sum(found, [])


AS_USERS = as_users()
WIDE = 1200


@pytest.mark.long
def test_kept_rows_are_written_in_place():
    x = np.random.default_rng(0).normal(size=(WIDE, D)).astype(np.float32)
    data = dataset(x=x, y=np.where(x[:, 0] > 0, 1.0, -1.0))
    made = cast(solver(working_set=320, tol=1e-3), np.float32)
    state = jax.eval_shape(made.init, KEY, data)
    program = (
        jax.jit(lambda made, state, data: made.update(state, data))
        .lower(made, state, data)
        .compile(AS_USERS)
        .as_text()
    )
    shapes = {
        f"f32[{slots},{WIDE}]"
        for slots in map(int, re.findall(rf"f32\[(\d+),{WIDE}\]", program))
        if slots > kept.CHUNK
    }
    assert shapes  # whatever slots there are
    assert [found for shape in shapes for found in loop_copies(program, shape)] == []


def test_a_copy_in_a_loop_would_be_found():
    def body(k, table):
        new = lax.dynamic_update_slice_in_dim(
            table, 2 * lax.dynamic_slice_in_dim(table, k + 1, 1), k, 0
        )
        return new + table[98 - k, 0]  # the table before the step is read after it

    naive = jax.jit(
        lambda table: lax.fori_loop(
            0, 99, lambda k, old: lax.cond(old[k, 0] > 0, body, lambda k, t: t, k, old), table
        )
    )
    program = naive.lower(jnp.zeros((100, WIDE))).compile(AS_USERS).as_text()
    assert loop_copies(program, f"f32[100,{WIDE}]")
