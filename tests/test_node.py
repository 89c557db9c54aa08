"""Nodes: what is a leaf, what is structure, what is refused, and what a node survives."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import KW_ONLY
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import _node, kernels, losses, samplers
from jaxsvm._node import cast, in_range


@jaxsvm.node
class toy(jaxsvm.Node):
    """A node with a field of each kind."""

    lam: float = jaxsvm.positive()
    shift: float = 0.0
    _: KW_ONLY
    count: int = 3
    rate: float | None = jaxsvm.between(0.0, 1.0, default=None)
    flag: bool = True
    name: Literal["plain", "other"] = "plain"
    fn: Callable | None = None
    start: jax.Array | None = None
    inner: jaxsvm.Solver | None = None
    sizes: tuple = jaxsvm.static(default=())


def structure(tree):
    return jax.tree.structure(tree)


def paths(thing):
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(thing)]


# Leaves and structure


@pytest.mark.parametrize(
    "number",
    [2, np.int64(2), np.float32(2), np.array(2), Fraction(2), Decimal(2), np.longdouble(2)],
)
def test_numbers_of_every_kind_are_floats(number):
    assert jax.tree.leaves(toy(number)) == [2.0, 0.0] and type(toy(number).lam) is float
    assert structure(toy(number)) == structure(toy(3.5, -1))


def test_arrays_are_leaves_as_they_are():
    array, count = jnp.ones(()), jnp.ones((), jnp.int32)
    assert toy(array).lam is array
    assert toy(count).lam.dtype == jnp.float32
    assert toy(1.0, start=[1, 2]).start.shape == (2,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"flag": True}, {"flag": False}),
        ({"flag": np.bool_(True)}, {"flag": np.bool_(False)}),
        ({"name": np.str_("plain")}, {"name": "other"}),
        ({"fn": jnp.sin}, {"fn": jnp.cos}),
        ({"count": np.int32(7)}, {"count": 8}),
        ({"sizes": (1, 2)}, {"sizes": (1, 3)}),
        ({"rate": 0.5}, {}),
    ],
)
def test_all_else_is_structure(one, other):
    assert structure(toy(1.0, **one)) == structure(toy(2.0, **one))
    assert structure(toy(1.0, **one)) != structure(toy(1.0, **other))
    assert hash(structure(toy(1.0, **one))) == hash(structure(toy(2.0, **one)))
    assert toy(1.0, **one) != toy(1.0, **other)


def test_nodes_in_nodes_have_their_leaves_by_name():
    machine = jaxsvm.sdca(2, kernels.rbf(3) + 4 * kernels.linear())
    assert paths(toy(1.0, inner=machine))[0] == ".lam"
    assert paths(jaxsvm.averaged(jaxsvm.pegasos(0.1))) == [".inner.lam"]
    assert paths({"a": jaxsvm.decomposition(2.0, kernels.rbf(1.5))})[:2] == [
        "['a'].C",
        "['a'].kernel.sigma",
    ]
    assert sorted(jax.tree.leaves(machine)) == [2.0, 3.0, 4.0]
    again = jaxsvm.sdca(5.0, kernels.rbf(1.0) + 2.0 * kernels.linear())
    assert structure(machine) == structure(again)
    other = jaxsvm.sdca(2, kernels.laplacian(3) + 4 * kernels.linear())
    assert structure(machine) != structure(other)


def test_a_class_that_is_no_node_is_refused():
    class half(jaxsvm.Solver):
        lam: float = 1.0

    with pytest.raises(TypeError):
        half(2.0)


# One compilation, vmap and grad


def test_one_compilation_for_all_numbers():
    traced = []

    @jax.jit
    def run(node):
        traced.append(None)
        return node.lam + node.shift

    assert [float(run(toy(lam))) for lam in (1, 2.5, np.float32(3))] == [1.0, 2.5, 3.0]
    assert len(traced) == 1
    run(toy(1.0, count=9))
    assert len(traced) == 2, "another choice is another program"


def test_vmap_over_a_class_makes_a_batch():
    lams = jnp.array([0.5, 1.0, 4.0])
    batch = jax.vmap(toy)(lams)
    assert batch.lam.shape == (3,)
    np.testing.assert_array_equal(jax.vmap(lambda node: 2 * node.lam)(batch), 2 * lams)
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    first = lambda solver: solver.update(solver.init(jax.random.key(0), data), data)[0]
    run = jax.jit(lambda solver: solver.model(first(solver)).w)
    np.testing.assert_allclose(
        jax.vmap(run)(jax.vmap(jaxsvm.pegasos)(lams)),
        [run(jaxsvm.pegasos(lam)) for lam in lams],
        rtol=1e-6,
    )


def test_grad_reaches_the_leaves():
    gradient = jax.grad(lambda node: node.lam**2 * (node.shift + 1))(toy(2.0))
    assert isinstance(gradient, toy) and jax.tree.leaves(gradient) == [4.0, 4.0]


# As values


MADE = {
    "toy": lambda: toy(0.25, count=4, fn=structure, start=np.ones(2)),
    "pegasos": lambda: jaxsvm.pegasos(0.125, loss=losses.squared_hinge, bias="free"),
    "decomposition": lambda: jaxsvm.decomposition(2.0, kernels.rbf(sigma=1.5)),
    "averaged": lambda: jaxsvm.averaged(jaxsvm.pegasos(0.125), start=3),
    "rest": lambda: jaxsvm.one_vs_rest(jaxsvm.sdca(1.0, loss=losses.smooth_hinge(0.5)), classes=3),
    "sum": lambda: 0.5 * kernels.rbf(1.0) + kernels.polynomial(degree=2) * kernels.linear(),
    "array": lambda: kernels.rbf(gamma=jnp.array([1.0, 2.0])),
    "sampler": lambda: samplers.epochs(4, shuffle=False),
    "loss": lambda: losses.pinball(0.25),
    "hinge": lambda: losses.hinge,
}
COPIES = {
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "pickle2": lambda t: pickle.loads(pickle.dumps(t, protocol=2)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "flatten": lambda t: jax.tree.unflatten(*reversed(jax.tree.flatten(t))),
    "map": lambda t: jax.tree.map(lambda leaf: leaf, t),
    "arrays": lambda t: jax.tree.map(jnp.asarray, t),
}


@pytest.mark.parametrize("kind", MADE)
def test_equal_nodes_are_equal_and_so_are_copies(kind):
    one, other = MADE[kind](), MADE[kind]()
    assert one == other and not one != other and hash(one) == hash(other)
    assert {one: "seen"}[other] == "seen" and structure(one) == structure(other)
    for how, copied in COPIES.items():
        again = copied(one)
        assert type(again) is type(one) and again == one, how
        assert how == "arrays" or repr(again) == repr(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.pegasos(0.2)),
        (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.pegasos(0.1, bias="feature")),
        (lambda: jaxsvm.pegasos(0.1), lambda: jaxsvm.bottou_sgd(0.1)),
        (lambda: kernels.rbf(1.0), lambda: kernels.laplacian(1.0)),
        (lambda: kernels.rbf(gamma=jnp.ones(2)), lambda: kernels.rbf(gamma=jnp.ones(3))),
        (lambda: samplers.epochs(1), lambda: samplers.epochs(2)),
    ],
)
def test_other_nodes_are_not(one, other):
    assert one() != other() and one() != "pegasos(0.1)" and one() is not None


def test_numbers_that_are_not_known_are_equal_to_themselves_only():
    seen = []

    def fn(lam):
        seen.extend([toy(lam) == toy(lam), toy(lam) == toy(0.1)])
        return lam

    jax.jit(fn)(0.1)
    assert seen == [True, False]


def test_replace_takes_what_a_node_inside_has():
    rest = jaxsvm.one_vs_rest(jaxsvm.newton(0.1), classes=3)
    assert rest.replace(tol=0.25) == jaxsvm.one_vs_rest(jaxsvm.newton(0.1, tol=0.25), classes=3)
    assert rest.replace(classes=2, lam=1).targets == 2
    with pytest.raises(TypeError, match="one_vs_rest: no field takes width"):
        rest.replace(width=3)
    with pytest.raises(ValueError, match="lam must be a finite number above 0, got -1"):
        rest.replace(lam=-1)
    with pytest.raises(AttributeError):
        rest.classes = 4


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (toy(0.1), "toy(0.1)"),
        (toy(1), "toy(1.0)"),
        (toy(0.1, 2.0, count=4), "toy(0.1, 2.0, count=4)"),
        (toy(0.1, rate=1, name="other"), "toy(0.1, rate=1.0, name='other')"),
        (toy(jnp.float32(0.5)), "toy(0.5)"),
        (toy(0.1, start=np.ones(2, "f")), "toy(0.1, start=float32[2])"),
        (jaxsvm.pegasos(1e-3, project=False), "pegasos(0.001, project=False)"),
        (jaxsvm.sdca(1.0, kernels.rbf(gamma=0.5)), "sdca(1.0, rbf(gamma=0.5))"),
        (jaxsvm.averaged(jaxsvm.pegasos(0.5), start=3), "averaged(pegasos(0.5), start=3)"),
        (kernels.polynomial(2, 0.0, degree=2), "polynomial(2.0, 0.0, degree=2)"),
        (kernels.polynomial(1.0, 0.0), "polynomial(coef0=0.0)"),
        (samplers.uniform(4, replace=False), "uniform(4, False)"),
        (samplers.whole(), "whole()"),
    ],
)
def test_repr_is_the_call(thing, shown):
    assert repr(thing) == shown
    names = {**vars(jaxsvm), **vars(kernels), **vars(samplers), "toy": toy}
    if "float32" not in shown:
        assert eval(shown, names) == thing  # noqa: S307


def test_repr_within_a_transformation():
    shown = []
    jax.jit(lambda node: shown.append(repr(node)) or 0)(toy(0.5))
    assert shown == ["toy(float32[], float32[])"]


def test_a_tree_of_placeholders_is_never_looked_at():
    """JAX puts axes, specs and None in the places of numbers."""
    for leaf in (None, "spec", object(), -1.0):
        tree = jax.tree.unflatten(structure(toy(1.0)), [leaf] * 2)
        assert isinstance(tree, toy) and tree.lam is leaf


@pytest.mark.long
def test_pickles_are_read_in_a_fresh_process(tmp_path):
    """Nodes of the package, and of a module of the user's own that is not imported yet."""
    (tmp_path / "mine.py").write_text(
        "import jaxsvm\n@jaxsvm.node\nclass own(jaxsvm.Loss):\n    width: float = 1.0\n"
        "    value = slope = lambda self, f, y: f - y\n"
    )
    write = "import mine, pickle, sys; pickle.dump(mine.own(0.5), open(sys.argv[1], 'wb'))"
    read = "import pickle, sys; print(repr(pickle.load(open(sys.argv[1], 'rb'))))"
    file = str(tmp_path / "things.pickle")
    kept = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = lambda code: subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), file],
        capture_output=True, text=True, env=kept, check=True,
    )  # fmt: skip
    run(write)
    assert run(read).stdout == "own(0.5)\n"
    with open(file, "wb") as stream:
        pickle.dump(MADE["averaged"](), stream)
    assert run(read).stdout == repr(MADE["averaged"]()) + "\n"


# What is refused where it is written


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: toy(-1.0), "lam must be a finite number above 0, got -1"),
        (lambda: toy(jnp.float32(0)), "lam must be a finite number above 0, got 0"),
        (lambda: toy(np.nan), "lam must be a finite number above 0, got nan"),
        (lambda: jaxsvm.pegasos(-1), "lam must be a finite number above 0, got -1"),
        (lambda: toy(np.inf), "lam must be a finite number above 0, got inf"),
        (lambda: toy(1.0, rate=2), "rate must be a finite number of at least 0 and at most 1"),
        (lambda: toy(jnp.ones(8)), r"lam has shape \(8,\); sweep it with jax\.vmap or"),
        (lambda: toy(10**400), "lam is no number that a float can hold: an integer of 1329 bits"),
        (lambda: toy(Fraction(10**400)), "lam is no number that a float can hold"),
        (lambda: toy(1.0, name="x"), "name must be one of 'plain', 'other', got 'x'"),
        (lambda: toy(1.0, name=True), "name must be one of"),
        (lambda: toy(1.0, count=2.5), "count must be a whole number, got 2.5"),
        (lambda: toy(1.0, count=True), "count must be a whole number, got True"),
        (lambda: kernels.rbf(), "rbf takes sigma or gamma"),
        (lambda: losses.smooth_hinge(0), "width must be a finite number above 0, got 0"),
        (lambda: samplers.uniform(0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda: jaxsvm.bsgd(0.1, kernels.rbf(1.0), budget=1), "budget must be"),
        (lambda: kernels.polynomial(degree=-1), "degree must be a whole number of at least 0"),
    ],
)
def test_values_out_of_range_are_refused(made, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        made()


@pytest.mark.parametrize(
    "wrong",
    ["0.1", b"0.1", 1j, np.array("0.1"), np.complex64(1), None, True, [0.1], {}, object],
    ids=repr,
)
@pytest.mark.parametrize(
    "made", [toy, jaxsvm.sdca, kernels.rbf, losses.pinball, lambda v: jaxsvm.asgd(0.1, bias_rate=v)]
)
def test_what_is_no_number_is_refused(made, wrong):
    if wrong is None and made is kernels.rbf:
        return  # gamma may be given in its place
    with pytest.raises(
        (TypeError, ValueError), match="^(C|lam|sigma|tau|bias_rate) (must be a number|has shape)"
    ):
        made(wrong)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: toy(1.0, flag="no"), "flag must be True or False, got 'no'"),
        (lambda: toy(1.0, fn=3), "fn must be a function, got 3"),
        (lambda: toy(1.0, start="alpha"), "start must be an array of numbers, got 'alpha'"),
        (lambda: toy(1.0, start=[[0.1], [0.2, 0.3]]), "start must be an array of numbers"),
        (lambda: toy(1.0, inner=0.1), r"inner must be a solver such as jaxsvm\.pegasos\(1e-3\)"),
        (
            lambda: toy(1.0, inner=jaxsvm.pegasos),
            r"inner is the factory pegasos itself: call it, pegasos\(",
        ),
        (
            lambda: jaxsvm.pegasos(0.1, loss="hinge"),
            r"loss must be a loss such as jaxsvm\.losses\.hinge, got 'hinge'",
        ),
        (
            lambda: jaxsvm.pegasos(0.1, loss=losses.smooth_hinge),
            "loss is the factory smooth_hinge itself",
        ),
        (lambda: jaxsvm.pegasos(0.1, loss=losses.rank_hinge), "couples rows: take a solver of"),
        (lambda: jaxsvm.sdca(1.0, kernels.rbf), r"rbf itself: call it, rbf\("),
        (lambda: kernels.linear() + kernels.rbf, "rbf itself"),
        (lambda: jaxsvm.one_vs_rest(kernels.linear(), classes=3), "inner must be a solver such as"),
        (
            lambda: jaxsvm.on_features(np.ones((2, 2)), jaxsvm.pegasos(0.1)),
            "phi must be a function, got an array of float64",
        ),
        (lambda: jaxsvm.pegasos(C=1.0), "pegasos.*'C'"),
        (lambda: jaxsvm.pegasos(), "pegasos.*missing.*'lam'"),
        (lambda: jaxsvm.pegasos(1.0, 2.0), "pegasos.*positional"),
    ],
)
def test_things_of_another_kind_are_refused(made, message):
    with pytest.raises(TypeError, match=message):
        made()


def test_a_loss_of_all_classes_and_one_without_dual_step_are_refused_with_advice():
    hinge = losses.hinge
    with pytest.raises(ValueError, match="needs a score of each class: take jaxsvm.ocas"):
        jaxsvm.pegasos(0.1, loss=losses.crammer_singer)
    loss = losses.custom(hinge.value, hinge.slope)
    with pytest.raises(ValueError, match="has no dual_step: give it one, or take pegasos"):
        jaxsvm.sdca(1.0, loss=loss)
    jaxsvm.pegasos(0.1, loss=loss)


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


# Numbers that are traced


def test_numbers_that_are_not_known_pass_and_are_judged_in_the_program():
    assert jax.tree.leaves(toy(jax.ShapeDtypeStruct((), jnp.float32)))[0].shape == ()
    held = jax.jit(jax.vmap(lambda lam: in_range(toy(lam, rate=0.5, inner=jaxsvm.pegasos(lam)))))
    numbers = jnp.array([jnp.nan, -1.0, 0.0, 1.0, jnp.inf])
    assert held(numbers).tolist() == [False, False, False, True, False]
    rates = jax.jit(jax.vmap(lambda rate: in_range(toy(1.0, rate=rate))))
    assert rates(jnp.array([-0.1, 0.0, 1.0, 1.1])).tolist() == [False, True, True, False]


ROWS = jaxsvm.dataset(np.linspace(-1, 1, 40)[:, None], np.where(np.arange(40) < 30, -1, 1))


@pytest.mark.parametrize(
    "solver",
    [
        lambda: jaxsvm.decomposition(1e-38, kernels.rbf(1.0)),
        lambda: jaxsvm.newton(1e-39),
        lambda: jaxsvm.decomposition(1.0, kernels.rbf(gamma=1e-40)),
        lambda: jaxsvm.sdca(1e-41),
    ],
)
def test_runs_of_a_subnormal_number_are_refused(solver):
    """XLA takes it for 0, and a machine of C = 0 says that it converged."""
    with pytest.raises(ValueError, match="numbers must be 0 or from 1.18e-38 to 3.4e.38 in size"):
        jaxsvm.fit(solver(), ROWS, jax.random.key(0))


@pytest.mark.long
def test_the_least_normal_C_answers_as_the_majority():
    run = jaxsvm.fit(jaxsvm.decomposition(1.2e-38, kernels.rbf(1.0)), ROWS, jax.random.key(0))
    assert run.converged and (run.model(ROWS.x) == -1).all()


def test_cast_makes_strong_numbers_and_leaves_the_rest():
    key, counts = jax.random.key(0), jnp.arange(2)
    tree = {"a": 0.5, "n": 3, "i": counts, "k": key, "f": jnp.ones(2, jnp.bfloat16), "b": True}
    done = cast(tree, jnp.float32)
    assert done["a"].dtype == jnp.float32 and not jnp.asarray(done["a"]).weak_type
    assert done["n"] == 3 and done["b"] is True and done["i"] is counts and done["k"] is key
    assert done["f"].dtype == jnp.float32
    assert cast(toy(0.1), jnp.float32).lam.dtype == jnp.float32


def test_cast_narrows_float64(x64):
    assert cast(toy(jnp.float64(0.1)), jnp.float32).lam.dtype == jnp.float32
    assert cast(toy(0.1), jnp.float64).lam.dtype == jnp.float64


# Names in files


def test_names_are_those_of_one_thing(registry):
    def one(x, z):
        return x

    assert jaxsvm.register("tests.one", one) is one is jaxsvm.register("tests.one", one)
    with pytest.raises(ValueError, match=r"the name 'tests\.one' is taken by .*one.*another"):
        jaxsvm.register("tests.one", len)
    assert registry["tests.one"] is one

    @jaxsvm.register("tests.Decorated")
    class Decorated:
        pass

    assert registry["tests.Decorated"] is Decorated


def test_nodes_are_registered_by_module_and_name():
    for name, thing in (
        ("solvers.pegasos", jaxsvm.pegasos),
        ("kernels.rbf", kernels.rbf),
        ("losses.hinge", type(losses.hinge)),
        ("samplers.epochs", samplers.epochs),
    ):
        assert _node.REGISTRY[name] is thing


def test_a_module_read_again_takes_its_names_over(registry):
    def make():
        @jaxsvm.node
        class mine(jaxsvm.Node):
            pass

        return mine

    first, second = make(), make()
    assert first is not second and registry[_node.name_in_files(second)] is second


def test_help_shows_the_formula():
    assert "w = (1 - 1/t) w" in jaxsvm.pegasos.__doc__
    assert jaxsvm.pegasos(0.1).__doc__ == jaxsvm.pegasos.__doc__
