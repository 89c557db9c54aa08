"""The main job, `python -m jaxsvm` alone, on real data.

A kernel machine is chosen among many, solved exactly and certified.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp

import jaxsvm
from jaxsvm import features, kernels, samplers

from ..types import Array, Batch, Certificate, Model, Scalar
from . import report
from .output import line, show

LAMS, SIGMAS = jnp.logspace(-5, -1.5, 8), jnp.logspace(0, 2.1, 8)
LANDMARKS = 128
PASSES = 200
BATCH = 8
TOL = 1e-5  # of the exact machine: the certificate is then below 0.1 % at any point of the grid
NEXT = """
next, on your own rows (csv, svmlight or npz):
  python -m jaxsvm train rows.csv --kernel rbf --features nystrom --hold-out 0.2 --model model.npz
  python -m jaxsvm sweep rows.csv --plot sweep.png
  python -m jaxsvm --help"""


def trained(
    lam: Scalar, sigma: Scalar, train: Batch, validation: Batch, key: Array
) -> tuple[Model, Array]:
    """The model of one point of the grid, and its validation error.

    It is trained by ASSET on Nystrom features of the Gaussian kernel.
    """
    key_map, key_fit = jax.random.split(key)
    steps = PASSES * -(-len(train.y) // BATCH)
    phi = features.nystrom(key_map, kernels.rbf(sigma), train.x, landmarks=LANDMARKS)
    solver = jaxsvm.asset(lam, bias="none", average_from=steps // 2)
    solver, sampler = jaxsvm.on_features(phi, solver), samplers.epochs(BATCH)
    model = jaxsvm.fit(solver, train, key_fit, steps=steps, sampler=sampler).model
    return model, jaxsvm.error_on(validation)(model)


def exact(lam: float, sigma: float, train: Batch) -> tuple[Any, Certificate]:
    """The kernel machine at one point of the grid by block decomposition, and its certificate."""
    C = jaxsvm.C_from_lam(lam, len(train.y))
    machine = jaxsvm.decomposition(C, kernels.rbf(sigma), bias="none", tol=TOL)
    run = jaxsvm.fit(machine, train, jax.random.key(0))
    return run, jaxsvm.certificate(run.model, train, lam)


def run(args: Any, stream: Any) -> int:
    """Choose lambda and sigma by validation in one sweep; solve that machine and certify it.

    Args:
        args: no options are read.
        stream: not written to.

    Returns:
        The exit status.
    """
    show(f"jaxsvm {jaxsvm.__version__} on JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    key_split, key = jax.random.split(jax.random.key(0))
    rows = jaxsvm.data.breast_cancer()
    parts = jaxsvm.data.split(key_split, rows, 3, 1, 1)
    scale = jaxsvm.data.standardize(parts[0].x)
    train, validation, test = (part._replace(x=scale(part.x)) for part in parts)
    show(
        f"breast_cancer_wdbc: {len(rows.y)} rows x {rows.x.shape[1]} columns, standardised; "
        f"{len(train.y)} train, {len(validation.y)} validation, {len(test.y)} test\n"
        f"ASSET on {LANDMARKS} Nystrom features, {len(LAMS)} lambdas x {len(SIGMAS)} sigmas, "
        f"{PASSES} passes in batches of {BATCH}, one program"
    )
    sweep = jaxsvm.sweep(trained, lam=LAMS, sigma=SIGMAS)
    times = [time.perf_counter()]
    for _ in range(2):
        models, errors = jax.block_until_ready(sweep(train, validation, key))
        times.append(time.perf_counter())
    table = jaxsvm.sweep.table(errors, lam=LAMS, sigma=SIGMAS)
    show(f"\nvalidation error\n{table}\n")
    lam, sigma = table.best["lam"], table.best["sigma"]
    approximate = jax.tree.map(lambda leaf: leaf[table.place], models)
    run, proof = exact(lam, sigma, train)
    wrong = [report.error(model, test, (-1, 1)) for model in (approximate, run.model)]
    how = "the least error, among equals in the flattest neighbourhood"
    line("chosen", f"lambda = {lam:.1e}, sigma = {sigma:.2f}: {how}")
    line("test error", f"{wrong[0]} on {LANDMARKS} features")
    points = f"{len(run.model.support().index)} support vectors"
    line("exact", f"test error {wrong[1]}, {points}: the kernel machine at this lambda and sigma")
    bounds = f"objective {float(proof.primal):.6f}, optimum at least {float(proof.dual):.6f}"
    gap = 100 * float(proof.gap / proof.dual)
    line("certificate", f"{bounds}: within {gap:.1g} % of the optimum")
    first, again = times[1] - times[0], times[2] - times[1]
    line("time", f"{again:.2f} s for the {errors.size} runs, {first:.2f} s with compilation")
    try:
        report.heat_map("jaxsvm-sweep.png", None, table)
    except ImportError as error:
        line("heat map", f"not drawn: {error}")
    show(NEXT)
    return 0
