"""Many hosts by a model, and one machine to its limit.

Weak scaling to 1,000 hosts: seconds of compute measured on this machine, seconds of the network from stated constants.

compute_s are wall seconds of a step, the least of a few runs: run it on an idle machine. processor_s are processor seconds
divided by the processors, the least that a step can take. The network adds one of

    network_s       ceil(log2 K) (latency + bytes / bandwidth)                     recursive doubling, for short messages
    network_long_s  2 ceil(log2 K) latency + 2 (K - 1) / K bytes / bandwidth       Rabenseifner's, for long messages

(R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA 19, 2005; a
gradient of 123 columns is short.) Efficiency is seconds of one host / seconds of K hosts, with the same rows on every host:
efficiency from compute_s and network_s, efficiency_low from processor_s and network_long_s. Hosts are taken to be equally
fast: a slow one delays all.

    python -m benchmarks.scale weak       tables scale_weak.csv and scale_plan.csv, and scale.png
    python -m benchmarks.scale rounds     table scale_rounds.csv
    python -m benchmarks.scale covtype    table scale_covtype.csv, see `one_machine`
    python -m benchmarks.scale rows       table scale_rows.csv, see `one_machine`
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time

import jax
import numpy as np

import jaxsvm
from jaxsvm import samplers

from . import common, one_machine

LATENCY, BANDWIDTH = 10e-6, 25e9 / 8  # seconds of a message, bytes a second: Ethernet of 25 Gbit/s
HOSTS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)
COLUMNS = 123  # of a9a
BATCHES = (256, 2048, 16_384)
ROWS = 131_072  # of a host, for methods that read all of its rows
KEY = jax.random.key(0)


def network_short(hosts: int, numbers: int) -> float:
    """Seconds of an all-reduce of so many float32 by recursive doubling."""
    return math.ceil(math.log2(hosts)) * (LATENCY + 4 * numbers / BANDWIDTH)


def network(hosts: int, numbers: int) -> float:
    """Seconds of an all-reduce of so many float32 by Rabenseifner's algorithm."""
    if hosts == 1:
        return 0.0
    return 2 * math.ceil(math.log2(hosts)) * LATENCY + 2 * (hosts - 1) / hosts * 4 * numbers / BANDWIDTH


def rows_of(n: int) -> jaxsvm.Batch:
    """Rows of 14 ones among the columns, with noisy labels, like a9a's."""
    rng = np.random.default_rng(0)
    x = np.zeros((n, COLUMNS), np.float32)
    for start in range(0, n, 4096):
        part = x[start : start + 4096]
        part[np.arange(len(part))[:, None], rng.random((len(part), COLUMNS)).argsort(axis=1)[:, :14]] = 1
    score = x @ rng.normal(size=COLUMNS) + rng.normal(size=n)
    return jaxsvm.dataset(x, np.where(score > np.median(score), 1, -1))


def seconds_of_step(solver, data, steps: int, repeats: int, **options) -> tuple[float, float]:
    """Wall seconds of a step, and its processor seconds / processors; each the least of a few runs.

    The difference of runs of three chunks and of one leaves out what a call takes.
    """

    def cost(chunks: int, state: jaxsvm.RunState) -> tuple[float, float]:
        began = time.perf_counter(), time.process_time()
        jax.block_until_ready(jaxsvm.fit(solver, data, steps=chunks * steps, every=steps, state=state, **options).state)
        return time.perf_counter() - began[0], (time.process_time() - began[1]) / os.cpu_count()

    state = jaxsvm.fit(solver, data, KEY, steps=steps, every=steps, **options).state
    cost(3, state)
    one, three = (np.min([cost(chunks, state) for _ in range(repeats)], axis=0) for chunks in (1, 3))
    return tuple((three - one) / (2 * steps))


def weak(n: int, batches: tuple[int, ...], repeats: int) -> list[dict]:
    """Seconds of a step and efficiency of each method on each number of hosts."""
    data = rows_of(n)
    measured = {}
    for b in batches:
        sampler = samplers.strata(samplers.epochs(b), blocks=1)
        measured[f"pegasos, {b} rows"] = seconds_of_step(
            jaxsvm.pegasos(1e-4), data, 200 if b < 10_000 else 30, repeats, sampler=sampler
        )
    measured[f"subgradient, {n} rows"] = seconds_of_step(jaxsvm.subgradient(1e-4), data, 10, repeats)
    measured[f"cocoa, {n} rows"] = seconds_of_step(jaxsvm.cocoa(1e-4, blocks=1), data, 2, repeats)
    table = []
    for name, (compute, processor) in measured.items():
        for hosts in HOSTS:
            short, long = network_short(hosts, COLUMNS + 8), network(hosts, COLUMNS + 8)
            table.append(
                {
                    "method": name,
                    "hosts": hosts,
                    "compute_s": f"{compute:.3e}",
                    "processor_s": f"{processor:.3e}",
                    "network_s": f"{short:.3e}",
                    "network_long_s": f"{long:.3e}",
                    "efficiency": f"{compute / (compute + short):.3f}",
                    "efficiency_low": f"{processor / (processor + long):.3f}",
                }
            )
    return table


def rounds(n: int | None, blocks: tuple[int, ...], most: int) -> list[dict]:
    """Rounds of CoCoA+ to an excess of 1e-2 over the optimum on a9a, by the number of blocks."""
    x, y = (a[:n] for a in common.load("a9a"))
    data = jaxsvm.dataset(x, y)
    x64, y64 = x.astype(np.float64), y.astype(np.float64)

    def primal(w, C):
        w = np.asarray(w, np.float64)
        return w @ w / 2 + C * np.maximum(1 - y64 * (x64 @ w), 0).sum()

    table = []
    for C in (0.01, 0.1):
        best = primal(jaxsvm.fit(jaxsvm.sdca(C), data, KEY, steps=60 * len(y)).model.w, C)
        for k in blocks:
            state, excess, count = None, np.inf, 0
            while excess > 1e-2 and count < most:
                solver = jaxsvm.cocoa(C, blocks=k)
                run = jaxsvm.fit(solver, data, None if state else KEY, steps=1, every=1, state=state)
                state, count, excess = run.state, count + 1, primal(run.model.w, C) / best - 1
            table.append({"C": C, "blocks": k, "rounds": count, "excess": f"{excess:.2e}"})
    return table


def plan(weak_table: list[dict], n: int, hosts: int = 250) -> list[dict]:
    """What 10^9 rows of the same columns take on so many hosts."""
    total, each = 10**9, 10**9 // hosts
    one = {row["method"]: float(row["compute_s"]) for row in weak_table if row["hosts"] == 1}
    pass_of = {name.split(",")[0]: seconds for name, seconds in one.items() if name.endswith(f" {n} rows")}
    sent = network(hosts, COLUMNS + 8)
    b = max(int(name.split()[1]) for name in one if name.startswith("pegasos"))
    steps = math.ceil(each / b)
    lines = {
        "rows a host": each,
        "GB of dense float32 rows a host": each * COLUMNS * 4 / 1e9,
        "GB of sparse rows a host, 16 entries": each * 16 * 8 / 1e9,
        "MB of the state of cocoa a host": each * 12 / 1e6,
        "seconds of a round of cocoa": pass_of["cocoa"] * each / n + sent,
        "seconds of a step of subgradient": pass_of["subgradient"] * each / n + sent,
        f"seconds of a pass of pegasos, {b} rows a host": steps * (one[f"pegasos, {b} rows"] + sent),
        "bytes that a host sends a round": 2 * 4 * (COLUMNS + 8),
    }
    return [{"rows": total, "hosts": hosts, "what": what, "value": f"{value:.4g}"} for what, value in lines.items()]


def draw(table: list[dict], path) -> None:
    """Efficiency over the number of hosts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name in dict.fromkeys(row["method"] for row in table):
        rows = [row for row in table if row["method"] == name]
        axes.semilogx([row["hosts"] for row in rows], [float(row["efficiency"]) for row in rows], marker="o", label=name)
    axes.set(xlabel="hosts", ylabel="efficiency", ylim=(0, 1.05), title="Weak scaling: measured compute, modelled network")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def weak_part(small: bool) -> None:
    """The tables of weak scaling, the plan and the plot."""
    n, batches, repeats = (4096, (256, 1024), 1) if small else (ROWS, BATCHES, 7)
    table = weak(n, batches, repeats)
    plan_table = plan(table, n)
    if small:
        for row in table + plan_table:
            print(row)
        return
    common.write("scale_weak", table)
    common.write("scale_plan", plan_table)
    draw(table, common.RESULTS / "scale.png")


def rounds_part(small: bool) -> None:
    """The table of rounds."""
    table = rounds(2000, (2,), 5) if small else rounds(None, (1, 2, 4, 8, 16, 32, 64), 200)
    print(table) if small else common.write("scale_rounds", table)


def one_machine_part(name: str, small: bool) -> None:
    """The table of a part of `one_machine`."""
    table = one_machine.measure(name, small)
    if not small:
        common.write(f"scale_{name}", table)


PARTS = {
    "weak": weak_part,
    "rounds": rounds_part,
    "covtype": functools.partial(one_machine_part, "covtype"),
    "rows": functools.partial(one_machine_part, "rows"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; none: all")
    parser.add_argument("--small", action="store_true", help="few rows, nothing is written")
    given = parser.parse_args(arguments)
    if wrong := set(given.parts) - set(PARTS):
        parser.error(f"no part: {', '.join(sorted(wrong))}")
    if not given.small:
        print(common.device())
    for name in given.parts or PARTS:
        PARTS[name](given.small)


if __name__ == "__main__":
    main()
