"""The collectives of an optimised XLA program: how many numbers each moves, by the depth of the
loop it stands in."""

import math
import re
from typing import NamedTuple

KINDS = ["collective-permute", "collective-broadcast"]
KINDS += "all-gather all-reduce reduce-scatter all-to-all".split()
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\(")
CALLED = re.compile(r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
LOOPED = re.compile(r"(?:body|condition)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Collective(NamedTuple):
    kind: str
    numbers: int
    depth: int  # of loops around it


def computations(text):
    """The lines of each computation by its name, and the name of the first to run."""
    bodies, name, entry = {}, None, None
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$", line)
        if head and not line.startswith(" "):
            name = head.group(2)
            bodies[name] = []
            entry = name if head.group(1) else entry
        elif name:
            bodies[name].append(line)
    return bodies, entry


def count_numbers(types):
    """The numbers in a type such as (f32[3,4], s32[])."""
    shapes = re.findall(r"\b(?:pred|bf16|[fsu]\d+)\[([\d,]*)\]", types)
    return sum(math.prod(int(each or 1) for each in sizes.split(",")) for sizes in shapes)


def collectives(text):
    """All collectives of a program, each once for each place it is called from."""
    bodies, entry = computations(text)
    found = []

    def walk(name, depth):
        for line in bodies.get(name, ()):
            match = INSTRUCTION.match(line)
            if not match:
                continue
            kind = match.group(2).removesuffix("-start")
            if kind in KINDS:
                found.append(Collective(kind, count_numbers(match.group(1)), depth))
            if kind == "while":
                for other in LOOPED.findall(line):
                    walk(other, depth + 1)
            elif kind in ("call", "fusion", "conditional", "async", "custom-call"):
                branches = ",".join(BRANCHES.findall(line)).split(",")
                names = [each.strip().lstrip("%") for each in branches]
                for other in CALLED.findall(line) + names:
                    walk(other, depth)

    walk(entry, 0)
    return found


def by_depth(text):
    """depth -> kind -> (how many, numbers in all)."""
    table = {}
    for each in collectives(text):
        row = table.setdefault(each.depth, {})
        many, numbers = row.get(each.kind, (0, 0))
        row[each.kind] = many + 1, numbers + each.numbers
    return table
