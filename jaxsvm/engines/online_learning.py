"""Online methods: a rule that adds rows to a function in a space, by their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..losses import hinge
from ..recipe import register
from ..samplers import epochs, uniform
from ..types import Array, Batch, Hooks, Info, Scalar, Solver, Space, State, drawn


class Move(NamedTuple):
    """The decision of a rule: f becomes (1 - shrink) f + sum_i coef_i k(x_i, .)."""

    shrink: Array  # ()
    coef: Array  # (b,)
    loss: Array  # (b,) loss of each row before the move


@register("OnlineState")
class OnlineState(NamedTuple):
    """The function, the state of the rule, and the number of steps."""

    f: State
    rule: State
    t: Array  # ()  int32


def online(
    init: Callable,
    rule: Callable,
    space: Space,
    *,
    scale: Callable | None = None,
    sampler: Any = None,
    targets: Any = "labels",
) -> Solver:
    """A solver that changes a function by a rule at every step.

        score = f(x);   rule_state, (shrink, coef) = rule(rule_state, score, ...);
        f = (1 - shrink) f + coef k(x, .)

    Args:
        init: data -> the initial state of the rule, a pytree, `()` if it has none.
        rule: (state, scores (b,), batch of the step's rows, share (b,), gram: () -> (b, b), t ())
            -> (state, Move), where share = weight / count(weight > 0) and t is the number of
            previous steps.
        space: the function space of f, whose `needs_all_rows` is that of the solver.
        scale: t -> factor of the model, for functions stored up to a factor; None: 1.
        sampler: the default sampler; None: one uniform row per step.
        targets: kind of targets y, as `Solver.targets`.

    Returns:
        A solver.
    """

    def start(key, data):
        return OnlineState(space.zero(key, data), init(data), jnp.zeros((), jnp.int32))

    def update(state, batch):
        step = drawn(batch, space.needs_all_rows)
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
        inner_model = space.model(state.f, data)
        return (
            inner_model
            if scale is None
            else inner_model.scaled(scale(state.t.astype(jax.tree.leaves(state.f)[0].dtype)))
        )

    sampling = sampler or uniform(1), space.needs_all_rows
    return Solver(
        start,
        update,
        model,
        *sampling,
        residual_of="batch",
        targets=targets,
        hooks=Hooks(layout=space.layout),
    )


def perceptron_rule(
    _: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
) -> tuple[tuple, Move]:
    """The perceptron rule: misclassified rows, y_i f(x_i) <= 0, are added with their label.

    The loss counts them.
    """
    mistake = batch.y * score <= 0
    coef = jnp.where(mistake, batch.y * share, jnp.zeros_like(score))
    return (), Move(jnp.zeros((), score.dtype), coef, mistake.astype(score.dtype))


def margin_perceptron_rule(
    _: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
) -> tuple[tuple, Move]:
    """The margin perceptron rule: rows with y_i f(x_i) < 1 are added with their label.

    The loss counts the rows with y_i f(x_i) <= 0.
    """
    coef = jnp.where(batch.y * score < 1, batch.y * share, jnp.zeros_like(score))
    return (), Move(jnp.zeros((), score.dtype), coef, (batch.y * score <= 0).astype(score.dtype))


def pegasos_rule(lam: Scalar) -> tuple[Callable, Callable]:
    """The rule of Pegasos without projection for w = s / (lam t), and 1 / (lam t).

    s adds y_i where y_i s(x_i) < lam (t - 1). With weights of 1 the coefficients of s are integers,
    so that rows drawn equally often have equal coefficients.
    """

    def rule(_, s, batch, share, gram, t):
        threshold = lam * t.astype(s.dtype)  # lam (t - 1) with t from 1
        violates = batch.y * s < threshold
        score = jnp.where(
            t > 0, s / jnp.where(t > 0, threshold, jnp.ones_like(threshold)), jnp.zeros_like(s)
        )
        violates = jnp.where(t > 0, violates, jnp.ones_like(violates))
        coef = jnp.where(violates, batch.y * share, jnp.zeros_like(s))
        return (), Move(jnp.zeros((), s.dtype), coef, hinge.value(score, batch.y))

    return rule, lambda t: 1 / (lam * jnp.maximum(t, 1))


def ogd_rule(eta: Scalar, lam: Scalar = 0.0) -> Callable:
    """The rule of descent on lam/2 |w|^2 + hinge with step eta.

    f shrinks by eta lam, and rows of y_i f < 1 add eta y_i.
    """

    def rule(_, score, batch, share, gram, t):
        coef = jnp.where(batch.y * score < 1, eta * batch.y * share, jnp.zeros_like(score))
        return (), Move(jnp.asarray(eta * lam, score.dtype), coef, hinge.value(score, batch.y))

    return rule


def perceptron_on(space: Space) -> Solver:
    """The perceptron in a space; the default sampler is `epochs(1)`."""
    return online(lambda data: (), perceptron_rule, space, sampler=epochs(1))
