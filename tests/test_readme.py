"""The README's snippets run, in order, as a reader would type them."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.S)


def test_snippets_run_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names = {}
    python = blocks("python")
    assert len(python) >= 7
    for block in python:
        exec(compile(block, "README.md", "exec"), names)
    assert names["run"].finite
    assert (tmp_path / "model.npz").exists() and (tmp_path / "run.npz").exists()
    assert float(names["errors"].min()) < 0.1


def test_there_are_exactly_two_set_up_commands():
    commands = blocks("sh")
    assert len(commands) == 2
    assert "python -m jaxsvm" in commands[0] and "python -m pytest" in commands[1]
    assert all(command.count("\n") == 1 for command in commands)


@pytest.mark.parametrize(
    "name",
    [
        "pegasos",
        "kernel_pegasos",
        "bottou_sgd",
        "asgd",
        "constrained_sgd",
        "sdca",
        "decomposition",
        "smo",
        "lasvm",
        "perceptron",
        "asset",
        "on_features",
    ],
)
def test_the_catalogue_names_every_solver(name):
    assert f"`{name}(" in README.read_text()
