"""The report of a trained model: support vectors, errors, certificate."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import models

from ..objectives import misclassified
from ..types import Batch, Certificate
from ..wrappers import OneVsOne, OneVsRest
from . import rows as reading

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
    return dataclasses.replace(
        model,
        x=jax.tree.map(lambda a: jax.device_put(np.asarray(a)[support]), model.x),
        coef=jax.device_put(np.asarray(model.coef)[..., support]),
        index=jax.device_put(np.asarray(model.index)[support]),
    )


def error(name: str, model: Any, data: Batch, classes: tuple) -> tuple[str, str]:
    """One line on the error of a model.

    The error is the share of wrong rows, or the root mean square for real targets.
    """
    share = np.asarray(data.weight, np.float64)
    share = share / share.sum()
    if not classes:
        score = np.asarray(reading.call(model, data.x), np.float64)
        return (
            f"{name} error",
            f"{np.sqrt(share @ (score - np.asarray(data.y, np.float64)) ** 2):.6g} (root mean "
            "square)",
        )
    return f"{name} error", f"{share @ np.asarray(_wrong(model, data)):.2%}"


@jax.jit
def _wrong(model: Any, data: Batch) -> Any:
    return misclassified(model(data.x), data.y)


def certified(args: Any, model: Any, train: Batch, lam: float, loss: Any) -> str:
    """One line on the bound of the suboptimality."""
    inner, n = model, train.y.shape[0]
    while isinstance(inner, models.Mapped):
        inner = inner.inner
    kernel = isinstance(inner, models.Expansion)  # its dual needs the kernel matrix of all rows
    columns = n if kernel else inner.w.shape[-1]
    if n * columns > MAX_SIZE and not args.certificate:
        return "left out, as it takes long for so many rows (--certificate)"
    passes = int(np.clip(2e8 // (n * columns), 10, 500))  # about a second
    passes = 0 if kernel or inner.bias == "free" else passes
    certificate = jaxsvm.certificate(model, train, lam, loss, passes=passes)
    return within(certificate, " on these features" if args.features else "")


def within(certificate: Certificate, where: str = "") -> str:
    """One line on an objective and the bound of its optimum."""
    return (
        f"objective {float(certificate.primal):.6f}, optimum{where} at least "
        f"{float(certificate.dual):.6f}: within {float(certificate.gap / certificate.primal):.2%}"
    )
