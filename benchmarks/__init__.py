"""Benchmarks: `papers`, `speed` and `trust`, such as `python -m benchmarks.papers.core`; results are in benchmarks/results/."""
