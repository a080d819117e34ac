"""The native stack as a user has it: on a disk of its own, with runs, a mount and a webhook."""

from __future__ import annotations

import json
import os
import signal
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from stepwatch.deploy.native import stack as parts
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import State
from stepwatch.system import http_client, processes
from stepwatch.system.files import last_lines
from tests.chaos.runs import Runs
from tests.chaos.stack import LOCAL, REMOTE, WEBHOOK, Process, Stack, run
from tests.native.installation import made
from tests.real import WebhookSink
from tests.real.hung_mount import mounted
from tests.real.working import working_in

DISK_BYTES = 192 * 2**20


class Native(Stack):
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
        done = self.installation.run(words[0], "--config", str(self.installation.config), *words[1:])
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"

    @property
    def listed(self) -> set[str]:
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
        done = self.installation.run("status")
        return done.returncode, f"{done.stdout}{done.stderr}"

    def processes(self) -> dict[str, Process]:
        names = {_program(part.command): part.name for part in self.parts}
        programs = {pid: _program(processes.words(pid) or [""]) for pid in working_in(self.place.folder)}
        programs = {Process(pid, _started(pid)): program for pid, program in programs.items()}
        return {names.get(program, program): process for process, program in programs.items()}

    def servers(self) -> list[str]:
        return [name for name in (*self.processes(), WEBHOOK) if self.inbound(name)]

    def inbound(self, name: str) -> tuple[list[str], list[str]] | None:
        process = self.processes().get(name)
        if name == WEBHOOK:
            ports = [urllib.parse.urlsplit(self.sink.url).port]
        else:
            ports = sorted(_listening(process)) if process else []
        return ([], ["-m", "multiport", "--dports", ",".join(map(str, ports))]) if ports else None

    def url(self, part: str) -> str:
        return self.installation.url(part)

    def signal(self, process: Process, number: signal.Signals) -> bool:
        if process not in self.processes().values():
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:  # it ended at this moment
            return False
        return True

    def missing(self, expected: Iterable[str]) -> list[str]:
        webs = {part.name: part.web for part in self.parts if part.web}
        silent = {
            name for name, web in webs.items() if http_client.read(web.page(web.ready), timeout=2) is None
        }
        return sorted(silent | (set(expected) - self.processes().keys()))

    def notified(self) -> Iterator[tuple[float, dict[str, Any]]]:
        for message in list(self.sink.received):
            for alert in message.alerts:
                yield message.at, alert

    def last_words(self) -> str:
        logs = sorted(self.place.logs.glob("*.log"))
        return "\n".join("\n  ".join([f"{log.name}:", *last_lines(log, 20)]) for log in logs)


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
