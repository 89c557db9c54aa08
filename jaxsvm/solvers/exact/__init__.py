"""Exact kernel machines by decomposition of the dual."""
