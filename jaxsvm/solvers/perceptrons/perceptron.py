"""The perceptron, linear or with a kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY

from ... import spaces
from ..._node import node
from ...engines.online_learning import PerceptronSolver
from ...kernels import Kernel
from ...types import Space


@node
class perceptron(PerceptronSolver):
    """Find a separating function by correcting mistakes; no objective, no bias, no scale.

        mistake_i:  y_i f(x_i) <= 0
        f = f + sum_i weight_i [mistake_i] y_i k(x_i, .) / count(weight > 0)

    On data that a function of norm 1 separates with margin G, within radius R, one row a step makes
    at most (R/G)^2 mistakes. On noisy data many passes overfit.

    Args:
        kernel: a kernel; None is linear.
        average: return the mean of the functions f_1 = 0, f_2, ... at which rows were classified,
            instead of the last.

    Returns:
        A solver on drawn rows (linear, model `Linear`) or on all rows (model `Expansion`). Default
        sampler: epochs of random order.

    Differs from the paper: example weights multiply the correction; rows in random order (the order
        given: `samplers.epochs(1, shuffle=False)`).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> jaxsvm.fit(jaxsvm.perceptron(), data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Rosenblatt, The perceptron, Psychological Review 65, 1958; mistake bound and
        average: Y. Freund, R. Schapire, Large margin classification using the perceptron algorithm,
        Machine Learning 37, 1999.
    """

    kernel: Kernel | None = None
    _: KW_ONLY
    average: bool = False

    @property
    def space(self) -> Space:
        space = spaces.space_for(self.kernel)
        return spaces.averaged(space) if self.average else space
