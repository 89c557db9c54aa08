"""Programs on small data are compiled with fewer optimisations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm.loops import compile_options
from jaxsvm.loops.compile_options import SMALL, jit_by_size


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled: the options of each program."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    seen, real = [], jax.jit

    def jit(function, compiler_options=None, **kwargs):
        def traced(*args, **named):
            seen.append(compiler_options)
            return function(*args, **named)

        return real(traced, compiler_options=compiler_options, **kwargs)

    monkeypatch.setattr(compile_options.jax, "jit", jit)
    return seen


def test_small_arguments_have_a_program_of_their_own(compiled):
    total = jit_by_size(once=True)(lambda x: x.sum())
    assert float(total(jnp.ones(3))) == 3
    assert compiled == [compile_options.FEWER_PASSES | compile_options.ONCE]
    assert float(total(jnp.ones(3))) == 3 and len(compiled) == 1
    assert float(total(jnp.ones(SMALL + 1))) == SMALL + 1
    assert compiled[1:] == [None]
    assert total._cache_size() == 2


def test_options_of_the_user_hold(compiled, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert float(jit_by_size(once=True)(lambda x: x.sum())(jnp.ones(3))) == 3
    assert compiled == [None]


def test_inside_of_a_transformation_there_is_one_program(compiled):
    total = jit_by_size(once=True)(lambda x: x.sum())
    np.testing.assert_array_equal(jax.vmap(total)(jnp.ones((2, 3))), [3, 3])
    assert jax.grad(total)(jnp.ones(2)).tolist() == [1, 1]
    assert set(compiled) == {None}


def test_runs_are_the_same_up_to_rounding(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, 1, -1))

    def weights():
        return jaxsvm.fit(
            jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=100, progress=False
        ).model.w

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    quick = weights()
    monkeypatch.setattr(compile_options, "SMALL", 0)
    np.testing.assert_allclose(quick, weights(), rtol=1e-4, atol=1e-6)
