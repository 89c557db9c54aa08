"""What users met in releases before, with the right value: each entry, layout and number near it.

The numbers are those of the list that the cases come from. Other files hold the rest of each case.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.svm
from compiling import listen
from plain import plain
from sklearn.datasets import dump_svmlight_file

import jaxsvm
from jaxsvm import Info, fit, kernels, losses, models
from jaxsvm.__main__ import main
from jaxsvm.data import load
from jaxsvm.estimators import SVC, SVR, LinearSVC, OneClassSVM
from jaxsvm.metrics import error_on

KEY, RBF = jax.random.key(0), kernels.rbf(1.0)
FORMS = {"dense": np.asarray, "sparse": sp.csr_array}
LINE, LETTERS = np.arange(80.0)[:, None] / 20, np.repeat(list("abcd"), 20)
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
TURNED, STRANGE = FRAME[["b", "a"]], FRAME.rename(columns={"a": "z"})
X, SIGN, QUERY = FRAME.to_numpy(), np.where(FRAME.a > 0, "yes", "no"), np.arange(60) // 10
TWO, THREE = jaxsvm.dataset(X, SIGN), jaxsvm.dataset(X, LETTERS[:60])


def each(**cases):
    """The cases of an argument by their names, which are the ids."""
    ((name, table),) = cases.items()
    return pytest.mark.parametrize(name, table.values(), ids=table)


# 1: class numbers of two numberings


WRAPPED = [(jaxsvm.one_vs_one, sp.csr_array, False), (jaxsvm.one_vs_rest, np.asarray, True)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("wrapper", "form", "wide"), WRAPPED)
def test_rows_of_fewer_classes(wrapper, form, wide):
    with jax.enable_x64(wide):
        train, test = (jaxsvm.dataset(form(LINE[k:]), LETTERS[k:]) for k in (0, 20))
        machine = wrapper(jaxsvm.decomposition(100.0, RBF), classes=4)
        run = fit(machine, train, KEY, probe=error_on(test))
        assert (run.predict(form(LINE[20:])) == LETTERS[20:]).all()
        assert float(error_on(test)(run.classifier)) == float(run.info.probe[-1]) == 0


@pytest.mark.parametrize("machine", [SVC(C=100, gamma=1.0), LinearSVC(C=100, random_state=0)])
def test_models_of_estimators_on_rows_of_fewer_classes(machine):
    want = 1 - machine.fit(LINE, LETTERS).score(LINE[20:], LETTERS[20:])
    found = error_on(jaxsvm.dataset(LINE[20:], LETTERS[20:]))(machine.model_)
    assert float(found) == pytest.approx(want, abs=1e-6)


# 1, 2, 6, 9: files and the command line


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    four = pd.DataFrame({"v": LINE[:, 0], "w": LINE[::-1, 0] ** 2, "y": LETTERS})
    four.to_csv(folder / "four.csv", index=False)
    four[20:][["y", "w", "v"]].to_csv(folder / "last.csv", index=False)
    for name, frame in (("named", FRAME), ("turned", TURNED), ("strange", STRANGE)):
        frame.assign(y=SIGN).to_csv(folder / f"{name}.csv", index=False)
        frame.assign(y=SIGN).to_parquet(folder / f"{name}.parquet")
    for k in (2, 3):
        dump_svmlight_file(X, np.arange(60) % k, str(folder / f"{k}.svm"), query_id=QUERY)
        np.savez(folder / f"{k}.npz", x=X, y=np.arange(60) % k, query=QUERY)
    np.savez(folder / "centred.npz", x=X - X.mean(axis=0), y=TWO.y)
    return folder


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("four.csv --target y --set C=100 --test last.csv", "test error +0.00% of 60 rows"),
        ("2.npz --machine SVR", "has queries .qid., which SVR does not use"),
        ("centred.npz --machine OneClassSVM --set kernel=linear nu=0.3", "^(?!.*warning)"),
    ],
)
def test_commands(files, monkeypatch, capsys, command, words):
    monkeypatch.chdir(files)
    assert main(["train", *command.split(), "--model", "m.skops"]) == 0
    assert re.search(words, " ".join("".join(capsys.readouterr()).split()))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_compared_by_the_names_of_their_columns(files, ending):
    read = lambda name: load(files / f"{name}.{ending}", "y")
    train, turned, strange = map(read, ("named", "turned", "strange"))
    run = fit(jaxsvm.linear_svm(10.0), train, KEY)
    assert float(error_on(turned)(run.classifier)) == float(error_on(train)(run.classifier)) < 0.1
    with pytest.raises(ValueError, match="without 'a' and with 'z'"):
        error_on(strange)(run.classifier)


@pytest.mark.parametrize("name", ["2.svm", "2.npz", "3.npz"])
def test_files_with_queries_are_for_ranking(files, name):
    data = load(files / name)
    assert data.query.tolist() == QUERY.tolist() and data.classes is None
    np.testing.assert_array_equal(data.y, np.arange(60) % int(name[0]))


# 2: columns by position


@pytest.mark.long(but=1)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("entry", ["select", "to_sklearn", "to_sklearn, scaled"])
def test_predictions_of_other_entries_take_columns_by_name(entry):
    data, solver = jaxsvm.dataset(FRAME, SIGN), jaxsvm.linear_svm(1.0)
    if entry == "select":
        run = jaxsvm.select(jaxsvm.linear_svm, data, KEY, C=[1.0, 10.0], folds=2, progress=False)
    else:
        scale = jaxsvm.data.standardize(data.x)
        run = fit(jaxsvm.on_features(scale, solver) if "scaled" in entry else solver, data, KEY)
    if "sklearn" in entry:
        machine = models.to_sklearn(run.classifier)
        np.testing.assert_array_equal(machine.predict(FRAME), run.predict(FRAME))
        with pytest.raises(ValueError, match="must be in the same order"):
            machine.predict(TURNED)
        return
    np.testing.assert_array_equal(run.predict(TURNED), run.predict(FRAME))
    with pytest.raises(ValueError, match="without 'a' and with 'z'"):
        run.predict(STRANGE)


# 3: chunks whose names of classes differ


CHUNKED = [(np.asarray, ["a", "b", "c"]), (sp.csr_array, [1, 3, 5])]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("form", "names"), CHUNKED)
def test_chunks_of_several_classes(form, names):
    solver, kind = jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3), type(names[0])
    y = np.array(names)[np.arange(60) % 3]
    chunk = lambda y, names: jaxsvm.dataset(form(X), y, task="multiclass", classes=names)
    first, turned = chunk(y, names), chunk(y, names[::-1])
    runs = [jaxsvm.stream(solver, [first, other], KEY) for other in (first, turned)]
    np.testing.assert_array_equal(runs[0].model.inner.w, runs[1].model.inner.w)
    assert set(runs[1].predict(X).tolist()) <= set(names)
    other = np.where(y == names[0], kind(7), y)
    with pytest.raises(ValueError, match="chunk 1: the rows have the class '?7"):
        jaxsvm.stream(solver, [first, chunk(other, [*names[1:], kind(7)])], KEY)


# 7, 8: pairs above 2,048 rows, far more columns than rows


@pytest.mark.long(but=1)
@each(form=FORMS)
def test_pairs_of_more_than_2048_rows(form):
    random = np.random.default_rng(0)
    x = random.normal(size=(2049, 5))
    y = (x @ random.normal(size=(5, 8))).argmax(axis=1)
    theirs = sklearn.svm.SVC().fit(x, y).predict(x)
    assert np.mean(SVC().fit(form(x), y).predict(form(x)) == theirs) > 0.995


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("C", "cuts"), [(1e-4, [0]), (100.0, [0]), (1.0, [-2, 2])])
def test_far_more_columns_than_rows(C, cuts):
    x = np.random.default_rng(0).normal(size=(60, 20_000))
    y = np.digitize(x[:, :20].sum(axis=1), cuts)
    ours = LinearSVC(loss="hinge", C=C, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVC(loss="hinge", C=C, max_iter=10_000).fit(x, y)
    sign = np.where(y[:, None] == np.arange(len(cuts) == 1, len(cuts) + 1), 1, -1)

    def objective(machine):
        w, b = machine.coef_, machine.intercept_
        slack = np.maximum(1 - sign * (x @ w.T + b), 0)
        return (w**2).sum() / 2 + (b**2).sum() / 2 + C * slack.sum()

    assert np.max(ours.n_iter_) < 30 and objective(ours) <= objective(theirs) * (1 + 1e-4)


# 9, 10: the right machine is 0; rows of mostly zeros in two layouts


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e-3, 1.0])
@pytest.mark.parametrize("kind", ["sparse", "precomputed", "fit"])
def test_where_the_right_machine_is_0(kind, size):
    x = size * np.random.default_rng(0).normal(size=(200, 3))
    x = np.float64(np.float32(x - x.mean(axis=0)))
    if kind == "fit":
        run = fit(jaxsvm.one_class(0.3, kernels.linear()), jaxsvm.dataset(x, np.sign(x[:, 0])), KEY)
        coef = np.asarray(run.model.coef, float)
    else:
        linear = kind == "sparse"
        made = OneClassSVM(kernel="linear" if linear else "precomputed", nu=0.3)
        run = made.fit(sp.csr_array(x) if linear else x @ x.T).fit_
        coef = np.bincount(made.support_, np.ravel(made.dual_coef_.sum(axis=0)), 200)
    assert run.converged
    np.testing.assert_allclose(coef @ x / coef.sum() / size, 0, atol=1e-4)


@pytest.mark.parametrize(("loss", "share"), [("hinge", 0.19), ("squared_hinge", 0.04)])
def test_two_layouts_have_one_optimum(loss, share):
    random = np.random.default_rng(0)
    x = (random.random((1500, 112)) < share) * 1.0
    y = x @ random.normal(size=112) + random.normal(size=1500) > 0
    made = [LinearSVC(loss=loss, random_state=0).fit(form(x), y) for form in FORMS.values()]
    made.append(sklearn.svm.LinearSVC(loss=loss, tol=1e-6, max_iter=100_000).fit(x, y))
    power = 1 + (loss == "squared_hinge")
    slack = lambda m: np.maximum(1 - np.where(y, 1, -1) * (x @ m.coef_[0] + m.intercept_), 0)
    value = lambda m: ((m.coef_**2).sum() + m.intercept_**2) / 2 + (slack(m) ** power).sum()
    assert max(map(value, made[:2])) <= value(made[2]) * (1 + 1e-3)


# 11, 14: chains of optax, and solvers of one's own

FOLDS = {"C": [1.0], "folds": 2, "steps": 2, "progress": False}
MANY = lambda fn: jax.vmap(fn)(jax.random.split(KEY, 2))
WAYS = {
    "fit": lambda solver: fit(solver, TWO, KEY, steps=4),
    "step": lambda solver: jaxsvm.step(solver, solver.init(KEY, TWO), TWO),
    "stream": lambda solver: jaxsvm.stream(solver, [TWO], KEY),
    "vmap": lambda solver: MANY(lambda key: fit(solver, TWO, key, steps=4).model.w),
    "classes": lambda solver: fit(jaxsvm.one_vs_rest(solver, classes=3), THREE, KEY, steps=4),
    "averaged": lambda solver: fit(jaxsvm.averaged(solver), TWO, KEY, steps=2),
    "select": lambda solver: jaxsvm.select(lambda C: solver, TWO, KEY, **FOLDS),
}
SAM = lambda **how: optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05), **how)
CHAINS = [
    SAM(opaque_mode=True),
    optax.contrib.sophia(0.1),
    optax.lookahead(optax.sgd(0.1), 5, 0.5),
    optax.cosine_decay_schedule(0.1, 100),
    optax.GradientTransformation(lambda p: (), lambda g, s, p=None: g),
    *(0.1, optax.sgd, "sgd"),
]


@pytest.mark.usefixtures("usual_promotion")
@each(way=WAYS)
def test_what_is_no_chain_of_gradients_gets_one_sentence(way):
    for tx in CHAINS:
        with pytest.raises(
            TypeError, match="^tx must be a chain of gradients alone, .*solution(\n---|$)"
        ):
            way(jaxsvm.gradient(losses.hinge, tx))


@pytest.mark.long(but=1)
@pytest.mark.usefixtures("usual_promotion")
@each(way=WAYS)
def test_arguments_are_for_updates_that_take_them(way):
    """SAM takes none, alone and in a chain; a step of one's own takes `active`."""
    step = lambda active, g: jax.tree.map(lambda a: jnp.where(active, -a, 0), g)
    own = lambda g, s, p=None, *, active, **more: (step(active, g), s)
    own = optax.GradientTransformationExtraArgs(lambda p: (), own)
    for tx in (SAM(), optax.chain(optax.add_decayed_weights(0.1), SAM()), own):
        assert way(jaxsvm.gradient(losses.hinge, tx)) is not None


ZERO = jnp.zeros(())
INFO = Info(ZERO, ZERO, jnp.zeros(1), jnp.zeros(1, jnp.int32), jnp.int32(0), jnp.int32(0))
ANSWERS = [lambda s, _: s, lambda s, _: None, lambda s, _: INFO, lambda s, _: (s, None)]
ANSWERS += [lambda s, _: (s, (s, s)), lambda s, _: (s, INFO, INFO), lambda s, _: (INFO, s)]


@pytest.mark.long(but=2)
@each(way=WAYS)
def test_updates_of_an_own_solver_return_a_state_and_an_info(way):
    model = lambda state, data=None: models.Linear(state, ZERO)
    solver = lambda update: plain(lambda key, data: jnp.zeros(2), update, model)
    for answer in ANSWERS:
        with pytest.raises(
            TypeError, match="^plain.update must return two values, .*got .*(\n---|$)"
        ):
            way(solver(answer))
    way(solver(lambda s, _: (s, INFO)))


# 12: a loss of one's own

cubed = lambda f, y: jnp.maximum(1 - y * f, 0) ** 3
OWN = losses.custom(cubed, lambda f, y: -3 * y * jnp.maximum(1 - y * f, 0) ** 2)
LINEAR = {"ocas": jaxsvm.ocas(0.1, loss=OWN), "pegasos": jaxsvm.pegasos(0.1, loss=OWN)}
OF_KERNEL = {"cpsp": jaxsvm.cpsp(0.1, RBF, points=3, loss=OWN)}
REFUSE = {
    "linear_svm": (lambda **how: jaxsvm.linear_svm(1.0, **how), LINEAR),
    "sdca of a kernel": (lambda **how: jaxsvm.sdca(1.0, RBF, **how), OF_KERNEL),
    "kernel_svm": (lambda **how: jaxsvm.kernel_svm(1.0, RBF, **how), OF_KERNEL),
    "tol": (lambda **how: jaxsvm.kernel_svm(1.0, RBF, tol=0.1, bias="none", **how), OF_KERNEL),
    "dual_descent": (lambda **how: jaxsvm.dual_descent(1.0, **how), LINEAR),
    "SVC": (lambda **how: SVC(**how).fit(X, SIGN), OF_KERNEL),
}


@pytest.mark.long(but=1)
@each(case=REFUSE)
def test_messages_offer_what_takes_this_loss(case):
    make, takers = case
    with pytest.raises(ValueError, match="take ") as refused:
        make(loss=OWN)
    offer = re.split(", or a loss|, which", str(refused.value).split("take ")[-1])[0]
    for name in re.split(", | or ", offer):
        assert np.isfinite(fit(takers[name], TWO, KEY, steps=3).model(TWO.x)).all()


# 13: certificates of several classes


OF_CLASSES = [(sp.csr_array, SVC(C=2.0, tol=1e-4)), (np.asarray, LinearSVC(C=2.0, loss="hinge"))]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("form", "machine"), OF_CLASSES)
def test_certificates_of_classes(form, machine):
    y = np.array(list("abc"))[np.digitize(X[:, 0], [-0.5, 0.5])]
    model, how = machine.fit(form(X), y).model_, {} if isinstance(machine, SVC) else {"passes": 20}
    proof = jaxsvm.certificate(model, jaxsvm.dataset(form(X), y), C=2.0, **how)
    assert proof.primal.shape == (3,) and (proof.gap >= 0).all()
    assert (proof.gap <= 1e-2 * proof.primal).all()


# 15: estimators of bare models

BARE = {"SVR": jaxsvm.kernel_svm(1.0, RBF), "LinearSVR": jaxsvm.linear_svm(1.0)}


@pytest.mark.long(but=1)
@each(solver=BARE | {"OneClassSVM": jaxsvm.one_class(0.3, RBF)})
def test_a_bare_model_becomes_a_regressor_with_a_word(solver, tmp_path):
    form = FORMS["dense" if solver is BARE["SVR"] else "sparse"]
    model = fit(solver, jaxsvm.dataset(form(X), SIGN), KEY).model
    for write in (models.to_sklearn, lambda m: models.to_libsvm(m, tmp_path / "m")):
        with pytest.warns(UserWarning, match="say task=, or pass result.classifier"):
            write(model)
    machine = models.to_sklearn(model, task="classification")
    np.testing.assert_array_equal(machine.predict(form(X)) == 1, np.asarray(model(X)) > 0)


# 16: whole numbers and arrays of them

gamma = lambda C: kernels.rbf(gamma=C)
pairs = lambda C: jaxsvm.one_vs_one(jaxsvm.decomposition(C, gamma(C)), classes=3)
JOBS = {
    "kernel_svm": lambda C: fit(jaxsvm.kernel_svm(C, C * gamma(C)), TWO, KEY, tol=C),
    "pegasos": lambda C: fit(jaxsvm.pegasos(C), TWO, KEY, steps=3),
    "loss": lambda C: fit(jaxsvm.linear_svm(1.0, loss=losses.smooth_hinge(C)), TWO, KEY),
    "pairs": lambda C: fit(pairs(C), THREE, KEY),
    "SVC": lambda C: SVC(C=C, gamma=C).fit(sp.csr_array(X), SIGN).predict(X),
    "SVR": lambda C: SVR(C=C, gamma=C, epsilon=C).fit(X, X[:, 0]),
}


@pytest.mark.long(but=1)
@each(job=JOBS)
def test_numbers_of_other_types_compile_no_other_program(job):
    job(9.0)
    jnp.array(1).astype(jnp.float32)  # the program that makes a float of an integer on the device
    for number in (9, np.int64(9), np.float32(9), np.array(9.0), jnp.array(9), jnp.float32(9)):
        events = listen()
        job(number)
        assert not any(event.endswith("backend_compile_duration") for event in events), number
