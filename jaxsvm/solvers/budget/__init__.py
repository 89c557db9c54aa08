"""Kernel machines on a budget of points."""
