"""What the printed lines of all trainers have in common.

Colours and carriage returns in them; how they report the end of a run, the steps to come, and where
rollout servers listen; and dicts of numbers as Python prints them, read without ``eval``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from exporter.runs.formats.base import Source
from exporter.runs.signals.record import Ended, Event, Servers, TotalSteps

_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UP = re.compile(r"\r?((?:\x1b\[A)+)")
_MAY_HAVE_FAILED = rb"Traceback \(most recent|[Ee]xit(?:ed with)?(?: exit)? ?code:? *-?[1-9]|core dumped"
"""Caught errors and programs that a reward runs in a sandbox print that as well."""
_MAY_NAME_CAUSE = rb"\*\*\* (?:JOB|STEP) |ProcessGroupNCCL|NodeDiedError"
HINTS = rb"HYDRA_FULL_ERROR|ChildFailedError|Job 'raysubmit|" + _MAY_NAME_CAUSE + b"|" + _MAY_HAVE_FAILED
"""A pattern: only lines with a match can report an end."""
_MAY_REPORT_END = re.compile(HINTS)
_CANCELLED = re.compile(
    rb"(?:^(?:\d{1,5}: )?|[\])\r] ?)slurmstepd: (?:error: )?\*\*\* (?:JOB|STEP) [^*]*\bCANCELLED AT \S+"
    rb"(?: DUE TO ([A-Z ]*[A-Z]))?",
    re.IGNORECASE | re.MULTILINE,
)
"""``slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-27T08:00:00 DUE TO TIME LIMIT ***``, also behind
srun's label or a bar; without a reason a user cancelled it."""
_ENDS = (
    (re.compile(rb"Job 'raysubmit_\w+' succeeded"), Ended("finished")),
    (re.compile(rb"HYDRA_FULL_ERROR|ChildFailedError|Job 'raysubmit_\w+' failed"), Ended("failed")),
    (
        re.compile(rb"ProcessGroupNCCL\.cpp:\d+\].*\bTerminating the process after\b"),
        Ended("failed", cause="NCCL watchdog"),
    ),
    (
        re.compile(rb"ray\.exceptions\.NodeDiedError\b.*\bpreempted\b"),
        Ended("failed", certain=False, cause="Ray: node preempted"),
    ),
    (re.compile(_MAY_HAVE_FAILED), Ended("failed", certain=False)),
)
_SERVER_HINTS = (b"ServerManager: [", b"LoopManager: [", b"LoopManager Hybrid: [", b"outer launched at ")
"""Only lines with one of these can report servers; a search for them takes a tenth of a pattern's time."""
ENGINES_PATH = "/engine_metrics"
"""Of slime's router: the metrics of all its engines. Its other port has only what the router itself does."""
_BEFORE = rb"(?:^|[\s\]m)|])"
_SERVER_LIST = re.compile(
    _BEFORE + rb"(?:AgentLoopManager(?: Hybrid)?|\w{0,40}LLMServerManager): \[((?:'[^']{1,60}'(?:, )?)+)"
)
_SERVER = re.compile(r"'([^']+)'")
_ROUTER = re.compile(_BEFORE + rb"(?:SGLang r|R)outer launched at ([0-9A-Fa-f.:\[\]]{1,60})")

_PREAMBLE_HINTS = (
    b"raceback (most recent",
    b"slurmstepd: ",
    b"ProcessGroupNCCL",
    b"NodeDiedError",
    b"otal training steps: ",
    b"'total_training_steps': ",
    b"otal optimization steps = ",
    b"HYDRA_FULL_ERROR",
    b"ChildFailedError",
    b"'raysubmit_",
)
_TOTAL = re.compile(
    rb"(?:Total training steps: |'total_training_steps': |Total optimization steps = )([1-9][\d,]{0,18})\b"
)
_UNCAUGHT = re.compile(
    rb"(?:\x1b\[[0-9;]*m)*(?:[^\"']{0,300}\[[^\]\"']{0,80}(?:it/s|s/it)[^\]\"']{0,60}\])?"
    rb"Traceback \(most recent call last\)"
)
"""At the start of a line or behind a progress bar. What programs print that a reward runs, and what pip
reports of a build, is quoted or indented."""


def pieces(line: bytes) -> Iterator[str]:
    """The texts that carriage returns glued into one line, without colours."""
    return (piece for piece, _ in drawn(line))


def drawn(line: bytes) -> Iterator[tuple[str, int]]:
    """The same texts, each with how many lines below the first a progress bar wrote it."""
    text = line.decode("utf-8", "replace").replace("\0", "")
    if "\x1b" in text:
        text = _CODE.sub("", _UP.sub(lambda up: "\0" * up[1].count("A") + "\r", text))
    for raw in text.split("\r"):
        if piece := raw.rstrip("\0"):
            yield piece, len(raw) - len(piece)


def ending(line: bytes) -> Ended | None:
    """What the line says about the end of the run, if anything."""
    if not _MAY_REPORT_END.search(line):
        return None
    if not (found := _CANCELLED.search(line)):
        return next((ended for pattern, ended in _ENDS if pattern.search(line)), None)
    if reason := found[1]:
        return Ended("failed", cause=f"Slurm: {reason.decode().lower()}")
    return Ended("stopped", certain=False, cause="Slurm: cancelled")


def servers(line: bytes) -> Servers | None:
    """The rollout servers that a line reports, if any. Of a list that was cut, those that are whole.

    verl: ``AgentLoopManager: ['10.0.0.7:41233', '10.0.0.8:40001']``, since 0.8 ``LLMServerManager: [...]``;
    its fully asynchronous trainer first ``AgentLoopManager Hybrid: [...]`` of the servers that share GPUs
    with the trainer (``fully_async_rollouter.py`` of 0.9.1), then the other line of those that do not.
    slime: ``Router launched at 10.0.0.7:3512, Prometheus port: 4711``.
    """
    if not any(hint in line for hint in _SERVER_HINTS):
        return None
    if found := _SERVER_LIST.search(line):
        return Servers(tuple(_SERVER.findall(found[1].decode("utf-8", "replace"))))
    if found := _ROUTER.search(line):
        return Servers((found[1].decode(),), ENGINES_PATH)
    return None


def preamble(line: bytes) -> Iterator[Event]:
    """What a line before the first record says. An ``Ended`` that is not certain may have been caught."""
    if found := servers(line):
        yield found
    if not any(hint in line for hint in _PREAMBLE_HINTS):
        return
    if total := _TOTAL.search(line):
        yield TotalSteps(int(total[1].replace(b",", b"")))
    ended = ending(line)
    if ended and (ended.certain or ended.cause or any(map(_UNCAUGHT.match, line.split(b"\r")))):
        yield ended


class Console(Source):
    """A format of printed lines: ``known`` are its records, ``done`` is a run that finished."""

    known: ClassVar[re.Pattern[bytes]]
    done: ClassVar[re.Pattern[bytes] | None] = None

    def recognises(self, line: bytes) -> bool:
        return self.known.search(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            yield from self._read(piece)
        if mention := servers(line):
            yield mention
        if ended := Ended("finished") if self.done and self.done.search(line) else ending(line):
            yield from self.flush()
            yield ended

    def _read(self, piece: str) -> Iterator[Event]:  # noqa: ARG002  (of those that read pieces)
        """What a piece of a line says."""
        return iter(())


LONGEST_DICT = 64 * 1024  # Characters. No trainer's record is longer.
LONGEST_PREFIX = 300  # characters kept of what stands before a dict
MOST_DICT_LINES = 200  # lines that one dict may be broken into
Values = dict[str, str | None]
_DICT_START = re.compile(r"\{(?=\s*(?:'|\Z))")
"""JSON has other quotes: where a trainer's records are printed as JSON too, they are not read twice."""
_KEY = r"\s*(?:'([^'\\{}]*)'|\"([^\"\\{}]*)\")\s*:\s*"
_TEXT = r"'([^'\\]*)'|\"([^\"\\]*)\""
_BARE = r"([^\s,'\"\[\](){}][^,'\"\[\](){}]*(?:\([^(){}]*\))?)"
_PAIR = re.compile(rf"{_KEY}(?:{_TEXT}|{_BARE}|(?=[\[({{'\"]))")
_SEPARATOR = re.compile(r"\s*([,}])")
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)|[\[\](){}]", re.DOTALL)
_FIRST_VALUE = 3


class Dicts:
    """The dicts of one log, which come line by line.

    Keys stay as they were logged, values are the text behind them (``number`` reads it), or ``None`` for
    ``None``. What is nested is left out. A printed dict may be broken over several lines, by a pretty printer
    or a narrow terminal.
    """

    def __init__(self) -> None:
        self._held = ""
        self._lines = 0

    def parse(self, text: str) -> Iterator[tuple[str, Values]]:
        """The dicts that end in the next line of the log, each with the text before it."""
        if not self._held and "{" not in text:
            return
        held, self._held = self._held, ""
        self._lines = self._lines + 1 if held else 0
        if held and self._lines <= MOST_DICT_LINES and len(held) + len(text) <= LONGEST_DICT:
            text = f"{held}\n{text}"
        position = 0
        last = text.rfind("}")
        while start := _DICT_START.search(text, position):
            before = text[max(position, start.start() - LONGEST_PREFIX) : start.start()]
            values, end = _parse_dict(text, start.end())
            if values is not None:
                yield before.rpartition("\n")[2], values
            elif end > last:
                self._held = before + text[start.start() :]
                return
            position = end

    @property
    def is_open(self) -> bool:
        """Whether the last line ended within a dict."""
        return bool(self._held)


def _parse_dict(text: str, position: int) -> tuple[Values | None, int]:
    """The dict whose first key is at this position, or ``None``; and the position behind it."""
    values: Values = {}
    limit = position + LONGEST_DICT
    while pair := _PAIR.match(text, position, limit):
        last = pair.lastindex or 0
        if last < _FIRST_VALUE:
            position = _skip_nested(text, pair.end(), limit)
        else:
            position, value = pair.end(), pair[last].replace("\n", "").strip()
            values[(pair[1] or pair[2] or "").replace("\n", "")] = None if value == "None" else value
        separator = _SEPARATOR.match(text, position, limit)
        if separator is None:
            break
        position = separator.end()
        if separator[1] == "}":
            return values, position
    return None, position


def _skip_nested(text: str, position: int, limit: int) -> int:
    """Where the value that starts here ends: a list, a dict, or a text with escapes in it."""
    depth = 0
    for token in _TOKEN.finditer(text, position, limit):
        if token[0] in "[({":
            depth += 1
        elif token[0] in "])}":
            depth -= 1
        if depth <= 0:
            return token.end()
    return min(limit, len(text))
