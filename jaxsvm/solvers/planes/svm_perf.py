"""SVM-perf: one-slack cutting planes, for any risk."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._node import node
from ...engines.bundle import BundleSolver, Point, Problem
from ...types import Array


@node
class svm_perf(BundleSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by cutting planes.

        the planes gain that at w:   <slope, .> + offset <= mean loss, with equality at w
        w = argmin lam/2 |w|^2 + max_k (<slope_k, w> + offset_k)

    It starts at w = 0 with the plane 0. For the hinge this is the one-slack form of SVM-perf, where
    the plane 0 is the bound of the slack; for other losses it is BMRM. A round takes two products
    with the rows. The model is the best w so far, as the objective may increase from one to the
    next. For small lam, and for losses without a bounded slope, take `ocas`.

    Args:
        lam: regularisation, > 0; C = 1/(lam n), and the papers' constant is 1/lam.
        loss: any convex loss >= 0 that reads all rows: hinge, logistic, eps_insensitive, a ranking
            loss, or crammer_singer with `classes`.
        planes: most planes besides the plane 0, >= 2; structure. They take as much memory as so
            many dense rows. Where none is free, the one that has been without weight for longest is
            replaced, or the two lightest are merged. Take 400 for text and for lam <= 1e-4.
        bias: "none", "feature" (regularised) or "free" (not regularised; it is minimised inside of
            the mean loss).
        classes: k, for class numbers 0 .. k-1 and crammer_singer; structure. None: one response for
            each row.

    Returns:
        A solver on all rows; model `Linear`, or `OneVsRest` for classes. The residual after the
        update is the duality gap relative to the objective: `fit(tol=1e-3)` stops on it. The work
        on the planes is in float64 always; under `vmap` that part is sequential. There are no
        derivatives.

    Raises:
        ValueError: lam not a single positive number, planes below 2, another bias, or a loss and
            classes that do not belong together. TypeError: for derivatives.

    Differs from the papers: the number of planes is bounded, and merging keeps the dual value; the
        residual is relative, where SVM-perf compares slacks; a free bias; none of SVM-perf's
        measures but the error rate.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.svm_perf(2.0), data, jax.random.key(0), steps=5, tol=1e-6)
        >>> result.model.w.tolist(), result.converged
        ([0.5], True)

    Reference: T. Joachims, Training linear SVMs in linear time, KDD 2006, algorithm 2; C. Teo, S.
        Vishwanathan, A. Smola, Q. Le, Bundle methods for regularized risk minimization, JMLR 11,
        2010.
    """

    def next_best(self, problem: Problem, best: Point, model: Point, t: Array) -> tuple[Point, Any]:
        is_better = problem.objective(model) < problem.objective(best)
        return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), model, best), 2
