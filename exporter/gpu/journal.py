"""Says it when the driver or a GPU comes or goes."""

from __future__ import annotations

from exporter.gpu.backend import OK
from exporter.gpu.box import Box, Gpu
from exporter.gpu.contract import NVML_REASONS


class Journal:
    """Follows what is known of the GPUs; anyone who reads it knows that they were well at first."""

    def __init__(self, box: Box, now: float) -> None:
        self._box = box
        self._nvml = box.reason(now)
        self._gpus: dict[Gpu, str] = {}

    def lines(self, now: float) -> list[str]:
        """What is new. ``now`` in seconds of the steady clock."""
        found, reason = [], self._box.reason(now)
        if reason != self._nvml:
            found.append(f"NVML {reason}: {NVML_REASONS.get(reason, 'an error of the driver.')}")
            self._nvml = reason
        return found + self._changes(self._box.gpus if reason == OK else {})

    def _changes(self, gpus: dict[Gpu, str]) -> list[str]:
        changed = {gpu: why for gpu, why in gpus.items() if why != self._gpus.get(gpu, OK)}
        self._gpus.update(changed)
        return [
            f"GPU {number} ({uuid or 'of unknown UUID'}): {why}" for (number, uuid), why in changed.items()
        ]
