"""Kernel Pegasos in counts form."""

from __future__ import annotations

from ..._node import node, positive
from ...engines.online_learning import PegasosSolver
from ...kernels import Kernel
from ...spaces import expansion
from ...types import Space


@node
class kernel_pegasos(PegasosSolver):
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) over a kernel's space.

    There is no bias.

        s_i = sum_j N_j y_j k(x_j, x_i)                     N: how often each row has violated
        N_i += 1/|batch|  if y_i s_i < lam (t - 1) or t = 1,  i in batch,   t = 1, 2, ...
        w = sum_j N_j y_j phi(x_j) / (lam t)

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).

    Returns:
        A solver on all rows; model `Expansion`, the last iterate. Default sampler: one uniformly
        drawn row per step.

    Raises:
        ValueError: lam not a single positive number.

    Differs from the paper: the margin is tested with 1/(lam (t - 1)), which makes it linear Pegasos
        without projection in another form (printed: 1/(lam t)); y_j under the sum (printed: y_i);
        responses are cached.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.kernel_pegasos(2.0, jaxsvm.kernels.linear()), data,
        ...     jax.random.key(0), steps=50)
        >>> float(result.model(data.x)[0])
        0.5

    Reference: S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter, Pegasos, Mathematical Programming
        127, 2011, section 4, figure 3.
    """

    lam: float = positive()
    kernel: Kernel

    @property
    def space(self) -> Space:
        return expansion(self.kernel)
