"""Series that are read by number. The numbers mean the same to every driver, up to 250.

Those above stand in ``throttling``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.gpu.backend import NO_LABELS, Failure, Missing, ReadError, Reading, UnsupportedError
from exporter.gpu.nvml import errors
from exporter.gpu.nvml.batch import NARROW, Answer, Batch, Way, known
from exporter.gpu.nvml.probes import Found


class Field(NamedTuple):
    """A series: the first of its ways that the driver answers.

    What has the same ``part`` and is missing altogether is listed in one line; without a ``part`` it
    is not listed. ``wide``: useless unless it is counted in 64 bits.
    """

    part: str
    metric: str
    ways: tuple[Way, ...]
    labels: Mapping[str, str] = NO_LABELS
    wide: bool = False


class Fields:
    """Fields of one GPU that are read together. For one thread.

    ``latency``: seconds that the driver took for the slowest of them when last read.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self.latency = 0.0
        self._fields = tuple(fields)
        self._sizes = Counter(field.part for field in self._fields)
        self._batch = Batch(way for field in self._fields for way in field.ways)

    def read(self, handle: Any) -> list[Found]:
        """What the driver says of each.

        Raises:
            library.Error: it says nothing at all.
            ReadError: the whole GPU or driver is gone.
        """
        answers = self._batch.ask(handle) if self._fields else []
        self.latency = max((answer.latency for answer in answers), default=0.0)
        rest = iter(answers)
        return self._listed([_found(field, [next(rest) for _ in field.ways]) for field in self._fields])

    def _listed(self, found: Sequence[Found]) -> list[Found]:
        """With one name for all of a part that is missing altogether."""
        pairs = list(zip(self._fields, found, strict=True))
        lacking = Counter(field.part for field, each in pairs if isinstance(each, Missing))
        whole = {part for part, count in lacking.items() if count == self._sizes[part]}
        return [_as_part(field, each, whole) for field, each in pairs if field.part or _is_there(each)]


def _is_there(found: Found) -> bool:
    return not isinstance(found, Missing)


def _as_part(field: Field, found: Found, whole: Container[str]) -> Found:
    if isinstance(found, Missing) and field.part in whole:
        return Missing(f"FieldValue({field.part})", found.reason)
    return found


def _found(field: Field, answers: Sequence[Answer]) -> Found:
    for way, answer in zip(field.ways, answers, strict=True):
        if answer.code == errors.OK:
            return _reading(field, way.per, answer)
    return _problem(field, [errors.meaning(answer.code) for answer in answers])


def _reading(field: Field, per: float, answer: Answer) -> Found:
    if not known(answer.kind):
        return Missing(_name(field), "garbage")
    if field.wide and answer.kind in NARROW:
        return Missing(_name(field), "wraps")
    if answer.value is None or answer.value < 0:
        return Failure(_name(field), "garbage")
    return Reading(field.metric, answer.value / per, field.labels)


def _problem(field: Field, problems: Sequence[ReadError]) -> Found:
    """Why none of the ways was answered; what may pass goes before what the driver does not have."""
    for problem in problems:
        if errors.is_fatal(problem):
            raise problem
        if not isinstance(problem, UnsupportedError):
            return Failure(_name(field), problem.code)
    return Missing(_name(field), problems[0].code)


def _name(field: Field) -> str:
    return f"FieldValue({' '.join((field.part or field.metric, *field.labels.values()))})"
