"""Distances of stored points and of the new one."""

import jax.numpy as jnp
import numpy as np

from jaxsvm.budget.base import Points
from jaxsvm.budget.merging import _share, _some_sqdist, _sqdist


def test_distances_at_some_places_and_at_all_are_those_of_their_rows(x64):
    x = np.random.default_rng(0).normal(size=(6, 3))
    numbers = {"x": x[:4], "sqnorm": (x[:4] ** 2).sum(1), "row": x[4]}
    parts = {name: jnp.asarray(value) for name, value in numbers.items()}
    points = Points(**dict.fromkeys(Points._fields) | parts)
    want = ((x[:5] - x[5]) ** 2).sum(1)  # the new point last
    np.testing.assert_allclose(_sqdist(points, x[5]), want, rtol=1e-12)
    places = jnp.array([4, 0, 3, 3])
    np.testing.assert_allclose(_some_sqdist(points, x[5], places), want[places], rtol=1e-12)


def test_the_share_of_two_coefficients_of_0_is_0():
    shares = _share(jnp.array([0.0, 1.0, -3.0, 0.25]), jnp.array([0.0, 3.0, -1.0, 0.75]))
    np.testing.assert_array_equal(shares, [0, 0.25, 0.75, 0.25])
