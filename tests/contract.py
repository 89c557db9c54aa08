"""Which solvers the contract runs, and how."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, Case, D, rows

import jaxsvm

KEY = jax.random.key(3)
EVERY = 100  # steps of a piece in all runs outside transformations
NEW_ROWS = np.random.default_rng(11).normal(size=(6, D)).astype(np.float32)
# for programs that run once and whose bits are not looked at
QUICK = {"xla_backend_optimization_level": 0}
NUMBERED = [case for case in CASES if case.number is not None]
# The first case of every factory and kind of model, and of ranking: for tests that compile much and
# look at what options do
# not touch.
KIND_OF = lambda case: (case.text.split("(")[0], case.kernel, case.targets == "grades")
FACTORIES = list({KIND_OF(case): case for case in reversed(CASES)}.values())[::-1]
# The others are long tests.
QUICKEST = ("pegasos(0.1)", "sdca(1.0, rbf(1.0))", "bsgd(0.1, rbf(1.0), budget=24)")
FIRST = QUICKEST[:1]
# One of every engine and kind of state.
ENGINES = (
    *QUICKEST,
    "asset(0.1, average_from=50)",
    "perceptron(rbf(0.5))",
    "decomposition(1.0, rbf(1.0), tol=1e-05, working_set=8, rounds=1.0)",
    "bsca(1.0, rbf(1.0), budget=24)",
    "projectron(rbf(0.1), budget=5)",
    "sbp(0.3, rbf(1.0))",
    "wolfe(0.05, rbf(1.0))",
    "scs(0.1, rbf(1.0), capacity=12)",
    "newton(0.1)",
    "ocas(0.1, planes=6)",
)
ENGINES = [case for case in FACTORIES if case.text in ENGINES]


def mark(case, short=QUICKEST):
    return () if case.text in short else pytest.mark.long


def over(cases, short=QUICKEST):
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=mark(case, short), id=case.text) for case in cases]
    )


each, each_factory = over(CASES), over(FACTORIES)
each_numbered_engine = over([case for case in ENGINES if case.number is not None], FIRST)


@functools.cache
def data_for(case: Case, kind: str = "plain", dtype: str = "float32") -> jaxsvm.Batch:
    with jax.ensure_compile_time_eval():  # a first call may come from inside a trace
        return rows(kind, case.targets).batch(dtype)


def run(case: Case, steps: int, number: float | None = None, **options) -> jaxsvm.Fit:
    """A run outside transformations on the plain data set."""
    options = {"data": data_for(case), "sampler": case.feed(), "every": EVERY} | options
    data = options.pop("data")
    return jaxsvm.fit(
        case.at(number), data, None if "state" in options else KEY, steps=steps, **options
    )


def numbers(tree) -> list[np.ndarray]:
    """The leaves as NumPy arrays, keys by their words."""
    is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    return [np.asarray(jax.random.key_data(a) if is_key(a) else a) for a in jax.tree.leaves(tree)]


def assert_same_bits(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(numbers(a), numbers(b), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes(), (one, other)


def assert_close(a, b, tolerance: float) -> None:
    """Equal structure, shapes and dtypes, and numbers within `tolerance`, absolutely near 0 and
    relatively above 1."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(numbers(a), numbers(b), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype == np.uint32 and one.shape == (6,):  # checksums, not known inside of jit
            continue
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


# 1, 2, 3: the scan body

# rows of four steps, one of them twice
STEPS = jnp.array([[5, 0, 17], [2, 2, 9], [0, 23, 1], [8, 5, 12]], jnp.int32)


def batch_of(solver, data, index):
    """What `update` is given for the rows `index`."""
    return data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)
