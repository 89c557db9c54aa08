"""Certificates of expansions with points that are no rows, and of models on features."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import Expansion, Linear, Mapped

CERTIFICATES = importlib.import_module("jaxsvm.objectives.certificates")


@pytest.mark.long
@pytest.mark.parametrize("least", [1, 10**6])
def test_the_objective_counts_points_that_are_no_rows(least, monkeypatch):
    monkeypatch.setattr(CERTIFICATES, "LEAST", least)
    random = np.random.default_rng(0)
    x, foreign = random.normal(size=(12, 2)), random.normal(size=(1, 2))
    y, coef = np.where(x[:, 0] > 0, 1.0, -1.0), random.normal(size=13) / 10
    coef[3:6] = 0
    points, index = np.concatenate([x, foreign]), np.append(np.arange(12), -1)
    parts = (jnp.asarray(a) for a in (points, coef, 0.0, index.astype(np.int32)))
    model = dataclasses.replace(Expansion(kernels.rbf(1.0), *parts), bias="none")
    gram = np.exp(-((points[:, None] - points) ** 2).sum(-1) / 2)
    loss = np.maximum(1 - y * (gram @ coef)[:12], 0).mean()
    proof = jaxsvm.certificate(model, jaxsvm.dataset(x, y), 0.1)
    np.testing.assert_allclose(proof.primal, 0.05 * coef @ gram @ coef + loss, rtol=1e-5)


def test_a_model_on_features_is_certified_as_its_inner_model_on_them():
    x = np.random.default_rng(0).normal(size=(20, 2))
    y, phi = np.where(x[:, 0] * x[:, 1] > 0, 1, -1), lambda x: jnp.tile(x[..., :1], 5) * x[..., 1:]
    inner = Linear(jnp.linspace(0.1, 0.5, 5), jnp.asarray(0.0))
    lifted, data = jaxsvm.dataset(np.tile(x[:, :1], 5) * x[:, 1:], y), jaxsvm.dataset(x, y)
    found = jaxsvm.certificate(Mapped(jax.tree_util.Partial(phi), inner), data, 0.1)
    for got, want in zip(found, jaxsvm.certificate(inner, lifted, 0.1), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_violation_is_that_of_libsvm_for_bounds_of_any_size():
    """Of coefficients 0 it is max over positives minus min over negatives, of targets and of 0."""
    x, y = np.array([[0.0], [1.0], [2.0]], np.float32), [1, -1, 1]
    for lam in (1.0, 1e5):
        parts = jnp.zeros(3), jnp.zeros(()), jnp.arange(3, dtype=jnp.int32)
        model = Expansion(kernels.rbf(1.0), jnp.asarray(x), *parts)
        found = jaxsvm.objectives.kkt_residual(model, jaxsvm.dataset(x, y), lam, bias="free")
        np.testing.assert_allclose(found, 2.0)


def test_the_error_of_a_model_that_is_always_wrong_is_1_and_not_more():
    model = Linear(jnp.ones(1), jnp.asarray(0.0))
    for seed in range(20):
        weight = np.random.default_rng(seed).random(999).astype(np.float32)
        sides = np.tile([1, -1, 1], 333)
        data = jaxsvm.dataset(-sides[:, None].astype(np.float32), sides, weight)
        assert 1 - 1e-6 < float(jaxsvm.error_on(data)(model)) <= 1
