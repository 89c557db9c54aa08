"""Solvers that read all rows, on four devices: the same solution as on one, and no device holds all
rows."""

from typing import Any, NamedTuple

import collectives
import jax
import numpy as np
import pytest
from conftest import COLUMNS, binary_rows, normal_rows

import jaxsvm
from jaxsvm import kernels
from jaxsvm.numerics import sample_proportional

KEY, N = jax.random.key(0), 1024
RBF = kernels.rbf(3.0)


class Case(NamedTuple):
    solver: Any
    steps: int | None
    tolerance: float = 1e-6  # of decision values, relative to the largest
    residual: float | None = None  # the tolerance that both runs meet
    # numbers that a step may add up over devices, each loop counted once
    reduced: float = 8 * COLUMNS
    gathered: float = 0  # numbers that a step may gather


BLOCKS = jaxsvm.decomposition(1.0, RBF, working_set=64, tol=1e-5)
SQUARE, POINTS = (COLUMNS + 2) ** 2, N // 4 * (COLUMNS + 2)
CASES = {
    "cocoa": Case(jaxsvm.cocoa(0.1, blocks=4), 12),
    "sbp": Case(jaxsvm.sbp(0.3, RBF), 40, reduced=POINTS + 1000),
    "scs": Case(jaxsvm.scs(1e-3, RBF, capacity=256), 5),
    "decomposition": Case(BLOCKS, None, 5e-5, 1e-5, 2 * 64 * (COLUMNS + 8), gathered=4 * 64),
    "newton": Case(jaxsvm.newton(1e-3), 5, 1e-5, reduced=(COLUMNS + 1) ** 2 + 4 * COLUMNS),
    "interior_point": Case(jaxsvm.interior_point(1.0), 20, 1e-5, reduced=2 * SQUARE + 8 * COLUMNS),
}


def sent(table, kind):
    """The numbers that the collectives of one kind move within the loop over steps."""
    return sum(kinds.get(kind, (0, 0))[1] for depth, kinds in table.items() if depth > 0)


@pytest.mark.parametrize("name", CASES)
def test_solutions_are_those_of_one_device(pair, compiled, name):
    case = CASES[name]
    one, four = pair(N, rows=normal_rows)
    here, there = (jaxsvm.fit(case.solver, rows, KEY, steps=case.steps) for rows in (one, four))
    runs, x = ((here, one), (there, four)), normal_rows(N)[0]
    wanted, found = (np.asarray(run.model(x), np.float64) for run, _ in runs)
    assert np.abs(found - wanted).max() <= case.tolerance * np.abs(wanted).max()
    assert int(there.state.step) == int(here.state.step) and there.converged == here.converged
    if case.residual is not None:
        assert max(float(run.info.residual[-1]) for run in (here, there)) <= case.residual
    if name == "decomposition":
        wanted, found = (float(jaxsvm.kkt_residual(run.model, rows, 1 / N)) for run, rows in runs)
        assert found == pytest.approx(wanted, rel=1e-2, abs=1e-5)
    if name == "cocoa":
        lam = 1 / (N * 0.1)
        wanted, found = (jaxsvm.certificate(run.model, rows, lam, passes=5) for run, rows in runs)
        assert float(found.primal) == pytest.approx(float(wanted.primal), rel=1e-6)
        assert 0 <= float(found.gap) == pytest.approx(float(wanted.gap), rel=1e-3)

    program, table = compiled(case.solver, four)
    text = program.as_text()
    # all rows on one device
    assert f"f32[{N},{COLUMNS}]" not in text and f"f32[{COLUMNS},{N}]" not in text
    limits = {"all-gather": case.gathered, "all-reduce": case.reduced}
    for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert sent(table, kind) <= limits.get(kind, 0), table


def test_cocoa_sends_four_times_a_round(pair, compiled):
    table = compiled(jaxsvm.cocoa(0.1, blocks=4), pair(4096)[1])[1]
    many, numbers = table[1]["all-reduce"]
    assert many <= 4 and numbers <= COLUMNS + 16
    # a loop that asks who goes on
    assert all(kinds == {"all-reduce": (1, 1)} for depth, kinds in table.items() if depth > 1)


@pytest.mark.parametrize("n", [1024, 400])
def test_draws_over_shards_are_those_of_one_device(mesh, n):
    """By NumPy's cumulative sum in float64, up to draws at its steps; a shard without shares is
    never drawn from."""
    rng = np.random.default_rng(n)
    share = (rng.random(n) * (rng.random(n) < 0.5)).astype(np.float32)
    share[n // 4 : n // 2] = 0
    u = rng.random(5000).astype(np.float32)
    sharding = jaxsvm.shard(jaxsvm.dataset(*binary_rows(n)), mesh).y.sharding
    with jax.set_mesh(sharding.mesh):
        program = jax.jit(sample_proportional).lower(jax.device_put(share, sharding), u).compile()
        found = np.asarray(program(jax.device_put(share, sharding), u))
    ends = np.cumsum(share.astype(np.float64))
    target = u * ends[-1]
    assert (share[found] > 0).all()
    assert (ends[found] >= target - 1e-3).all()
    assert (ends[found] - share[found] <= target + 1e-3).all()
    # others lie within rounding of a step
    assert (found == np.searchsorted(ends, target, side="right")).mean() > 0.99
    kinds = {kind for kinds in collectives.by_depth(program.as_text()).values() for kind in kinds}
    assert kinds == {"all-reduce"}


@pytest.mark.parametrize("rows_of_x", [5, 1500])
def test_kernel_sums_over_shards(mesh, rows_of_x):
    """Sums of kernels in NumPy, for few rows of x, which are sent, and for many, which are not."""
    (z, _), (x, _) = binary_rows(512), binary_rows(1500)
    x = x[:rows_of_x]
    coef = np.random.default_rng(0).normal(size=512).astype(np.float32)
    sharding = jaxsvm.shard(jaxsvm.dataset(*binary_rows(512)), mesh).y.sharding
    square = ((x.astype(float)[:, None] - z.astype(float)[None]) ** 2).sum(-1)
    wanted = np.exp(-square / 18) @ coef.astype(float)
    over = lambda a: jax.device_put(a, sharding) if a.shape[0] % 4 == 0 else a
    with jax.set_mesh(sharding.mesh):
        sums = jax.jit(lambda x, z, coef: kernels.matvec(RBF, x, z, coef, block=128))
        found = sums(over(x), over(z), over(coef))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_working_sets_in_float64_on_each_device(mesh):
    """A number for each device by `shard_map`: XLA aborted where one barrier had both outputs of
    `top_k`."""
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(24, 3))
        data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, 1, -1))

        def coef(C):
            solver = jaxsvm.decomposition(C[0], kernels.rbf(1.0), working_set=8, tol=1e-9)
            return jaxsvm.fit(solver, data, jax.random.key(0), steps=1).model.coef[None]

        Cs, spec = np.array([0.5, 1.0, 2.0, 4.0]), jax.sharding.PartitionSpec("i")
        devices = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        options = {"mesh": devices, "in_specs": spec, "out_specs": spec, "check_vma": False}
        each = jax.jit(jax.shard_map(coef, **options))(Cs)
        for C, found in zip(Cs, each, strict=True):
            np.testing.assert_allclose(found, coef(np.array([C]))[0], atol=1e-6)
