"""Docstrings as reStructuredText: they are Google style, with the code marks of Markdown."""

import dataclasses
import inspect
import re

SECTION = re.compile(r"(Args|Attributes|Differs from the papers?|Example|Raises|Reference|Returns|Warns|Yields):(?: (.*))?$")
CODE = re.compile(r"(``[^`]+``|`[^`]+`)")


def prose(text: str) -> str:
    """Make `code` a literal, and escape what reStructuredText would read as markup."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"[\\*|]|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"``{part.strip('`')}``" for part in parts[1::2]]
    return re.sub(r"(?<=\w``)(?=\w)", r"\\ ", "".join(parts))


def indent_of(line: str) -> int:
    """The number of blanks that a line begins with."""
    return len(line) - len(line.lstrip())


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring for napoleon: sections stay, formulas become literal blocks."""
    result, text, base, verbatim = [], [], 0, None

    def flush() -> None:
        result.extend(prose("\n".join(text)).split("\n") if text else [])
        text.clear()

    for line in [*lines, ""]:
        indent, after_blank = indent_of(line), not (text or result or [""])[-1].strip()
        if verbatim is not None and (not line if verbatim == "doctest" else line and indent < base + 4):
            verbatim = None
        if not line or verbatim:
            flush()
            result.append(line)
        elif line.lstrip().startswith(">>>"):
            flush()
            result += [""] * (not after_blank) + [line]
            verbatim = "doctest"
        elif found := SECTION.match(line):
            flush()
            base = 4
            result.append(f"{found[1]}:")
            if found[2]:
                text.append(" " * 4 + found[2])
            elif found[1] == "Returns":
                result.append(" " * 4 + ":")  # no type stands before the colon
        elif after_blank and indent >= base + 4:
            flush()
            result += [" " * base + "::", "", line]
            verbatim = "formula"
        else:
            base = base if indent else 0
            text.append(line)
    return result


def fields(cls: type) -> list[str]:
    """Return a section for the fields of a named tuple or a dataclass, from the comments at them."""
    names = getattr(cls, "_fields", None) or [field.name for field in dataclasses.fields(cls)]
    notes, above = {}, []
    for line in inspect.getsource(cls).split("\n"):
        code, _, note = line.partition("  # ")
        note = re.sub(r"^type: ignore\S*\s*(#\s*)?", "", note)
        if line.startswith("    # "):
            above.append(line[6:])
            continue
        found = re.match(r"    (\w+):", code)
        if found and found[1] in names:
            notes[found[1]] = re.sub(r"\s+", " ", " ".join([*above, note])).strip()
        above = []
    return ["", "Attributes:", *(f"    {name}: {notes.get(name, '')}" for name in names)]
