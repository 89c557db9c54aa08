"""Ascent on the dual objective of linear and kernel machines."""
