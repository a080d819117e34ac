"""Copies the output of a trainer to standard output and error, and into the log.

With a terminal as standard output the trainer gets a terminal of its own, so that progress bars and colours
stay; else pipes, of which each keeps its place. As with `| tee`, a reader that does not read makes the
trainer wait, but a thread waits for it: the wrapper has signals and requests to hear.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import stat
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwatch.schema.failures import TAIL_BYTES

_BLOCK = 65536


class Log:
    """The log file. A full disk loses lines of it, but never stops the training, nor takes its ``tail``."""

    def __init__(self, path: Path) -> None:
        self.path, self.tail = path, b""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock, self._failed = threading.Lock(), False

    def append(self, block: bytes) -> None:
        """Write at the end of the file."""
        with self._lock:
            self.tail = (self.tail + block)[-TAIL_BYTES:]
            try:
                while block:
                    block = block[os.write(self._file, block) :]
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    text = f"{self.path} cannot be written: {error.strerror}. The training continues."
                    sys.stderr.write(f"stepwatch: {text}\n")

    def say(self, text: str) -> None:
        """Print a message between attempts, on standard error and in the log, on a line of its own."""
        with suppress(OSError):
            end = "\r\n" if os.isatty(2) else "\n"  # the terminal may be raw
            os.write(2, f"stepwatch: {text}{end}".encode())
        self.append(b"\n" * (self.tail[-1:] not in (b"", b"\n")) + f"stepwatch: {text}\n".encode())


class Streams:
    """The streams of one attempt. ``keys``: the user's terminal as it was set before, if it has keys."""

    def __init__(self, log: Log, keys: list[Any] | None) -> None:
        self._log, self.outputs = log, list[Output]()
        self._master = terminal = None
        self.stdin = None
        if os.isatty(1):
            self._master, terminal = pty.openpty()
            os.set_blocking(self._master, False)  # keys that a deaf trainer does not take are lost
            if keys is not None:
                termios.tcsetattr(terminal, termios.TCSANOW, keys)
                self.stdin = terminal
            self.outputs.append(Output(self._master, 1, log, "terminal"))
            self.resize()
        same = terminal is None and os.path.sameopenfile(1, 2)  # one pipe for both keeps their order
        self.stdout = self._pipe(1, "shared" if same else "lines") if terminal is None else terminal
        ours = same or (terminal is not None and os.isatty(2))
        self.stderr = self.stdout if ours else self._pipe(2, "lines")

    def _pipe(self, to: int, kind: str) -> int:
        source, given = os.pipe()
        self.outputs.append(Output(source, to, self._log, kind))
        return given

    def take_terminal(self) -> None:
        """Make the trainer's terminal that of its session; in its process, before its program."""
        if self._master is not None:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

    def start(self) -> None:
        """Close the trainer's ends here, and begin to copy."""
        for given in {self.stdout, self.stderr}:
            os.close(given)
        for output in self.outputs:
            output.start()

    def resize(self) -> None:
        """Give the trainer's terminal the size of the user's."""
        if self._master is not None:
            with suppress(OSError):
                size = fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        """Pass on what was typed, of which nothing is the end."""
        with suppress(OSError):
            os.write(self._master or -1, keys or b"\4")


class Output(threading.Thread):
    """One stream of the trainer, copied from ``source`` to its reader and into the log.

    The log gets a ``terminal``'s with the line ends of a file, and of separate streams whole ``lines``; the
    rest of one is ``held``. ``waiting``: its reader does not read; it is left if ``is_read`` is set to false.
    """

    def __init__(self, source: int, to: int, log: Log, kind: str) -> None:
        super().__init__(daemon=True)
        self._source, self._to, self._log, self._kind = source, _unblocked(to), log, kind
        self.held = b""
        self.is_read, self.waiting = True, False

    def run(self) -> None:
        while select.select([self._source], [], []) and (block := read(self._source)):
            held = self.held + block
            size = len(held)
            if self._kind == "terminal":
                size -= held.endswith(b"\r")
            elif self._kind == "lines":
                size = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1 or (size if size > _BLOCK else 0)
            self.held, whole = held[size:], held[:size]
            self._log.append(whole.replace(b"\r\n", b"\n") if self._kind == "terminal" else whole)
            while block and self.is_read:
                self.waiting = not select.select([], [self._to], [], 0.2)[1]
                try:
                    block = block if self.waiting else block[os.write(self._to, block[: select.PIPE_BUF]) :]
                except BlockingIOError:
                    continue
                except OSError:  # `| head` ends its reader, not the training
                    self.is_read = False
            self.waiting = False
        os.close(self._source)
        os.close(self._to)


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


def read(source: int) -> bytes:
    """What there is to read; empty at the end."""
    try:
        return os.read(source, _BLOCK)
    except OSError:  # a terminal that no process has open any more
        return b""
