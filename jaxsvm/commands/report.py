"""The report of a trained model: support vectors, errors, certificate."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import losses, models

from ..types import Batch, Certificate
from ..wrappers import OneVsOne, OneVsRest
from .output import line, result_file

MAX_SIZE = 2**27  # largest array of a certificate that was not requested: 1 GiB


def compact(model: Any) -> Any:
    """A kernel model, or several on the same rows, without the rows of coefficient 0."""
    if isinstance(model, OneVsRest | OneVsOne):
        return dataclasses.replace(model, inner=compact(model.inner))
    # each of several models has its own points
    if not isinstance(model, models.Expansion) or model.x.ndim > 2:
        return model
    support = models.support_index(model)
    support = support if len(support) else np.arange(1)
    some = lambda a: jax.device_put(np.asarray(a)[support])
    coef = jax.device_put(np.asarray(model.coef)[..., support])
    x, index = jax.tree.map(some, model.x), some(model.index)
    return dataclasses.replace(model, x=x, coef=coef, index=index)


def errors(model: Any, parts: list[Batch], classes: tuple) -> dict[str, str]:
    """The errors on the training rows and on others, by name; prints a line for each."""
    errors_by_part = {}
    for name, part in zip(("train error", "test error"), parts, strict=False):
        errors_by_part[name] = error(model, part, classes)
        line(name, errors_by_part[name])
    return errors_by_part


def check_probability(data: Batch, classes: tuple) -> None:
    """Raise ValueError for rows of which no fold could be left out, or real targets."""
    if not classes:
        raise ValueError("--probability is for classes, and the targets are real")
    place = np.maximum(np.asarray(data.y)[np.asarray(data.weight) > 0], 0).astype(int)
    count = np.bincount(place, minlength=len(classes))
    if count.min() < 2:
        raise ValueError(
            f"--probability needs two rows of each class, and {classes[count.argmin()]} has one: "
            "leave the option out, or add rows"
        )


def error(model: Any, data: Batch, classes: tuple) -> str:
    """The share of wrong rows, or the root mean square for real targets."""
    if classes:
        return f"{float(_wrong(model, data)):.2%}"
    return f"{float(_half_square(model, data)) ** 0.5 * 2**0.5:.6g} (root mean square)"


@jax.jit
def _wrong(model: Any, data: Batch) -> Any:
    return jaxsvm.error_on(data)(model)


@jax.jit
def _half_square(model: Any, data: Batch) -> Any:
    return jaxsvm.risk_on(data, losses.squared)(model)


def certified(args: Any, model: Any, train: Batch, lam: float, loss: Any) -> str:
    """One line on the bound of the suboptimality."""
    inner, n = model, len(train.y)
    while isinstance(inner, models.Mapped):
        inner = inner.inner
    kernel = isinstance(inner, models.Expansion)  # its dual needs the kernel matrix of all rows
    columns = n if kernel else inner.w.shape[-1]
    if n * columns > MAX_SIZE and not args.certificate:
        return "left out, as it takes long for so many rows (--certificate)"
    passes = int(np.clip(2e8 // (n * columns), 10, 500))  # about a second
    passes = 0 if kernel or inner.bias == "free" or args.processes else passes
    certificate = jaxsvm.certificate(model, train, lam, loss, passes=passes)
    return within(certificate, " on these features" if args.features else "")


def within(certificate: Certificate, where: str = "") -> str:
    """One line on an objective and the bound of its optimum."""
    return (
        f"objective {float(certificate.primal):.6f}, optimum{where} at least "
        f"{float(certificate.dual):.6f}: within {float(certificate.gap / certificate.primal):.2%}"
    )


def matplotlib_plots() -> Any:
    """The module `plots`, with a backend that opens no window.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("matplotlib is missing: pip install 'jaxsvm[plot]'") from error
    matplotlib.use("agg")
    from jaxsvm import plots

    return plots


def heat_map(path: str, stream: Any, table: Any, **options: Any) -> None:
    """Write a picture of a table; `options` are those of `plots.heatmap`."""
    figure = matplotlib_plots().heatmap(table, **options).figure
    with result_file(path, stream, ".png") as temporary:
        figure.savefig(temporary, dpi=120)
    line("heat map", path)
