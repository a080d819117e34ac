"""The pages as a whole: as they were last looked at, without a fault that a tool would find, and small."""

from __future__ import annotations

import pytest

from exporter.gpu.backend import PROFILES
from tests.gpu import golden
from tests.runs.scrape import Scrape

PAGES = golden.pages()
MOST = {"h200": 105, "a100": 95, "a100-mig": 100, "rtx4080": 80}
"""Series of one card, 14 of them its state and its Xid errors; 20 more are about the box."""
FIX = "If this is what it shall be: `python -m tests.gpu.golden`, and look at the difference."


@pytest.mark.parametrize("profile", MOST)
def test_a_card_has_no_more_series_than_it_needs(profile: str) -> None:
    samples = Scrape(PAGES[profile].encode()).samples
    of_one = [labels for _, labels in samples if ("gpu", "0") in labels]

    assert len(of_one) <= MOST[profile]
    assert len(samples) - PROFILES[profile] * len(of_one) <= 20
