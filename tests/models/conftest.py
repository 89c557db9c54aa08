"""A file for one test."""

import pytest


@pytest.fixture
def path(tmp_path):
    """Where nothing is yet."""
    return tmp_path / "a.model"
