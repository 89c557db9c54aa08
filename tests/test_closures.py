"""Functions that close over traced values: derivatives, batches, refusals. Judged by differences of
scikit-learn's solutions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm._node import carried, restored
from jaxsvm.implicit import solution

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


@jaxsvm.node
class own_gauss(kernels.Kernel):
    s: float = jaxsvm.positive()
    block = lambda self, x, z: gauss(self.s, x, z)


def own_gauss_of(s):
    """A class that closes over the number."""
    block = lambda self, x, z: gauss(s, x, z)
    return jaxsvm.node(type("closed_gauss", (kernels.Kernel,), {"block": block}))()


WAYS = {  # those that hold the number as a leaf
    "node": own_gauss,
    "params": lambda s: kernels.custom(lambda x, z, params: gauss(params["s"], x, z), {"s": s}),
    "partial": lambda s: functools.partial(gauss, s),
    "Partial": lambda s: jax.tree_util.Partial(gauss, s),
}
HELD = {}


def of_global(s):
    HELD["s"] = s
    return lambda x, z: gauss(HELD["s"], x, z)


HIDDEN = {  # those that do not
    "cell": lambda s: lambda x, z: gauss(s, x, z),
    "Partial of a closure": lambda s: jax.tree_util.Partial(
        lambda t, x, z: t * gauss(s, x, z), 1.0
    ),
    "default": of_default,
    "containers": of_containers,
    "method": lambda s: Module(s).kernel,
    "jitted": lambda s: jax.jit(lambda x, z: gauss(s, x, z)),
    "object": Settings,
    "method of an object": lambda s: Settings(s).kernel,
    "recursion": of_itself,
    "global variable": of_global,
    "class": own_gauss_of,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_a_kernel_is_a_leaf(way):
    assert jax.tree.leaves(jaxsvm.smo(1.0, WAYS[way](0.5)).kernel) == [0.5]


def reference(s):
    square = lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1)
    model = SVC(kernel="precomputed", tol=1e-12).fit(np.exp(-s * square(X, X)), Y)
    return (model.decision_function(np.exp(-s * square(NEW, X))) ** 2).sum()


def difference(fn, h=2e-3):  # LIBSVM holds kernel values in float32
    return (fn(0.5 + h) - fn(0.5 - h)) / (2 * h)


def risk(solver, **options):
    run = jaxsvm.fit(solver, jaxsvm.dataset(X, Y), jax.random.key(0), **options)
    return jnp.sum(run.model(jnp.asarray(NEW)) ** 2)


@pytest.mark.long
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
    of = lambda s: risk(getattr(jaxsvm, name)(1.0, own_gauss(s)), **options)
    with jax.enable_x64(True):
        slope = jax.jacfwd(of)(jnp.asarray(0.5))
        batch = jax.vmap(of)(jnp.asarray([0.5, 0.7]))
    np.testing.assert_allclose(slope, difference(reference), rtol=1e-3)
    np.testing.assert_allclose(batch, [reference(0.5), reference(0.7)], rtol=1e-3)


def scaled_squared_hinge(s):
    """`losses.squared_hinge` times s, by hand."""
    above = lambda f, y: jnp.maximum(0, 1 - y * f)
    part = lambda u, y: -u * y
    return losses.custom(
        lambda f, y, s: s * above(f, y) ** 2,
        lambda f, y, s: -2 * s * y * above(f, y),
        s,
        conjugate_fn=lambda u, y, s: jnp.where(
            part(u, y) >= 0, part(u, y) ** 2 / (4 * s) - part(u, y), jnp.inf
        ),
        quadratic_fn=lambda y, C, s: jaxsvm.types.Quadratic(
            jnp.where(y > 0, 0, -jnp.inf),
            jnp.where(y > 0, jnp.inf, 0),
            None,
            jnp.where(C > 0, 1 / (2 * s * C), 0),
        ),
        curvature_fn=lambda f, y, s: jnp.where(above(f, y) > 0, 2 * s, jnp.zeros_like(f)),
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
def test_derivatives_through_the_number_of_a_custom_loss(name):
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


@pytest.mark.long(but=3)
@pytest.mark.parametrize("way", HIDDEN)
def test_a_rule_for_derivatives_refuses_kernels_whose_numbers_it_does_not_see(way, registry):
    data = jaxsvm.dataset(X, Y)
    of = lambda s: solution(jnp.zeros(30), 0.0, HIDDEN[way](s), data, 1.0, losses.hinge)[0]
    with pytest.raises(ValueError, match=r"would be lost: pass them by kernels\.custom"):
        jax.jvp(of, (0.5,), (1.0,))
    assert not of(0.5).any()  # a number that is known is a constant


def test_a_rule_for_derivatives_refuses_losses_whose_numbers_it_does_not_see():
    data, hinge = jaxsvm.dataset(X, Y), losses.hinge

    def of(s):
        quadratic = lambda y, C: hinge.quadratic(y, C * s)
        loss = losses.custom(hinge.value, hinge.slope, quadratic_fn=quadratic)
        return solution(jnp.zeros(30), 0.0, kernels.rbf(1.0), data, 1.0, loss)[0]

    with pytest.raises(ValueError, match=r"would be lost: .* losses\.custom\(\.\.\., params"):
        jax.jvp(of, (0.5,), (1.0,))


@pytest.mark.long
def test_chains_and_feature_maps_may_close_over_traced_values():
    """JAX carries them: steps of optax, and the features before the first step."""
    data = jaxsvm.dataset(X.astype(np.float32), Y)
    rates = jnp.array([0.01, 0.1])
    descent = lambda rate: jaxsvm.gradient(losses.squared_hinge, optax.sgd(rate))
    waves = lambda rate: jaxsvm.on_features(lambda x: jnp.sin(rate * x), jaxsvm.newton(0.1))
    for make in (descent, waves):
        of = lambda rate, make=make: jnp.sum(
            jaxsvm.fit(make(rate), data, jax.random.key(0), steps=20).model(data.x) ** 2
        )
        each = [float(of(rate)) for rate in rates]
        np.testing.assert_allclose(jax.vmap(of)(rates), each, rtol=1e-3)
        h = 1e-2 * rates[1]
        slope = (of(rates[1] + h) - of(rates[1] - h)) / (2 * h)
        np.testing.assert_allclose(jax.grad(of)(rates[1]), slope, rtol=2e-2)


@pytest.mark.parametrize("way", ["node", "params"])
def test_numbers_of_a_kernel_of_ones_own_are_leaves(way):
    x, numbers = np.float32(X), np.float32([0.3, 0.5])
    values = jax.jit(jax.vmap(lambda kernel: (2.0 * kernel + kernels.linear())(x, x)))
    plain = jax.jit(lambda s: (2.0 * kernels.rbf(gamma=s) + kernels.linear())(x, x))
    each = [plain(s) for s in numbers]
    np.testing.assert_allclose(values(jax.vmap(WAYS[way])(numbers)), each, atol=1e-5)


def test_arrays_of_a_tree_with_functions_are_leaves():
    tree = carried(Module(jnp.arange(3.0)))
    assert [leaf.tolist() for leaf in jax.tree.leaves(tree)] == [[0.0, 1.0, 2.0]]
    assert restored(tree).activation is jnp.tanh
    assert hash(jax.tree.structure(tree)) == hash(jax.tree.structure(carried(Module(jnp.ones(3)))))
