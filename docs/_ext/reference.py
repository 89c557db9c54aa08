"""The API reference: which names are public, a page for each module, and links to them."""

import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re
from typing import Any

from docstrings import fields, sentence, symbols, to_rst
from docutils import nodes
from pages import write_folder
from sphinx.application import Sphinx
from sphinx.util import logging

import jaxsvm

logger = logging.getLogger(__name__)
INTERNAL = ("__about__", "__main__", "commands")
DICT = "What each name means."
METHODS = "Its methods are those of every :py:obj:`Solver <jaxsvm.Solver>`."
FIRST = ("jaxsvm.loops", "jaxsvm.solvers", "jaxsvm.estimators")  # on the page that lists all


def public_modules() -> dict[str, list[str]]:
    """The public modules and their names: `jaxsvm` itself, and those below it with `__all__`."""
    found = {
        "jaxsvm": [
            name
            for name, value in vars(jaxsvm).items()
            if name[0] != "_" and not inspect.ismodule(value)
        ]
    }
    for info in pkgutil.iter_modules(jaxsvm.__path__):
        if info.name not in INTERNAL:
            module = importlib.import_module(f"jaxsvm.{info.name}")
            if hasattr(module, "__all__"):
                found[module.__name__] = list(module.__all__)
    return found


def page_of(module: str, name: str, value: Any) -> str:
    """The page that documents a name: its own for a solver or an estimator, else its package's."""
    parts = (module if module != "jaxsvm" else getattr(value, "__module__", module)).split(".")
    own = parts[1:2] in (["solvers"], ["estimators"])
    return ".".join([*parts[:2], name] if own else parts[:2])


class Entry:
    """A public object: the name it is documented under, its page, family, and other names."""

    def __init__(self, module: str, name: str, value: Any) -> None:
        """Document `value` as `name` of `module`."""
        self.name, self.value, self.page = f"{module}.{name}", value, page_of(module, name, value)
        home = getattr(value, "__module__", module)
        self.names = {self.name, f"{home}.{getattr(value, '__qualname__', name)}"}
        self.has_own_page = self.page.count(".") == 2
        in_family = self.page.startswith("jaxsvm.solvers.")
        self.family = ".".join(home.split(".")[:3] if in_family else self.page.split(".")[:2])

    @property
    def lead(self) -> str:
        """The first paragraph of the docstring."""
        text = DICT if isinstance(self.value, dict) else inspect.getdoc(self.value) or ""
        return text.split("\n\n")[0].replace("\n", " ")

    @property
    def first_sentence(self) -> str:
        """What the docstring begins with."""
        return re.split(r"(?<=\w[.)]) (?=[A-Z])", self.lead)[0]

    def directive(self) -> str:
        """The directive of autodoc that documents it."""
        if inspect.isclass(self.value):
            if self.has_own_page and issubclass(self.value, jaxsvm.Solver):
                return f".. autoclass:: {self.name}\n\n{METHODS}\n"
            return f".. autoclass:: {self.name}\n   :members:\n   :inherited-members:\n"
        if inspect.isroutine(self.value):
            return f".. autofunction:: {self.name}\n"
        return f".. autodata:: {self.name}\n   :no-value:\n"


def entries() -> list[Entry]:
    """All public objects, each once: under the shortest of its names."""
    found: dict[int, Entry] = {}
    for module, names in public_modules().items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            found.setdefault(id(value), Entry(module, name, value)).names.add(f"{module}.{name}")
    return list(found.values())


ENTRIES = entries()
HOME = {name: entry for entry in ENTRIES for name in entry.names}


def heading(title: str) -> list[str]:
    """The lines of a title."""
    return [title, "=" * len(title), ""]


def table(members: list[Entry]) -> list[str]:
    """A table of names with links and first sentences."""
    lines = [".. list-table::", "   :widths: 35 65", ""]
    for entry in members:
        short = entry.name.removeprefix("jaxsvm.")
        lines += [
            f"   * - :py:obj:`{short} <{entry.name}>`",
            f"     - {sentence(entry.first_sentence)}",
        ]
    return [*lines, ""]


def toctree(pages: list[str]) -> list[str]:
    """A table of contents that only the side bar shows."""
    return ["", ".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""]


def own_page(entry: Entry) -> list[str]:
    """The page of one solver or estimator: sentence, docstring, and others of its family."""
    lines = [*heading(entry.name.split(".")[-1]), sentence(entry.lead), "", entry.directive()]
    others = [e for e in ENTRIES if e.family == entry.family and e is not entry]
    return lines + ([".. rubric:: Neighbours", "", *table(others)] if others else [])


def module_page(module: str, members: list[Entry]) -> list[str]:
    """The page of a module: its docstring, tables of its names, and the docstrings of these."""
    lines = [*heading(module), f".. automodule:: {module}", ""]
    if not members[0].has_own_page:
        return lines + table(members) + [entry.directive() for entry in members]
    for family in sorted({entry.family for entry in members}):
        if family != module:
            about = inspect.getdoc(importlib.import_module(family))
            lines += [f".. rubric:: {family.split('.')[-1]}", "", sentence(about), ""]
        lines += table([entry for entry in members if entry.family == family])
    return lines + toctree([entry.page for entry in members])


def reference() -> dict[str, list[str]]:
    """The pages of modules, solvers and estimators, and the one that lists all: name -> lines."""
    modules: dict[str, list[Entry]] = {}
    for entry in ENTRIES:
        modules.setdefault(".".join(entry.page.split(".")[:2]), []).append(entry)
    order = sorted(modules, key=lambda module: (module not in FIRST, module))
    index = [*heading("API reference"), "Every public name, by the package that defines it.", ""]
    index += [".. list-table::", "   :widths: 20 80", ""]
    for module in order:
        links = [f":py:obj:`{e.name.split('.')[-1]} <{e.name}>`" for e in modules[module]]
        index += [f"   * - :doc:`{module}`", f"     - {', '.join(links)}"]
    pages = {module: module_page(module, members) for module, members in modules.items()}
    pages |= {entry.page: own_page(entry) for entry in ENTRIES if entry.has_own_page}
    return pages | {"index": index + toctree(order)}


def convert(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring what napoleon and docutils read."""
    has_fields = hasattr(value, "_fields") or dataclasses.is_dataclass(value)
    if inspect.isclass(value) and has_fields and not {"Args:", "Attributes:"} & {*lines}:
        lines += fields(value)
    if isinstance(value, dict):
        lines[:] = [DICT, "", *(f"- `{key}`: {text}" for key, text in value.items())]
    if (entry := HOME.get(name)) and entry.has_own_page:
        del lines[: lines.index("") + 1]  # the page begins with it
    lines[:] = to_rst(lines)
    if what in ("attribute", "data", "property"):
        lines[0] = f": {lines[0]}"  # for napoleon a type may stand before the first colon


def skip(app: Sphinx, what: str, name: str, value: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out members that other packages define, and fields, which the class lists."""
    value = getattr(value, "fget", value)
    own = (getattr(value, "__module__", None) or "").startswith("jaxsvm")
    return None if own and inspect.isroutine(value) else True


def resolve(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve another name of a public object, or the name of one without its module."""
    target = node.get("reftarget", "")
    entry = HOME.get(target) or HOME.get(f"jaxsvm.{target}")
    if node.get("refdomain") == "py" and entry:
        return env.domains["py"].resolve_xref(
            env, node["refdoc"], app.builder, "obj", entry.name, node, contnode
        )
    return None


def local_names(value: Any) -> set[str]:
    """The parameters of a function or class, and the members of a class."""
    members = dir(value) if inspect.isclass(value) else []
    return {*inspect.signature(value).parameters, *members} if callable(value) else set()


def short_names(page: str) -> dict[str, Entry]:
    """The entries that a page may name without their module: classes, and its own.

    On other pages the name of an estimator may be that of scikit-learn.
    """
    known = [
        entry
        for entry in ENTRIES
        if inspect.isclass(entry.value) and ("estimators" in page or "estimators" not in entry.page)
    ]
    return {
        entry.name.split(".")[-1]: entry
        for entry in [*known, *(entry for entry in ENTRIES if entry.page == page)]
    }


def link_code(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make `fit(...)`, `losses.hinge` and other public names in code marks links to entries."""
    page = pathlib.PurePath(docname).name
    short = short_names(page)
    local = set().union(*(local_names(entry.value) for entry in ENTRIES if entry.page == page))
    for literal in list(doctree.findall(nodes.literal)):
        if len(literal.astext()) <= 16:
            literal["classes"].append("short")  # is not broken over two lines
        found = re.match(r"(?:jaxsvm\.)?([A-Za-z_][\w.]*)(\(|$)", literal.astext())
        inside = isinstance(literal.parent, nodes.reference | nodes.title)
        if not found or inside or docname == "docs/command_line":
            continue
        name = found[1]
        entry = HOME.get(f"jaxsvm.{name}") or short.get(name)
        is_local = (name in local and not found[2]) or name == page.split(".")[-1]
        if entry and not is_local:
            uri = app.builder.get_relative_uri(docname, f"docs/generated/api/{entry.page}")
            link = dict(refuri=f"{uri}#{entry.name}", internal=True)
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), **link))


def mend_source_links(
    app: Sphinx, pagename: str, template: str, context: dict, doctree: Any
) -> None:
    """Lead from source to entries: viewcode takes all names of a file for names of one module."""
    if pagename.startswith("_modules/"):
        homes = {(entry.page, entry.name.split(".")[-1]): entry.name for entry in ENTRIES}
        link = re.compile(r'(?<=api/)([\w.]+)\.html#[\w.]*\.(\w+)(?=")')
        name = lambda found: (
            f"{found[1]}.html#{homes[found[1], found[2]]}" if found.groups() in homes else found[0]
        )
        context["body"] = link.sub(name, context["body"])


def role(name: str, raw: str, text: str, line: int, inliner: Any, *more: Any) -> tuple[list, list]:
    """The role `formula`: words stay, letters, indices and signs are typeset."""
    html = f'<span class="formula">{symbols(text)}</span>'
    return [nodes.raw("", html, format="html")], []


def check(app: Sphinx, env: Any) -> None:
    """Warn of public names without an entry."""
    for entry in ENTRIES:
        if entry.name not in env.domains["py"].objects:
            logger.warning("the public name %s has no entry in the API reference", entry.name)


def setup(app: Sphinx) -> dict:
    """Write the pages before Sphinx looks for them."""
    write_folder(
        "api", {f"{page}.rst": "\n".join(lines).encode() for page, lines in reference().items()}
    )
    app.add_role("formula", role)
    app.connect("autodoc-process-docstring", convert, priority=100)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", resolve)
    app.connect("doctree-resolved", link_code)
    app.connect("html-page-context", mend_source_links)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
