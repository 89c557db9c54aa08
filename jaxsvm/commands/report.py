"""What is kept and said of a trained model: its support rows, its errors, its certificate."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import models

from ..multiclass import OneVsOne, OneVsRest
from ..objectives import misclassified
from ..types import Batch

LEAST = 2**27  # numbers of the largest array that a certificate made without being asked may take, 1 GiB


def lean(model: Any) -> Any:
    """A kernel model, or several on the same rows, without the rows that do not count."""
    if isinstance(model, OneVsRest | OneVsOne):
        return dataclasses.replace(model, inner=lean(model.inner))
    if not isinstance(model, models.Expansion) or model.x.ndim > 2:  # several budgets: each has points of its own
        return model
    kept = np.flatnonzero((np.atleast_2d(model.coef) != 0).any(axis=0))
    kept = kept if len(kept) else np.arange(1)
    return dataclasses.replace(model, x=model.x[kept], coef=model.coef[..., kept], index=model.index[kept])


def error(name: str, model: Any, data: Batch, classes: tuple) -> tuple[str, str]:
    """The error of a model in a line: wrong rows, or for real targets the root mean square."""
    score = np.asarray(jax.jit(lambda model, x: model(x))(model, data.x), np.float64)
    share = np.asarray(data.weight, np.float64) / float(jnp.sum(data.weight))
    if not classes:
        return f"{name} error", f"{np.sqrt(share @ (score - np.asarray(data.y, np.float64)) ** 2):.6g} (root mean square)"
    wrong = np.asarray(misclassified(jnp.asarray(score), data.y))
    return f"{name} error", f"{share @ wrong:.2%}"


def certified(args: Any, model: Any, train: Batch, lam: float, loss: Any) -> str:
    """How far from the optimum, at most, in words."""
    inner, n = model, train.y.shape[0]
    while isinstance(inner, models.Mapped):
        inner = inner.inner
    kernel = isinstance(inner, models.Expansion)  # its dual takes the kernel among all rows
    wide = n if kernel else inner.w.shape[-1]
    if n * wide > LEAST and not args.certificate:
        return "left out, as it takes long for so many rows (--certificate)"
    passes = int(np.clip(2e8 // (n * wide), 10, 500))  # of a second or so
    passes = 0 if kernel or inner.bias == "free" else passes
    proof = jaxsvm.certificate(model, train, lam, loss, passes=passes)
    where = " on these features" if args.features else ""
    return (
        f"objective {float(proof.primal):.6f}, optimum{where} at least {float(proof.dual):.6f}: "
        f"within {float(proof.gap / proof.primal):.2%}"
    )
