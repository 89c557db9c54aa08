"""The examples of docstrings run as pasted into a new interpreter: each imports what it uses."""

import ast
import doctest
import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "jaxsvm"
TEXTS = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
WITH_EXAMPLES = sorted(file for file, text in TEXTS.items() if ">>> " in text)


def docstrings(file):
    """The docstrings of a file: name, line and text of each."""
    for node in ast.walk(ast.parse(TEXTS[file])):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                yield getattr(node, "name", file), node.body[0].lineno - 1, text


@pytest.mark.long
@pytest.mark.parametrize("file", WITH_EXAMPLES)
@pytest.mark.usefixtures("usual_promotion", "registry")
def test_examples_run_in_a_new_namespace(file):
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    for name, line, text in docstrings(file):
        names = {"__name__": "__main__"}  # all that a new interpreter has
        example = doctest.DocTestParser().get_doctest(text, names, name, f"jaxsvm/{file}", line)
        runner.run(example, out=report.append)
    assert runner.tries and not report, "".join(report)


def test_what_differs_from_a_paper_is_one_paragraph():
    """A section of a docstring ends where a line is not indented, and goes on after a blank one."""
    head = r"^Differs from the papers?:"
    section = head + r" .+(\n    (?![-*] )\S.*)*(\Z|\n\n[A-Z]\w+( \w+)*:)"
    count = lambda pattern, text: sum(1 for _ in re.finditer(pattern, text, re.M))
    found = {f"{file}:{line}": text for file in TEXTS for _, line, text in docstrings(file)}
    assert sum(count(head, text) for text in found.values()) > 50
    broken = [k for k, text in found.items() if count(head, text) > count(section, text)]
    assert broken == []
