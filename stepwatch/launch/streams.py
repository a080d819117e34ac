"""Copies the output of a trainer to standard output and error, and into the log.

With a terminal as standard output the trainer gets a terminal of its own, so that progress bars and colours
stay; else pipes, of which each keeps its place: what went to standard error still does.

As with `| tee`, a reader that does not read makes the trainer wait. The wrapper itself never waits for it,
since it has signals and requests to hear.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import stat
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwatch.launch.failures import TAIL_BYTES

_BLOCK = 65536
_STDIN, _STDOUT, _STDERR = range(3)


class Streams:
    """The streams of one attempt; ``interrupted``: Ctrl-C or Ctrl-backslash was typed."""

    def __init__(self, log: Path) -> None:
        self.interrupted = False
        self._outputs: dict[int, _Output] = {}
        self._keys = False
        self._log = Log(log)
        self._given: list[tuple[int, int]] = []
        self._master: int | None = None
        self._saved: list[Any] | None = None
        if os.isatty(_STDOUT):
            self._master, terminal = pty.openpty()
            os.set_blocking(self._master, False)  # keys that a deaf trainer does not take are lost
            if os.isatty(_STDIN):
                termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(_STDIN))
                self._given.append((terminal, _STDIN))
                self._keys = True
            self._read(self._master, terminal, _STDOUT, _of_terminal)
            self.resize()
        if self._master is not None and os.isatty(_STDERR):
            self._given.append((terminal, _STDERR))
        elif self._master is None and os.path.sameopenfile(_STDOUT, _STDERR):
            source, own = os.pipe()  # one for both keeps their order
            self._read(source, own, _STDOUT, len)
            self._given.append((own, _STDERR))
        else:
            for standard in (_STDOUT, _STDERR)[self._master is not None :]:
                source, own = os.pipe()
                self._read(source, own, standard, _whole_lines)

    def connect(self) -> None:
        """Make them the standard streams of this process, which becomes the trainer."""
        if self._master is not None:
            terminal = next(own for own, standard in self._given if standard == _STDOUT)
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for own, standard in self._given:
            os.dup2(own, standard)

    def started(self) -> None:
        """The trainer has its ends: close them here, and have each key go to it as it is pressed."""
        for own in {own for own, _ in self._given}:
            os.close(own)
        self._given = []
        if self._keys:
            self._saved = termios.tcgetattr(_STDIN)
            with suppress(termios.error):  # in the background
                tty.setraw(_STDIN)

    def resize(self) -> None:
        """Give the trainer's terminal the size of the user's."""
        if self._master is not None:
            with suppress(OSError):
                size = fcntl.ioctl(_STDOUT, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    @property
    def open(self) -> bool:
        """Whether there may be more to pass on of what the trainer writes."""
        return bool(self._outputs)

    def copy(self, others: Sequence[int], seconds: float) -> tuple[list[int], bool]:
        """Pass on what there is, once, after waiting some seconds; returns which others can be read."""
        waiting = {output.to: output for output in self._outputs.values() if output.waiting}
        sources = [source for source, output in self._outputs.items() if not output.waiting]
        keys = [_STDIN] if self._keys else []
        ready, writable, _ = select.select([*others, *keys, *sources], waiting, [], seconds)
        for to in writable:
            waiting[to].write()
        for source in ready:
            if source in self._outputs:
                self._outputs[source].take(_read(source))
            elif source in keys:
                self._type(_read(source))
        for source in [source for source, output in self._outputs.items() if output.ended]:
            os.close(source)
            self._outputs.pop(source).close()
        return [each for each in ready if each in others], len(writable) < len(waiting)

    def leave_reader(self) -> None:
        """Write into the log alone from now on."""
        for output in self._outputs.values():
            output.leave_reader()

    @property
    def tail(self) -> bytes:
        """The end of what was written."""
        return bytes(self._log.tail[-TAIL_BYTES:])

    def close(self) -> None:
        """Close what is open, and give the user's terminal back as it was."""
        if self._saved is not None:
            with suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._saved)
        for source, output in self._outputs.items():
            os.close(source)
            output.close()
        self._log.close()

    def _read(self, source: int, own: int, standard: int, pieces: Callable[[bytes], int]) -> None:
        """Give the trainer its end of a stream, and read the other."""
        self._outputs[source] = _Output(standard, self._log, pieces)
        self._given.append((own, standard))

    def _type(self, keys: bytes) -> None:
        """Pass keys on; none any more if there are none."""
        self._keys = bool(keys)
        self.interrupted = self.interrupted or b"\x03" in keys or b"\x1c" in keys
        with suppress(OSError):
            os.write(self._master or -1, keys or b"\4")


class Log:
    """The log file. A full disk loses lines of it, but never stops the training, nor takes its ``tail``."""

    def __init__(self, path: Path) -> None:
        self.tail = bytearray()
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._failed = False

    def append(self, block: bytes) -> None:
        """Write at the end of the file."""
        self.tail += block
        if len(self.tail) > 4 * TAIL_BYTES:
            del self.tail[:-TAIL_BYTES]
        try:
            while block:
                block = block[os.write(self._file, block) :]
        except OSError as error:
            if not self._failed:
                self._failed = True
                sys.stderr.write(
                    f"stepwatch: {self._path} cannot be written: {error.strerror}. The training continues.\n"
                )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class _Output:
    """One stream of the trainer, passed ``to`` its reader; nothing is read while some is ``waiting``."""

    def __init__(self, to: int, log: Log, pieces: Callable[[bytes], int]) -> None:
        self.to = _unblocked(to)
        self.waiting = b""
        self._log, self._pieces = log, pieces
        self._held = b""
        self._is_read, self._more = True, True

    @property
    def ended(self) -> bool:
        return not (self._more or self.waiting)

    def take(self, block: bytes) -> None:
        """Pass on what was read; an empty block is the end."""
        self._more = bool(block)
        self.waiting = block if self._is_read else b""
        self.write()
        block = self._held + block
        size = self._pieces(block)
        self._held = block[size:]
        self._log.append(
            block[:size].replace(b"\r\n", b"\n") if self._pieces is _of_terminal else block[:size]
        )

    def write(self) -> None:
        """Write what the reader takes without being waited for."""
        try:
            while self.waiting and select.select([], [self.to], [], 0)[1]:
                self.waiting = self.waiting[os.write(self.to, self.waiting[: select.PIPE_BUF]) :]
        except BlockingIOError:
            pass
        except OSError:  # `| head` ends its reader, not the training
            self.leave_reader()

    def leave_reader(self) -> None:
        """Pass on nothing any more."""
        self._is_read, self.waiting = False, b""

    def close(self) -> None:
        """Write what is left into the log."""
        self._log.append(self._held)
        os.close(self.to)


def _unblocked(standard: int) -> int:
    """Return a file descriptor by which a write to a terminal or pipe never waits.

    It is opened anew, since the inherited one is shared with others, who expect to wait. What cannot be
    opened, such as a socket, takes ``PIPE_BUF`` bytes without waiting once it can be written to.
    """
    with suppress(OSError):
        if not stat.S_ISREG(os.fstat(standard).st_mode):  # a file: it has its place in the inherited one
            how = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{standard}", how)
    return os.dup(standard)


def _read(source: int) -> bytes:
    """What there is to read; empty at the end."""
    try:
        return os.read(source, _BLOCK)
    except OSError:  # a terminal that no process has open any more
        return b""


def _of_terminal(block: bytes) -> int:
    """Line ends whole, since a terminal's become those of a file."""
    return len(block) - block.endswith(b"\r")


def _whole_lines(block: bytes) -> int:
    """Lines whole, since another stream is written between them."""
    size = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    return size or (len(block) if len(block) > _BLOCK else 0)


def die_of(number: int) -> None:
    """End this process by the signal that ended the trainer, so that its parent sees the same."""
    import resource  # noqa: PLC0415  (once, at the end)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
