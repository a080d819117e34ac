"""What is collected into an archive, in which order, how long each part may take; and how it is packed."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter.evidence import machine, run, stack
from exporter.evidence.bounded import Item, Result, Task, document, run_all
from exporter.evidence.run import RunLogs
from exporter.runs.logs.find import Found
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
MOST_BYTES = 45 * 1024 * 1024
"""Of all contents before they are packed, so that an archive stays below 50 MB whatever it holds."""
KEPT = 20
"""Archives in one folder: the oldest go first."""
SUFFIX = ".evidence.tar.gz"
_OURS = re.compile(r"\d{8}T\d{6}Z-\d+-.*" + re.escape(SUFFIX))
_HALF = ".partial"
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Sources:
    """Where evidence is looked for.

    Attributes:
        paths: The watched folders.
        exporter: URL of the run exporter; empty if there is none, as for the next two.
        prometheus: URL of Prometheus.
        alertmanager: URL of Alertmanager.
        login: The headers that sign in to these two.
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
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    ray: Path | None = None
    options: Options = field(default_factory=Options)
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[Mapping[str, Any]] = ()
    config: Path | None = None


class UnknownRunError(Exception):
    """Raised when no run has that name; says which names are nearest."""


class WriteError(Exception):
    """Raised when the archive cannot be written: what, why and the fix."""


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
            "run": name,
        }
        with run_all(_tasks(name, sources, found), out, begun + COLLECT_SECONDS) as results:
            return _write(about, out, results, begun + PACK_SECONDS)
    except OSError as problem:
        raise WriteError(
            f"--out {out}: cannot be written ({problem.strerror}). Expected: a folder with room for 50 MB. "
            "Fix: make room there, or name another folder."
        ) from None


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
            logs = tuple(map(_log, answer["found"]))
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
        "found": [asdict(each) for each in logs.found],
        "part": logs.part,
        "known": known,
        "writers": writers,
    }
    yield Item("found", "", document(answer))


def _log(plain: Mapping[str, Any]) -> Found:
    """A log from what JSON has of it."""
    paths = {"path": Path(plain["path"]), "root": Path(plain["root"])}
    return Found(**{**plain, **paths, "parts": tuple(map(Path, plain["parts"]))})


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
    url, prometheus = sources.exporter, stack.Api(sources.prometheus, sources.login)
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
    if prometheus.url:
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
    if sources.alertmanager:
        alertmanager = stack.Api(sources.alertmanager, sources.login)
        tasks.insert(3, Task("notifications", partial(stack.notifications, alertmanager, name), 10, MEGABYTE))
    if sources.ray:
        tasks.append(
            Task("ray", partial(of_trainer, partial(machine.ray, sources.ray, logs.files)), 12, 4 * MEGABYTE)
        )
    return tasks


def _write(about: dict[str, Any], folder: Path, results: Sequence[Result], until: float) -> Path:
    """Write an archive in one step and return its path; the first results have the room first.

    Args:
        about: The head of the index, with the run's name.
        folder: Where; archives there that are too many are removed.
        results: What was found.
        until: When to stop packing, in seconds of the monotonic clock: the index names the rest.

    Raises:
        OSError: It cannot be written. Nothing is left of it.
    """
    now = datetime.now(timezone.utc)
    label = _SAFE.sub("_", about["run"]).strip("._")[:80] or "run"
    final = folder / f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{label}{SUFFIX}"
    half = folder / f".{final.name}{_HALF}"
    handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            _pack(out, about, results, final.name.removesuffix(".tar.gz"), until)
            out.flush()
            os.fsync(out.fileno())
        half.replace(final)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
    _tidy(folder)
    return final


def _pack(out: Any, about: dict[str, Any], results: Sequence[Result], top: str, until: float) -> None:
    left, entries = MOST_BYTES, []
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for result in results:
            for item in result.items:
                missing, size = item.missing, item.size
                if size > left:
                    missing, size = f"left out: {size} bytes exceed the size limit", 0
                elif time.monotonic() > until:
                    missing, size = "left out: no time left to pack it", 0
                elif size:
                    _add(tar, f"{top}/{item.name}", item.content())
                left -= size
                entries.append({"name": item.name, "source": item.source, "bytes": size, "missing": missing})
        tasks = [
            {"task": each.task.name, "seconds": round(each.seconds, 2), "problem": scrubbed(each.problem)}
            for each in results
        ]
        index = {**about, "tasks": tasks, "items": entries}
        text = json.dumps(index, ensure_ascii=False, indent=1).encode("utf-8", "replace")
        _add(tar, f"{top}/index.json", text)
        _add(tar, f"{top}/README.txt", _readme(index).encode("utf-8", "replace"))


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(content), 0o600, int(time.time())
    tar.addfile(about, io.BytesIO(content))


def _readme(index: dict[str, Any]) -> str:
    there = [each for each in index["items"] if each["bytes"]]
    lacking = [each for each in index["items"] if each["missing"]]
    late = [each for each in index["tasks"] if each["problem"]]
    lines = [
        f"Evidence about the run {index['run']}, by Stepwatch {index['version']} at {index['collected']}.",
        "Secrets are masked as (secret). index.json has the same for programs.",
        *index["remarks"],
        "",
        "Contents and sources:",
        *(f"  {each['name']}: {each['source']}" for each in there),
        "",
        "Missing or incomplete, and why:",
        *(f"  {each['name']}: {each['missing']}" for each in lacking),
        *(f"  {each['task']}: {each['problem']}" for each in late),
        *([] if lacking or late else ["  nothing"]),
        "",
        "Duration of each part:",
        *(f"  {each['task']}: {each['seconds']} s" for each in index["tasks"]),
    ]
    return "\n".join(lines) + "\n"


def _tidy(folder: Path) -> None:
    """Remove the oldest archives beyond the limit, and halves of which nothing came; nothing else."""
    with suppress(OSError):
        archives = sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name) and _is_own(path))
        for path in archives[:-KEPT]:
            path.unlink(missing_ok=True)
        for path in folder.glob(f".*{SUFFIX}{_HALF}"):
            ours = _OURS.fullmatch(path.name[1 : -len(_HALF)]) and _is_own(path)
            if ours and time.time() - path.stat().st_mtime > 3600:  # else it may be being written
                path.unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
