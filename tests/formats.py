"""``python -m tests.formats``: write what is read of the real logs into docs/formats.md."""

from __future__ import annotations

import os
from pathlib import Path

from stepwatch.config import Config
from stepwatch.inspection import inspect

CHECKOUT = Path(__file__).parents[1]
PAGE = CHECKOUT / "docs" / "formats.md"
BEGIN, END = "<!-- made by `make formats` -->\n", "<!-- end -->\n"


def real_logs() -> Path:
    """The folder of real logs."""
    return Path(os.environ.get("STEPWATCH_TEST_RUNS", CHECKOUT.parent / "shared" / "runs"))


def table() -> str:
    """A row for each real log."""
    rows: list[str] = []
    inspect([real_logs() / "*" / "*"], Config(), rows.append, markdown=True)
    return "".join(f"{row}\n" for row in rows)


def page(old: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = old.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
