"""Several targets for each row: each column is the problem of that column alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import SVC, SVR, LinearSVC

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.models import Labels

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(90, 3)) > [0, 0.5, 1]).astype(float)
MISSING = RNG.random(Y.shape) < 0.3
REAL = X @ RNG.normal(size=(4, 3)) + 0.3 * RNG.normal(size=(90, 3))
N = len(X)
RBF = kernels.rbf(gamma=0.2)
FEATURES = jaxsvm.features.fourier(jax.random.key(1), RBF, dim=4, features=32)
SQUARED, LINEAR = losses.squared_hinge, jaxsvm.linear_svm(1.0)

LABEL_SOLVERS = {
    "decomposition": jaxsvm.decomposition(1.0, RBF),
    "interior_point": jaxsvm.interior_point(1.0),
    "dual_descent": jaxsvm.dual_descent(1.0, loss=SQUARED),
    "newton": jaxsvm.newton(0.02, loss=SQUARED, bias="feature"),
    "sdca": jaxsvm.sdca(0.02, RBF, bias="feature"),
    "features": jaxsvm.on_features(FEATURES, jaxsvm.linear_svm(1.0)),
}


WHOLE, HOLES = jaxsvm.dataset(X, Y), jaxsvm.dataset(X, np.where(MISSING, np.nan, Y))


def fit(inner, data, outputs=3, **options):
    return jaxsvm.fit(jaxsvm.multi_output(inner, outputs=outputs), data, KEY, **options)


def of_label(c, missing=False, weight=None):
    """The rows with label c alone; those without it weigh nothing."""
    live = ~MISSING[:, c] | (not missing)
    return jaxsvm.dataset(X, Y[:, c], live * (np.ones(N) if weight is None else weight))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "missing"), [("decomposition", False), *((name, True) for name in LABEL_SOLVERS)]
)
def test_each_label_is_the_machine_of_that_label(name, missing):
    inner = LABEL_SOLVERS[name]
    values = fit(inner, HOLES if missing else WHOLE, tol=1e-6).model(X)
    for c in range(3):
        alone = jaxsvm.fit(inner, of_label(c, missing), KEY, tol=1e-6).model(X)
        # these end elsewhere within their tolerance, as other rows are visited in another order
        by_ascent = name in ("sdca", "dual_descent")
        assert np.allclose(values[:, c], alone, atol=5e-3 if by_ascent else 5e-5), c


@pytest.mark.long
def test_real_targets_and_weights_of_each():
    weight = RNG.integers(0, 3, size=REAL.shape).astype(float)
    data = jaxsvm.dataset(X, REAL, weight, task="regression")
    machine = jaxsvm.decomposition(2.0, RBF, loss=losses.eps_insensitive(0.1))
    values = fit(machine, data, tol=1e-6).model(X)
    for c in range(3):
        peer = SVR(C=2.0, gamma=0.2, epsilon=0.1, tol=1e-8)
        peer.fit(X, REAL[:, c].copy(), weight[:, c].copy())
        assert np.allclose(values[:, c], peer.predict(X), atol=1e-4)


def test_labels_are_those_of_libsvm():
    run = fit(jaxsvm.decomposition(1.0, RBF), WHOLE, tol=1e-6)
    values = np.asarray(run.model(X))
    for c in range(3):
        peer = SVC(gamma=0.2, tol=1e-8).fit(X, Y[:, c]).decision_function(X)
        assert np.allclose(values[:, c], peer, atol=1e-4)
        assert np.allclose(run.model[c](X), peer, atol=1e-4)
    assert (run.predict(X) == (values > 0)).all()


@pytest.mark.long
def test_least_squares_of_several_targets():
    run = fit(jaxsvm.least_squares(0.1), jaxsvm.dataset(X, REAL, task="regression"))
    x, y = X - X.mean(0), REAL - REAL.mean(0)
    w = np.linalg.solve(x.T @ x / N + 0.1 * np.eye(4), x.T @ y / N)
    assert np.allclose(run.model.inner.w.T, w, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("loss", "dense"), [(losses.hinge, False), (losses.eps_insensitive(0.1), True)]
)
def test_problems_that_are_solved_at_once_end_as_each_alone(loss, dense):
    """Above three problems `dual_descent` visits a row for all of them."""
    x = X * (RNG.random(X.shape) < 0.6)
    targets = np.concatenate([REAL, -REAL[:, :2]], 1)
    targets, task = (np.sign(targets), "multilabel") if loss.labels else (targets, "regression")
    data = jaxsvm.dataset(x if dense else scipy.sparse.csr_matrix(x), targets, task=task)
    solver = jaxsvm.dual_descent(0.5, loss=loss)
    run = fit(solver, data, 5, tol=1e-6)
    assert run.converged
    for c in range(5):
        part = jaxsvm.column(data, c)
        models = run.model[c], jaxsvm.fit(solver, part, KEY, tol=1e-6).model
        assert np.allclose(*(model.w for model in models), atol=1e-3)
        found, alone = (jaxsvm.objectives.primal(model, part, 2 / N, loss) for model in models)
        assert found <= (1 + 2e-6) * alone + 1e-7
    assert np.ptp(run.state.solver.steps) == 0  # the same passes


def test_problems_of_weights_of_their_own_are_solved_at_once():
    targets = np.where(MISSING, np.nan, Y)[:, [0, 1, 2, 0]]
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(X), targets)
    run = fit(jaxsvm.dual_descent(1.0, loss=SQUARED), data, 4, tol=1e-6)
    for c in range(3):
        live = ~MISSING[:, c]
        peer = LinearSVC(tol=1e-9, max_iter=100_000).fit(X[live], Y[live, c])
        assert np.allclose(run.model[c].w, peer.coef_[0], atol=1e-3)
    # a visit of each row of each problem, and two for the look
    once = fit(jaxsvm.dual_descent(1.0, loss=SQUARED, rounds=1), data, 4, tol=1e-6, steps=1)
    assert once.evals == 3 * targets.size


def test_problems_of_other_C_are_solved_in_turns():
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y[:, 0])
    at = lambda C: jaxsvm.fit(jaxsvm.dual_descent(C, loss=SQUARED), data, KEY, tol=1e-6).model.w
    Cs = jnp.array([0.1, 0.3, 1.0, 3.0])
    for w, C in zip(jax.jit(jax.vmap(at))(Cs), Cs, strict=True):
        assert np.allclose(w, at(float(C)), atol=1e-3)


@pytest.mark.long
def test_certificates_are_those_of_the_columns():
    run = fit(LINEAR, HOLES)
    lam = 1 / np.asarray(HOLES.weight).sum(0)
    proof = jaxsvm.certificate(run.model, HOLES, lam)
    assert proof.gap.shape == (3,) and (proof.gap < 0.03 * proof.primal).all()
    for c in range(3):
        one = jaxsvm.certificate(run.model[c], jaxsvm.column(HOLES, c), lam[c])
        assert np.allclose(proof.primal[c], one.primal, rtol=1e-12)


def test_errors_are_those_of_all_labels():
    data, run = HOLES, fit(LINEAR, HOLES)
    score = np.asarray(run.model(data.x), np.float64)
    wrong = ((score > 0) != (Y > 0))[~MISSING].mean()
    assert np.isclose(float(jaxsvm.error_on(data)(run.model)), wrong, rtol=1e-5)
    turned = jaxsvm.dataset(X, np.where(MISSING, np.nan, Y)[:, ::-1], classes=[2, 1, 0])
    assert np.isclose(float(jaxsvm.error_on(turned)(run.classifier)), wrong, rtol=1e-5)
    beyond = data._replace(x=data.x.at[0].set(jnp.inf), weight=data.weight.at[0].set(0))
    assert np.isfinite(float(jaxsvm.risk_on(beyond)(run.model)))  # of a row that does not count
    hinge = np.maximum(0, 1 - (2 * Y - 1) * score)[~MISSING].mean()
    assert np.isclose(float(jaxsvm.risk_on(data)(run.model)), hinge, rtol=1e-5)


of_three = functools.partial(jaxsvm.multi_output, outputs=3)
MAKERS = {
    "kernel": lambda C: of_three(jaxsvm.decomposition(C, RBF)),
    "linear": lambda C: of_three(jaxsvm.linear_svm(C)),
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "missing"), [("linear", False), ("kernel", True)])
def test_selection_is_by_the_share_of_wrong_labels(name, missing):
    mask, data = (MISSING, HOLES) if missing else (np.zeros_like(MISSING), WHOLE)
    found = jaxsvm.select(MAKERS[name], data, KEY, C=np.array([0.01, 1.0]), folds=3, progress=False)
    values = np.asarray(found.scores)
    assert values.shape == (2, N, 3)
    means = np.empty((2, 3))
    for c, f in np.ndindex(2, 3):
        rows = found.fold == f
        means[c, f] = ((values[c] > 0) != (Y > 0))[rows][~mask[rows]].mean()
    assert np.allclose(found.table.folds, means, atol=1e-6)
    # a value out of fold is that of the machine without the fold
    out = found.fold == 0
    weight = np.where(out.reshape(-1, *[1] * missing), 0, data.weight)
    run = jaxsvm.fit(MAKERS[name](1.0), data._replace(weight=weight), KEY)
    assert np.allclose(run.model(data.x)[out], values[1, out], atol=5e-3)
    assert isinstance(found.classes, Labels) and found.predict(X).shape == (N, 3)


def test_names_of_labels():
    data = jaxsvm.dataset(X, Y, classes=["a", "b", "c"])
    assert data.classes.names == ("a", "b", "c")
    frame = pytest.importorskip("pandas").DataFrame(Y, columns=["u", "v", "w"])
    assert jaxsvm.dataset(X, frame).classes.names == ("u", "v", "w")
    sparse = jaxsvm.dataset(X, scipy.sparse.csr_matrix(Y))
    assert np.array_equal(sparse.y, 2 * Y - 1) and sparse.classes.names == (0, 1, 2)
    assert np.array_equal(jaxsvm.dataset(X, Y > 0).y, 2 * Y - 1)
    assert repr(data).endswith("; 3 labels each")
    assert "real targets each" in repr(jaxsvm.dataset(X, REAL, task="regression"))


@pytest.mark.long
def test_under_vmap_and_jit():
    at = lambda C: fit(jaxsvm.interior_point(C), WHOLE, steps=1).model.inner.w
    both = jax.jit(jax.vmap(at))(jnp.array([0.1, 1.0]))
    assert np.allclose(both[1], jax.jit(at)(1.0), atol=1e-4)


def test_labels_inside_of_transformations_are_int32(x64):
    model = jaxsvm.models.MultiLabel(lambda x: x, ("a", "b", "c"))
    values = jnp.asarray([[-1.0, 0.0, 1.0]])
    traced = jax.jit(model.predict)(values)
    assert traced.dtype == jnp.int32 and traced.tolist() == [[0, 0, 1]]


@pytest.mark.long
def test_it_is_saved_and_goes_on(tmp_path):
    solver = jaxsvm.multi_output(jaxsvm.sdca(0.1), outputs=3)
    whole, half = (jaxsvm.fit(solver, HOLES, KEY, steps=steps) for steps in (60, 30))
    jaxsvm.models.save(tmp_path / "run.npz", half)
    loaded = jaxsvm.models.load(tmp_path / "run.npz")
    rest = jaxsvm.fit(solver, HOLES, state=loaded.state, steps=30)
    assert isinstance(loaded.classes, Labels) and half.classes.names == loaded.classes.names
    assert np.array_equal(rest.model.inner.w, whole.model.inner.w)


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_read_the_weights_of_each_target(weighted):
    """Of a solver whose steps read the weights, all of them at once."""
    weight = RNG.integers(1, 4, N).astype(float) if weighted else np.ones(N)
    solver, data = jaxsvm.subgradient(0.1), jaxsvm.dataset(X, np.where(MISSING, np.nan, Y), weight)
    run = fit(solver, data, steps=20)
    for c in range(3):
        alone = jaxsvm.fit(solver, of_label(c, True, weight), KEY, steps=20)
        assert np.allclose(run.model[c].w, alone.model.w, atol=1e-5)


def test_a_saved_model_keeps_the_names_of_labels(tmp_path):
    data = jaxsvm.dataset(X, Y, task="multilabel", classes=["a", "b", "c"])
    run = jaxsvm.fit(MAKERS["linear"](1.0), data, KEY)
    jaxsvm.models.save(tmp_path / "model.npz", run.classifier)
    model = jaxsvm.models.load(tmp_path / "model.npz")
    assert model.labels == ("a", "b", "c") and np.array_equal(model.predict(X), run.predict(X))
    assert np.allclose(model(X), run.model(X), atol=1e-6)


@functools.cache
def found(score="error"):
    options = {"folds": 3, "score": score, "progress": False}
    return jaxsvm.select(MAKERS["linear"], WHOLE, KEY, C=np.array([1.0, 2.0]), **options)


REGRESSION, GAP = {"task": "regression"}, np.where([False, True, False], np.nan, Y)
real = functools.partial(jaxsvm.dataset, X, REAL, **REGRESSION)
to_libsvm = functools.partial(jaxsvm.models.to_libsvm, path="/tmp/none")
ONE_FOR_EACH = jaxsvm.one_vs_rest(LINEAR, classes=3)
REFUSED = [
    (lambda: jaxsvm.fit(LINEAR, WHOLE, KEY), "have 3 targets each, .* jaxsvm.multi_output"),
    (lambda: fit(LINEAR, WHOLE, 2), "takes 2 targets for each row, the rows have 3: say outputs=3"),
    (lambda: fit(LINEAR, of_label(0), 2), "takes 2 targets for each row, and the rows have one"),
    (lambda: fit(LINEAR, real()), "this solver takes labels -1 and"),
    (lambda: jaxsvm.multi_output(ONE_FOR_EACH, outputs=2), "multi_output takes a solver of labels"),
    (lambda: jaxsvm.multi_output(LINEAR, outputs=0), "outputs must be"),
    (lambda: jaxsvm.dataset(X, Y[:, 0], task="multilabel"), "task 'multilabel' takes y"),
    (lambda: jaxsvm.dataset(X, Y, Y * 0 + [1, 1, 0]), "no target at all in column 2"),
    (lambda: jaxsvm.dataset(X, GAP), "no target at all in column 1"),
    (lambda: jaxsvm.dataset(X, REAL), "must hold labels 0 and 1, or -1 and"),
    (lambda: jaxsvm.dataset(X, Y[:5]), "y must hold one number for each of the 90 rows"),
    (lambda: jaxsvm.dataset(X, Y, task="binary"), "columns, which is for task 'multilabel'"),
    (lambda: jaxsvm.dataset(X, [["a", "b"]] * N), "must hold numbers or booleans"),
    (lambda: jaxsvm.dataset(X, Y, classes=["a"]), "must name each of the 3 columns"),
    (lambda: real(classes=["a"] * 3), "classes are of labels"),
    (lambda: jaxsvm.dataset(X, np.where(MISSING, np.inf, Y), **REGRESSION), "y holds an infinity"),
    (lambda: jaxsvm.error_on(real()), "error_on is of labels"),
    (lambda: jaxsvm.column(WHOLE, 3), "have no column 3"),
    (lambda: found().calibrated(), "takes one target a row, and this selection has 3"),
    (lambda: found().conformal(), "takes one target a row, and this selection has 3"),
    (lambda: found("auc"), "take 'error', 'risk' or a function"),
    (lambda: jaxsvm.objectives.primal(found().model, WHOLE, 0.1), "primal is of one target a row"),
    *(
        (lambda leave=leave, name=name: leave(getattr(found(), name)), "takes a model of one targ")
        for leave in (jaxsvm.models.to_sklearn, to_libsvm)
        for name in ("model", "classifier")
    ),
    (lambda: jaxsvm.calibrate(found().classifier, WHOLE), "one target a row, and these rows have"),
    (lambda: jaxsvm.conformal(found().classifier, WHOLE), "one target a row, and these rows have"),
    (lambda: found().model[3], r"there is no model\[3\], there are 3"),
    (
        lambda: jaxsvm.certificate(found().model, WHOLE, [0.1, 0.2]),
        "lam must be one number, or one",
    ),
    (lambda: jaxsvm.certificate(found().model[0], WHOLE, 0.1), "expected a model of multi_output"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_several_targets_are_refused(call, words):
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()
