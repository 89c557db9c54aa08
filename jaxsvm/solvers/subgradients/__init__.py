"""Deterministic and conjugate subgradients."""
