"""The files of `on_four_devices/`, each in a process of its own: the number of devices is fixed
when JAX starts."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent / "on_four_devices"
FLAG = "--xla_force_host_platform_device_count=4"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_on_four_devices(file):
    start = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", "-p", "no:cacheprovider"]
    # other flags as in all tests, for compilation in less time; one program and one thread of each
    # device at a time, as XLA aborts where they wait for each other on few processors
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAG} {ONE_THREAD}",
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }
    options = {"capture_output": True, "text": True, "timeout": 900, "env": environment}
    for _ in range(3):
        done = subprocess.run([*start, FOLDER / file], **options)
        if done.returncode != -signal.SIGABRT:  # of XLA itself, after a minute of waiting
            break
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[:2000] + done.stderr[-2000:]
    assert " passed" in done.stdout
