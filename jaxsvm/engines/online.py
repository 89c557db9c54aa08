"""Rule x space: methods that look at a row's score and move the function along that row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..losses import hinge
from ..recipe import register
from ..samplers import epochs, uniform
from ..types import Array, Info, Solver, Space, State, drawn


class Move(NamedTuple):
    """What a rule decides: f becomes (1 - shrink) f + sum_i coef_i k(x_i, .)."""

    shrink: Array  # ()
    coef: Array  # (b,)
    loss: Array  # (b,) of the rows before the move


@register("OnlineState")
class OnlineState(NamedTuple):
    """The function, the rule's own numbers, and the steps made."""

    f: State
    rule: State
    t: Array  # ()  int32


def online(
    init: Callable, rule: Callable, space: Space, *, scale: Callable | None = None, sampler: Any = None, targets: Any = "labels"
) -> Solver:
    """Move through a space as a rule says.

        score = f(x);   rule_state, (shrink, coef) = rule(rule_state, score, ...);   f = (1 - shrink) f + coef k(x, .)

    Args:
        init: data -> the rule's state, a pytree (`()` where it has none).
        rule: (state, scores (b,), batch of the step's rows, share (b,), gram: () -> (b, b), t ()) -> (state, Move),
            where share = weight / count(weight > 0) and t counts the steps made, 0 at the first.
        space: where f lives; `space.reads` decides how the solver is fed.
        scale: t -> factor of the model: functions that are kept up to a factor.
        sampler: default feed; None: one uniform row a step.
        targets: what y must be, as `Solver.targets`.
    """

    def start(key, data):
        return OnlineState(space.zero(key, data), init(data), jnp.zeros((), jnp.int32))

    def update(state, batch):
        step = drawn(batch, space.reads)
        score = space.evaluate(state.f, batch)
        count = jnp.maximum(jnp.sum((step.weight > 0).astype(step.weight.dtype)), 1)
        share = step.weight / count
        numbers, move = rule(state.rule, score, step, share, lambda: space.gram(batch), state.t)
        coef = jnp.where(step.weight > 0, move.coef, jnp.zeros_like(move.coef))
        f = space.add(state.f, move.shrink, coef, batch)
        f = jax.tree.map(lambda new, old: new.astype(old.dtype), f, state.f)
        numbers = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), numbers, state.rule)
        info = Info(
            loss=jnp.sum(share * move.loss),
            residual=jnp.sum(share * (move.coef != 0).astype(score.dtype)),
            progress=jnp.zeros_like(score),
            index=step.index,
            support=space.support(f),
            evals=space.evals(coef, batch),
        )
        return OnlineState(f, numbers, state.t + 1), info

    def model(state, data=None):
        found = space.model(state.f, data)
        return found if scale is None else found.scaled(scale(state.t.astype(jax.tree.leaves(state.f)[0].dtype)))

    feed = sampler or uniform(1), space.reads
    return Solver(start, update, model, *feed, residual_scope="sample", targets=targets, layout=space.layout)


def perceptron_rule(_, score, batch, share, gram, t) -> tuple[tuple, Move]:
    """The perceptron's rule: rows whose sign is wrong, y_i f(x_i) <= 0, are added with their label; the loss counts them."""
    mistake = batch.y * score <= 0
    coef = jnp.where(mistake, batch.y * share, jnp.zeros_like(score))
    return (), Move(jnp.zeros((), score.dtype), coef, mistake.astype(score.dtype))


def margin_perceptron_rule(_, score, batch, share, gram, t) -> tuple[tuple, Move]:
    """Rows of y_i f(x_i) < 1 are added with their label; the loss counts mistakes, y_i f(x_i) <= 0."""
    coef = jnp.where(batch.y * score < 1, batch.y * share, jnp.zeros_like(score))
    return (), Move(jnp.zeros((), score.dtype), coef, (batch.y * score <= 0).astype(score.dtype))


def pegasos_rule(lam: Array) -> tuple[Callable, Callable]:
    """The rule of Pegasos without projection for w = s / (lam t), and that factor: s adds y_i where y_i s(x_i) < lam (t - 1).

    Coefficients of s are whole numbers where all weights are 1: rows that came as often weigh exactly the same.
    """

    def rule(_, s, batch, share, gram, t):
        reach = lam * t.astype(s.dtype)  # lam (t - 1) with t from 1
        violates = batch.y * s < reach
        score = jnp.where(t > 0, s / jnp.where(t > 0, reach, jnp.ones_like(reach)), jnp.zeros_like(s))
        violates = jnp.where(t > 0, violates, jnp.ones_like(violates))
        coef = jnp.where(violates, batch.y * share, jnp.zeros_like(s))
        return (), Move(jnp.zeros((), s.dtype), coef, hinge.value(score, batch.y))

    return rule, lambda t: 1 / (lam * jnp.maximum(t, 1))


def ogd_rule(eta: Array, lam: Array | float = 0.0) -> Callable:
    """Gradient descent on lam/2 |w|^2 + hinge with a constant step: f shrinks by eta lam, rows of y_i f < 1 add eta y_i."""

    def rule(_, score, batch, share, gram, t):
        coef = jnp.where(batch.y * score < 1, eta * batch.y * share, jnp.zeros_like(score))
        return (), Move(jnp.asarray(eta * lam, score.dtype), coef, hinge.value(score, batch.y))

    return rule


def perceptron_on(space: Space) -> Solver:
    """The perceptron in a space; default feed epochs of random order."""
    return online(lambda data: (), perceptron_rule, space, sampler=epochs(1))
