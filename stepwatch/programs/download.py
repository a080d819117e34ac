"""Downloads from the world outside, which may be slow, absent or broken."""

from __future__ import annotations

import hashlib
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from stepwatch.system.terminal import Say

_STALL_SECONDS = 30
_NEWS_SECONDS = 5
_BLOCK = 1 << 20
_FAULTS = (OSError, http.client.HTTPException, ValueError)


class DownloadError(Exception):
    """Raised when a download fails; says what went wrong."""


class NoAnswerError(DownloadError):
    """Raised when no one answers there."""


def text(url: str, *, patience: float) -> str:
    """The text of a small page (at most 1 MB).

    Args:
        url: An http or https address.
        patience: Seconds that the answer may take, its name service included.

    Raises:
        NoAnswerError: no one answers in that time.
        DownloadError: the answer is a refusal.
    """
    try:
        return _within(patience, lambda: _text(url, patience))
    except urllib.error.HTTPError as refusal:
        raise _refused(refusal) from None
    except _FAULTS as problem:
        raise NoAnswerError(_reason(problem)) from None


def fetch(url: str, target: Path, say: Say) -> str:
    """Download a file; return its SHA-256.

    Args:
        url: An http or https address.
        target: Where it goes.
        say: Gets a line every few seconds.

    Raises:
        DownloadError: it did not come, or not the whole of it.
        OSError: the target cannot be written.
    """
    try:
        answer = urllib.request.urlopen(url, timeout=_STALL_SECONDS)  # noqa: S310 - the caller names it
    except urllib.error.HTTPError as refusal:
        raise _refused(refusal) from None
    except _FAULTS as problem:
        raise DownloadError(_reason(problem)) from None
    with answer, target.open("wb") as file:
        return _copy(answer, file, _Progress(int(answer.headers["Content-Length"] or 0), say))


def _text(url: str, timeout: float) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - the caller names it
        content: bytes = answer.read(_BLOCK)
    return content.decode("utf-8", "replace")


def _within(seconds: float, ask: Callable[[], str]) -> str:
    """The answer, or what went wrong. A name service heeds no timeout, so it is left to a thread."""
    answers: queue.Queue[str | Exception] = queue.Queue()

    def work() -> None:
        try:
            answers.put(ask())
        except Exception as problem:  # noqa: BLE001 - raised by the one who asked
            answers.put(problem)

    threading.Thread(target=work, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


class _Progress:
    """Tells how far a download is. ``total`` in bytes, 0 if no one knows."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.done = total, 0
        self._say, self._reported_at = say, time.monotonic()

    def add(self, count: int) -> None:
        """So many more bytes are there."""
        self.done += count
        if time.monotonic() - self._reported_at > _NEWS_SECONDS:
            self._reported_at = time.monotonic()
            of = f" of {_megabytes(self.total)}" if self.total else ""
            self._say(f"  {_megabytes(self.done)}{of} MB")


def _copy(answer: http.client.HTTPResponse, file: BinaryIO, progress: _Progress) -> str:
    digest = hashlib.sha256()
    while block := _read(answer):
        digest.update(block)
        file.write(block)
        progress.add(len(block))
    if progress.done < progress.total:
        raise DownloadError(f"it broke off after {progress.done} of {progress.total} bytes")
    return digest.hexdigest()


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(_BLOCK)
    except _FAULTS as problem:
        raise DownloadError(_reason(problem)) from None


def _refused(refusal: urllib.error.HTTPError) -> DownloadError:
    refusal.close()
    return DownloadError(f"{refusal.code} {refusal.reason}")


def _megabytes(size: int) -> int:
    return round(size / 1e6)


def _reason(problem: Exception) -> str:
    reason = getattr(problem, "reason", None) or problem
    return str(getattr(reason, "strerror", None) or reason or type(problem).__name__)
