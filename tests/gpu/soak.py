"""``python -m tests.gpu.soak CYCLES``: readings and pages, without a pause.

The real ``pynvml`` reads the library of ``driver.py`` while GPUs are lost and come back, are split and
whole again, report errors and have other processes. The clock goes on by a second a cycle. After each
tenth of the cycles a line of JSON says what this process takes.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from random import Random
from threading import active_count

from exporter.gpu.backend import Settings
from exporter.gpu.nvml import Nvml
from tests.gpu.box import Box

CYCLES_A_STATE = 50


class Reported:
    """The file that says how the library is to behave."""

    def __init__(self) -> None:
        self._file = Path(os.environ["FAKE_NVML_CTL"])
        self._dice = Random(7)
        self._errors = 0

    def change(self) -> None:
        """Another state of the machine: now and then a GPU is lost, one is split, programs come and go."""
        dice = self._dice
        self._errors += 1
        lines = ["gpus=8", f"xid={dice.randrange(8)}:{dice.choice((13, 48, 79, 94))}:{self._errors}"]
        lines += [f"lost={dice.randrange(8)}:{dice.choice((15, 16, 999))}"] * (dice.random() < 0.5)
        lines += [f"mig={dice.randrange(8)}"] * (dice.random() < 0.3)
        lines += [f"error=GetPowerUsage@{dice.randrange(8)}:{dice.choice((3, 10, 17, 21, 999))}"] * (
            dice.random() < 0.3
        )
        lines += [f"process={gpu}:compute:{dice.randrange(1, 10**6)}:64:10" for gpu in range(8)]
        new = self._file.with_suffix(".new")
        new.write_text("\n".join(lines))
        new.replace(self._file)


def main(cycles: int) -> None:
    """Run so many cycles."""
    reported = Reported()
    reported.change()
    box = Box(Nvml(Settings(processes=4, serial=True, links=True)), interval=1.0)
    for cycle in range(1, cycles + 1):
        if cycle % CYCLES_A_STATE == 0:
            reported.change()
        box.page(cycle, cycle)
        if cycle % (cycles // 10) == 0:
            print(json.dumps(_figures(cycle, box)), flush=True)
    os._exit(0)


def _figures(cycle: int, box: Box) -> dict[str, float]:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "cycle": cycle,
        "resident": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
        "objects": len(gc.get_objects()),
        "threads": active_count(),
        "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "samples": sum(not line.startswith(b"#") for line in box.gpus.page(cycle).splitlines()),
        "errors": sum(count for count, _ in box.gpus.xids.values()),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))
