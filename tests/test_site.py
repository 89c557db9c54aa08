"""The extensions of the site: docstrings, and the pages that are cut from the results."""

import importlib.util
import pathlib

import pytest

EXTENSIONS = pathlib.Path(__file__).parent.parent / "docs" / "_ext"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|w|^2 of `w` and <w, x>", r"\|w\|^2 of ``w`` and <w, x>"),
        ("support_ and x_i, **axes", r"support\_ and x_i, \*\*axes"),
        ("two `fit`s", r"two ``fit``\ s"),
        ("a mark `over\ntwo lines`", "a mark ``over\ntwo lines``"),
    ],
)
def test_prose(text, expected):
    assert load("docstrings").prose(text) == expected


def test_sections_formulas_and_examples():
    lines = """First |w|.

        w = |w|

Args:
    lam: > 0,
        of |w|.

Returns:
    A solver: `Linear`.

Example: one row
    >>> f("|")
    '|'
Reference: A. Author,
    a title.
""".split("\n")
    expected = r"""First \|w\|.

::

        w = |w|

Args:
    lam: > 0,
        of \|w\|.

Returns:
    :
    A solver: ``Linear``.

Example:
    one row

    >>> f("|")
    '|'
""".split("\n")
    assert load("docstrings").to_rst(lines)[: len(expected) - 1] == expected[:-1]


def test_fields_of_a_named_tuple():
    from jaxsvm.types import Info

    lines = load("docstrings").fields(Info)
    assert "    loss: () mean loss on the rows of the step, before it" in lines
    assert "    index: (r,) the rows that the step changed, -1 = none" in lines


def test_results_are_cut_into_sections():
    pytest.importorskip("sphinx")
    sections = load("pages").sections()
    assert len(sections) > 15 and sections["linear-solvers"].startswith("Linear solvers\n")


def test_every_public_name_is_documented_once(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(EXTENSIONS)
    reference = load("reference")
    names = {f"{m}.{name}" for m, names in reference.public_modules().items() for name in names}
    assert names <= reference.HOME.keys() and len(names) > 200
    assert len({entry.name for entry in reference.ENTRIES}) == len(reference.ENTRIES)
