"""Block decomposition of the dual of the kernel SVM, after SVM-light and ThunderSVM."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal

import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive
from ...engines import blocks
from ...engines.blocks import DecompositionState
from ...engines.dual_qp import QpSolver, build_model, init_state, step_info
from ...models import Expansion
from ...types import Array, Batch, Info


@node
class decomposition(QpSolver):
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) by blocks.

    The solution is exact; one block of rows is solved at a time.

        W = the rows that violate the optimality conditions most, and half of the last W
        coef_W' = argmax of D over coef_W, to a tenth of the violation, or 0.3 tol
        grad -= Q_.W (coef_W' - coef_W),   Q = K + diag(l2)

    `engines.blocks.working_set_step` has these lines: `select_working_set`, `smo_step.solve`, and
    `kernel_cache.subtract`.

    K_WW is computed by one product. K_.W has the kernel rows of changed coefficients, which a cache
    keeps. Where `working_set` is None, a W of over 512 rows is solved by blocks of its rows in the
    same way, without further products of the data.

    D is the dual of `engines.dual_qp`, and grad its derivative without the term of l1. One update
    solves blocks until the residual is at most `tol`, so that a run needs one update as a rule.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        tol: residual to stop at, > 0; None: 1e-3, as LIBSVM; `fit(tol=)` overrides it.
        stop: the definition of the residual: "kkt", LIBSVM's violation max gain_up - min gain_down,
            in units of y; or "gap", the duality gap relative to the primal.
        working_set: q, rows of a block, a multiple of 4. None: all rows, if there are at most 2,048
            (of a precomputed kernel 4,096) and their kernel matrix fits `memory`. The whole matrix
            is then computed, and steps on pairs of rows are made until the residual is at most
            `tol`. For more rows None is an eighth of them, between 1,024 and 4,096, and less above
            128 columns. These sets are solved by blocks of 512 of their rows.
        memory: bytes of the cache of kernel rows, an integer; None: 512 MiB. It has at least 64
            rows. If it has room for all n, no row is computed twice.
        rounds: maximum number of working sets of one update, a whole number. If all rows are one,
            an update makes at most 100 n `rounds` steps on pairs. An update also ends after 2^31
            kernel evaluations, or 2^33 where sets are solved by blocks. The next update starts with
            an empty cache. `fit` evaluates, saves and reacts to Ctrl-C between updates only. On
            400,000 rows of covtype it makes 13 updates in four minutes on two cores.
        start: (n,) initial alpha, such as that of another C, best multiplied by the ratio of the
            two. It is clipped to the bounds. With a free bias, its side of larger sum is scaled
            down. For losses of real targets: the signed coefficients.

    Returns:
        A solver on all rows; model `Expansion` with its dual variables, so that its certificate is
        exact. The model has the derivatives of the exact solution in C, the kernel's parameters and
        the rows (`implicit.solution`). They are nan if more than 2,048 coefficients are free. Under
        `vmap` runs are made one after the other. `evals` counts the computed kernel rows, not the
        kernel among the rows of a block.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, working_set not a
            multiple of 4, memory not an integer, start of another length than the data; from `fit`
            for a precomputed matrix that is not symmetric.

    Differs from the papers: compensated sums; blocks within the working set, whose free rows stay
        first. Pairs are of second order, as in Fan et al. and ThunderSVM; in SVM-light they are
        not.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> result = jaxsvm.fit(jaxsvm.decomposition(10.0, jaxsvm.kernels.linear()), data,
        ...     jax.random.key(0), steps=1)
        >>> result.model.coef.tolist()
        [0.5, -0.5, 0.0]

    Reference: T. Joachims, Making large-scale SVM learning practical, 1999; Z. Wen, J. Shi, Q. Li,
        B. He, J. Chen, ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 19, 2018, section 2;
        R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order information, JMLR
        6, 2005.
    """

    _: KW_ONLY
    tol: float | None = positive(default=None)
    stop: Literal["kkt", "gap"] = "kkt"
    working_set: int | None = None
    memory: int | None = between(0, 2**62, default=None)
    rounds: float = 2000.0

    usual_tol = 1e-3

    def check(self) -> None:
        super().check()
        blocks.check_options(self.working_set, self.rounds)

    def init(self, key: Array, data: Batch) -> DecompositionState:
        dual = init_state(self.qp, self.bias, data, self.start)
        working = blocks.init_working_set(data, self.working_set)
        return DecompositionState(dual, working, jnp.full((), jnp.inf, dual.coef.dtype))

    def update(self, state: DecompositionState, batch: Batch) -> tuple[DecompositionState, Info]:
        y = batch.y.astype(state.dual.coef.dtype)
        # Steps have no derivatives: the model has those of the exact solution, from `qp` itself.
        qp, tol = lax.stop_gradient(cast((self.qp, self.iterates_to), y.dtype))
        state, x, y = lax.stop_gradient((state, qp.kernel.layout(batch).x, y))
        limits = self.working_set, self.memory, self.rounds
        new, evals = blocks.update(qp, tol, state, x, y, self.stop, self.bias, limits)
        return new, step_info(qp, self.bias, (state.dual, new.dual), x, y, new.residual, evals)

    def model(self, state: DecompositionState, data: Batch | None = None) -> Expansion:
        return build_model(self.qp, self.bias, state.dual, data)
