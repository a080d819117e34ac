"""The file that keeps registrations over a restart, since clients register once and never again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exporter.runs.files import checksummed
from exporter.runs.files.mounts import Mount
from exporter.runs.registrations import labels
from exporter.runs.registrations.registration import LONGEST_JOB
from exporter.runs.registrations.table import MOST, Registration
from exporter.runs.rollouts.address import LONGEST, AddressError, Allowed

logger = logging.getLogger(__name__)

NAME = "registrations.state"
ASIDE = "registrations.aside"
TITLE = "stepwatch-registrations 1"

_LONGEST = LONGEST + LONGEST_JOB + labels.MOST * (labels.LONGEST_NAME + labels.LONGEST_VALUE)
_FIELDS = 250
"""Bytes of a registration beside its texts: names, quotes, commas, the time."""

MOST_BYTES = len(TITLE) + 100 + MOST * (4 * _LONGEST + _FIELDS)
"""What the most registrations with the longest texts take: no sign more than 4 bytes, as UTF-8 has it.

Less would lose what was accepted; without a bound, any file that lies there would be read whole.
"""


class Ledger:
    """Loads and saves; ``None`` as folder keeps nothing. ``errors`` counts what could not be."""

    def __init__(self, folder: Path | None, allowed: Allowed) -> None:
        self.errors = 0
        self._folder, self._allowed = folder, allowed
        self._failing = self._warned = False
        self._thread = Mount(str(folder))

    def load(self) -> list[Registration]:
        """What was registered. A file that is not as it was written is kept aside, and all begins anew."""
        if self._folder is None:
            return []
        try:
            path = self._folder / NAME
            body = self._thread.call(lambda: checksummed.read(path, TITLE, MOST_BYTES))
        except FileNotFoundError:
            return []
        except OSError as problem:
            self._failed(
                f"{self._folder / NAME} cannot be read: {problem.strerror}. Registrations begin anew."
            )
            return []
        if body is None:
            self._lay_aside(self._folder)
            return []
        return list(self._allowed_ones(json.loads(body)))

    def save(self, known: Iterable[Registration]) -> bool:
        """Write what is registered now; returns whether that worked."""
        if self._folder is None:
            self._warn_that_nothing_is_kept()
            return True
        # with its escapes (ensure_ascii) a sign could take 12 bytes
        body = json.dumps([asdict(one) for one in known], ensure_ascii=False).encode()
        try:
            path = self._folder / NAME
            self._thread.call(lambda: checksummed.write(path, TITLE, body))
        except OSError as problem:
            if not self._failing:
                self._failed(
                    f"{self._folder / NAME} cannot be written: {problem.strerror}. "
                    "A restart forgets what is registered. It is tried again."
                )
            self._failing = True
            return False
        self._failing = False
        return True

    def _warn_that_nothing_is_kept(self) -> None:
        if not self._warned:
            logger.warning("Registrations are kept in memory only. Fix: name a folder with --state-dir.")
        self._warned = True

    def _allowed_ones(self, kept: list[dict[str, Any]]) -> Iterator[Registration]:
        """Those that may be read by the settings of today, which may be others than before."""
        ones = [Registration(**fields) for fields in kept[:MOST]]
        yield from (one for one in ones if self._is_allowed(one.address))

    def _is_allowed(self, address: str) -> bool:
        try:
            self._allowed.checked(address)
        except AddressError as problem:
            logger.warning("A registered server is left out: %s.", problem)
            return False
        return True

    def _lay_aside(self, folder: Path) -> None:
        aside = folder / ASIDE
        try:
            (folder / NAME).replace(aside)
        except OSError:
            aside = folder / NAME
        self._failed(
            f"{folder / NAME} is not as Stepwatch wrote it. It is kept as {aside}, "
            "and registrations begin anew. Fix: none is needed for jobs that start from now on."
        )

    def _failed(self, words: str) -> None:
        self.errors += 1
        logger.error("%s", words)
