"""The demonstration of `python -m jaxsvm`: a kernel SVM is selected on a grid, tested and certified."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

import jaxsvm
from jaxsvm import features, kernels, samplers

from ..files import atomic_path

LAMS, SIGMAS = jnp.logspace(-5, -1.5, 8), jnp.logspace(0, 2.1, 8)
LANDMARKS = 128
PASSES = 200
BATCH = 8
PICTURE = "jaxsvm-sweep.png"


def solver(lam, sigma, train, key):
    """ASSET on Nystrom features of the Gaussian kernel; the average is over the second half of the run."""
    phi = features.nystrom(key, kernels.rbf(sigma), train.x, landmarks=LANDMARKS)
    return jaxsvm.on_features(phi, jaxsvm.asset(lam, bias="none", average_from=steps(train) // 2))


def steps(train):
    """Updates that make `PASSES` passes."""
    return PASSES * -(-train.y.shape[0] // BATCH)


def trained(lam, sigma, train, validation, key):
    """The model of one point of the grid, and its validation error."""
    key_map, key_fit = jax.random.split(key)
    asset = solver(lam, sigma, train, key_map)
    model = jaxsvm.fit(asset, train, key_fit, steps=steps(train), sampler=samplers.epochs(BATCH)).model
    return model, jaxsvm.error_on(validation)(model)


def main() -> None:
    """Sweep lambda and sigma, select by validation error, report test error and certificate, draw the sweep."""
    print(f"jaxsvm {jaxsvm.__version__} on JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    key_split, key = jax.random.split(jax.random.key(0))
    rows = jaxsvm.data.breast_cancer()
    train, validation, test = jaxsvm.data.split(key_split, rows, 3, 1, 1)
    scale = jaxsvm.data.standardize(train.x)
    train, validation, test = (part._replace(x=scale(part.x)) for part in (train, validation, test))
    sizes = ", ".join(
        f"{part.y.shape[0]} {name}" for part, name in ((train, "train"), (validation, "validation"), (test, "test"))
    )
    print(f"breast_cancer_wdbc: {rows.y.shape[0]} rows x {rows.x.shape[1]} columns, standardised; {sizes}")
    print(
        f"ASSET on {LANDMARKS} Nystrom features, {len(LAMS)} lambdas x {len(SIGMAS)} sigmas, {PASSES} passes in batches of "
        f"{BATCH}, one program"
    )
    sweep = jaxsvm.sweep(trained, lam=LAMS, sigma=SIGMAS)
    seconds = []
    for _ in range(2):
        start_time = time.perf_counter()
        models, errors = jax.block_until_ready(sweep(train, validation, key))
        seconds.append(time.perf_counter() - start_time)

    table = jaxsvm.sweep.table(errors, lam=LAMS, sigma=SIGMAS)
    print(f"\nvalidation error\n{table}\n")
    model = jax.tree.map(lambda leaf: leaf[table.place], models)
    lam = table.best["lam"]
    certificate = jaxsvm.certificate(model, train, lam, passes=500)
    print(f"chosen       lambda = {lam:.1e}, sigma = {table.best['sigma']:.2f}")
    print(f"test error   {float(jaxsvm.error_on(test)(model)):.2%}")
    print(
        f"certificate  objective {float(certificate.primal):.6f}, optimum at least {float(certificate.dual):.6f}: "
        f"within {float(certificate.gap / certificate.dual):.2%} of the optimum on these features"
    )
    print(f"time         {seconds[1]:.2f} s for the {errors.size} runs, {seconds[0]:.2f} s with compilation")
    print(draw(table))


def draw(table) -> str:
    """Draw the sweep to a file in the current folder, if matplotlib is installed; returns a line of the report."""
    try:
        import matplotlib
    except ImportError:
        return "heat map     not drawn: matplotlib is missing, pip install 'jaxsvm[plot]'"
    matplotlib.use("agg")
    from jaxsvm import plots

    with atomic_path(PICTURE) as temporary:
        plots.heatmap(table).figure.savefig(temporary, dpi=120)
    return f"heat map     {PICTURE}"
