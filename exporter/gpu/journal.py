"""Logs when the driver or a GPU comes or goes."""

from __future__ import annotations

import logging

from exporter.gpu.backend import OK
from exporter.gpu.contract import NVML_REASONS, RELEASED
from exporter.gpu.state import Gpu, State

logger = logging.getLogger(__name__)

_CALM = {
    OK: logging.INFO,
    "starting": logging.INFO,
    RELEASED: logging.INFO,
    "library_not_found": logging.WARNING,  # a machine without GPUs
}


class Journal:
    """Follows what is known of the GPUs; anyone who reads the log knows that they were well at first."""

    def __init__(self, box: State, now: float) -> None:
        self._box = box
        self._nvml = box.reason(now)
        self._gpus: dict[Gpu, str] = {}

    def look(self, now: float) -> None:
        """Log what is new. ``now`` in seconds of the steady clock."""
        reason = self._box.reason(now)
        if reason != self._nvml:
            level = _CALM.get(reason, logging.ERROR)
            logger.log(level, "NVML %s: %s", reason, NVML_REASONS.get(reason, "an error of the driver."))
            self._nvml = reason
        for gpu, why in (self._box.gpus if reason == OK else {}).items():
            if why != self._gpus.get(gpu, OK):
                number, uuid = gpu
                level = logging.INFO if why == OK else logging.ERROR
                logger.log(level, "GPU %s (%s): %s", number, uuid or "of unknown UUID", why)
                self._gpus[gpu] = why
