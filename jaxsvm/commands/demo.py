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
from .output import result_file, show

LAMS, SIGMAS = jnp.logspace(-5, -1.5, 8), jnp.logspace(0, 2.1, 8)
LANDMARKS = 128
PASSES = 200
BATCH = 8
TOL = 1e-5  # of the exact machine: the certificate is then below 0.1 % at any point of the grid
PICTURE = "jaxsvm-sweep.png"
NEXT = """
next, on your own rows (csv, svmlight or npz):
  python -m jaxsvm train rows.csv --kernel rbf --features nystrom --hold-out 0.2 --model model.npz
  python -m jaxsvm sweep rows.csv --plot sweep.png
  python -m jaxsvm --help"""


def solver(lam: Scalar, sigma: Scalar, train: Batch, key: Array) -> Any:
    """ASSET on Nystrom features of the Gaussian kernel.

    The average leaves out the first half of the run.
    """
    phi = features.nystrom(key, kernels.rbf(sigma), train.x, landmarks=LANDMARKS)
    return jaxsvm.on_features(phi, jaxsvm.asset(lam, bias="none", average_from=steps(train) // 2))


def steps(train: Batch) -> int:
    """Updates that make `PASSES` passes."""
    return PASSES * -(-train.y.shape[0] // BATCH)


def trained(
    lam: Scalar, sigma: Scalar, train: Batch, validation: Batch, key: Array
) -> tuple[Model, Array]:
    """The model of one point of the grid, and its validation error."""
    key_map, key_fit = jax.random.split(key)
    solver_of_cell = solver(lam, sigma, train, key_map)
    model = jaxsvm.fit(
        solver_of_cell, train, key_fit, steps=steps(train), sampler=samplers.epochs(BATCH)
    ).model
    return model, jaxsvm.error_on(validation)(model)


def exact(lam: float, sigma: float, train: Batch) -> tuple[Any, Certificate]:
    """The kernel machine at one point of the grid by block decomposition, and its certificate."""
    C = jaxsvm.C_from_lam(lam, train.y.shape[0])
    machine = jaxsvm.decomposition(C, kernels.rbf(sigma), bias="none", tol=TOL)
    run = jaxsvm.fit(machine, train, jax.random.key(0))
    return run, jaxsvm.certificate(run.model, train, lam)


def main() -> None:
    """Choose lambda and sigma by validation in one sweep; solve that machine and certify it.

    The machine is solved exactly.
    """
    show(f"jaxsvm {jaxsvm.__version__} on JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    key_split, key = jax.random.split(jax.random.key(0))
    rows = jaxsvm.data.breast_cancer()
    train, validation, test = jaxsvm.data.split(key_split, rows, 3, 1, 1)
    scale = jaxsvm.data.standardize(train.x)
    train, validation, test = (part._replace(x=scale(part.x)) for part in (train, validation, test))
    sizes = ", ".join(
        f"{part.y.shape[0]} {name}"
        for part, name in ((train, "train"), (validation, "validation"), (test, "test"))
    )
    show(
        f"breast_cancer_wdbc: {rows.y.shape[0]} rows x {rows.x.shape[1]} columns, standardised; "
        f"{sizes}"
    )
    show(
        f"ASSET on {LANDMARKS} Nystrom features, {len(LAMS)} lambdas x {len(SIGMAS)} sigmas, "
        f"{PASSES} passes in batches of {BATCH}, one program"
    )
    sweep = jaxsvm.sweep(trained, lam=LAMS, sigma=SIGMAS)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        models, errors = jax.block_until_ready(sweep(train, validation, key))
        seconds.append(time.perf_counter() - began)

    table = jaxsvm.sweep.table(errors, lam=LAMS, sigma=SIGMAS)
    show(f"\nvalidation error\n{table}\n")
    lam, sigma = table.best["lam"], table.best["sigma"]
    approximate = jax.tree.map(lambda leaf: leaf[table.place], models)
    began = time.perf_counter()
    run, proof = exact(lam, sigma, train)
    seconds.append(time.perf_counter() - began)
    show(
        f"chosen       lambda = {lam:.1e}, sigma = {sigma:.2f}: the least error, among equals "
        "in the flattest neighbourhood"
    )
    show(f"test error   {float(jaxsvm.error_on(test)(approximate)):.2%} on {LANDMARKS} features")
    show(
        f"exact        test error {float(jaxsvm.error_on(test)(run.model)):.2%}, "
        f"{run.model.support().index.shape[0]} support vectors: the kernel machine at this lambda "
        f"and sigma, {seconds[2]:.2f} s with compilation"
    )
    show(
        f"certificate  objective {float(proof.primal):.6f}, optimum at least "
        f"{float(proof.dual):.6f}: within {100 * float(proof.gap / proof.dual):.1g} % of the "
        "optimum"
    )
    show(
        f"time         {seconds[1]:.2f} s for the {errors.size} runs, {seconds[0]:.2f} s with "
        "compilation"
    )
    show(draw(table))
    show(NEXT)


def draw(table: Any) -> str:
    """Save the sweep as a picture in the current folder; return a line on the result.

    Without matplotlib nothing is drawn, and the line says so.
    """
    try:
        import matplotlib
    except ImportError:
        return "heat map     not drawn: matplotlib is missing, pip install 'jaxsvm[plot]'"
    matplotlib.use("agg")
    from jaxsvm import plots

    with result_file(PICTURE, None) as temporary:
        plots.heatmap(table).figure.savefig(temporary, dpi=120)
    return f"heat map     {PICTURE}"
