"""Functions that close over traced values: derivatives, batches, refusals. Judged by differences of
scikit-learn's solutions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.implicit import solution
from jaxsvm.recipe import as_static, fields_of, unwrap_static

rng = np.random.default_rng(0)
X, NEW = rng.normal(size=(30, 3)), rng.normal(size=(20, 3))
Y = np.where(X[:, 0] + 0.5 * rng.normal(size=30) > 0, 1, -1)


def gauss(s, x, z):
    return jnp.exp(-s * kernels.sqdist(x, z))


@jax.tree_util.register_pytree_node_class
class Module:
    """A pytree as other libraries make them: an array and a function are its leaves."""

    def __init__(self, s, activation=jnp.tanh):
        self.s, self.activation = s, activation

    def tree_flatten(self):
        return (self.s, self.activation), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)

    def kernel(self, x, z):
        return gauss(self.s, x, z)

    def __call__(self, x):
        return self.activation(self.s * x)


class Settings:
    """An object that is no pytree."""

    def __init__(self, s):
        self.s = s

    def kernel(self, x, z):
        return gauss(self.s, x, z)

    def __call__(self, x, z):
        return gauss(self.s, x, z)


def of_default(s):
    def kernel(x, z, s=s):
        return gauss(s, x, z)

    return kernel


def of_containers(s):
    held = [{"value": lambda square: jnp.exp(-s * square)}]
    return lambda x, z: held[0]["value"](kernels.sqdist(x, z))


def of_itself(s):
    def kernel(x, z, depth=1):
        return kernel(x, z, depth - 1) if depth else gauss(s, x, z)

    return kernel


WAYS = {
    "cell": lambda s: lambda x, z: gauss(s, x, z),
    "partial": lambda s: functools.partial(gauss, s),
    "Partial of a closure": lambda s: jax.tree_util.Partial(
        lambda t, x, z: t * gauss(s, x, z), 1.0
    ),
    "default": of_default,
    "containers": of_containers,
    "method": lambda s: Module(s).kernel,
    "jitted": lambda s: jax.jit(lambda x, z: gauss(s, x, z)),
    "vectorised": lambda s: jax.vmap(
        jax.vmap(lambda a, b: jnp.exp(-s * jnp.sum((a - b) ** 2)), (None, 0)), (0, None)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_traced_values_in_functions_are_leaves(way):
    def leaves(s):
        solver = jaxsvm.smo(1.0, kernels.custom(WAYS[way](s)))
        assert any(leaf is s for leaf in jax.tree.leaves(solver))
        return s

    assert jax.jvp(leaves, (0.5,), (1.0,))[1] == 1


def test_functions_without_traced_values_stay_as_they_are():
    fn = lambda x, z: gauss(0.5, x, z)
    assert kernels.custom(fn).call()[1][0] is fn


def reference(s):
    square = lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1)
    model = SVC(kernel="precomputed", tol=1e-12).fit(np.exp(-s * square(X, X)), Y)
    return (model.decision_function(np.exp(-s * square(NEW, X))) ** 2).sum()


def difference(fn, h=2e-3):  # LIBSVM holds kernel values in float32
    return (fn(0.5 + h) - fn(0.5 - h)) / (2 * h)


def risk(solver, **options):
    run = jaxsvm.fit(solver, jaxsvm.dataset(X, Y), jax.random.key(0), **options)
    return jnp.sum(run.model(jnp.asarray(NEW)) ** 2)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_through_a_kernel_that_closes_over_a_number(way):
    of = lambda s: risk(jaxsvm.smo(1.0, WAYS[way](s)), steps=500)
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(of))(jnp.asarray(0.5))
    np.testing.assert_allclose([value, slope], [reference(0.5), difference(reference)], rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["decomposition", "lasvm"])
def test_other_solvers_jvp_and_vmap_through_a_closure(name):
    options = {"lasvm": {"steps": 300}}.get(name, {})
    of = lambda s: risk(getattr(jaxsvm, name)(1.0, lambda x, z: gauss(s, x, z)), **options)
    with jax.enable_x64(True):
        slope = jax.jacfwd(of)(jnp.asarray(0.5))
        batch = jax.vmap(of)(jnp.asarray([0.5, 0.7]))
    np.testing.assert_allclose(slope, difference(reference), rtol=1e-3)
    np.testing.assert_allclose(batch, [reference(0.5), reference(0.7)], rtol=1e-3)


def scaled_squared_hinge(s):
    """`losses.squared_hinge` times s, by hand."""
    above = lambda f, y: jnp.maximum(0, 1 - y * f)
    part = lambda u, y: -u * y
    return jaxsvm.types.Loss(
        lambda f, y: s * above(f, y) ** 2,
        lambda f, y: -2 * s * y * above(f, y),
        lambda u, y: jnp.where(part(u, y) >= 0, part(u, y) ** 2 / (4 * s) - part(u, y), jnp.inf),
        None,
        quadratic=lambda y, C: jaxsvm.types.Quadratic(
            jnp.where(y > 0, 0, -jnp.inf),
            jnp.where(y > 0, jnp.inf, 0),
            None,
            jnp.where(C > 0, 1 / (2 * s * C), 0),
        ),
        curvature=lambda f, y: jnp.where(above(f, y) > 0, 2 * s, jnp.zeros_like(f)),
    )


LINEAR = {
    "newton": lambda s: jaxsvm.newton(0.1, loss=scaled_squared_hinge(s), tol=1e-10),
    "interior_point": lambda s: jaxsvm.interior_point(1.0, loss=scaled_squared_hinge(s), tol=1e-10),
    "augmented_lagrangian": lambda s: jaxsvm.augmented_lagrangian(
        1.0, loss=scaled_squared_hinge(s), tol=1e-10
    ),
}
SAME = {  # the same machines with the number as an argument of the factory
    "newton": lambda s: jaxsvm.newton(0.1 / s, loss=losses.squared_hinge, tol=1e-10),
    "interior_point": lambda s: jaxsvm.interior_point(s, loss=losses.squared_hinge, tol=1e-10),
    "augmented_lagrangian": lambda s: jaxsvm.augmented_lagrangian(
        s, loss=losses.squared_hinge, tol=1e-10
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LINEAR)
def test_derivatives_through_a_loss_that_closes_over_a_number(name):
    with jax.enable_x64(True):
        slope = jax.grad(lambda s: risk(LINEAR[name](s)))(jnp.asarray(0.5))
        expected = difference(lambda s: risk(SAME[name](s)))
    np.testing.assert_allclose(slope, expected, rtol=1e-3)


@pytest.mark.long
def test_derivatives_through_a_module_with_a_function_among_its_leaves():
    fitted = lambda s: jaxsvm.fit(
        jaxsvm.on_features(Module(s), jaxsvm.newton(0.1, tol=1e-10)),
        jaxsvm.dataset(X, Y),
        jax.random.key(0),
    )
    of = lambda s: jnp.sum(fitted(s).model(jnp.asarray(NEW)) ** 2)
    with jax.enable_x64(True):
        slope = jax.grad(of)(jnp.asarray(0.5))
        expected = difference(lambda s: of(jnp.asarray(s)))
    np.testing.assert_allclose(slope, expected, rtol=1e-3)


HIDDEN = [
    Settings,
    lambda s: Settings(s).kernel,
    lambda s: functools.partial(gauss, Settings(s)),
    of_itself,
]


@pytest.mark.parametrize("way", HIDDEN)
def test_traced_values_that_no_leaf_can_hold_are_refused(way):
    def of(s):
        jaxsvm.smo(1.0, way(s))
        return s

    with pytest.raises(ValueError, match=r"traced values.*jax\.tree_util\.Partial"):
        jax.grad(of)(0.5)
    jaxsvm.smo(1.0, HIDDEN[0](0.5))  # a number that is known is a constant


HELD = {}


@pytest.mark.parametrize("what", ["kernel", "loss"])
def test_a_rule_for_derivatives_refuses_values_of_global_variables(what):
    data = jaxsvm.dataset(X, Y)
    hinge = fields_of(losses.hinge)
    kernel = lambda x, z: gauss(HELD["s"] if what == "kernel" else 0.5, x, z)
    quadratic = lambda y, C: hinge.quadratic(y, C * HELD["s"] if what == "loss" else C)

    def of(s):
        HELD["s"] = s
        return solution(jnp.zeros(30), 0.0, kernel, data, 1.0, hinge._replace(quadratic=quadratic))[
            0
        ]

    with pytest.raises(ValueError, match="global variable"):
        jax.jvp(of, (0.5,), (1.0,))
    assert not of(0.5).any()


def test_arrays_of_a_tree_with_functions_are_leaves():
    module = Module(jnp.arange(3.0))
    static = as_static(module)
    assert [leaf.tolist() for leaf in jax.tree.leaves(static)] == [[0.0, 1.0, 2.0]]
    assert unwrap_static(static).activation is jnp.tanh
    assert hash(jax.tree.structure(static)) == hash(
        jax.tree.structure(as_static(Module(jnp.ones(3))))
    )
