"""The perceptron, linear or with a kernel."""

from __future__ import annotations

from ... import spaces
from ...engines.online_learning import perceptron_on
from ...kernels import Kernel
from ...recipe import solver
from ...types import Solver


@solver
def perceptron(kernel: Kernel | None = None, *, average: bool = False) -> Solver:
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
        >>> jaxsvm.fit(perceptron(), data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Rosenblatt, The perceptron, Psychological Review 65, 1958; mistake bound and
        average: Y. Freund, R. Schapire, Large margin classification using the perceptron algorithm,
        Machine Learning 37, 1999.
    """
    space = spaces.space_for(kernel)
    return perceptron_on(spaces.averaged(space) if average else space)
