"""Dual coordinate ascent on blocks of rows at once, with one sum of d numbers a round."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ... import spaces
from ..._node import between, node, positive, register
from ...engines.base import AllRowsSolver
from ...engines.coordinate_ascent import CoordinateState, coordinate
from ...losses import hinge
from ...numerics import on_one_device, split_rows
from ...samplers import EpochsState, epochs
from ...spaces.wrapper import SpaceWrapper
from ...types import Array, Batch, Info, Loss, Model, Space, State, take


@register("CocoaState")
class CocoaState(NamedTuple):
    """One function of all rows, and the coordinate ascent of each of k blocks without it."""

    f: State
    local: CoordinateState  # (k, ...)
    order: EpochsState  # (k, ...), the orders of visits
    rounds: Array  # ()  int32


@node
class _stretched(SpaceWrapper):
    """The space with its kernel times `factor`."""

    inner: Space
    factor: int

    def sqnorm(self, x: Array) -> Array:
        return self.factor * self.inner.sqnorm(x)

    def gram(self, batch: Batch) -> Array:
        return self.factor * self.inner.gram(batch)

    def add(self, f: State, shrink: Array, coef: Array, batch: Batch) -> State:
        return self.inner.add(f, shrink, self.factor * coef, batch)


@node
class cocoa(AllRowsSolver):
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
        >>> result = jaxsvm.fit(jaxsvm.cocoa(10.0, blocks=2), data, jax.random.key(0), steps=30)
        >>> round(float(result.model.w[0]), 4)
        1.0

    Reference: C. Ma, V. Smith, M. Jaggi, M. Jordan, P. Richtarik, M. Takac, Adding vs. averaging in
        distributed primal-dual optimization, ICML 2015, algorithm 1; C.-J. Hsieh et al., A dual
        coordinate descent method for large-scale linear SVM, ICML 2008 (the local solver).
    """

    C: float = positive()
    _: KW_ONLY
    blocks: int = between(1)
    loss: Loss = hinge
    bias: Literal["none", "feature"] = "none"
    visit: int = between(1, default=16)

    def check(self) -> None:
        _ = self.ascent  # which refuses a loss without a dual step

    @property
    def ascent(self) -> coordinate:
        """The method of a block."""
        space = _stretched(spaces.space_for(None, self.bias), self.blocks)
        return coordinate(self.loss, self.C, space)

    def cut(self, data: Batch) -> Batch:
        """Blocks of m rows, (K, m, ...); those beyond the last row have weight 0."""
        n, K = data.y.shape[0], self.blocks
        m = -(-n // K)
        data = data._replace(index=jnp.arange(n, dtype=jnp.int32))
        pad = lambda a: jnp.pad(a, ((0, m * K - n),) + ((0, 0),) * (a.ndim - 1))
        return jax.tree.map(lambda a: split_rows(a if m * K == n else pad(a), K), data)

    def init(self, key: Array, data: Batch) -> CocoaState:
        ascent, visits = self.ascent, epochs(self.visit)
        blocks = jnp.arange(self.blocks, dtype=jnp.int32)
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(blocks)
        start = on_one_device(lambda key, data: (ascent.init(key, data), visits.init(key, data)))
        local, order = jax.vmap(start)(keys, self.cut(data))
        f = jax.tree.map(lambda a: a[0], local.f)  # zeros
        return CocoaState(f, local._replace(f=()), order, jnp.zeros((), jnp.int32))

    def make_pass(
        self, f: State, rounds: Array, local: CoordinateState, order: EpochsState, data: Batch
    ) -> tuple[CoordinateState, tuple[Array, ...]]:
        """The coordinate ascent of one block after a pass from f, and what it has measured."""
        m, visit, ascent = data.y.shape[0], self.visit, self.ascent
        steps = -(-m // visit)
        needed = jnp.maximum(-(-order.count // visit), 1)
        index = epochs(visit).draw(order, rounds * needed, steps)
        index = jnp.where(jnp.arange(steps, dtype=jnp.int32)[:, None] < needed, index, -1)
        update = lambda state, index: ascent.update(state, take(data, index))
        local, info = lax.scan(update, local._replace(f=f), index)
        progress = jnp.zeros(m + 1, info.progress.dtype)
        progress = progress.at[jnp.where(index >= 0, index, m)].set(info.progress)[:m]
        live = jnp.sum((index >= 0).astype(progress.dtype), axis=1)
        return local, (jnp.sum(info.loss * live), jnp.sum(live), progress, jnp.sum(info.evals))

    def update(self, state: CocoaState, batch: Batch) -> tuple[CocoaState, Info]:
        one_block = on_one_device(lambda *own: self.make_pass(state.f, state.rounds, *own))
        local, measured = jax.vmap(one_block)(state.local, state.order, self.cut(batch))
        loss_sum, live, progress, evals = measured
        mean = lambda f, f_j: f + jnp.sum(f_j - f[None], axis=0) / self.blocks
        f = jax.tree.map(mean, state.f, local.f)
        info = Info(
            loss=jnp.sum(loss_sum) / jnp.maximum(jnp.sum(live), 1),
            residual=jnp.max(local.residual),
            progress=progress.reshape(-1)[: batch.y.shape[0]],
            index=jnp.arange(batch.y.shape[0], dtype=jnp.int32),
            support=jnp.sum(local.support, dtype=jnp.int32),
            evals=jnp.sum(evals, dtype=jnp.int32),
        )
        return CocoaState(f, local._replace(f=()), state.order, state.rounds + 1), info

    def model(self, state: CocoaState, data: Batch | None = None) -> Model:
        return self.ascent.model(state.local._replace(f=state.f))
