"""Plots of runs, models and sweeps; the only file that imports matplotlib (the extra `plot`)."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .checks import check_choice, is_array
from .loops.sweeping import Table
from .models import Classifier, Expansion
from .types import Batch, Curve, Fit, Model, SparseRows

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes

try:
    import matplotlib.pyplot as plt
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'jaxsvm[plot]'") from error

__all__ = ["decision_region", "heatmap", "learning_curve"]


__dir__ = __all__.copy  # offers the public names only

VALUES = {
    "probe": "probe",
    "loss": "mean loss on the drawn rows",
    "residual": "residual",
    "support": "coefficients in use",
}
POINTS = 200  # points of each side of the grid of a decision region
# colours of the classes -1 and +1, from the ends of the colour map RdBu
BLUE, RED = "#2a5aa5", "#c03a2b"


def learning_curve(
    runs: Fit | Curve | Mapping[str, Fit | Curve],
    *,
    value: str | Callable | None = None,
    x: str = "step",
    log: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw learning curves: a line for each run.

    For a batch of runs it is the mean, with a band from minimum to maximum.

    Args:
        runs: a result of `fit`, or its `info`, or a dict of these by label. Runs under `vmap` have
            a leading axis for the batch, for example of seeds.
        value: "probe", "loss", "residual", "support"; or a function Curve -> one number for each
            row of the curve, such as `lambda info: info.probe["test"]` if the probe returns a tree.
            None: "probe" where all runs have one, else "loss".
        x: "step", updates made; or "evals", kernel evaluations since the call of `fit`, averaged
            over a batch.
        log: the axes with a logarithmic scale, "", "x", "y" or "xy".
        ax: a matplotlib axes; None: a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: `runs` holds something other than runs.
        ValueError: a run has no probe or made no step, or there is more than one number for a row
            of the curve.

    Example:
        >>> import jax, jaxsvm, matplotlib
        >>> matplotlib.use("agg")
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=20, every=5)
        >>> len(jaxsvm.plots.learning_curve(result, value="loss").lines)
        1
    """
    check_choice("x", x, ("step", "evals"))
    check_choice("log", log, ("", "x", "y", "xy"))
    by_label = runs if isinstance(runs, Mapping) else {"run": runs}
    infos = {key: run.info if isinstance(run, Fit) else run for key, run in by_label.items()}
    if value is None:
        lacks_probe = any(isinstance(info, Curve) and info.probe is None for info in infos.values())
        value = "loss" if lacks_probe else "probe"
    if not callable(value):
        check_choice("value", value, tuple(VALUES))
    lines = [(label, *_line(label, info, value, x)) for label, info in infos.items()]
    ax = _axes(ax, 5.6, 3.6)
    for label, positions, values in lines:
        marker = "." if len(positions) == 1 else None
        (line,) = ax.plot(positions, values.mean(0), label=label, linewidth=1.5, marker=marker)
        if values.shape[0] > 1:
            style: Any = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
            ax.fill_between(positions, values.min(0), values.max(0), **style)
    ax.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    ax.set_xlabel("steps" if x == "step" else "kernel evaluations")
    ax.set_ylabel("value" if callable(value) else VALUES[value])
    if by_label is runs:
        ax.legend(fontsize=8)
    return ax


def _axes(ax: object, width: float, height: float) -> Any:
    """The axes, or those of a new figure."""
    return plt.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def _line(label: str, info: object, value: str | Callable, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions (p,) and values (runs, p) of one line."""
    if not isinstance(info, Curve):
        raise TypeError(
            "learning_curve takes runs of jaxsvm.fit or a dict of them by label, got "
            f"{type(info).__name__}"
        )
    step = np.asarray(info.step)
    if step.ndim not in (1, 2):
        raise ValueError(
            f"{label} is a batch of shape {step.shape[:-1]}, a curve is drawn of one "
            "axis of runs: choose one"
        )
    if not step.shape[-1]:
        raise ValueError(f"{label} made no step, so there is no curve: run it with steps above 0")
    if step.shape[-1] == 1 and value == "loss":
        raise ValueError(
            f"{label} has one row, so there is no curve: an exact machine is solved in one step; "
            "draw its decision_region, or the heatmap of a sweep"
        )
    if value == "probe" and info.probe is None:
        raise ValueError(
            f"{label} has no probe: give fit one, such as probe=jaxsvm.error_on(test), or draw "
            "value='loss'"
        )
    values = value(info) if callable(value) else getattr(info, value)
    if not is_array(values) or values.shape != step.shape:
        what = f"shape {values.shape}" if is_array(values) else f"a {type(values).__name__}"
        raise ValueError(
            f"{label} must have one number for each look, shape {step.shape}, got {what}: pick "
            "one by a function, such as value=lambda info: info.probe[..., 0]"
        )
    # A run that met its tolerance repeats its last row while others of the batch continue.
    evals = np.cumsum(np.asarray(info.evals, float), -1)
    positions = np.atleast_2d(step).max(0) if x == "step" else np.atleast_2d(evals).mean(0)
    return positions, np.atleast_2d(np.asarray(values, float))


def decision_region(model: Model, data: Batch, *, support: bool = True, ax: Any = None) -> Axes:
    """Draw the decision values of a model of two columns, with the rows as points.

    Values are colours, with the line at 0 and dashed lines at -1 and +1. For regions of more than
    two classes see `sklearn.inspection.DecisionBoundaryDisplay`.

    Args:
        model: rows (n, 2) -> decision values (n,).
        data: n rows of two columns, with labels -1 and +1. Rows of weight 0 are left out.
        support: mark the support vectors, if the model is an `Expansion`, or a `Classifier` of one.
        ax: a matplotlib axes; None: a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: `model` is not a function, or `data` not a `Batch`.
        ValueError: the rows do not have two columns, or scores and labels do not match.

    Example:
        >>> import jax, jaxsvm, matplotlib
        >>> matplotlib.use("agg")
        >>> data = jaxsvm.dataset([[1.0, 0.0], [-1.0, 0.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(1.0)), data, jax.random.key(0),
        ...     steps=20)
        >>> [text.get_text() for text in jaxsvm.plots.decision_region(result.model,
        ...     data).get_legend().get_texts()]
        ['-1', '+1', 'support vectors']
    """
    if not callable(model):
        raise TypeError(
            f"model must be a function of rows, such as run.model, got {type(model).__name__}"
        )
    if not isinstance(data, Batch):
        raise TypeError(
            f"data must be a Batch, got {type(data).__name__}: make one with jaxsvm.dataset(x, y)"
        )
    if data.x.shape[-1] != 2:
        raise ValueError(
            f"a decision region is drawn of two columns, got {data.x.shape[-1]}: choose two, "
            "data._replace(x=data.x[:, :2]), and train on them"
        )
    rows = _dense(data.x)
    positive = np.asarray(data.weight) > 0
    rows, y = rows[positive], np.asarray(data.y)[positive]
    low, high = rows.min(0), rows.max(0)
    margin = np.where(high > low, 0.06 * (high - low), 1.0)  # for markers at the edge
    sides = np.linspace(low - margin, high + margin, POINTS).T
    grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    score = np.asarray(model(jnp.asarray(grid, data.x.dtype)), float)
    if score.shape != grid.shape[:1]:
        raise ValueError(
            f"the model must give one value a row, got shape {score.shape}: regions of several "
            "classes are for sklearn.inspection.DecisionBoundaryDisplay"
        )
    if not np.isin(y, (-1, 1)).all():
        raise ValueError("labels must be -1 and +1, such as dataset makes")
    names = model.classes if isinstance(model, Classifier) else ("-1", "+1")
    ax = _axes(ax, 5.2, 4.4)
    score = score.reshape(POINTS, POINTS)
    # above 1, so that colours vary up to the margins
    limit = max(1.5, float(np.quantile(np.abs(score), 0.95)))
    colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "bilinear"}
    ends = (*sides[0][[0, -1]], *sides[1][[0, -1]])
    ax.imshow(score, origin="lower", extent=ends, aspect="auto", alpha=0.6, **colours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about levels that the model does not reach
        style: Any = {"linestyles": ["--", "-", "--"], "linewidths": [0.9, 1.6, 0.9]}
        ax.contour(*sides, score, levels=[-1, 0, 1], colors="black", **style)
    edges = {"edgecolors": "white", "linewidths": 0.4, "zorder": 3}  # above the lines
    for label, colour, name in zip((-1, 1), (BLUE, RED), names, strict=True):
        ax.scatter(*rows[y == label].T, s=16, color=colour, label=str(name), **edges)
    expansion = model.inner if isinstance(model, Classifier) else model
    if support and isinstance(expansion, Expansion):
        vectors = _dense(expansion.x)[np.asarray(expansion.coef) != 0]
        rings = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
        ax.scatter(*vectors.T, s=52, label="support vectors", **rings)
    ax.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
    ax.legend(fontsize=8)
    return ax


def _dense(x: object) -> np.ndarray:
    return np.asarray(x.toarray() if isinstance(x, SparseRows) else x, float)


def heatmap(
    table: Table, *, ax: Any = None, label: str = "validation error", percent: bool = True
) -> Any:
    """Draw a sweep over two axes: a coloured cell with the value for each point.

    The least value is framed.

    Args:
        table: of `jaxsvm.sweep.table`, with two axes.
        ax: a matplotlib axes; None: a new figure.
        label: name of the values.
        percent: show values in per cent.

    Returns:
        The axes.

    Raises:
        TypeError: `table` is an array.
        ValueError: the table does not have two axes.

    Example:
        >>> import jaxsvm, matplotlib, numpy as np
        >>> matplotlib.use("agg")
        >>> table = jaxsvm.sweep.table(np.array([[0.1, 0.2]]), lam=np.array([1.0]),
        ...     sigma=np.array([1.0, 2.0]))
        >>> jaxsvm.plots.heatmap(table).get_xlabel()
        'sigma'
    """
    if is_array(table):
        raise TypeError(
            "heatmap takes a table, got an array: make one with "
            "jaxsvm.sweep.table(values, lam=..., sigma=...)"
        )
    if len(table.axes) != 2:
        raise ValueError(
            f"a heat map takes a table with two axes, got {len(table.axes)}: "
            f"{', '.join(table.axes)}"
        )
    values = (100 if percent else 1) * np.asarray(table.values, float)
    ax = _axes(ax, 1.6 + 0.7 * values.shape[1], 1.2 + 0.42 * values.shape[0])
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis_r")
    shade = image.norm(values)
    for (i, j), value in np.ndenumerate(values):
        text = f"{value:.1f}" if percent else f"{value:.3g}"
        colour = "white" if shade[i, j] > 0.5 else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    (row_name, row_values), (column_name, column_values) = table.axes.items()
    i, j = table.place
    ax.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="red", linewidth=2))
    ax.set_xticks(range(values.shape[1]), [f"{v:.3g}" for v in np.asarray(column_values)])
    ax.set_yticks(range(values.shape[0]), [f"{v:.3g}" for v in np.asarray(row_values)])
    ax.figure.colorbar(image, label=f"{label}{' in per cent' if percent else ''}")
    ax.set(xlabel=column_name, ylabel=row_name)
    return ax
