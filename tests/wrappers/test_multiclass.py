"""One against the rest, one against one: problems at once are the problems one by one, and what
they share is held once."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain import counting
from sklearn.multiclass import OneVsOneClassifier
from sklearn.svm import SVC, LinearSVC

import jaxsvm
from jaxsvm import features, kernels, models, samplers
from jaxsvm.models import Classifier, Expansion, Linear, Mapped
from jaxsvm.wrappers import OneVsOne, OneVsRest, one_vs_one, one_vs_rest

N, K = 48, 3
KEY = jax.random.key(0)
RBF = kernels.rbf(2.0)
PHI = features.nystrom(
    None, RBF, landmarks=np.random.default_rng(1).normal(size=(8, 4)).astype("f")
)


def rows():
    random = np.random.default_rng(0)
    y = np.arange(N) % K
    x = random.normal(size=(N, 4)) + 2 * np.eye(4)[y]
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


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_k_problems_at_once_are_the_k_problems(name):
    inner, sampler = CASES[name]
    run = jaxsvm.fit(
        one_vs_rest(inner, classes=K), DATA, KEY, steps=2 * N, every=N, sampler=sampler
    )
    scores = run.model(DATA.x)
    assert scores.shape == (N, K)
    if (
        name == "shrinking"
    ):  # which rows rest is a matter of all classes: the optimum is the same, not the way
        run = jaxsvm.fit(
            one_vs_rest(inner, classes=K), DATA, KEY, steps=100 * N, sampler=sampler, tol=1e-5
        )
        assert run.converged
        scores = run.model(DATA.x)
    alone = []
    for c in range(K):
        more = (
            {"steps": 100 * N, "tol": 1e-5, "sampler": sampler}
            if name == "shrinking"
            else {"steps": 2 * N, "every": N}
        )
        alone.append(jaxsvm.fit(inner, against(DATA, c), KEY, **more))
    # Both end within 1e-5 of a fixed point (shrinking), or make the same steps with products in
    # another order of rounding.
    np.testing.assert_allclose(
        scores,
        np.stack([r.model(DATA.x) for r in alone], 1),
        atol=1e-3 if name == "shrinking" else 1e-5,
    )
    if name != "shrinking":
        np.testing.assert_allclose(
            run.info.loss, np.mean([r.info.loss for r in alone], 0), rtol=1e-5
        )
        np.testing.assert_allclose(
            run.info.residual, np.max([r.info.residual for r in alone], 0), rtol=1e-4
        )
        np.testing.assert_array_equal(run.info.support, np.sum([r.info.support for r in alone], 0))
        np.testing.assert_array_equal(run.info.evals, np.sum([r.info.evals for r in alone], 0))


@pytest.mark.long
def test_agrees_with_liblinear():
    run = jaxsvm.fit(
        one_vs_rest(jaxsvm.sdca(1.0, bias="feature"), classes=K),
        DATA,
        KEY,
        steps=2000 * N,
        every=N,
        tol=1e-5,
    )
    assert run.converged
    made = LinearSVC(loss="hinge", tol=1e-10, max_iter=10**6, random_state=0).fit(
        np.asarray(DATA.x), np.asarray(DATA.y)
    )
    # A residual of 1e-5 in margin units, along directions in which the objective is nearly flat.
    np.testing.assert_allclose(run.model.inner.w, made.coef_, atol=1e-3)
    np.testing.assert_allclose(run.model.inner.b, made.intercept_, atol=1e-3)


@pytest.mark.long
def test_what_the_classes_share_is_held_once():
    run = jaxsvm.fit(one_vs_rest(CASES["kernel"][0], classes=K), DATA, KEY, steps=2 * N, every=N)
    inner = run.model.inner
    assert isinstance(run.model, OneVsRest) and isinstance(inner, Expansion)
    assert inner.x.shape == DATA.x.shape and inner.index.shape == (N,)
    assert inner.coef.shape == (K, N) and inner.b.shape == (K,)
    one = run.model[1]
    # sums in another order
    np.testing.assert_allclose(one(DATA.x), run.model(DATA.x)[:, 1], atol=1e-5)
    proof = jaxsvm.certificate(one, against(DATA, 1), jaxsvm.lam_from_C(1.0, N))
    assert proof.exact and 0 <= proof.gap < proof.primal
    np.testing.assert_allclose(
        run.model.sqnorm(), sum(run.model[c].sqnorm() for c in range(K)), rtol=1e-5
    )


@pytest.mark.long
def test_a_feature_map_inside_or_outside():
    inner = jaxsvm.sdca(1.0)
    outside = jaxsvm.on_features(PHI, one_vs_rest(inner, classes=K))
    inside = one_vs_rest(jaxsvm.on_features(PHI, inner), classes=K)
    runs = [jaxsvm.fit(solver, DATA, KEY, steps=N) for solver in (outside, inside)]
    for run in runs:
        assert isinstance(run.model, Mapped) and isinstance(run.model.inner, OneVsRest)
        assert isinstance(run.model.inner.inner, Linear) and run.model.phi.landmarks.shape == (8, 4)
    np.testing.assert_allclose(*[run.model(DATA.x) for run in runs], atol=1e-5)


@pytest.mark.long
def test_one_program_for_all_numbers():
    traces = []
    wrap = counting(traces)
    counted = lambda C: wrap(jaxsvm.sdca(C))
    jaxsvm.fit(one_vs_rest(counted(0.1), classes=K), DATA, KEY, steps=N)
    state = one_vs_rest(counted(0.1), classes=K).init(KEY, DATA)
    update = jax.jit(lambda solver, state: solver.update(state, DATA))
    update(one_vs_rest(counted(0.1), classes=K), state)
    other = one_vs_rest(counted(10.0), classes=K)
    before = len(traces)
    update(other, state)
    assert len(traces) == before > 0


def branches(jaxpr, in_loop=False):
    """How many `cond` the loops of a program have; not those on the platform, nor those before and
    after the loops."""
    total = 0
    for e in jaxpr.eqns:
        total += in_loop and e.primitive.name == "cond" and not e.params.get("branches_platforms")
        inside = in_loop or e.primitive.name in ("scan", "while")
        is_program = lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        parts = jax.tree.leaves(e.params, is_leaf=is_program)
        total += sum(branches(getattr(p, "jaxpr", p), inside) for p in parts if is_program(p))
    return total


@pytest.mark.long
@pytest.mark.parametrize(
    "solver", [jaxsvm.sbp(0.3, RBF), jaxsvm.wolfe(0.1, RBF), jaxsvm.scs(0.1, RBF, capacity=8)]
)
def test_what_is_due_now_and_then_is_not_worked_out_at_every_step(solver):
    """Several clocks would make of `cond` a choice between both branches: n^2 kernel values a
    step."""

    def program(solver, data):
        step = lambda key: jaxsvm.fit(solver, data, key, steps=3).model
        return branches(jax.make_jaxpr(step)(KEY).jaxpr)

    alone = program(solver, against(DATA, 0))
    assert alone > 0 and program(one_vs_rest(solver, classes=K), DATA) == alone


def test_refuses_a_single_class():
    for classes in (1, True, 2.0):
        with pytest.raises(ValueError, match="classes must be a whole number from 2 to 1048576"):
            jaxsvm.fit(one_vs_rest(jaxsvm.sdca(1.0), classes=classes), DATA, KEY, steps=1)


PAIRS = [(0, 1), (0, 2), (1, 2)]
WEIGHT = (
    np.array([3.0, 1.0, 2.0])[np.arange(N) % K]
    * np.array([1.0, 2.0, 0.0, 1.0])[np.arange(N) // K % 4]
)
WEIGHTED = DATA._replace(weight=jnp.asarray(WEIGHT, jnp.float32))


def between(data, a, b):
    """The problem of one pair: its rows alone, +1 for a and -1 for b, and their places in
    `data`."""
    rows = np.flatnonzero(np.isin(data.y, (a, b)))
    return jaxsvm.dataset(data.x[rows], np.where(data.y[rows] == a, 1, -1), data.weight[rows]), rows


ALONE = {
    "averaged": jaxsvm.averaged(jaxsvm.pegasos(0.1)),  # clocks in a chain
    "asset": jaxsvm.asset(0.1),  # reads the rows in init, has a bias
    "dual": jaxsvm.sdca(1.0, bias="feature"),  # a coefficient for each row
    "online": jaxsvm.constrained_sgd(1.0, RBF),  # reads all rows, has a clock
}


@pytest.mark.long
@pytest.mark.parametrize("handed", ["relative", "ones"])
@pytest.mark.parametrize("name", ALONE)
def test_each_pair_makes_the_steps_that_it_makes_on_its_rows_alone(name, handed):
    inner, size = ALONE[name], 2
    solver = one_vs_one(inner, classes=K)
    draws = np.random.default_rng(2).choice(np.flatnonzero(WEIGHT), (30, size))

    def fed(data):  # as epochs() and uniform() hand weights
        weight = (
            data.weight / np.mean(data.weight[data.weight > 0])
            if handed == "relative"
            else jnp.ones_like(data.weight)
        )
        return data._replace(weight=jnp.asarray(weight, data.x.dtype))

    def walk(solver, data, draws):
        state, seen, losses = solver.init(KEY, data), fed(data), []
        for rows in draws:
            index = jnp.asarray(rows, jnp.int32)
            batch = (
                seen._replace(index=index) if solver.needs_all_rows else jaxsvm.take(seen, index)
            )
            state, info = jaxsvm.step(solver, state, batch)
            losses.append(float(info.loss))
        return solver.model(state, data), np.array(losses)

    model, losses = walk(solver, WEIGHTED, draws)
    values, total, pairs = model.pairs(DATA.x), np.zeros(len(draws)), np.zeros(len(draws))
    for place, (a, b) in enumerate(PAIRS):
        data, rows = between(WEIGHTED, a, b)
        own = np.full(N, -1)
        own[rows] = np.arange(len(rows))
        live = (own[draws] >= 0).any(1)
        kept = own[draws][live]
        assert 0 < len(kept) < len(draws) and (kept < 0).any()
        alone, of_steps = walk(inner, data, kept)
        # The same steps; sums over rows in another order.
        np.testing.assert_allclose(values[:, place], alone(DATA.x), atol=2e-5)
        np.testing.assert_allclose(model[a, b](DATA.x), alone(DATA.x), atol=2e-5)
        total[live] += of_steps
        pairs += live
    np.testing.assert_allclose(losses, total / pairs, rtol=1e-4, atol=2e-5)


@pytest.mark.long
def test_one_against_one_agrees_with_scikit_learn():
    run = jaxsvm.fit(
        one_vs_one(jaxsvm.sdca(0.5), classes=K), DATA, KEY, steps=1000 * N, every=10 * N, tol=1e-5
    )
    assert run.converged
    made = LinearSVC(
        C=0.5, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0
    )
    # A residual of 1e-5 in margin units, along directions in which the objective is nearly flat.
    expected = (
        OneVsOneClassifier(made)
        .fit(np.asarray(DATA.x), np.asarray(DATA.y))
        .decision_function(np.asarray(DATA.x))
    )
    np.testing.assert_allclose(run.model(DATA.x), expected, atol=1e-3)

    weighted = jaxsvm.fit(
        one_vs_one(jaxsvm.sdca(0.5), classes=K),
        WEIGHTED,
        KEY,
        steps=1000 * N,
        every=10 * N,
        tol=1e-5,
    )
    assert weighted.converged
    for a, b in PAIRS:
        data, rows = between(WEIGHTED, a, b)
        made.fit(np.asarray(data.x), np.asarray(data.y), sample_weight=WEIGHT[rows])
        np.testing.assert_allclose(weighted.model[a, b].w, made.coef_[0], atol=1e-3)
        proof = jaxsvm.certificate(
            weighted.model[a, b], data, jaxsvm.lam_from_C(0.5, WEIGHT[rows].sum()), passes=200
        )
        assert 0 <= proof.gap < 1e-4 * proof.primal


@pytest.mark.long
def test_votes_are_those_of_svc(x64):
    x, y = np.asarray(DATA.x, float), np.asarray(DATA.y)
    y = np.where(np.arange(N) < 12, 3, y)  # classes that nothing parts, so that votes tie
    machine = SVC(kernel="linear", decision_function_shape="ovo").fit(x, y)
    model = OneVsOne(
        Linear(jnp.asarray(machine.coef_), jnp.asarray(machine.intercept_), "free"), (True, True), 4
    )
    new = np.random.default_rng(4).normal(size=(200, 4)) * 3
    np.testing.assert_allclose(
        model.pairs(jnp.asarray(new)), machine.decision_function(new), rtol=1e-9
    )
    machine.decision_function_shape = "ovr"
    found = model(jnp.asarray(new), block=64)
    np.testing.assert_allclose(found, machine.decision_function(new), rtol=1e-9)
    np.testing.assert_allclose(model.sqnorm(), np.sum(machine.coef_**2))
    machine.break_ties = True
    np.testing.assert_array_equal(
        Classifier(model, ("a", "b", "c", "d")).predict(jnp.asarray(new)),
        np.array(list("abcd"))[machine.predict(new).astype(int)],
    )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_votes_with_ties(k):
    pairs = [(a, b) for a in range(k) for b in range(a + 1, k)]
    # whole numbers: ties are exact
    score = np.random.default_rng(k).integers(-2, 3, (300, len(pairs))).astype("f")
    model = OneVsOne(Linear(jnp.eye(len(pairs)), jnp.zeros(len(pairs))), (True, True), k)
    votes, total = np.zeros((300, k)), np.zeros((300, k))
    for value, (a, b) in zip(score.T, pairs, strict=True):
        votes[:, a] += value >= 0
        votes[:, b] += value < 0
        total[:, a] += value
        total[:, b] -= value
    found = np.asarray(model(jnp.asarray(score)))
    np.testing.assert_allclose(found, votes + total / (3 * (abs(total) + 1)), rtol=1e-6)
    best = [max(range(k), key=lambda c: (votes[i, c], total[i, c], -c)) for i in range(300)]
    np.testing.assert_array_equal(np.argmax(found, 1), best)
    top = np.sort(votes, 1)
    assert k == 2 or (top[:, -1] == top[:, -2]).any()


@pytest.mark.long
def test_pairs_share_their_rows_and_certify_themselves():
    run = jaxsvm.fit(
        one_vs_one(jaxsvm.sdca(1.0, RBF), classes=K),
        DATA,
        KEY,
        steps=100 * N,
        every=10 * N,
        tol=1e-4,
    )
    inner = run.model.inner
    assert run.converged and isinstance(run.model, OneVsOne) and isinstance(inner, Expansion)
    assert (
        inner.x.shape == DATA.x.shape and inner.index.shape == (N,) and inner.coef.shape == (3, N)
    )
    for place, (a, b) in enumerate(PAIRS):
        np.testing.assert_allclose(
            run.model[a, b](DATA.x), run.model.pairs(DATA.x)[:, place], atol=1e-5
        )
        member = np.isin(DATA.y, (a, b))
        assert not np.any(inner.coef[place][~member])
        padded = DATA._replace(
            y=jnp.where(DATA.y == a, 1.0, -1.0).astype(DATA.y.dtype),
            weight=jnp.asarray(member, DATA.weight.dtype),
        )
        proof = jaxsvm.certificate(run.model[a, b], padded, jaxsvm.lam_from_C(1.0, member.sum()))
        assert proof.exact and 0 <= proof.gap < 1e-3 * proof.primal
    np.testing.assert_allclose(
        run.model.sqnorm(), sum(run.model[pair].sqnorm() for pair in PAIRS), rtol=1e-5
    )


@pytest.mark.long
def test_two_classes_are_the_binary_problem():
    data, _ = between(DATA, 0, 1)
    inner = jaxsvm.pegasos(0.1)
    numbers = data._replace(y=(1 - data.y) / 2)
    runs = [
        jaxsvm.fit(solver, d, KEY, steps=60)
        for solver, d in ((one_vs_one(inner, classes=2), numbers), (inner, data))
    ]
    score = runs[1].model(data.x)
    np.testing.assert_allclose(runs[0].model.pairs(data.x)[:, 0], score, atol=1e-6)
    clear = np.abs(score) > 1e-5
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(
        (np.argmax(np.asarray(runs[0].model(data.x)), 1) == 0)[clear], (score >= 0)[clear]
    )
    np.testing.assert_allclose(runs[0].info.loss, runs[1].info.loss, rtol=1e-5)
    np.testing.assert_array_equal(runs[0].info.evals, runs[1].info.evals)


@pytest.mark.long
def test_pairs_on_features_are_looked_at_and_saved(tmp_path):
    inner = jaxsvm.sdca(1.0)
    outside = jaxsvm.on_features(PHI, one_vs_one(inner, classes=K))
    inside = one_vs_one(jaxsvm.on_features(PHI, inner), classes=K)
    runs = [
        jaxsvm.fit(solver, DATA, KEY, steps=2 * N, every=N, probe=jaxsvm.error_on(DATA))
        for solver in (outside, inside)
    ]
    for run in runs:
        assert isinstance(run.model, Mapped) and isinstance(run.model.inner, OneVsOne)
        assert isinstance(run.model.inner.inner, Linear) and run.model.phi.landmarks.shape == (8, 4)
        wrong = np.argmax(np.asarray(run.model(DATA.x)), 1) != np.asarray(DATA.y)
        np.testing.assert_allclose(run.info.probe[-1], wrong.mean(), rtol=1e-6)
    np.testing.assert_allclose(*[run.model(DATA.x) for run in runs], atol=1e-5)

    part = jaxsvm.fit(outside, DATA, KEY, steps=N, every=N, probe=jaxsvm.error_on(DATA))
    models.save(tmp_path / "run.npz", part.state)
    state = models.load(tmp_path / "run.npz")
    rest = jaxsvm.fit(outside, DATA, state=state, steps=N, every=N, probe=jaxsvm.error_on(DATA))
    models.save(tmp_path / "model.npz", Classifier(rest.model, ("a", "b", "c")))
    found = models.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(found(DATA.x), runs[0].model(DATA.x))
    assert found.inner.inner.classes == K


@pytest.mark.long
def test_a_pair_without_rows_stays_at_zero():
    for inner, more in ((jaxsvm.sdca(0.1), {"tol": 1e-3}), (jaxsvm.asset(0.1), {})):
        run = jaxsvm.fit(
            one_vs_one(inner, classes=K + 2), DATA, KEY, steps=100 * N, every=10 * N, **more
        )
        assert run.finite and run.converged == ("tol" in more)
        assert np.all(np.asarray(run.model.pairs(DATA.x))[:, -1] == 0)  # classes 3 and 4
        assert np.mean(np.argmax(np.asarray(run.model(DATA.x)), 1) == np.asarray(DATA.y)) > 0.8


def test_weights_of_pairs_have_derivatives_where_a_pair_has_no_rows():
    """scale = (W / n) / (W_p / n_p) for pairs with rows; that of the classes 3 and 4, of which
    there are none, is 1."""
    solver = one_vs_one(jaxsvm.pegasos(0.1), classes=K + 2)
    weight, y = np.linspace(0.5, 2, N), np.asarray(DATA.y)
    scale = lambda weight: solver.init(KEY, DATA._replace(weight=weight)).scale
    values, slopes = jax.jit(lambda weight: (scale(weight), jax.jacobian(scale)(weight)))(
        jnp.asarray(weight, jnp.float32)
    )
    for (a, b), value, slope in zip(
        itertools.combinations(range(K + 2), 2), values, slopes, strict=True
    ):
        rows = (y == a) | (y == b)
        of_pair, ratio = weight[rows].sum(), rows.sum() / N
        want = weight.sum() * ratio / of_pair if rows.any() else 1
        assert float(value) == pytest.approx(want, rel=1e-5)
        np.testing.assert_allclose(
            slope, (ratio / of_pair - rows * want / of_pair) if rows.any() else 0 * y, atol=1e-6
        )


def test_the_problems_that_share_rows_are_on_the_rows_of_each_pair():
    y = np.array([0, 3, 2, 1, 3, 0, 2, 2, 1])
    solver = one_vs_one(jaxsvm.decomposition(1.0, RBF), classes=4)
    weights = solver.parts(jaxsvm.dataset(np.ones((9, 1)), y, task="multiclass"))["weight"]
    assert [set(np.flatnonzero(weight).tolist()) for weight in weights] == [
        set(np.flatnonzero(np.isin(y, pair)).tolist())
        for pair in itertools.combinations(range(4), 2)
    ]


def test_one_against_one_refuses_bad_input():
    for classes in (1, True, 2.0):
        with pytest.raises(ValueError, match="classes must be a whole number from 2 to 1048576"):
            jaxsvm.fit(one_vs_one(jaxsvm.sdca(1.0), classes=classes), DATA, KEY, steps=1)
    with pytest.raises(ValueError, match="the votes of 137,438,691,328 pairs .*take one_vs_rest"):
        one_vs_one(jaxsvm.dual_descent(1.0), classes=2**19)
    with pytest.raises(ValueError, match="takes class numbers 0 .. 1, the data hold 0, 1, 2"):
        jaxsvm.fit(one_vs_one(jaxsvm.sdca(1.0), classes=2), DATA, KEY, steps=1)
    model = OneVsOne(Linear(jnp.eye(3), jnp.zeros(3)), (True, True), 3)
    for pair in [0, (1, 0), (1, 1), (0, 3), (-1, 1), (0.0, 1), (0, 1, 2)]:
        with pytest.raises(
            ValueError, match=r"model\[a, b\] takes two class numbers 0 <= a < b <= 2, got"
        ):
            model[pair]


def test_the_first_step_of_four_classes_and_its_votes_by_hand():
    """From w = 0 a step of a pair is the mean of +- x over its rows, in the order 01, 02, 03, 12,
    13, 23; votes in NumPy.

    Rows drawn by their weight have weight 1 in the step, whatever the mean weight of the rows of a
    pair.
    """
    random = np.random.default_rng(4)
    y = np.array([0, 1, 2, 3, 3, 2, 3, 1, 3, 0, 3, 2])
    x = (random.normal(size=(12, 3)) + np.eye(4, 3)[y]).astype(np.float32)
    data = jaxsvm.dataset(x, y, task="multiclass")
    weight = np.array([0.5, 1, 2, 4], np.float32)[y]
    solver = one_vs_one(jaxsvm.pegasos(0.5, project=False), classes=4)
    pairs = list(itertools.combinations(range(4), 2))

    @jax.jit
    def after_a_step(weight, step_weight):
        state = solver.init(KEY, data._replace(weight=weight))
        return solver.model(solver.update(state, data._replace(weight=step_weight))[0])

    def by_hand(step_weight):
        rows = [np.isin(y, pair) for pair in pairs]
        signs = [np.where(y == a, 1, -1) for a, _ in pairs]
        return np.array(
            [
                2 * np.sum((w * s)[:, None] * x, 0, where=m[:, None]) / m.sum()
                for w, s, m in zip(step_weight, signs, rows, strict=True)
            ]
        )

    model = after_a_step(weight, np.ones_like(weight))
    want = by_hand(np.ones((6, 12)))
    np.testing.assert_allclose(model.inner.w, want, rtol=1e-5)
    relative = [weight / weight[np.isin(y, pair)].mean() for pair in pairs]
    whole = after_a_step(weight, weight / weight.mean())  # as `whole` and `epochs` hand weights on
    np.testing.assert_allclose(whole.inner.w, by_hand(relative), rtol=1e-5)

    score = x @ want.T.astype(np.float64)
    votes, total = np.zeros((12, 4)), np.zeros((12, 4))
    for (a, b), f in zip(pairs, score.T, strict=True):
        votes[:, a] += f >= 0
        votes[:, b] += f < 0
        total[:, a] += f
        total[:, b] -= f
    np.testing.assert_allclose(model(x), votes + total / (3 * (abs(total) + 1)), rtol=1e-5)
    np.testing.assert_allclose(model[1, 3](x), score[:, 4], rtol=1e-4, atol=1e-5)
