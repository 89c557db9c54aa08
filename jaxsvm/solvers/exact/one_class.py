"""The one-class SVM of Schoelkopf and others, as LIBSVM solves it."""

from __future__ import annotations

from ..._node import node
from ...engines.nu_qp import NuSolver
from ...kernels import Kernel


@node
class one_class(NuSolver):
    """Minimise 1/2 |w|^2 - nu W rho + sum_i weight_i max(0, rho - <w, phi(x_i)>).

    W is the sum of the weights, and the threshold rho is a variable. The model is f - rho with
    f(x) = <w, phi(x)>. It is below 0 for outliers. Targets are not read.

        maximise -1/2 c' K c with 0 <= c_i <= weight_i, sum_i c_i = nu W

    At the optimum the training rows below 0 have at most the share nu of the weight, and the
    support vectors at least this share.

    With a kernel of constant diagonal k0, such as `rbf`, this is the support vector data
    description. Its centre is w / S with S = nu W. The squared radius is
    k0 - 2 rho / S + |w|^2 / S^2, with |w|^2 of `model.sqnorm()`. A row has the squared distance
    k0 - 2 f(x) / S + |w|^2 / S^2 from the centre.

    Args:
        nu: share of the weight, in (0, 1].
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        tol: violation to stop at, > 0, in LIBSVM's units; None: 1e-3, as LIBSVM; `fit(tol=)`
            overrides it.
        working_set: as of `decomposition`.
        memory: as of `decomposition`.
        rounds: as of `decomposition`.
        start: (n,) initial coefficients >= 0, such as `model.coef` of another nu, up to a factor.
            They are scaled to the sum, and filled up in order of the rows where a bound does not
            allow that. None: LIBSVM's initial point.

    Returns:
        A solver on all rows; model `Expansion` of f - rho, as LIBSVM's decision function.
        `run.state.solver.offset` is rho, and `model.b` is -rho. The model has the derivatives of
        the exact solution in nu, the kernel's parameters, the rows and the weights
        (`implicit.parts_solution`). Under `vmap` as `decomposition`.

    Raises:
        ValueError: nu not in (0, 1]; otherwise as `decomposition`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0], [3.0], [4.0]], [0.0] * 4, task="regression")
        >>> solver = jaxsvm.one_class(0.5, jaxsvm.kernels.linear())
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> result.model.coef.tolist(), float(result.state.solver.offset)
        ([1.0, 1.0, 0.0, 0.0], 7.5)

    Reference: B. Schoelkopf, J. Platt, J. Shawe-Taylor, A. Smola, R. Williamson, Estimating the
        support of a high-dimensional distribution, Neural Computation 13, 2001; D. Tax, R. Duin,
        Support vector data description, Machine Learning 54, 2004; C.-C. Chang, C.-J. Lin, LIBSVM,
        ACM TIST 2, 2011.
    """

    nu: float
    kernel: Kernel

    form = "one_class"
    stop = "offset"
