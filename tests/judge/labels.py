"""What each real log is, judged from its numbers by people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.formats import real_logs


@dataclass(frozen=True)
class Label:
    """One log: what it is (``sick``, ``healthy``, ``flat``, ``nan``, ``borderline``, ``other``).

    Any one of the alerts in ``expect`` tells of it, by that record at the latest; with ``page`` one of
    them must be critical.
    """

    file: str
    verdict: str
    expect: tuple[str, ...] = ()
    by: float = math.inf
    page: bool = False
    note: str = ""

    @property
    def path(self) -> Path:
        """The log."""
        return real_logs() / self.file


def labels() -> list[Label]:
    """All labelled logs; none where there are no real logs."""
    path = real_logs() / "labels.yaml"
    if not path.exists():
        return []
    said = yaml.safe_load(path.read_text())
    return [_label(file, label) for file, label in said.items()]


def _label(file: str, said: dict[str, Any]) -> Label:
    # A note with a comma in it reads as several keys.
    known = {key: said[key] for key in ("verdict", "by", "page", "note") if key in said}
    expect = said.get("expect", ["NonFinite"] if said["verdict"] == "nan" else [])
    return Label(file, expect=tuple(expect), **known)
