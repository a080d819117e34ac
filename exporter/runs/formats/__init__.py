"""Sources: one class for each format that trainers write, distinguished by content, not by name.

``base`` is what they have in common; ``console``, ``flat``, ``progress_bar`` and ``protobuf`` are what they
parse with. ``prefixes`` removes what launchers, collectors and loggers put before lines of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from exporter.runs.formats.base import Source
from exporter.runs.formats.block_consoles import Areal, Clu, DeepSpeedChat, NemoRl, RichTable
from exporter.runs.formats.csv_table import CsvTable
from exporter.runs.formats.dict_consoles import OpenRlhf, SkyRl, Slime
from exporter.runs.formats.json_logs import (
    FlatJsonl,
    JsonList,
    MetricTable,
    Notebook,
    ScopedJsonl,
    TrainerState,
    TwinkleEvents,
    VerlJsonl,
)
from exporter.runs.formats.line_consoles import EpochLines, PrimeRl, Roll, VerlConsole
from exporter.runs.formats.tensorboard import TensorBoard
from exporter.runs.formats.trackers import SwanLab, Trackio, WandbFile
from exporter.runs.formats.trl_console import TrlConsole
from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import Record

__all__ = ["SOURCES", "Source", "recognise", "recognise_first"]

TEXT: tuple[type[Source], ...] = (
    VerlJsonl,
    ScopedJsonl,
    TwinkleEvents,
    FlatJsonl,
    VerlConsole,
    TrlConsole,
    OpenRlhf,
    Slime,
    NemoRl,
    Areal,
    DeepSpeedChat,
    SkyRl,
    Roll,
    PrimeRl,
    RichTable,
    Clu,
    EpochLines,
    CsvTable,
)
SOURCES: dict[str, tuple[type[Source], ...]] = {
    "text": TEXT,
    "compressed": TEXT,
    "document": (TrainerState, JsonList, MetricTable),
    "notebook": (Notebook,),
    "events": (TensorBoard,),
    "database": (Trackio,),
    "wandb": (WandbFile,),
    "swanlab": (SwanLab,),
}
"""By what a file holds; what is more particular stands first."""

BEFORE, AHEAD = 3, 50  # lines before the head of a table with its title, and after it with its first row


def recognise(line: bytes, kind: str = "text") -> Source | None:
    """The source whose record this line is, if any; or whose table has it as head."""
    return next((source for each in SOURCES[kind] if (source := each()).recognises(line)), None)


def recognise_first(
    lines: Sequence[bytes], kind: str = "text", mapped: Mapped = NONE_MAPPED
) -> Source | None:
    """The source of the first record, if any; a table's head is one if a row follows, or nothing yet."""
    sources = [source(mapped) for source in SOURCES[kind]]
    for index, line in enumerate(lines):
        source = next((source.again() for source in sources if source.recognises(line)), None)
        if source and _continues(source, lines[max(0, index - BEFORE) : index], lines[index : index + AHEAD]):
            return source.again()
    return None


def _continues(source: Source, before: Sequence[bytes], lines: Sequence[bytes]) -> bool:
    if not any(map(bytes.strip, lines[1:])):
        return True
    for line in (*before, *lines):
        with suppress(ValueError):
            if any(isinstance(event, Record) for event in list(source.parse(line))):
                return True
    return any(isinstance(event, Record) for event in source.flush())
