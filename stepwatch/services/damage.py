"""Damaged files that keep Prometheus or Alertmanager from starting: which ones, and what they held.

Both exit with an error then, at every start. Other damage they repair themselves, or continue without the
file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ASIDE = "damaged"
"""The folder, in a part's data folder, that gets what is moved aside."""

LOG_LINES = 50
"""Of the log's end, in which the last starts are found."""

NOTHING = "`make up REPAIR=1`: no damaged file keeps a part from starting; nothing was moved."

_WORKS = re.compile("TSDB started|Server is ready|Completed loading of configuration file")
_BLOCK = re.compile(r"\bcorrupted block (?P<name>[0-9A-HJKMNP-TV-Z]{26})\b")
_HEAD = re.compile(r"\bchunks_head\b|head chunk file")
_WAL = re.compile(r"\bWAL\b|/wal\b|get segment range|segments are not sequential")
_OTHER_TROUBLE = re.compile(
    "no space left|quota exceeded|permission denied|read-only|too many open files|cannot allocate"
    "|input/output error|temporarily unavailable"
)
"""The file is well then, or the disk is not: moving a file aside would help neither."""
_FATAL = {
    "prometheus": re.compile(r'"opening storage failed: (?P<reason>.*)"'),
    "alertmanager": re.compile(
        r'(?:msg="(?P<what>[^"]*)" )?'
        r'err="(?P<reason>unexpected EOF|proto: .*|invalid state|read .* is a directory)"'
    ),
}

_LOSS = {
    "chunks_head": "nothing: Prometheus rebuilds it from its write-ahead log",
    "wal": "the samples since the last block, of three hours at most",
    "nflog": "which notifications were sent: alerts that fire are sent once more",
    "silences": "all silences",
}


@dataclass(frozen=True)
class Damage:
    """A damaged file or folder: ``name``, below the data folder of a part, and the part's own words."""

    part: str
    name: str
    reason: str

    def fix(self, place: str) -> str:
        """The message about it; ``place`` is the data folder, as the user names it."""
        loss = _LOSS.get(self.name, "the samples of this block")
        return (
            f"{place}/{self.name} is damaged ({self.reason}), and {self.part} cannot start with it. Removing "
            f"it loses {loss}. Fix: run `make up REPAIR=1`, which moves it to {place}/{ASIDE} and "
            f"starts {self.part}; it deletes nothing."
        )


def find(part: str, log: Sequence[str], folder: Path | None = None) -> Damage | None:
    """Return the damaged file that keeps a part from starting; ``None`` where none is known.

    ``log`` are the last lines of its log, some `LOG_LINES`; ``folder`` is its data folder, where that can be
    looked into: a file that is no longer there is not damaged.
    """
    if part not in _FATAL:
        return None
    # One that dies again and again may be in the middle of a start.
    since_it_worked = takewhile(lambda line: not _WORKS.search(line), reversed(log))
    fatal = next(filter(None, map(_FATAL[part].search, since_it_worked)), None)
    if not fatal:
        return None
    name = _of_prometheus(fatal["reason"]) if part == "prometheus" else _of_alertmanager(fatal, folder)
    missing = not name or (folder is not None and not (folder / name).exists())
    return None if missing else Damage(part, name, fatal["reason"])


def stamp() -> str:
    """Return a folder name for what is moved aside now."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def move_aside(damage: Damage, folder: Path) -> Path:
    """Move a damaged file aside, in the data folder of a stopped part; return its new path.

    Raises:
        OSError: It cannot be moved.
    """
    aside = folder / ASIDE / stamp()
    aside.mkdir(parents=True, exist_ok=True)
    return (folder / damage.name).rename(aside / damage.name)


def _of_prometheus(reason: str) -> str:
    if _OTHER_TROUBLE.search(reason):
        return ""
    if block := _BLOCK.search(reason):
        return block["name"]
    if _HEAD.search(reason):
        return "chunks_head"
    return "wal" if _WAL.search(reason) else ""


def _of_alertmanager(fatal: re.Match[str], folder: Path | None) -> str:
    words = (fatal["what"] or "").lower()
    if "notification log" in words:
        return "nflog"
    if "silence" in words:
        return "silences"
    # Before 0.26 it does not say which file; it reads nflog first.
    names = [name for name in ("nflog", "silences") if folder is None or (folder / name).exists()]
    broken = (name for name in names if folder is None or not _whole(folder / name))
    return next(broken, names[0] if names else "nflog")


def _whole(file: Path) -> bool:
    """Whether a file is a row of messages, each behind its length (a varint), as Alertmanager writes them."""
    if not file.is_file():
        return False
    data = file.read_bytes()
    at = 0
    while at < len(data):
        number = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]").match(data, at)
        if not number:
            return False
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(number[0]))
        at = number.end() + length
        if not length or at > len(data):
            return False
    return True
