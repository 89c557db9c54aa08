"""LASVM: an online kernel SVM that converges to the exact solution on its current set of rows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive
from ...engines.dual_qp import (
    QpSolver,
    build_model,
    centre,
    init_state,
    shift_grad,
    step_info,
)
from ...models import Expansion
from ...numerics import rounding_of_sums, top_k_index
from ...samplers import epochs
from ...types import Array, Batch, Info
from .online_smo import LasvmState, make_visits

SEEDS = 5  # initial rows of each class, as in the authors' program; twice as many for real targets
# rows of one update by default: it keeps the kernel rows that it computes until its end
VISITS = 2**14


@node
class lasvm(QpSolver):
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) online.

    The coefficients that may change are those of a set S of rows, which is built online.

        PROCESS(k):  k joins S unless it forms no violating pair with a row of S;
                     a step along its most violating pair
        REPROCESS:   a step along the most violating pair of S;
                     rows with coef 0 leave S if they are in no violating pair
        a step:      coef_i += t;   coef_j -= t;   grad -= t (K_.i - K_.j);
                     i = argmax_S gain_up, j = argmin_S gain_down

    `gain_up` and `gain_down` are the derivatives of the dual to the right and to the left. t is the
    exact maximiser within the bounds of both. Each visit of a row is PROCESS, then REPROCESS. After
    `passes` passes there are only REPROCESS steps, which converge to the optimum on S; with more
    passes that is the optimum on all rows. Without a bias a step changes one coefficient. A step
    costs O(n), and the kernel rows of the two coefficients if they are not in memory.

    One update visits many rows, and keeps the kernel rows that it computes until its end. With a
    tolerance, the update that ends the passes makes REPROCESS steps until the violation on S meets
    it. A run with `fit(tol=)` is then as many updates as the passes need, as a rule.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        passes: online passes before the finishing steps, >= 1; a pass visits every row of positive
            weight.
        tol: violation on S at which the finishing steps end, > 0; `fit(tol=)` sets it, and 1e-3 is
            the paper's. None: an update makes a finishing step for each drawn row.
        memory: bytes of the cache of kernel rows, an integer; None: 1 GiB.
        start: (n,) initial alpha, as in `decomposition`; rows with alpha above 0 are in S at the
            start.

    Returns:
        A solver on all rows; an update visits the drawn rows one after the other. Default sampler:
        epochs of random order, in batches of 16,384 rows. Batches of fewer than 16 rows keep no
        kernel rows. With a tolerance, an update makes 65,536 finishing steps at most. Model
        `Expansion`, with the derivatives of the exact solution on S. The residual is infinite
        during the passes. Then it is the violation max gain_up - min gain_down over S after the
        last step, in units of y, and at least what rounding leaves of it; without a bias it is the
        largest |projected derivative|. Rows outside of S do not enter the residual; `certificate`
        covers them. Under `vmap` runs are sequential.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, passes not an
            integer of at least 1, memory not an integer, start of another length than the data;
            from `fit` for a precomputed matrix that is not symmetric.

    Differs from the paper: the derivative is stored for all rows, not for S alone. A row then costs
        nothing until its coefficient changes, and a whole kernel row when it does. REPROCESS steps
        on any violation (the paper: above a tolerance). The first of several rows that tie to 1e-4
        of the violation is selected, and coefficients next to a bound are set to it, so that
        rounding has little influence. b is the mean over free coefficients (the paper: the middle
        between the extremes). Rows of weight 0 never join. Other losses than the hinge follow the
        same rule.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> solver = jaxsvm.lasvm(10.0, jaxsvm.kernels.linear())
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=100, tol=1e-3)
        >>> [round(coef, 3) for coef in result.model.coef.tolist()]
        [0.5, -0.5, 0.0]

    Reference: A. Bordes, S. Ertekin, J. Weston, L. Bottou, Fast kernel classifiers with online and
        active learning, JMLR 6, 2005, section 3, https://www.jmlr.org/papers/v6/bordes05a.html.
    """

    _: KW_ONLY
    passes: int = between(1, default=1)
    tol: float | None = positive(default=None)
    memory: int | None = between(0, 2**62, default=None)

    usual_tol = math.nan
    sampler = epochs(VISITS)

    def init(self, key: Array, data: Batch) -> LasvmState:
        dual = init_state(self.qp, self.bias, data, self.start)
        one, zero = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
        in_set = initial_set(key, data.y, dual.weight > 0, self.loss.labels) | (dual.coef != 0)
        return LasvmState(dual, in_set, jnp.zeros(data.y.shape, jnp.int32), one, zero)

    def update(self, state: LasvmState, batch: Batch) -> tuple[LasvmState, Info]:
        y = batch.y.astype(state.dual.coef.dtype)
        qp = lax.stop_gradient(cast(self.qp, y.dtype))
        state, x, y = lax.stop_gradient((state, qp.kernel.layout(batch).x, y))
        stop_at = lax.stop_gradient(jnp.asarray(-1.0 if self.tol is None else self.tol, y.dtype))
        dual, shift = centre(qp, state.dual, qp.dual(state.dual, x, y), self.bias)
        visit_all = make_visits(self.bias, self.loss.labels, self.passes, self.memory)
        begin = state._replace(dual=dual)
        new, on_set, rows_computed = visit_all(qp, stop_at, begin, x, y, batch.index)
        new = new._replace(dual=shift_grad(new.dual, shift))
        rounding = rounding_of_sums(new.dual.coef, qp.kernel.diag(x))
        residual = jnp.where(new.passes > self.passes, jnp.maximum(on_set, rounding), jnp.inf)
        evals = rows_computed.astype(y.dtype) * y.shape[0]
        return new, step_info(qp, self.bias, (state.dual, new.dual), x, y, residual, evals)

    def model(self, state: LasvmState, data: Batch | None = None) -> Expansion:
        """The model of the problem on S: other rows have weight 0.

        With one class S is empty, and all rows count.
        """
        in_set = state.in_set | ~jnp.any(state.in_set)
        on_set = lambda weight: jnp.where(in_set, weight, jnp.zeros_like(weight))
        data = None if data is None else data._replace(weight=on_set(data.weight))
        dual = state.dual._replace(weight=on_set(state.dual.weight))
        return build_model(self.qp, self.bias, dual, data)


def initial_set(key: Array, y: Array, positive: Array, labels: bool) -> Array:
    """The initial S, a mask (n,) of random rows of positive weight.

    It has `SEEDS` rows of each class, or twice as many rows for real targets.

    Reference: A. Bordes et al., JMLR 6, 2005, section 3, which starts from a few examples of each
        class.
    """
    order = jax.random.uniform(key, y.shape, jnp.float32)
    size = min(SEEDS if labels else 2 * SEEDS, y.shape[0])

    def sample(group):
        top = top_k_index(jnp.where(group, order, -1), size)
        return group & jnp.zeros(y.shape, bool).at[top].set(True, mode="promise_in_bounds")

    return sample(positive & (y > 0)) | sample(positive & (y < 0)) if labels else sample(positive)
