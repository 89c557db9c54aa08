"""One against the rest, one against one: problems at once are the problems one by one, and what
they share is held once."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import batch_of, equations
from plain import counting
from sklearn.svm import SVC

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
    "linear": jaxsvm.sdca(1.0, bias="feature"),
    "stochastic": jaxsvm.averaged(jaxsvm.pegasos(0.1)),
    "kernel": jaxsvm.sdca(1.0, RBF, bias="feature"),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["stochastic", "linear", "kernel"])
def test_k_problems_at_once_are_the_k_problems(name):
    """The same steps, with products in another order of rounding."""
    inner, options = CASES[name], {"steps": 2 * N, "every": N}
    run = jaxsvm.fit(one_vs_rest(inner, classes=K), DATA, KEY, **options)
    alone = [jaxsvm.fit(inner, against(DATA, c), KEY, **options) for c in range(K)]
    stack = lambda of: np.stack([of(one) for one in alone])
    np.testing.assert_allclose(run.model(DATA.x), stack(lambda r: r.model(DATA.x)).T, atol=1e-5)
    loss, residual = stack(lambda r: r.info.loss), stack(lambda r: r.info.residual)
    np.testing.assert_allclose(run.info.loss, loss.mean(0), rtol=1e-5)
    np.testing.assert_allclose(run.info.residual, residual.max(0), rtol=1e-4)
    np.testing.assert_array_equal(run.info.support, stack(lambda r: r.info.support).sum(0))
    np.testing.assert_array_equal(run.info.evals, stack(lambda r: r.info.evals).sum(0))


@pytest.mark.long
def test_classes_that_rest_together_end_at_the_optima_of_each():
    """Which rows rest is a matter of all classes: both end within 1e-5 of a fixed point."""
    inner = jaxsvm.sdca(1.0, RBF)
    options = {"steps": 100 * N, "sampler": samplers.shrinking(8), "tol": 1e-5}
    run = jaxsvm.fit(one_vs_rest(inner, classes=K), DATA, KEY, **options)
    assert run.converged
    for c in range(K):
        alone = jaxsvm.fit(inner, against(DATA, c), KEY, **options).model
        np.testing.assert_allclose(run.model(DATA.x)[:, c], alone(DATA.x), atol=1e-3)


PAIRS = [(0, 1), (0, 2), (1, 2)]
WRAPS = {  # the wrapper, its model, the places of its problems, and the rows of each
    "rest": (one_vs_rest, OneVsRest, range(K), lambda c: (c, np.ones(N, bool))),
    "pairs": (one_vs_one, OneVsOne, PAIRS, lambda p: (p[0], np.isin(DATA.y, p))),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRAPS)
def test_problems_share_their_rows_and_certify_themselves(name):
    wrap, kind, places, problem = WRAPS[name]
    options = {"steps": 400 * N, "every": 10 * N, "tol": 1e-4}
    inner = jaxsvm.sdca(1.0, RBF, bias="feature")
    run = jaxsvm.fit(wrap(inner, classes=K), DATA, KEY, **options)
    inner, model = run.model.inner, run.model
    assert run.converged and isinstance(model, kind) and isinstance(inner, Expansion)
    assert inner.x.shape == DATA.x.shape and inner.index.shape == (N,)
    assert inner.coef.shape == (K, N) and inner.b.shape == (K,)
    values = model.pairs(DATA.x) if name == "pairs" else model(DATA.x)
    for k, place in enumerate(places):
        positive, member = problem(place)
        # sums in another order
        np.testing.assert_allclose(model[place](DATA.x), values[:, k], atol=1e-5)
        assert not np.any(inner.coef[k][~member])
        data = against(DATA, positive)._replace(weight=jnp.asarray(member, jnp.float32))
        proof = jaxsvm.certificate(model[place], data, jaxsvm.lam_from_C(1.0, member.sum()))
        assert proof.exact and 0 <= proof.gap < 1e-3 * proof.primal
    parts = sum(model[place].sqnorm() for place in places)
    np.testing.assert_allclose(model.sqnorm(), parts, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", WRAPS)
def test_problems_on_features_are_looked_at_and_saved(name, tmp_path):
    """With the map inside or outside of the wrapper."""
    wrap, kind, *_ = WRAPS[name]
    inner = jaxsvm.sdca(1.0)
    outside = jaxsvm.on_features(PHI, wrap(inner, classes=K))
    inside = wrap(jaxsvm.on_features(PHI, inner), classes=K)
    options = {"every": N, "probe": jaxsvm.error_on(DATA)}
    runs = [jaxsvm.fit(solver, DATA, KEY, steps=2 * N, **options) for solver in (outside, inside)]
    for run in runs:
        assert isinstance(run.model, Mapped) and isinstance(run.model.inner, kind)
        assert isinstance(run.model.inner.inner, Linear) and run.model.phi.landmarks.shape == (8, 4)
        wrong = np.argmax(np.asarray(run.model(DATA.x)), 1) != np.asarray(DATA.y)
        np.testing.assert_allclose(run.info.probe[-1], wrong.mean(), rtol=1e-6)
    np.testing.assert_allclose(*[run.model(DATA.x) for run in runs], atol=1e-5)

    part = jaxsvm.fit(outside, DATA, KEY, steps=N, **options)
    models.save(tmp_path / "run.npz", part.state)
    state = models.load(tmp_path / "run.npz")
    rest = jaxsvm.fit(outside, DATA, state=state, steps=N, **options)
    models.save(tmp_path / "model.npz", Classifier(rest.model, ("a", "b", "c")))
    found = models.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(found(DATA.x), runs[0].model(DATA.x))
    assert isinstance(found.inner.inner, kind)


@pytest.mark.long
def test_one_program_for_all_numbers():
    traces, met = [], []
    wrap = counting(traces)
    update = jax.jit(lambda solver, state: solver.update(state, DATA))
    for C in (0.1, 10.0):
        solver = one_vs_rest(wrap(jaxsvm.sdca(C)), classes=K)
        update(solver, solver.init(KEY, DATA))
        met.append(len(traces))
    assert met[1] == met[0] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "solver", [jaxsvm.sbp(0.3, RBF), jaxsvm.wolfe(0.1, RBF), jaxsvm.scs(0.1, RBF, capacity=8)]
)
def test_what_is_due_now_and_then_is_not_worked_out_at_every_step(solver):
    """Several clocks would make of `cond` a choice between both branches: n^2 kernel values a
    step."""

    def branches(solver, data):
        """Of loops; not those on the platform, nor those before and after the loops."""
        run = lambda key: jaxsvm.fit(solver, data, key, steps=3).model
        steps = [step for step, in_loop in equations(jax.make_jaxpr(run)(KEY).jaxpr) if in_loop]
        chosen = [step for step in steps if step.primitive.name == "cond"]
        return len([step for step in chosen if not step.params.get("branches_platforms")])

    alone = branches(solver, against(DATA, 0))
    assert alone > 0 and branches(one_vs_rest(solver, classes=K), DATA) == alone


WEIGHT = np.array([3.0, 1.0, 2.0])[np.arange(N) % K]
WEIGHT *= np.array([1.0, 2.0, 0.0, 1.0])[np.arange(N) // K % 4]
WEIGHTED = DATA._replace(weight=jnp.asarray(WEIGHT, jnp.float32))


def between(data, a, b):
    """The problem of one pair: its rows alone, +1 for a and -1 for b, and their places in
    `data`."""
    rows = np.flatnonzero(np.isin(data.y, (a, b)))
    return jaxsvm.dataset(data.x[rows], np.where(data.y[rows] == a, 1, -1), data.weight[rows]), rows


def votes_by_hand(score, k):
    """The votes of pairs in the order 01, 02, .., 12, .., and the sums that break ties."""
    votes, total = np.zeros((2, len(score), k))
    for f, (a, b) in zip(np.asarray(score).T, itertools.combinations(range(k), 2), strict=True):
        votes[:, a] += f >= 0
        votes[:, b] += f < 0
        total[:, a] += f
        total[:, b] -= f
    return votes, total


ALONE = {
    "averaged": jaxsvm.averaged(jaxsvm.pegasos(0.1)),  # clocks in a chain
    "asset": jaxsvm.asset(0.1),  # reads the rows in init, has a bias
    "dual": jaxsvm.sdca(1.0, bias="feature"),  # a coefficient for each row
    "online": jaxsvm.constrained_sgd(1.0, RBF),  # reads all rows, has a clock
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "handed"), [*((name, "relative") for name in ALONE), ("asset", "ones")]
)
def test_each_pair_makes_the_steps_that_it_makes_on_its_rows_alone(name, handed):
    inner, size = ALONE[name], 2
    solver = one_vs_one(inner, classes=K)
    draws = np.random.default_rng(2).choice(np.flatnonzero(WEIGHT), (30, size))

    def fed(data):  # as epochs() and uniform() hand weights
        share = data.weight / np.mean(data.weight[data.weight > 0])
        weight = share if handed == "relative" else jnp.ones_like(data.weight)
        return data._replace(weight=jnp.asarray(weight, data.x.dtype))

    def walk(solver, data, draws):
        state, seen, losses = solver.init(KEY, data), fed(data), []
        for rows in draws:
            state, info = jaxsvm.step(solver, state, batch_of(solver, seen, rows))
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
def test_votes_are_those_of_svc(x64):
    x, y = np.asarray(DATA.x, float), np.asarray(DATA.y)
    y = np.where(np.arange(N) < 12, 3, y)  # classes that nothing parts, so that votes tie
    machine = SVC(kernel="linear", decision_function_shape="ovo").fit(x, y)
    inner = Linear(jnp.asarray(machine.coef_), jnp.asarray(machine.intercept_), "free")
    model, new = (
        OneVsOne(inner, (True, True), 4),
        np.random.default_rng(4).normal(size=(200, 4)) * 3,
    )
    values = machine.decision_function(new)
    np.testing.assert_allclose(model.pairs(jnp.asarray(new)), values, rtol=1e-9)
    machine.decision_function_shape = "ovr"
    found = model(jnp.asarray(new), block=64)
    np.testing.assert_allclose(found, machine.decision_function(new), rtol=1e-9)
    np.testing.assert_allclose(model.sqnorm(), np.sum(machine.coef_**2))
    machine.break_ties = True
    names = np.array(list("abcd"))[machine.predict(new).astype(int)]
    np.testing.assert_array_equal(Classifier(model, tuple("abcd")).predict(jnp.asarray(new)), names)


def test_pairs_are_in_the_order_of_combinations():
    model = OneVsOne(Linear(np.eye(15), np.arange(15)), (True, True), 6)
    assert [model[pair].b for pair in itertools.combinations(range(6), 2)] == list(range(15))


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3, 5])
def test_votes_with_ties(k):
    pairs = k * (k - 1) // 2
    # whole numbers: ties are exact
    score = np.random.default_rng(k).integers(-2, 3, (300, pairs)).astype("f")
    model = OneVsOne(Linear(jnp.eye(pairs), jnp.zeros(pairs)), (True, True), k)
    votes, total = votes_by_hand(score, k)
    found = np.asarray(model(jnp.asarray(score)))
    np.testing.assert_allclose(found, votes + total / (3 * (abs(total) + 1)), rtol=1e-6)
    best = [max(range(k), key=lambda c: (votes[i, c], total[i, c], -c)) for i in range(300)]
    np.testing.assert_array_equal(np.argmax(found, 1), best)
    top = np.sort(votes, 1)
    assert k == 2 or (top[:, -1] == top[:, -2]).any()


@pytest.mark.long
def test_two_classes_are_the_binary_problem():
    data, _ = between(DATA, 0, 1)
    inner = jaxsvm.pegasos(0.1)
    numbers = data._replace(y=(1 - data.y) / 2)
    pair = jaxsvm.fit(one_vs_one(inner, classes=2), numbers, KEY, steps=60)
    plain = jaxsvm.fit(inner, data, KEY, steps=60)
    score, votes = plain.model(data.x), np.asarray(pair.model(data.x))
    np.testing.assert_allclose(pair.model.pairs(data.x)[:, 0], score, atol=1e-6)
    clear = np.abs(score) > 1e-5
    assert clear.mean() > 0.9
    np.testing.assert_array_equal((np.argmax(votes, 1) == 0)[clear], (score >= 0)[clear])
    np.testing.assert_allclose(pair.info.loss, plain.info.loss, rtol=1e-5)
    np.testing.assert_array_equal(pair.info.evals, plain.info.evals)


@pytest.mark.long
def test_a_pair_without_rows_stays_at_zero():
    for inner, more in ((jaxsvm.sdca(0.1), {"tol": 1e-3}), (jaxsvm.asset(0.1), {})):
        more |= {"steps": 100 * N, "every": 10 * N}
        run = jaxsvm.fit(one_vs_one(inner, classes=K + 2), DATA, KEY, **more)
        assert run.finite and run.converged == ("tol" in more)
        assert np.all(np.asarray(run.model.pairs(DATA.x))[:, -1] == 0)  # classes 3 and 4
        assert np.mean(np.argmax(np.asarray(run.model(DATA.x)), 1) == np.asarray(DATA.y)) > 0.8


def test_weights_of_pairs_have_derivatives_where_a_pair_has_no_rows():
    """scale = (W / n) / (W_p / n_p) for pairs with rows; that of the classes 3 and 4, of which
    there are none, is 1."""
    solver = one_vs_one(jaxsvm.pegasos(0.1), classes=K + 2)
    weight, y = np.linspace(0.5, 2, N), np.asarray(DATA.y)
    scale = lambda weight: solver.init(KEY, DATA._replace(weight=weight)).scale
    both = jax.jit(lambda weight: (scale(weight), jax.jacobian(scale)(weight)))
    found, pairs = both(jnp.asarray(weight, jnp.float32)), itertools.combinations(range(K + 2), 2)
    for (a, b), value, slope in zip(pairs, *found, strict=True):
        rows = (y == a) | (y == b)
        of_pair, ratio = weight[rows].sum(), rows.sum() / N
        want = weight.sum() * ratio / of_pair if rows.any() else 1
        assert float(value) == pytest.approx(want, rel=1e-5)
        slopes = (ratio - rows * want) / of_pair if rows.any() else 0 * y
        np.testing.assert_allclose(slope, slopes, atol=1e-6)


def test_the_problems_that_share_rows_are_on_the_rows_of_each_pair():
    y = np.array([0, 3, 2, 1, 3, 0, 2, 2, 1])
    solver = one_vs_one(jaxsvm.decomposition(1.0, RBF), classes=4)
    weights = solver.parts(jaxsvm.dataset(np.ones((9, 1)), y, task="multiclass"))["weight"]
    wanted = [np.isin(y, pair) for pair in itertools.combinations(range(4), 2)]
    np.testing.assert_array_equal(np.asarray(weights) > 0, wanted)


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
        wanted = []
        for w, (a, b) in zip(step_weight, pairs, strict=True):
            sign = 1.0 * (y == a) - (y == b)
            wanted.append(2 * (w * sign) @ x / np.sum(sign != 0))
        return np.array(wanted)

    model = after_a_step(weight, np.ones_like(weight))
    want = by_hand(np.ones((6, 12)))
    np.testing.assert_allclose(model.inner.w, want, rtol=1e-5)
    relative = [weight / weight[np.isin(y, pair)].mean() for pair in pairs]
    whole = after_a_step(weight, weight / weight.mean())  # as `whole` and `epochs` hand weights on
    np.testing.assert_allclose(whole.inner.w, by_hand(relative), rtol=1e-5)

    score = x @ want.T.astype(np.float64)
    votes, total = votes_by_hand(score, 4)
    np.testing.assert_allclose(model(x), votes + total / (3 * (abs(total) + 1)), rtol=1e-5)
    np.testing.assert_allclose(model[1, 3](x), score[:, 4], rtol=1e-4, atol=1e-5)


VOTES = OneVsOne(Linear(jnp.eye(3), jnp.zeros(3)), (True, True), 3)
train = lambda wrap, classes: jaxsvm.fit(
    wrap(jaxsvm.sdca(1.0), classes=classes), DATA, KEY, steps=1
)
REFUSED = [
    *(
        (lambda wrap=wrap, k=k: train(wrap, k), "classes must be a whole number from 2 to 1048576")
        for wrap in (one_vs_rest, one_vs_one)
        for k in (1, True, 2.0)
    ),
    (lambda: one_vs_one(jaxsvm.dual_descent(1.0), classes=2**19), "137,438,691,328 pairs .*_rest"),
    (lambda: train(one_vs_one, 2), r"takes class numbers 0 \.\. 1, the data hold 0, 1, 2"),
    *(
        (lambda pair=pair: VOTES[pair], r"model\[a, b\] takes two class numbers 0 <= a < b <= 2")
        for pair in [0, (1, 0), (1, 1), (0, 3), (-1, 1), (0.0, 1), (0, 1, 2)]
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_classes_that_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
