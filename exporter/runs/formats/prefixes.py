"""What stands before the text of a printed line: the label of a launcher or collector, Ray's, a logger's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SAMPLE = 200  # lines by which a file's label is learned
TERMINAL_CUT = 4096
"""Bytes after which a pseudo terminal cuts a line. Its source sees that by its length: it stays whole."""
_LEVEL = r"\[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\b\]?"
_TIME = r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_SEPARATOR = r"[ ,|\[\]-]"
_NAME = r"(?: +[\w.]{1,100}:(?= *[^\s\d.+-])|[ |:-]{0,4})"
_SHAPES = (
    r"\((?:[^()]{1,100}\bpid=\d+|raylet|autoscaler)[^()]{0,100}\)",  # Ray: (TaskRunner pid=1, ip=10.0.0.7)
    r"\[[A-Za-z]{1,20} ?\d{1,5}\]:",  # PyTorch, torchrun: [rank0]:
    r"\[\d{1,5},\d{1,5}\]<std(?:out|err)>:",  # mpirun
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [\w.-]{1,80}:\d+\]",  # absl
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,100}:",  # Python: INFO:root:
    # Time, level and name in any order; what a number follows is a measurement, not a logger's name.
    rf"{_TIME}{_SEPARATOR}{{0,4}}(?:[\w./:]{{1,100}}{_SEPARATOR}{{1,4}}){{0,2}}?{_LEVEL}{_NAME}",
    rf"{_TIME}(?= )",  # docker, kubectl
)
_COLOUR = r"(?:\x1b\[[0-9;]*m)*"
_PREFIX = re.compile(rf"(?=[\s\x1b([\dCDEFIW])(?:\s*{_COLOUR}(?:{'|'.join(_SHAPES)}){_COLOUR} ?)+".encode())
_LABEL = re.compile(rb"\s{0,8}(?=[\w./-]{0,60}\d)[\w./-]{1,64}(?::(?: |$)| +\| ?)")
"""Where all lines have one: ``0: `` (srun, pdsh), ``trainer-1  | `` (Docker Compose)."""


class Prefixes:
    """Removes them from the lines of one file, whose label it learns from its first lines."""

    def __init__(self) -> None:
        self._lines = self._labelled = 0

    def strip(self, lines: Sequence[bytes]) -> list[bytes]:
        """The lines without what stands before their text, also behind each carriage return."""
        for line in lines[: max(0, SAMPLE - self._lines)]:
            if line.strip():
                self._lines += 1
                self._labelled += _LABEL.match(line) is not None
        labelled = self._labelled > 0.9 * self._lines
        return list(self._stripped(lines, labelled=labelled))

    def _stripped(self, lines: Sequence[bytes], *, labelled: bool) -> Iterator[bytes]:
        for line in lines:
            if line[:1] == b"{" or len(line.rstrip(b"\r")) == TERMINAL_CUT:
                yield line
                continue
            text = line[found.end() :] if labelled and (found := _LABEL.match(line)) else line
            if b"\r" in text:
                yield b"\r".join([_bare(piece) for piece in text.split(b"\r")])
            else:
                yield _bare(text)


def _bare(piece: bytes) -> bytes:
    found = _PREFIX.match(piece)
    return piece[found.end() :] if found else piece
