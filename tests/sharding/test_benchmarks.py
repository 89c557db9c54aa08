"""The small versions of the benchmarks of devices and of scale."""

import pytest

device = pytest.importorskip("benchmarks.device", reason="the folder benchmarks is not here")
scale = pytest.importorskip("benchmarks.scale")
one_machine = pytest.importorskip("benchmarks.one_machine")


@pytest.mark.long
def test_the_loads_of_a_device_run():
    table = device.main(["--small"])
    assert [row["load"] for row in table] == list(device.LOADS)
    assert all(float(row["again_s"]) > 0 and float(row["figure"]) > 0 for row in table)
    assert float(table[0]["figure"]) <= 1e-3  # the exact machine meets its tolerance


def test_the_model_of_the_network_is_the_formula():
    assert scale.network(1, 123) == 0
    seconds = 2 * 10 * 10e-6 + 2 * 999 / 1000 * 4 * 123 / (
        25e9 / 8
    )  # ceil(log2 1000) = 10 rounds of 10 microseconds
    assert scale.network(1000, 123) == pytest.approx(seconds)
    assert scale.network_short(1, 123) == 0
    assert scale.network_short(1000, 123) == pytest.approx(10 * (10e-6 + 4 * 123 / (25e9 / 8)))


@pytest.mark.long
def test_the_rows_that_are_streamed():
    table = one_machine.measure("rows", small=True)
    assert [row["method"] for row in table] == list(one_machine.RUNS["rows"])
    assert all(float(row["cpu_s"]) > 0 and float(row["resident_GB"]) > 0 for row in table)
    assert all(
        10 < float(row["test_error_percent"]) < 45 for row in table
    )  # of signs; a constant is wrong for half of them
