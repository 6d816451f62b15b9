"""Word detectors for the tests of what they learn and of what their features are."""

import pytest
from word_cases import trained


@pytest.fixture(scope="session")
def once():
    """Word detectors, and what their training says."""
    return trained()


@pytest.fixture
def detectors(once):
    return once[0][0]
