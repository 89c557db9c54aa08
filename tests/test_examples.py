"""The examples of docstrings run as pasted into a new interpreter: each imports what it uses."""

import ast
import doctest
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "jaxsvm"
TEXTS = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
WITH_EXAMPLES = sorted(file for file, text in TEXTS.items() if ">>> " in text)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def examples(file):
    """The docstrings of a file that have examples, each with the names of a new interpreter."""
    nodes = [n for n in ast.walk(ast.parse(TEXTS[file])) if isinstance(n, DOCUMENTED)]
    docstrings = [(node, ast.get_docstring(node) or "") for node in nodes]
    for node, text in docstrings:
        if ">>> " in text:
            name, line = getattr(node, "name", file), node.body[0].lineno - 1
            new = {"__name__": "__main__"}
            yield doctest.DocTestParser().get_doctest(text, new, name, f"jaxsvm/{file}", line)


@pytest.mark.long
@pytest.mark.parametrize("file", WITH_EXAMPLES)
@pytest.mark.usefixtures("usual_promotion", "registry")
def test_examples_run_in_a_new_namespace(file):
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    for example in examples(file):
        runner.run(example, out=report.append)
    assert runner.tries and not report, "".join(report)
