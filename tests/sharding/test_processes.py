"""Two real processes with two devices each, against one process with four devices and with one."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).parent / "worker.py"


def start(devices, *command, **options):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, *map(str, command)]
    return subprocess.Popen(command, env=environment, **pipes, **options)


def finish(*started):
    texts = []
    for each in started:
        text, _ = each.communicate(timeout=600)
        assert each.returncode == 0, text[-4000:]
        texts.append(text)
    return texts


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.long
def test_two_processes_are_one(tmp_path):
    port = free_port()
    finish(*(start(2, WORKER, tmp_path, process, 2, port) for process in range(2)))
    finish(*(start(devices, WORKER, tmp_path, 0, 1, 0) for devices in (4, 1)))
    read = lambda name: dict(np.load(tmp_path / f"results-{name}.npz"))
    first, second, four, one = (read(name) for name in ("2-4-0", "2-4-1", "1-4-0", "1-1-0"))
    assert all((first[key] == second[key]).all() for key in first)
    for other in (four, one):
        for name in ("pegasos", "cocoa", "sweep"):
            error = np.abs(first[name] - other[name]).max()
            assert error <= 2e-6 * np.abs(other[name]).max(), name
        for name in ("pegasos", "cocoa"):
            (primal, gap), theirs = first[f"{name} bound"], other[f"{name} bound"]
            assert 0 < gap < primal == pytest.approx(theirs[0], rel=2e-6)
            assert gap == pytest.approx(theirs[1], rel=1e-3)
            assert str(first[f"{name} status"])[:10] == str(other[f"{name} status"])[:10]


@pytest.mark.long
def test_the_program_of_the_document(tmp_path):
    """In two processes, as docs/devices.md starts them, each with a file of its own."""
    page = (ROOT / "docs" / "devices.md").read_text()
    [program] = [
        block for block in re.findall(r"```py\n(.*?)```", page, re.S) if "# train" in block
    ]
    (tmp_path / "train.py").write_text(program)
    rng = np.random.default_rng(0)
    for process in range(2):
        x = rng.normal(size=(100, 3)).astype(np.float32)
        np.savez(tmp_path / f"rows-{process}.npz", x=x, y=np.where(x[:, 0] > 0.1, 1, -1))
    address = f"localhost:{free_port()}"
    texts = finish(*(start(4, "train.py", 2, i, address, cwd=tmp_path) for i in range(2)))
    assert "after" in texts[0]
