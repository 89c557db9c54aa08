"""The nu-SVC of Schoelkopf, Smola, Williamson and Bartlett, as LIBSVM solves it."""

from __future__ import annotations

from ..._node import node
from ...engines.nu_qp import NuSolver
from ...kernels import Kernel


@node
class nu_svc(NuSolver):
    """Minimise 1/2 |w|^2 - nu W r + sum_i weight_i max(0, r - y_i (<w, phi(x_i)> + b)).

    W is the sum of the weights, and the margin r is a variable. The model is (w, b) / r, of margin
    1, as that of LIBSVM. It is the solution of the problem of `decomposition` for C = 1 / r.

        u, v = the coefficients of the two classes, 0 <= u_i <= weight_i, -weight_i <= v_i <= 0
        maximise -1/2 c' K c with c = u + v, sum_i u_i = nu W / 2, sum_i v_i = -nu W / 2

    Steps are on pairs of one class, so that both sums stay. At the optimum the rows with a margin
    below 1 have at most the share nu of the weight, and the support vectors at least this share.

    Args:
        nu: share of the weight, in (0, 1], at most 2 min(W+, W-) / W for the weights W+ and W- of
            the classes.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        tol: violation to stop at, > 0; None: 1e-3; `fit(tol=)` overrides it. It is LIBSVM's,
            divided by r where r is from 1e-3 to 1, so that it is in units of decision values.
        working_set: as of `decomposition`.
        memory: as of `decomposition`.
        rounds: as of `decomposition`.
        start: (n,) initial coefficients, such as `model.coef` of another nu, up to a factor for
            each class. They are scaled to the sums, and filled up in order of the rows where a
            bound does not allow that. None: LIBSVM's initial point.

    Returns:
        A solver on all rows; model `Expansion`. `run.state.solver.margin` is r, and the state's
        coefficients are those before the division by r. The model has the derivatives of the exact
        solution in nu, the kernel's parameters, the rows and the weights
        (`implicit.parts_solution`). Under `vmap` as `decomposition`. For nu above its limit the
        model is nan where `fit` cannot see the data, as inside transformations. If w = 0 is the
        solution, then r = 0, and the model is not divided by r: choose a larger nu.

    Raises:
        ValueError: nu not in (0, 1]; from `fit`: nu above its limit for these labels and weights,
            or a precomputed matrix that is not symmetric; otherwise as `decomposition`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0], [-2.0]], [1, -1, 1, -1])
        >>> solver = jaxsvm.nu_svc(0.4, jaxsvm.kernels.linear())
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> result.model.coef.tolist(), round(float(result.state.solver.margin), 3)
        ([0.5, -0.5, 0.0, 0.0], 1.6)

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000; C.-C. Chang, C.-J. Lin, Training nu-support vector classifiers:
        theory and algorithms, Neural Computation 13, 2001; C.-C. Chang, C.-J. Lin, LIBSVM, ACM TIST
        2, 2011, section 4.2.
    """

    nu: float
    kernel: Kernel

    form = "nu_svc"
    stop = "margin"
    targets = "labels"
