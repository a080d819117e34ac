"""What is in a file, by its first bytes, and what reads that: checkpoints and data lie in run folders too."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from exporter.runs.readers.database import MAGIC, Database, holds_metrics, is_companion
from exporter.runs.readers.follow import Archive, Document, Growing, Parts, Reader, status_of, text_lines
from exporter.runs.readers.frames import records, split

SAMPLE = 4096
CONTROL = bytes(range(1, 9)) + bytes(range(14, 27)) + bytes(range(28, 32))
"""Bytes that text does not hold; NUL, tabs, line ends and the escape of colour codes it does."""
_STARTS = {
    "compressed": re.compile(rb"\x1f\x8b"),
    "wandb": re.compile(rb":W&B"),
    "swanlab": re.compile(rb":SWL"),
    "notebook": re.compile(rb'\s*\{\s*"(?:cells|nbformat)"\s*:'),
    "events": re.compile(rb".{12}.{0,16}brain\.Event:", re.DOTALL),  # behind the 12 bytes of a frame
}
_HISTORY = b'"log_history"'  # what a Hugging Face trainer's state holds, be it written in one line
_METRIC_TABLE = re.compile(rb'\{\s*"[^"]{1,300}"\s*:\s*\{\s*"\d{1,15}"\s*:')
"""A table of metric, step and value, which may be written in one line as well."""
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*\{|\{)\s*["}]')


def content(path: Path) -> str:
    """What a file holds, as a word that ``reader_of`` and ``SOURCES`` know. Raises OSError."""
    if not status_of(path).st_size:
        return "empty"
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
    if sample.startswith(MAGIC):
        return {True: "database", False: "binary", None: "empty"}[holds_metrics(path)]
    if is_companion(path):
        return "binary"
    if kind := next((kind for kind, start in _STARTS.items() if start.match(sample)), ""):
        return kind
    if len(sample.translate(None, CONTROL)) < 0.95 * len(sample):
        return "binary"
    return "document" if _is_document(sample) else "text"


def _is_document(sample: bytes) -> bool:
    """Whether it is one JSON value over many lines, and not one a line."""
    if not _JSON.match(sample):
        return False
    first, line_end, rest = sample.lstrip().partition(b"\n")
    if first.startswith(b"[") or _HISTORY in first or (_METRIC_TABLE.match(first) and not rest.strip()):
        return True
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return bool(line_end) and b"NaN" not in first and b"Infinity" not in first
    return False


def reader_of(kind: str, parts: Parts) -> Reader:
    """A reader for what ``content`` says is in the files."""
    last = parts()[-1]
    match kind:
        case "events":
            return Growing(parts, split)
        case "document" | "notebook":
            return Document(parts)
        case "compressed":
            return Archive(lambda: (last,))
        case "database":
            return Database(lambda: (last,))
    return Growing(lambda: (last,), records if kind in ("wandb", "swanlab") else text_lines)
