"""docs/metrics.md says of each signal what its metric's HELP says."""

from __future__ import annotations

from exporter.runs.signals import SIGNALS
from tests.runs.signals import documentation


def test_the_page_has_each_signal_with_the_help_of_its_metric() -> None:
    text = documentation.PAGE.read_text()

    assert documentation.signals(text) == {signal.name for signal in SIGNALS}
    assert documentation.page(text) == text, "regenerate: python -m tests.runs.signals.documentation"
