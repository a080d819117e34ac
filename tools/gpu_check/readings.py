"""What ``nvidia-smi``, NVML and the exporter say of each GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from xml.etree import ElementTree as Xml

import pynvml
from prometheus_client.parser import text_string_to_metric_families

from stepwatch.system import http_client, processes
from tools.gpu_check.rows import ROWS, Row

PROGRAM = "nvidia-smi"
PROGRAM_SECONDS, READY_SECONDS = 60, 60.0
WORDS = {
    **dict.fromkeys(("Disabled", "Not Active", "No", "None", "Default"), 0.0),
    **dict.fromkeys(("Enabled", "Active", "Yes", "Not Started", "Reset"), 1.0),
    **dict.fromkeys(("Prohibited", "In Progress", "Reboot"), 2.0),
    **dict.fromkeys(("Exclusive_Process", "Completed", "Drain P2P"), 3.0),
    "Drain and Reset": 4.0,
}
"""Its words for what NVML numbers."""

PROCESSES = 1000
"""All are named: which of them has which number is part of the check."""

Boards = dict[str, Xml.Element]
"""What ``nvidia-smi`` says of each GPU, by UUID."""


class NoGpuError(Exception):
    """Raised when there is no GPU to check; says why."""


class Answer(NamedTuple):
    """A value of NVML's in our unit, and the seconds that the call took."""

    value: float
    seconds: float


Answers = dict[tuple[str, str], Answer]
"""By UUID and the row's name."""


class Page:
    """A page of the exporter."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, uuid: str, row: Row) -> float | None:
        """What it says of a GPU."""
        wanted = {"uuid": uuid, **row.labels}.items()
        for sample in self.samples:
            if sample.name == row.metric and wanted <= sample.labels.items():
                return float(sample.value)
        return None

    def values(self, metric: str, label: str) -> set[str]:
        """All that a label of this metric holds."""
        return {sample.labels[label] for sample in self.samples if sample.name == metric}


class Round(NamedTuple):
    """What all three said within a second or so."""

    page: Page
    boards: Boards
    answers: Answers


def rounds(count: int, pause: float) -> list[Round]:
    """Ask all three, the exporter as Prometheus asks it, so often, with so many seconds between.

    Raises:
        NoGpuError: there is no GPU, or NVML cannot be used.
    """
    ask_nvml(boards())
    found = []
    with _exporter() as url:
        for _ in range(count):
            time.sleep(pause)
            known = boards()
            found.append(Round(Page(http_client.read(url) or ""), known, ask_nvml(known)))
    return found


@contextmanager
def _exporter() -> Iterator[str]:
    """The address of its page while it runs, once it has read the GPUs twice."""
    url = f"http://127.0.0.1:{(port := processes.free_port('127.0.0.1'))}"
    flags = [f"--port={port}", f"--processes={PROCESSES}", "--log.level=warn"]
    with subprocess.Popen(
        [sys.executable, "-m", "exporter.gpu", *flags], stdout=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + READY_SECONDS
            while http_client.read(f"{url}/-/ready") is None and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(2)  # what is a mean needs two readings
            yield f"{url}/metrics"
        finally:
            process.terminate()


def boards() -> Boards:
    """Ask ``nvidia-smi`` once. Raises ``NoGpuError``."""
    if shutil.which(PROGRAM) is None:
        raise NoGpuError(f"there is no {PROGRAM}")
    command = [PROGRAM, "-q", "-x"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
        root = Xml.fromstring(done.stdout)  # noqa: S314  (the driver's own program wrote it)
    except subprocess.TimeoutExpired as error:
        raise NoGpuError(f"{PROGRAM} did not answer within {PROGRAM_SECONDS} s") from error
    except Xml.ParseError as error:
        raise NoGpuError(f"{PROGRAM} says: {(done.stdout + done.stderr).strip()}") from error
    found = {board.findtext("uuid", ""): board for board in root.iter("gpu")}
    if not found:
        raise NoGpuError(f"{PROGRAM} lists none")
    return found


def board_value(board: Xml.Element, paths: tuple[str, ...]) -> float | None:
    """The number at the first of the paths that has one, in the unit of ``nvidia-smi``."""
    for path in paths:
        text = (board.findtext(path) or "").strip()
        if text in WORDS:
            return WORDS[text]
        if found := re.match(r"P?(-?\d+(?:\.\d+)?)", text):
            return float(found[1])
    return None


def ask_nvml(uuids: Iterable[str]) -> Answers:
    """What each GPU answers to NVML's plain calls, as far as it does.

    Raises:
        NoGpuError: the library cannot be used.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpuError(f"NVML says: {error}") from error
    found: Answers = {}
    for uuid in uuids:
        for row in ROWS:
            if row.ask is None:
                continue
            with suppress(pynvml.NVMLError, AttributeError):  # this GPU, driver or wheel has no such call
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
                call = getattr(pynvml, f"nvmlDeviceGet{row.ask.call}")
                began = time.perf_counter()
                value = call(handle, *row.ask.arguments)
                found[uuid, row.name] = Answer(value * row.ask.scale, time.perf_counter() - began)
    pynvml.nvmlShutdown()
    return found
