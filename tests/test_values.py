"""Recipes as values: equality, hashes, names of numbers, arguments as attributes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels, losses, samplers

MADE = {
    "pegasos": lambda: jaxsvm.pegasos(0.125),
    "decomposition": lambda: jaxsvm.decomposition(2.0, kernels.rbf(sigma=1.5)),
    "averaged": lambda: jaxsvm.averaged(jaxsvm.pegasos(0.125), weights=lambda t: t + 1),
    "rest": lambda: jaxsvm.one_vs_rest(jaxsvm.sdca(1.0, loss=losses.smooth_hinge(0.5)), classes=3),
    "sum": lambda: 0.5 * kernels.rbf(1.0) + kernels.linear(),
    "array": lambda: kernels.rbf(gamma=jnp.array([1.0, 2.0])),
    "sampler": lambda: samplers.epochs(4),
    "loss": lambda: losses.pinball(0.25),
}
OTHERS = [
    (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.pegasos(0.2)),
    (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.pegasos(0.1, bias="feature")),
    (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.bottou_sgd(0.1)),
    (lambda: kernels.rbf(1.0), lambda: kernels.laplacian(1.0)),
    (lambda: kernels.rbf(gamma=jnp.ones(2)), lambda: kernels.rbf(gamma=jnp.ones(3))),
    (lambda: samplers.epochs(1), lambda: samplers.epochs(2)),
    (
        lambda: jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=lambda t: t + 1),
        lambda: jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=lambda t: t + 2),
    ),
]


@pytest.mark.parametrize("kind", MADE)
def test_equal_calls_are_equal_and_hash_alike(kind):
    one, other = MADE[kind](), MADE[kind]()
    assert one == other and not one != other and hash(one) == hash(other)
    assert {one: "seen"}[other] == "seen"
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert one == jax.tree.map(jnp.asarray, other)  # the same values as arrays


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_other_calls_are_not(one, other):
    assert one() != other() and one() != "pegasos(0.1)" and one() is not None


def weigh(power):
    return lambda t: (t + 1) ** power


def test_functions_are_compared_by_their_code_and_what_they_hold():
    make = lambda weights: jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=weights)
    assert make(weigh(2)) == make(weigh(2)) != make(weigh(3))
    assert make(weigh(2)) != make(weigh(2.0))  # 2 is structure of another type than 2.0
    assert make(weigh(1)) != make(weigh(True))
    default = lambda t, power=2: (t + 1) ** power
    other = lambda t, power=3: (t + 1) ** power
    assert make(default) != make(other)
    held = jnp.ones(())
    assert make(weigh(held)) == make(weigh(held)) != make(weigh(jnp.ones(())))
    one, two = [], []
    for made in (one, two):
        made.append(lambda t, made=made: t + 1 + len(made))
    assert make(one[0]) == make(one[0]) and isinstance(make(one[0]) == make(two[0]), bool)


def test_numbers_that_are_not_known_are_equal_to_themselves_only():
    seen = []

    def fn(lam):
        seen.extend([jaxsvm.pegasos(lam) == jaxsvm.pegasos(lam)])
        seen.extend([jaxsvm.pegasos(lam) == jaxsvm.pegasos(0.1)])
        return lam

    jax.jit(fn)(0.1)
    assert seen == [True, False]


def test_a_solver_that_is_made_anew_is_no_other_argument():
    traces = []

    def fn(solver, x):
        traces.append(1)
        return x

    static = jax.jit(fn, static_argnums=0)
    dynamic = jax.jit(fn)
    for run, number in ((static, 1), (dynamic, 2)):
        for _ in range(3):
            run(jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=lambda t: t + 1), 1.0)
        assert len(traces) == number
    static(jaxsvm.pegasos(0.3), 1.0)
    assert len(traces) == 3


def test_the_numbers_have_names():
    paths = lambda thing: [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(thing)
    ]
    assert paths(MADE["decomposition"]()) == [".C", ".kernel.sigma", ".rounds"]
    assert paths({"a": jaxsvm.pegasos(0.1)}) == ["['a'].lam"]
    assert paths(MADE["rest"]()) == [".inner.C", ".inner.loss.width"]
    solver = MADE["decomposition"]()
    leaves = jax.tree.leaves(solver)
    with_path = [leaf for _, leaf in jax.tree_util.tree_leaves_with_path(solver)]
    assert leaves == with_path
    doubled = jax.tree_util.tree_map_with_path(
        lambda path, a: 2 * a if path[-1].name == "C" else a, solver
    )
    assert doubled == jaxsvm.decomposition(4.0, kernels.rbf(sigma=1.5))


def test_leaves_of_any_kind_have_names():
    """JAX puts axes, specs and None in the places of numbers."""
    solver = MADE["decomposition"]()
    for leaf in (None, "spec", object()):
        tree = jax.tree.unflatten(jax.tree.structure(solver), [leaf] * 3)
        pairs, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda a: a is None)
        assert [path[0].name for path, _ in pairs] == ["C", "kernel.sigma", "rounds"]


def test_the_arguments_are_attributes():
    solver = MADE["decomposition"]()
    assert solver.C == 2.0 and solver.kernel == kernels.rbf(sigma=1.5)
    assert solver.kernel.sigma == 1.5 and solver.loss is not None and solver.tol is None
    assert {"C", "kernel", "update"} <= set(dir(solver))
    assert solver.bind(C=3.0) == jaxsvm.decomposition(3.0, kernels.rbf(sigma=1.5))
    assert MADE["rest"]().inner.loss.width == 0.5 and samplers.epochs(4).batch_size == 4
    with pytest.raises(AttributeError, match="pegasos has no attribute 'C': it has lam"):
        _ = jaxsvm.pegasos(0.1).C
    assert not hasattr(solver, "__array__")


def test_known_numbers_of_every_kind():
    for number in (0.25, np.float32(0.25), np.array(0.25), jnp.array(0.25)):
        assert jaxsvm.pegasos(number) == jaxsvm.pegasos(0.25)
        assert hash(jaxsvm.pegasos(number)) == hash(jaxsvm.pegasos(0.25))
