"""Seconds beside other packages, first answers, and what programs hold."""
