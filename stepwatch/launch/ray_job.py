"""A trainer that runs as a job of a Ray cluster, by the `ray` program of the user's environment."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence

STOP_SECONDS = 120.0
"""Ray itself gives a job some seconds to end by SIGTERM."""


class RayJob:
    """Where jobs are submitted, and the last one."""

    def __init__(self, address: str, working_dir: str | None = None) -> None:
        self._address, self._working_dir = address, working_dir
        self._id = ""

    def submit(self, command: Sequence[str]) -> list[str]:
        """Return the command that submits a trainer as a new job, shows its output and ends with it."""
        self._id = f"stepwatch-{uuid.uuid4().hex[:12]}"
        options = ["--address", self._address, "--submission-id", self._id]
        if self._working_dir:
            options += ["--working-dir", self._working_dir]
        return ["ray", "job", "submit", *options, "--", *command]

    def begin_stop(self) -> subprocess.Popen[bytes]:
        """Have the cluster stop the job; the process ends once it has ended, with exit code 0."""
        stop = ["ray", "job", "stop", "--address", self._address, self._id]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(stop, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    def stop(self) -> bool:
        """Have the cluster stop the job, and wait for its end; returns whether it is known to have ended."""
        try:
            return self.begin_stop().wait(STOP_SECONDS) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
