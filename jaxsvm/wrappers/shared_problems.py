"""What the problems of more than two classes share with each other, and with other runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..models import MultiOutput, OneVsOne, OneVsRest
from ..types import Array, Sharing, row_weights

MOST_CLASSES = 20  # of pairs whose decision values at all rows are held at the same time
ROW_STEP = 64  # the rows of a pair are padded to a multiple of this


class Unshared(NamedTuple):
    """In place of a kernel matrix that does not fit: each pair computes that of its own rows."""

    @property
    def changes(self) -> bool:
        """False: runs share nothing, so that several may be made at once."""
        return False


class Problems(NamedTuple):
    """The ends of the runs of all problems, from which the next ones may start."""

    index: Array  # type: ignore[assignment]  # (P, m)  int32, rows; -1: padding
    total: Array  # ()  int32, number of all rows
    runs: Any  # of the solver for two classes; leaves (P, ...)


def share_pairs(inner: Sharing | None, classes: int) -> Sharing | None:
    """What `one_vs_one` shares: a run of a pair is on the rows of its two classes only."""
    if inner is None or inner.restrict is None or classes > MOST_CLASSES:
        return None
    first, second = np.triu_indices(classes, 1)
    restrict = inner.restrict

    def members(y):
        rows = [np.flatnonzero((y == a) | (y == b)) for a, b in zip(first, second, strict=True)]
        width = -(-max(map(len, rows)) // ROW_STEP) * ROW_STEP
        return np.stack([np.pad(r, (0, width - len(r)), constant_values=-1) for r in rows])

    def prepare(data, memory):
        return inner.prepare(data, memory) if inner.size(data) <= memory else Unshared()

    def solve_all(shared, data, state):
        def one(problem):
            index, a, run = problem
            rows = jnp.maximum(index, 0)
            y, weight = data.y[rows], jnp.where(index >= 0, data.weight[rows], 0)
            part = data._replace(y=jnp.where(y == a, 1, -1).astype(y.dtype), weight=weight)
            return inner.solve(restrict(data, shared, rows), part, run)[1]

        return shared, lax.map(one, (state.index, jnp.asarray(first, data.y.dtype), state.runs))

    def targets_at(y, weight, rows):
        return np.where(y[rows] == first[:, None], 1, -1), weight[rows]

    def votes(pairs):
        sign = np.eye(classes)[first] - np.eye(classes)[second]
        total = pairs @ sign
        won = np.eye(classes)[second].sum(axis=0) + (pairs >= 0).astype(np.float64) @ sign
        return won + total / (3 * (np.abs(total) + 1))

    stack = lambda model, stacked: OneVsOne(model, stacked, classes)
    return _share(inner, len(first), members, prepare, solve_all, targets_at, votes, stack)


def share_classes(inner: Sharing | None, classes: int) -> Sharing | None:
    """What `one_vs_rest` shares: all problems are on all rows."""

    def targets_at(y, weight, rows):
        return np.where(y[rows] == np.arange(classes)[:, None], 1, -1), weight[rows]

    def split(y, weight):
        every = jnp.arange(classes, dtype=y.dtype)[:, None]
        return jnp.where(y[None, :] == every, 1, -1).astype(y.dtype), None

    return _share_on_all_rows(inner, classes, targets_at, split, OneVsRest)


def share_outputs(inner: Sharing | None, outputs: int) -> Sharing | None:
    """What `multi_output` shares: all problems are on all rows, with a column of targets each."""
    every = np.arange(outputs)[:, None]

    def targets_at(y, weight, rows):
        return y[rows, every], weight[rows, every] if weight.ndim == 2 else weight[rows]

    def split(y, weight):
        return y.T, weight.T if weight.ndim == 2 else None

    return _share_on_all_rows(inner, outputs, targets_at, split, MultiOutput)


def _share_on_all_rows(
    inner: Sharing | None,
    count: int,
    targets_at: Callable,
    split: Callable,  # (y, weight) -> targets (P, n), and weights (P, n) or None: those of the rows
    stack: Callable,
) -> Sharing | None:
    """`Sharing` of problems of which each is on all rows."""
    if inner is None:
        return None

    def members(y):
        return np.tile(np.arange(len(y)), (count, 1))

    def prepare(data, memory):
        shared = inner.prepare(row_weights(data), memory)
        if not shared.changes:
            return shared
        # a loop over the problems takes these arrays over: none of them may be one of `data`
        own = {id(leaf) for leaf in jax.tree.leaves(data)}
        return jax.tree.map(lambda a: jnp.copy(a) if id(a) in own else a, shared)

    def solve_all(shared, data, state):
        targets, weights = split(data.y, data.weight)

        def one(shared, problem):
            y, weight, run = problem
            part = data._replace(y=y, weight=data.weight if weight is None else weight)
            new, end = inner.solve(carried if shared is None else shared, part, run)
            return None if shared is None else new, end

        carried = shared
        problems = targets, weights, state.runs
        # what runs do not change stays outside of the loop
        new, ends = lax.scan(one, shared if shared.changes else None, problems)
        return (new if shared.changes else shared), ends

    same = lambda values: values
    return _share(inner, count, members, prepare, solve_all, targets_at, same, stack)


def _share(
    inner: Sharing,
    count: int,
    members: Callable,  # targets (n,) -> (P, m) rows of the problems
    prepare: Callable,
    solve_all: Callable,  # (shared, data, state) -> shared, runs
    # (y, weight, rows (P, m)) -> targets and weights of the problems at these rows, (P, m) each
    targets_at: Callable,
    values_of: Callable,  # decision values (n, P) -> (n, classes)
    stack: Callable,  # (models with stacked leaves, flags of the leaves) -> model
) -> Sharing:
    """`Sharing` of `count` problems on the same rows."""

    def on_all_rows(state: Problems, coefs: Any) -> np.ndarray:
        """Coefficients (..., P, m) of the rows of the problems, as (..., P, n) of all rows."""
        whole = np.zeros((*coefs.shape[:-1], int(state.total)), coefs.dtype)
        for p, index in enumerate(np.asarray(state.index)):
            whole[..., p, index[index >= 0]] = coefs[..., p, index >= 0]
        return whole

    def init(data):
        index = members(np.asarray(data.y)).astype(np.int32)
        some: Any = np.zeros(index.shape[1], data.y.dtype)
        run = inner.init(data._replace(y=some, weight=some))
        repeat = lambda a: np.broadcast_to(a, (count, *np.shape(a)))
        total: Any = np.asarray(data.y.shape[0], np.int32)
        return Problems(index, total, jax.tree.map(repeat, run))

    def start(shared, data, state):
        index = np.asarray(state.index)
        rows = np.maximum(index, 0)
        y: Any
        y, weight = targets_at(np.asarray(data.y), np.asarray(data.weight), rows)
        part = data._replace(y=y.astype(data.y.dtype), weight=weight * (index >= 0))
        start = inner.start(shared, part, state.runs)
        return state._replace(runs=start)

    def solve(shared, data, state):
        shared, runs = solve_all(shared, data, state)
        return shared, state._replace(runs=runs)

    def products(data, states):
        one = jax.tree.map(lambda a: a[0], states)
        coefs = on_all_rows(one, np.asarray(states.runs.coef))
        c, n = len(coefs), coefs.shape[-1]
        same = bool((coefs == coefs[:1]).all())  # equal states are worked out once
        flat = (coefs[:1] if same else coefs).reshape(-1, n)
        product = np.asarray(inner.products(data, one.runs._replace(coef=flat)))
        return np.broadcast_to(product.reshape(-1, count, n), (c, count, n))

    def certify(data, state, product):
        y, n = np.asarray(data.y), product.shape[-1]
        index = np.asarray(state.index)
        every = np.broadcast_to(np.arange(n), (count, n))
        labels, weight = targets_at(y, np.asarray(data.weight), every)
        members = np.zeros((count, n), bool)
        for p, rows in enumerate(index):
            members[p, rows[rows >= 0]] = True
        weight = np.where(members, weight, np.zeros((), weight.dtype))
        run = state.runs._replace(
            coef=on_all_rows(state, np.asarray(state.runs.coef)).ravel(),
            b=np.repeat(np.asarray(state.runs.b), n),
        )
        flat = data._replace(y=labels.astype(y.dtype).ravel(), weight=weight.ravel())
        scores, certificate, support = inner.certify(flat, run, product.ravel())
        return values_of(np.asarray(scores).reshape(count, n).T), certificate, support

    def model(data, state):
        coef = on_all_rows(state, np.asarray(state.runs.coef))
        first = jax.tree.map(lambda a: a[0], state.runs)._replace(coef=coef[0])
        one = inner.model(data, first)
        all_models = dataclasses.replace(one, coef=jnp.asarray(coef), b=jnp.asarray(state.runs.b))
        own = all_models.coef, all_models.b
        leaves = jax.tree.leaves(all_models)
        return stack(all_models, tuple(any(leaf is a for a in own) for leaf in leaves))

    def supports(state):
        return on_all_rows(state, np.asarray(state.runs.coef)).any(axis=0)

    parts = prepare, inner.size, init, start, solve, products, certify, model, supports
    return Sharing(inner.key, *parts)
