"""A plain solver that counts its steps, and its runs in pieces of four: of the tests of runs."""

import importlib
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
from plain import plain

import jaxsvm
from jaxsvm import fit, samplers
from jaxsvm.models import Linear
from jaxsvm.types import Info

FITTING = importlib.import_module("jaxsvm.loops.fitting")  # the package has a function of this name
DATA = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0], [0.5], [-3.0]], [1, -1, 1, -1, -1, 1])
KEY = jax.random.key(0)


def counter(residual="data"):
    """A plain solver whose state is the step t, a trace of the rows and what a step costs (1 on
    `DATA`).

    Loss t - 1, residual 10 - t, model w = (t, trace).
    """

    def init(key, data):
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), data.index[0] + 1

    def update(state, batch):
        t, trace, evals = state
        trace = trace * jnp.uint32(31) + (batch.index[0] + 2).astype(jnp.uint32)
        loss, t = t.astype(jnp.float32), t + 1
        info = Info(loss, 10 - t.astype(jnp.float32), jnp.ones(1), batch.index[:1], 2 * t, evals)
        return (t, trace, evals), info

    def model(state, data=None):
        numbers = jnp.stack([state[0], (state[1] % 65536).astype(jnp.int32)])
        return Linear(numbers.astype(jnp.float32), jnp.zeros(()))

    return plain(init, update, model, samplers.epochs(1), residual_of=residual)


WHOLE, SAMPLE = counter(), counter("batch")


def minus_t(model):
    return -model.w[0]


def count(steps=30, solver=WHOLE, **options):
    """A run in pieces of four steps; with a state it goes on."""
    given = {"data": DATA, "key": None if "state" in options else KEY, "every": 4}
    return fit(solver, steps=steps, **given | options)


def inside(steps=30, **options):
    """The same run inside of a program."""
    return jax.jit(lambda key: count(steps, key=key, **options))(KEY)


def both(*args, **options):
    """Outside and inside."""
    return count(*args, **options), inside(*args, **options)


def interrupt_at(call, original):
    """The function, with Ctrl-C in this call of it."""
    calls = []

    def patched(*args, **kwargs):
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    patched.eval_shape = getattr(original, "eval_shape", None)
    return patched


def interrupt(monkeypatch, call):
    """Ctrl-C in this call of the program, each of which makes one chunk."""
    monkeypatch.setattr(FITTING, "run_chunk", interrupt_at(call, FITTING.run_chunk))


def fresh(code):
    """What a new process prints, without XLA_FLAGS of this one."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=kept)
    assert done.returncode == 0, done.stderr
    return done.stdout
