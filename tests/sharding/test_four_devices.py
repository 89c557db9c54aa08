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
    # others as in all tests, for compilation in less time
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(start, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
