"""The tables of docs/configuration.md: `python -m tests.config.documentation` regenerates them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepwatch.config import Config
from stepwatch.config.reference import REQUIRED, Key, keys

PAGE = Path(__file__).parents[2] / "docs/configuration.md"

_SPECIAL = re.compile(r"([|*<])")
_TABLE = re.compile(r"(?<=^<!-- keys: )([a-z_ ]+) -->\n\n(?:\|.*\n)*", re.MULTILINE)


def page(text: str) -> str:
    """Return the page with its tables as the models have them; a comment before each names its sections."""
    every = list(keys(Config))
    return _TABLE.sub(lambda found: f"{found[1]} -->\n\n{''.join(_table(found[1].split(), every))}", text)


def sections(text: str) -> list[str]:
    """Return the sections that have a table on the page."""
    return [name for found in _TABLE.finditer(text) for name in found[1].split()]


def _table(names: Sequence[str], every: Sequence[Key]) -> Iterator[str]:
    yield "| key | default | what it does, and why that default |\n|---|---|---|\n"
    for name in names:
        for key in every:
            if re.split(r"[.\[]", key.path)[0] == name and not _is_plain_switch(key):
                default = f"`{key.default}`" if key.default not in ("", REQUIRED) else key.default
                why = _SPECIAL.sub(r"\\\1", key.why)
                yield f"| `{key.path}` | {default} | {why} |\n"


def _is_plain_switch(key: Key) -> bool:
    """Whether it is the switch of a block that is on, which the page describes once for all."""
    return key.path.endswith(".enabled") and key.default == "true"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
