"""Model files of LIBSVM and LIBLINEAR, judged by the programs of their authors, in both
directions."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from liblinear import liblinearutil
from libsvm import svmutil
from samples import NEW, check_same, close, data, equal, is_clear, our_values, their_values

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import Classifier, Expansion, Linear, OneVsOne, OneVsRest, from_libsvm, to_libsvm

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 4)) * (RNG.random((30, 4)) < 0.7)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


def train(path, y, x, options):
    """A file of LIBSVM."""
    svmutil.svm_save_model(str(path), svmutil.svm_train(y, x, options + " -q"))


# Their files


KERNEL_FILES = {  # data, options
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
LINEAR_FILES = {  # data, options, and the bias of the model
    "binary": ("cancer", "-s 3", "none"),
    "binary, bias": ("cancer", "-s 2 -B 1", "feature"),
    "bias of another size": ("cancer", "-s 1 -B 2.5", "free"),
    "three classes": ("iris", "-s 1 -B 1", "feature"),
    "Crammer and Singer": ("iris", "-s 4", "none"),
    "Crammer and Singer, binary": ("cancer", "-s 4 -B 1", "feature"),
    "logistic": ("iris", "-s 0", "none"),
    "regression": ("diabetes", "-s 12 -B 1", "feature"),
    "one_class": ("cancer", "-s 21 -n 0.2", "free"),
}


def there_and_back(path, new, name):
    """The model of a file, whose values are those of the file, as are those of its own file."""
    model, other = from_libsvm(path), path.with_suffix(".other")
    to_libsvm(model, other, task="one_class" if name == "one_class" else None)
    for file in (path, other):
        check_same(file, model, new)
    return model.inner if isinstance(model, Classifier) else model


@pytest.mark.long
@pytest.mark.parametrize("name", KERNEL_FILES)
def test_a_file_of_libsvm_gives_its_values(name, dtype, path):
    source, options = KERNEL_FILES[name]
    x, y, new = data(source)
    train(path, y, x, options)
    there_and_back(path, new, name)
    header = lambda text: re.sub(r"(prob|nu_sv|epsilon_sv|c_sv).*\n", "", text.partition("rho")[0])
    kept = lambda text: re.findall(r"^(?:label|nr_sv).*", text, re.M)
    for part in (header, kept):
        assert part(path.with_suffix(".other").read_text()) == part(path.read_text())


@pytest.mark.long(but=6)
@pytest.mark.parametrize("name", LINEAR_FILES)
def test_a_file_of_liblinear_gives_its_values(name, dtype, path):
    source, options, bias = LINEAR_FILES[name]
    x, y, new = data(source)
    liblinearutil.save_model(str(path), liblinearutil.train(y, x, options + " -q"))
    inner = there_and_back(path, new, name)
    assert (inner.inner if isinstance(inner, OneVsRest) else inner).bias == bias


@pytest.mark.long(but=1)
def test_a_precomputed_kernel_of_libsvm(dtype, path):
    x, y, new = data("iris")
    gram = np.hstack([np.arange(1, len(x) + 1)[:, None], x @ x.T])
    problem = svmutil.svm_problem(y, gram, isKernel=True)
    made = svmutil.svm_train(problem, svmutil.svm_parameter("-t 4 -q"))
    svmutil.svm_save_model(str(path), made)
    model, other = from_libsvm(path, columns=len(x)), path.with_suffix(".other")
    check_same(path, model, new @ x.T)
    to_libsvm(model, other)
    assert other.read_text().splitlines()[:3] == path.read_text().splitlines()[:3]
    check_same(other, model, new @ x.T)
    largest = max(map(int, re.findall(r" 0:(\d+)", path.read_text())))
    assert from_libsvm(path).inner.inner.coef.shape == (3, largest)
    with pytest.raises(ValueError, match="a precomputed block has a column for each of the 100"):
        model.sqnorm()


@pytest.mark.long
@pytest.mark.parametrize("options", ["-s 0 -t 2", "-s 0 -t 0"])
def test_support_vectors_stay_sparse(options, path):
    x, other = scipy.sparse.random(60, 500, 0.02, "csr", random_state=0), path.with_suffix(".other")
    train(path, np.where(np.asarray(x.sum(axis=1)).ravel() > 4, 1, -1), x, options)
    model, dense = (from_libsvm(path, columns=500, sparse=sparse) for sparse in (True, False))
    assert isinstance(model.inner.x, jaxsvm.SparseRows) and model.inner.x.index.shape[1] < 50
    equal(model.inner.x.toarray(), dense.inner.x)
    check_same(path, model, x[:20].toarray())
    to_libsvm(model, other)
    check_same(other, model, x[:20].toarray())
    to_libsvm(dense, path)
    assert path.read_bytes() == other.read_bytes()


# Our models


def expansion(kernel, *, x=ROWS, pairs=None, seed=2, **changes):
    rng = np.random.default_rng(seed)
    m, front = x.shape[-2], () if pairs is None else (pairs,)
    run = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    coef = rng.normal(size=(*front, m)) * (rng.random((*front, m)) < 0.6)
    x, coef, b = (jnp.asarray(a, run) for a in (x, coef, rng.normal(size=front)))
    made = Expansion(kernel, x, coef, b, jnp.arange(m, dtype=jnp.int32), "free")
    return dataclasses.replace(made, **changes)


def pairs(inner, k, *, stacked):
    own = [getattr(inner, name) for name in stacked]
    flags = (any(leaf is part for part in own) for leaf in jax.tree.leaves(inner))
    return OneVsOne(inner, tuple(flags), k)


KERNELS = {
    "linear": kernels.linear(),
    "sigma": kernels.rbf(1.7),
    "gamma": kernels.rbf(gamma=0.3),
    "polynomial": kernels.polynomial(0.3, -0.7, degree=4),
    "sigmoid": kernels.sigmoid(0.2, 0.1),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", KERNELS)
def test_libsvm_reads_our_expansions(name, dtype, path):
    model, rows = expansion(KERNELS[name]), jnp.asarray(NEW, dtype)
    for task, written, svm_type in (
        *((task, model, "epsilon_svr") for task in (None, "regression")),
        ("one_class", model, "one_class"),
        ("classification", Classifier(model, (-1, 1)), "c_svc"),
    ):
        to_libsvm(model, path, task=task)
        assert path.read_text().startswith(f"svm_type {svm_type}\n")
        check_same(path, written, NEW)
    to_libsvm(Classifier(model, (7, -3)), path)
    check_same(path, Classifier(model, (7, -3)), NEW)
    read, used = from_libsvm(path, columns=4), np.flatnonzero(model.coef)
    assert read.classes == (7, -3) and len(read.inner.coef) == len(used)
    close(read(rows), model(rows), rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-5)
    order = lambda a: a[np.lexsort(np.asarray(a).T)]
    equal(order(np.asarray(read.inner.x)), order(np.asarray(model.x)[used]))


@pytest.mark.long
def test_libsvm_reads_our_pairs(dtype, path):
    """Random coefficients: most support vectors belong to several classes."""
    rbf, labels = kernels.rbf(2.0), (5, -1, 0, 3)
    shared = pairs(expansion(rbf, pairs=6, seed=1), 4, stacked=("coef", "b"))
    own_rows = np.random.default_rng(5).normal(size=(6, 30, 4))
    own = pairs(expansion(rbf, pairs=6, x=own_rows, seed=1), 4, stacked=("x", "coef", "b"))
    weights = jnp.asarray(np.random.default_rng(6).normal(size=(6, 4)), dtype)
    linear = pairs(Linear(weights, weights[:, 0], "free"), 4, stacked=("w", "b"))
    placed = dataclasses.replace(shared.inner, index=jnp.broadcast_to(shared.inner.index, (6, 30)))
    for model in (shared, own, linear, pairs(placed, 4, stacked=("coef", "b", "index"))):
        to_libsvm(Classifier(model, labels), path)
        check_same(path, Classifier(model, labels), NEW, clear_share=0)
        check_same(path, from_libsvm(path, columns=4), NEW, clear_share=0)
    to_libsvm(linear, path)
    assert "label 0 1 2 3\n" in path.read_text() and "total_sv 6\n" in path.read_text()


@pytest.mark.long
def test_support_vectors_of_one_class_are_written_once(path):
    """Coefficients as a dual method gives them: the sign is that of the class."""
    k, (first, second) = 4, np.triu_indices(4, 1)
    owner = np.random.default_rng(0).integers(0, k, 30)
    sign = (owner == first[:, None]).astype(float) - (owner == second[:, None])
    coef = jnp.asarray((np.random.default_rng(1).random((6, 30)) + 0.1) * sign, jnp.float32)
    inner = expansion(kernels.linear(), pairs=6, coef=coef)
    model = pairs(inner, k, stacked=("coef", "b"))
    to_libsvm(model, path)
    counts = " ".join(map(str, np.bincount(owner, minlength=k)))
    assert f"nr_sv {counts}\n" in path.read_text() and "total_sv 30\n" in path.read_text()
    check_same(path, Classifier(model, range(k)), NEW, clear_share=0)


@pytest.mark.long
def test_a_fitted_machine_of_pairs(path):
    x, y, new = data("iris", names=range(3))
    solver = jaxsvm.one_vs_one(jaxsvm.decomposition(10.0, kernels.rbf(2.0)), classes=3)
    rows = jaxsvm.dataset(x, y, task="multiclass")
    model = jaxsvm.fit(solver, rows, jax.random.key(0), tol=1e-3).model
    to_libsvm(model, path)
    check_same(path, Classifier(model, (0, 1, 2)), new)
    total = int(re.search(r"total_sv (\d+)", path.read_text())[1])
    assert total == int(np.any(np.asarray(model.inner.coef) != 0, axis=0).sum())
    theirs = svmutil.svm_train(y, x, "-c 10 -g 0.125 -e 1e-3 -q")
    assert abs(total - theirs.get_nr_sv()) <= 2


@pytest.mark.long
def test_liblinear_reads_our_linear_models(dtype, path):
    w = jnp.asarray(np.random.default_rng(3).normal(size=(3, 4)), dtype)
    for bias, b in (("none", w[0, 0] * 0), ("feature", w[0, 0]), ("free", w[0, 0])):
        model = Linear(w[0], b, bias)
        for task in ("regression", "one_class", None):
            to_libsvm(model, path, task=task)
            check_same(path, model, NEW)
        to_libsvm(Classifier(model, (2, 4)), path)
        check_same(path, Classifier(model, (2, 4)), NEW)
        assert f"bias {-1 if bias == 'none' else 1}\n" in path.read_text()
        equal(from_libsvm(path).inner.w, w[0])
        equal(from_libsvm(path).inner.b, b)
    many = Classifier(OneVsRest(Linear(w, w[:, 1], "free"), (True, True)), (3, 1, 2))
    to_libsvm(many, path)
    check_same(path, many, NEW)
    equal(from_libsvm(path, columns=6).inner.inner.w[:, :4], w)


def test_one_of_two_classes_against_the_rest(path):
    w = jnp.asarray(np.random.default_rng(3).normal(size=(2, 4)), jnp.float32)
    model = Classifier(OneVsRest(Linear(w, w[:, 1], "free"), (True, True)), (1, 0))
    to_libsvm(model, path)
    (labels, values), (ours, scores) = their_values(path, NEW), our_values(model, NEW)
    close(values[:, 0], scores[:, 1] - scores[:, 0], rtol=1e-4, atol=1e-5)
    equal(ours, labels)


WHOLE = [(-1.0, 1.0), (False, True), (np.int64(-1), np.float32(3)), (np.False_, np.True_)]


@pytest.mark.parametrize("names", WHOLE)
def test_class_names_that_are_whole_numbers(names, path):
    to_libsvm(Classifier(Linear(jnp.ones(2), jnp.zeros(())), names), path)
    assert from_libsvm(path).classes == tuple(map(int, names))


@pytest.mark.long
@pytest.mark.parametrize("kernel", [KERNELS["linear"], KERNELS["gamma"]], ids=str)
def test_a_model_without_support_vectors(kernel, path):
    model = expansion(kernel, coef=jnp.zeros(30))
    for written in (model, Classifier(model, (0, 1))):
        to_libsvm(written, path)
        assert "total_sv 0\n" in path.read_text()
        for sparse in (False, True):
            check_same(path, from_libsvm(path, columns=4, sparse=sparse), NEW)


# Numbers that float32 rounds


def overlapping(options, path, columns=3):
    """A file of LIBSVM of three classes that no function separates, and rows: the margin is
    rounding."""
    x = np.random.default_rng(3).normal(size=(60, columns)).astype(np.float32).astype(np.float64)
    train(path, (np.arange(60) % 3).tolist(), x.tolist(), options)
    return x


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("nu", "sparse"), [(0.1, True), (0.5, False)])
def test_coefficients_of_a_linear_kernel_that_cancel_keep_their_digits(nu, sparse, path):
    """LIBSVM divides by a margin that is rounding alone: coefficients of 1e5, weights of 10."""
    x, other = overlapping(f"-s 1 -t 0 -n {nu}", path), path.with_suffix(".other")
    model = from_libsvm(path, sparse=sparse, columns=3)
    (labels, values), (ours, our_pairs) = their_values(path, x), our_values(model, x)
    to_libsvm(model, other)
    for found in (values, their_values(other, x)[1]):
        assert np.abs(our_pairs - found).max() < 1e-5 * np.abs(values).max()
    clear = is_clear(values, 3, 1e-3)
    assert clear.sum() > 20 and (ours == labels)[clear].all()


@pytest.mark.long
def test_a_regressor_with_a_linear_kernel_keeps_its_digits(path):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 2)).astype(np.float32).astype(np.float64) + 100
    train(path, x @ [1.0, -2.0] + rng.normal(size=40), x.tolist(), "-s 3 -t 0 -c 1000 -e 0.1")
    model = from_libsvm(path)
    assert np.abs(our_values(model, x)[1] - their_values(path, x)[1]).max() < 1e-3


def test_coefficients_that_float32_cannot_sum_are_a_warning(path):
    overlapping("-s 1 -t 1 -d 2 -g 1 -n 0.1", path, columns=1)
    with pytest.warns(UserWarning, match="rounds decision values by about"):
        from_libsvm(path)
