"""Two real processes with two devices each, against one process with four devices and with one."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

WORKER = pathlib.Path(__file__).parent / "worker.py"
NAMES = ("pegasos", "cocoa", "sdca")


def start(folder, process, processes, port, devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), *map(str, (folder, process, processes, port))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def finish(*started):
    for each in started:
        text, _ = each.communicate(timeout=600)
        assert each.returncode == 0, text[-4000:]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.long
def test_two_processes_are_one(tmp_path):
    port = free_port()
    finish(*(start(tmp_path, process, 2, port, 2) for process in range(2)))
    finish(*(start(tmp_path, 0, 1, 0, devices) for devices in (4, 1)))
    read = lambda name: dict(np.load(tmp_path / f"results-{name}.npz"))
    first, second, four, one = (read(name) for name in ("2-4-0", "2-4-1", "1-4-0", "1-1-0"))
    close = lambda a, b: np.abs(a - b).max() <= 5e-7 * np.abs(b).max()
    for key in first:
        assert (first[key] == second[key]).all(), key  # the model is the same in all processes
    for name in NAMES:
        for part in (f"{name} half", f"{name} whole"):
            assert close(first[part], one[part]) and close(first[part], four[part]), part
        assert (first[f"{name} again"] == first[f"{name} whole"]).all()
        for other in (four, one):
            assert close(other[f"{name} resumed"], first[f"{name} whole"]), name
            assert close(other[f"{name} saved model"], first[f"{name} whole"]), name
            assert str(other[f"{name} status"])[:10] == str(first[f"{name} status"])[:10]
    parts = sorted(path.name for path in (tmp_path / "cocoa-2").iterdir())
    assert parts == ["part-1-0.npz", "part-1-1.npz", "tree.npz"]
