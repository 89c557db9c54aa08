"""What many tests compare with: plain NumPy in float64, and equality to the bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def gaussian(x: Any, z: Any, gamma: float = 0.5) -> np.ndarray:
    """exp(-gamma |x_i - z_j|^2), (n, m) in float64."""
    x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
    return np.exp(-gamma * ((x[:, None] - z[None]) ** 2).sum(-1))


def assert_same_bits(found: Any, wanted: Any) -> None:
    """Fail unless two trees have the same structure, dtypes and bits; keys are compared by their
    words."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for have, want in zip(
        *(jax.tree.leaves(jax.tree.map(jnp.asarray, tree)) for tree in (found, wanted)), strict=True
    ):
        if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            have, want = jax.random.key_data(have), jax.random.key_data(want)
        assert have.dtype == want.dtype and np.asarray(have).tobytes() == np.asarray(want).tobytes()


def with_ones(x: np.ndarray, bias: str) -> np.ndarray:
    """The rows, with the constant feature where there is a bias."""
    return x if bias == "none" else np.c_[x, np.ones(len(x))]


def weights_of(model: Any, bias: str) -> np.ndarray:
    """The weights of a linear model in float64, with that of the constant feature last."""
    w = np.asarray(model.w, np.float64)
    return w if bias == "none" else np.append(w, float(model.b))
