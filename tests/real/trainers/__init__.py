"""Real trainers: their scripts, and the process of one whose output a shell writes to a log."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

from typing_extensions import Self

from tests.real import environments

SCRIPTS = Path(__file__).parent
TRL, VERL = SCRIPTS / "trl_grpo.py", SCRIPTS / "verl_fit.py"

OFFLINE = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_HOST": "trainer",
    "WANDB_MODE": "offline",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
}


def environment() -> Path:
    """The programs of the environment with TRL, verl, W&B and Ray."""
    return environments.programs("trl")


class Training:
    """A trainer's process while the ``with`` block runs, and its log.

    Args:
        script: Of the trainer.
        options: Its command line.
        log: Where its output goes, standard error included.
        through: ``tee`` for ``2>&1 | tee log``, ``file`` for ``> log 2>&1``.
        append: To a log that is there, as ``tee -a`` and ``>>`` do.
        buffered: Standard output as Python has it by default: in blocks, unless it is a terminal.
        folder: Where it runs.
    """

    def __init__(
        self,
        script: Path,
        *options: str | Path,
        log: Path,
        through: Literal["tee", "file"],
        append: bool = False,
        buffered: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.log = log
        self._command = [environment() / "python", "-I", *([] if buffered else ["-u"]), script, *options]
        self._through, self._append, self._folder = through, append, folder or log.parent

    def start(self) -> None:
        """Start it."""
        self._ended = False
        self._scratch = tempfile.TemporaryDirectory(prefix="stepwatch-")
        temporary = dict.fromkeys(("TMPDIR", "RAY_TMPDIR"), self._scratch.name)
        if self._through == "tee":
            flags = ["-a"] if self._append else []
            self._writer = subprocess.Popen(
                ["tee", *flags, self.log], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            assert self._writer.stdin
            output = self._writer.stdin
        else:
            output = self.log.open("ab" if self._append else "wb")
        with output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, **OFFLINE, **temporary},
                start_new_session=True,  # Ray's processes go with it
            )

    @property
    def pid(self) -> int:
        """The trainer's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the trainer has not ended."""
        return self._process.poll() is None

    def wait_for(self, text: str, patience: float = 120) -> None:
        """Wait until the log holds a text, no longer than so many seconds without any growth."""
        size, deadline = -1, 0.0
        while text not in (content := self.log.read_text(errors="replace") if self.log.exists() else ""):
            if len(content) > size:
                size, deadline = len(content), time.monotonic() + patience
            assert time.monotonic() < deadline, f"no {text!r} in:\n{content[-2000:]}"
            assert self.running, f"ended without {text!r}:\n{content[-2000:]}"
            time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return its exit status once it and its log's writer have ended."""
        status = self._process.wait()
        if self._ended:
            return status
        self._ended = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it left behind, which may hold the log open
        if self._through == "tee":
            self._writer.wait()
        return status

    def kill(self) -> None:
        """Kill it with -9."""
        self.send(signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.send(signal.SIGKILL)
        self.wait()
        self._scratch.cleanup()
