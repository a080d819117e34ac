"""How logs tell that a run ended, whichever trainer wrote them."""

from __future__ import annotations

import re

from exporter.runs.signals.record import Ended

_TROUBLE = rb"Traceback \(most recent|[Ee]xit(?:ed with)?(?: exit)? ?code:? *-?[1-9]|core dumped"
"""Caught errors and programs that a reward runs in a sandbox say that as well."""

HINTS = rb"HYDRA_FULL_ERROR|ChildFailedError|Job 'raysubmit|" + _TROUBLE
"""A pattern: only lines with a match can report an end."""

_WORTH_A_LOOK = re.compile(HINTS)
_FINISHED = re.compile(rb"Job 'raysubmit_\w+' succeeded")
_FAILED = re.compile(rb"HYDRA_FULL_ERROR|ChildFailedError|Job 'raysubmit_\w+' failed")
_MAY_HAVE_FAILED = re.compile(_TROUBLE)


def ending(line: bytes) -> Ended | None:
    """What the line says about the end of the run, if anything."""
    if not _WORTH_A_LOOK.search(line):
        return None
    if _FINISHED.search(line):
        return Ended("finished")
    if _FAILED.search(line):
        return Ended("failed")
    return Ended("failed", certain=False) if _MAY_HAVE_FAILED.search(line) else None
