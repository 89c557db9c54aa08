"""Online methods: a rule that adds rows to a function in a space, by their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._node import node, register, static
from ..losses import hinge
from ..samplers import epochs, uniform
from ..types import Array, Batch, Info, Model, Space, State, drawn
from .base import SpaceSolver


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


class OnlineSolver(SpaceSolver):
    """Change a function by the rule of a subclass at every step.

    score = f(x);   rule_state, (shrink, coef) = rule(rule_state, score, ...);
    f = (1 - shrink) f + coef k(x, .)
    """

    scale: Any = None  # t -> factor of the model, for functions stored up to a factor; None: 1
    sampler: Any = uniform(1)
    residual_of = "batch"
    targets: Any = "labels"

    def check(self) -> None:
        _ = self.space  # which refuses what it cannot be made of

    def start(self, data: Batch) -> State:
        """The initial state of the rule, a pytree."""
        return ()

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        """The next state of the rule, and what it changes.

        Args:
            state: of the rule.
            score: (b,) of the rows of the step.
            batch: these rows.
            share: (b,) weight / count(weight > 0).
            gram: () -> (b, b) kernel among them.
            t: () number of previous steps.
        """
        raise NotImplementedError

    def init(self, key: Array, data: Batch) -> OnlineState:
        return OnlineState(self.space.zero(key, data), self.start(data), jnp.zeros((), jnp.int32))

    def update(self, state: OnlineState, batch: Batch) -> tuple[OnlineState, Info]:
        space = self.space
        step, score = drawn(batch, space.needs_all_rows), space.evaluate(state.f, batch)
        count = jnp.maximum(jnp.sum((step.weight > 0).astype(step.weight.dtype)), 1)
        share = step.weight / count
        gram = lambda: space.gram(batch)
        numbers, move = self.rule(state.rule, score, step, share, gram, state.t)
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

    def model(self, state: OnlineState, data: Batch | None = None) -> Model:
        model: Any = self.space.model(state.f, data)
        if self.scale is None:
            return model
        return model.scaled(self.scale(state.t.astype(jax.tree.leaves(state.f)[0].dtype)))


@node
class online(OnlineSolver):
    """A solver that changes a function by a rule at every step.

        score = f(x);   rule_state, (shrink, coef) = rule(rule_state, score, ...);
        f = (1 - shrink) f + coef k(x, .)

    Args:
        start: data -> the initial state of the rule, a pytree, `()` if it has none.
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

    start: Callable = static()
    rule: Callable = static()
    space: Space = dataclasses.field()
    _: KW_ONLY
    scale: Callable | None = None
    sampler: Any = uniform(1)
    targets: Any = static(default="labels")


class PerceptronSolver(OnlineSolver):
    """Add misclassified rows, y_i f(x_i) <= 0, with their label; the loss counts them."""

    sampler = epochs(1)

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        mistake = batch.y * score <= 0
        coef = jnp.where(mistake, batch.y * share, jnp.zeros_like(score))
        return (), Move(jnp.zeros((), score.dtype), coef, mistake.astype(score.dtype))


class PegasosSolver(OnlineSolver):
    """Pegasos without projection for w = s / (lam t).

    s adds y_i where y_i s(x_i) < lam (t - 1). With weights of 1 the coefficients of s are integers,
    so that rows drawn equally often have equal coefficients.
    """

    lam: float

    def scale(self, t: Array) -> Array:
        return 1 / (self.lam * jnp.maximum(t, 1))

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        threshold = self.lam * t.astype(score.dtype)  # lam (t - 1) with t from 1
        violates = (batch.y * score < threshold) | (t == 0)
        coef = jnp.where(violates, batch.y * share, jnp.zeros_like(score))
        safe = jnp.where(t > 0, threshold, jnp.ones_like(threshold))
        value = jnp.where(t > 0, score / safe, jnp.zeros_like(score))
        return (), Move(jnp.zeros((), score.dtype), coef, hinge.value(value, batch.y))


class DescentSolver(OnlineSolver):
    """Descend on lam/2 |w|^2 + hinge with step eta.

    f shrinks by eta lam, and rows of y_i f < 1 add eta y_i.
    """

    eta: float
    lam: float = 0.0

    sampler = epochs(1)

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        coef = jnp.where(batch.y * score < 1, self.eta * batch.y * share, jnp.zeros_like(score))
        shrink = jnp.asarray(self.eta * self.lam, score.dtype)
        return (), Move(shrink, coef, hinge.value(score, batch.y))
