"""Certificates of expansions with points that are no training rows."""

import dataclasses
import importlib

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import Expansion

CERTIFICATES = importlib.import_module("jaxsvm.objectives.certificates")


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
