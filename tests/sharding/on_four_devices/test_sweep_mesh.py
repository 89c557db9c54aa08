"""Sweeps dealt over four devices: nothing is sent, and the results are those of one device to the
bit."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import collectives
from conftest import binary_rows

import jaxsvm
from jaxsvm import features, kernels, samplers

sweeps = importlib.import_module("jaxsvm.loops.sweeping")  # the package has a function of this name

LAMS, SIGMAS = jnp.logspace(-4, 0, 8), jnp.array([1.0, 3.0])
KEY = jax.random.key(1)


def risk(lam, sigma, train, key):
    phi = features.fourier(key, kernels.rbf(sigma), dim=123, features=32)
    run = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.pegasos(lam)), train, key, steps=60, every=30)
    return run.model(train.x[:64]), jaxsvm.error_on(train)(run.model)


@pytest.fixture(scope="module")
def train():
    return jaxsvm.dataset(*binary_rows(256))


def same(found, wanted):
    for have, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert have.shape == want.shape and (np.asarray(have) == np.asarray(want)).all()


def test_cells_on_four_devices_have_the_bits_of_one(train, monkeypatch):
    programs, widest = [], sweeps.widest_program
    spy = lambda *args: programs.append(widest(*args)) or programs[-1]
    monkeypatch.setattr(sweeps, "widest_program", spy)
    mesh = jax.make_mesh((4,), ("runs",))
    dealt = jaxsvm.sweep(risk, lam=LAMS, sigma=SIGMAS, mesh=mesh, progress=False)(train, KEY)
    assert dealt[0].shape == (8, 2, 64) and {a.sharding.num_devices for a in dealt} == {1}
    assert programs[0][1] == 2 and collectives(programs[0][0].as_text()) == []
    same(dealt, jaxsvm.sweep(risk, lam=LAMS, sigma=SIGMAS, progress=False, chunk=2)(train, KEY))


def test_grids_that_no_axis_divides(train):
    mesh = jax.make_mesh((4,), ("anything",))
    bits = lambda a: jax.random.bits(jax.random.key(a.astype(int)), (2,))
    fn = lambda a, b, x: {"sum": a + b + x.sum(), "bits": bits(a)}
    a, b, x = jnp.arange(5.0), jnp.array([0.5, 1.5, 2.5]), train.x
    for chunk in (None, 2):
        dealt = jaxsvm.sweep(fn, a=a, b=b, mesh=mesh, chunk=chunk, progress=False)(x)
        same(dealt, jaxsvm.sweep(fn, a=a, b=b, progress=False)(x))
    one_axis = lambda a, x: a * x[:3]
    same(jaxsvm.sweep(one_axis, a=a, mesh=mesh)(x), jaxsvm.sweep(one_axis, a=a)(x))
    assert jaxsvm.sweep(one_axis, a=a, mesh=mesh).memory(x) >= x.nbytes


def test_runs_times_rows(train):
    """Two runs at once, each on the rows of two devices."""
    mesh = jax.make_mesh((2, 2), ("runs", "rows"))
    rows = jaxsvm.shard(train, mesh, blocks=2)
    assert {part.data.shape[0] for part in rows.x.addressable_shards} == {128}
    sampler = samplers.strata(samplers.epochs(8), blocks=2)

    def weights(lam, train, key):
        options = {"steps": 20, "every": 20, "sampler": sampler}
        return jaxsvm.fit(jaxsvm.pegasos(lam), train, key, **options).model.w

    dealt = jaxsvm.sweep(weights, lam=LAMS[:4], mesh=mesh, progress=False)(rows, KEY)
    plain = jaxsvm.sweep(weights, lam=LAMS[:4], progress=False)(train, KEY)
    np.testing.assert_allclose(dealt, plain, rtol=1e-5, atol=1e-6 * float(jnp.abs(plain).max()))


def test_bad_meshes_get_a_sentence():
    fn = lambda a: a
    with pytest.raises(TypeError, match="mesh must be a mesh"):
        jaxsvm.sweep(fn, a=LAMS, mesh=4)
    with pytest.raises(ValueError, match='mesh must have an axis "runs", .* got the axes x, y'):
        jaxsvm.sweep(fn, a=LAMS, mesh=jax.make_mesh((2, 2), ("x", "y")))
