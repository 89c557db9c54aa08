"""Two real processes with two devices each, against one process with four devices and with one."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

import jaxsvm

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).parent / "worker.py"
NAMES = ("pegasos", "cocoa", "sdca")


def start(folder, process, processes, port, devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), *map(str, (folder, process, processes, port))]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


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
    texts = finish(*(start(tmp_path, process, 2, port, 2) for process in range(2)))
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
    for name in NAMES:  # certificates: those of one process, and the objective by NumPy
        for passes in (0, 1):
            primal, gap, exact = first[f"{name} certificate {passes}"]
            assert 0 < gap < primal
            for other in (four, one):
                theirs = other[f"{name} certificate {passes}"]
                assert primal == pytest.approx(theirs[0], rel=2e-6) and exact == theirs[2]
                assert gap == pytest.approx(theirs[1], rel=1e-3)
        assert first[f"{name} certificate 1"][1] < first[f"{name} certificate 0"][1]
        assert first[f"{name} kkt"] == pytest.approx(one[f"{name} kkt"], rel=1e-4)
        if name != "sdca":
            assert first[f"{name} certificate 0"][0] == pytest.approx(
                first[f"{name} primal"], rel=1e-12
            )
    assert close(first["chunks"], one["chunks"]) and close(first["chunks"], four["chunks"])
    for name in (
        "pegasos",
        "bsgd",
        "features",
    ):  # streams, of which each process reads its own chunks
        key = f"stream {name}"
        assert (first[f"{key} again"] == first[key]).all()
        for other in (four, one):
            assert np.abs(first[key] - other[key]).max() <= 1e-6 * np.abs(other[key]).max(), name
            assert close(other[f"{key} resumed"], other[f"{key} resumed by steps"]), name
            assert (first[f"{key} counts"] == other[f"{key} counts"]).all()
    assert (
        first["stream interrupted"].tolist() == [30, 2, 1]
        and first["fit interrupted"] == second["fit interrupted"]
    )
    # 3 rows of the file and 25 of each process: the second has 28, 7 steps, and the first one left
    assert first["stream from one"].tolist() == [[13, 1, 2]] * 2 and first[
        "stream from nothing"
    ].tolist() == [13, 1, 3]
    assert first["stream of one"].tolist() == [13, 0, 2]
    assert (
        "ended: RuntimeError process 1 failed at" in texts[0]
        and "ended: FileNotFoundError" in texts[1]
    )
    assert all(
        "ended: ValueError all processes must make the same call of stream" in text
        for text in texts
    )
    assert "failed: RuntimeError process 1 failed at its next chunk" in texts[0]
    assert "failed: OSError the disk of process 1" in texts[1]
    for text in texts:
        assert "refused: the first chunks of the processes have different columns or types" in text
        assert (
            "refused: process 0 has no rows in its first chunk" in text
            and "refused: a stream in several processes needs the mesh" in text
        )
    parts = sorted(path.name for path in (tmp_path / "cocoa-2").iterdir())
    assert parts == ["part-1-0.npz", "part-1-1.npz", "tree.npz"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["train.py", "stream.py"])
def test_programs_of_the_document(name, tmp_path):
    """In two processes, as docs/devices.md starts them, each with a file of its own; then, for a
    stream, once more."""
    text_of_page = (ROOT / "docs" / "devices.md").read_text()
    program = next(
        block
        for block in re.findall(r"```py\n(.*?)```", text_of_page, re.S)
        if f"# {name}" in block
    )
    (tmp_path / name).write_text(program)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4096, 3)).astype(np.float32)
    y = np.where(x[:, 0] > 0.1, 1, -1).astype(np.float32)
    for process in range(2):
        own = slice(process, None, 2)
        np.savez(tmp_path / f"rows-{process}.npz", x=x[own][:100], y=y[own][:100])
        np.save(tmp_path / f"x-{process}.npy", x[own])
        np.save(tmp_path / f"y-{process}.npy", y[own])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    options = {
        "cwd": tmp_path,
        "env": environment,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    for again in range(2 if name == "stream.py" else 1):
        port = free_port()
        command = [sys.executable, name, "2"]
        started = [
            subprocess.Popen([*command, str(i), f"localhost:{port}"], **options) for i in range(2)
        ]
        texts = finish(*started)
        assert ("no step was made" if again else "after") in texts[0]
    if name == "stream.py":
        model = jaxsvm.models.load(tmp_path / "machine.npz")
        one = next(
            block
            for block in re.findall(r"```py\n(.*?)```", text_of_page, re.S)
            if "# one.py" in block
        )
        subprocess.run(
            [sys.executable, "-c", one], cwd=tmp_path, env=environment, check=True, timeout=120
        )
        by_step = np.concatenate(
            [np.arange(k * 1024 + j, (k + 1) * 1024, 2) for k in range(4) for j in range(2)]
        )
        run = jaxsvm.stream(
            jaxsvm.pegasos(1e-4), [(x[by_step], y[by_step])], jax.random.key(0), batch_size=1024
        )
        np.testing.assert_allclose(model.w, run.model.w, rtol=1e-5)
