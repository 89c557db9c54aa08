"""Solvers of several problems on the same rows: states, infos and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from .._node import register
from ..models import Mapped
from ..numerics import depends_on
from ..types import Array, Batch, Info, Model, Solver, State, Wrapper, said, updated


@register("OneVsOneState")
class MaskedState(NamedTuple):
    """The states of all problems, and the factors of their weights.

    The factors make weights relative to the mean weight of a problem's rows.
    """

    inner: State  # leaves (k, ...)
    scale: Array  # (k,)  mean positive weight of all rows / that of the problem's rows
    # All weights of the steps so far were 0 or 1: drawn by weight, or the rows weigh the same.
    flat: Array  # ()  bool


class Problems(Wrapper):
    """A solver of k problems on the same rows, which differ in targets, or in weights too.

    Rows have weight 0 where they are left out of a problem. A step without rows of a problem leaves
    its state unchanged, the step counter included. Samplers scale weights by the mean weight of all
    rows. Here they are rescaled to the mean over the problem's rows, which is computed from the
    data of `init`.
    """

    # (models with stacked leaves, flags of the leaves) -> the model
    join: ClassVar[Callable[..., Any]]

    def parts(self, data: Batch) -> dict[str, Array]:
        """The fields of the rows in which the problems differ, (k, n) each: y, or weight too."""
        raise NotImplementedError

    def init(self, key: Array, data: Batch) -> State:
        parts = self.parts(data)
        states = jax.vmap(lambda part: self.inner.init(key, data._replace(**part)))(parts)
        if "weight" not in parts:
            return states
        weights = parts["weight"]
        own, every = mean_positive(weights), mean_positive(jnp.max(weights, axis=0, keepdims=True))
        scale = jnp.where(own > 0, every / jnp.where(own > 0, own, 1), 1)
        return MaskedState(states, scale, jnp.ones((), bool))

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        """One step of the problems that have rows in it."""
        parts = self.parts(batch)
        if "weight" not in parts:
            one = lambda state, part: updated(self.inner, state, batch._replace(**part))
            state, info = jax.vmap(one)(state, parts)
            return state, combine(info, jnp.mean(info.loss))

        def weight_of(weight, *selected):
            """The weights of the rows of the step, and of those that the solver has selected."""
            if not self.inner.needs_all_rows:
                return weight
            index = jnp.concatenate([batch.index, *selected])
            of_rows = weight.at[jnp.maximum(index, 0)].get(mode="fill", fill_value=0)
            return jnp.where(index >= 0, of_rows, jnp.zeros_like(of_rows))

        seen = jax.vmap(weight_of)(parts["weight"])
        flat = state.flat & jnp.all((seen == 0) | (seen == 1))
        parts["weight"] = jnp.where(flat, 1, state.scale)[:, None] * parts["weight"]

        def update_one(old, part):
            new, info = updated(self.inner, old, batch._replace(**part))
            has_rows = jnp.any(weight_of(part["weight"], info.index) > 0)
            return select_state(has_rows, new, old), info, has_rows

        states, info, has_rows = jax.vmap(update_one)(state.inner, parts)
        share = has_rows.astype(info.loss.dtype)
        share /= jnp.maximum(jnp.sum(share), 1)
        loss = jnp.sum(jnp.where(has_rows, share * info.loss, jnp.zeros_like(share)))
        return MaskedState(states, state.scale, flat), combine(info, loss)

    def model(self, state: State, data: Batch | None = None) -> Model:
        parts = None if data is None else self.parts(data)
        state = state.inner if isinstance(state, MaskedState) else state
        return stack_models(self.inner, state, data, parts, self.join)


def mean_positive(weight: Array) -> Array:
    """The mean of the positive weights, (k, n) -> (k,)."""
    return jnp.sum(weight, 1) / jnp.maximum(jnp.sum((weight > 0).astype(weight.dtype), 1), 1)


def combine(info: Info, loss: Array) -> Info:
    """One `Info` of the infos of all problems, (k, ...)."""
    residual, progress = jnp.max(info.residual), jnp.mean(info.progress, axis=0)
    support = jnp.sum(info.support, dtype=jnp.int32)
    evals = jnp.sum(info.evals.astype(info.loss.dtype))
    return Info(loss, residual, progress, info.index[0], support, evals)


def select_state(has_rows: Array, new: State, old: State) -> State:
    """The state after a step if it had rows, else the one before.

    A state with `ignores_padding` is left unchanged by padding. A selection would copy its arrays
    over all rows.
    """
    ignores_padding = lambda node: said(node, "ignores_padding", False)
    select = lambda new, old: new if ignores_padding(new) else jnp.where(has_rows, new, old)
    return jax.tree.map(select, new, old, is_leaf=ignores_padding)


def stack_models(
    inner: Solver, state: State, data: Batch | None, targets: dict | None, make_model: Callable
) -> Model:
    """The models of stacked states as one; leaves that do not depend on the state are stored once.

    `targets` are the fields of `data` in which the problems differ, stacked as the states are.
    """

    def model_of(problem, data):
        state, targets = problem
        return inner.model(state, data if data is None else data._replace(**targets))

    problems = state, targets
    models = jax.vmap(model_of, in_axes=(0, None))(problems, data)
    stacked = depends_on(model_of, jax.tree.map(lambda a: a[0], problems), data)
    leaves, tree = jax.tree.flatten(models)
    leaves = [leaf if flag else leaf[0] for leaf, flag in zip(leaves, stacked, strict=True)]
    models = jax.tree.unflatten(tree, leaves)
    return _lift_shared_map(models, stacked, make_model)


def _lift_shared_map(models: object, stacked: tuple[bool, ...], make_model: Callable) -> Model:
    """The multiclass model; a feature map that all models share is applied once, before them."""
    if isinstance(models, Mapped):
        map_leaves = len(jax.tree.leaves(models.phi))
        if not any(stacked[:map_leaves]):
            inner = _lift_shared_map(models.inner, stacked[map_leaves:], make_model)
            return Mapped(models.phi, inner)
    return make_model(models, stacked)
