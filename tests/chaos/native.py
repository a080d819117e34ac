"""The native stack as a user has it: on a disk of its own, with runs, a mount and a webhook."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from typing_extensions import Self

from stepwatch.deploy.native import stack as parts
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import State
from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines
from tests.chaos.runs import LOCAL, REMOTE, Runs
from tests.native.installation import made
from tests.real import WebhookSink
from tests.real.hung_mount import mounted
from tests.real.working import working_in

WEBHOOK = "webhook"

Samples = dict[str, set[tuple[float, str]]]
"""Time and value of each sample that Prometheus holds, by run."""


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one: its id, and when it started."""

    pid: int
    started: float


DISK_BYTES = 192 * 2**20


class Native:
    """The stack of `make up NATIVE=1`, up while the ``with`` block runs.

    Args:
        folder: An empty folder.
        filesystem: Of the disk with the state folder: ``ext4`` or ``tmpfs``.
    """

    def __init__(self, folder: Path, filesystem: str) -> None:
        self.installation = made(folder, "newest")
        self.place = State(self.installation.state)
        self.sink = WebhookSink()
        self.parts: list[Part] = []
        """As they were brought up: faults may damage the file that lists them."""
        self._folder, self._filesystem = folder, filesystem
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._mount_disk(opened)
            folder, server = self.installation.folder / "my runs", self._folder / "file server"
            server.mkdir()
            self.mount = opened.enter_context(mounted(folder / "remote", server))
            self.runs = Runs({**dict.fromkeys(LOCAL, folder), REMOTE: server})
            self.runs.start()
            opened.callback(self.runs.stop)
            opened.enter_context(self.sink)
            receivers = [{"name": "sink", "webhook": {"url": self.sink.url}}]
            self.installation.configure(f"discovery: {{ray: null}}\nreceivers: {json.dumps(receivers)}\n")
            opened.callback(self.installation.run, "down")
            self.command("up", "--native", "--runs", str(folder))
            self.parts = parts.load(self.place.parts)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _mount_disk(self, opened: ExitStack) -> None:
        state, disk = self.installation.state, self._folder / "disk"
        state.mkdir()
        if self._filesystem == "ext4":
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
            run("mkfs.ext4", "-q", "-m", "0", disk)
            run("mount", "-o", "loop", disk, state)
        else:
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", state)
        opened.callback(run, "umount", "--lazy", state)

    def command(self, *words: str) -> None:
        """Run one of the user's commands, which must succeed."""
        done = self.installation.run(words[0], "--config", str(self.installation.config), *words[1:])
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"

    @property
    def listed(self) -> set[str]:
        """The names to which `make status` gives a row."""
        return {part.name for part in self.parts}

    def repair(self) -> int:
        """Delete a damaged notification log, as docs/reliability.md says, and run `make up` as the last time.

        Returns:
            Its exit code, which is not 0 while another fault is in the way.
        """
        if "creating notification log" in self.status()[1]:
            (self.place.data("alertmanager") / "nflog").unlink(missing_ok=True)
        return self.installation.up().returncode

    def status(self) -> tuple[int, str]:
        """Return the exit code of `make status`, and what it says."""
        done = self.installation.run("status")
        return done.returncode, f"{done.stdout}{done.stderr}"

    def processes(self) -> dict[str, Process]:
        """Return what runs of the stack, by name: the part's, else the program's."""
        names = {_program(part.command): part.name for part in self.parts}
        programs = {pid: _program(processes.words(pid) or [""]) for pid in working_in(self.place.folder)}
        programs = {Process(pid, _started(pid)): program for pid, program in programs.items()}
        return {names.get(program, program): process for process, program in programs.items()}

    def servers(self) -> list[str]:
        """Return the names of the processes that can be cut off, and the webhook."""
        return [name for name in (*self.processes(), WEBHOOK) if self.ports(name)]

    def ports(self, name: str) -> list[int]:
        """Return the ports of a server, none if it does not run."""
        process = self.processes().get(name)
        if name == WEBHOOK:
            return [urllib.parse.urlsplit(self.sink.url).port or 0]
        return sorted(_listening(process)) if process else []

    def url(self, part: str) -> str:
        """Return where users reach a part."""
        return self.installation.url(part)

    def signal(self, process: Process, number: signal.Signals) -> bool:
        """Send a signal to a process; return whether it was there to get it."""
        if process not in self.processes().values():
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:  # it ended at this moment
            return False
        return True

    def missing(self, expected: Iterable[str]) -> list[str]:
        """Return which of these processes are gone, and which parts do not answer."""
        webs = {part.name: part.web for part in self.parts if part.web}
        silent = {
            name for name, web in webs.items() if http_client.read(web.page(web.ready), timeout=2) is None
        }
        return sorted(silent | (set(expected) - self.processes().keys()))

    def notified(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield when each alert in each message came (Unix time), and the alert."""
        for message in list(self.sink.received):
            for alert in message.alerts:
                yield message.at, alert

    def last_words(self) -> str:
        """Return how the logs of the parts end."""
        logs = sorted(self.place.logs.glob("*.log"))
        return "\n".join("\n  ".join([f"{log.name}:", *last_lines(log, 20)]) for log in logs)

    def row(self, name: str) -> str:
        """Return the pattern of what `make status` says of a process that does not work."""
        name = re.escape(name)
        return rf"(?m)^{name} +(?!up )\S" if name in self.listed else name.rpartition(".")[2]

    def samples(self) -> Samples | None:
        """Return each run's steps as Prometheus stored them, ``None`` if it does not answer."""
        text = http_client.read(f"{self.url('prometheus')}/api/v1/query?query=rl_step%5B1h%5D", timeout=3)
        if text is None:
            return None
        series = json.loads(text)["data"]["result"]
        return {each["metric"]["run"]: {tuple(sample) for sample in each["values"]} for each in series}

    def silenced(self) -> set[str]:
        """Return the runs that have a silence now."""
        active = [each for each in self._alertmanager("silences") if each["status"]["state"] == "active"]
        matchers = [matcher for silence in active for matcher in silence["matchers"]]
        return {matcher["value"] for matcher in matchers if matcher["name"] == "run"}

    def critical(self) -> set[str]:
        """Return the runs about which Alertmanager holds critical alerts, muted ones included."""
        labels = [alert["labels"] for alert in self._alertmanager("alerts")]
        return {each["run"] for each in labels if "run" in each and each["severity"] == "critical"}

    def _alertmanager(self, page: str) -> list[dict[str, Any]]:
        text = http_client.read(f"{self.url('alertmanager')}/api/v2/{page}")
        found: list[dict[str, Any]] = json.loads(text or "[]")
        return found


def run(*words: str | Path) -> None:
    """Run a program that must succeed."""
    subprocess.run(words, check=True, capture_output=True)


def _started(pid: int) -> float:
    """When a process started, in clock ticks since the boot; 0 if it has just ended."""
    with suppress(OSError):
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def _program(command: Sequence[str]) -> str:
    return command[2] if "-m" in command[:2] else Path(command[0]).name


def _listening(process: Process) -> Iterator[int]:
    inodes = set()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            inodes.add(str(link.readlink()))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in map(str.split, Path(table).read_text().splitlines()[1:]):
            if row[3] == "0A" and f"socket:[{row[9]}]" in inodes:
                yield int(row[1].rpartition(":")[2], 16)
