"""The small version of the benchmark of devices, and the counts of `lowering`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import as_users
from jax import lax

device = pytest.importorskip("benchmarks.speed.device", reason="the folder benchmarks is not here")
lowering = pytest.importorskip("benchmarks.speed.lowering")


@pytest.mark.long
def test_the_loads_of_a_device_run():
    table = device.main(["--small"])
    assert [row["load"] for row in table] == list(device.LOADS)
    assert all(float(row["again_s"]) > 0 and float(row["figure"]) > 0 for row in table)
    assert float(table[0]["figure"]) <= 1e-3  # the exact machine meets its tolerance
    assert {row["size"] for row in table} == {"small"}


@pytest.mark.long
def test_a_load_over_its_limit_names_what_was_run(monkeypatch):
    monkeypatch.setattr(device, "PATH_LIMIT", 1e-9)
    row = device.path(small=True, by_lambda=True)
    assert row["size"] == "cut: 1 of 5 folds, 8 of 8 C"  # those of a fold are a program
    assert row["figure"] == pytest.approx(8 / row["again_s"])


def test_what_a_program_holds():
    """A program whose operations are known."""

    def inner(carry):
        i, x = carry
        # a read at one place, a gather of two rows, and two reductions
        return i + 1, x + x[i] * jnp.sum(x) + jnp.max(x[jnp.stack([i, i])])

    def outer(x):
        _, x = lax.while_loop(lambda carry: carry[0] < 3, inner, (0, jnp.sort(x)))
        return x @ x

    def program(x, a):
        y = lax.while_loop(lambda s: s < 9.0, lambda s: s + outer(x), 0.0)
        return jnp.linalg.cholesky(a @ a.T), y, x.at[jnp.array([1, 2])].add(y)

    row = lowering.count(program, jnp.ones(5), jnp.ones((4, 3)))
    numbers = ("loops", "depth", "round_reductions", "round_reads", "gathers", "scatters", "sorts")
    assert [row[name] for name in numbers] == [2, 2, 2, 1, 1, 1, 1]
    assert row["dots"] == "0: 4x3 by 3x4; 1: 5 by 5"
    assert "cusolver_potrf_ffi" in row["custom_calls"]

    # of a loop of three operations the condition is the third
    row = lowering.count(
        lambda x: lax.while_loop(lambda x: x < 9, lambda x: jnp.sin(x) + x, x), 1.0
    )
    assert (row["loops"], row["round_ops"], row["round_reductions"]) == (1, 3, 0)

    # one that calls the host needs a GPU to be lowered at all
    sine = lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)
    with pytest.raises(ValueError, match="platform"):
        lowering.count(sine, 1.0)


@pytest.mark.long
def test_the_programs_of_the_main_solvers():
    """Only the rounds of those that step on single rows read single places."""
    names = "decomposition, whole matrix", "dual_descent, dense", "newton"
    programs = [lowering.PROGRAMS[name] for name in names]
    rows = [lowering.count(*make(n)) for n, _, make in programs]
    assert [row["round_reads"] > 0 for row in rows] == [True, True, False]


MOST_KERNELS = {  # of each program; and by JAX 0.10, which makes a kernel of each step of a loop
    "SVC": (14, 50),
    "SVC, blocks": (133, 163),
    "LinearSVC": (44, 54),
    "prediction": (10, 10),
    "decomposition, 64 problems": (23, 70),
    "smo": (40, 40),
    "sdca, kernel": (37, 37),
    "dual_descent, dense": (64, 64),
    "pegasos, 256 rows": (22, 22),
    "nystrom, 512 landmarks": (9, 9),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MOST_KERNELS)
def test_programs_are_few_kernels(name):
    """A first call waits some 12 milliseconds for each."""
    n, _, make = lowering.PROGRAMS[name]
    most = MOST_KERNELS[name][jax.__version_info__[:2] < (0, 11)]
    assert lowering.count_kernels(*make(n), options=as_users()) <= most
