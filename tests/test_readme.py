"""The snippets of the documents run, in order, as a reader would type them; the catalogue names
every solver."""

import pathlib
import re

import numpy as np
import pytest

import jaxsvm

ROOT = pathlib.Path(__file__).parent.parent
README, CATALOGUE = ROOT / "README.md", ROOT / "jaxsvm/solvers/README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(language, document=README):
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S)


def run(document, tmp_path, monkeypatch):
    """The names that the snippets of a document leave behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks("python", document):
        exec(compile(block, document.name, "exec"), names)
    return names


WITH_SNIPPETS = [page for page in (*PAGES, CATALOGUE) if blocks("python", page)]


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    names = run(page, tmp_path, monkeypatch)
    if page.stem in CHECKS:
        CHECKS[page.stem](names)


def _saved(names):
    assert {path.name for path in names["folder"].iterdir()} == {
        "model.npz",
        "run.npz",
        "svm.model",
        "model.bin",
    }


def _solved(names):
    assert names["result"].converged and names["exact"].converged and names["smooth"].converged


def _selected(names):
    assert float(names["errors"].min()) < 0.1 and names["errors"].shape == (6, 5)


def _on_devices(names):
    assert names["result"].finite and names["weights"].shape == (8, 30)


# page -> what the names that its snippets leave behind must show
CHECKS = {"saving": _saved, "solving": _solved, "selecting": _selected, "devices": _on_devices}


def test_pages_have_snippets():
    assert len(WITH_SNIPPETS) >= 15 and not CHECKS.keys() - {page.stem for page in WITH_SNIPPETS}


@pytest.mark.long
def test_snippets_of_the_readme_run_in_order(tmp_path, monkeypatch):
    """Each alone: they train, certify and predict, and the proof is what the text after it says."""
    monkeypatch.chdir(tmp_path)
    first, second, third = blocks("python")
    exec(first, names := {})
    assert names["result"].converged and 0 <= names["proof"].gap < 1e-3 * names["proof"].primal
    x, y, *_ = jaxsvm.data.breast_cancer()  # rows as they are
    found = jaxsvm.models.load("machine.npz").predict(x)
    assert np.mean(found != np.asarray(y)) < 0.03
    exec(second, names := {})
    assert names["grid"].score(names["x_test"], names["y_test"]) > 0.9
    exec(third, names := {})
    assert float(names["table"].values.min()) < 0.1 and pathlib.Path("sweep.png").exists()


def test_there_are_exactly_two_set_up_commands():
    commands = blocks("sh")
    assert len(commands) == 2
    assert "python -m jaxsvm" in commands[0] and "python -m pytest" in commands[1]
    assert all(command.count("\n") == 1 for command in commands)


def test_the_readme_is_short_and_begins_with_what_a_stranger_needs():
    lines = README.read_text().splitlines()
    assert len(lines) <= 90
    first = "\n".join(lines[:50])
    assert "![" in first and "jaxsvm[sklearn,plot]" in first
    assert first.index("loaded.predict(test.x") < first.index("jaxsvm.estimators import")


@pytest.mark.parametrize(
    "document",
    [README, *sorted(ROOT.glob("*/README.md")), *PAGES, CATALOGUE],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


def test_the_catalogue_names_every_factory_of_the_package():
    factories = [
        name
        for name, value in vars(jaxsvm.solvers).items()
        if isinstance(value, type) and issubclass(value, jaxsvm.Solver)
    ]
    text = CATALOGUE.read_text()
    assert len(factories) > 30 and "`on_features(" in text
    assert not [name for name in factories if f"`{name}(" not in text]
