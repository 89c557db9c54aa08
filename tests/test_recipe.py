"""Closures in, pytrees out: what is a leaf, what is structure, and what a kept call survives."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.base import clone

import jaxsvm
from jaxsvm import kernels, losses, recipe, samplers
from jaxsvm.recipe import (
    Recipe,
    as_static,
    cast,
    check_choice,
    check_positive,
    check_scalars,
    unwrap_static,
)
from jaxsvm.types import Info, Solver

MADE = []  # the arguments of every call that `toy` was made of


@jaxsvm.solver
def toy(lam, shift=0.0, *, count=3, rate=0.5, flag=True, name="plain", fn=None, inner=None):
    """A solver that adds lam + rate at every step."""
    check_scalars(lam=lam)
    MADE.append(lam)

    def init(key, data):
        return jnp.zeros(())

    def update(state, batch):
        zero = jnp.zeros(())
        info = Info(
            zero, zero, jnp.zeros(1), jnp.zeros(1, jnp.int32), jnp.int32(count), jnp.int32(1)
        )
        return state + lam + rate + shift, info

    return Solver(
        init, update, lambda state, data=None: state, samplers.epochs(2), False, residual_of="batch"
    )


def structure(tree):
    return jax.tree.structure(tree)


# Leaves and structure


def test_positional_whole_numbers_are_leaves_as_floats():
    assert jax.tree.leaves(toy(2)) == [2.0, 0.0, 0.5]
    assert all(isinstance(leaf, float) for leaf in jax.tree.leaves(toy(2, 3)))
    assert (
        structure(toy(2))
        == structure(toy(3.5))
        == structure(toy(np.int64(7)))
        == structure(toy(lam=4))
    )


def test_keyword_whole_numbers_are_structure():
    assert jax.tree.leaves(toy(1.0, count=7)) == [1.0, 0.0, 0.5]
    assert structure(toy(1.0, count=7)) != structure(toy(1.0, count=8))
    assert structure(toy(1.0, count=np.int32(7))) == structure(toy(1.0, count=7))
    assert type(toy(1.0, count=np.int32(7)).call()[2]["count"]) is int


def test_keyword_floats_are_leaves():
    assert jax.tree.leaves(toy(1.0, rate=0.25)) == [1.0, 0.0, 0.25]
    assert (
        structure(toy(1.0, rate=0.25))
        == structure(toy(1.0, rate=np.float32(0.5)))
        == structure(toy(1.0))
    )
    assert structure(toy(1.0, rate=1)) == structure(toy(1.0)), (
        "a keyword whose default is a float is a number"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"flag": True}, {"flag": False}),
        ({"name": "plain"}, {"name": "other"}),
        ({"fn": jnp.sin}, {"fn": jnp.cos}),
        ({"fn": None}, {"fn": jnp.cos}),
    ],
)
def test_bools_strings_functions_and_none_are_structure(one, other):
    assert structure(toy(1.0, **one)) == structure(toy(2.0, **one))
    assert structure(toy(1.0, **one)) != structure(toy(1.0, **other))
    assert len(jax.tree.leaves(toy(1.0, **one))) == 3
    assert hash(structure(toy(1.0, **one))) == hash(structure(toy(2.0, **one)))


def test_booleans_are_no_numbers():
    assert jax.tree.leaves(toy(True, flag=np.bool_(False))) == [0.0, 0.5], (
        "a positional bool is structure"
    )
    assert toy(1.0, flag=np.bool_(False)).call()[2]["flag"] is False
    assert structure(toy(1.0, flag=np.bool_(False))) == structure(toy(1.0, flag=False))


@pytest.mark.parametrize("number", [np.float64(0.5), np.float32(0.5), np.float16(0.5), 0.5])
def test_numpy_floats_become_python_floats(number):
    leaf = jax.tree.leaves(toy(number))[0]
    assert type(leaf) is float and leaf == 0.5


def test_arrays_and_typed_keys_are_leaves():
    array, key = jnp.arange(3.0), jax.random.key(3)
    found = jax.tree.leaves(toy(array, inner=key))
    assert found[0] is array and found[2] is key
    zero = jnp.zeros((), jnp.int32)
    assert jax.tree.leaves(toy(zero))[0] is zero, "an array keeps its dtype"


def test_nested_kernels_and_solvers_give_their_leaves():
    nested = toy(1.0, inner=jaxsvm.sdca(2, kernels.rbf(3) + 4 * kernels.linear()))
    assert jax.tree.leaves(nested) == [1.0, 0.0, 2.0, 3.0, 4.0, 0.5]
    assert structure(nested) == structure(
        toy(1.0, inner=jaxsvm.sdca(5.0, kernels.rbf(1.0) + 2.0 * kernels.linear()))
    )
    assert structure(nested) != structure(
        toy(1.0, inner=jaxsvm.sdca(2, kernels.laplacian(3) + 4 * kernels.linear()))
    )


def test_samplers_count_with_their_whole_numbers():
    assert jax.tree.leaves(samplers.uniform(3)) == []
    assert samplers.uniform(3).rows(10) == 3
    assert structure(samplers.uniform(3)) != structure(samplers.uniform(4))


def test_wrong_arguments_are_refused_at_the_call():
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        toy(1.0, lamda=2.0)
    with pytest.raises(TypeError, match="missing a required argument: 'lam'"):
        toy()
    with pytest.raises(TypeError, match="too many positional arguments"):
        jaxsvm.pegasos(0.1, 0.2)


# One compilation, vmap and grad


def test_one_compilation_for_all_numbers():
    traced = []

    @jax.jit
    def run(solver, state):
        traced.append(None)
        return solver.update(state, None)[0]

    values = [
        float(run(toy(lam, rate=rate), jnp.zeros(())))
        for lam, rate in ((1, 0.5), (2.5, 0.25), (np.float32(3), 1.0))
    ]
    assert values == [1.5, 2.75, 4.0]
    assert len(traced) == 1
    run(toy(1.0, count=9), jnp.zeros(()))
    assert len(traced) == 2, "another choice is another program"


def test_vmap_over_leaves_equals_a_loop():
    lams = jnp.array([0.5, 1.0, 4.0])
    run = lambda solver: solver.update(jnp.zeros(()), None)[0]
    in_axes = jax.tree.unflatten(structure(toy(1.0)), [0, None, None])
    swept = jax.vmap(run, in_axes=(in_axes,))(toy(lams))
    np.testing.assert_array_equal(swept, [run(toy(lam)) for lam in lams])
    np.testing.assert_array_equal(jax.vmap(lambda lam: run(toy(lam)))(lams), swept)


def test_vmap_over_all_leaves_of_a_sweep():
    lams = jnp.array([0.5, 2.0])
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])

    @jax.jit
    def run(solver):
        return solver.model(solver.update(solver.init(jax.random.key(0), data), data)[0]).w

    swept = jax.vmap(run)(jaxsvm.pegasos(lams))
    np.testing.assert_allclose(
        swept, jnp.stack([run(jaxsvm.pegasos(lam)) for lam in lams]), rtol=1e-6
    )


def test_grad_reaches_the_leaves():
    run = lambda solver: solver.update(jnp.ones(()), None)[0] ** 2
    gradient = jax.grad(run)(toy(2.0, rate=1.0))
    assert isinstance(gradient, Recipe) and structure(gradient) == structure(toy(2.0))
    assert [float(leaf) for leaf in jax.tree.leaves(gradient)] == [8.0, 8.0, 8.0]


# Attributes


def test_attributes_that_are_no_functions_come_back_as_they_are():
    solver = toy(1.0)
    assert not solver.needs_all_rows and solver.residual_of == "batch"
    assert isinstance(solver.sampler, Recipe) and repr(solver.sampler) == "epochs(2)"
    assert jaxsvm.sdca(1.0, kernels.linear()).needs_all_rows
    assert samplers.whole().full_batch is True and samplers.epochs().period is None


def test_the_default_of_a_field_comes_back():
    assert toy(1.0).prepare("rows") == "rows"


def test_functions_are_made_anew_with_the_leaves_of_the_moment():
    MADE.clear()
    solver = toy(1.5)
    assert MADE == [1.5], "a call is tried once, where its numbers are known, and kept, not made"
    assert solver.update is not None
    assert MADE == [1.5, 1.5]


@pytest.mark.parametrize("name", ["draw", "lamb", "fit", "_private", "__len__", "__array__"])
def test_unknown_attributes(name):
    with pytest.raises(AttributeError, match=f"(Recipe|toy) has no attribute '{name}'"):
        getattr(toy(1.0), name)
    assert not hasattr(toy(1.0), name)


def test_the_factory_keeps_its_name_and_docstring():
    assert toy.__name__ == "toy" and toy.__doc__.startswith("A solver that adds")
    assert jaxsvm.pegasos.__doc__.startswith("Minimise lam/2")


def test_a_vector_is_refused_where_a_number_is_needed():
    with pytest.raises(
        ValueError, match=r"^lam has shape \(8,\); sweep it with jax\.vmap or jaxsvm\.sweep$"
    ):
        _ = toy(jnp.ones(8)).update


# repr


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (toy(0.1), "toy(0.1)"),
        (toy(1), "toy(1.0)"),
        (toy(0.1, 2.0, count=4), "toy(0.1, 2.0, count=4)"),
        (toy(0.1, rate=2.0, name="x"), "toy(0.1, rate=2.0, name='x')"),
        (toy(0.1, flag=False), "toy(0.1, flag=False)"),
        (toy(jnp.ones((2, 3))), "toy(float32[2, 3])"),
        (toy(jnp.float32(0.5)), "toy(0.5)"),
        (toy(0.1, inner=jax.random.key(0)), "toy(0.1, inner=key<fry>[])"),
        (jaxsvm.pegasos(1e-3, project=False), "pegasos(0.001, project=False)"),
        (jaxsvm.sdca(1.0, kernels.rbf(gamma=0.5)), "sdca(1.0, rbf(gamma=0.5))"),
        (jaxsvm.sdca(1.0, loss=losses.squared_hinge), "sdca(1.0, loss=squared_hinge())"),
        (jaxsvm.averaged(jaxsvm.pegasos(0.5), start=3), "averaged(pegasos(0.5), start=3)"),
        (kernels.polynomial(2, 0.0, degree=2), "polynomial(2.0, 0.0, degree=2)"),
        (kernels.polynomial(1.0, 0.0), "polynomial(coef0=0.0)"),
        (samplers.uniform(4, replace=False), "uniform(4, False)"),
        (samplers.whole(), "whole()"),
    ],
)
def test_repr_is_the_call(thing, shown):
    assert repr(thing) == shown


@pytest.mark.parametrize(
    "thing",
    [
        toy(0.25, 2.0, count=4, flag=False, name="it's"),
        jaxsvm.sdca(2.0, kernels.rbf(0.5)),
        jaxsvm.asgd(0.1, average_from=5, bias="free"),
    ],
)
def test_repr_evaluates_to_an_equal_recipe(thing):
    names = {**vars(jaxsvm), **{"toy": toy, "rbf": kernels.rbf}}
    again = eval(repr(thing), names)  # noqa: S307
    assert structure(again) == structure(thing) and jax.tree.leaves(again) == jax.tree.leaves(thing)


def test_repr_within_a_transformation():
    shown = []
    jax.jit(lambda solver: shown.append(repr(solver)) or 0)(toy(0.5))
    jax.vmap(lambda lam: shown.append(repr(toy(lam))) or lam)(jnp.ones(2))
    assert shown == ["toy(float32[], float32[], rate=float32[])", "toy(float32[])"]


# Copies


THINGS = [
    toy(0.25, count=4, fn=structure),
    toy(jnp.arange(3.0), inner=jax.random.key(5)),
    jaxsvm.pegasos(0.1, loss=losses.squared_hinge, bias="free"),
    jaxsvm.sdca(2.0, 0.5 * kernels.rbf(0.5) + kernels.polynomial(degree=2) * kernels.linear()),
    jaxsvm.averaged(jaxsvm.pegasos(0.5), start=3),
    samplers.epochs(3, shuffle=False),
    losses.hinge,
]


def same(a, b):
    assert type(a) is type(b) and structure(a) == structure(b) and repr(a) == repr(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if hasattr(one, "dtype") and jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("thing", THINGS, ids=repr)
@pytest.mark.parametrize(
    "how",
    [
        lambda t: pickle.loads(pickle.dumps(t)),
        lambda t: pickle.loads(pickle.dumps(t, protocol=2)),
        copy.deepcopy,
        copy.copy,
        lambda t: clone(t, safe=False),
        lambda t: jax.tree.unflatten(*reversed(jax.tree.flatten(t))),
        lambda t: jax.tree.map(lambda leaf: leaf, t),
    ],
    ids=["pickle", "pickle2", "deepcopy", "copy", "clone", "flatten", "map"],
)
def test_copies(thing, how):
    same(how(thing), thing)


def test_clone_is_refused_as_an_estimator():
    with pytest.raises(TypeError, match="does not seem to be a scikit-learn estimator"):
        clone(toy(1.0))


def test_tree_map_changes_the_numbers_alone():
    doubled = jax.tree.map(lambda leaf: 2 * leaf, toy(1.5, count=7, name="x"))
    assert repr(doubled) == "toy(3.0, count=7, rate=1.0, name='x')"
    assert structure(doubled) == structure(toy(1.0, count=7, name="x"))


def test_a_tree_of_placeholders_is_never_looked_at():
    """jax.tree.map may put anything where numbers were, for in_axes and the like."""
    for leaf in (None, 0, "axis", object()):
        again = jax.tree.unflatten(structure(toy(1.0)), [leaf] * 3)
        assert isinstance(again, Recipe)


def fresh(code, *, path=None, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **({"PYTHONPATH": str(path)} if path else {}), **env},
    )


@pytest.mark.long
def test_pickles_are_read_in_a_fresh_process(tmp_path):
    """Recipes of the package, and of a module of the user's own that the reader has not imported
    yet."""
    (tmp_path / "mine.py").write_text(
        textwrap.dedent(
            """
            import jaxsvm

            @jaxsvm.solver
            def own_method(lam, *, count=3):
                return jaxsvm.pegasos(lam).make()
            """
        )
    )
    file = tmp_path / "things.pickle"
    own = jaxsvm.averaged(
        jaxsvm.sdca(2, kernels.rbf(0.5) + kernels.linear(), loss=losses.squared_hinge), start=3
    )
    file.write_bytes(pickle.dumps(own))
    read = f"""
        import pickle
        print(repr(pickle.load(open({str(file)!r}, "rb"))))
    """
    assert fresh(read).stdout.strip() == repr(own)

    write = f"""
        import pickle, mine
        pickle.dump(mine.own_method(0.5, count=4), open({str(file)!r}, "wb"))
    """
    written = fresh(write, path=tmp_path)
    assert written.returncode == 0, written.stderr
    answer = fresh(read, path=tmp_path)
    assert answer.stdout.strip() == "own_method(0.5, count=4)", answer.stderr


# Checks of numbers


@pytest.mark.parametrize("value", [1.0, 2, np.float32(0.5), jnp.ones(())])
def test_positive_takes_positive_numbers(value):
    assert check_positive(lam=value) is None


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (0.0, "0"),
        (-1.5, "-1.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (jnp.float32(-2), "-2"),
    ],
)
def test_positive_says_what_came(value, came):
    with pytest.raises(ValueError, match=f"^lam must be a finite number above 0, got {came}$"):
        check_positive(lam=value)


@pytest.mark.parametrize(
    "value", [jnp.float32(1e-39), np.float32(1e-45), np.array(1e-40, np.float32)]
)
def test_arrays_of_a_subnormal_number_are_refused(value):
    """XLA takes it for 0, and a machine of C = 0 says that it converged."""
    with pytest.raises(
        ValueError, match="^C must be a finite number of at least 1.18e-38, got .*e-"
    ):
        check_positive(C=value)
    check_positive(
        C=jnp.float32(1.2e-38), width=jnp.float16(1e-7), lam=1e-39
    )  # Python's are of no dtype yet


ROWS = jaxsvm.dataset(np.linspace(-1, 1, 40)[:, None], np.where(np.arange(40) < 30, -1, 1))
SUBNORMAL = {
    "C": lambda: jaxsvm.decomposition(1e-38, kernels.rbf(1.0)),
    "lam": lambda: jaxsvm.newton(1e-39),
    "gamma": lambda: jaxsvm.decomposition(1.0, kernels.rbf(gamma=1e-40)),
    "dual": lambda: jaxsvm.sdca(1e-41),
}


@pytest.mark.parametrize("name", SUBNORMAL)
def test_runs_of_a_subnormal_number_are_refused(name):
    with pytest.raises(
        ValueError,
        match="numbers must be 0 or from 1.18e-38 to 3.4e.38 in size for float32, got 1e-",
    ):
        jaxsvm.fit(SUBNORMAL[name](), ROWS, jax.random.key(0))


def test_the_least_normal_C_answers_as_the_majority():
    run = jaxsvm.fit(jaxsvm.decomposition(1.2e-38, kernels.rbf(1.0)), ROWS, jax.random.key(0))
    assert run.converged and (run.model(ROWS.x) == -1).all()


def test_positive_checks_every_number_and_its_shape():
    with pytest.raises(ValueError, match="^b must be a finite number above 0, got 0$"):
        check_positive(a=1.0, b=0.0)
    with pytest.raises(
        ValueError, match=r"^b has shape \(2, 3\); sweep it with jax\.vmap or jaxsvm\.sweep$"
    ):
        check_positive(a=1.0, b=jnp.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^b has shape \(2,\)"):
        check_scalars(a=1.0, b=[1.0, 2.0])


def test_positive_lets_traced_numbers_pass():
    assert float(jax.jit(lambda lam: check_positive(lam=lam) or 2 * lam)(-1.0)) == -2.0
    with pytest.raises(ValueError, match=r"lam has shape \(3,\)"):
        jax.jit(lambda lam: check_positive(lam=lam) or lam)(jnp.ones(3))


def test_choice():
    assert check_choice("bias", "free", ("none", "free")) is None
    with pytest.raises(ValueError, match="^bias must be one of 'none', 'free', got 'yes'$"):
        check_choice("bias", "yes", ("none", "free"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: jaxsvm.pegasos(0.0).init, "lam must be a finite number above 0, got 0"),
        (
            lambda: jaxsvm.pegasos(0.1, bias="yes").init,
            "bias must be one of 'none', 'feature', 'free', got 'yes'",
        ),
        (lambda: jaxsvm.sdca(-1).init, "C must be a finite number above 0, got -1"),
        (
            lambda: kernels.rbf(0.0).diag(jnp.ones((1, 1))),
            "sigma must be a finite number above 0, got 0",
        ),
        (lambda: kernels.rbf().diag(jnp.ones((1, 1))), "rbf takes sigma or gamma"),
        (
            lambda: kernels.polynomial(degree=-1).diag(jnp.ones((1, 1))),
            "degree must be a whole number of at least 0, got -1",
        ),
        (
            lambda: samplers.uniform(0).init,
            "batch_size must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_factories_check_their_arguments(made, message):
    with pytest.raises(ValueError, match=message):
        made()


# Names


def test_register_and_clash(registry):
    def one(x, z):
        return x

    def other(x, z):
        return z

    assert recipe.register("tests.one", one) is one
    assert recipe.registered_name(one) == "tests.one"
    assert recipe.registered_name(other) is None
    assert recipe.register("tests.one", one) is one, "the same again is no clash"
    with pytest.raises(
        ValueError,
        match=r"the name 'tests\.one' is taken by .*one.*; register .*other.* under another name",
    ):
        recipe.register("tests.one", other)
    assert registry["tests.one"] is one


def test_register_as_a_decorator(registry):
    @recipe.register("tests.Decorated")
    class Decorated:
        pass

    assert registry["tests.Decorated"] is Decorated
    with pytest.raises(ValueError, match="is taken by"):
        recipe.register("tests.Decorated")(dict)


def test_a_module_read_again_takes_its_names_over(registry):
    def make():
        def rule(x):
            return x

        return rule

    first, second = make(), make()
    recipe.register("tests.rule", first)
    recipe.register("tests.rule", second)
    assert registry["tests.rule"] is second


def test_factories_are_registered_by_module_and_name():
    assert recipe.registered_name(jaxsvm.pegasos) == "solvers.pegasos"
    assert recipe.registered_name(kernels.rbf) == "kernels.rbf"

    @jaxsvm.solver
    def local(lam):
        return toy(lam).make()

    assert recipe.registered_name(local) is None, (
        "a function within a function has no name of its own"
    )
    assert repr(local(1)) == "local(1.0)"


def test_struct_is_a_frozen_registered_pytree(registry):
    @jaxsvm.struct
    class TestsPair:
        a: jax.Array
        name: str = jaxsvm.static(default="x")

    pair = TestsPair(jnp.ones(2))
    assert len(jax.tree.leaves(pair)) == 1 and registry["TestsPair"] is TestsPair
    assert structure(pair) != structure(TestsPair(jnp.ones(2), "y"))
    with pytest.raises(AttributeError):
        pair.a = 1


# Static objects and casting


def test_fixed_and_freed():
    plain = Solver(len, len, len)
    assert jax.tree.leaves(as_static(plain)) == [] and unwrap_static(as_static(plain)) == plain
    kept = toy(1.0)
    assert as_static(kept) is kept and unwrap_static(kept) is kept


def test_cast_makes_strong_numbers_and_leaves_the_rest():
    tree = {
        "a": 0.5,
        "n": 3,
        "i": jnp.arange(2),
        "k": jax.random.key(0),
        "f": jnp.ones(2, jnp.bfloat16),
        "b": True,
    }
    done = cast(tree, jnp.float32)
    assert done["a"].dtype == jnp.float32 and not jnp.asarray(done["a"]).weak_type
    assert (
        done["n"] == 3 and done["b"] is True and done["i"] is tree["i"] and done["k"] is tree["k"]
    )
    assert done["f"].dtype == jnp.float32


def test_cast_narrows_float64(x64):
    assert cast(toy(jnp.float64(0.1)), jnp.float32).numbers[0].dtype == jnp.float32
    assert cast(toy(0.1), jnp.float64).numbers[0].dtype == jnp.float64


# What is refused where it is written


@jaxsvm.solver
def plain_sgd(lam, *, loss=losses.hinge):
    """The README's example: nothing in it looks at lam."""
    tx = optax.chain(
        optax.add_decayed_weights(lam),
        optax.scale_by_learning_rate(jaxsvm.schedules.inverse_sqrt(1.0)),
    )
    return jaxsvm.gradient(loss, tx)


@jaxsvm.solver
def weighted(
    lam: float, costs: jax.Array, *, start: "jax.Array | None" = None, rate: float | None = None
) -> Solver:
    """A factory that takes arrays where it says so."""
    return jaxsvm.pegasos(lam).make()


TWO_COLUMNS = jaxsvm.dataset([[1.0, 2.0], [-1.0, 1.0]], [1, -1])


@pytest.mark.long
def test_a_vector_is_refused_by_the_recipe_itself():
    """The two numbers were taken for one a column, and trained."""
    with pytest.raises(
        ValueError, match=r"^lam has shape \(2,\); sweep it with jax\.vmap or jaxsvm\.sweep$"
    ):
        jaxsvm.fit(plain_sgd(jnp.array([0.1, 0.2])), TWO_COLUMNS, jax.random.key(0), steps=2)
    run = lambda solver: jaxsvm.fit(solver, TWO_COLUMNS, jax.random.key(0), steps=2).model.w
    assert jax.vmap(run)(plain_sgd(jnp.array([0.1, 0.2]))).shape == (2, 2), (
        "a sweep, made before vmap"
    )
    assert jax.vmap(lambda lam: run(plain_sgd(lam)))(jnp.array([0.1, 0.2])).shape == (2, 2)


def test_a_parameter_takes_arrays_where_its_annotation_says_so():
    assert weighted(0.1, jnp.ones(3), start=np.ones(2), rate=None).residual_of == "batch"
    with pytest.raises(ValueError, match=r"^lam has shape \(3,\)"):
        _ = weighted(jnp.ones(3), jnp.ones(3)).needs_all_rows
    with pytest.raises(ValueError, match=r"^rate has shape \(3,\)"):
        _ = weighted(0.1, jnp.ones(3), rate=jnp.ones(3)).needs_all_rows


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: jaxsvm.pegasos(-1.0), "lam must be a finite number above 0, got -1"),
        (lambda: jaxsvm.pegasos(jnp.float32(0)), "lam must be a finite number above 0, got 0"),
        (lambda: jaxsvm.pegasos(np.nan), "lam must be a finite number above 0, got nan"),
        (lambda: kernels.rbf(-1), "sigma must be a finite number above 0, got -1"),
        (lambda: kernels.rbf(), "rbf takes sigma or gamma"),
        (lambda: losses.smooth_hinge(0), "width must be a finite number above 0, got 0"),
        (lambda: samplers.uniform(0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda: jaxsvm.pegasos(0.1, bias="yes"), "bias must be one of"),
        (lambda: jaxsvm.bsgd(0.1, kernels.rbf(1.0), budget=1), "budget must be"),
        (lambda: weighted(-1.0, 2.0), "lam must be a finite number above 0, got -1"),
        (
            lambda: jaxsvm.pegasos(10**400),
            "lam is no number that a float can hold: an integer of 1329 bits",
        ),
        (lambda: plain_sgd(Fraction(10**400)), "lam is no number that a float can hold"),
    ],
)
def test_numbers_out_of_range_are_refused_where_they_are_written(made, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        made()


@pytest.mark.parametrize("wrong", ["0.1", b"0.1", 1j, np.array("0.1"), np.complex64(1)])
@pytest.mark.parametrize(
    "factory",
    [jaxsvm.sdca, plain_sgd, kernels.rbf, losses.pinball, lambda v: jaxsvm.asgd(0.1, bias_rate=v)],
)
def test_what_is_no_number_is_refused(factory, wrong):
    with pytest.raises(TypeError, match=r"^(C|lam|sigma|tau|bias_rate) must be a number, got "):
        factory(wrong)


@pytest.mark.parametrize(
    "wrong", [None, True, [0.1], {}, jaxsvm.pegasos, object(), kernels.linear()]
)
def test_what_is_no_number_is_refused_where_the_signature_says_so(wrong):
    with pytest.raises(
        TypeError, match=r"^lam (must be a number, got|is the factory pegasos itself)"
    ):
        jaxsvm.pegasos(wrong)


@pytest.mark.parametrize(
    "number", [Fraction(1, 4), Decimal("0.25"), np.float16(0.25), np.longdouble(0.25)]
)
def test_numbers_of_other_libraries_are_floats(number):
    assert jax.tree.leaves(jaxsvm.pegasos(number)) == [0.25]
    assert jax.tree.leaves(plain_sgd(number)) == [0.25]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: jaxsvm.pegasos(0.1, loss="hinge"),
            r"loss must be a loss such as jaxsvm\.losses\.hinge, got 'hinge'",
        ),
        (
            lambda: jaxsvm.pegasos(0.1, loss=losses.smooth_hinge),
            r"loss is the factory smooth_hinge itself: call it",
        ),
        (lambda: jaxsvm.pegasos(0.1, loss=0.1), "loss must be a loss"),
        (lambda: jaxsvm.sdca(1.0, start="alpha"), "start must be an array of numbers, got 'alpha'"),
        (
            lambda: jaxsvm.sdca(1.0, start={"a": 1.0}),
            "start must be an array of numbers, got {'a': 1.0}",
        ),
        (lambda: jaxsvm.pegasos(0.1, project="no"), "project must be True or False, got 'no'"),
        (
            lambda: jaxsvm.sdca(1.0, kernels.rbf),
            r"kernel is the factory rbf itself: call it, rbf\(\.\.\.\)",
        ),
        (lambda: kernels.linear() + kernels.rbf, "the factory rbf itself"),
        (lambda: jaxsvm.averaged(jaxsvm.pegasos), "inner is the factory pegasos itself"),
        (lambda: jaxsvm.averaged(0.1), "inner must be a solver such as"),
        (lambda: jaxsvm.one_vs_rest(kernels.linear(), classes=3), "inner must be a solver such as"),
        (
            lambda: jaxsvm.on_features(np.ones((2, 2)), jaxsvm.pegasos(0.1)),
            "phi must be a function, got an array of float64",
        ),
    ],
)
def test_things_of_another_kind_are_refused(made, message):
    with pytest.raises(TypeError, match=message):
        made()


def test_numbers_that_are_not_known_are_not_tried():
    assert jax.tree.leaves(jaxsvm.pegasos(jax.ShapeDtypeStruct((), jnp.float32)))[0].shape == ()
    jax.jit(lambda lam: jaxsvm.pegasos(lam) and lam)(-1.0)
    assert jaxsvm.pegasos(-jnp.ones(2)) is not None
    bad = jax.tree.map(lambda leaf: -leaf, jaxsvm.sdca(1.0, kernels.rbf(2.0)))
    for again in (pickle.loads(pickle.dumps(bad)), copy.deepcopy(bad), copy.copy(bad)):
        assert jax.tree.leaves(again) == [-1.0, -2.0], "copies are not tried"
    with pytest.raises(ValueError, match="C must be a finite number above 0, got -1"):
        _ = bad.init


@pytest.mark.long
def test_a_trial_neither_starts_jax_nor_compiles():
    answer = fresh(
        """
        import jax, jaxsvm
        from jax._src import xla_bridge
        from jaxsvm import kernels, losses, samplers
        kernel = 0.5 * kernels.rbf(1.0) + kernels.laplacian(2.0) * kernels.polynomial(2)
        solvers = [
            jaxsvm.averaged(jaxsvm.bottou_sgd(0.1)),
            jaxsvm.decomposition(1.0, kernel),
            jaxsvm.asgd(0.1),
            jaxsvm.scs(0.1, kernel, capacity=4),
            jaxsvm.bsgd(0.1, kernels.rbf(1.0), budget=4),
        ]
        for solver in solvers:
            jaxsvm.one_vs_rest(solver, classes=3)
        try:
            jaxsvm.pegasos(-1.0)
        except ValueError as error:
            print(error)
        print(xla_bridge.backends_are_initialized())
        """
    )
    assert answer.stdout.splitlines() == ["lam must be a finite number above 0, got -1", "False"], (
        answer.stderr
    )


def test_a_factory_that_asks_for_values_is_not_refused_by_the_trial():
    @jaxsvm.solver
    def asking(lam):
        if jnp.sqrt(lam) > 0.5:
            return jaxsvm.pegasos(lam).make()
        return jaxsvm.asgd(np.asarray(jnp.asarray(lam))[()]).make()

    assert asking(1.0).residual_of == asking(0.1).residual_of == "batch"


def test_what_a_factory_calls_is_tried_with_it():
    @jaxsvm.solver
    def outer(C):
        inner = jaxsvm.sdca(-C)
        return Solver(lambda key, data: inner.init(key, data), None, None)

    with pytest.raises(ValueError, match="C must be a finite number above 0, got -1"):
        outer(1.0)


def test_an_annotation_with_brackets_is_read():
    @jaxsvm.solver
    def scheduled(
        lam: float,
        *,
        weights: Callable[[jax.Array], jax.Array] | None = None,
        parts: "dict[str, int | None]" = None,
    ):
        return jaxsvm.pegasos(lam).make()

    assert scheduled(0.1, weights=jnp.sin).targets == scheduled(0.1, parts={"a": 1}).targets
    with pytest.raises(TypeError, match="weights must be a function, got 3"):
        scheduled(0.1, weights=3)


@pytest.mark.parametrize("much", [2**31, 2**63, 10**400])
def test_counts_fit_in_32_bits(much):
    for made in (
        lambda: jaxsvm.forgetron(kernels.rbf(1.0), budget=much),
        lambda: jaxsvm.scs(0.1, capacity=much),
        lambda: samplers.uniform(much),
        lambda: jaxsvm.asset(0.1, average_from=much),
    ):
        with pytest.raises(ValueError, match=r"2147483647|is too large: an integer of"):
            made()


@pytest.mark.parametrize("much", [2**31, 2**63, 10**30])
def test_where_any_number_is_expected_large_integers_are_floats(much):
    kernel = kernels.rbf(1.0)
    one, other = (
        jaxsvm.nu_svr(nu=0.3, C=1.0, working_set=8, kernel=kernel, tol=tol)
        for tol in (much, float(much))
    )
    assert one.numbers == other.numbers


def test_words_and_lists_of_other_libraries_are_taken():
    assert jaxsvm.pegasos(0.1, bias=np.str_("free")).spec == jaxsvm.pegasos(0.1, bias="free").spec
    assert [np.shape(number) for number in jaxsvm.sdca(1.0, start=[0.1, 0.2]).numbers] == [(), (2,)]
    with pytest.raises(TypeError, match="start must be an array of numbers"):
        jaxsvm.sdca(1.0, start=[[0.1], [0.2, 0.3]])


def test_steps_that_are_not_above_0_are_refused():
    for made in (jaxsvm.schedules.inverse_time, jaxsvm.schedules.inverse_sqrt):
        with pytest.raises(ValueError, match="scale must be a finite number above 0, got 0"):
            made(0.0)


@pytest.mark.long  # without JAX's caches
def test_a_factory_leaves_no_tracer_of_its_trial():
    with jax.checking_leaks():
        jaxsvm.pegasos(0.0123)
        jaxsvm.averaged(jaxsvm.bottou_sgd(0.0123))


NESTED = {
    "on_features": (jaxsvm.pegasos(0.1), lambda s: jaxsvm.on_features(jnp.sin, s)),
    "one_vs_rest": (jaxsvm.pegasos(0.1), lambda s: jaxsvm.one_vs_rest(s, classes=3)),
    "one_vs_one": (jaxsvm.pegasos(0.1), lambda s: jaxsvm.one_vs_one(s, classes=3)),
    "averaged": (jaxsvm.pegasos(0.1), jaxsvm.averaged),
    "spaces.with_constant": (jaxsvm.spaces.linear(), jaxsvm.spaces.with_constant),
    "spaces.averaged": (jaxsvm.spaces.linear(), jaxsvm.spaces.averaged),
}


@pytest.mark.parametrize("name", NESTED)
def test_each_call_in_a_nest_is_made_once(name, monkeypatch):
    calls, call = [], recipe.Recipe.call
    monkeypatch.setattr(recipe.Recipe, "call", lambda self: calls.append(self) or call(self))
    nest, wrap = NESTED[name]
    for _ in range(4):
        nest = wrap(nest)
    for use in (nest.make, nest.__repr__):
        calls.clear()
        use()
        assert len(calls) <= 8


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: jaxsvm.pegasos(C=1.0), r"^pegasos\(lam, .*\): missing a required argument: 'lam'"),
        (lambda: jaxsvm.pegasos(1.0, 2.0), r"^pegasos\(lam, .*\): too many positional arguments"),
        (
            lambda: jaxsvm.sdca(1.0, kern=None),
            r"^sdca\(C, .*\): got an unexpected keyword argument 'kern'",
        ),
    ],
)
def test_wrong_arguments_name_the_factory(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_loss_without_dual_step_is_none_for_dual_ascent():
    hinge = jaxsvm.losses.hinge.make()
    loss = jaxsvm.Loss(lambda s, y: hinge.value(s, y), lambda s, y: hinge.slope(s, y), None, None)
    with pytest.raises(ValueError, match="has no dual_step: give it one, or take pegasos"):
        jaxsvm.sdca(1.0, loss=loss)
    jaxsvm.pegasos(0.1, loss=loss)
