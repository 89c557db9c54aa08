"""The weights of a linear machine with the derivatives that follow from its dual coefficients."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from ..implicit import solution
from ..kernels import linear
from ..numerics import dot
from ..recipe import unwrap_static
from ..types import Array, Batch, SparseRows


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attach_derivatives(bias: str, w: Array, coef: Array, parameters: tuple) -> Array:
    """The weights w, with the derivatives of the exact solution in the parameters.

    Args:
        bias: "feature", "free" or "none".
        w: (p,) optimal weights, with that of the bias last where there is one.
        coef: (n,) signed dual coefficients, exactly on those of their bounds that are active.
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
        b = w[-1] if bias == "free" else jnp.zeros((), w.dtype)
        kind = "free" if bias == "free" else "none"
        attached, b = solution(coef, b, linear(), data, C, unwrap_static(loss), kind)
        weights = dot(attached, x)
        return jnp.concatenate([weights, b[None]]) if bias == "free" else weights

    tangent = jax.jvp(weights_of, (parameters,), (tangents[2],))[1]
    return attach_derivatives(bias, w, coef, parameters), tangent
