"""Pictures of runs and sweeps; the only file that imports matplotlib (the extra `plot`)."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from .loops.sweeps import Table


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
