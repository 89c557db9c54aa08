"""Which solver of a linear machine is fastest, by the loss and the shape of the rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .losses import squared_hinge
from .models import OneVsRest
from .recipe import check_choice, check_positive, fields_of, replace, solver
from .solvers import augmented_lagrangian, interior_point, newton, sdca
from .types import Array, Loss, Solver
from .wrappers.multiclass import one_vs_rest, stack_models

NAMES = ("newton", "augmented_lagrangian", "interior_point", "sdca")
MOST_COLUMNS = 512  # of rows for which a step of the interior point method is cheap
ROUNDS = 1000  # steps of one update, at most
MOST_EIGENVECTORS = 2048  # columns for which they are worked out once for all runs of a grid
MANY_NUMBERS = 2**20  # of the rows, from which on "update" saves what its compilation takes


def fastest_linear(loss: Loss, columns: int, sparse: bool) -> str:
    """The name of the fastest solver: "newton", "interior_point" or "sdca".

    Args:
        loss: newton takes smooth losses, interior_point those with a quadratic dual.
        columns: of the rows.
        sparse: whether the rows are sparse; interior_point makes them dense.
    """
    if loss.curvature is not None:
        return "newton"
    if loss.quadratic is not None and columns <= MOST_COLUMNS and not sparse:
        return "interior_point"
    return "sdca"


def system_for_grid(loss: Loss, shape: tuple[int, int], sparse: bool) -> str | None:
    """The `system` of `newton` for a path over C on rows of that shape; None: its default."""
    rows, columns = shape
    if sparse or columns > MOST_EIGENVECTORS:
        return None
    # the curvature of a loss with a quadratic dual is piecewise constant
    updates = loss.quadratic is not None and columns <= MOST_COLUMNS
    return "update" if updates and rows * columns >= MANY_NUMBERS else "eigen"


def linear_solver(
    name: str, C: Any, *, loss: Loss, bias: str, steps: int = ROUNDS, system: str | None = None
) -> Solver:
    """The solver of 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) of that name.

    Args:
        name: "newton", "augmented_lagrangian", "interior_point" or "sdca".
        C: weight of one row's loss, > 0.
        loss: one that the solver takes.
        bias: "none" or "feature".
        steps: of one update of a solver that reads all rows, at most.
        system: of newton.

    Raises:
        ValueError: another name, or a loss that the solver does not take.
    """
    check_choice("solver", name, NAMES)
    check_positive(C=C)
    if name == "newton":
        return newton_by_C(C, loss=loss, bias=bias, system=system, rounds=float(steps))
    if name == "augmented_lagrangian":
        return augmented_lagrangian(C, loss=loss, bias=bias, rounds=float(steps))
    if name == "interior_point":
        return interior_point(C, loss=loss, bias=bias, rounds=float(steps))
    return sdca(C, loss=loss, bias=bias)


@solver
def newton_by_C(
    C: float,
    *,
    loss: Loss = squared_hinge,
    bias: str = "none",
    system: str | None = None,
    tol: float | None = None,
    rounds: float = 100.0,
) -> Solver:
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by `newton`.

    lam is 1 / (C times the sum of the weights) of the rows that `init` is given. So runs on other
    rows, such as those outside of a fold, have the same C.

    Args:
        C: weight of one row's loss, > 0.
        loss: as of `newton`.
        bias: as of `newton`.
        system: as of `newton`.
        tol: as of `newton`.
        rounds: as of `newton`.

    Returns:
        A solver with the state, model and residual of `newton`.

    Raises:
        ValueError: as `newton`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(newton_by_C(0.25), data, jax.random.key(0), steps=1)
        >>> run.model.w.tolist()
        [0.5]
    """
    check_positive(C=C)

    def at(lam: Any) -> Any:
        return newton(lam, loss=loss, bias=bias, system=system, tol=tol, rounds=rounds)

    def on_rows(weight: Array) -> Any:
        return at(1 / (C * jnp.sum(weight)).astype(weight.dtype))

    inner = fields_of(at(1.0))
    return replace(
        inner,
        update=lambda state, batch: on_rows(state.weight).update(state, batch),
        model=lambda state, data=None: on_rows(state.weight).model(state, data),
        warm_start=inner.warm_start,
    )


@solver
def one_vs_weighted_rest(inner: Solver, factors: Array) -> Solver:
    """`one_vs_rest` with class weights as in LIBLINEAR: rows weigh more in one problem only.

        P_c(w) = 1/2 |w|^2 + C sum_{y_i = c} factors_c weight_i loss(<w, x_i>, 1)
                           + C sum_{y_i != c} weight_i loss(<w, x_i>, -1)

    Args:
        inner: a solver of `linear_solver`, whose state holds the weights of the rows.
        factors: (k,) class weights, > 0.

    Returns:
        A solver as `one_vs_rest`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [0.0], [-1.0]], [0, 1, 2], task="multiclass")
        >>> solver = one_vs_weighted_rest(newton_by_C(0.25), jnp.array([1.0, 1.0, 3.0]))
        >>> run = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> [round(w, 3) for w in run.model.inner.w[:, 0].tolist()]
        [0.5, 0.0, -0.667]
    """
    k = jnp.shape(factors)[0]

    def problems(data: Any) -> dict[str, Array]:
        """The labels -1, +1 and the weights of the rows in all problems, (k, n) each."""
        positive = data.y[None, :] == jnp.arange(k, dtype=data.y.dtype)[:, None]
        factor = jnp.where(positive, jnp.asarray(factors, data.weight.dtype)[:, None], 1)
        return {
            "y": jnp.where(positive, 1, -1).astype(data.y.dtype),
            "weight": factor * data.weight[None, :],
        }

    def init(key: Array, data: Any) -> Any:
        return jax.vmap(lambda part: inner.init(key, data._replace(**part)))(problems(data))

    def model(state: Any, data: Any = None) -> Any:
        parts = None if data is None else problems(data)
        return stack_models(inner, state, data, parts, OneVsRest)

    rest = fields_of(one_vs_rest(inner, classes=k))
    return rest._replace(init=init, model=model, sharing=None)
