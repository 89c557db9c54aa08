"""The tests of `on_four_devices/` are run by `test_four_devices.py`, in processes with four
simulated devices."""

import os

FLAG = "--xla_force_host_platform_device_count=4"
collect_ignore = (
    ["worker.py"] if FLAG in os.environ.get("XLA_FLAGS", "") else ["worker.py", "on_four_devices"]
)
