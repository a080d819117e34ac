"""A server of its own for a test: started, waited for, killed, started again, and gone at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines

_given: set[int] = set()


def free_port(*hosts: str) -> int:
    """A port of 127.0.0.1, and of these, on which no one listens now, another one at each call.

    It is below the range from which the kernel serves outgoing connections, so none of these takes
    it before the test's server does. Each of the processes that share a run of the tests has ports of
    its own: another one's server does not take the port of one that was killed and is to come back.
    """
    share = (32_000 - 12_000) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = 12_000 + share * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    # Not the shared generator: a test library that seeds it would give parallel runs the same ports.
    draw = random.SystemRandom()
    if len(_given) > share / 2:
        _given.clear()
    while (port := first + draw.randrange(share)) in _given or any(
        processes.port_taken(host, port) for host in ("127.0.0.1", *hosts)
    ):
        pass
    _given.add(port)
    return port


def query(base_url: str, promql: str) -> list[dict[str, Any]]:
    """The result of an instant query: a list of ``{"metric": {...}, "value": [time, "text"]}``."""
    text = http_client.read(
        f"{base_url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}", timeout=30
    )
    assert text is not None, f"{base_url} refuses the query {promql}"
    result: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    return result


class Server:
    """A process that is up while the ``with`` block runs.

    Args:
        command: Its command line.
        ready_url: Answers once it works; ``None`` for a program that has no page.
        cwd: Its working directory.
        env: Its whole environment, this process's own if not given.
        log: Where its output goes, a temporary file if not given; kept over restarts.
        patience: Seconds until it must be ready.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        ready_url: str | None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        patience: float = 60,
    ) -> None:
        self.command = [str(word) for word in command]
        self.ready_url, self.cwd, self.env, self.patience = ready_url, cwd, env, patience
        self._scratch = tempfile.TemporaryDirectory(prefix="stepwatch-")
        self.folder = Path(self._scratch.name)
        self.log = log or self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, f"{self.command[0]} is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it is ready."""
        assert not self._answers(), f"{self.ready_url} is another server's."
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, cwd=self.cwd, env=self.env, stdout=log, stderr=log)
        deadline = time.monotonic() + self.patience
        while self.ready_url and not self._answers():
            if self.ended or time.monotonic() > deadline:
                self.kill()
                tail = "\n".join(last_lines(self.log, 20))
                raise AssertionError(f"{' '.join(self.command)} did not become ready:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning."""
        self._end(signal.SIGKILL)

    def reload(self) -> None:
        """Have it read its settings again."""
        self._process.send_signal(signal.SIGHUP)

    def _answers(self) -> bool:
        return self.ready_url is not None and http_client.read(self.ready_url) is not None

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._scratch.cleanup()


running = Server
"""``with running(command, ready_url) as server`` reads better where no class is meant."""
