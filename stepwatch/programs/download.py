"""Downloads from the world outside, which may be slow, absent or broken."""

from __future__ import annotations

import hashlib
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwatch.system.terminal import Say

_STALL_SECONDS = 30
_NEWS_SECONDS = 5
_BLOCK = 1 << 20


class DownloadError(Exception):
    """Raised when a download fails; says what went wrong."""


class NoAnswerError(DownloadError):
    """Raised when no one answers there."""


def text(url: str, *, patience: float) -> str:
    """The text of a small page (at most 1 MB).

    ``patience``: seconds that the answer may take, its name service included.

    Raises:
        NoAnswerError: no one answers in that time.
        DownloadError: the answer is a refusal.
    """
    answers: queue.Queue[str | DownloadError] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(_text(url, patience))
        except DownloadError as problem:
            answers.put(problem)

    # A name service has no timeout, so it is left to a thread.
    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=patience)
    except queue.Empty:
        raise NoAnswerError(f"no answer within {patience:g} s") from None
    if isinstance(answer, DownloadError):
        raise answer
    return answer


def fetch(url: str, target: Path, say: Say) -> str:
    """Download a file; return its SHA-256. ``say`` gets a line every few seconds.

    Raises:
        DownloadError: it did not come, or not the whole of it.
        OSError: the target cannot be written.
    """
    digest, done, reported = hashlib.sha256(), 0, time.monotonic()
    with _faults():
        answer = urllib.request.urlopen(url, timeout=_STALL_SECONDS)  # noqa: S310 - the caller names it
    with answer, target.open("wb") as file:
        total = int(answer.headers["Content-Length"] or 0)
        while True:
            with _faults():
                block = answer.read(_BLOCK)
            if not block:
                break
            digest.update(block)
            file.write(block)
            done += len(block)
            if time.monotonic() - reported > _NEWS_SECONDS:
                reported = time.monotonic()
                of = f" of {total / 1e6:.0f}" if total else ""
                say(f"  {done / 1e6:.0f}{of} MB")
    if done < total:
        raise DownloadError(f"the connection was closed early after {done} of {total} bytes")
    return digest.hexdigest()


def _text(url: str, timeout: float) -> str:
    with _faults(NoAnswerError), urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - the caller names it
        content: bytes = answer.read(_BLOCK)
    return content.decode("utf-8", "replace")


@contextmanager
def _faults(kind: type[DownloadError] = DownloadError) -> Iterator[None]:
    """Raise what went wrong with a request as an error of ours."""
    try:
        yield
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise DownloadError(f"{refusal.code} {refusal.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise kind(str(getattr(reason, "strerror", None) or reason or type(problem).__name__)) from None
