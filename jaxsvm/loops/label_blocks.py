"""`fit_labels`: a machine for each of thousands of labels, some at a time."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..data.from_arrays import checked_batch
from ..data.target_columns import label_matrix
from ..flags import despite_flags
from ..models import Labels, Mapped, MultiLabel
from ..numerics import CentredRows, accum_dtype, is_traced
from ..objectives import decision_values
from ..recipe import check_positive, fields_of, unwrap_static
from ..types import Array, Batch, Solver
from ..wrappers import multi_output
from .checks import check_kernels, check_solver
from .fitting import fit
from .programs import as_argument
from .select_checks import check_folds, folds_of
from .sweeping import widest_program
from .threads import Limits, Progress, processors, run_jobs
from .thresholds import best_threshold, shifted
from .vmapped_fits import laid_out, steps_of, with_features

MEMORY = 2**31
WIDTH = 512  # labels of a block, at most


class LabelFit(NamedTuple):
    """The result of `fit_labels`."""

    classifier: MultiLabel  # the machines less the thresholds, with the names of the labels
    threshold: np.ndarray  # (k,) 0 without folds
    residual: float  # the largest of all runs; nan: one has values that are not finite
    tol: float  # that all runs were to meet; nan: none
    width: int  # labels of a block

    @property
    def model(self) -> Any:
        """The machines of all labels less the thresholds, rows -> (m, k) values."""
        return self.classifier.inner

    @property
    def converged(self) -> bool:
        """Whether all runs met the tolerance, those without a fold too."""
        return self.residual <= self.tol

    def predict(self, x: Any) -> Any:
        """Which labels hold, (m, d) -> (m, k) numbers 0 and 1."""
        return self.classifier.predict(x)


@despite_flags
def fit_labels(
    solver: Solver,
    x: Any,
    y: Any,
    key: Array,
    *,
    weight: Any = None,
    classes: Any = None,
    folds: Any = None,
    memory: float | None = None,
    tol: float | None = None,
    progress: bool = True,
) -> LabelFit:
    """Train a machine for each of thousands of labels, some at a time, so that memory is bounded.

        P_c(f) = lam/2 |f|^2 + sum_i w_i loss(f(x_i), y_ic) / sum_i w_i,    c = 0 .. k-1

    The problems are those of `multi_output`. Blocks of labels are calls of one program, and of a
    block only the machines are kept. So y may be a sparse matrix of many columns, of which a block
    at a time becomes dense. On a CPU a block runs on each processor. It has an equal share of the
    labels, at most 512, or as many as `memory` allows. The last digits of a machine depend on that.

    With `folds` each label has a threshold of its own, that of the largest F1 out of fold, as of
    `Selection.thresholded`. Each block then is fitted once more without each fold.

    Args:
        solver: of labels -1 and +1, such as `dual_descent(1.0, loss=losses.squared_hinge)`, or of
            real targets, which then are -1 and +1.
        x: (n, d) rows, an array or a sparse matrix of SciPy, as of `dataset`.
        y: (n, k) labels 0 and 1, or -1 and +1: an array or a data frame; or a sparse matrix of
            SciPy, 1 where a label holds.
        key: a key of `jax.random.key`, for the folds and for all runs.
        weight: (n,) weights of the rows, >= 0; None: all 1.
        classes: the k names of the labels; None: those of a data frame, else 0 .. k-1.
        folds: a number of folds, or the fold of each row, as of `select`; None: thresholds of 0.
        memory: bytes, > 0, of the rows and of the blocks that run at once, as the compiler counts
            them; None: 2 GiB. The machines of all labels come on top: of linear ones (d + 1) k
            numbers.
        tol: of the runs, as of `fit`; None: the solver's.
        progress: a bar on the standard error stream, if there is more than one block.

    Returns:
        `LabelFit`: `classifier`, a `models.MultiLabel` that can be saved, `predict`, `model`,
        `threshold`, `residual`, `converged` and the `width` of a block.

    Raises:
        ValueError: y that is not (n, k), with other values, or missing somewhere (nan); a single
            label that exceeds `memory`; rows or labels that the solver refuses; a solver of class
            numbers; inside of transformations.
        TypeError: key is not a key, solver not a solver.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> x = np.random.default_rng(0).normal(size=(90, 2))
        >>> found = jaxsvm.fit_labels(jaxsvm.dual_descent(1.0), x, x > 1, jax.random.key(0),
        ...     folds=3)
        >>> found.predict([[2.0, 0.0], [0.0, 2.0]]).tolist(), found.converged
        ([[1, 0], [0, 1]], True)

    Reference: R. Babbar, B. Schoelkopf, DiSMEC: distributed sparse machines for extreme multi-label
        classification, WSDM 2017 (blocks of labels; its weights are cut off, these are not).
    """
    if is_traced(solver, x, y, weight, key, tol):
        raise ValueError("fit_labels works outside of transformations: inside take multi_output")
    checks.key("key", key)
    check_solver(solver)
    memory = MEMORY if memory is None else memory
    check_positive(memory=memory)
    if tol is not None:
        check_positive(tol=tol)
    holds, names = label_matrix(y, classes)
    data = checked_batch(x, np.zeros(holds.shape[0]), weight, task="regression")
    check_kernels(solver, data)
    fold = None if folds is None else folds_of(key, data, None, folds, None)
    if fold is not None:
        check_folds(fold, data, None)
    job, threads = _plan(solver, data, holds, fold, memory, key, tol)
    n_labels = holds.shape[1]
    starts = [min(i, n_labels - job.width) for i in range(0, n_labels, job.width)]
    bar, limits = Progress(len(starts), 0, "blocks", progress and len(starts) > 1), Limits(None)

    def work(start: int) -> _Block:
        block = job.run(start, limits)
        bar.add(1)
        return block

    try:
        blocks = run_jobs(work, starts, threads, limits)
    finally:
        bar.close()
    fresh = [i * job.width - start for i, start in enumerate(starts)]  # the last overlaps
    join = lambda *parts: np.concatenate([a[i:] for i, a in zip(fresh, parts, strict=True)])
    leaves = [join(*a) for a in zip(*(block.leaves for block in blocks), strict=True)]
    threshold = join(*(block.threshold for block in blocks))
    model = _with_stacked(blocks[0].model, leaves)
    model = model if fold is None else shifted(model, -threshold)
    own = fields_of(solver).hooks.tol if tol is None else tol
    residual = float(np.max([block.residual for block in blocks]))  # nan, if one is
    named = Labels(names).classifier(model)
    return LabelFit(named, threshold, residual, np.nan if own is None else float(own), job.width)


class _Block(NamedTuple):
    """What is kept of a block of labels, on the host."""

    model: Any  # of the first block, for its structure and what all machines share
    leaves: list[np.ndarray]  # that have an entry for each label, (width, ...)
    threshold: np.ndarray  # (width,)
    residual: float


class _Job(NamedTuple):
    """The program of a block, and its arguments."""

    program: Any
    width: int
    machine: Any
    data: Batch
    holds: Any  # (n, k) booleans
    rows: Batch  # as they came
    validate: Any  # the solver's check of rows and labels
    fold: np.ndarray | None
    key: Array
    tol: Any

    def run(self, start: int, limits: Limits) -> _Block:
        """The machines and thresholds of the labels from `start` on."""
        columns = self.holds[:, start : start + self.width]
        holds = np.asarray(columns if isinstance(columns, np.ndarray) else columns.toarray())
        weight, dtype = np.asarray(self.data.weight), self.data.y.dtype
        signs = np.where(holds, dtype.type(1), dtype.type(-1))
        data = self.data._replace(y=jax.device_put(signs))
        if self.validate is not None:
            self.validate(self.rows._replace(y=data.y))
        model, residual, values = self._fit(data)
        threshold, residuals = np.zeros(self.width), [residual]
        if self.fold is not None:
            out_of_fold = np.zeros(holds.shape, dtype)
            for k in range(int(self.fold.max()) + 1):
                if limits.stopped:  # by Ctrl-C, or an error elsewhere
                    break
                held = self.fold == k
                without = np.where(held, 0, weight).astype(weight.dtype)
                part = data._replace(weight=jax.device_put(without))
                _, residual, values = self._fit(part)
                out_of_fold[held] = values[held]
                residuals.append(residual)
            used = self.fold >= 0
            weights = np.broadcast_to(weight[used], (self.width, used.sum()))
            columns = out_of_fold[used].T, holds[used].T, weights
            threshold = np.array(list(map(best_threshold, *columns)))
        stacked = _stacked(model)
        return _Block(model if start == 0 else None, stacked, threshold, float(np.max(residuals)))

    def _fit(self, data: Batch) -> tuple[Any, Any, Any]:
        """The model, the largest residual and the decision values at all rows."""
        results = self.program(self.machine, data, jax.random.clone(self.key), self.tol)
        return jax.tree.map(np.asarray, jax.block_until_ready(results))


def _plan(
    solver: Any, data: Batch, holds: Any, fold: Any, memory: Any, key: Array, tol: Any
) -> tuple[_Job, int]:
    """The program of as many labels as `memory` allows, and how many threads may run it."""
    fields, dtype = fields_of(solver), accum_dtype(data.x)
    rows, data = data, laid_out(fields, data)
    # models do not hold centred rows
    data = with_features(fields, rows if isinstance(data.x, CentredRows) else data)
    machine = lambda width: as_argument(multi_output(solver, outputs=width), dtype)

    def lower(width: int) -> Any:
        y: Any = jax.ShapeDtypeStruct((len(data.y), width), data.y.dtype)
        return _fit_block.lower(machine(width), data._replace(y=y), key, tol, fold is not None)

    most, labels = processors(), holds.shape[1]
    rounds = -(-labels // (WIDTH * most))  # in which each processor has a block
    width = -(-labels // (rounds * most))
    memory = checks.as_number("memory", memory)
    of_block = lambda width: 2 * len(data.y) * width * data.y.dtype.itemsize  # signs and values
    program, width, threads, _ = widest_program(lower, width, memory, most, of_block)
    check = fields_of(multi_output(solver, outputs=width)).hooks.validate
    return _Job(program, width, machine(width), data, holds, rows, check, fold, key, tol), threads


@functools.partial(jax.jit, static_argnames="with_values")
def _fit_block(solver: Any, data: Batch, key: Array, tol: Any, with_values: bool) -> tuple:
    """The model, the largest residual, and the decision values at all rows (n, width)."""
    solver = unwrap_static(solver)
    run = fit(solver, data, key, steps=steps_of(fields_of(solver), None, data), tol=tol)
    plain = data._replace(x=getattr(data.x, "plain", data.x))
    values = decision_values(run.model, plain) if with_values else None
    residual = run.info.residual[-1]
    finite = jnp.ones((), bool) if run.values_finite is None else run.values_finite
    return run.model, jnp.where(finite, residual, jnp.nan), values


def _stacked(model: Any) -> list[np.ndarray]:
    """The leaves of the machines, inside of feature maps, that have an entry for each label."""
    if isinstance(model, Mapped):
        return _stacked(model.inner)
    leaves = jax.tree.leaves(model.inner)
    return [a for a, flag in zip(leaves, model.stacked, strict=True) if flag]


def _with_stacked(model: Any, stacked: list[np.ndarray]) -> Any:
    """The model with these leaves in their place."""
    if isinstance(model, Mapped):
        return dataclasses.replace(model, inner=_with_stacked(model.inner, stacked))
    leaves, tree = jax.tree.flatten(model.inner)
    new = iter(stacked)
    leaves = [next(new) if flag else a for a, flag in zip(leaves, model.stacked, strict=True)]
    return dataclasses.replace(model, inner=jax.tree.unflatten(tree, leaves))
