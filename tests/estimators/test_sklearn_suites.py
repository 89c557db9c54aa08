"""The command that runs scikit-learn's tests on our classes: the names that it replaces, and its
reasons."""

import pytest

suites = pytest.importorskip(
    "benchmarks.trust.sklearn_suites", reason="the folder benchmarks is not here"
)


def test_names_are_those_of_our_classes():
    text = (
        "from sklearn import base, svm\nfrom sklearn.svm import (\n    "
        "SVC,\n)\nfrom sklearn.svm.tests import test_svm\n"
    )
    replaced = suites.with_our_classes(text + "from sklearn.svm._classes import x\n")
    assert replaced == (
        "from sklearn import base\nimport our_svm as svm\nfrom our_svm "
        "import (\n    SVC,\n)\nimport test_svm\n"
        "from sklearn.svm._classes import x\n"
    )
    names = {}
    exec(suites.NAMES, names)
    assert names["SVC"].__module__.startswith("jaxsvm.")
    assert names["l1_min_c"].__module__.startswith("sklearn.")


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_told():
    row = lambda name, result: {
        "test": name,
        "result": result,
        "why it does not apply": "",
        "said": "off by 1",
    }
    rows = [row("a::f[x-1]", "fails"), row("a::g", "fails"), row("a::h", "passes")]
    wrong = suites.with_reasons(rows, {"a::f[x-*]": "float32", "a::h": "old"})
    assert wrong == ["a::g fails without a reason: off by 1", "a::h: no such test fails any more"]
    assert [each["why it does not apply"] for each in rows] == ["float32", "", ""]
