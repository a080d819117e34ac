"""What docs/runbook.md says of each alert and each pattern of failure, for pages that show it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"^### (\w[\w -]*)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"`|\*\*|\[([^]]*)\]\([^)]*\)")


class Entry(NamedTuple):
    """What an alert or pattern means, its usual causes, and what to do: each a paragraph, without markup."""

    meaning: str
    causes: str
    mitigation: str


_BEGINS = Entry("**Meaning.** ", "Known causes: ", "**Mitigation.** ")


def entries(page: Path) -> Mapping[str, Entry]:
    """Return the entries of the runbook by alert or pattern; what an entry lacks is empty.

    Raises:
        OSError: The page cannot be read.
    """
    text = page.read_text(encoding="utf-8")
    return {
        name: Entry(*(_paragraph(body, begin) for begin in _BEGINS)) for name, body in _ENTRY.findall(text)
    }


def _paragraph(body: str, begin: str) -> str:
    found = re.search(rf"^{re.escape(begin)}(.+)$", body, re.MULTILINE)
    return _MARKUP.sub(lambda part: part[1] or "", found[1]).strip() if found else ""
