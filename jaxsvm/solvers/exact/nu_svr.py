"""The nu-SVR of Schoelkopf, Smola, Williamson and Bartlett, as LIBSVM solves it."""

from __future__ import annotations

from ..._node import node, positive
from ...engines.nu_qp import NuSolver
from ...kernels import Kernel


@node
class nu_svr(NuSolver):
    """Minimise 1/2 |w|^2 + C (nu W e + sum_i weight_i max(0, |y_i - <w, phi(x_i)> - b| - e)).

    W is the sum of the weights, and half the width e of the tube is a variable. It is the problem
    of `decomposition` with `eps_insensitive(e)`.

        maximise y' c - 1/2 c' K c with c = u + v, 0 <= u_i <= C weight_i, -C weight_i <= v_i <= 0,
        sum_i u_i = C nu W / 2, sum_i v_i = -C nu W / 2

    Steps are on pairs of one sign, so that both sums stay. At the optimum the rows outside of the
    tube have at most the share nu of the weight, and the support vectors at least this share.

    Args:
        nu: share of the weight, in (0, 1].
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        tol: violation to stop at, > 0, in LIBSVM's units; None: 1e-3, as LIBSVM; `fit(tol=)`
            overrides it.
        working_set: as of `decomposition`.
        memory: as of `decomposition`.
        rounds: as of `decomposition`.
        start: (n,) initial signed coefficients, such as `model.coef` of another nu, up to a factor
            for each sign. They are scaled to the sums, and filled up in order of the rows where a
            bound does not allow that. None: LIBSVM's initial point.

    Returns:
        A solver on all rows; model `Expansion`. `run.state.solver.tube` is e. The model has the
        derivatives of the exact solution in nu, C, the kernel's parameters, the rows, targets and
        weights (`implicit.parts_solution`). Under `vmap` as `decomposition`.

    Raises:
        ValueError: nu not in (0, 1]; C not a single positive number; otherwise as `decomposition`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[-1.0], [0.0], [1.0]], [-2.0, 0.0, 2.0], task="regression")
        >>> solver = jaxsvm.nu_svr(0.5, 1.0, jaxsvm.kernels.linear())
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> result.model.coef.tolist(), float(result.state.solver.tube)
        ([-0.75, 0.0, 0.75], 0.5)

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000; C.-C. Chang, C.-J. Lin, Training nu-support vector regression:
        theory and algorithms, Neural Computation 14, 2002; C.-C. Chang, C.-J. Lin, LIBSVM, ACM TIST
        2, 2011, section 4.2.
    """

    nu: float
    C: float = positive()
    kernel: Kernel

    form = "nu_svr"
    targets = "real"
