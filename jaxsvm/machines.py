"""Machines by the fastest method for their loss and rows: `linear_svm` and `kernel_svm`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal

import jax
import jax.numpy as jnp

from . import solvers
from ._node import node, positive
from .checks import check_choice, shown
from .engines.base import LinearSolver
from .engines.linear_dual import COLUMNS
from .kernels import Kernel
from .losses import hinge
from .models import OneVsRest
from .numerics import total
from .solvers import decomposition, newton, sdca
from .types import Array, Batch, Info, Loss, Model, Solver, SparseRows, State, Wrapper
from .wrappers.multiclass import one_vs_rest
from .wrappers.problems import Problems

NAMES = ("newton", "augmented_lagrangian", "interior_point", "dual_descent", "sdca")
# Thresholds by `benchmarks.speed.crossings`. The load is a mean over rows,
# C |x|^2 (10 + m) (1 + 4/m) / (d + d^3/(16 n)); m is d, or of sparse rows the numbers that are not
# 0: passes of dual_descent, which grow with C |x|^2 and where rows share few columns, over steps
# with a factorisation.
RATIO = 3  # rows over columns, below which dual_descent is fastest
MOST_COLUMNS = 512  # of rows for which steps with a factorisation are cheap, if no load is known
LOADS = 0.8, 1024.0  # up to which dual_descent is fastest, and augmented_lagrangian
MANY = 1000  # rows from which on augmented_lagrangian is faster than interior_point
MOST_DENSE = 2**26  # numbers of sparse rows that are made dense
ROUNDS = 1000  # steps of one update, at most
MOST_EIGENVECTORS = 2048  # columns for which they are worked out once for all runs of a grid


@node
class linear_svm(LinearSolver):
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by the fastest method.

    The loss and the shape of the rows decide, and `result.status` says which it was:

        loss with curvature (squared_hinge, logistic, squared, ...)      newton
        hinge and its like, up to 512 columns, 1,000 rows or more         augmented_lagrangian
        the same with fewer rows, or a free bias                          interior_point
        more columns, or sparse rows of over 2^26 numbers if dense        dual_descent

    Where JAX has an accelerator, interior_point takes all rows of up to 1,000 columns: its steps
    are products of whole matrices, those of dual_descent loops over single rows.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        loss: one with a curvature, or whose dual is quadratic; of labels or real targets.
        bias: "feature" (a constant feature 1, regularised with the others), "free" (not
            regularised; of other losses than those with a curvature up to 1,000 columns) or "none".
        tol: relative duality gap to stop at, > 0; None: 1e-4; `fit(tol=)` overrides it.

    Returns:
        A solver on all rows; model `Linear`. An update makes steps of the method until the gap is
        at most `tol`, so that a run needs one update as a rule. State, residual, derivatives and
        behaviour under `vmap` are those of the method.

    Raises:
        ValueError: C or tol not a single positive number, another bias, or a loss that none of the
            methods takes; where a run begins: a free bias with too many columns.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.linear_svm(10.0), data, jax.random.key(0))
        >>> round(float(result.model.w[0]), 3), result.status.split(":")[0]
        (1.0, 'interior_point converged after 1 step')

    Reference: those of the methods; the limits are measured on two cores.
    """

    C: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["feature", "free", "none"] = "feature"
    tol: float | None = positive(default=None)

    usual_tol = 1e-4  # of the relative duality gap

    def check(self) -> None:
        if self.loss.curvature is None and self.loss.quadratic is None:
            raise ValueError(
                "linear_svm takes losses with a curvature or a quadratic dual, such as "
                f"losses.squared_hinge and hinge, got {shown(self.loss)}: take ocas"
            )

    def method(self, name: str) -> Any:
        """The solver of that name."""
        how = {"loss": self.loss, "bias": self.bias, "tol": self.iterates_to}
        return linear_solver(name, self.C, **how)

    def init(self, key: Array, data: Batch) -> State:
        (n, d), is_sparse = data.x.shape, isinstance(data.x, SparseRows)
        name = fastest_linear(self.loss, n, d, is_sparse, self.bias)
        return self.method(name).init(key, data)

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        return self.method(state.method).update(state, batch)

    def model(self, state: State, data: Batch | None = None) -> Model:
        return self.method(state.method).model(state, data)


def kernel_svm(
    C: Any,
    kernel: Kernel,
    *,
    loss: Loss = hinge,
    bias: Any = "free",
    tol: float | None = None,
) -> Solver:
    """Minimise 1/2 |f|^2 + C sum_i weight_i loss(f(x_i) + b, y_i) in the space of a kernel.

    It returns the solver of the fastest exact method for the loss: `decomposition` where the dual
    is quadratic (hinge, squared_hinge, eps_insensitive, squared, ...), else `sdca` (logistic),
    whose runs need `steps` or `passes`, and a `tol`.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |f|^2 + mean loss.
        kernel: one of `jaxsvm.kernels`.
        loss: of labels or real targets.
        bias: "free" (not regularised, as in LIBSVM) or "none"; by `sdca` "feature" or "none".
        tol: to stop at, see `decomposition`; not of `sdca`.

    Returns:
        That solver, with its state, model, residual and derivatives.

    Raises:
        ValueError: as the solver; a free bias, or tol, with a loss whose dual is not quadratic.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[0.0, 0], [0, 1], [1, 0], [1, 1]], [-1, 1, 1, -1])
        >>> machine = jaxsvm.kernel_svm(10.0, jaxsvm.kernels.rbf(gamma=1.0))
        >>> jaxsvm.fit(machine, data, jax.random.key(0)).predict(data.x).tolist()
        [-1, 1, 1, -1]

    Reference: those of `decomposition` and `sdca`.
    """
    if loss.quadratic is not None:
        return decomposition(C, kernel, loss=loss, bias=bias, tol=tol)
    solver = sdca(C, kernel, loss=loss, bias="none" if bias == "free" else bias)
    if bias == "free" or tol is not None:
        raise ValueError(
            f"the dual of {shown(loss)} is not quadratic: take bias='feature' or 'none', and give "
            "tol to fit"
        )
    return solver


def fastest_linear(
    loss: Loss,
    rows: int,
    columns: int,
    is_sparse: bool,
    bias: str = "feature",
    load: float | None = None,
) -> str:
    """The name of the fastest method of a linear machine for the loss and the rows.

    `load` is as above `LOADS`. None: it is not known, or derivatives may be asked for, which
    dual_descent has of up to 2,048 free coefficients.
    """
    if loss.quadratic is None:
        return "sdca" if loss.curvature is None else "newton"
    # up to so many columns a dense copy is faster than coordinates, which move slowly there
    is_dense = not is_sparse or rows * columns <= MOST_DENSE
    # loops over single rows are slow on an accelerator: see docs/devices.md
    loops = not is_dense or columns > COLUMNS or jax.default_backend() == "cpu"
    if loops and load is not None and rows < RATIO * columns:
        return "dual_descent"
    if loss.curvature is not None:
        return "newton"
    if bias == "free" or not loops:
        return "interior_point"
    by_rows = columns > MOST_COLUMNS if load is None else columns > COLUMNS or load <= LOADS[0]
    if not is_dense or by_rows:
        return "dual_descent"
    return "interior_point" if rows < MANY or (load or 0) > LOADS[1] else "augmented_lagrangian"


def system_for_grid(shape: tuple[int, int], sparse: bool) -> str | None:
    """The `system` of `newton` for a path over C on rows of that shape; None: its default."""
    return "eigen" if not sparse and MOST_COLUMNS < shape[1] <= MOST_EIGENVECTORS else None


def linear_solver(
    name: str, C: Any, *, steps: int = ROUNDS, system: str | None = None, **how: Any
) -> Solver:
    """The solver of 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) of that name.

    Args:
        name: one of `NAMES`.
        C: weight of one row's loss, > 0.
        steps: of one update of a solver that reads all rows, at most.
        system: of newton.
        how: the loss and the bias, and `tol` of a solver that reads all rows.

    Raises:
        ValueError: another name, or a loss or bias that the solver does not take.
    """
    check_choice("solver", name, NAMES)
    if name == "sdca":
        return sdca(C, loss=how["loss"], bias=how["bias"])
    if name == "newton":
        return newton_by_C(C, rounds=float(steps), system=system, **how)
    return getattr(solvers, name)(C, rounds=float(steps), **how)


@node
class by_C(Wrapper):
    """A solver of lam/2 |w|^2 + mean loss with lam = 1 / (C times the sum of the weights of rows).

    The weights are those that `init` is given. So runs on other rows, such as those outside of a
    fold, have the same C.

    Args:
        C: weight of one row's loss, > 0.
        inner: `newton` or `proximal_newton`, whose lam is not read.

    Returns:
        A solver with the state, model and residual of `inner`.

    Example:
        >>> import jax, jaxsvm
        >>> from jaxsvm.machines import newton_by_C
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(newton_by_C(0.25), data, jax.random.key(0), steps=1)
        >>> result.model.w.tolist()
        [0.5]
    """

    C: float = positive()
    inner: Solver

    def of_rows(self, weight: Array) -> Solver:
        """The solver of rows of these weights."""
        return self.inner.replace(lam=1 / (self.C * total(weight)).astype(weight.dtype))

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        return self.of_rows(state.weight).update(state, batch)

    def model(self, state: State, data: Batch | None = None) -> Model:
        # the weights of the data have derivatives, those of the state have none
        return self.of_rows((state if data is None else data).weight).model(state, data)


def newton_by_C(C: Any, **options: Any) -> by_C:
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by `newton`, of those options.

    Example:
        >>> from jaxsvm.machines import newton_by_C
        >>> newton_by_C(0.25, bias="feature").inner.bias
        'feature'
    """
    return by_C(C, newton(1.0, **options))


@node
class one_vs_weighted_rest(Problems):
    """`one_vs_rest` with class weights as in LIBLINEAR: rows weigh more in one problem only.

        P_c(w) = 1/2 |w|^2 + C sum_{y_i = c} factors_c weight_i loss(<w, x_i>, 1)
                           + C sum_{y_i != c} weight_i loss(<w, x_i>, -1)

    Args:
        inner: a solver of `linear_solver`, whose state holds the weights of the rows.
        factors: (k,) class weights, > 0.

    Returns:
        A solver as `one_vs_rest`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.machines import newton_by_C, one_vs_weighted_rest
        >>> data = jaxsvm.dataset([[1.0], [0.0], [-1.0]], [0, 1, 2], task="multiclass")
        >>> solver = one_vs_weighted_rest(newton_by_C(0.25), jnp.array([1.0, 1.0, 3.0]))
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> [round(w, 3) for w in result.model.inner.w[:, 0].tolist()]
        [0.5, 0.0, -0.667]
    """

    inner: Solver
    factors: Array

    join = OneVsRest

    @property
    def targets(self) -> int:
        return len(self.factors)

    def parts(self, data: Batch) -> dict[str, Array]:
        """The labels -1, +1 and the weights of the rows in all problems."""
        y = one_vs_rest(self.inner, classes=self.targets).parts(data)["y"]
        factor = jnp.where(y > 0, jnp.asarray(self.factors, data.weight.dtype)[:, None], 1)
        return {"y": y, "weight": factor * data.weight[None, :]}
