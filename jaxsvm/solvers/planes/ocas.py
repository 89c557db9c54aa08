"""OCAS: cutting planes with a line search."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..._node import node, positive
from ...checks import number
from ...engines.bundle import BundleSolver, Point, Problem
from ...engines.conjugate import REFRESH
from ...numerics import any_under_vmap
from ...types import Array


@node
class ocas(BundleSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by cutting planes with a line search.

        the planes gain that at (1 - mix) w + mix v:   <slope, .> + offset <= mean loss
        v = argmin lam/2 |v|^2 + max_k (<slope_k, v> + offset_k)
        w = w + t (v - w),   t >= 0 by a line search on the objective

    It starts at w = v = 0 with the plane 0. A round takes two products with the rows. For the hinge
    the line search is exact. For other losses it ends at a thousandth of the initial slope. The
    objective never increases.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: any convex loss >= 0 that reads all rows: hinge, logistic, squared_hinge,
            eps_insensitive, a ranking loss, or crammer_singer with `classes`.
        mix: part of v in the point of the new plane, in (0, 1].
        planes: most planes besides the plane 0, >= 2; structure. They take as much memory as so
            many dense rows. Where none is free, the one that has been without weight for longest is
            replaced, or the two lightest are merged. Take 400 for text and for lam <= 1e-5.
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
        ValueError: lam not a single positive number, mix not in (0, 1], planes below 2, another
            bias, or a loss and classes that do not belong together. TypeError: for derivatives.

    Differs from the paper: any loss; the number of planes is bounded, and merging keeps the dual
        value; the bias is not a part of the planes.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.ocas(2.0), data, jax.random.key(0), steps=5, tol=1e-6)
        >>> result.model.w.tolist(), result.converged
        ([0.5], True)

    Reference: V. Franc, S. Sonnenburg, Optimized cutting plane algorithm for large-scale risk
        minimization, JMLR 10, 2009; C. Teo, S. Vishwanathan, A. Smola, Q. Le, Bundle methods for
        regularized risk minimization, JMLR 11, 2010.
    """

    _: KW_ONLY
    mix: float = positive(default=0.1)

    def check(self) -> None:
        if (number("mix", self.mix) or 0) > 1:
            raise ValueError(f"mix must be at most 1, got {float(self.mix):g}")
        super().check()

    def next_best(self, problem: Problem, best: Point, model: Point, t: Array) -> tuple[Point, Any]:
        new = problem.search(best, model, jnp.asarray(self.mix, model.w.dtype))
        # Responses that are added up lose digits: from time to time they are computed again.
        is_due = any_under_vmap((t + 1) % REFRESH == 0)
        new = lax.cond(is_due, lambda: problem.at(new.w), lambda: new)
        return new, jnp.where(is_due, 3, 2)
