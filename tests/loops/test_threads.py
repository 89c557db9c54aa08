"""Programs that factorise are not run by several threads: XLA would wait without end."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm.loops.threads import may_overlap

triangular = jax.lax.linalg.triangular_solve
A = np.stack([np.eye(4, dtype=np.float32)] * 3)
PROGRAMS = {
    "product": (lambda a: a @ a, True),
    "triangular system": (lambda a: triangular(a, a, left_side=True, lower=True), True),
    "eigenvalues": (lambda a: jnp.linalg.eigh(a)[1], False),
    "system": (lambda a: jnp.linalg.solve(a, a), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_programs_may_overlap(name):
    fn, allowed = PROGRAMS[name]
    assert may_overlap(jax.jit(fn).lower(A)) == allowed


CHILD = """
import jax, jaxsvm, numpy as np
from jaxsvm import features, kernels
x = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
data = jaxsvm.dataset(x, np.where(x[:, 0] * x[:, 1] > 0, 1, -1))

def maker(C, gamma):
    phi = features.nystrom(jax.random.key(1), kernels.rbf(gamma=gamma), data.x, landmarks=64)
    return jaxsvm.on_features(phi, jaxsvm.newton(1 / (C * 240)))

axes = {"C": np.logspace(-1, 2, 4), "gamma": np.logspace(-2, 1, 8)}
for seed in range(6):
    jaxsvm.select(maker, data, jax.random.key(seed), progress=False, threads=2, **axes)
print("end")
"""


@pytest.mark.long
def test_a_grid_of_factorisations_ends():
    options = {"capture_output": True, "text": True, "timeout": 400}
    done = subprocess.run([sys.executable, "-c", CHILD], **options)
    assert done.stdout == "end\n", done.stderr
