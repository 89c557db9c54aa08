"""Programs of runs on a budget, as users compile them, write points in place."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from budgets import KEY, dataset, make
from compiling import as_users
from jax import lax

from jaxsvm import budget, kernels
from jaxsvm._node import cast
from jaxsvm.types import take

AS_USERS = as_users()
BUDGET, WIDTH = 300, 40
IN_PLACE = "parameter get-tuple-element dynamic-update-slice bitcast tuple while conditional call"


def made_in_loops(program, shape):
    """Instructions in loops that make an array of `shape` anew: all that is not handed on or
    written in place."""
    block = r"^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}"
    blocks = dict(re.findall(block, program, flags=re.S | re.M))
    bodies = {name for text in blocks.values() for name in re.findall(r"body=%?([\w.-]+)", text)}
    assert bodies and bodies <= set(blocks), "no loops found: the text of programs has changed"
    waiting, inside, found = list(bodies), set(), []
    while waiting:
        name = waiting.pop()
        if name in inside:
            continue
        inside.add(name)
        for line in blocks[name].splitlines():
            made = re.match(r"\s*(?:ROOT )?%?[\w.-]+ = (.*?) ([\w-]+)\((.*)", line)
            if made is None:
                continue
            what, code, rest = made.groups()
            called = [other for other in re.findall(r"%([\w.-]+)", rest) if other in blocks]
            if code != "fusion":
                waiting += called
                fresh = shape in what and code not in IN_PLACE.split()
            else:  # a fusion is one loop over what it ends with
                end = re.search(r"ROOT .*? = (.*?) ([\w-]+)\(", blocks[called[0]])[2]
                fresh = shape in what and end != "dynamic-update-slice"
            found += [line.strip()] * fresh
    return found


def compiled(update, maintain):
    """The loop of a run, as users have it."""
    x = np.random.default_rng(0).normal(size=(500, WIDTH)).astype(np.float32)
    data = dataset(x, np.where(x[:, 0] > 0, 1.0, -1.0), dtype=np.float32)
    made = cast(make(maintain, kernel=kernels.rbf(5.0), size=BUDGET), np.float32)

    def run(made, state, data, rows):
        step = lambda k, state: update(made, state, take(data, rows[k]))
        return lax.fori_loop(0, 100, step, state)

    state = jax.eval_shape(made.init, KEY, data)
    rows = jnp.zeros((100, 1), jnp.int32)
    return jax.jit(run).lower(made, state, data, rows).compile(AS_USERS).as_text()


PLACES = f"f32[{BUDGET},{WIDTH}]"


@pytest.mark.long
@pytest.mark.parametrize(
    "maintain", [budget.merge(partners=59), budget.merge(), budget.remove()], ids=repr
)
def test_points_are_written_in_place(maintain):
    program = compiled(lambda made, state, batch: made.update(state, batch)[0], maintain)
    assert PLACES in program and made_in_loops(program, PLACES) == []


@pytest.mark.long
def test_a_copy_of_the_points_would_be_found():
    """Steps that choose between old and new points, or read the old ones when the new ones are
    written."""

    def at_once(made, state, batch):
        state = made.update(state, batch)[0]
        return state._replace(f=state.f.flush())

    def chosen(made, state, batch):
        new = at_once(made, state, batch)
        return jax.tree.map(lambda a, b: jnp.where(batch.y[0] > 0, a, b), new, state)

    def read_late(made, state, batch):
        new = at_once(made, state, batch)
        above = state.f.x[jnp.argmax(new.f.x[:, 0]), 0] > 0
        return new._replace(f=new.f._replace(seed=new.f.seed + above.astype(jnp.uint32)))

    assert made_in_loops(compiled(chosen, budget.remove()), PLACES)
    late = made_in_loops(compiled(read_late, budget.remove()), PLACES)
    assert any(" copy(" in line for line in late)
