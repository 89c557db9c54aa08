"""Mutants, faults, hostile input, long runs, and other programs' tests."""
