"""`python -m benchmarks.speed.picture`: the picture at the top of the README.

Left: the exact kernel machine on two classes of points (two moons that overlap, made here), with its support vectors.
Right: validation errors of ASSET on Nystrom features over lambda and sigma, on Breast Cancer Wisconsin, one compiled program.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from PIL import Image

import jaxsvm
from jaxsvm import features, kernels, plots

from ..common import RESULTS

matplotlib.use("agg")


def moons(rows: int) -> jaxsvm.Batch:
    """Two half circles with noise."""
    random = np.random.default_rng(0)
    y = np.where(np.arange(rows) % 2, 1, -1)
    angle = np.pi * random.uniform(size=rows)
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * y[:, None] + np.where(y[:, None] > 0, [-0.5, -0.2], [0.5, 0.2])
    return jaxsvm.dataset(x + 0.22 * random.normal(size=(rows, 2)), y)


def errors() -> jaxsvm.sweep.table:
    """Validation errors over lambda and sigma."""
    key_split, key = jax.random.split(jax.random.key(0))
    train, validation = jaxsvm.data.split(key_split, jaxsvm.data.breast_cancer(), 3, 2)
    scale = jaxsvm.data.standardize(train.x)
    train, validation = (part._replace(x=scale(part.x)) for part in (train, validation))

    def error(lam, sigma):
        phi = features.nystrom(key, kernels.rbf(sigma), train.x, landmarks=64)
        solver = jaxsvm.on_features(phi, jaxsvm.asset(lam, average_from=2_000))
        return jaxsvm.error_on(validation)(jaxsvm.fit(solver, train, key, steps=4_000).model)

    axes = {"lam": jnp.logspace(-6, 0, 7), "sigma": jnp.logspace(-0.5, 2.5, 7)}
    return jaxsvm.sweep.table(jaxsvm.sweep(error, progress=False, **axes)(), **axes)


def main() -> None:
    """Draw both."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    data = moons(240)
    run = jaxsvm.fit(jaxsvm.decomposition(10.0, kernels.rbf(sigma=0.6)), data, jax.random.key(0), tol=1e-3)
    plots.decision_region(run.model, data, ax=left)
    left.set(xticks=[], yticks=[])
    left.set_title(f"exact kernel machine: {len(run.model.support().index)} support vectors", fontsize=10)
    plots.heatmap(errors(), ax=right)
    right.set_title("sweep: validation error in per cent", fontsize=10)
    figure.savefig(RESULTS / "picture.png", dpi=100)
    Image.open(RESULTS / "picture.png").quantize(96).save(RESULTS / "picture.png", optimize=True)


if __name__ == "__main__":
    main()
