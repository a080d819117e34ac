"""The meanings of signals in docs/metrics.md, which are the HELP texts of their metrics.

`python -m tests.runs.signals.documentation` writes them again.
"""

from __future__ import annotations

import re
from pathlib import Path

from exporter.runs.signals import SIGNALS

PAGE = Path(__file__).parents[3] / "docs/metrics.md"

_ROW = re.compile(r"^(\| `rl_(\w+)` \| gauge \| .* \| )([^|]*)( \|)$", re.MULTILINE)


def page(text: str) -> str:
    """Return the page with the meaning of each signal as its metric's HELP has it."""
    helps = {signal.name: signal.help for signal in SIGNALS}
    return _ROW.sub(lambda row: f"{row[1]}{helps.get(row[2], row[3])}{row[4]}", text)


def signals(text: str) -> set[str]:
    """Return the signals that have a row on the page."""
    return {row[2] for row in _ROW.finditer(text)} & {signal.name for signal in SIGNALS}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
