"""The real stack under random faults. To see a seed again: `python -m tests.chaos SEED`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from stepwatch.system.environment import CHECKOUT
from tests.real.tools import unavailable

NEEDED = ("unshare", "ip", "iptables", "mkfs.ext4", "bindfs")

FIRST = 4
MANY = (*range(5, 9), *range(10, 60))
"""Three in a row have all kinds of faults, and kill every process."""


def keeps_its_promises(seed: int) -> None:
    """Run the schedule of a seed; what it tells is shown if it fails."""
    if os.geteuid() != 0:
        unavailable("only root may fill disks, cut networks and hang mounts")
    for program in NEEDED:
        if not shutil.which(program):
            unavailable(f"{program} is not on PATH")
    command = [sys.executable, "-m", "tests.chaos", str(seed)]
    assert subprocess.run(command, cwd=CHECKOUT, check=False).returncode == 0


@pytest.mark.e2e
def test_sick_runs_page_healthy_ones_do_not_and_nothing_is_lost_under_random_faults() -> None:
    keeps_its_promises(FIRST)


@pytest.mark.world
@pytest.mark.parametrize("seed", MANY)
def test_many_more_schedules_keep_every_promise(seed: int) -> None:
    keeps_its_promises(seed)
