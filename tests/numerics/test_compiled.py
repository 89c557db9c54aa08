"""What the optimised programs hold: no copy of an array with an entry for each row, at every step
of a loop."""

import importlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import as_users
from jax import lax

import jaxsvm
from jaxsvm import samplers
from jaxsvm._node import cast

loops = importlib.import_module("jaxsvm.loops.fitting")  # the package has a function of this name

N = 4096
AS_USERS = as_users()


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 5)).astype("f")
    return jaxsvm.dataset(x, np.where(x[:, 0] > 0, 1, -1))


def copies_in_loops(program):
    """Copies of float arrays of N numbers outside the entry computation: what a loop body does at
    every step."""
    inside = re.sub(r"^ENTRY .*?^\}", "", program, flags=re.S | re.M)
    assert inside != program, (
        "no entry computation found: the text of programs has changed, and this test with it"
    )
    return re.findall(rf"= f32\[{N}\]\S* copy\(.*", inside)


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 32])
def test_linear_sdca_writes_its_dual_variables_in_place(data, batch):
    solver, sampler = jaxsvm.sdca(1.0), samplers.epochs(batch)
    run = jaxsvm.fit(solver, data, jax.random.key(0), steps=1, sampler=sampler).state
    inputs = loops.Inputs(cast(solver, np.float32), sampler, None, data, data.x)
    limit, count = np.float32(np.nan), np.int32(1000)
    lowered = loops.run_chunk.lower(inputs, run._replace(origin=None), limit, count, table=256)
    program = lowered.compile(AS_USERS).as_text()
    assert f"f32[{N}]" in program
    assert copies_in_loops(program) == []


def test_a_step_that_reads_before_it_writes_would_be_found(data):
    def step(carry, i):
        w, alpha = carry
        x, old = data.x[i], lax.dynamic_index_in_dim(alpha, i, keepdims=False)
        new = jnp.clip(old + (1 - jnp.dot(w, x)) / jnp.dot(x, x), 0, 1)
        return (w + (new - old) * x, lax.dynamic_update_index_in_dim(alpha, new, i, 0)), None

    naive = jax.jit(lambda rows: lax.scan(step, (jnp.zeros(5), jnp.zeros(N)), rows))
    program = naive.lower(jnp.arange(100, dtype=jnp.int32)).compile(AS_USERS).as_text()
    assert copies_in_loops(program)


@pytest.mark.long
def test_no_kernel_product_is_larger_than_a_block(data):
    solver = jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(1.0))
    model = jaxsvm.fit(solver, data, jax.random.key(0), steps=1).model
    predict = jax.jit(lambda model, x: model(x, block=256))
    program = predict.lower(model, data.x).compile(AS_USERS).as_text()
    assert f"[256,{N}]" in program
    assert f"[{N},{N}]" not in program
