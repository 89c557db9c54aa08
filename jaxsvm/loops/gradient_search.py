"""`select(search="gradient")`: numbers of a solver by derivatives of the out-of-fold risk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..checks import brief, shown
from ..numerics import is_traced
from ..objectives import decision_values
from ..recipe import fields_of, unwrap_static
from ..types import Array, Batch, take
from .fitting import fit
from .programs import as_argument
from .progress import Bar
from .selection_file import ResultFile, Results
from .threads import Limits
from .vmapped_fits import with_features

EVALUATIONS = 100  # of the risk and its derivatives, at most
FACTOR = 1e3  # a number stays within this factor of its start
TOL = 1e-6  # of the fits, which are differentiated: at 1e-3 derivatives are wrong by 7 to 21 %
SLOPE = 1e-4  # stop where no derivative with respect to a logarithm is larger, relative to the risk
FALL = 3e-3  # stop once three steps in a row lower the risk by less, relative to it
MOVE = 2.0  # the largest change of a logarithm in one step
SHRINK, TRIALS = 0.3, 6  # factor of a step that did not lower the risk, and how many are tried
ARMIJO = 1e-4  # share of the decrease that the derivative predicts

_lbfgs = optax.lbfgs(linesearch=None)
_lbfgs_update = jax.jit(_lbfgs.update)


class SearchResult(NamedTuple):
    """The two points of a search, and how it went."""

    points: dict[str, np.ndarray]  # name -> (2,) or (2, d) numbers: the start, the end
    risks: tuple[float, float]  # the smoothed risk at both
    evaluations: int
    reason: str  # why it ended

    @property
    def status(self) -> str:
        """One clause."""
        return (
            f"gradient search: {self.evaluations} evaluations, smoothed risk "
            f"{self.risks[0]:.4g} at the start, {self.risks[1]:.4g} at the end ({self.reason})"
        )


class Problem(NamedTuple):
    """What is searched, and the data of the folds."""

    maker: Callable  # (one number or vector of each axis by name) -> solver
    starts: dict[str, np.ndarray]  # () or (d,) each
    data: Batch
    fold: np.ndarray  # (n,)  int32, -1: in all training sets
    folds: int
    key: Array
    tol: float | None
    steps: int | None

    def numbers(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers by axis; theta (m,) are the logarithms of their ratios to the start."""
        sizes = [start.size for start in self.starts.values()]
        parts = np.split(np.exp(theta), np.cumsum(sizes)[:-1])
        return {
            name: start * part.reshape(start.shape)
            for (name, start), part in zip(self.starts.items(), parts, strict=True)
        }


def start_of(name: str, numbers: Any) -> np.ndarray:
    """The start of one axis, () or (d,) in float64.

    Raises:
        ValueError: not a number above 0, or a vector of such numbers.
    """
    wrong = (
        f"search='gradient' takes as axis {name} the start of the search, a finite number above 0 "
        "or a vector of such numbers, got "
    )
    try:
        start = np.asarray(numbers)
    except (TypeError, ValueError) as error:
        raise ValueError(wrong + shown(numbers)) from error
    if start.dtype.kind not in "iuf":
        raise ValueError(wrong + shown(numbers))
    if start.ndim > 1 or not start.size:
        raise ValueError(f"{wrong}shape {start.shape}")
    start = start.astype(np.float64)
    outside = ~((start > 0) & (start < np.inf))
    if outside.any():
        raise ValueError(f"{wrong}{start[outside].ravel()[0]:g}")
    return start


def as_numbers(starts: dict[str, np.ndarray]) -> dict[str, Any]:
    """The numbers of a point as a maker takes them: Python's, and vectors of NumPy."""
    return {name: a if np.ndim(a) else float(a) for name, a in starts.items()}


def search(
    problem: Problem, results: Results, file: ResultFile, limits: Limits, progress: bool
) -> SearchResult:
    """Minimise the smoothed out-of-fold risk over the logarithms of all numbers.

        risk(theta) = sum_i weight_i loss(f_-fold(i)(x_i; start exp theta), y_i) / sum_i weight_i

    The model without a fold is that of `fit`, whose derivatives are those of the exact optimum for
    solvers that attach them (`implicit`), else of its steps. The loss is the logistic one for
    labels, the cross-entropy of the softmax for class numbers, and the squared error for real
    targets.

    The risk is worked out in float64. The steps are those of L-BFGS, projected onto the box, and
    shortened until the risk falls. Every evaluation is kept in the results, so that a search that
    was stopped repeats none of them.

    Raises:
        ValueError: the solver has no derivatives, or the risk at the start is not finite.
    """
    theta = np.zeros(sum(start.size for start in problem.starts.values()))
    bar = Bar(EVALUATIONS, "evaluations") if progress else None
    evaluate = _Evaluations(problem, results, file, limits, bar)
    try:
        end, risk, reason = _descend(evaluate, theta)
    finally:
        if bar:
            bar.close()
    last = problem.numbers(end)
    points = {name: np.stack([start, last[name]]) for name, start in problem.starts.items()}
    return SearchResult(points, (evaluate.first_risk, risk), evaluate.count, reason)


# Steps


class _OutOfEvaluations(Exception):
    """The limit of time or evaluations is reached; the argument says which."""


def _descend(evaluate: _Evaluations, start: np.ndarray) -> tuple[np.ndarray, float, str]:
    """The end of the steps of L-BFGS from `start`, its risk, and why they ended."""
    low, high = start - np.log(FACTOR), start + np.log(FACTOR)
    theta, (risk, slope) = start, evaluate(start)
    unit = 1 / np.linalg.norm(slope)  # the first step has length 1
    with jax.enable_x64(False):
        fresh = state = _lbfgs.init(jnp.zeros(start.shape))
    small_falls, steepest = 0, True
    try:
        while True:
            at_bound = ((theta <= low) & (slope > 0)) | ((theta >= high) & (slope < 0))
            free_slope = np.where(at_bound, 0, slope)
            if np.abs(free_slope).max() <= SLOPE * abs(risk):
                return theta, risk, "the derivatives are small"
            step, state = _direction(unit * free_slope, state, theta)
            step = np.where(at_bound, 0, step)
            if not np.isfinite(step).all() or free_slope @ step >= 0:
                # the curvature along the last step was not positive
                step, state = _direction(unit * free_slope, fresh, theta)
                steepest = True
            step *= min(1, MOVE / np.abs(step).max())
            for _ in range(TRIALS):
                trial = np.clip(theta + step, low, high)
                trial_risk, trial_slope = evaluate(trial)
                limit = risk + ARMIJO * (slope @ (trial - theta))
                # one that is not finite is rejected, too
                if trial_risk <= limit and np.isfinite(trial_slope).all():
                    break
                step = SHRINK * step
            else:
                if steepest:
                    return theta, risk, "no step lowers the risk"
                state, steepest = fresh, True
                continue
            steepest = False
            small_falls = small_falls + 1 if risk - trial_risk <= FALL * abs(risk) else 0
            theta, risk, slope = trial, trial_risk, trial_slope
            if small_falls == 3:
                return theta, risk, "the risk falls no more"
    except _OutOfEvaluations as limit:
        return theta, risk, str(limit)


def _direction(slope: np.ndarray, state: Any, theta: np.ndarray) -> tuple[np.ndarray, Any]:
    """The step of L-BFGS, and its next state; in float32, as only the risk needs more."""
    with jax.enable_x64(False):
        step, state = _lbfgs_update(slope.astype(np.float32), state, theta.astype(np.float32))
    return np.asarray(step, np.float64), state


class _Evaluations:
    """The risk and its derivatives with respect to the logarithms; those computed are kept."""

    def __init__(
        self,
        problem: Problem,
        results: Results,
        file: ResultFile,
        limits: Limits,
        bar: Bar | None,
    ) -> None:
        """Go on with the evaluations that the results hold."""
        self.problem, self.results, self.file = problem, results, file
        self.limits, self.bar = limits, bar
        # of each evaluation: the point, the risk, the derivatives; read from the file
        self.known = results.arrays[TRACE]
        self.count, self.first_risk = 0, np.nan
        self.risk_at: Callable | None = None  # compiled where it is needed

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The risk, and its derivatives (m,)."""
        if self.count == EVALUATIONS:
            raise _OutOfEvaluations(f"limit of {EVALUATIONS} evaluations")
        m = theta.shape[0]
        row = self.known[self.count]
        if not np.array_equal(row[:m], theta):
            if self.count and self.limits.stopped:
                raise _OutOfEvaluations("out of time")
            # in float32 a large C has no solution to this tolerance
            with jax.enable_x64(True):
                self.risk_at = self.risk_at or _risk_function(self.problem)
                risk, slope = self.risk_at(theta)
            self.limits.has_fit = True
            with self.results.lock:
                row[:] = np.concatenate([theta, [risk], slope])
            self.file.write()
        self.count += 1
        risk, slope = float(row[m]), row[m + 1 :].copy()
        if self.count == 1:
            self._check_first(risk, slope)
            self.first_risk = risk
        if self.bar:
            self.bar.show(self.count, f"smoothed risk {risk:.4g}")
        return risk, slope

    def _check_first(self, risk: float, slope: np.ndarray) -> None:
        """Raise where no search can begin."""
        names = ", ".join(self.problem.starts)
        if not np.isfinite(risk):
            raise ValueError(
                f"the smoothed risk at the start is {risk:g}: start from other numbers of {names}"
            )
        if not np.isfinite(slope).all():
            raise ValueError(
                f"the smoothed risk has no finite derivatives at the start in {names}: exact "
                "kernel machines have none with more than 2,048 free coefficients; start from "
                "other numbers, or use search='grid'"
            )
        if not slope.any():
            raise ValueError(
                f"the smoothed risk does not change with {names} at the start: the solver has no "
                "derivatives, or its solution does not depend on them; start from other numbers, "
                "or use search='grid'"
            )


TRACE = "evaluations"  # the array of the results that keeps all evaluations


def empty_trace(starts: dict[str, np.ndarray]) -> np.ndarray:
    """No evaluations yet."""
    size = sum(start.size for start in starts.values())
    return np.full((EVALUATIONS, 2 * size + 1), np.nan)


# The risk


def _risk_function(problem: Problem) -> Callable:
    """theta (m,) -> the risk and its derivatives (m,), by one compiled program.

    The maker is differentiated outside of the program, whose arguments are the numbers of the
    solver. So a maker may close over anything, and calls with solvers of the same structure share
    the program.
    """
    data, dtype = jax.tree.map(_wide, problem.data), jnp.float64
    fold_rows = [np.flatnonzero(problem.fold == fold) for fold in range(problem.folds)]
    index = np.full((problem.folds, max(map(len, fold_rows))), -1, np.int32)
    for i, rows in enumerate(fold_rows):
        index[i, : len(rows)] = rows
    weights = [np.where(problem.fold == f, 0.0, data.weight) for f in range(problem.folds)]
    total = np.sum(data.weight[problem.fold >= 0])
    data = jax.device_put(data)
    structure: list[Any] = []  # of the solver; that of the first call, as closures may be others
    fixed: list[Any] = []  # the leaves of the solver that depend on no number

    def moving_leaves(numbers: dict[str, Any]) -> list[Array]:
        """The leaves of the solver that depend on the numbers."""
        solver = as_argument(problem.maker(**numbers), dtype)
        leaves, tree = jax.tree.flatten(solver)
        flags = tuple(is_traced(leaf) for leaf in leaves)
        if not structure:
            structure.extend([tree, flags])
        fixed[:] = [leaf for leaf, flag in zip(leaves, flags, strict=True) if not flag]
        return [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

    def one_fold(solver: Any, flags: tuple[bool, ...], fold: int) -> Any:
        """The sum of the losses of one fold and its derivatives, on the host."""
        arrays = data, weights[fold], index[fold], problem.key
        options = {"flags": flags, "tol": problem.tol, "steps": problem.steps}
        return jax.tree.map(np.asarray, _loss_and_slopes(solver, *arrays, **options))

    def risk_at(theta: np.ndarray) -> tuple[float, np.ndarray]:
        numbers = problem.numbers(theta)
        try:
            # under vmap a maker that reads its numbers fails: it would have no derivatives
            moving, pull_back = jax.vjp(
                jax.vmap(moving_leaves),
                {name: jnp.asarray(a[None], dtype) for name, a in numbers.items()},
            )
            tree, flags = structure
            leaves = _merged([a[0] for a in moving], fixed, flags)
            solver = jax.tree.unflatten(tree, leaves)
            # one after the other: XLA's thread pool may hang where two programs factorise matrices
            sums = [one_fold(solver, flags, fold) for fold in range(problem.folds)]
            risk, slopes = jax.tree.map(lambda *a: sum(a) / total, *sums)
            (derivatives,) = pull_back([a[None] for a in slopes])
        except Exception as error:  # of the maker or of JAX, where there is no derivative
            raise ValueError(
                "search='gradient' needs a solver whose fit has derivatives in "
                f"{', '.join(numbers)}, which this one or its maker has not: use search='grid'; "
                f"{type(error).__name__}: {brief(error)}"
            ) from error
        parts = [np.ravel(a * np.asarray(derivatives[name][0])) for name, a in numbers.items()]
        return float(risk), np.concatenate(parts)

    return risk_at


def _wide(leaf: Any) -> np.ndarray:
    """An array on the host, in float64 if its numbers are floating-point ones."""
    array = np.asarray(leaf)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, np.floating) else array


def _merged(moving: list, fixed: list, flags: tuple[bool, ...]) -> Iterator[Any]:
    """All leaves in their order."""
    first, second = iter(moving), iter(fixed)
    return (next(first) if flag else next(second) for flag in flags)


@functools.partial(jax.jit, static_argnames=("flags", "tol", "steps"))
def _loss_and_slopes(
    solver: Any,
    data: Batch,
    weight: Array,
    places: Array,
    key: Array,
    *,
    flags: tuple[bool, ...],
    tol: float | None,
    steps: int | None,
) -> tuple[Array, list[Array]]:
    """The sum of smooth losses of a fold, and its derivatives in the leaves `flags` of the solver.

    Args:
        solver: as an argument of a compiled function.
        data: n rows.
        weight: (n,) of the rows without the fold.
        places: (m,) the rows of the fold, -1 where padded.
        key: of the fit.
        flags: which leaves of the solver change; structure.
        tol: the fit stops at `TOL`, or at this where it is less; structure.
        steps: of the fit; structure.
    """
    leaves, tree = jax.tree.flatten(solver)
    moving = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]
    fixed = [leaf for leaf, flag in zip(leaves, flags, strict=True) if not flag]

    def loss(moving: list[Array]) -> Array:
        one = unwrap_static(jax.tree.unflatten(tree, _merged(moving, fixed, flags)))
        fields = fields_of(one)
        most, limit = steps, tol
        if fields.hooks.tol is not None:
            limit = TOL if tol is None else min(tol, TOL)
            most = 1 if steps is None else steps  # an update runs until its tolerance is met
        rows = with_features(fields, data)
        run = fit(one, rows._replace(weight=weight), key, steps=most, tol=limit)
        test = take(rows, places)
        losses = _smooth_losses(decision_values(run.model, test), test.y, fields.targets)
        return jnp.sum(jnp.where(test.weight > 0, test.weight * losses, 0))  # 0: padding

    return jax.value_and_grad(loss)(moving)


def _smooth_losses(values: Array, y: Array, targets: Any) -> Array:
    """The smooth loss of each row, (m,) or (m, classes), (m,) -> (m,).

    The logistic loss is convex in the decision value and not flat on misclassified rows, as a
    smoothed zero-one loss is: far from the solution its derivative still has a direction.
    """
    if values.ndim > 1:
        return optax.softmax_cross_entropy_with_integer_labels(values, y.astype(jnp.int32))
    if targets == "real":
        return (values - y) ** 2
    return jax.nn.softplus(-y * values)
