"""Sequential minimal optimisation with second-order selection."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ..._node import cast, node
from ...engines.dual_qp import (
    DualState,
    QpSolver,
    add_l2,
    build_model,
    centre,
    init_state,
    shift_grad,
    step_info,
)
from ...engines.smo_step import STEPS
from ...models import Expansion
from ...numerics import rounding_of_sums, two_sum
from ...samplers import uniform
from ...types import Array, Batch, Info


@node
class smo(QpSolver):
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) by pairs.

    A step maximises it exactly along a pair of rows.

        i = argmax gain_up;   j = argmax (gain_up_i - gain_down_j)^2 / (K_ii + K_jj - 2 K_ij)
        t = (gain_up_i - gain_down_j) / (K_ii + K_jj - 2 K_ij), within the bounds of both
        coef_i += t;   coef_j -= t;   grad -= t (K_.i - K_.j)

    `gain_up` and `gain_down` are the derivatives of the dual to the right and to the left. Without
    a bias a step changes the one coefficient of largest gain. A step costs two kernel rows (one
    without a bias) and O(n).

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        start: (n,) initial alpha, as in `decomposition`.

    Returns:
        A solver on all rows, which selects its own; the sampler only counts the steps, n a pass.
        Model `Expansion` with its dual variables. The residual is LIBSVM's violation max gain_up -
        min gain_down before the step (without a bias the largest |projected derivative|), in units
        of y, and at least what rounding leaves of it.

    Raises:
        ValueError: C not a single positive number, another loss or bias, start of another length
            than the data; from `fit` for a precomputed matrix that is not symmetric.

    Differs from the paper: no shrinking and no cache of rows; `decomposition` is the fast solver. A
        rounding error in the sum of the coefficients is corrected by the next step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> result = jaxsvm.fit(jaxsvm.smo(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0),
        ...     steps=10, every=1, tol=1e-3)
        >>> result.model.coef.tolist()
        [0.5, -0.5, 0.0]

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order
        information, JMLR 6, 2005, algorithm 2 and WSS 3.
    """

    sampler = uniform()

    def init(self, key: Array, data: Batch) -> DualState:
        return init_state(self.qp, self.bias, data, self.start)

    def update(self, state: DualState, batch: Batch) -> tuple[DualState, Info]:
        y = batch.y.astype(state.coef.dtype)
        qp = lax.stop_gradient(cast(self.qp, y.dtype))
        state, x, y = lax.stop_gradient((state, batch.x, y))
        dual = qp.dual(state, x, y)
        centred_state, shift = centre(qp, state, dual, self.bias)
        dual = dual.at_state(centred_state)
        row = lambda i: add_l2(qp.kernel(x[i[None]], x)[0], dual, i)

        new_dual, sum_error, step = STEPS[self.bias](row, dual, state.sum_error)
        sums = centred_state.grad, centred_state.compensation
        grad, compensation = two_sum(*sums, step.change)
        new = DualState(new_dual.coef, grad, compensation, sum_error, state.weight)
        new = shift_grad(new, shift)
        residual = jnp.maximum(step.gap, rounding_of_sums(new.coef, dual.diag))
        evals = jnp.full((), (2 if self.bias == "free" else 1) * y.shape[0], jnp.int32)
        return new, step_info(qp, self.bias, (state, new), x, y, residual, evals)

    def model(self, state: DualState, data: Batch | None = None) -> Expansion:
        return build_model(self.qp, self.bias, state, data)
