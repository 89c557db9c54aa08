"""One against the rest: k problems at once are the k problems one by one, and what they share is held once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import features, kernels, models, samplers
from jaxsvm.models import Expansion, Linear, Mapped
from jaxsvm.multiclass import OneVsRest, one_vs_rest

N, K = 48, 3
KEY = jax.random.key(0)
RBF = kernels.rbf(2.0)
PHI = features.nystrom(None, RBF, landmarks=np.random.default_rng(1).normal(size=(8, 4)).astype("f"))


def rows(sparse=False):
    random = np.random.default_rng(0)
    y = np.arange(N) % K
    x = random.normal(size=(N, 4)) + 2 * np.eye(4)[y]
    if sparse:
        import scipy.sparse

        x = scipy.sparse.csr_matrix(np.where(abs(x) > 0.5, x, 0))
    return jaxsvm.dataset(x, y, task="multiclass")


DATA = rows()


def against(data, c):
    return data._replace(y=jnp.where(data.y == c, 1.0, -1.0).astype(data.y.dtype))


CASES = {
    "linear": (jaxsvm.sdca(1.0, bias="feature"), None),
    "stochastic": (jaxsvm.averaged(jaxsvm.pegasos(0.1)), None),
    "kernel": (jaxsvm.sdca(1.0, RBF, bias="feature"), None),
    "shrinking": (jaxsvm.sdca(1.0, RBF), samplers.shrinking(8)),
}


@pytest.mark.parametrize("name", CASES)
def test_k_problems_at_once_are_the_k_problems(name):
    inner, sampler = CASES[name]
    run = jaxsvm.fit(one_vs_rest(inner, classes=K), DATA, KEY, steps=2 * N, every=N, sampler=sampler)
    scores = run.model(DATA.x)
    assert scores.shape == (N, K)
    if name == "shrinking":  # which rows rest is a matter of all classes: the optimum is the same, not the way
        run = jaxsvm.fit(one_vs_rest(inner, classes=K), DATA, KEY, steps=100 * N, sampler=sampler, tol=1e-5)
        assert run.converged
        scores = run.model(DATA.x)
    alone = []
    for c in range(K):
        more = {"steps": 100 * N, "tol": 1e-5, "sampler": sampler} if name == "shrinking" else {"steps": 2 * N, "every": N}
        alone.append(jaxsvm.fit(inner, against(DATA, c), KEY, **more))
    # Both end within 1e-5 of a fixed point (shrinking), or make the same steps with products in another order of rounding.
    np.testing.assert_allclose(scores, np.stack([r.model(DATA.x) for r in alone], 1), atol=1e-3 if name == "shrinking" else 1e-5)
    if name != "shrinking":
        np.testing.assert_allclose(run.info.loss, np.mean([r.info.loss for r in alone], 0), rtol=1e-5)
        np.testing.assert_allclose(run.info.residual, np.max([r.info.residual for r in alone], 0), rtol=1e-4)
        np.testing.assert_array_equal(run.info.support, np.sum([r.info.support for r in alone], 0))
        np.testing.assert_array_equal(run.info.evals, np.sum([r.info.evals for r in alone], 0))


def test_agrees_with_liblinear():
    run = jaxsvm.fit(one_vs_rest(jaxsvm.sdca(1.0, bias="feature"), classes=K), DATA, KEY, steps=2000 * N, every=N, tol=1e-5)
    assert run.converged
    made = LinearSVC(loss="hinge", tol=1e-10, max_iter=10**6, random_state=0).fit(np.asarray(DATA.x), np.asarray(DATA.y))
    # A residual of 1e-5 in margin units, along directions in which the objective is nearly flat.
    np.testing.assert_allclose(run.model.inner.w, made.coef_, atol=1e-3)
    np.testing.assert_allclose(run.model.inner.b, made.intercept_, atol=1e-3)


def test_what_the_classes_share_is_held_once():
    run = jaxsvm.fit(one_vs_rest(CASES["kernel"][0], classes=K), DATA, KEY, steps=2 * N, every=N)
    inner = run.model.inner
    assert isinstance(run.model, OneVsRest) and isinstance(inner, Expansion)
    assert inner.x.shape == DATA.x.shape and inner.index.shape == (N,)
    assert inner.coef.shape == (K, N) and inner.b.shape == (K,)
    one = run.model[1]
    np.testing.assert_allclose(one(DATA.x), run.model(DATA.x)[:, 1], atol=1e-5)  # sums in another order
    proof = jaxsvm.certificate(one, against(DATA, 1), jaxsvm.lam_from_C(1.0, N))
    assert proof.exact and 0 <= proof.gap < proof.primal
    np.testing.assert_allclose(run.model.sqnorm(), sum(run.model[c].sqnorm() for c in range(K)), rtol=1e-5)


def test_a_feature_map_inside_or_outside():
    inner = jaxsvm.sdca(1.0)
    outside = jaxsvm.on_features(PHI, one_vs_rest(inner, classes=K))
    inside = one_vs_rest(jaxsvm.on_features(PHI, inner), classes=K)
    runs = [jaxsvm.fit(solver, DATA, KEY, steps=N) for solver in (outside, inside)]
    for run in runs:
        assert isinstance(run.model, Mapped) and isinstance(run.model.inner, OneVsRest)
        assert isinstance(run.model.inner.inner, Linear) and run.model.phi.landmarks.shape == (8, 4)
    np.testing.assert_array_equal(*[run.model(DATA.x) for run in runs])


def test_sparse_rows():
    data = rows(sparse=True)
    dense = data._replace(x=data.x.toarray())
    solver = one_vs_rest(jaxsvm.sdca(1.0, bias="feature"), classes=K)
    scores = [jaxsvm.fit(solver, d, KEY, steps=N).model(d.x) for d in (data, dense)]
    np.testing.assert_allclose(*scores, atol=1e-5)  # sums in another order


def test_resumes_and_is_saved_bit_for_bit(tmp_path):
    solver = one_vs_rest(CASES["kernel"][0], classes=K)
    whole = jaxsvm.fit(solver, DATA, KEY, steps=2 * N, every=N)
    part = jaxsvm.fit(solver, DATA, KEY, steps=N, every=N)
    models.save(tmp_path / "run.npz", part.state)
    rest = jaxsvm.fit(solver, DATA, state=models.load(tmp_path / "run.npz"), steps=N, every=N)
    models.save(tmp_path / "model.npz", rest.model)
    np.testing.assert_array_equal(models.load(tmp_path / "model.npz")(DATA.x), whole.model(DATA.x))


def test_sweeps_and_one_program_for_all_numbers():
    traces = 0

    @jaxsvm.solver
    def counted(C):
        nonlocal traces
        traces += 1
        return jaxsvm.sdca(C)

    def scores(C):
        return jaxsvm.fit(one_vs_rest(jaxsvm.sdca(C), classes=K), DATA, KEY, steps=N).model(DATA.x)

    many = jax.vmap(scores)(jnp.array([0.1, 1.0]))
    np.testing.assert_allclose(many[1], scores(1.0), atol=1e-5)
    jaxsvm.fit(one_vs_rest(counted(0.1), classes=K), DATA, KEY, steps=N)
    state = one_vs_rest(counted(0.1), classes=K).init(KEY, DATA)
    update = jax.jit(lambda solver, state: solver.update(state, DATA))
    update(one_vs_rest(counted(0.1), classes=K), state)
    before = traces
    update(one_vs_rest(counted(10.0), classes=K), state)
    assert traces == before


def test_refuses_a_single_class():
    for classes in (1, True, 2.0):
        with pytest.raises(ValueError, match="classes must be a whole number of at least 2"):
            jaxsvm.fit(one_vs_rest(jaxsvm.sdca(1.0), classes=classes), DATA, KEY, steps=1)
