"""Benchmarks: `python -m benchmarks.core`; results are written to benchmarks/results/."""
