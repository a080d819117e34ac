"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import time

import pynvml

from exporter.gpu.backend import BackendError, Card, Event, Extras, Reading
from exporter.gpu.nvml import errors
from exporter.gpu.nvml.card import LostCard, NvmlCard, down
from exporter.gpu.nvml.xids import XidEvents


class Nvml:
    """All GPUs that NVML lists when it is opened."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras
        self._cards: list[NvmlCard | LostCard] = []
        self._xids = XidEvents()

    def open(self) -> None:
        try:
            pynvml.nvmlInit()
            self._cards = [self._card(number) for number in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise BackendError(errors.name(error.value)) from error

    def _card(self, number: int) -> NvmlCard | LostCard:
        try:
            return NvmlCard(number, pynvml.nvmlDeviceGetHandleByIndex(number), self._xids, self._extras)
        except pynvml.NVMLError as error:
            problem = down(error)
            if isinstance(problem, BackendError):
                raise problem from error
            return LostCard(number, problem.code)

    def system(self) -> list[Reading]:
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()
            labels = {
                "driver_version": str(pynvml.nvmlSystemGetDriverVersion()),
                "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}",
                "nvml_version": str(pynvml.nvmlSystemGetNVMLVersion()),
            }
        except pynvml.NVMLError as error:
            raise BackendError(errors.name(error.value)) from error
        return [Reading("gpu_driver_info", 1, labels)]

    def cards(self) -> list[Card]:
        return list(self._cards)

    def events(self, seconds: float) -> list[Event]:
        found = self._xids.wait(seconds)
        return [] if found is None else [Event(*found, time.time())]

    def close(self) -> None:
        for card in self._cards:
            card.forget()
        self._xids.close()
        pynvml.nvmlShutdown()
