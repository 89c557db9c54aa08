"""Online methods on a budget: what is projected, cast out and kept, against linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.spatial
import scipy.stats
from online_by_hand import (
    BUDGET,
    ETA,
    KEY,
    LABELS,
    NEW,
    RBF,
    D,
    N,
    X,
    alone,
    at,
    batches,
    by_hand,
    current,
    run,
)
from oracles import gaussian
from test_online import ProjectronPlus
from test_online_points import OFTEN, numbers

import jaxsvm
from jaxsvm import kernels
from jaxsvm.solvers.perceptrons.projectron import _span

# projectron


def span(f):
    """Points (s, d), the factor V (s, s) and coefficients (s,) with the rows that wait to be
    written in their places."""
    (place, row, line), size = f.pending, int(f.size)
    x, inverse = f.x.copy(), f.inverse.copy()
    x[place], inverse[place] = row, line
    return tuple(a.astype(np.float64) for a in (x[:size], inverse[:size, :size], f.coef[:size]))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("eta", [3e-4, ETA])
def test_the_factor_inverts_the_kernel_among_the_points(dtype, eta, x64):
    solver = jaxsvm.projectron(RBF, budget=BUDGET, eta=eta)
    states, _, _ = run(solver, batches((X / 3).astype(dtype), LABELS.astype(dtype)))
    for t in (5, 20, N - 1):
        x, V, _ = span(at(states, t).f)
        gram = gaussian(x, x)
        assert not np.triu(V, 1).any()
        # a backward stable factorisation of s points loses s eps of the condition number, the
        # residual its root more
        np.testing.assert_allclose(
            V.T @ V @ gram,
            np.eye(len(x)),
            rtol=0,
            atol=BUDGET * np.finfo(dtype).eps * np.linalg.cond(gram),
        )
    assert len(x) > 4


@pytest.mark.parametrize("eta", [ETA, 0.9])
def test_projectron_plus_takes_every_branch_of_its_rule(eta, x64):
    method = ProjectronPlus(eta)
    _, info, values = run(jaxsvm.projectron_plus(RBF, budget=BUDGET, eta=eta), batches())
    losses, expected = by_hand(method)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info.loss, losses, rtol=0, atol=1e-10)
    assert method.kinds == ({0, 2, "near", "full"} if eta == ETA else {0, 1, 2, "near"})


def test_a_row_is_never_nearer_than_the_span(x64):
    """float32 takes |projection|^2 for more than k(x, x) where rows come again; what is left is 0
    then."""
    met = []

    def partial(loss, reach, left):
        jax.debug.callback(lambda *a: met.append(a), reach, left)
        return jnp.zeros_like(left)

    space = _span(RBF, BUDGET, None, partial)
    x = (X[OFTEN] / 3).astype(np.float32)

    def step(f, batch):
        return space.add(f, jnp.zeros((), jnp.float32), batch.y, batch), None

    steps = batches(x, LABELS[OFTEN].astype(np.float32))
    f, _ = jax.jit(lambda: jax.lax.scan(step, space.zero(KEY, at(steps, 0)), steps))()
    jax.block_until_ready(f)
    jax.effects_barrier()
    reach, left = np.array(met).T
    assert (
        np.any(reach > 1)
        and np.all(left >= 0)
        and np.all(left == np.maximum(1 - reach.astype(np.float32), 0))
    )
    assert jax.tree.all(jax.tree.map(lambda a: bool(np.all(np.isfinite(a))), f))


@pytest.mark.parametrize("name", ["projectron", "projectron++"])
def test_all_places_are_used_and_rows_that_come_again_take_none(name, x64):
    states, info, _ = alone(name)
    x, _, coef = span(at(states, -1).f)
    assert len(numbers(x)) == BUDGET == len(coef) and np.all(coef != 0)
    make = jaxsvm.projectron if name == "projectron" else jaxsvm.projectron_plus
    six = np.arange(N) % 6
    flipped = np.where(np.arange(N) % 7 == 0, -LABELS[six], LABELS[six])
    states, info, values = run(make(RBF, budget=BUDGET, eta=1e-6), batches(X[six], flipped))
    x, _, _ = span(at(states, -1).f)
    assert len(x) == len(numbers(x)) <= 6 and np.sum(info.loss) > 12 and np.all(np.isfinite(values))


# bpas


def test_bpas_makes_the_least_change_for_any_kernel(x64):
    """Where k(x, x) is not 1: by a search over the newcomer's coefficient for every point that
    might go."""
    kernel = lambda x, z: (1 + x @ z.T) ** 2 / 4
    solver = jaxsvm.bpas(0.2, kernels.polynomial(0.5, 0.5, degree=2), budget=BUDGET)
    states, info, values = run(solver, batches())
    every = jax.device_get(jax.vmap(solver.model)(states))
    met, rows = 0, np.flatnonzero((info.loss > 0) & (np.append(0, info.support[:-1]) == BUDGET))
    for t in rows[::3]:
        x, beta, row, y = every.x[t - 1], every.coef[t - 1], X[t : t + 1], LABELS[t]
        near, own, diag = kernel(x, row)[:, 0], kernel(row, row)[0, 0], np.diag(kernel(x, x))

        def changed(new, r):
            loss = max(1 - y * (beta @ near - beta[r] * near[r] + new * own), 0)
            return (
                0.5 * (beta[r] ** 2 * diag[r] + new**2 * own - 2 * beta[r] * new * near[r])
                + 0.2 * loss
            )

        best = [
            scipy.optimize.minimize_scalar(
                changed, (-5, 5), (-50, 50), (r,), "bounded", options={"xatol": 1e-10}
            )
            for r in range(BUDGET)
        ]
        r = int(np.argmin([found.fun for found in best]))
        expected = (
            kernel(NEW, np.delete(x, r, 0)) @ np.delete(beta, r)
            + best[r].x * kernel(NEW, row)[:, 0]
        )
        # a search sees 1e-8 of the change, its root of x
        np.testing.assert_allclose(values[t], expected, rtol=0, atol=1e-5)
        met += 1
    assert met > 20 and np.all(np.ptp(diag) > 1)


# nogd and fogd


def nogd_at_the_switch(x, y, kept):
    """After the step that filled the budget: values in many places, the same before the switch, and
    the rest of the run."""
    solver = jaxsvm.nogd(ETA, RBF, budget=BUDGET, features=kept)
    states, info, values = run(solver, batches(x, y))
    t = int(np.argmax(info.support == BUDGET))
    places = np.random.default_rng(0).normal(size=(200, D)).astype(x.dtype)
    after = current(solver, at(states, t))(places)
    stored = np.flatnonzero(np.diff(info.support[: t + 1], prepend=0))
    before = gaussian(places, x[stored]) @ (ETA * y[stored])
    return after, before, stored, values


@pytest.mark.long
def test_nogd_goes_on_as_it_was(x64):
    after, before, _, _ = nogd_at_the_switch(X, LABELS, BUDGET)
    assert np.ptp(before) > 0.3
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 5e-3)]
)  # sqrt(m eps) |coef|, once or twice
def test_nogd_goes_on_as_it_was_where_rows_come_again(dtype, tolerance, x64):
    three = np.arange(N) % 3
    x, y = np.where(np.arange(N)[:, None] < BUDGET, X[three], X).astype(dtype), LABELS.astype(dtype)
    y[:BUDGET] = LABELS[three[:BUDGET]]
    after, before, stored, values = nogd_at_the_switch(x, y, BUDGET)
    assert len(np.unique(x[stored], axis=0)) < BUDGET
    np.testing.assert_allclose(after, before, rtol=0, atol=tolerance)
    assert np.all(np.isfinite(values))
