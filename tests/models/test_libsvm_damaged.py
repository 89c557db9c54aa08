"""Files of LIBSVM and LIBLINEAR that are damaged are told by line, and others are read."""

import numpy as np
import pytest
import scipy.sparse
from samples import NEW, check_same, close

from jaxsvm.models import Classifier, from_libsvm

HEAD = (
    "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv "
    "2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1\nSV\n"
)
SVS = "1 1:1 2:1\n-1 1:2\n"
FILE = HEAD + SVS
WEIGHTS = "solver_type L2R_LR\nnr_class 3\nlabel 1 2 3\nnr_feature 2\nbias -1\nw\n1 2 3\n4 5 6\n"
REGRESSOR = "svm_type epsilon_svr\nkernel_type {}\ngamma 1\nnr_class 2\ntotal_sv 1\nrho 0\nSV\n"
OF_THREE = HEAD.replace("nr_class 2", "nr_class 3").replace("nr_sv 1 1", "nr_sv 1 1 1")
OF_THREE = OF_THREE.replace("rho 0.5", "rho 1 2 3").replace("label 1 -1", "label 1 -1 2")
MANY = "svm_type c_svc\nkernel_type rbf\ngamma 1\nnr_class 3\ntotal_sv 2147483647\nrho 0 0 0\nSV\n"
SINGER = "solver_type MCSVM_CS\nnr_class 2147483647\nlabel 0 1\nnr_feature 0\nbias -1\nw\n"
L2LOSS, ONECLASS = "solver_type L2R_L2LOSS_SVR\n", "solver_type ONECLASS_SVM\n"
INT, WIDE, RISING = 2**31 - 1, "dense matrix: pass sparse=True", "indices rise from 1 to"
PRODUCTS, FINITE = "products or sums are too large", "expected finite numbers of float32"

# A file, what is replaced in it by what, and what the sentence says
CHANGED = [
    (FILE, "rho", "roh", "line 6: expected one of svm_type, .*, got 'roh 0.5'"),
    (FILE, "svm_type c_svc\n", "svm_type c_svc\n" * 2, "line 2: expected .*, each once"),
    (
        HEAD + SVS,
        "c_svc",
        "svc",
        "line 1: expected svm_type and one of c_svc .*, got 'svm_type svc'",
    ),
    (FILE, "rbf", "cubic", "line 2: expected kernel_type and one of linear"),
    (FILE, "gamma 0.5", "gamma -0.5", "gamma must be a finite number above 0, got -0.5"),
    (FILE, "gamma 0.5\n", "", "its header has no line 'gamma'"),
    (FILE, "rho 0.5", "rho half", "line 6: .* 'half', got 'rho half'"),
    (FILE, "rho 0.5", "rho 1_0", "line 6: expected finite numbers .*, got 'rho 1_0'"),
    (FILE, "rho 0.5", "rho nan", f"line 6: {FINITE}.*, got 'rho nan'"),
    (FILE, "rho 0.5", "rho 1e300", f"line 6: {FINITE}; .* switch on 64-bit .*, got 'rho 1e"),
    (FILE, "rho 0.5", "rho 0.5 1", "line 6: expected rho and 1 values, got 'rho 0.5 1'"),
    (FILE, "nr_class 2", "nr_class 1", "line 4: expected nr_class of at least 2"),
    (FILE, "nr_class 2", "nr_class two", "line 4: .*, got 'nr_class two'"),
    (FILE, "nr_class 2", "nr_class " + "9" * 5000, "line 4: .*, got 'nr_class 9999"),
    (FILE, "label 1 -1", "label 1 1", r"classes must be .*, each once, got \(1, 1\)"),
    (FILE, "label 1 -1", "label 1 0.5", "line 7: .* '0.5', got 'label 1 0.5'"),
    (FILE, "nr_sv 1 1", "nr_sv 1 2", "nr_sv must sum to total_sv, 2, got 3"),
    (FILE, "total_sv 2", f"total_sv {INT}", f"expected {INT} lines"),
    (FILE, SVS, "1 1:1\n", "expected 2 lines after the header, got 1"),
    (FILE, SVS, SVS + "1 1:1\n", "expected 2 lines after the header, got 3"),
    (FILE, "1:1 2:1", "1:1 2", "line 10: .*, got '1 1:1 2'"),
    (FILE, "1:1 2:1", "1:1:2", "line 10: .* '1:2', got '1 1:1:2'"),
    (FILE, "1:1 2:1", "1.5:1", "line 10: .* '1.5', got '1 1.5:1'"),
    (FILE, "1:1 2:1", "0:1", f"line 10: .* {RISING} {INT}, got '1 0:1'"),
    (FILE, "1:1 2:1", "2:1 1:1", f"line 10: .* {RISING} .*, got '1 2:1 1:1'"),
    (FILE, "1:1 2:1", "9999999999:1", "line 10: expected integers of 32 bits, got '1 9999"),
    (FILE, "1:1 2:1", "2000000000:1", WIDE),
    (
        HEAD + SVS,
        "rbf",
        "precomputed",
        "line 10: expected 1 numbers and 0:index.*, got '1 1:1 2:1'",
    ),
    (HEAD + "1 0:0\n-1 0:2\n", "rbf", "precomputed", f"line 10: .* {RISING} .*, got '1 0:0'"),
    (OF_THREE + "1 1:1\n-1 2\n", " 1:1\n", "\n", "line 10: expected 2 numbers and index:value"),
    (WEIGHTS, "L2R_LR", "L3R", "line 1: expected solver_type and one of L2R_"),
    (WEIGHTS, "L2R_LR\nnr_class 3", "L2R_L2LOSS_SVR\nnr_class 2x", "line 2: .* '2x'"),
    (WEIGHTS, "1 2 3\n4", "1 2\n4", "line 7: expected 3 numbers, got '1 2'"),
    (WEIGHTS, "4 5", "x 5", "line 8: .*, got 'x 5 6'"),
    (WEIGHTS, "4 5 6\n", "", "expected 2 lines after the header, got 1"),
    (WEIGHTS, "bias -1\n", "", "has no line 'bias'"),
    (WEIGHTS.replace("bias -1", "bias 1e20"), "4 5 6\n", "4 5 6\n1e20 1 1\n", PRODUCTS),
]
DAMAGED = [  # a file, and what the sentence says
    *((text.replace(old, new, 1), sentence) for text, old, new, sentence in CHANGED),
    ("", "has no line 'svm_type'"),
    ("hello\n", "line 1: expected one of svm_type, solver_type, .*, got 'hello'"),
    ("svm_type \xff\xfe\nSV\n", "line 1: expected svm_type and one of c_svc"),
    (HEAD[:-3], "expected 2 lines after the header, got 0"),
    # a few bytes that say they need much memory
    (MANY + "1 1 1:1\n", f"expected {INT} lines"),
    (SINGER, f"line 3: expected label and {INT} values, got 'label 0 1'"),
    (REGRESSOR.format("rbf") + "1 268435457:1\n", WIDE),
    (REGRESSOR.format("linear") + "1e30 268435457:1e5\n", WIDE),
    (REGRESSOR.format("precomputed") + "1 0:268435457\n", "268435457 columns .* dense matrix$"),
    # numbers that float32 holds, unlike their products or sums
    (LARGE := L2LOSS + "nr_feature 1\nbias 1e30\nw\n1\n1e30\n", PRODUCTS),
    (ONECLASS + "nr_feature 1\nbias 1\nrho 3e38\nw\n1\n-3e38\n", PRODUCTS),
    (REGRESSOR.format("linear") + "1e30 3:1e30\n", PRODUCTS),
]


@pytest.mark.parametrize(("text", "sentence"), DAMAGED, ids=[words[:40] for _, words in DAMAGED])
def test_damaged_files_are_told_by_line(text, sentence, path):
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence) as caught:
        from_libsvm(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "body", "sentence"),
    [
        (HEAD, SVS, "line 10: .* indices rise from 1 to 1, got"),
        (WEIGHTS, "", "nr_feature is 2, but"),
    ],
)
def test_the_undamaged_files_are_read(head, body, sentence, path):
    text = head + body
    path.write_text(text)
    check_same(path, from_libsvm(path), NEW[:, :2])
    with pytest.raises(ValueError, match=sentence):
        from_libsvm(path, columns=1)
    path.write_text(head.replace("\n", "\r\n") + body.replace("\n", " \r\n"))
    assert from_libsvm(path).classes == ((1, 2, 3) if head == WEIGHTS else (-1, 1))


@pytest.mark.parametrize(
    ("bias", "kind"), [(-1, "none"), (0, "free"), (0.5, "free"), (1, "feature"), (2, "free")]
)
def test_the_bias_of_liblinear_is_a_feature_of_that_value(bias, kind, path):
    last = "7 -8 9\n" if bias >= 0 else ""
    path.write_text(WEIGHTS.replace("bias -1", f"bias {bias}") + last)
    model = from_libsvm(path)
    check_same(path, model, NEW[:, :2])
    close(model.inner.inner.b, np.array([7, -8, 9]) * max(bias, 0))
    assert model.inner.inner.bias == kind


@pytest.mark.parametrize("text", [HEAD + SVS, WEIGHTS], ids=["libsvm", "liblinear"])
def test_any_change_of_a_byte_gives_a_model_or_a_sentence(text, path):
    read = 0
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


def test_products_that_float64_holds_are_read(path, x64):
    path.write_text(LARGE)
    close(from_libsvm(path)(np.array([[2.0]])), [1e60], rtol=1e-12)


@pytest.mark.long
def test_wide_models_are_dense_in_proportion_to_their_file(path):
    """News articles have about 50 columns for each byte of their text."""
    rows = scipy.sparse.random(300, 60_000, 0.0012, "csr", random_state=0)
    words = (" ".join(f"{j + 1}:1" for j in np.sort(row.indices)) for row in rows)
    head = REGRESSOR.format("rbf").replace("total_sv 1", "total_sv 300")
    path.write_text(head + "".join(f"0.5 {text}\n" for text in words))
    assert from_libsvm(path, columns=60_000).x.shape == (300, 60_000)
