"""The import direction of the package, read off its sources without running them."""

import ast
import functools
import importlib
import pathlib
import re
import sys
import types

import pytest

import jaxsvm
import jaxsvm.estimators
import jaxsvm.solvers

ROOT = pathlib.Path(jaxsvm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    "names files types checks printing closures flags _node recipe numerics".split(),
    "losses risks ranking kernels schedules projections averaging models samplers".split(),
    "objectives features budget implicit old".split(),
    ["spaces"],
    ["engines"],
    ["wrappers"],
    ["solvers"],
    "calibration coverage data machines metrics".split(),
    ["loops"],
    "estimators plots testing cli __main__".split(),
]
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
CORE = {"jax", "optax", "numpy", "chex"}
EXTRA = {"sklearn": "estimators", "threadpoolctl": "estimators", "matplotlib": "plots"}


def module_name(path):
    """`jaxsvm.solvers.pegasos` of jaxsvm/solvers/primal/pegasos.py, `jaxsvm.solvers` of its
    __init__."""
    parts = ["jaxsvm", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}
SOURCES = {name: path.read_text() for name, path in MODULES.items()}


def found_imports(source, name, is_package, modules, top_only=False):
    """The absolute names that a module imports; `from .x import y` is x.y where that is a module,
    else x."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    if (
        top_only
    ):  # whatever runs at import: not the bodies of functions, nor what only a type checker reads
        nodes, waiting = [], list(tree.body)
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            if not lazy and not typing:
                waiting.extend(ast.iter_child_nodes(node))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if is_package else name.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in modules else base)
    return found


@functools.cache
def imports(name, top_only=False):
    return found_imports(
        SOURCES[name], name, MODULES[name].name == "__init__.py", MODULES, top_only
    )


@functools.cache
def own(name):
    return {found for found in imports(name) if found.split(".")[0] == "jaxsvm"}


def group(name):
    """The entry of `LAYERS` that a module belongs to; None for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


INNER = sorted(name for name in MODULES if name != "jaxsvm")


def test_the_reader_of_imports_sees_every_form():
    modules = {"jaxsvm", "jaxsvm.types", "jaxsvm.solvers", "jaxsvm.solvers.a", "jaxsvm.spaces"}
    source = (
        "import numpy as np, jax.numpy\nfrom jax import lax\nfrom .. import "
        "spaces\nfrom ..types import Batch\nfrom . import a\n"
        "def f():\n    import sklearn.svm\n    from .a import thing\n"
        "if TYPE_CHECKING:\n    import scipy\n"
        "try:\n    import matplotlib\nexcept ImportError:\n    pass\n"
    )
    whole = found_imports(source, "jaxsvm.solvers.b", False, modules)
    assert whole == {
        *("numpy", "jax.numpy", "jax", "jaxsvm.spaces", "jaxsvm.types", "jaxsvm.solvers.a"),
        *("sklearn.svm", "scipy", "matplotlib"),
    }
    top = found_imports(source, "jaxsvm.solvers.b", False, modules, top_only=True)
    assert whole - top == {"sklearn.svm", "scipy"}
    assert found_imports("from . import a", "jaxsvm.solvers", True, modules) == {"jaxsvm.solvers.a"}
    assert found_imports("from .a import x", "jaxsvm.solvers", True, modules) == {
        "jaxsvm.solvers.a"
    }


def test_the_package_was_found():
    assert {
        "jaxsvm.types",
        "jaxsvm.loops",
        "jaxsvm.solvers.primal.pegasos",
        "jaxsvm.engines.gradient_descent",
    } <= set(MODULES)
    assert any("jaxsvm._node" in own(name) for name in INNER)


@pytest.mark.parametrize("name", INNER)
def test_every_module_has_a_place_in_the_layers(name):
    assert group(name) in LAYER or name == "jaxsvm.__about__", (
        f"{name} is in no layer of the design"
    )


@pytest.mark.parametrize("name", INNER)
def test_imports_point_one_way(name):
    if name == "jaxsvm.__about__":
        assert not imports(name), "__about__ is read by all and reads nothing"
        return
    wrong = []
    for target in own(name):
        if target == "jaxsvm.__about__":
            continue
        if target == "jaxsvm" and group(name) in LAYERS[-1]:
            continue  # the command line and its kin stand on the whole package
        if target == "jaxsvm":
            wrong.append("jaxsvm (the package re-exports everything)")
        elif LAYER.get(group(target), len(LAYERS)) > LAYER.get(group(name), -1):
            wrong.append(target)
    assert not wrong, f"{name} imports {sorted(wrong)}, which lie above it"


def cycle_in(edges):
    """One cycle of a directed graph as a list, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        path.append(node)
        for target in sorted(edges.get(node, ())):
            found = visit(target)
            if found:
                return found
        path.pop()
        done.add(node)
        return None

    return next((found for node in sorted(edges) if (found := visit(node))), None)


def test_no_cycles():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
    assert cycle_in({name: own(name) - {name} for name in INNER}) is None


def test_no_cycles_among_the_groups():
    """A folder counts as one: spaces may read models, models may not read spaces, whichever files
    they are."""
    edges = {}
    for name in INNER:
        edges.setdefault(group(name), set()).update(
            group(t) for t in own(name) if group(t) and group(t) != group(name)
        )
    assert cycle_in(edges) is None


IN_SOLVERS = [name for name in INNER if name.startswith("jaxsvm.solvers.")]
# those of a method; the others are an engine that lies beside the one method that needs it
SOLVERS = [name for name in IN_SOLVERS if callable(vars(jaxsvm.solvers).get(name.split(".")[-1]))]


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_file_imports_no_other_solver_file(name):
    others = sorted(own(name) & set(SOLVERS))
    assert not others, (
        f"{name} imports {others}: what two papers share belongs into an engine or below"
    )


def users(name):
    """The modules that import another one, but for those that only pass its names on."""
    return {other for other in INNER if name in own(other) and MODULES[other].name != "__init__.py"}


@pytest.mark.parametrize("name", [name for name in INNER if group(name) in ("solvers", "engines")])
def test_an_engine_with_one_user_lies_beside_it(name):
    folder = lambda module: module.rpartition(".")[0]
    if (
        name in SOLVERS
        or MODULES[name].name == "__init__.py"
        or name.split(".")[-1] in vars(jaxsvm)
    ):
        return
    homes = {folder(user) for user in users(name)}
    assert len(users(name)) > 1 or homes == {folder(name)}, (
        f"{name} has one user, {users(name)}: it belongs beside it"
    )


def test_the_modules_of_solvers_are_known():
    assert len(SOLVERS) > 40 and set(IN_SOLVERS) - set(SOLVERS)


def test_no_module_has_the_name_of_a_function_that_its_package_exports():
    """`from package import name` would be the one or the other, by the order of imports."""
    wrong = []
    for name in INNER:
        package, _, last = name.rpartition(".")
        exported = getattr(importlib.import_module(package), last, None)
        if exported is not None and not isinstance(exported, types.ModuleType):
            wrong.append(name)
    assert not wrong, wrong


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_take_only_their_default_from_samplers_and_never_import_loops(name):
    assert not {t for t in own(name) if group(t) in ("loops", "data", "estimators", "plots")}


def test_loops_know_no_solver_by_name():
    names = {name.split(".")[-1] for name in SOLVERS}
    files = [name for name in INNER if group(name) == "loops"]
    assert "jaxsvm.loops.fitting" in files
    for file in files:
        assert not {
            t for t in own(file) if group(t) in ("solvers", "engines", "spaces", "features")
        }
        code = ast.parse(SOURCES[file])
        used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        used |= {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        assert not used & names


@pytest.mark.parametrize("name", sorted(MODULES))
def test_third_party_imports(name):
    allowed = CORE | {package for package, home in EXTRA.items() if group(name) == home}
    top = (
        {found.split(".")[0] for found in imports(name, top_only=True)}
        - set(sys.stdlib_module_names)
        - {"jaxsvm"}
    )
    assert top <= allowed, f"{name} imports {sorted(top - allowed)} at the top"
    anywhere = (
        {found.split(".")[0] for found in imports(name)} - set(sys.stdlib_module_names) - {"jaxsvm"}
    )
    # SciPy may be read lazily where sparse rows come in, the extras of files where they do
    lazy = {"pandas", "skops"} if name in ("jaxsvm.cli", "jaxsvm.data.files") else set()
    allowed = CORE | set(EXTRA) | {"scipy"} | lazy
    assert anywhere <= allowed, f"{name} imports {sorted(anywhere - CORE)}"


def test_the_package_imports_without_the_extras():
    """No module that `import jaxsvm` reads may need an extra at the top."""
    reached, waiting = set(), ["jaxsvm"]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        for found in imports(name, top_only=True):
            parts = found.split(".")
            waiting.extend(
                m for i in range(1, len(parts) + 1) if (m := ".".join(parts[:i])) in MODULES
            )
    assert "jaxsvm.loops" in reached and "jaxsvm.testing" not in reached
    for name in reached:
        assert not {found.split(".")[0] for found in imports(name, top_only=True)} & set(EXTRA), (
            name
        )


def test_the_map_of_the_package_names_what_there_is():
    """Each word of its table is a name of `jaxsvm`, of a module or result, or English."""
    english = "the fastest exact method for rows and others a with extra files splits scaling"
    owners = [jaxsvm, jaxsvm.Fit, jaxsvm.estimators, jaxsvm.metrics, jaxsvm.models, jaxsvm.data]
    table = re.findall(r"^    ([a-z ]{11})  (.*)$", jaxsvm.__doc__, re.MULTILINE)
    assert len(table) == 14
    words = {word for _, text in table for word in re.findall(r"[A-Za-z_]\w+", text)}
    unknown = {word for word in words if not any(hasattr(owner, word) for owner in owners)}
    assert unknown <= {*english.split(), "dir", "jaxsvm", "plot", "sklearn"}
