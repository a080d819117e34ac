from __future__ import annotations

from pathlib import Path

import pytest

from tests import real


@pytest.fixture(params=["2.42", "3.13"])
def promtool(request: pytest.FixtureRequest) -> Path:
    """The oldest promtool that we promise to work with, and the newest."""
    return real.prometheus(request.param).tool


@pytest.fixture(name="oldest")
def _oldest() -> Path:
    """For messages: with the newest promtool, tests/alerts/test_golden.py reads each of them."""
    return real.prometheus("2.42").tool
