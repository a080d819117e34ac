"""A script in an environment of its own, whose functions are called by lines of JSON."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any

from typing_extensions import Self


class Script:
    """The script's process, while the ``with`` block runs.

    Args:
        python: The interpreter of its environment.
        path: The script; it answers each line ``[function, *arguments]`` with a line.
        arguments: Of its command line.
        env: Its environment variables.
    """

    def __init__(self, python: Path, path: Path, *arguments: str, env: Mapping[str, str]) -> None:
        self._path = path
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long-lived as the process)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            # Isolated: beside the script lie modules that are called like packages which it imports.
            [python, "-I", path, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            text=True,
            env=env,
        )

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Call a function of the script by name."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([function, *arguments]) + "\n")
        self._process.stdin.flush()
        while not select([self._process.stdout], [], [], 1)[0]:
            self.check()
        answer = self._process.stdout.readline()
        assert answer, f"{self._path.name}: {self.said()}"
        return json.loads(answer)

    def check(self) -> None:
        """Called each second while an answer is waited for; may fail where none will come."""

    def kill(self) -> None:
        """Kill the process (-9)."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """What it wrote to its log, the end of it."""
        self._errors.seek(0)
        return self._errors.read()[-5000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:  # it may wait for what never comes
            self.kill()
        self._process.communicate()
        self._errors.close()
