"""Ctrl-C: a program ends with exit code 130 and no traceback, even while it still imports its modules."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_CODE = 130


def end_at_once() -> None:
    """Have Ctrl-C end this process on the spot, while there is nothing to clean up."""
    if _meant_for_us():
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))


def run(main: Callable[[], int]) -> NoReturn:
    """Run a program and end with its exit code; Ctrl-C raises KeyboardInterrupt, so that it can clean up."""
    if _meant_for_us():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE)
    finally:
        end_at_once()


def _meant_for_us() -> bool:
    # A shell has programs in the background ignore it.
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
