"""What ``nvidia-smi`` says of each GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree as Xml

PROGRAM = "nvidia-smi"
SECONDS = 60
WORDS = {
    "Enabled": 1.0,
    "Active": 1.0,
    "Yes": 1.0,
    "Disabled": 0.0,
    "Not Active": 0.0,
    "No": 0.0,
    "None": 0.0,
    "Default": 0.0,
    "Prohibited": 2.0,
    "Exclusive_Process": 3.0,
    "Not Started": 1.0,
    "In Progress": 2.0,
    "Completed": 3.0,
    "Reset": 1.0,
    "Reboot": 2.0,
    "Drain P2P": 3.0,
    "Drain and Reset": 4.0,
}
"""Its words for what NVML numbers."""

Boards = dict[str, Xml.Element]
"""What it says of each GPU, by UUID."""


class NoGpuError(Exception):
    """Raised when there is no GPU to check; says why."""


def boards() -> Boards:
    """Ask it once. Raises ``NoGpuError``."""
    if shutil.which(PROGRAM) is None:
        raise NoGpuError(f"there is no {PROGRAM}")
    command = [PROGRAM, "-q", "-x"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        root = Xml.fromstring(done.stdout)  # noqa: S314  (the driver's own program wrote it)
    except subprocess.TimeoutExpired as error:
        raise NoGpuError(f"{PROGRAM} did not answer within {SECONDS} s") from error
    except Xml.ParseError as error:
        raise NoGpuError(f"{PROGRAM} says: {(done.stdout + done.stderr).strip()}") from error
    found = {board.findtext("uuid", ""): board for board in root.iter("gpu")}
    if not found:
        raise NoGpuError(f"{PROGRAM} lists none")
    return found


def value(board: Xml.Element, paths: tuple[str, ...]) -> float | None:
    """The number that stands at the first of the paths that has one, in its own unit."""
    for path in paths:
        text = (board.findtext(path) or "").strip()
        found = re.match(r"P?(-?\d+(?:\.\d+)?)", text)
        if found or text in WORDS:
            return WORDS[text] if found is None else float(found[1])
    return None


def pids(board: Xml.Element) -> set[str]:
    """The processes that use it."""
    return {process.findtext("pid", "") for process in board.iter("process_info")}
