"""Fourier online gradient descent (FOGD)."""

from __future__ import annotations

from typing import Any

from ... import spaces
from ..._node import node, positive
from ...engines.online_learning import DescentSolver
from ...types import Solver, Wrapper
from ...wrappers import on_features


@node
class fogd(Wrapper):
    """Minimise the hinge by online gradient descent with a constant step, on the features of a map.

        w = w + eta [y_i <w, phi(x_i)> < 1] y_i phi(x_i)

    Args:
        eta: step, > 0; with features of norm 1 between 0.4 and 4.
        phi: a feature map (n, d) -> (n, p), `features.fourier` in the paper.

    Returns:
        A solver on raw or prepared rows; model `Mapped`, the mean of the w after each step that
        changed w. Default sampler: epochs of random order.

    Raises:
        ValueError: eta not a single positive number.

    Differs from the paper: features have norm 1, so that eta is D times the paper's, for D
        frequencies, and the values are the same at every step; the mean instead of the last w, as
        in its authors' program; example weights multiply the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> kernel = jaxsvm.kernels.rbf(1.0)
        >>> phi = jaxsvm.features.fourier(jax.random.key(1), kernel, dim=1, features=64)
        >>> result = jaxsvm.fit(jaxsvm.fogd(1.0, phi), data, jax.random.key(0), steps=10)
        >>> float(result.model(data.x)[0]) > 0.5
        True

    Reference: J. Lu, S. Hoi, J. Wang, P. Zhao, Z. Liu, Large scale online kernel learning, JMLR 17,
        2016, algorithm 1.
    """

    eta: float = positive()
    phi: Any

    @property
    def inner(self) -> Solver:  # type: ignore[override]  # worked out
        return on_features(self.phi, _linear_descent(self.eta))


@node
class _linear_descent(DescentSolver):
    """The same on features."""

    eta: float

    space = spaces.averaged(spaces.linear(), of="moves")
