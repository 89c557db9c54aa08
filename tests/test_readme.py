"""The snippets of the documents run, in order, as a reader would type them; the catalogue names every solver."""

import pathlib
import re

import pytest

import jaxsvm

ROOT = pathlib.Path(__file__).parent.parent
README, TOUR, GUIDE, DEVICES, CATALOGUE = (
    ROOT / name for name in ("README.md", "docs/tour.md", "docs/guide.md", "docs/devices.md", "jaxsvm/solvers/README.md")
)


def blocks(language, document=README):
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S)


def run(document, tmp_path, monkeypatch):
    """The names that the snippets of a document leave behind."""
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks("python", document):
        exec(compile(block, document.name, "exec"), names)
    return names


@pytest.mark.long
def test_snippets_run_in_order(tmp_path, monkeypatch):
    assert len(blocks("python", TOUR)) >= 7
    names = run(TOUR, tmp_path, monkeypatch)
    assert names["run"].finite
    assert (tmp_path / "model.npz").exists() and (tmp_path / "run.npz").exists()
    assert float(names["errors"].min()) < 0.1


@pytest.mark.long
def test_snippets_on_devices(tmp_path, monkeypatch):
    names = run(DEVICES, tmp_path, monkeypatch)
    assert names["run"].finite and names["weights"].shape == (8, 30)


@pytest.mark.long
def test_snippets_of_the_readme_run_in_order(tmp_path, monkeypatch):
    assert len(blocks("python")) >= 5
    names = run(README, tmp_path, monkeypatch)
    assert names["run"].finite
    assert names["grid"].score(names["x_test"], names["y_test"]) > 0.9
    assert float(names["table"].values.min()) < 0.1
    proof = names["found"].certificate
    assert 0 <= float(proof.gap) < 1e-3 * float(proof.primal)


@pytest.mark.long
@pytest.mark.parametrize("document", [GUIDE, CATALOGUE], ids=lambda document: document.parent.name)
def test_snippets_of_a_document_run_in_order(document, tmp_path, monkeypatch):
    assert blocks("python", document)
    run(document, tmp_path, monkeypatch)


def test_there_are_exactly_two_set_up_commands():
    commands = blocks("sh")
    assert len(commands) == 2
    assert "python -m jaxsvm" in commands[0] and "python -m pytest" in commands[1]
    assert all(command.count("\n") == 1 for command in commands)


def test_the_readme_is_short_and_shows_scikit_learn_first():
    lines = README.read_text().splitlines()
    assert len(lines) <= 200
    first = "\n".join(lines[:50])
    assert "![" in first and "jaxsvm[sklearn]" in first and "from jaxsvm.estimators import" in first


@pytest.mark.parametrize(
    "document", [README, *sorted(ROOT.glob("*/README.md")), TOUR, GUIDE, CATALOGUE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


@pytest.mark.parametrize(
    "name",
    [
        "pegasos",
        "kernel_pegasos",
        "bottou_sgd",
        "asgd",
        "constrained_sgd",
        "sdca",
        "interior_point",
        "decomposition",
        "smo",
        "lasvm",
        "perceptron",
        "asset",
        "on_features",
    ],
)
def test_the_catalogue_names_every_solver(name):
    assert f"`{name}(" in CATALOGUE.read_text()


def test_the_catalogue_names_every_factory_of_the_package():
    factories = [name for name, value in vars(jaxsvm.solvers).items() if hasattr(value, "rules")]
    text = CATALOGUE.read_text()
    assert len(factories) > 30 and not [name for name in factories if f"`{name}(" not in text]
