"""Cutting planes for risks that may couple rows."""
