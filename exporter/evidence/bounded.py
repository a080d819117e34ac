"""Work that may hang, each in a process of its own: what is late is killed, and what it found so far is kept.

Not in threads: one that waits for a dead disk would keep the whole process from ending.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from exporter.secret_shapes import scrubbed

_TICK = 0.02
_LARGEST_HEAD = 65536
_NOT_KEPT = 100
"""Exit codes from here on are error numbers."""
_BETWEEN_WORDS = re.compile(rb"""[\s"',;]""")


class Item(NamedTuple):
    """Something that was found.

    Attributes:
        name: Its path in the archive.
        source: Where it is from.
        content: A text.
        missing: Why it is not there, or not all of it.
        lead: How many bytes at the start of the content only stand before what is meant: a secret that begins
            there is recognised, too.
        binary: Whether the content is not text. It is left out if it contains a secret.
    """

    name: str
    source: str
    content: bytes = b""
    missing: str = ""
    lead: int = 0
    binary: bool = False


Work = Callable[[], Iterable[Item]]


class Kept(NamedTuple):
    """An item as it lies in the file of its task: ``size`` bytes from ``start`` on."""

    file: IO[bytes]
    start: int
    size: int
    name: str
    source: str
    missing: str

    def content(self) -> bytes:
        """Read its content."""
        return os.pread(self.file.fileno(), self.size, self.start)


@dataclass(slots=True)
class Task:
    """Some work and its limits: ``seconds`` from its start, and ``most`` bytes of all that it finds.

    ``shown``: what it finds goes into the archive, so that secrets are masked.
    """

    name: str
    work: Work
    seconds: float
    most: int
    shown: bool = True


class Result(NamedTuple):
    """What a task found: ``problem`` says why that may not be all, ``late``: it was killed."""

    task: Task
    items: list[Kept]
    seconds: float
    problem: str
    late: bool = False


@contextmanager
def run_all(tasks: Sequence[Task], folder: Path, until: float) -> Iterator[list[Result]]:
    """Run tasks at the same time, and have what each found, in their order, within the ``with`` block.

    Args:
        tasks: What to run.
        folder: Where what they find is kept meanwhile, in files without a name.
        until: When the last one is killed, in seconds of the monotonic clock.

    Raises:
        OSError: The folder cannot be written to.
    """
    with ExitStack() as files:
        # Nothing of them is left, however this process ends.
        kept = [files.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in tasks]
        children = [_Child(task, file) for task, file in zip(tasks, kept, strict=True)]
        waiting = children
        while waiting:
            now = time.monotonic()
            waiting = [child for child in waiting if not child.is_over(now, until)]
            if waiting:
                time.sleep(_TICK)
        yield [child.result() for child in children]


class _Child:
    """A task in its process."""

    def __init__(self, task: Task, file: IO[bytes]) -> None:
        self._task, self._file = task, file
        self._begun, self._took = time.monotonic(), 0.0
        self._problem, self._late = "", False
        self._pid = os.fork()
        if self._pid == 0:
            _work(task, file)

    def is_over(self, now: float, until: float) -> bool:
        """Whether it has ended, or was killed since it was late."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        self._took = time.monotonic() - self._begun
        if pid:
            self._problem = _end(os.waitstatus_to_exitcode(status))
            with suppress(OSError):  # what it started and left behind
                os.killpg(pid, signal.SIGKILL)
            return True
        if now < min(until, self._begun + self._task.seconds):
            return False
        self._problem, self._late = f"no answer within {self._took:.0f} s", True
        for kill in (os.killpg, os.kill):  # it may not lead its group yet
            with suppress(OSError):
                kill(self._pid, signal.SIGKILL)
        # Not waited for: where a disk hangs, it ends with that.
        return True

    def result(self) -> Result:
        items: list[Kept] = []
        place = 0
        while line := _line(self._file, place):
            try:
                head = json.loads(line)
                size = int(head.pop("size"))
                kept = Kept(self._file, place + len(line), size, **head)
            except (ValueError, TypeError, LookupError):
                break
            place += len(line) + size
            if place > os.fstat(self._file.fileno()).st_size:  # killed in the middle of it
                break
            if kept.name:
                items.append(kept)
            else:
                self._problem = self._problem or kept.missing
        return Result(self._task, items, self._took, self._problem, self._late)


def _line(file: IO[bytes], place: int) -> bytes:
    head, end, _ = os.pread(file.fileno(), _LARGEST_HEAD, place).partition(b"\n")
    return head + end if end else b""


def _work(task: Task, file: IO[bytes]) -> NoReturn:
    """Do the work, in the child: what it finds goes into the file, item after item."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # a reader that waits for the end of our output must not wait for it
            os.dup2(nothing, descriptor)
        left = task.most
        for item in _without_faults(task.work):
            if task.shown:
                item = clean(item)  # noqa: PLW2901  (nothing goes on with its secrets)
            content, missing = item.content[:left], item.missing
            if len(content) < len(item.content):
                missing = f"the first {len(content)} of {len(item.content)} bytes, because of the size limit"
            head = {"name": item.name, "source": item.source, "missing": missing, "size": len(content)}
            rest = memoryview(json.dumps(head).encode() + b"\n" + content)
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]
            left -= len(content)
        code = 0
    except OSError as problem:  # of the file: what was kept before is whole
        code = _NOT_KEPT + (problem.errno or 0)
    finally:
        os._exit(code)


def _end(code: int) -> str:
    """How a process ended that should have ended with 0."""
    if code < 0:
        return f"killed by signal {-code}"
    if code >= _NOT_KEPT:
        return f"its result could not be stored: {os.strerror(code - _NOT_KEPT)}"
    return f"ended with exit code {code}" if code else ""


def clean(item: Item) -> Item:
    """The same without secrets."""
    named = Item(scrubbed(item.name), scrubbed(item.source), missing=scrubbed(item.missing))
    if item.binary:
        text = item.content.decode("latin-1")
        if scrubbed(text) != text:
            return named._replace(missing="left out: something in it looks like a secret")
        return named._replace(content=item.content)
    content = item.content
    if item.lead:  # it may begin in the middle of a secret
        begins = _BETWEEN_WORDS.search(content, 0, item.lead)
        content = content[begins.end() if begins else item.lead :]
    shown = scrubbed(content.decode("utf-8", "replace")).encode("utf-8", "replace")
    if item.lead:
        shown = shown[max(0, len(shown) - len(item.content) + item.lead) :]
    return named._replace(content=shown)


def _without_faults(work: Work) -> Iterator[Item]:
    """Yield what some work finds; one more item without a name if it fails."""
    try:
        yield from work()
    except Exception as fault:  # noqa: BLE001  (one part of an archive must not cost the others)
        reason = getattr(fault, "strerror", None) or str(fault)
        yield Item("", "", missing=f"{type(fault).__name__}: {reason}")


def document(value: Any) -> bytes:
    """A JSON document as the content of an item."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str).encode("utf-8", "replace") + b"\n"
