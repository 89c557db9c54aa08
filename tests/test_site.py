"""The extensions of the site: docstrings, formulas, outputs, and pages that are cut from others."""

import importlib.util
import pathlib
import re

import pytest

import jaxsvm

ROOT = pathlib.Path(__file__).parent.parent
EXTENSIONS = ROOT / "docs" / "_ext"


@pytest.fixture(autouse=True)
def extensions_import_each_other(monkeypatch):
    monkeypatch.syspath_prepend(EXTENSIONS)


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

.. raw:: html

    <table class="formula">
    <tr><td colspan="1" style="padding-left: 3.0em"><i>w</i> = |<i>w</i>|</td></tr>
    </table>

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


def test_symbols_of_a_formula():
    text = "sum_i x_ij^2 >= -lam, w' <- <w, x> < t0^(t+1), fold_in(a), a kernel's sum"
    html = "∑<sub>i</sub> x<sub>ij</sub><sup>2</sup> ≥ −λ, w′ ← ⟨w, x⟩ &lt; t<sub>0</sub>"
    html += "<sup>t+1</sup>, fold_in(a), a kernel's sum"
    assert re.sub("</?i>", "", load("docstrings").symbols(text)) == html


def test_aligned_parts_of_a_formula_are_cells():
    lines = ["nu = 1/2   exp(-r)", "nu = 3/2   (1 + r)", "    where r > 0"]
    rows = load("docstrings").formula(lines)[1:-1]
    assert [row.count("<td") for row in rows] == [2, 2, 1] and 'colspan="2"' in rows[2]


def test_outputs_stand_under_their_blocks_and_failures_are_errors():
    errors = pytest.importorskip("sphinx.errors")
    outputs = load("outputs")
    page = "```python\na = 1\n```\n```python\nprint(a + 1)\n```\n"
    printed = outputs.run("page", outputs.BLOCK.findall(page))
    block = "```{code-block} text\n:class: output\n\n2\n```\n"
    assert outputs.with_outputs(page, printed) == page + block
    with pytest.raises(errors.ExtensionError, match="block 2 of page fails: NameError"):
        outputs.run("page", ["a = 1", "b"])


def test_lines_of_code_are_short():
    for page in [*ROOT.glob("docs/*.md"), ROOT / "jaxsvm/solvers/README.md"]:
        for block in re.findall(r"^```.*?^```$", page.read_text(), re.S | re.M):
            assert max(map(len, block.split("\n"))) <= 80, (page.name, block)


def test_the_citation_has_the_version_of_the_package():
    assert f"{{{jaxsvm.__version__}}}" in (ROOT / "docs/cite.md").read_text()


def test_fields_of_a_named_tuple():
    from jaxsvm.types import Info

    lines = load("docstrings").fields(Info)
    assert "    loss: () mean loss on the rows of the step, before it" in lines
    assert "    index: (r,) the rows that the step changed, -1 = none" in lines


def test_results_are_cut_into_sections():
    pytest.importorskip("sphinx")
    sections = load("pages").sections()
    assert len(sections) > 15 and sections["linear-solvers"].startswith("Linear solvers\n")


def test_every_public_name_is_documented_once():
    pytest.importorskip("sphinx")
    reference = load("reference")
    names = {f"{m}.{name}" for m, names in reference.public_modules().items() for name in names}
    assert names <= reference.HOME.keys() and len(names) > 200
    assert len({entry.name for entry in reference.ENTRIES}) == len(reference.ENTRIES)
