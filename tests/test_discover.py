"""What `dir`, and so completion and `help`, offer."""

import ast
import importlib
import inspect
import pathlib
import pydoc
import subprocess
import sys

import pytest

import jaxsvm
from jaxsvm import kernels

ROOT = pathlib.Path(jaxsvm.__file__).parent
CORE = "kernels losses schedules projections samplers models objectives averaging".split()
FOLDERS = ("features", "data", "budget", "spaces")
ON_FIRST_USE = ("estimators", "plots", "testing")
PUBLIC = (*CORE, *FOLDERS, *ON_FIRST_USE)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_module_offers_its_public_names_only(name):
    module = getattr(jaxsvm, name)
    names = module.__all__
    assert names == sorted(set(names)) and all(hasattr(module, each) for each in names)
    assert not any(
        each.startswith("_") or inspect.ismodule(getattr(module, each)) for each in names
    )
    if name != "testing":
        assert dir(module) == names
    ours = [getattr(module, each) for each in names if callable(getattr(module, each))]
    assert all(
        (getattr(value, "__module__", None) or type(value).__module__).startswith("jaxsvm")
        for value in ours
    )


def test_kernels_offers_kernels_only():
    # the type, and what kernels of one's own are made of
    rest = {"Kernel", "gamma_grid", "custom", "kernel", "register", "sqdist"}
    names = """additive_chi2 chi2 cosine laplacian linear matern matern12 matern32 matern52
    polynomial precomputed rational_quadratic rbf sigmoid"""
    assert set(dir(kernels)) - rest == set(names.split())


def test_all_of_a_package_is_what_it_gathers():
    """But for the helpers of its own files."""
    for name in (*FOLDERS, "estimators"):
        tree = ast.parse((ROOT / name / "__init__.py").read_text())
        gathered = {
            alias.asname
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        helpers = gathered - set(getattr(jaxsvm, name).__all__)
        assert helpers <= {"check_choice", "default_for", "occupied", "MatrixMaintenance"}, name


def test_nothing_that_the_documents_use_is_left_out():
    import re

    texts = [
        path.read_text()
        for path in [
            ROOT.parent / "README.md",
            *(ROOT.parent / "docs").glob("*.md"),
            ROOT / "solvers/README.md",
        ]
    ]
    for name in PUBLIC:
        used = set(
            re.findall(rf"(?<![\w/.])(?:jaxsvm\.)?{name}\.([A-Za-z]\w*)\(", "\n".join(texts))
        )
        values = vars(getattr(jaxsvm, name))
        assert {each for each in used if each in values} <= set(values["__all__"]), name


@pytest.mark.long
def test_modules_with_extras_load_on_first_use():
    code = (
        "import sys, jaxsvm\n"
        "assert not {'sklearn', 'matplotlib', 'jaxsvm.estimators', 'jaxsvm.plots', "
        "'jaxsvm.testing'} & set(sys.modules)\n"
        "assert {'estimators', 'plots', 'testing', 'pegasos'} <= set(dir(jaxsvm))\n"
        "assert jaxsvm.estimators.SVC and jaxsvm.plots.heatmap and jaxsvm.testing.check_solver\n"
        "sys.modules['jaxsvm.plots'] = None; del jaxsvm.plots\n"
        "assert not hasattr(jaxsvm, 'plots') and not hasattr(jaxsvm, 'nothing')\n"
        "try:\n    from jaxsvm import plots\nexcept ImportError:\n    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "refused\n", done.stderr


@pytest.mark.parametrize(("name", "needs"), [("plots", "matplotlib"), ("estimators", "sklearn")])
def test_what_an_extra_lacks_names_the_extra(monkeypatch, name, needs):
    for module in [m for m in sys.modules if m.split(".")[0] == needs or name in m.split(".")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, needs, None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsvm\[(plot|sklearn)\]'"):
        importlib.import_module(f"jaxsvm.{name}")


def test_a_module_that_cannot_be_imported_is_said_to_be_so(monkeypatch):
    jaxsvm.testing  # noqa: B018
    monkeypatch.setitem(sys.modules, "jaxsvm.testing", None)
    monkeypatch.delattr(jaxsvm, "testing")
    with pytest.raises(AttributeError, match=r"jaxsvm\.testing cannot be imported"):
        jaxsvm.testing  # noqa: B018
    with pytest.raises(AttributeError, match="module 'jaxsvm' has no attribute 'pegasus'"):
        jaxsvm.pegasus  # noqa: B018


def test_a_node_offers_its_fields_and_methods():
    assert {"lam", "init", "update", "model", "sampler"} <= set(dir(jaxsvm.pegasos(0.1)))


@pytest.mark.parametrize(
    "thing",
    [jaxsvm.node, jaxsvm.pegasos, jaxsvm.fit, kernels.rbf],
    ids=lambda thing: thing.__name__,
)
def test_help_prints_the_docstring(thing):
    text = pydoc.plain(pydoc.render_doc(thing))
    assert inspect.getdoc(thing).splitlines()[0] in text


@pytest.mark.parametrize("name", ["kernels", "losses", "data"])
def test_help_of_a_module_lists_its_public_names(name):
    text = pydoc.plain(pydoc.render_doc(getattr(jaxsvm, name)))
    assert all(each in text for each in getattr(jaxsvm, name).__all__)
