"""The weights of a linear machine with the derivatives that follow from its dual coefficients."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from ..checks import check_whole
from ..implicit import simplex_solution, solution
from ..kernels import linear
from ..numerics import dot
from ..recipe import check_choice, check_positive, unwrap_static
from ..types import Array, Batch, Loss, Scalar, SparseRows

COLUMNS = 1000  # a factorisation of more takes longer than the passes of other methods
MOST_ROUNDS = 100_000


def check_quadratic(loss: Loss) -> None:
    """Raise ValueError for a loss whose dual is not quadratic."""
    if loss.quadratic is None:
        raise ValueError(
            f"the dual of {loss!r} is not quadratic: take newton, ocas or sdca, or a loss such as "
            "hinge or eps_insensitive"
        )


def check_arguments(
    C: Scalar, loss: Loss, bias: str, tol: Scalar, rounds: Scalar, biases: tuple[str, ...]
) -> None:
    """Raise ValueError for arguments that no solver of a linear dual takes.

    Args:
        C: above 0.
        loss: one whose dual is quadratic.
        bias: one of `biases`.
        tol: above 0.
        rounds: a whole number from 1 to `MOST_ROUNDS`.
        biases: of the solver.
    """
    check_positive(C=C, tol=tol)
    check_choice("bias", bias, biases)
    check_whole("rounds", rounds, most=MOST_ROUNDS)
    check_quadratic(loss)


def check_columns(caller: str, columns: int, instead: str) -> None:
    """Raise ValueError for rows of more columns than a factorisation is for.

    Args:
        caller: the solver's name.
        columns: of the rows.
        instead: what to take for such rows.
    """
    if columns > COLUMNS:
        raise ValueError(
            f"{caller} takes rows of up to {COLUMNS} columns, got {columns}: take {instead}"
        )


def clip_rounds(rounds: Scalar) -> Array:
    """The number of rounds as an int32 from 1 to `MOST_ROUNDS`."""
    return jnp.clip(jnp.asarray(rounds), 1, MOST_ROUNDS).astype(jnp.int32)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attach_derivatives(bias: str, w: Array, coef: Array, parameters: tuple) -> Array:
    """The weights w, with the derivatives of the exact solution in the parameters.

    Args:
        bias: "feature", "free" or "none".
        w: (p,) optimal weights, with that of the bias last where there is one; of k classes
            (k, p).
        coef: (n,) signed dual coefficients, exactly on those of their bounds that are active; of k
            classes (n, k), as `implicit.simplex_solution` has them.
        parameters: x (n, d), which may be sparse, y (n,), weight (n,), C () and the loss, as
            `as_static` returns it.

    Returns:
        w. Without differentiation nothing is computed.
    """
    return w


@attach_derivatives.defjvp
def _derivative(bias: str, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The weights, and their tangents by `implicit.solution`."""
    w, coef, parameters = primals

    def weights_of(parameters):
        x, y, weight, C, loss = parameters
        x = x.toarray() if isinstance(x, SparseRows) else x
        if bias == "feature":
            x = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
        data = Batch(x, y, jnp.arange(y.shape[0], dtype=jnp.int32), weight)
        if coef.ndim > 1:
            return dot(simplex_solution(coef, linear(), data, C).T, x)
        b = w[-1] if bias == "free" else jnp.zeros((), w.dtype)
        kind = "free" if bias == "free" else "none"
        attached, b = solution(coef, b, linear(), data, C, unwrap_static(loss), kind)
        weights = dot(attached, x)
        return jnp.concatenate([weights, b[None]]) if bias == "free" else weights

    tangent = jax.jvp(weights_of, (parameters,), (tangents[2],))[1]
    return attach_derivatives(bias, w, coef, parameters), tangent
