"""Imports of `jaxsvm` from changed syntax trees: no file is changed on disk."""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import pathlib
import sys
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).parents[3]
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the tree that `transform` returns; never from or to bytecode."""

    transform: Callable[[str, str], ast.AST]

    def get_code(self, fullname: str):
        source = self.get_data(self.path).decode()
        return compile(type(self).transform(relative(self.path), source), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the package whose files are wanted."""

    def __init__(self, loader: type, wanted: Callable[[str], bool]):
        self.loader, self.wanted = loader, wanted

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "jaxsvm":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if (
            spec is not None
            and isinstance(spec.loader, importlib.machinery.SourceFileLoader)
            and self.wanted(relative(spec.origin))
        ):
            spec.loader = self.loader(spec.name, spec.origin)
        return spec


def relative(path: str | pathlib.Path) -> str:
    """`jaxsvm/losses.py` of a path to it."""
    return pathlib.Path(path).resolve().relative_to(ROOT).as_posix()


def install(transform: Callable[[str, str], ast.AST], wanted: Callable[[str], bool] = lambda file: True) -> None:
    """From now on compile the wanted files of the package from `transform(file, source)`."""
    if "jaxsvm" in sys.modules:
        raise RuntimeError("jaxsvm was imported before, without the change")
    loader = type("Loader", (_Loader,), {"transform": staticmethod(transform)})
    sys.meta_path.insert(0, _Finder(loader, wanted))


def statements(tree: ast.AST, source: str) -> Iterator[tuple[list, int, str]]:
    """Statements in bodies of functions: the list that holds it, its place, and its key.

    The key is the name of the function and the first line of the statement, and so outlives shifts of lines.
    """
    lines = source.splitlines()

    def visit(node: ast.AST, names: tuple, inside: bool) -> Iterator[tuple[list, int, str]]:
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            names, inside = (*names, node.name), inside or isinstance(node, FUNCTION)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                for place, child in enumerate(body):
                    if inside and isinstance(child, ast.stmt) and not is_docstring(child):
                        yield body, place, f"{'.'.join(names)}: {lines[child.lineno - 1].strip()}"
                    yield from visit(child, names, inside)

    return visit(tree, (), False)


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a string alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class Hits:
    """Which statements of the package have run."""

    def __init__(self):
        self.keys: dict[tuple[str, str], int] = {}
        self.seen = bytearray()

    def transform(self, file: str, source: str) -> ast.AST:
        """A tree in which each statement of a function first notes that it runs."""
        tree = ast.parse(source)
        found = list(statements(tree, source))
        for body, place, key in reversed(found):  # of one list the last first
            number = self.keys.setdefault((file, key), len(self.keys))
            note = ast.parse(f"mutants_seen[{number}] = 1").body[0]
            for node in ast.walk(note):
                ast.copy_location(node, body[place])
            body.insert(place, note)
        self.seen.extend(bytes(len(self.keys) - len(self.seen)))
        builtins.mutants_seen = self.seen
        return tree

    def take(self) -> list[int]:
        """The numbers of the statements that ran since the last call."""
        found = [number for number, hit in enumerate(self.seen) if hit]
        self.seen[:] = bytes(len(self.seen))
        return found
