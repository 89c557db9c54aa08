"""Model files of LIBSVM and LIBLINEAR, judged by the programs of their authors, in both
directions."""

import ctypes
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from liblinear import liblinearutil
from libsvm import svmutil
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import scale

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm.models import (
    Classifier,
    Expansion,
    Linear,
    Mapped,
    OneVsOne,
    OneVsRest,
    from_libsvm,
    to_libsvm,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 4)) * (RNG.random((30, 4)) < 0.7)
NEW = RNG.normal(size=(25, 4))


def data(name):
    """Rows, labels, and rows to predict."""
    load = {"iris": load_iris, "cancer": load_breast_cancer, "diabetes": load_diabetes}[name]
    x, y = load(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))[:150]
    x = scale(x[order])
    y = 3 * y[order] - 2 if name != "diabetes" else y[order] / 100
    return x[:100], y[:100], x[100:]


def their_values(path, x):
    """Labels and decision values of the functions of LIBSVM or LIBLINEAR for a file.

    Their Python wrappers reserve too few values for nu-SVC and for Crammer and Singer's problem.
    """
    text = path.read_text()
    if text.startswith("solver_type"):
        model = liblinearutil.load_model(str(path))
        shape = len(x), model.nr_class if model.nr_class > 2 or "MCSVM_CS" in text else 1
        # as their program `predict`: a feature more, behind the last
        x = np.hstack([x, np.full((len(x), 1), model.bias)]) if model.bias >= 0 else x
        nodes = lambda row: liblinearutil.gen_feature_nodearray(row)[0]
        predict = liblinearutil.liblinear.predict_values
    else:
        model = svmutil.svm_load_model(str(path))
        by_row = "kernel_type precomputed" in text
        x = np.hstack([np.zeros((len(x), 1)), x]) if by_row else x
        shape = len(x), model.nr_class * (model.nr_class - 1) // 2
        nodes = lambda row: svmutil.gen_svm_nodearray(row, isKernel=by_row)[0]
        predict = svmutil.libsvm.svm_predict_values
    values = np.zeros(shape)
    labels = [
        predict(model, nodes(row), at.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
        for row, at in zip(x, values, strict=True)
    ]
    return np.array(labels), values[:, :1] if "MCSVM_CS" in text and shape[1] == 2 else values


def our_values(model, x):
    """The same of a model; of pairs, their values rather than the votes."""
    inner = model.inner if isinstance(model, Classifier) else model
    rows = jnp.asarray(x, jnp.float64 if jax.config.jax_enable_x64 else jnp.float32)
    values = np.asarray(
        inner.pairs(rows) if isinstance(inner, OneVsOne) else inner(rows), np.float64
    )
    labels = model.predict(rows) if isinstance(model, Classifier) else None
    return labels, values.reshape(len(x), -1)


def check_same(path, model, x, clear_share=0.8):
    rtol = 1e-9 if jax.config.jax_enable_x64 else 1e-5
    labels, values = their_values(path, x)
    our_labels, ours = our_values(model, x)
    np.testing.assert_allclose(ours, values, rtol=rtol, atol=rtol * np.abs(values).max())
    if our_labels is not None:
        clear = np.abs(values).min(axis=1) > 10 * rtol
        if isinstance(
            model.inner, OneVsOne
        ):  # LIBSVM breaks ties of votes by the order of the labels
            first, second = np.triu_indices(len(model.classes), 1)
            votes = np.apply_along_axis(
                np.bincount, 1, np.where(values > 0, first, second), minlength=len(model.classes)
            )
            clear &= (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) == 1
        assert clear.any() and clear.mean() >= clear_share
        np.testing.assert_array_equal(our_labels[clear], labels[clear])


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


# Their files


OPTIONS = {
    "binary": ("cancer", "-s 0 -t 2"),
    "linear": ("cancer", "-s 0 -t 0"),
    "polynomial": ("cancer", "-s 0 -t 1 -r 0.5 -d 2"),
    "sigmoid": ("cancer", "-s 0 -t 3 -g 0.01 -r -0.5"),
    "nu_svc": ("iris", "-s 1 -t 2 -n 0.3"),
    "three classes": ("iris", "-s 0 -t 2 -g 0.7"),
    "probabilities": ("iris", "-s 0 -t 2 -b 1"),
    "regression": ("diabetes", "-s 3 -t 2"),
    "nu_svr": ("diabetes", "-s 4 -t 1"),
    "one_class": ("cancer", "-s 2 -t 2 -n 0.2"),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_of_libsvm_gives_its_values(name, dtype, tmp_path):
    source, options = OPTIONS[name]
    x, y, new = data(source)
    path = tmp_path / "a.model"
    svmutil.svm_save_model(str(path), svmutil.svm_train(y, x, options + " -q"))
    model = from_libsvm(path)
    check_same(path, model, new)
    again = tmp_path / "again.model"
    task = {"one_class": "one_class"}.get(name)
    to_libsvm(model, again, task=task)
    check_same(again, model, new)
    header = lambda text: re.sub(r"(prob|nu_sv|epsilon_sv|c_sv).*\n", "", text.partition("rho")[0])
    assert header(again.read_text()) == header(path.read_text())
    kept = [line for line in path.read_text().splitlines() if line.startswith(("label", "nr_sv"))]
    assert [
        line for line in again.read_text().splitlines() if line.startswith(("label", "nr_sv"))
    ] == kept


LINEAR_OPTIONS = {
    "binary": ("cancer", "-s 3"),
    "binary, bias": ("cancer", "-s 2 -B 1"),
    "bias of another size": ("cancer", "-s 1 -B 2.5"),
    "three classes": ("iris", "-s 1 -B 1"),
    "Crammer and Singer": ("iris", "-s 4"),
    "Crammer and Singer, binary": ("cancer", "-s 4 -B 1"),
    "logistic": ("iris", "-s 0"),
    "regression": ("diabetes", "-s 12 -B 1"),
    "one_class": ("cancer", "-s 21 -n 0.2"),
}


@pytest.mark.parametrize("name", LINEAR_OPTIONS)
def test_a_file_of_liblinear_gives_its_values(name, dtype, tmp_path):
    source, options = LINEAR_OPTIONS[name]
    x, y, new = data(source)
    path, again = tmp_path / "a.model", tmp_path / "again.model"
    liblinearutil.save_model(str(path), liblinearutil.train(y, x, options + " -q"))
    model = from_libsvm(path)
    check_same(path, model, new)
    inner = model.inner if isinstance(model, Classifier) else model
    linear = inner.inner if isinstance(inner, OneVsRest) else inner
    bias = re.search("-B (.*)", options)
    assert linear.bias == (
        "free"
        if bias is None and name == "one_class"
        else {None: "none", "1": "feature"}.get(bias and bias[1], "free")
    )
    to_libsvm(model, again, task="one_class" if name == "one_class" else None)
    check_same(again, model, new)


@pytest.mark.long(but=1)
def test_a_precomputed_kernel_of_libsvm(dtype, tmp_path):
    x, y, new = data("iris")
    gram = np.hstack([np.arange(1, len(x) + 1)[:, None], x @ x.T])
    path, again = tmp_path / "a.model", tmp_path / "again.model"
    svmutil.svm_save_model(
        str(path),
        svmutil.svm_train(
            svmutil.svm_problem(y, gram, isKernel=True), svmutil.svm_parameter("-t 4 -q")
        ),
    )
    model = from_libsvm(path, columns=len(x))
    check_same(path, model, new @ x.T)
    to_libsvm(model, again)
    assert again.read_text().splitlines()[:3] == path.read_text().splitlines()[:3]
    check_same(again, model, new @ x.T)
    largest = max(map(int, re.findall(r" 0:(\d+)", path.read_text())))
    assert from_libsvm(path).inner.inner.coef.shape == (3, largest)
    with pytest.raises(ValueError, match="a precomputed block has a column for each of the 100"):
        model.sqnorm()


@pytest.mark.parametrize("options", ["-s 0 -t 2", "-s 0 -t 0"])
def test_support_vectors_stay_sparse(options, tmp_path):
    x = scipy.sparse.random(60, 500, 0.02, random_state=0, format="csr")
    y = np.where(np.asarray(x.sum(axis=1)).ravel() > 4, 1, -1)
    path, again = tmp_path / "a.model", tmp_path / "again.model"
    svmutil.svm_save_model(str(path), svmutil.svm_train(y, x, options + " -q"))
    model = from_libsvm(path, columns=500, sparse=True)
    assert isinstance(model.inner.x, jaxsvm.SparseRows) and model.inner.x.index.shape[1] < 50
    dense = from_libsvm(path, columns=500)
    np.testing.assert_array_equal(model.inner.x.toarray(), dense.inner.x)
    check_same(path, model, x[:20].toarray())
    to_libsvm(model, again)
    check_same(again, model, x[:20].toarray())
    to_libsvm(dense, path)
    assert path.read_bytes() == again.read_bytes()


# Our models


def expansion(kernel, *, x=ROWS, pairs=None, seed=2, **changes):
    rng = np.random.default_rng(seed)
    m, front = x.shape[-2], () if pairs is None else (pairs,)
    as_run = lambda values: jnp.asarray(
        values, jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    )
    coef = rng.normal(size=(*front, m)) * (rng.random((*front, m)) < 0.6)
    index = jnp.asarray(np.arange(m), jnp.int32)
    made = Expansion(kernel, as_run(x), as_run(coef), as_run(rng.normal(size=front)), index, "free")
    return dataclasses.replace(made, **changes)


def pairs(inner, k, *, stacked):
    own = [getattr(inner, name) for name in stacked]
    flags = (any(leaf is part for part in own) for leaf in jax.tree.leaves(inner))
    return OneVsOne(inner, tuple(flags), k)


KERNELS = {
    "linear": lambda: kernels.linear(),
    "sigma": lambda: kernels.rbf(1.7),
    "gamma": lambda: kernels.rbf(gamma=0.3),
    "polynomial": lambda: kernels.polynomial(0.3, -0.7, degree=4),
    "sigmoid": lambda: kernels.sigmoid(0.2, 0.1),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", KERNELS)
def test_libsvm_reads_our_expansions(name, dtype, tmp_path):
    model, path = expansion(KERNELS[name]()), tmp_path / "a.model"
    for task, svm_type in (
        (None, "epsilon_svr"),
        ("regression", "epsilon_svr"),
        ("one_class", "one_class"),
    ):
        to_libsvm(model, path, task=task)
        assert path.read_text().startswith(f"svm_type {svm_type}\n")
        check_same(path, model, NEW)
    to_libsvm(model, path, task="classification")
    check_same(path, Classifier(model, (-1, 1)), NEW)
    to_libsvm(Classifier(model, (7, -3)), path)
    check_same(path, Classifier(model, (7, -3)), NEW)
    read = from_libsvm(path, columns=4)
    used = np.flatnonzero(model.coef)
    assert read.classes == (7, -3) and len(read.inner.coef) == len(used)
    np.testing.assert_allclose(
        read(jnp.asarray(NEW, dtype)),
        model(jnp.asarray(NEW, dtype)),
        rtol=1e-4 if dtype == "float32" else 1e-12,
        atol=1e-5,
    )
    order = lambda a: a[np.lexsort(np.asarray(a).T)]
    np.testing.assert_array_equal(order(np.asarray(read.inner.x)), order(np.asarray(model.x)[used]))


@pytest.mark.long
def test_libsvm_reads_our_pairs(dtype, tmp_path):
    """Random coefficients: most support vectors belong to several classes."""
    path, labels = tmp_path / "a.model", (5, -1, 0, 3)
    shared = pairs(expansion(kernels.rbf(2.0), pairs=6), 4, stacked=("coef", "b"))
    own_rows = np.random.default_rng(5).normal(size=(6, 30, 4))
    own = pairs(expansion(kernels.rbf(2.0), pairs=6, x=own_rows), 4, stacked=("x", "coef", "b"))
    weights = jnp.asarray(np.random.default_rng(6).normal(size=(6, 4)), dtype)
    linear = pairs(Linear(weights, weights[:, 0], "free"), 4, stacked=("w", "b"))
    places = jnp.broadcast_to(shared.inner.index, (6, 30))
    mixed = pairs(
        dataclasses.replace(shared.inner, index=places), 4, stacked=("coef", "b", "index")
    )
    for model in (shared, own, linear, mixed):
        to_libsvm(Classifier(model, labels), path)
        check_same(path, Classifier(model, labels), NEW, clear_share=0)
        check_same(path, from_libsvm(path, columns=4), NEW, clear_share=0)
    to_libsvm(linear, path)
    assert "label 0 1 2 3\n" in path.read_text() and "total_sv 6\n" in path.read_text()


def test_support_vectors_of_one_class_are_written_once(tmp_path):
    """Coefficients as a dual method gives them: the sign is that of the class."""
    k, path = 4, tmp_path / "a.model"
    first, second = np.triu_indices(k, 1)
    owner = np.random.default_rng(0).integers(0, k, 30)
    size = np.random.default_rng(1).random((6, 30)) + 0.1
    coef = size * ((owner == first[:, None]).astype(float) - (owner == second[:, None]))
    model = pairs(
        expansion(kernels.linear(), pairs=6, coef=jnp.asarray(coef, jnp.float32)),
        k,
        stacked=("coef", "b"),
    )
    to_libsvm(model, path)
    counts = " ".join(map(str, np.bincount(owner, minlength=k)))
    assert f"nr_sv {counts}\n" in path.read_text() and "total_sv 30\n" in path.read_text()
    check_same(path, Classifier(model, range(k)), NEW, clear_share=0)


@pytest.mark.long
def test_a_fitted_machine_of_pairs(tmp_path):
    x, y, new = data("iris")
    train = jaxsvm.dataset(x, (y + 2) // 3, task="multiclass")
    solver = jaxsvm.one_vs_one(jaxsvm.decomposition(10.0, kernels.rbf(2.0)), classes=3)
    model, path = jaxsvm.fit(solver, train, jax.random.key(0), tol=1e-3).model, tmp_path / "a.model"
    to_libsvm(model, path)
    check_same(path, Classifier(model, (0, 1, 2)), new)
    total = int(re.search(r"total_sv (\d+)", path.read_text())[1])
    assert total == int(np.any(np.asarray(model.inner.coef) != 0, axis=0).sum())
    theirs = svmutil.svm_train((y + 2) // 3, x, "-c 10 -g 0.125 -e 1e-3 -q")
    assert abs(total - theirs.get_nr_sv()) <= 2


def test_liblinear_reads_our_linear_models(dtype, tmp_path):
    path, w = tmp_path / "a.model", jnp.asarray(np.random.default_rng(3).normal(size=(3, 4)), dtype)
    for bias, b in (("none", w[0, 0] * 0), ("feature", w[0, 0]), ("free", w[0, 0])):
        model = Linear(w[0], b, bias)
        for task in ("regression", "one_class", None):
            to_libsvm(model, path, task=task)
            check_same(path, model, NEW)
        to_libsvm(Classifier(model, (2, 4)), path)
        check_same(path, Classifier(model, (2, 4)), NEW)
        assert f"bias {-1 if bias == 'none' else 1}\n" in path.read_text()
        np.testing.assert_array_equal(from_libsvm(path).inner.w, w[0])
        np.testing.assert_array_equal(from_libsvm(path).inner.b, b)
    many = Classifier(OneVsRest(Linear(w, w[:, 1], "free"), (True, True)), (3, 1, 2))
    to_libsvm(many, path)
    check_same(path, many, NEW)
    np.testing.assert_array_equal(from_libsvm(path, columns=6).inner.inner.w[:, :4], w)


def test_one_of_two_classes_against_the_rest(tmp_path):
    path, w = (
        tmp_path / "a.model",
        jnp.asarray(np.random.default_rng(3).normal(size=(2, 4)), jnp.float32),
    )
    model = Classifier(OneVsRest(Linear(w, w[:, 1], "free"), (True, True)), (1, 0))
    to_libsvm(model, path)
    labels, values = their_values(path, NEW)
    scores = np.asarray(model(jnp.asarray(NEW, jnp.float32)))
    np.testing.assert_allclose(values[:, 0], scores[:, 1] - scores[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.predict(jnp.asarray(NEW, jnp.float32)), labels)


def test_class_names_that_are_whole_numbers(tmp_path):
    model, path = Linear(jnp.ones(2), jnp.zeros(())), tmp_path / "a.model"
    for names in ((-1.0, 1.0), (False, True), (np.int64(-1), np.float32(3)), (np.False_, np.True_)):
        to_libsvm(Classifier(model, names), path)
        assert from_libsvm(path).classes == tuple(map(int, names))


# What cannot be


LINEAR = Linear(jnp.ones(2), jnp.zeros(()))
PHI = features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=2, features=2)
THREE = OneVsRest(
    dataclasses.replace(expansion(kernels.rbf(1.0), pairs=3)), (False, False, True, True, False)
)
REFUSED = {
    "laplacian": (
        expansion(kernels.laplacian(1.0)),
        "holds linear, polynomial, .* kernels, got laplacian",
    ),
    "sum": (expansion(kernels.linear() + kernels.rbf(1.0)), "got sum_"),
    "features": (Mapped(PHI, LINEAR), "got a model on features: write it with models.save"),
    "named features": (Classifier(Mapped(PHI, LINEAR), (0, 1)), "got a model on features"),
    "names": (
        Classifier(LINEAR, ("no", "yes")),
        r"class 'no': give it integers, Classifier\(model.inner, \(0, 1\)\)",
    ),
    "halves": (
        Classifier(LINEAR, (0.5, 1)),
        "integers of 32 bits, but the model has the class 0.5",
    ),
    "large": (Classifier(LINEAR, (0, 2**31)), "integers of 32 bits"),
    "huge": (Classifier(LINEAR, (0, 2**100)), "integers of 32 bits"),
    "infinite": (Classifier(LINEAR, (0, np.inf)), "integers of 32 bits"),
    "nan": (Linear(jnp.array([jnp.nan, 1.0]), jnp.zeros(())), "not finite: its training diverged"),
    "rest with kernels": (THREE, "train with one_vs_one"),
    "stacked": (
        Linear(jnp.ones((3, 2)), jnp.zeros(3)),
        r"got stacked ones, as of a sweep: select one with jax.tree.map",
    ),
    "stacked expansions": (expansion(kernels.rbf(1.0), pairs=3), "got stacked ones"),
    "rows unknown": (
        expansion(
            kernels.precomputed(), x=np.zeros((4, 4)), index=jnp.full(4, -1), coef=jnp.ones(4)
        ),
        "index is -1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_the_formats_cannot_hold(name, tmp_path):
    model, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=sentence):
        to_libsvm(model, tmp_path / "a.model")
    assert not list(tmp_path.iterdir())


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match="to_libsvm takes Expansion, Linear"):
        to_libsvm(jaxsvm.pegasos(1.0), tmp_path / "a.model")
    with pytest.raises(ValueError, match="task must be one of 'classification'"):
        to_libsvm(LINEAR, tmp_path / "a.model", task="binary")
    with pytest.raises(ValueError, match="task is 'regression', but the model has classes"):
        to_libsvm(Classifier(LINEAR, (0, 1)), tmp_path / "a.model", task="regression")
    with pytest.raises(FileNotFoundError):
        from_libsvm(tmp_path / "none.model")
    with pytest.raises(IsADirectoryError):
        from_libsvm(tmp_path)


HEAD = (
    "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv "
    "2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1\nSV\n"
)
SVS = "1 1:1 2:1\n-1 1:2\n"
WEIGHTS = "solver_type L2R_LR\nnr_class 3\nlabel 1 2 3\nnr_feature 2\nbias -1\nw\n1 2 3\n4 5 6\n"


def changed(old, new, sentence):
    return HEAD.replace(old, new) + SVS, sentence


def of_rows(rows, sentence, kernel="rbf"):
    return HEAD.replace("rbf", kernel) + rows, sentence


def weights(old, new, sentence):
    return WEIGHTS.replace(old, new), sentence


FINITE, RISING = "expected finite numbers of float32", ".* indices rise from 1 to"
DAMAGED = {
    "empty": ("", "has no line 'svm_type'"),
    "another file": ("hello\n", "line 1: expected one of svm_type, solver_type, .*, got 'hello'"),
    "no end": (HEAD[:-3], "expected 2 lines after the header, got 0"),
    "unknown key": changed("rho", "roh", "line 6: expected one of svm_type, .*, got 'roh 0.5'"),
    "twice": ("svm_type c_svc\n" + HEAD + SVS, "line 2: expected .*, each once, got 'svm_type"),
    "type": changed(
        "c_svc", "svc", "line 1: expected svm_type and one of c_svc .*, got 'svm_type svc'"
    ),
    "kernel": changed("rbf", "cubic", "line 2: expected kernel_type and one of linear"),
    "gamma": changed("gamma 0.5", "gamma -0.5", "gamma must be a finite number above 0, got -0.5"),
    "no gamma": changed("gamma 0.5\n", "", "its header has no line 'gamma'"),
    "no number": changed("rho 0.5", "rho half", "line 6: .* 'half', got 'rho half'"),
    "underscore": changed(
        "rho 0.5", "rho 1_0", "line 6: expected finite numbers .*, got 'rho 1_0'"
    ),
    "nan": changed("rho 0.5", "rho nan", f"line 6: {FINITE}.*, got 'rho nan'"),
    "too large": changed(
        "rho 0.5", "rho 1e300", f"line 6: {FINITE}; .* switch on 64-bit .*, got 'rho 1e300'"
    ),
    "two rhos": changed(
        "rho 0.5", "rho 0.5 1", "line 6: expected rho and 1 values, got 'rho 0.5 1'"
    ),
    "one class": changed("nr_class 2", "nr_class 1", "line 4: expected nr_class of at least 2"),
    "classes of regression": (
        WEIGHTS.replace("L2R_LR", "L2R_L2LOSS_SVR").replace("nr_class 3", "nr_class 2x"),
        "line 2: .* '2x', got 'nr_class 2x'",
    ),
    "classes": changed("nr_class 2", "nr_class two", "line 4: .*, got 'nr_class two'"),
    "digits": changed("nr_class 2", "nr_class " + "9" * 5000, "line 4: .*, got 'nr_class 9999"),
    "labels": changed("label 1 -1", "label 1 1", r"classes must be .*, each once, got \(1, 1\)"),
    "half a label": changed("label 1 -1", "label 1 0.5", "line 7: .* '0.5', got 'label 1 0.5'"),
    "counts": changed("nr_sv 1 1", "nr_sv 1 2", "nr_sv must sum to total_sv, 2, got 3"),
    "too few": of_rows("1 1:1\n", "expected 2 lines after the header, got 1"),
    "too many": of_rows(SVS + "1 1:1\n", "expected 2 lines after the header, got 3"),
    "no colon": of_rows("1 1:1 2\n-1 1:2\n", "line 10: .*, got '1 1:1 2'"),
    "two colons": of_rows("1 1:1:2\n-1 1:2\n", "line 10: .* '1:2', got '1 1:1:2'"),
    "index": of_rows("1 1.5:1\n-1 1:2\n", "line 10: .* '1.5', got '1 1.5:1'"),
    "index 0": of_rows("1 0:1\n-1 1:2\n", f"line 10: {RISING} 2147483647, got '1 0:1'"),
    "falling": of_rows("1 2:1 1:1\n-1 1:2\n", f"line 10: {RISING} .*, got '1 2:1 1:1'"),
    "huge index": of_rows(
        "1 9999999999:1\n-1 1:2\n", "line 10: expected integers of 32 bits, got '1 9999999999:1'"
    ),
    "wide": of_rows(
        "1 2000000000:1\n-1 1:2\n", "too many numbers for a dense matrix: pass sparse=True"
    ),
    "rows of a matrix": of_rows(
        SVS, "line 10: expected 1 numbers and 0:index.*, got '1 1:1 2:1'", "precomputed"
    ),
    "row": of_rows("1 0:0\n-1 0:2\n", f"line 10: {RISING} .*, got '1 0:0'", "precomputed"),
    "coefficients": (
        re.sub("(label.*|nr_sv.*)", r"\1 1", HEAD.replace("nr_class 2", "nr_class 3"))
        .replace("rho 0.5", "rho 1 2 3")
        .replace("label 1 -1 1", "label 1 -1 2")
        + "1\n-1 2\n",
        "line 10: expected 2 numbers and index:value .*, got '1'",
    ),
    "solver": weights("L2R_LR", "L3R", "line 1: expected solver_type and one of L2R_"),
    "weights": weights("1 2 3\n4", "1 2\n4", "line 7: expected 3 numbers, got '1 2'"),
    "weight": weights("4 5", "x 5", "line 8: .*, got 'x 5 6'"),
    "fewer weights": weights("4 5 6\n", "", "expected 2 lines after the header, got 1"),
    "no bias": weights("bias -1\n", "", "has no line 'bias'"),
    "bytes": ("svm_type \xff\xfe\nSV\n", "line 1: expected svm_type and one of c_svc"),
}


REGRESSOR = "svm_type epsilon_svr\nkernel_type {}\ngamma 1\nnr_class 2\ntotal_sv 1\nrho 0\nSV\n"
OF_THREE = (
    "svm_type c_svc\nkernel_type rbf\ngamma 1\nnr_class 3\ntotal_sv 2147483647\nrho 0 0 0\nSV\n"
)
MUCH, WIDE = "expected 2147483647 lines", "dense matrix: pass sparse=True"
PRODUCTS = "products or sums are too large for float32"
DAMAGED |= {
    # a few bytes that say they need much memory
    "many points": changed("total_sv 2", f"total_sv {2**31 - 1}", MUCH),
    "points of three": (OF_THREE + "1 1 1:1\n", MUCH),
    "many classes": (
        "solver_type MCSVM_CS\nnr_class 2147483647\nlabel 0 1\nnr_feature 0\nbias -1\nw\n",
        "line 3: expected label and 2147483647 values, got 'label 0 1'",
    ),
    "wide and short": (REGRESSOR.format("rbf") + "1 268435457:1\n", WIDE),
    "wide and linear": (REGRESSOR.format("linear") + "1e30 268435457:1e5\n", WIDE),
    "far row": (
        REGRESSOR.format("precomputed") + "1 0:268435457\n",
        "1 support vectors of 268435457 columns are too many numbers for a dense matrix$",
    ),
    # numbers that float32 holds, unlike their products or sums
    "bias": ("solver_type L2R_L2LOSS_SVR\nnr_feature 1\nbias 1e30\nw\n1\n1e30\n", PRODUCTS),
    "bias of three": (WEIGHTS.replace("bias -1", "bias 1e20") + "1e20 1 1\n", PRODUCTS),
    "rho": (
        "solver_type ONECLASS_SVM\nnr_feature 1\nbias 1\nrho 3e38\nw\n1\n-3e38\n",
        PRODUCTS.removesuffix(" for float32"),
    ),
    "merged": (REGRESSOR.format("linear") + "1e30 3:1e30\n", PRODUCTS),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_told_by_line(name, tmp_path):
    text, sentence = DAMAGED[name]
    path = tmp_path / "a.model"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence) as caught:
        from_libsvm(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_the_undamaged_files_are_read(tmp_path):
    path = tmp_path / "a.model"
    path.write_text(HEAD + SVS)
    check_same(path, from_libsvm(path), NEW[:, :2])
    with pytest.raises(ValueError, match="line 10: .* indices rise from 1 to 1, got"):
        from_libsvm(path, columns=1)
    path.write_text(WEIGHTS)
    check_same(path, from_libsvm(path), NEW[:, :2])
    with pytest.raises(ValueError, match="nr_feature is 2, but columns=1"):
        from_libsvm(path, columns=1)
    path.write_text(HEAD.replace("\n", "\r\n") + SVS.replace("\n", " \r\n"))
    assert from_libsvm(path).classes == (-1, 1)


@pytest.mark.parametrize("name", ["linear", "gamma"])
def test_a_model_without_support_vectors(name, tmp_path):
    path, model = tmp_path / "a.model", expansion(KERNELS[name](), coef=jnp.zeros(30))
    for written in (model, Classifier(model, (0, 1))):
        to_libsvm(written, path)
        assert "total_sv 0\n" in path.read_text()
        for sparse in (False, True):
            check_same(path, from_libsvm(path, columns=4, sparse=sparse), NEW)


@pytest.mark.parametrize("text", [HEAD + SVS, WEIGHTS], ids=["libsvm", "liblinear"])
def test_any_change_of_a_byte_gives_a_model_or_a_sentence(text, tmp_path):
    path, read = tmp_path / "a.model", 0
    for place in range(len(text)):
        for other in "x 9-\n":
            path.write_text(text[:place] + other + text[place + 1 :])
            try:
                model = from_libsvm(path, sparse=True)
            except ValueError as error:
                assert str(error).startswith(str(path)) and "\n" not in str(error), str(error)
            else:
                read += 1
                assert isinstance(model, Classifier)
    assert 0 < read < 5 * len(text)


def overlapping(options, path, columns=3):
    """A file of LIBSVM of three classes that no function separates, and rows: the margin is
    rounding."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, columns)).astype(np.float32).astype(np.float64)
    svmutil.svm_save_model(
        str(path), svmutil.svm_train((np.arange(60) % 3).tolist(), x.tolist(), options + " -q")
    )
    return x


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_coefficients_of_a_linear_kernel_that_cancel_keep_their_digits(nu, sparse, tmp_path):
    """LIBSVM divides by a margin that is rounding alone: coefficients of 1e5, weights of 10."""
    x = overlapping(f"-s 1 -t 0 -n {nu}", path := tmp_path / "a.model")
    model = from_libsvm(path, sparse=sparse, columns=3)
    (labels, values), (ours, our_pairs) = their_values(path, x), our_values(model, x)
    assert np.abs(our_pairs - values).max() < 1e-5 * np.abs(values).max()
    first, second = np.triu_indices(3, 1)
    votes = np.stack([np.where(values > 0, first == c, second == c).sum(1) for c in range(3)], 1)
    is_clear = (np.sort(votes, 1)[:, -1] > np.sort(votes, 1)[:, -2]) & (
        np.abs(values).min(1) > 1e-3
    )
    assert is_clear.sum() > 20 and (ours == labels)[is_clear].all()
    to_libsvm(model, tmp_path / "b.model")
    assert (
        np.abs(their_values(tmp_path / "b.model", x)[1] - our_pairs).max()
        < 1e-5 * np.abs(values).max()
    )


def test_a_regressor_with_a_linear_kernel_keeps_its_digits(tmp_path):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 2)).astype(np.float32).astype(np.float64) + 100
    y = x @ [1.0, -2.0] + rng.normal(size=40)
    path = tmp_path / "a.model"
    svmutil.svm_save_model(
        str(path), svmutil.svm_train(y.tolist(), x.tolist(), "-s 3 -t 0 -c 1000 -e 0.1 -q")
    )
    model = from_libsvm(path)
    assert np.abs(our_values(model, x)[1] - their_values(path, x)[1]).max() < 1e-3


def test_coefficients_that_float32_cannot_sum_are_a_warning(tmp_path):
    overlapping("-s 1 -t 1 -d 2 -g 1 -n 0.1", path := tmp_path / "a.model", columns=1)
    with pytest.warns(UserWarning, match="rounds decision values by about"):
        from_libsvm(path)


def test_products_that_float64_holds_are_read(tmp_path, x64):
    path = tmp_path / "a.model"
    path.write_text(DAMAGED["bias"][0])
    np.testing.assert_allclose(from_libsvm(path)(np.array([[2.0]])), [1e60], rtol=1e-12)


def test_wide_models_are_dense_in_proportion_to_their_file(tmp_path):
    """News articles have about 50 columns for each byte of their text."""
    rows = scipy.sparse.random(300, 60_000, 0.0012, "csr", random_state=0)
    rows.data[:] = 1
    words = (" ".join(f"{j + 1}:1" for j in np.sort(row.indices)) for row in rows)
    head = REGRESSOR.format("rbf").replace("total_sv 1", "total_sv 300")
    path = tmp_path / "a.model"
    path.write_text(head + "".join(f"0.5 {text}\n" for text in words))
    model = from_libsvm(path, columns=60_000)
    assert model.x.shape == (300, 60_000)
