"""Every function that is not local to another one has types for its parameters and its result, read
off the sources."""

import ast
import pathlib

import pytest

import jaxsvm

ROOT = pathlib.Path(jaxsvm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree, in_class=False):
    """The functions of a module and of its classes, each with whether its first parameter is the
    instance or the class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTION):
            static = any(
                isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list
            )
            yield node, in_class and not static
        elif not isinstance(node, ast.Lambda):
            yield from functions(
                node,
                isinstance(node, ast.ClassDef) or (in_class and not isinstance(node, ast.expr)),
            )


def missing(source):
    """`line name: what` for all that has no type."""
    found = []
    for node, bound in functions(ast.parse(source)):
        given = node.args
        names = [*given.posonlyargs, *given.args][1 if bound else 0 :]
        names += [*given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        untyped = [name.arg for name in names if name.annotation is None] + ["the result"] * (
            node.returns is None
        )
        if untyped:
            found.append(f"{node.lineno} {node.name}: {', '.join(untyped)}")
    return found


def test_the_reader_of_annotations_sees_every_form():
    assert (
        missing("def f(a: int, *b: int, c: int = 0, **d: int) -> int:\n    def g(x): ...\n") == []
    )
    assert missing("def f(a, /, b: int, *c, d, **e): ...") == ["1 f: a, d, c, e, the result"]
    assert missing(
        "class A:\n    def f(self, x) -> int: ...\n    @staticmethod\n    def g(x) -> int: ..."
    ) == ["2 f: x", "4 g: x"]
    assert missing("if True:\n    async def f(x: int): ...") == ["2 f: the result"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_have_types(path):
    assert not missing(path.read_text())
