"""Choice of the landmarks of a Nystrom map.

Each is a function (key, kernel, x (n, d), count) -> (count, d).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._node import Node, between, node, positive
from ..kernels import Kernel
from ..numerics import accum_dtype, blocked, sqdist, sqnorms
from ..types import Array, SparseRows
from .pivots import draw_rows, random_pivots


def choice(name: str) -> Callable:
    """A choice of landmarks by its name, one of `names.LANDMARKS`."""
    factories = {f.__name__: f for f in (k_means, leverage_scores, random_pivots)}
    return factories[name]() if name in factories else uniform


def uniform(key: Array, kernel: Kernel, x: Array, count: int) -> Array:
    """Rows drawn uniformly, without replacement.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> x = jnp.arange(4.0)[:, None]
        >>> jaxsvm.features.uniform(jax.random.key(0), None, x, 4).sum().item()
        6.0

    Reference: C. Williams, M. Seeger, Using the Nystrom method to speed up kernel machines, NIPS
        2000.
    """
    # cheaper than a permutation
    return x[jax.lax.top_k(jax.random.bits(key, x.shape[:1], jnp.uint32), count)[1]]


@node
class k_means(Node):
    """The centres of k-means with random rows as initial centres; they need not be rows.

        assign each row to its nearest centre;
        centre = mean of its rows (unchanged if it has none)

    Args:
        steps: steps of Lloyd's algorithm, >= 1; each costs n x count distances, in blocks.

    Reference: K. Zhang, I. Tsang, J. Kwok, Improved Nystrom low-rank approximation and error
        analysis, ICML 2008.
    """

    steps: int = between(1, default=10)

    def __call__(self, key: Array, kernel: Kernel, x: Array, count: int) -> Array:
        """The centres, (count, d)."""
        x = x.astype(accum_dtype(x))

        def sums(centre_index):
            """The sum of the rows of each centre, (count, d)."""
            if not isinstance(x, SparseRows):
                return jax.ops.segment_sum(x, centre_index, count)
            zero = jnp.zeros((count, x.shape[1]), x.dtype)
            return zero.at[centre_index[:, None], x.index].add(x.value)

        def step(centres, _):
            nearest = blocked(lambda rows: jnp.argmin(sqdist(rows, centres), axis=1), x, 4096)
            size = jax.ops.segment_sum(jnp.ones(x.shape[0], x.dtype), nearest, count)
            mean = sums(nearest) / jnp.maximum(size, 1)[:, None]
            return jnp.where(size[:, None] > 0, mean, centres), None

        initial = uniform(key, kernel, x, count)
        initial = initial.toarray() if isinstance(initial, SparseRows) else initial
        return jax.lax.scan(step, initial, length=self.steps)[0]


@node
class leverage_scores(Node):
    """Rows drawn without replacement in proportion to their approximate ridge leverage scores.

        score_i = (k(x_i, x_i) - k_P(x_i)' (K_PP + r I)^-1 k_P(x_i)) / r,
            P: a uniform pilot sample,  r = ridge tr(K_PP)

    Scores are large for rows far from the span of the pilot sample, and at most 1 for rows in the
    pilot sample.

    Args:
        ridge: r relative to the trace of the kernel matrix of the pilot sample, > 0.
        pilot: number of rows of the pilot sample, >= 1; None: the number of landmarks.

    Reference: A. Alaoui, M. Mahoney, Fast randomized kernel ridge regression with statistical
        guarantees, NIPS 2015; C. Musco, C. Musco, Recursive sampling for the Nystrom method, NIPS
        2017.
    """

    ridge: float = positive(default=1e-3)
    pilot: int | None = between(1, default=None)

    def __call__(self, key: Array, kernel: Kernel, x: Array, count: int) -> Array:
        """The rows drawn, (count, d)."""
        for_pilot, for_rows = jax.random.split(key)
        sample = uniform(for_pilot, kernel, x, min(self.pilot or count, x.shape[0]))
        shift = self.ridge * jnp.sum(kernel.diag(sample))
        gram = kernel(sample, sample)
        factor = jnp.linalg.cholesky(gram + shift * jnp.eye(gram.shape[0], dtype=gram.dtype))

        def unexplained(rows):
            projected = jax.scipy.linalg.solve_triangular(factor, kernel(sample, rows), lower=True)
            return kernel.diag(rows) - sqnorms(projected.T)

        score = jnp.maximum(blocked(unexplained, x, 4096), 0) / shift
        return x[draw_rows(for_rows, score, count)]
