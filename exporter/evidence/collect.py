"""What is collected, in which order, and how long each part may take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter.evidence import machine, run, stack
from exporter.evidence.archive import Archive, unwritable
from exporter.evidence.bounded import Item, Task, document, run_all
from exporter.evidence.run import RunLogs
from exporter.runs.logs.processes import Process
from exporter.runs.model.run import Options
from exporter.runs.remote import web
from exporter.runs.serve.endpoints import unknown
from exporter.secret_shapes import scrubbed

FIND_SECONDS = 8.0
NAMES_SECONDS = 3.0
COLLECT_SECONDS = 20.0
"""From the start; packing what was found takes seconds more."""
PACK_SECONDS = 26.0
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sources:
    """Where evidence is looked for.

    Attributes:
        paths: The watched folders.
        exporter: URL of the run exporter; empty if there is none, as for the next two.
        prometheus: URL of Prometheus.
        alertmanager: URL of Alertmanager.
        ray: Ray's folder.
        options: How logs are read.
        queries: PromQL of the dashboard Diagnose, by table and column.
        limits: The limits in force, by block.
        overrides: Limits of some runs.
        config: The file config.yaml.
    """

    paths: tuple[str, ...]
    exporter: str = ""
    prometheus: str = ""
    alertmanager: str = ""
    ray: Path | None = None
    options: Options = field(default_factory=Options)
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[Mapping[str, Any]] = ()
    config: Path | None = None


class UnknownRunError(Exception):
    """Raised when no run has that name; says which names are nearest."""


def collect(name: str, sources: Sources, out: Path) -> Path:
    """Collect what there is about a run, within 30 s whatever hangs, and return the archive's path.

    Args:
        name: The run's name.
        sources: Where to look.
        out: The folder of archives; it is made if it is missing.

    Raises:
        UnknownRunError: There is no such run.
        WriteError: The archive cannot be written.
    """
    begun = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        found, remarks = _find(name, sources, out, begun)
        about = {
            "collected": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "version": __version__,
            "remarks": remarks,
        }
        with run_all(_tasks(name, sources, found), out, begun + COLLECT_SECONDS) as results:
            return Archive(name, about).write(out, results, until=begun + PACK_SECONDS)
    except OSError as problem:
        raise unwritable(out, problem) from None


@dataclass(frozen=True)
class _Found:
    logs: RunLogs = RunLogs()  # noqa: RUF009  (it is frozen)
    writers: frozenset[str] = frozenset()

    @property
    def last(self) -> float | None:
        """When a log was written last."""
        return max((found.changed for found in self.logs.found), default=None)


def _find(name: str, sources: Sources, out: Path, begun: float) -> tuple[_Found, list[str]]:
    """The logs of the run and who writes them, and remarks about what could not be found out."""
    # In processes of their own: a mount may hang, and so may the exporter.
    tasks = [
        Task("find", partial(_logs, name, sources.paths), FIND_SECONDS, 16 * MEGABYTE, shown=False),
        Task("names", partial(_names, sources.exporter), NAMES_SECONDS, 16 * MEGABYTE, shown=False),
    ]
    remarks = []
    found, known = _Found(), set[str]()
    with run_all(tasks, out, begun + FIND_SECONDS) as (by_path, by_exporter):
        if by_path.items:
            answer = json.loads(by_path.items[0].content())
            logs = tuple(run.found_from(each) for each in answer["found"])
            found = _Found(RunLogs(logs, answer["part"]), frozenset(answer["writers"]))
            known.update(answer["known"])
        else:
            remarks.append(f"The logs were not found: {by_path.problem}.")
        if by_exporter.items:
            shown = json.loads(by_exporter.items[0].content())
            known.update(shown)
            if name not in shown:
                remarks.append("The run exporter does not list this run.")
        else:
            remarks.append(f"The run exporter returned no names: {by_exporter.problem.rstrip('.')}.")
    # Where one of the two hangs, the run may well exist.
    certain = bool(by_path.items) and not by_exporter.late
    if not found.logs.found and certain and name not in known:
        raise UnknownRunError(unknown(name, known))
    return found, list(map(scrubbed, remarks))


def _logs(name: str, paths: Sequence[str]) -> Iterator[Item]:
    logs, known = run.logs_of(name, paths)
    writers = sorted(run.writers(logs, machine.holders)) if logs.found else []
    answer = {
        "found": [run.found_as(each) for each in logs.found],
        "part": logs.part,
        "known": known,
        "writers": writers,
    }
    yield Item("found", "", document(answer))


def _names(exporter: str) -> Iterator[Item]:
    if exporter:
        body = web.get(f"{exporter}/api/v1/runs", {}, stack.ANSWER_SECONDS, most=stack.LARGEST_ANSWER).body
        yield Item("names", "", document([each["run"] for each in json.loads(body)["runs"]]))
    else:
        yield Item("", "", missing="its address is not configured")


def _tasks(name: str, sources: Sources, found: _Found) -> list[Task]:
    """All tasks; the most valuable come first, and have the room of the archive first."""
    logs, last = found.logs, found.last

    def of_trainer(work: Callable[[list[Process]], Iterator[Item]]) -> Iterator[Item]:
        yield from work(machine.trainer(found.writers))

    def listed() -> Iterator[Item]:
        yield from machine.all_processes({each.pid for each in machine.trainer(found.writers)})

    places = [*(each.path.parent for each in logs.found), *map(Path, sources.paths)]
    settings = sources.limits, sources.overrides, sources.config
    url, prometheus, alertmanager = sources.exporter, sources.prometheus, sources.alertmanager
    tasks = [
        Task("signals", partial(run.signals, logs, sources.options), 14, 4 * MEGABYTE),
        Task("logs", partial(run.tails, logs), 14, 10 * MEGABYTE),
        Task("settings", partial(stack.settings, *settings, name), 5, MEGABYTE),
        Task("stacks", partial(of_trainer, machine.stacks), 14, 4 * MEGABYTE),
        Task("threads", partial(of_trainer, machine.threads), 8, 2 * MEGABYTE),
        Task("gpus", machine.gpus, 13, 2 * MEGABYTE),
        Task("kernel", machine.kernel, 13, MEGABYTE),
        Task("memory", partial(of_trainer, machine.memory), 8, MEGABYTE),
        Task("disks", partial(machine.disks, places), 8, MEGABYTE),
        Task("processes", listed, 8, 2 * MEGABYTE),
        Task("nccl", partial(of_trainer, machine.flight_recorder), 8, 8 * MEGABYTE),
    ]
    if url:
        tasks.insert(2, Task("exporter", partial(stack.page, url, name), 10, 4 * MEGABYTE))
    if prometheus:
        tasks.insert(
            2,
            Task(
                "diagnosis",
                partial(stack.diagnosis, prometheus, name, last, sources.queries),
                12,
                MEGABYTE,
            ),
        )
        tasks.insert(2, Task("timeline", partial(stack.timeline, prometheus, name, last), 12, 2 * MEGABYTE))
        tasks.append(Task("rules", partial(stack.rules, prometheus), 10, 2 * MEGABYTE))
    if alertmanager:
        tasks.insert(3, Task("notifications", partial(stack.notifications, alertmanager, name), 10, MEGABYTE))
    if sources.ray:
        tasks.append(
            Task("ray", partial(of_trainer, partial(machine.ray, sources.ray, logs.files)), 12, 4 * MEGABYTE)
        )
    return tasks
