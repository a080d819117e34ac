"""How a run is reached that `stepwatch run` did not start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.actions.policy import Action, Attempt
from exporter.actions.targets import Group, TargetError

ACTION = Action(
    "4f", "a", "KLExplosion", "critical", "f", 2e9, Attempt("", 1, 0.0), ("stop",), None, False, 1.0
)


def test_only_a_group_s_leader_that_is_older_than_its_file_is_reached(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert Group.read(file).gone == "no_pid_file"
    sleeping = [sys.executable, "-c", "import time; time.sleep(1000)"]
    leader = subprocess.Popen(sleeping, start_new_session=True)
    member = subprocess.Popen(sleeping)
    try:
        for text, gone in {
            f"{leader.pid}\n": "",
            f"{member.pid}": "no_group",
            "1": "ended",
            "-1": "ended",
            "0": "ended",
            "words": "ended",
        }.items():
            file.write_text(text)
            assert Group.read(file).gone == gone, text
        file.write_text(f"{leader.pid}\n")
        known = Group.read(file)
        os.utime(file, (time.time() - 1000,) * 2)
        assert Group.read(file).gone == "pid_reused"
        with pytest.raises(TargetError, match="now names another process"):
            known.send("stop", ACTION)
        assert leader.poll() is None
        file.write_text(f"{leader.pid}\n")
        assert known.send("stop", ACTION) == f"SIGTERM to process group {leader.pid}"
        leader.wait()
        assert Group.read(file).gone == "ended"
    finally:
        for each in (leader, member):
            each.kill()
            each.wait()
