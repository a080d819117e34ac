"""Sources: one file for each format that trainers write. Distinguished by content, not by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from exporter.runs.signals.record import Event, Record
from exporter.runs.sources.areal import Areal
from exporter.runs.sources.csv_table import CsvTable
from exporter.runs.sources.deepspeed_chat import DeepSpeedChat
from exporter.runs.sources.flat_jsonl import FlatJsonl
from exporter.runs.sources.json_document import JsonList, MetricTable, TrainerState
from exporter.runs.sources.nemo_rl import NemoRl
from exporter.runs.sources.openrlhf import OpenRlhf
from exporter.runs.sources.prime_rl import PrimeRl
from exporter.runs.sources.roll import Roll
from exporter.runs.sources.scoped_jsonl import ScopedJsonl
from exporter.runs.sources.skyrl import SkyRl
from exporter.runs.sources.slime import Slime
from exporter.runs.sources.swanlab import SwanLab
from exporter.runs.sources.tensorboard import TensorBoard
from exporter.runs.sources.trackio import Trackio
from exporter.runs.sources.trl_console import TrlConsole
from exporter.runs.sources.twinkle import TwinkleEvents
from exporter.runs.sources.verl_console import VerlConsole
from exporter.runs.sources.verl_jsonl import VerlJsonl
from exporter.runs.sources.wandb import WandbFile


class Source(Protocol):
    """Reads one format, for one log.

    ``framework`` names the trainer whose keys it has; it is empty where the keys must tell.
    """

    name: str
    framework: str

    @staticmethod
    def recognises(line: bytes) -> bool:
        """Is this line a record of the format?"""

    def read(self, line: bytes) -> Iterator[Event]:
        """What the line says; nothing if it is about something else.

        Raises:
            ValueError: the line should be a record and is none.
        """

    def rest(self) -> Iterator[Event]:
        """What is known of a record whose end has not come yet: nothing more is there for now."""


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
    CsvTable,
)
SOURCES: dict[str, tuple[type[Source], ...]] = {
    "text": TEXT,
    "compressed": TEXT,
    "document": (TrainerState, JsonList, MetricTable),
    "events": (TensorBoard,),
    "database": (Trackio,),
    "wandb": (WandbFile,),
    "swanlab": (SwanLab,),
}
"""By what a file holds; what is more particular stands first."""


AHEAD = 50
"""Lines after the head of a table within which a row must come."""


def recognise(line: bytes, kind: str = "text") -> Source | None:
    """The source whose record this line is, if any; or whose table has it as head."""
    return next((source() for source in SOURCES[kind] if source.recognises(line)), None)


def recognise_first(lines: Sequence[bytes], kind: str = "text") -> Source | None:
    """The source of the first record among the lines, if there is one.

    A list of words looks like a table's head. It is one if a row follows, or nothing yet.
    """
    for index, line in enumerate(lines):
        if (source := recognise(line, kind)) and _goes_on(source, lines[index : index + AHEAD]):
            return type(source)()
    return None


def _goes_on(source: Source, lines: Sequence[bytes]) -> bool:
    if not any(map(bytes.strip, lines[1:])):
        return True
    events = chain(chain.from_iterable(_events(source, line) for line in lines), source.rest())
    return any(isinstance(event, Record) for event in events)


def _events(source: Source, line: bytes) -> list[Event]:
    try:
        return list(source.read(line))
    except ValueError:
        return []
