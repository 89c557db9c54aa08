"""`python docs/build.py [folder]`: build the API reference from the docstrings; a warning is an error.

The folder is `api` by default. `pip install '.[docs]'` installs what is needed.
A page documents a public module: `jaxsvm` itself, and the modules and packages directly below it.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import types
import typing
import warnings

import pdoc

import jaxsvm

LEFT_OUT = ("__about__", "__main__", "api", "commands")  # `jaxsvm` has the names of api; the command line has --help


def public_names(module: types.ModuleType) -> list[str]:
    """Return the names that the page of a module documents: its `__all__`, or what jaxsvm defines in it."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    # A package documents what it gathers from its files, a module what it defines.
    found = vars(module) if hasattr(module, "__path__") else pdoc.doc.Module(module)._member_objects
    ours = lambda value: (getattr(value, "__module__", None) or "").startswith("jaxsvm")
    return [name for name, value in found.items() if not name.startswith("_") and ours(value)]


def resolve_named_tuples(module: types.ModuleType) -> None:
    """Replace annotations that are strings in the constructors of named tuples by the types they name.

    The constructor of a named tuple lives in a module of its own, where those names are unknown.
    """
    for cls in vars(module).values():
        if inspect.isclass(cls) and issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__module__.startswith("jaxsvm"):
            home = importlib.import_module(cls.__module__)
            cls.__new__.__annotations__ = typing.get_type_hints(cls, vars(home))


def escape_less_than(text: str) -> str:
    """Return Markdown in which `<w, x>` of a sentence stays as it is; code is left alone."""
    lines = text.split("\n")
    for k, line in enumerate(lines):
        if not line.startswith(("    ", "> >>>", "> ...")):
            parts = line.split("`")
            parts[::2] = [re.sub(r"<(?=[A-Za-z/])", "&lt;", part) for part in parts[::2]]
            lines[k] = "`".join(parts)
    return "\n".join(lines)


def main() -> None:
    """Build the reference."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "api")
    names = [info.name for info in pkgutil.iter_modules(jaxsvm.__path__) if info.name not in LEFT_OUT]
    modules = [jaxsvm, *(importlib.import_module(f"jaxsvm.{name}") for name in names)]
    for module in modules:
        module.__all__ = public_names(module)
        resolve_named_tuples(module)
    jaxsvm.__all__ += [name for name in names if name not in jaxsvm.__all__]
    pdoc.render.configure(docformat="google", footer_text=f"jaxsvm {jaxsvm.__version__}")
    to_html = pdoc.render.env.filters["to_html"]
    pdoc.render.env.filters["to_html"] = lambda text: to_html(escape_less_than(text))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The installed package is the one to document, whatever folder this is called from.
        warnings.filterwarnings("ignore", "'jaxsvm' may refer to either the installed Python module")
        pdoc.pdoc("jaxsvm", r"!jaxsvm\.\w+\..+", *(f"!jaxsvm.{name}" for name in LEFT_OUT), output_directory=folder)
    print(f"{len(modules)} pages in {folder}; begin with {folder / 'jaxsvm.html'}")


if __name__ == "__main__":
    main()
