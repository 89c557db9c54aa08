"""Dual coordinate ascent on blocks of rows at once, with one sum of d numbers a round."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ... import spaces
from ...checks import integer
from ...engines.coordinate_ascent import CoordinateState, coordinate
from ...losses import hinge
from ...numerics import on_one_device, split_rows
from ...recipe import check_positive, fields_of, register, solver
from ...samplers import EpochsState, epochs, whole
from ...types import Array, Batch, Info, Loss, Scalar, Solver, Space, State, take


@register("CocoaState")
class CocoaState(NamedTuple):
    """One function of all rows, and the coordinate ascent of each of k blocks without it."""

    f: State
    local: CoordinateState  # (k, ...)
    order: EpochsState  # (k, ...), the orders of visits
    rounds: Array  # ()  int32


def stretch(space: Space, factor: Scalar) -> Space:
    """The space with its kernel times `factor`."""
    space = fields_of(space)
    return space._replace(
        sqnorm=lambda x: factor * space.sqnorm(x),
        gram=lambda batch: factor * space.gram(batch),
        add=lambda f, shrink, coef, batch: space.add(f, shrink, factor * coef, batch),
    )


@solver
def cocoa(
    C: float, *, blocks: int, loss: Loss = hinge, bias: str = "none", visit: int = 16
) -> Solver:
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i>, y_i) on blocks of rows.

    A round is a pass of coordinate ascent over each of K = `blocks` blocks, all at once from the
    same w. In block j the kernel is K k(x, z), and the moves of all blocks are added (CoCoA+ with
    sigma' = K and gamma = 1):

        delta_j = one pass of sdca over the rows of block j, from w_j = w, with K k(x, z)
        w += sum_j A_j' delta_j = sum_j (w_j - w) / K,      A_j: the rows of block j

    No round decreases the dual. A round sends d numbers: on rows that lie on several devices
    (`jaxsvm.shard`), what it sends does not grow with the rows. What is computed depends on
    `blocks`, not on the devices. More blocks take more rounds.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        blocks: K, equal blocks of rows, >= 1, a multiple of the devices on which they lie;
            structure.
        loss: any loss with a dual step, real targets included.
        bias: "none", or "feature": the weight of a constant feature 1, regularised with the others.
        visit: rows that a block visits by one product, in sequence; it changes the speed, not the
            method, >= 1; structure.

    Returns:
        A solver on all rows, which chooses the order of its visits; model `Linear`. A step is a
        round. The residual is the largest move times K k(x_i, x_i) in the round (margin units), so
        `tol` may stop on it.

    Raises:
        ValueError: C not a single positive number, another bias, blocks or visit below 1.

    Differs from the paper: local solvers make one permuted pass (the paper: any local solver, such
        as H uniform draws).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(cocoa(10.0, blocks=2), data, jax.random.key(0), steps=30)
        >>> round(float(result.model.w[0]), 4)
        1.0

    Reference: C. Ma, V. Smith, M. Jaggi, M. Jordan, P. Richtarik, M. Takac, Adding vs. averaging in
        distributed primal-dual optimization, ICML 2015, algorithm 1; C.-J. Hsieh et al., A dual
        coordinate descent method for large-scale linear SVM, ICML 2008 (the local solver).
    """
    check_positive(C=C)
    integer("blocks", blocks, 1)
    integer("visit", visit, 1)
    ascent = coordinate(loss, C, stretch(spaces.space_for(None, bias), blocks))
    visits = epochs(visit)

    def cut(data: Batch) -> Batch:
        """Blocks of m rows, (K, m, ...); those beyond the last row have weight 0."""
        n = data.y.shape[0]
        m = -(-n // blocks)
        data = data._replace(index=jnp.arange(n, dtype=jnp.int32))
        pad = lambda a: jnp.pad(a, ((0, m * blocks - n),) + ((0, 0),) * (a.ndim - 1))
        return jax.tree.map(lambda a: split_rows(a if m * blocks == n else pad(a), blocks), data)

    def init(key, data):
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(jnp.arange(blocks, dtype=jnp.int32))
        start = on_one_device(lambda key, data: (ascent.init(key, data), visits.init(key, data)))
        local, order = jax.vmap(start)(keys, cut(data))
        f = jax.tree.map(lambda a: a[0], local.f)  # zeros
        return CocoaState(f, local._replace(f=()), order, jnp.zeros((), jnp.int32))

    def make_pass(f, rounds, local, order, data):
        """The coordinate ascent of one block after a pass from f, and what it has measured."""
        m = data.y.shape[0]
        steps = -(-m // visit)
        needed = jnp.maximum(-(-order.count // visit), 1)
        index = visits.draw(order, rounds * needed, steps)
        index = jnp.where(jnp.arange(steps, dtype=jnp.int32)[:, None] < needed, index, -1)
        update = lambda state, index: ascent.update(state, take(data, index))
        local, info = lax.scan(update, local._replace(f=f), index)
        progress = jnp.zeros(m + 1, info.progress.dtype)
        progress = progress.at[jnp.where(index >= 0, index, m)].set(info.progress)[:m]
        live = jnp.sum((index >= 0).astype(progress.dtype), axis=1)
        return local, (jnp.sum(info.loss * live), jnp.sum(live), progress, jnp.sum(info.evals))

    def update(state, batch):
        one_block = on_one_device(lambda *own: make_pass(state.f, state.rounds, *own))
        local, measured = jax.vmap(one_block)(state.local, state.order, cut(batch))
        loss_sum, live, progress, evals = measured
        f = jax.tree.map(
            lambda f, f_j: f + jnp.sum(f_j - f[None], axis=0) / blocks, state.f, local.f
        )
        info = Info(
            loss=jnp.sum(loss_sum) / jnp.maximum(jnp.sum(live), 1),
            residual=jnp.max(local.residual),
            progress=progress.reshape(-1)[: batch.y.shape[0]],
            index=jnp.arange(batch.y.shape[0], dtype=jnp.int32),
            support=jnp.sum(local.support, dtype=jnp.int32),
            evals=jnp.sum(evals, dtype=jnp.int32),
        )
        return CocoaState(f, local._replace(f=()), state.order, state.rounds + 1), info

    def model(state, data=None):
        return ascent.model(state.local._replace(f=state.f), None)

    return Solver(init, update, model, whole(), True, targets=ascent.targets)
