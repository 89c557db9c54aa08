"""The loads that an accelerator is for, timed on the device that JAX has; a CPU runs a small version of each.

    python -m benchmarks.speed.device            benchmarks/results/device_NAME.csv, NAME from the device
    python -m benchmarks.speed.device --small    few rows made here, nothing is written

exact      decomposition on MNIST, 8 against the rest, all 60,000 rows: seconds to the tolerance, with compilation and without
sweep      8 lambdas x 8 sigmas of Pegasos on 1,024 Fourier features of adult, one program
minibatch  Pegasos on minibatches of 4,096 rows of covtype: rows a second
budget     BSGD with 500 points on adult: steps a second
nystrom    2,048 Nystrom features of all rows of covtype: rows a second
path       TorchKM's table 2: exact machines of 50 C x 10 folds by `select` on a mixture of Gaussians, 10,000 x 1,000;
           for its 50 lambda from 1e3 to 1e-3, C = 1/(2 n lambda), and for 50 C from 1e-3 to 1e3, which take longer.
           An L40s took 37.7 s by TorchKM 4.3.2, 279 s by ThunderSVM; scikit-learn took 14,323 s
landmarks  TorchKM's table 4: 50 lambda x 10 folds on Nystrom features of a9a, ijcnn1 and covtype.
           TorchKM took 17.9, 27.4 and 31.1 s on that card

TorchKM's figures are from its paper, arXiv 2606.06742. The text that was read does not name the rank of table 4. A script in its
repository has 2,000 landmarks of rank 300, of covtype 30, the hinge, and 80 % of the rows of covtype. Here the rank is 500, with
`newton` and the squared hinge on all rows.

All loads are sized for ten minutes together. `path` and `landmarks` try a part first: one fold of ten, or a tenth of the rows.
Where the whole would take longer than their limit, `size` names what was run.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import features, kernels, samplers

from .. import common

KEY = jax.random.key(0)
COLUMNS = {"mnist": 784, "adult": 123, "covtype": 54, "ijcnn1": 22}
ROWS = {"mnist": 60_000, "adult": 32_561, "covtype": 581_012, "ijcnn1": 49_990}
LAMBDAS, CS = np.logspace(3, -3, 50), np.logspace(-3, 3, 50)
PATH_LIMIT, LANDMARKS_LIMIT = 90.0, 40.0  # seconds of a search


def rows(name: str, small: bool) -> jaxsvm.Batch:
    """The rows of a data set; of the small version normal rows of as many columns."""
    if not small:
        return jaxsvm.dataset(*common.rows_of("a9a" if name == "adult" else name, ROWS[name]))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, COLUMNS[name])).astype(np.float32) / COLUMNS[name] ** 0.5
    return jaxsvm.dataset(x, np.where(x[:, 0] + 0.02 * rng.normal(size=512) > 0, 1, -1))


def twice(run: Callable) -> tuple[object, float, float]:
    """What `run` returns, its seconds with compilation, and those of a second call."""
    found, first = common.timed(run)
    return found, first, common.timed(run)[1]


def exact(small: bool) -> dict:
    """The exact kernel machine."""
    data = rows("mnist", small)
    solver = jaxsvm.decomposition(10.0, kernels.rbf(gamma=0.02), working_set=64 if small else 1024)
    run, first, again = twice(lambda: jaxsvm.fit(solver, data, KEY))
    return {"first_s": first, "again_s": again, "figure": float(run.info.residual[-1]), "unit": "residual"}


def sweep(small: bool) -> dict:
    """64 machines on features, one program."""
    data, size, steps = rows("adult", small), *((32, 50) if small else (1024, 5000))

    def error(lam, sigma, train, key):
        phi = features.fourier(key, kernels.rbf(sigma), dim=COLUMNS["adult"], features=size)
        solver = jaxsvm.on_features(phi, jaxsvm.pegasos(lam))
        run = jaxsvm.fit(solver, train, key, steps=steps, sampler=samplers.epochs(64))
        return jaxsvm.error_on(train)(run.model)

    axes = {"lam": jnp.logspace(-7, -2, 8), "sigma": jnp.logspace(-1, 2, 8)}
    grid = jaxsvm.sweep(error, progress=False, **axes)
    errors, first, again = twice(lambda: grid(data, KEY))
    return {"first_s": first, "again_s": again, "figure": float(errors.min()), "unit": "least training error"}


def minibatch(small: bool) -> dict:
    """Linear Pegasos on minibatches."""
    data, b, steps = rows("covtype", small), *((64, 50) if small else (4096, 2000))
    options = {"steps": steps, "every": steps, "sampler": samplers.epochs(b)}
    _, first, again = twice(lambda: jaxsvm.fit(jaxsvm.pegasos(1e-5), data, KEY, **options).state)
    return {"first_s": first, "again_s": again, "figure": steps * b / again, "unit": "rows a second"}


def budget(small: bool) -> dict:
    """A kernel machine with a budget."""
    data, points, steps = rows("adult", small), *((16, 50) if small else (500, 20_000))
    solver = jaxsvm.bsgd(1e-4, kernels.rbf(gamma=0.05), budget=points)
    _, first, again = twice(lambda: jaxsvm.fit(solver, data, KEY, steps=steps, every=steps).state)
    return {"first_s": first, "again_s": again, "figure": steps / again, "unit": "steps a second"}


def nystrom(small: bool) -> dict:
    """Features of a kernel for all rows, block by block: only their sums are kept."""
    data, size, block = rows("covtype", small), *((32, 128) if small else (2048, 16_384))
    phi = features.nystrom(KEY, kernels.rbf(0.5), data.x, landmarks=size)

    @jax.jit
    def sums(phi, x):
        parts = x[: len(x) // block * block].reshape(-1, block, x.shape[1])
        return jax.lax.map(lambda part: phi(part).sum(axis=0), parts).sum(axis=0)

    _, first, again = twice(lambda: sums(phi, data.x))
    return {"first_s": first, "again_s": again, "figure": len(data.y) / again, "unit": "rows a second"}


def mixture(n: int, d: int) -> jaxsvm.Batch:
    """Standardised rows around five centres of each class, which a half of the columns tells apart (as `data_gen` of TorchKM)."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2, 5, d))
    centres[0, :, : d // 2] += 2
    centres[1, :, d // 2 :] += 2
    label = rng.integers(0, 2, n)
    x = centres[label, rng.integers(0, 5, n)] + 3 * rng.normal(size=(n, d))
    return jaxsvm.dataset(((x - x.mean(0)) / x.std(0)).astype(np.float32), 2 * label - 1)


def fits_of(found: jaxsvm.Selection, seconds: float) -> dict:
    """The figures of a search, which may have ended before all its fits were made."""
    made = int(np.isfinite(found.table.folds).sum())
    return {"figure": made / seconds, "unit": f"fits a second, least error {np.nanmin(found.table.mean):.4f}"}


def path(small: bool, by_lambda: bool) -> dict:
    """Exact machines along a path of C; the first fold alone tells how long all of them take."""
    n, d, step, folds = (300, 50, 7, 5) if small else (10_000, 1000, 1, 10)
    data = mixture(n, d)
    rbf = kernels.rbf(gamma=float(np.median(kernels.gamma_grid(data.x))))  # 1.8 over the median of the squared distances
    numbers = (1 / (2 * n * LAMBDAS) if by_lambda else CS)[::step]
    maker = lambda C: jaxsvm.decomposition(C, rbf)
    search = lambda folds, limit: jaxsvm.select(maker, data, KEY, folds=folds, seconds=limit, progress=False, C=numbers)
    alone = np.where(np.arange(n) < n // folds, 0, -1)
    found, first, again = twice(lambda: search(alone, PATH_LIMIT / 4))
    made = int(np.isfinite(found.table.folds).sum())
    if made < len(numbers) or folds * again > PATH_LIMIT:
        size = f"cut: 1 of {folds} folds, {made} of {len(numbers)} C"
    else:
        size = "small" if small else "full"
        found, again = common.timed(lambda: search(folds, PATH_LIMIT))
    return {"size": size, "first_s": first, "again_s": again, **fits_of(found, again)}


def landmarks(small: bool, name: str) -> dict:
    """Machines on features that all lambdas and folds share; a tenth of the rows tells how long all of them take."""
    size, step, folds = (32, 10, 3) if small else (500, 1, 10)
    data = rows(name, small)
    rbf = kernels.rbf(gamma=float(np.median(kernels.gamma_grid(data.x))))
    lambdas = 2 * LAMBDAS[::step]  # TorchKM's objective has lambda |w|^2

    def search(n):
        part = data._replace(x=data.x[:n], y=data.y[:n], weight=data.weight[:n])
        phi = features.nystrom(KEY, rbf, part.x, landmarks=size)
        maker = lambda lam: jaxsvm.on_features(phi, jaxsvm.newton(lam, bias="feature"))
        return jaxsvm.select(maker, part, KEY, folds=folds, progress=False, lam=lambdas)

    n = len(data.y)
    if not small:
        share = LANDMARKS_LIMIT / (10 * twice(lambda: search(n // 10))[2])
        n = int(n * min(1.0, max(0.1, share)))
    found, first, again = twice(lambda: search(n))
    cut = f"cut: {n} of {len(data.y)} rows" if n < len(data.y) else "small" if small else "full"
    return {"size": cut, "first_s": first, "again_s": again, **fits_of(found, again)}


LOADS = {
    "exact": exact,
    "sweep": sweep,
    "minibatch": minibatch,
    "budget": budget,
    "nystrom": nystrom,
    "path, lambda": functools.partial(path, by_lambda=True),
    "path, C": functools.partial(path, by_lambda=False),
    "landmarks, a9a": functools.partial(landmarks, name="adult"),
    "landmarks, ijcnn1": functools.partial(landmarks, name="ijcnn1"),
    "landmarks, covtype": functools.partial(landmarks, name="covtype"),
}


def main(arguments: list[str] | None = None) -> list[dict]:
    """Run the loads and return the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows, nothing is written")
    small = parser.parse_args(arguments).small
    asked, small = small, small or jax.default_backend() == "cpu"
    table = []
    for name, load in LOADS.items():
        found = load(small)
        numbers = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in found.items()}
        table.append({"load": name, "size": "small" if small else "full", **numbers, "device": common.device()})
        print(f"{name}: {found['again_s']:.3g} s", flush=True)
    if asked:
        return table
    common.write(f"device_{re.sub(r'[^a-z0-9]+', '_', jax.devices()[0].device_kind.lower())}", table)
    return table


if __name__ == "__main__":
    main()
