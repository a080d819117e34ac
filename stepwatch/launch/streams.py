"""Copies the output of a trainer to standard output and error, and into the log.

With a terminal as standard output the trainer gets a terminal of its own, so that progress bars and colours
stay; else pipes, of which each keeps its place: what went to standard error still does.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwatch.launch.failures import TAIL_BYTES

_BLOCK = 65536
_STDIN, _STDOUT, _STDERR = range(3)


class Streams:
    """The streams of one attempt.

    Attributes:
        sources: What is read, by file descriptor, each with where it is passed on.
        interrupted: Whether Ctrl-C or Ctrl-backslash was typed.
    """

    def __init__(self, log: Path) -> None:
        self.sources: dict[int, Callable[[bytes], None]] = {}
        self.interrupted = False
        self._outputs: list[_Output] = []
        self._log = Log(log)
        self._given: list[tuple[int, int]] = []
        self._master: int | None = None
        self._saved: list[Any] | None = None
        if os.isatty(_STDOUT):
            self._master, terminal = pty.openpty()
            if os.isatty(_STDIN):
                termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(_STDIN))
                self._given.append((terminal, _STDIN))
                self.sources[_STDIN] = self._type
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
        self.resume()

    def resume(self) -> None:
        """Pass on keys as they are pressed; the trainer's terminal says what they mean."""
        if _STDIN in self.sources:
            self._saved = self._saved or termios.tcgetattr(_STDIN)
            with suppress(termios.error):  # in the background
                tty.setraw(_STDIN)

    def release(self) -> None:
        """Give the user's terminal back as it was."""
        if self._saved is not None:
            with suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._saved)

    def resize(self) -> None:
        """Give the trainer's terminal the size of the user's."""
        if self._master is not None:
            with suppress(OSError):
                size = fcntl.ioctl(_STDOUT, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def copy(self, source: int) -> bool:
        """Copy the available output; returns whether there may be more."""
        try:
            block = os.read(source, _BLOCK)
        except OSError:  # a terminal that no process has open any more
            block = b""
        if block:
            self.sources[source](block)
        elif source == _STDIN:
            with suppress(OSError):
                os.write(self._master or -1, b"\4")
        return bool(block)

    @property
    def tail(self) -> bytes:
        """The end of what was written."""
        return bytes(self._log.tail[-TAIL_BYTES:])

    def close(self) -> None:
        """Close what is open, and give the terminal back."""
        self.release()
        for source in self.sources.keys() - {_STDIN}:
            os.close(source)
        for output in self._outputs:
            output.close()
        self._log.close()

    def _read(self, source: int, own: int, standard: int, pieces: Callable[[bytes], int]) -> None:
        """Give the trainer its end of a stream, and read the other."""
        output = _Output(standard, self._log, pieces)
        self._given.append((own, standard))
        self._outputs.append(output)
        self.sources[source] = output.take

    def _type(self, keys: bytes) -> None:
        self.interrupted = self.interrupted or b"\x03" in keys or b"\x1c" in keys
        if self._master is not None:
            _write(self._master, keys)


class Log:
    """The log file. A full disk loses lines of it, but never stops the training.

    Attributes:
        tail: The end of what was to be written, which a full disk does not take away.
    """

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
    """One stream of the trainer, passed on at once; the log gets it in ``pieces``: how many bytes are one."""

    def __init__(self, to: int, log: Log, pieces: Callable[[bytes], int]) -> None:
        self._to, self._log, self._pieces = to, log, pieces
        self._held = b""
        self._read = True

    def take(self, block: bytes) -> None:
        """Pass on what was read."""
        # `| head` ends its reader, not the training.
        self._read = self._read and _write(self._to, block)
        block = self._held + block
        size = self._pieces(block)
        self._held = block[size:]
        self._log.append(_file_lines(block[:size]) if self._pieces is _of_terminal else block[:size])

    def close(self) -> None:
        """Write what is left."""
        self._log.append(self._held)


def _of_terminal(block: bytes) -> int:
    """Line ends whole, since a terminal's become those of a file."""
    return len(block) - block.endswith(b"\r")


def _whole_lines(block: bytes) -> int:
    """Lines whole, since another stream is written between them."""
    size = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    return size or (len(block) if len(block) > _BLOCK else 0)


def _file_lines(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n")


def _write(to: int, block: bytes) -> bool:
    """Write all of a block; returns whether anyone is still there to read it."""
    try:
        while block:
            block = block[os.write(to, block) :]
    except OSError:
        return False
    return True


def die_of(number: int) -> None:
    """End this process by the signal that ended the trainer, so that its parent sees the same."""
    import resource  # noqa: PLC0415  (once, at the end)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
