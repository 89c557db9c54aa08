"""Steps of the papers in NumPy, and runs on given rows."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm.engines.coordinate_ascent import CoordinateState, dual_coef
from jaxsvm.engines.gradient_descent import GradientState
from jaxsvm.engines.online_learning import OnlineState
from jaxsvm.models import Linear
from jaxsvm.spaces.running_mean import MeanState

# three passes a run; everything has these shapes, so that programs are compiled once
N, D, T = (24, 3, 72)
# float64: 72 steps of rounding (1e-16 each) on iterates of size 1, with room for cancellation
TOL = 1e-12
TOL32 = 3e-5  # float32: 72 steps of 6e-8 each


def _problem():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, D)) * [1.0, 0.7, 0.4] + [0.3, 0.0, 0.2]
    y = np.where(x @ [1.0, -1.0, 0.5] + 0.6 * rng.normal(size=N) > 0, 1.0, -1.0)
    return x, y


X, Y = _problem()
ONES = np.c_[X, np.ones(N)]
LAM, C = 0.1, 1 / (0.1 * N)
UNIFORM = np.random.default_rng(1).integers(0, N, (T, 1))
BATCHES = np.random.default_rng(2).integers(0, N, (T, 4))  # rows repeat within some batches
PASSES = np.concatenate([np.random.default_rng(s).permutation(N) for s in range(T // N)])
WHOLE = np.tile(np.arange(N), (T, 1))
SIGMA = 0.9
RBF = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * SIGMA**2))


class Trace(NamedTuple):
    w: np.ndarray  # (T, d) or (T, n)  weights or coefficients of the model after each step
    b: np.ndarray  # (T,)
    inner: (
        np.ndarray
    )  # the same of what the solver itself holds: dual variables, the iterate behind a mean
    info: jaxsvm.Info
    state: object  # after the last step


def _inner(state):
    if isinstance(state, CoordinateState):
        return dual_coef(state)
    if isinstance(state, OnlineState):
        f = state.f.f if isinstance(state.f, MeanState) else state.f
        return getattr(f, "coef", f)
    if isinstance(state, GradientState):
        return state.params.w
    return state.inner.params.w  # averaged


@jax.jit
def _scan(solver, state, data, rows):
    def step(state, row):
        batch = jaxsvm.take(data, row) if not solver.needs_all_rows else data._replace(index=row)
        state, info = solver.update(state, batch)
        model = solver.model(state, data)
        return state, (
            (model.w if isinstance(model, Linear) else model.coef),
            model.b,
            _inner(state),
            info,
        )

    return jax.lax.scan(step, state, rows)


def dataset(x=X, y=Y, weight=None, dtype=np.float64, task="binary"):
    with np.errstate(all="raise"):
        return jaxsvm.dataset(x.astype(dtype), y, weight, task=task)


def run(solver, rows, data=None, *, times=1, state=None, fed=None):
    """`times` runs over `rows`, one after the other; the trace of the last. `fed`: the weights that
    steps see."""
    data = dataset() if data is None else data
    state = solver.init(jax.random.key(0), data) if state is None else state
    given = data if fed is None else data._replace(weight=jnp.asarray(fed))
    rows = jnp.asarray(rows.reshape(len(rows), -1), jnp.int32)
    for _ in range(times):
        state, out = _scan(solver, state, given, rows)
    w, b, inner, info = jax.tree.map(np.asarray, out)
    return Trace(w, b, inner, info, state)


def close(got, want, tol=TOL):
    """Equal to `tol` of the largest number there is."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= tol * np.abs(want).max()


def sdca_by_hand(gram, y, bound, rows, alpha=None):
    """alpha after each visit, and |change| k(x_i, x_i) at it."""
    alpha, bound = (
        np.zeros(len(y)) if alpha is None else alpha.copy(),
        np.broadcast_to(bound, len(y)),
    )
    trace, moved = [], []
    for i in np.ravel(rows):
        old = alpha[i]
        alpha[i] = np.clip(old + (1 - y[i] * (gram[i] @ (alpha * y))) / gram[i, i], 0, bound[i])
        trace.append(alpha.copy())
        moved.append(abs(alpha[i] - old) * gram[i, i])
    return np.array(trace), np.array(moved)


def hinge_primal(w, x, y, lam):
    return lam / 2 * (w**2).sum(-1) + np.maximum(1 - y * (w @ x.T), 0).mean(-1)


def hinge_dual(alpha, gram, y):
    coef = alpha * y
    return alpha.sum(-1) - np.einsum("...i,ij,...j->...", coef, gram, coef) / 2


@functools.cache
def optimum(space="linear"):
    """alpha, w and P* at LAM, by cyclic coordinate ascent until nothing moves."""
    x = {"linear": X, "feature": ONES}.get(space)
    gram = RBF if x is None else x @ x.T
    alpha = np.zeros(N)
    for _ in range(500):
        trace, moved = sdca_by_hand(gram, Y, C, np.tile(np.arange(N), 20), alpha)
        alpha = trace[-1]
        if moved[-N:].max() < 1e-15:
            break
    coef, w = alpha * Y, None if x is None else x.T @ (alpha * Y)
    best = LAM / 2 * coef @ gram @ coef + np.maximum(1 - Y * (gram @ coef), 0).mean()
    assert best - LAM * hinge_dual(alpha, gram, Y) < 1e-13  # its own duality gap
    return alpha, w, best
