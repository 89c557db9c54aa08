"""`python -m benchmarks.pivots [choices] [columns] [DATA ...]`: landmarks of Nystrom features by four choices.

choices: 256 and 1,024 landmarks of up to 8,000 rows. The trace error is tr(K - Phi Phi') / tr(K) on these rows, of the map that
    `nystrom` makes of float32 rows, evaluated in float64. Then the test error of `newton` with the squared hinge and C = 10 on
    the features, on up to 5,000 other rows; and the seconds of the choice, medians of three, in turns. pivots.csv.
columns: `random_pivots()` beside the same pivots a column at a time, by a `fori_loop` in one program: 1,024 landmarks of 20,000
    rows of the sets that have them; seconds are medians of three, in turns. pivots_columns.csv.

The kernel is Gaussian; its width is the median distance of rows, that of `kernels.gamma_grid`. MNIST: digits 5 to 9 against the
others, pixels in [0, 1]; covtype: columns in [0, 1], class 1 against the others; magic04, susy, svmguide1: columns standardised.
"""

from __future__ import annotations

import functools
import statistics

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsvm
from jaxsvm import features, kernels, losses
from jaxsvm.features.landmarks import choice
from jaxsvm.features.pivots import laid_out
from jaxsvm.names import LANDMARKS
from jaxsvm.numerics import dot, sample_proportional

from . import common

SETS = {
    "a9a": "a9a",
    "covtype": "covtype",
    "ijcnn1": "ijcnn1",
    "magic04": "magic04",
    "mnist": "mnist",
    "susy": "susy_30k_subset",
    "svmguide1": "svmguide1",
}
COUNTS, C, KEY = (256, 1024), 10.0, jax.random.key(0)


def split(name: str, rows: int) -> tuple:
    """Up to `rows` rows to train on and up to 5,000 others, with their labels, and the kernel."""
    x, y, x_test, y_test = common.load_all(SETS[name])
    order = np.random.default_rng(0).permutation(len(y))
    if x_test is None:
        x, y, x_test, y_test = *(a[order[:-5000]] for a in (x, y)), *(a[order[-5000:]] for a in (x, y))
        order = np.arange(len(y))
    x, y, x_test, y_test = x[order[:rows]], y[order[:rows]], x_test[:5000], y_test[:5000]
    if name in ("magic04", "susy", "svmguide1"):
        mean, deviation = x.mean(0), x.std(0)
        x, x_test = ((a - mean) / deviation for a in (x, x_test))
    gamma = float(kernels.gamma_grid(x)[0]) * 10**1.5 / 2  # the least of the grid is 10^-1.5 over the median squared distance
    return *(jnp.asarray(a, jnp.float32) for a in (x, y, x_test, y_test)), kernels.rbf(gamma=gamma)


def trace_error(phi, x) -> float:
    """tr(K - Phi Phi') / tr(K) of a kernel with diagonal 1, in float64."""
    with jax.enable_x64(True):
        rows = np.asarray(x, np.float64)
        return 1 - sum(float(squares(phi, rows[i : i + 2500])) for i in range(0, len(rows), 2500)) / len(rows)


@jax.jit
def squares(phi, rows):
    """The sum of all squared features."""
    return jnp.sum(phi(rows) ** 2)


def choices(options) -> None:
    """The table of the four choices."""
    table = []
    for name in options.data or SETS:
        x, y, x_test, y_test, kernel = split(name, options.rows or 8_000)
        for count in COUNTS:
            # each one program: outside of `jit` each call of some of them compiles anew
            programs = {which: jax.jit(functools.partial(choice(which), count=count)) for which in LANDMARKS}
            choose = {which: functools.partial(program, KEY, kernel, x) for which, program in programs.items()}
            seconds = common.side_by_side(choose, 3)
            for which in LANDMARKS:
                phi = features.nystrom(None, kernel, landmarks=choose[which]())
                solver = jaxsvm.newton(1 / (C * len(y)), loss=losses.squared_hinge)
                run = jaxsvm.fit(solver, jaxsvm.dataset(phi(x), y), KEY, steps=30, tol=1e-4)
                wrong = common.error(run.model, jaxsvm.dataset(phi(x_test), y_test))
                table.append(
                    {
                        "data": name,
                        "rows": len(x),
                        "columns": x.shape[1],
                        "landmarks": count,
                        "choice": which,
                        "trace_error": f"{trace_error(phi, x):.4g}",
                        "test_error": f"{wrong:.4f}",
                        "seconds": f"{statistics.median(seconds[which]):.3f}",
                    }
                )
                print("  ".join(f"{k}={v}" for k, v in table[-1].items()), flush=True)
    common.write("pivots", table)
    for count in COUNTS:
        ratios = {}
        for name in options.data or SETS:
            trace = {r["choice"]: float(r["trace_error"]) for r in table if (r["data"], r["landmarks"]) == (name, count)}
            least = min(value for which, value in trace.items() if which != "random_pivots")
            ratios[name] = f"{trace['random_pivots'] / least:.2f}"
        print(f"{count} landmarks, trace error of random pivots over the least of the others: {ratios}")


@functools.partial(jax.jit, static_argnames="count")
def by_columns(key, kernel, x, rows, count: int):
    """Random pivots one at a time, with the rounding of `random_pivots`; `rows` are those of x in the layout of the kernel."""
    diagonal = kernel.diag(x)
    floor = count * float(jnp.finfo(diagonal.dtype).eps) * diagonal

    def add(i, state):
        columns, residual, pivots = state
        p = sample_proportional(residual, jax.random.uniform(jax.random.fold_in(key, i), (1,)))
        column = kernel(rows[p], rows)[0] - dot(columns, columns[p[0]])
        column = column / jnp.sqrt(residual[p[0]])
        residual = jnp.maximum(residual - column**2, 0).at[p].set(0)
        columns = lax.dynamic_update_slice(columns, column[:, None], (0, i))
        return columns, jnp.where(residual > floor, residual, 0), pivots.at[i].set(p[0])

    columns = jnp.zeros((len(diagonal), count), diagonal.dtype)
    pivots = lax.fori_loop(0, count, add, (columns, diagonal, jnp.zeros(count, jnp.int32)))[2]
    return x[pivots]


def columns(options) -> None:
    """The table of both forms."""
    table, count = [], COUNTS[-1]
    for name in options.data or SETS:
        size = options.rows or 20_000
        x, _, _, _, kernel = split(name, size)
        if len(x) < size:
            continue
        given = KEY, kernel, x
        forms = {
            "blocks": functools.partial(features.random_pivots(), *given, count),
            "columns": functools.partial(by_columns, *given, laid_out(kernel, x), count),
        }
        seconds = {form: statistics.median(each) for form, each in common.side_by_side(forms, 3).items()}
        trace = {form: trace_error(features.nystrom(None, kernel, landmarks=run()), x) for form, run in forms.items()}
        table.append(
            {
                "data": name,
                "rows": len(x),
                "columns": x.shape[1],
                "blocks_s": f"{seconds['blocks']:.3f}",
                "columns_s": f"{seconds['columns']:.3f}",
                "ratio": f"{seconds['columns'] / seconds['blocks']:.1f}",
                "blocks_trace": f"{trace['blocks']:.4g}",
                "columns_trace": f"{trace['columns']:.4g}",
            }
        )
        print("  ".join(f"{k}={v}" for k, v in table[-1].items()), flush=True)
    common.write("pivots_columns", table)


if __name__ == "__main__":
    common.run({"choices": choices, "columns": columns}, SETS)
