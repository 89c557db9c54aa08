"""Pictures of runs, models and sweeps; the only file that imports matplotlib (the extra `plot`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from .loops.sweep import Table
from .models import Classifier, Expansion
from .multiclass import OneVsOne, OneVsRest
from .recipe import check_choice
from .types import Batch, Curve, Fit, Model, SparseRows

__all__ = ["decision_region", "heatmap", "learning_curve"]


def __dir__():
    """Offer the public names only."""
    return __all__


VALUES = {"probe": "probe", "loss": "mean loss on the drawn rows", "residual": "residual", "support": "coefficients in use"}
POINTS = 200  # a side of the grid that a decision region is worked out on: finer than the eye sees in a figure of 5 inches
BLUE, RED = "#2a5aa5", "#c03a2b"  # the ends of the colour map RdBu, for points of class -1 and +1


def learning_curve(
    runs: Fit | Curve | Mapping[str, Fit | Curve],
    *,
    value: str | Callable = "probe",
    x: str = "step",
    log: str = "",
    ax: Any = None,
) -> Any:
    """Draw how runs went: a line for each run; for a batch of runs the mean of the batch, and a band from least to largest.

    Args:
        runs: what `fit` returned, or its `info`, or a dict of such by label. Runs made under `vmap` have one leading axis
            more, which is the batch, for example seeds.
        value: "probe", "loss", "residual", "support"; or a function Curve -> one number for each look, such as
            `lambda info: info.probe["test"]` where the probe returns a tree.
        x: "step", updates made; or "evals", kernel evaluations spent since the call of `fit`, the mean of a batch.
        log: the axes with a logarithmic scale, "", "x", "y" or "xy".
        ax: a matplotlib axes; None: a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: if something else than a run is given.
        ValueError: if a run has no probe or made no step, or if there is more than one number for a look.

    Example:
        >>> import jax, jaxsvm, matplotlib
        >>> matplotlib.use("agg")
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=20, every=5)
        >>> len(learning_curve(run, value="loss").lines)
        1
    """
    check_choice("x", x, ("step", "evals"))
    check_choice("log", log, ("", "x", "y", "xy"))
    if not callable(value):
        check_choice("value", value, tuple(VALUES))
    several = isinstance(runs, Mapping)
    lines = [(label, *_line(label, run, value, x)) for label, run in (runs.items() if several else [("run", runs)])]
    if ax is None:
        ax = plt.subplots(figsize=(5.6, 3.6), layout="constrained")[1]
    for label, across, values in lines:
        (line,) = ax.plot(across, values.mean(0), label=label, linewidth=1.5, marker="." if len(across) == 1 else None)
        if values.shape[0] > 1:
            ax.fill_between(across, values.min(0), values.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    ax.set_xlabel("steps" if x == "step" else "kernel evaluations")
    ax.set_ylabel("value" if callable(value) else VALUES[value])
    if several:
        ax.legend(fontsize=8)
    return ax


def _line(label: str, run: Any, value: str | Callable, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Places (p,) and values (runs, p) of one line."""
    info = run.info if isinstance(run, Fit) else run
    if not isinstance(info, Curve):
        raise TypeError(f"learning_curve takes runs of jaxsvm.fit or a dict of them by label, got {type(run).__name__}")
    step = np.asarray(info.step)
    if step.ndim not in (1, 2):
        raise ValueError(f"{label} is a batch of shape {step.shape[:-1]}, a curve is drawn of one axis of runs: choose one")
    if not step.shape[-1]:
        raise ValueError(f"{label} made no step, so there is no curve: run it with steps above 0")
    if value == "probe" and info.probe is None:
        raise ValueError(f"{label} has no probe: give fit one, such as probe=jaxsvm.error_on(test), or draw value='loss'")
    found = value(info) if callable(value) else getattr(info, value)
    if getattr(found, "shape", None) != step.shape:
        what = f"shape {found.shape}" if hasattr(found, "shape") else f"a {type(found).__name__}"
        raise ValueError(
            f"{label} must have one number for each look, shape {step.shape}, got {what}: pick one by a function, such as "
            "value=lambda info: info.probe[..., 0]"
        )
    # A run that met its tolerance repeats its last row while others of the batch go on.
    across = np.atleast_2d(step).max(0) if x == "step" else np.atleast_2d(np.cumsum(np.asarray(info.evals, float), -1)).mean(0)
    return across, np.atleast_2d(np.asarray(found, float))


def decision_region(model: Model, data: Batch, *, support: bool = True, ax: Any = None) -> Any:
    """Draw a model of two columns over its plane, with the rows as points.

    Two classes: decision values as colours, the line at 0, dashed lines at -1 and +1. More: a colour for the class with
    the largest value.

    Args:
        model: rows (n, 2) -> decision values, (n,) for two classes or (n, k) for k.
        data: n rows of two columns, with labels -1 and +1 or class numbers 0 .. k-1. Rows of weight 0 are left out.
        support: ring the support vectors, where the model is an `Expansion`, or a `Classifier`, `OneVsRest` or `OneVsOne`
            of such.
        ax: a matplotlib axes; None: a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: if `model` is no function or `data` no `Batch`.
        ValueError: if the rows do not have two columns, or if scores and labels do not go together.

    Example:
        >>> import jax, jaxsvm, matplotlib
        >>> matplotlib.use("agg")
        >>> data = jaxsvm.dataset([[1.0, 0.0], [-1.0, 0.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(1.0)), data, jax.random.key(0), steps=20)
        >>> [text.get_text() for text in decision_region(run.model, data).get_legend().get_texts()]
        ['-1', '+1', 'support vectors']
    """
    if not callable(model):
        raise TypeError(f"model must be a function of rows, such as run.model, got {type(model).__name__}")
    if not isinstance(data, Batch):
        raise TypeError(f"data must be a Batch, got {type(data).__name__}: make one with jaxsvm.dataset(x, y)")
    if data.x.shape[-1] != 2:
        raise ValueError(
            f"a decision region is drawn of two columns, got {data.x.shape[-1]}: choose two, data._replace(x=data.x[:, :2]), "
            "and train on them"
        )
    rows = _dense(data.x)
    there = np.asarray(data.weight) > 0
    rows, y = rows[there], np.asarray(data.y)[there]
    low, high = rows.min(0), rows.max(0)
    margin = np.where(high > low, 0.06 * (high - low), 1.0)  # room for the marks at the edge
    sides = np.linspace(low - margin, high + margin, POINTS).T
    grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    score = np.asarray(model(jnp.asarray(grid, data.x.dtype)), float)
    if score.shape[:1] != grid.shape[:1] or score.ndim > 2 or score.shape[1:] == (1,):
        raise ValueError(f"the model must give one value a row or one for each of two or more classes, got shape {score.shape}")
    two = score.ndim == 1
    labels = (-1, 1) if two else range(score.shape[1])
    if not np.isin(y, labels).all():
        wanted = "-1 and +1 where the model gives one value" if two else f"0 .. {labels[-1]} where it gives {len(labels)}"
        raise ValueError(f"labels must be {wanted} a row: number them with jaxsvm.data.encode(y)")
    names = model.classes if isinstance(model, Classifier) else ("-1", "+1") if two else labels
    if ax is None:
        ax = plt.subplots(figsize=(5.2, 4.4), layout="constrained")[1]
    colours = (_two if two else _more)(ax, sides, score)
    for label, colour, name in zip(labels, colours, names, strict=True):
        ax.scatter(*rows[y == label].T, s=16, color=colour, edgecolors="white", linewidths=0.4, label=str(name), zorder=3)
    held = _support(model) if support else None
    if held is not None:
        ax.scatter(*held.T, s=52, facecolors="none", edgecolors="black", linewidths=0.8, label="support vectors", zorder=4)
    ax.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
    ax.legend(fontsize=8)
    return ax


def _dense(x: Any) -> np.ndarray:
    return np.asarray(x.toarray() if isinstance(x, SparseRows) else x, float)


def _support(model: Any) -> np.ndarray | None:
    """The rows (m, 2) with a coefficient, of any class or pair; None where the model is no expansion over rows."""
    for wrapper in (Classifier, OneVsRest | OneVsOne):
        model = model.inner if isinstance(model, wrapper) else model
    if not isinstance(model, Expansion):
        return None
    x, used = _dense(model.x), np.asarray(model.coef) != 0
    return x[used] if x.shape[:-1] == used.shape else x[used.any(0)]  # rows held once for all of them


def _two(ax: Any, sides: np.ndarray, score: np.ndarray) -> tuple:
    """Fill the plane by decision values and draw the lines; the colours of the points of -1 and +1."""
    score = score.reshape(POINTS, POINTS)
    limit = max(1.5, float(np.quantile(np.abs(score), 0.95)))  # above 1, so that colours change up to the margins
    _fill(ax, sides, score, cmap="RdBu_r", vmin=-limit, vmax=limit, alpha=0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a level that the model never reaches has no line
        ax.contour(*sides, score, levels=[-1, 0, 1], colors="black", linestyles=["--", "-", "--"], linewidths=[0.9, 1.6, 0.9])
    return BLUE, RED


def _more(ax: Any, sides: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Fill the plane by classes and draw the lines between them; the colours of the points of each class."""
    k = score.shape[-1]
    colours = plt.get_cmap("tab10")(range(k)) if k <= 10 else plt.get_cmap("turbo", k)(range(k))
    score = score.reshape(POINTS, POINTS, k)
    _fill(ax, sides, colours[np.argmax(score, -1)], interpolation="nearest", alpha=0.35)
    for label in range(k):
        lead = score[..., label] - np.max(np.delete(score, label, -1), -1)
        if lead.min() < 0 < lead.max():
            ax.contour(*sides, lead, levels=[0], colors="black", linewidths=0.7)
    return colours


def _fill(ax: Any, sides: np.ndarray, image: np.ndarray, interpolation: str = "bilinear", **how: Any) -> None:
    ends = (*sides[0][[0, -1]], *sides[1][[0, -1]])
    ax.imshow(image, origin="lower", extent=ends, aspect="auto", interpolation=interpolation, **how)


def heatmap(table: Table, *, ax: Any = None, label: str = "validation error", percent: bool = True) -> Any:
    """Draw a sweep over two axes: a coloured cell for each point with its value written in, the least one framed.

    Args:
        table: of `jaxsvm.sweep.table`, with two axes.
        ax: a matplotlib axes; None: a new figure.
        label: what the values are.
        percent: write values as per cent.

    Returns:
        The axes.

    Raises:
        ValueError: if the table does not have two axes.

    Example:
        >>> import jaxsvm, matplotlib
        >>> matplotlib.use("agg")
        >>> table = jaxsvm.sweep.table(np.array([[0.1, 0.2]]), lam=np.array([1.0]), sigma=np.array([1.0, 2.0]))
        >>> heatmap(table).get_xlabel()
        'sigma'
    """
    if len(table.axes) != 2:
        raise ValueError(f"a heat map takes a table with two axes, got {len(table.axes)}: {', '.join(table.axes)}")
    values = np.asarray(table.values, float)
    if ax is None:
        ax = plt.subplots(figsize=(1.6 + 0.7 * values.shape[1], 1.2 + 0.42 * values.shape[0]), layout="constrained")[1]
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis_r")
    shade = image.norm(values)
    for (i, j), value in np.ndenumerate(values):
        text = f"{100 * value:.1f}" if percent else f"{value:.3g}"
        ax.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if shade[i, j] > 0.5 else "black")
    (rows, down), (columns, across) = table.axes.items()
    i, j = table.place
    ax.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="red", linewidth=2))
    ax.set_xticks(range(values.shape[1]), [f"{v:.2g}" for v in np.asarray(across)], rotation=45)
    ax.set_yticks(range(values.shape[0]), [f"{v:.1e}" for v in np.asarray(down)])
    ax.set_xlabel(columns)
    ax.set_ylabel(rows)
    ax.set_title(f"{label}{' in per cent' if percent else ''}", fontsize=10)
    return ax
