"""The tests of `on_four_devices/` are run by `test_four_devices.py`, in processes with four simulated devices."""

import os

FLAG = "--xla_force_host_platform_device_count=4"
collect_ignore = [] if FLAG in os.environ.get("XLA_FLAGS", "") else ["on_four_devices"]
