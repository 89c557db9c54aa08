"""Descent on the primal objective: one row, one batch or all rows a step."""
