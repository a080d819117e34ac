"""Running as the owner of a checkout, for the container that generates into it."""

from __future__ import annotations

import os
import subprocess
import sys

from stepwatch.system.environment import CHECKOUT
from tests.real.tools import unavailable

WHO = "grep -E '^(Uid|Gid|Groups)' /proc/self/status"


def become(folder) -> list[list[str]]:
    """Real, effective, saved and file system ids of user and group, and the groups."""
    command = [sys.executable, "-m", "stepwatch.system.as_owner", "sh", "-c", WHO]
    path = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=True)
    return [line.split()[1:] for line in done.stdout.splitlines()]


def test_the_command_runs_as_who_started_it_where_the_folder_is_theirs(tmp_path):
    user, group, _ = become(tmp_path)
    assert (user, group) == ([str(os.getuid())] * 4, [str(os.getgid())] * 4)


def test_root_becomes_the_owner_for_good(tmp_path):
    if os.geteuid() != 0:
        unavailable("only root can become somebody else")
    os.chown(tmp_path, 4321, 5432)
    assert become(tmp_path) == [["4321"] * 4, ["5432"] * 4, []]
