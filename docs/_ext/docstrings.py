"""Docstrings as reStructuredText: they are Google style, with the code marks of Markdown."""

import dataclasses
import html
import inspect
import re
from collections import Counter

SECTION = re.compile(
    r"(Args|Attributes|Differs from the papers?|Example|Raises|Reference|Returns|Warns|Yields)"
    r":(?: (.*))?$"
)
CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "eps": "ε",
    "eta": "η",
    "theta": "θ",
}
GREEK |= {
    "lam": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
}
GREEK |= {"phi": "φ", "chi": "χ", "psi": "ψ", "Lam": "Λ", "Phi": "Φ"}
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "<-": "←", "->": "→", "'": "′", "-": "−"}
WORDS = {"sqrt": "√", "prod": "∏", "int": "∫", "inf": "∞"}
TOKEN = re.compile(
    r"""`(?P<code>[^`]+)`
    | (?P<plain>\d+(?:\.\d+)?(?:e-?\d+)?                  # a number
        | (?<=[A-Za-z]{2})'s\b                            # as in "the loss's"
        | [A-Za-z]+_(?:up|down)(?=_)                      # a name, which an index follows
        | [A-Za-z]\w*_(?:[A-Za-z0-9]{3,}\w*|in\b|on\b))   # a name
    | (?P<word>[A-Za-z]+)(?P<digits>\d*)
    | _(?P<below>\{[^}]*\}|[.+-]?[A-Za-z0-9]{1,2}(?![A-Za-z0-9])(?:\+1)?)
    | \^(?P<above>\([^()]*\)|-?\w+)
    | <(?P<inner>[^\s<>=][^<>=]*)>
    | (?P<sign><=|>=|!=|<-|->|'|(?<![A-Za-z]{2})-|-(?![A-Za-z]{2}))""",
    re.X,
)


def prose(text: str) -> str:
    """Make `code` a literal, and escape what reStructuredText would read as markup."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"[\\*|]|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"``{part.strip('`')}``" for part in parts[1::2]]
    return re.sub(r"(?<=\w``)(?=\w)", r"\\ ", "".join(parts))


def indent_of(line: str) -> int:
    """The number of blanks that a line begins with."""
    return len(line) - len(line.lstrip())


def symbol(found: re.Match) -> str:
    """The HTML of a part of a formula: a letter, a sign, an index, a power, a product or a word."""
    if found["code"]:
        return f"<code>{html.escape(found['code'])}</code>"
    if found["below"]:
        return f"<sub>{symbols(found['below'].strip('{}'))}</sub>"
    if found["above"]:
        return f"<sup>{symbols(found['above'].strip('()'))}</sup>"
    if found["inner"]:
        return f"⟨{symbols(found['inner'])}⟩"
    if found["plain"] or found["sign"]:
        return found["plain"] or SIGNS[found["sign"]]
    word, digits, rest = found["word"], found["digits"], found.string[found.end() :]
    if word == "sum" and re.match(r"_| [A-Za-z](?!\w)", rest):
        return "∑"
    before = found.string[: found.start()]
    prose = word == "a" and re.match(r" [a-z]{3}", rest) or re.search(r"\ba $", before)
    letter = not prose and (word in GREEK or re.fullmatch("[A-Za-z]|[A-Z]{2}|d[a-z]", word))
    digits = f"<sub>{digits}</sub>" if digits and (letter or word == "log") else digits
    return (f"<i>{GREEK.get(word, word)}</i>" if letter else WORDS.get(word, word)) + digits


def symbols(text: str) -> str:
    """A piece of a formula as HTML."""
    parts, end = [], 0
    for found in TOKEN.finditer(text):
        parts += [html.escape(text[end : found.start()], quote=False), symbol(found)]
        end = found.end()
    return "".join([*parts, html.escape(text[end:], quote=False)])


def formula(lines: list[str]) -> list[str]:
    """Typeset a formula of plain text as HTML; what stands aligned becomes cells of a table."""
    gaps = [list(re.finditer(r" {2,}(?=\S)", line)) for line in lines]
    count = Counter(gap.end() for line in gaps for gap in line)
    inner = {gap.end() for line in gaps for gap in line if gap.start() > 0}
    columns = [0, *sorted(end for end in inner if count[end] > 1)]
    rows = []
    for line, ends in zip(lines, gaps, strict=True):
        cuts = [0, *(gap.end() for gap in ends if gap.end() in columns)]
        cells = []
        for start, stop in zip(cuts, [*cuts[1:], None], strict=True):
            text = line[start:stop].rstrip()
            span = (columns.index(stop) if stop else len(columns)) - columns.index(start)
            pad = f' style="padding-left: {indent_of(text) / 2 + 1}em"' * text.startswith(" ")
            text = re.sub(" {2,}", "&emsp;&emsp;", symbols(text.strip()))
            cells.append(f'<td colspan="{span}"{pad}>{text}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return ['<table class="formula">', *rows, "</table>"]


def sentence(text: str) -> str:
    """A sentence as reStructuredText; one that holds a formula is typeset by the role `formula`."""
    return f":formula:`{text}`" if re.search("[|^<]", text) and "`" not in text else prose(text)


def display(block: list[str], base: int) -> list[str]:
    """A formula as a block of HTML, and code as a literal block."""
    lines = [line[base + 4 :] for line in block if line]
    if re.search(r"\bimport\b|print\(", "".join(lines)):
        return [" " * base + "::", "", *block]
    return [
        " " * base + line
        for line in [".. raw:: html", "", *(" " * 4 + row for row in formula(lines)), ""]
    ]


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring for napoleon: sections stay, formulas become HTML."""
    result, text, block, base, verbatim = [], [], [], 0, None

    def flush() -> None:
        result.extend(prose("\n".join(text)).split("\n") if text else [])
        result.extend(display(block, base) if block else [])
        text.clear(), block.clear()

    for line in [*lines, ""]:
        indent, after_blank = indent_of(line), not (text or result or [""])[-1].strip()
        if verbatim == "formula" and line and indent < base + 4:
            verbatim = None
            flush()
        if verbatim == "doctest" and not line:
            verbatim = None
        if verbatim == "formula":
            block.append(line)
        elif not line or verbatim:
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
            block.append(line)
            verbatim = "formula"
        else:
            base = base if indent else 0
            text.append(line)
    flush()
    return result


def fields(cls: type) -> list[str]:
    """Return a section for the fields of a named tuple or dataclass, from their comments."""
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
