"""What each real log is, judged from its numbers by people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.public_logs import LABELS, folders


@dataclass(frozen=True)
class Label:
    """One log: what it is (``sick``, ``healthy``, ``flat``, ``nan``, ``borderline``, ``other``).

    Any one of the alerts in ``expect`` detects it, by record ``by`` at the latest; with ``page`` one of
    them must be critical. What is wrong can be seen from record ``seen`` on; records count from 1.
    """

    folder: Path
    file: str
    verdict: str
    expect: tuple[str, ...] = ()
    seen: int = 1
    by: float = math.inf
    page: bool = False
    note: str = ""

    @property
    def path(self) -> Path:
        """The log."""
        return self.folder / self.file


def labels() -> list[Label]:
    """All labelled logs; none where there are no real logs."""
    return [
        _label(folder, file, label)
        for folder in folders()
        for file, label in yaml.safe_load((folder / LABELS).read_text()).items()
    ]


def _label(folder: Path, file: str, said: dict[str, Any]) -> Label:
    # A note with a comma in it reads as several keys.
    known = {key: said[key] for key in ("verdict", "seen", "by", "page", "note") if key in said}
    expect = said.get("expect", ["NonFinite"] if said["verdict"] == "nan" else [])
    return Label(folder, file, expect=tuple(expect), **known)
