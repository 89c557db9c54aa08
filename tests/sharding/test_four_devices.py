"""The files of `on_four_devices/`, each in a process of its own: the number of devices is fixed
when JAX starts."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent / "on_four_devices"
FLAG = "--xla_force_host_platform_device_count=4"


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_on_four_devices(file):
    start = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        str(FOLDER / file),
    ]
    # other flags as in all tests, for compilation in less time; one program at a time, as XLA
    # aborts where devices of two programs wait for each other on few processors
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAG}",
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }
    done = subprocess.run(start, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[:2000] + done.stderr[-2000:]
    assert " passed" in done.stdout
