"""Seeded small changes in bodies of functions: operators, comparisons, constants, signs, indices, returned names."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from .imports import FUNCTION, is_docstring

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip
PAIRS = ("maximum minimum", "max min", "any all", "argmax argmin", "zeros ones", "zeros_like ones_like", "ceil floor", "cos sin")
NAMES = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
# Names and texts for readers, and what changes no value.
LEFT_OUT = {"__repr__", "__str__", "__dir__", "_show", "warn", "isinstance", "issubclass", "cast", "stacklevel", "unroll"}


class Change(NamedTuple):
    """A change: its file, its function, the line where it begins, as text, the expression before and after."""

    file: str
    function: str
    line: str
    change: str
    kind: str
    statement: str  # the key of `imports.statements`
    number: int  # of the line

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What outlives shifts of lines."""
        return self[:4]


def changes(file: str, source: str, seed: int = 0) -> dict[Change, ast.AST]:
    """All changes of a file, one at each place, with the changed tree of each made on demand by `changed`."""
    lines, found, met = source.splitlines(), {}, {}
    for node, function, statement in places(ast.parse(source)):
        options = list(alternatives(node, function[-1] if function else None))
        if not options:
            continue
        names = ".".join(f.name for f in function)
        line, before = lines[node.lineno - 1].strip(), shown(node)
        where = (file, names, line, before)
        met[where] = met.get(where, 0) + 1
        turn = f" ({met[where]})" if met[where] > 1 else ""
        drawn = digest(seed, *where, met[where])[0] % len(options)
        kind, after = options[drawn]
        key = f"{names}: {lines[statement.lineno - 1].strip()}"
        change = Change(file, names, line, f"{before} -> {shown(after)}{turn}", kind, key, node.lineno)
        found[change] = (node, after)
    return found


def changed(file: str, source: str, change: Change, seed: int = 0) -> ast.AST:
    """The tree of the file with one change."""
    for other, (node, after) in changes(file, source, seed).items():
        if other.name == change.name:
            tree = ast.parse(source)
            return ast.fix_missing_locations(_Replacement(node, after).visit(tree))
    raise ValueError(f"{file} holds no such change: {change.line}: {change.change}")


def digest(*parts: object) -> bytes:
    """Random bytes that depend on the parts alone."""
    return hashlib.sha256(repr(parts).encode()).digest()


def shown(node: ast.AST) -> str:
    """An expression as source; of a statement that holds others its first line."""
    return ast.unparse(node).splitlines()[0]


class _Replacement(ast.NodeTransformer):
    """Replaces the node that is at the place of another, and of its kind, in an equal tree."""

    def __init__(self, node: ast.AST, after: ast.AST):
        self.text, self.place, self.after = ast.dump(node), _place(node), after

    def visit(self, node: ast.AST) -> ast.AST:
        if _place(node) == self.place and ast.dump(node) == self.text:
            return ast.copy_location(self.after, node)
        return self.generic_visit(node)


def _place(node: ast.AST) -> tuple:
    return tuple(getattr(node, name, None) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, tuple, ast.stmt]]:
    """Nodes of bodies of functions with their functions and statements; without messages, annotations and defaults."""

    def visit(node: ast.AST, scope: tuple, statement: ast.stmt | None) -> Iterator:
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            if node.name not in LEFT_OUT:
                for child in node.body:
                    yield from visit(child, (*scope, node), statement)
            return
        inside = any(isinstance(outer, FUNCTION) for outer in scope)
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom) or is_docstring(node):
            return
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in LEFT_OUT:
            return
        if isinstance(node, ast.keyword) and node.arg in LEFT_OUT:
            return
        if isinstance(node, ast.stmt):
            statement = node
        if inside:
            yield node, scope, statement
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "args") and isinstance(node, ast.AnnAssign | ast.Lambda):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, scope, statement)

    yield from visit(tree, (), None)


def alternatives(node: ast.AST, function: ast.AST | None) -> Iterator[tuple[str, ast.AST]]:
    """The kinds of change that a node can have, each with the node that replaces it."""

    def copied(**fields: object) -> ast.AST:
        other = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Compare(ops=[operator]):
            for other in COMPARISONS[type(operator)]:
                yield "comparison", copied(ops=[other()])
        case ast.BinOp() if type(node.op) in OPERATORS and not any(_is_text(side) for side in (node.left, node.right)):
            yield "operator", copied(op=OPERATORS[type(node.op)]())
        case ast.AugAssign() if type(node.op) in OPERATORS and not _is_text(node.value):
            yield "operator", copied(op=OPERATORS[type(node.op)]())
        case ast.BoolOp(op=ast.And()):
            yield "operator", copied(op=ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield "operator", copied(op=ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield "sign", node.operand
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield "constant", ast.Constant(node.value + 1)
            if node.value > 0:
                yield "constant", ast.Constant(node.value - 1)
        case ast.Constant(value=float()):
            yield "constant", ast.Constant(2 * node.value if node.value else 1.0)
        case ast.If() | ast.IfExp() if not (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)):
            yield "condition", copied(test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, first, second]):
            yield "condition", copied(args=[condition, second, first])
        case ast.Attribute() if node.attr in NAMES and isinstance(node.value, ast.Name):
            yield "name", copied(attr=NAMES[node.attr])
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield "name", copied(func=ast.Name(NAMES[name], ast.Load()))
        case ast.Return(value=ast.Tuple(elts=[first, second, *rest])):
            yield "returned", ast.Return(ast.Tuple([second, first, *rest], ast.Load()))
        case ast.Return(value=ast.Name(id=name)) if isinstance(function, FUNCTION):
            given = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in (name, "self", "cls")]
            for other in given:
                yield "returned", ast.Return(ast.Name(other, ast.Load()))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)
