"""What is collected about a run into one archive, how long each item may take, and how it is packed.

Each item is collected by a process of its own with limits of time and size: a hung disk, driver or server
costs only that item. (A thread that waits for a dead disk would keep the whole process from ending.)
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import resource
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlencode

from exporter import __version__
from exporter.http.exposition import escape
from exporter.runs.files import launch
from exporter.runs.files.state import State
from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import gathered, printable, run_name
from exporter.runs.logs.processes import GPUProcesses, Writers
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.pages import web
from exporter.runs.readers.content import content
from exporter.runs.readers.follow import LAST_LINE_SECONDS
from exporter.runs.serve.endpoints import unknown
from exporter.runs.signals.key import Keys
from exporter.runs.signals.record import Record
from exporter.secret_shapes import scrubbed

KEPT = 20
"""Archives in one folder: the oldest go first."""
FIND_SECONDS, COLLECT_SECONDS = 8.0, 20.0
"""From the start; packing takes seconds more."""
MOST_BYTES = 45 << 20
MOST_FILES, MOST_PROCESSES, STEPS, TAIL_BYTES = 6, 48, 200, 2 << 20
HEAD_BYTES, END_BYTES, READ_WHOLE_BYTES = 256 << 10, 24 << 20, 64 << 20
"""Of a text longer than the last the head is read, which may name columns and the trainer, and the end."""
BEFORE_SECONDS, AFTER_SECONDS, POINT_SECONDS = 24 * 3600, 6 * 3600, 60
"""The timeline of alerts, around the end of the run's log."""
_OURS = re.compile(r"\.?\d{8}T\d{6}Z-\d+-.*\.evidence\.tar\.gz(\.partial)?")


class EvidenceError(Exception):
    """Raised when there is no such run, or the archive cannot be written; says why, and the fix."""


class Sources(NamedTuple):
    """Where evidence is looked for: run folders, URLs of servers, and the settings in force.

    ``login``: the headers that sign in to Prometheus and Alertmanager.
    """

    paths: Sequence[str]
    exporter: str | None = None
    prometheus: str | None = None
    alertmanager: str | None = None
    signals: Keys = MappingProxyType({})
    limits: Mapping[str, Any] = {}
    login: Mapping[str, str] = {}
    config: Path | None = None


class Item(NamedTuple):
    """A file of the archive: a command that prints it, or a function that returns it; and its limits.

    What is ``raw`` keeps its secrets: it is not archived.
    """

    name: str
    source: str
    work: Callable[[], bytes] | tuple[str, ...]
    seconds: float = 8
    most: int = 1 << 20
    raw: bool = False


class Result(NamedTuple):
    """What was found of an item; ``problem`` says why that may not be all; ``late``: it was killed."""

    item: Item
    content: bytes
    problem: str
    seconds: float
    late: bool


def run_all(items: Iterable[Item], until: float) -> list[Result]:
    """Collect items at the same time. What is late, by its own limit or the monotonic clock, is killed."""
    begun, waiting, results = time.monotonic(), {}, dict[int, Result]()
    for item in items:
        files = os.memfd_create("content"), os.memfd_create("problem")
        if (pid := os.fork()) == 0:
            _work(item, *files)
        with suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(pid, pid)
        waiting[pid] = item, files
    order = list(waiting)
    while waiting:
        for pid, (item, files) in list(waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            seconds = time.monotonic() - begun
            late = not ended and (seconds >= item.seconds + 2 or begun + seconds >= until)
            if ended or late:
                with suppress(OSError):  # and what it started; not waited for, since it may hang with a disk
                    os.killpg(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(status)
                results[pid] = _result(item, files, code, seconds, late=late)
                del waiting[pid]
        time.sleep(0.02)
    return [results[pid] for pid in order]


def _work(item: Item, file: int, problem: int) -> NoReturn:
    """Do an item's work, in the child: what it finds, without secrets, and why that may not be all."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for place, to in enumerate((os.open(os.devnull, os.O_RDONLY), file, problem)):
            os.dup2(to, place)
        resource.setrlimit(resource.RLIMIT_FSIZE, (item.most, item.most))
        found, code = _found(item)
        if len(found) >= item.most:  # a secret of which half was cut off would not be recognised
            os.write(2, f"\nits first {item.most >> 10} KiB\n".encode())
            found, code = found[: found.rfind(b"\n", 0, item.most) + 1], 1
        if not item.raw:
            found = scrubbed(found.decode("utf-8", "replace")).encode("utf-8", "replace")[: item.most]
        with os.fdopen(1, "wb") as out:
            out.write(found)
        os._exit(min(abs(code), 1))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, web.PollError) as fault:
        reason = getattr(fault, "strerror", None) or next(iter(fault.args), "")
        os.write(2, f"{reason}\n".encode("utf-8", "replace"))
    finally:
        os._exit(1)


def _found(item: Item) -> tuple[bytes, int]:
    """What a function returns; or what a command prints within its time, and its exit code."""
    if callable(item.work):
        return item.work(), 0
    raw, code = os.memfd_create("raw"), 1
    try:
        code = subprocess.run(
            item.work, stdin=subprocess.DEVNULL, stdout=raw, timeout=item.seconds, check=False
        ).returncode
        if code:
            os.write(2, b"" if os.lseek(2, 0, os.SEEK_END) else f"exit code {code}".encode())
    except subprocess.TimeoutExpired:
        os.write(2, f"\nno answer within {item.seconds:.0f} s".encode())
    except FileNotFoundError:
        os.write(2, f"{item.work[0]} is not on PATH".encode())
    return os.pread(raw, item.most, 0), code


def _result(item: Item, files: tuple[int, int], code: int, seconds: float, *, late: bool) -> Result:
    found, says = (os.pread(file, item.most, 0) for file in files)
    for file in files:
        os.close(file)
    problem = says.decode("utf-8", "replace").strip().rpartition("\n")[2][:300] if code or not found else ""
    if late:
        problem = f"no answer within {seconds:.0f} s"
    elif code < 0:
        problem = f"killed by signal {-code}"
    return Result(item, found, problem, seconds, late)


def collect(name: str, sources: Sources, out: Path) -> Path:
    """Collect what there is about a run, within 30 s whatever hangs, and return the archive's path.

    Raises:
        EvidenceError: There is no such run, or the archive cannot be written to the folder ``out``.
    """
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _write(name, out, _results(name, sources))
    except OSError as problem:
        raise EvidenceError(
            f"--out {out}: cannot be written ({problem.strerror}). Expected: a folder with room for 50 MB. "
            "Fix: make room there, or name another folder."
        ) from None


def _results(name: str, sources: Sources) -> list[Result]:
    """What is found of each item; the most valuable come first, and have the room of the archive first."""
    begun = time.monotonic()
    logs, known, pids = Logs(), set[str](), list[int]()
    work = partial(_find, name, sources.paths)
    searches = [Item("logs", ", ".join(sources.paths), work, FIND_SECONDS, 16 << 20, raw=True)]
    if at := sources.exporter:
        searches.append(_answer("stack/runs.json", f"{at}/api/v1/runs", {}, seconds=6, most=4 << 20))
    found, *pages = run_all(searches, begun + FIND_SECONDS)
    if found.content:
        logs, known, pids = pickle.loads(found.content)  # noqa: S301  (our own process wrote it)
    for page in pages:
        with suppress(ValueError, LookupError, TypeError):  # it is the answer of something else
            known |= {each["run"] for each in json.loads(page.content)["runs"]}
    # Where one of the two hangs, the run may well exist.
    if found.content and not any(page.late for page in pages) and not logs.found and name not in known:
        raise EvidenceError(unknown(name, known))
    results = run_all(_items(name, sources, logs, pids), begun + COLLECT_SECONDS)
    return [found._replace(content=b""), *pages, *results]


class Logs(NamedTuple):
    """The logs that lead to the name of a run, and ``part``: what the log calls it where it holds several.

    ``files``: the newest of their files, with what the wrapper wrote beside them.
    """

    found: Sequence[Found] = ()
    part: str = ""
    files: Sequence[Path] = ()


def _find(run: str, paths: Sequence[str]) -> bytes:
    """The logs of a run, the names that all logs give, and the ids of the run's processes."""
    exact, within, known = list[Found](), list[tuple[str, Found]](), set[str]()
    for found in gathered(find.files(paths)):
        if found.path.name.endswith(launch.SUFFIX):
            continue
        known.add(run_name(found.relative))
        names = {run_name(found.relative), printable(found.relative), printable(found.path.absolute())}
        exact += [found] if run in names else []
        within += [(name, found) for name in names if run.startswith(f"{name}/")]
    part = ""
    if within and not exact:
        longest = max((name for name, _ in within), key=len)
        exact, part = [found for name, found in within if name == longest], run[len(longest) + 1 :]
    exact.sort(key=lambda found: found.changed, reverse=True)
    files = [each for found in exact for path in found.parts for each in (path, launch.beside(path))]
    files = [path for path in files if path.exists()]
    writers = Writers()
    writers.look(files, time.monotonic())
    ids = {pid for path in files if (pid := writers.of(path).process)}
    # What the writers and their launchers started, the first started first.
    members = [each for each, _ in GPUProcesses().members({(Path("run"), ""): ids})] if ids else []
    pids = [each.pid for each in sorted(members, key=lambda each: (each.began, each.pid))]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    logs = Logs(exact[:MOST_FILES], part, files[:MOST_FILES])
    return pickle.dumps((logs, known, pids[:MOST_PROCESSES]))


def _items(name: str, sources: Sources, logs: Logs, pids: Sequence[int]) -> Iterator[Item]:
    for number, found in enumerate(logs.found):
        work = partial(_records, found, logs.part, Options(keys=sources.signals))
        yield Item(f"records{f'-{number}' if number else ''}.jsonl", str(found.path), work, 14, 4 << 20)
    for path in logs.files:
        flat = "_".join(path.parts[-3:]).replace("/", "")
        yield Item(f"logs/{flat}", str(path), partial(tail, path), 14, TAIL_BYTES + 1)
    limits, login = _document(sources.limits), sources.login
    yield Item("stack/limits.json", "config.yaml, as rendered", lambda: limits, 5)
    config = sources.config
    read = config.read_bytes if config else partial(_missing, "its path is not set: --config-yaml")
    yield Item("stack/config.yaml", str(config or "config.yaml"), read, 5)
    if at := sources.prometheus:
        last = max((found.changed for found in logs.found), default=time.time())
        yield Item("alerts/timeline.json", at, partial(_timeline, at, login, name, last), 12, 2 << 20)
    if at := sources.alertmanager:
        run = quote(f'run="{escape(name)}"')
        yield _answer("alerts/alertmanager.json", f"{at}/api/v2/alerts?filter={run}", login)
        yield _answer("alerts/silences.json", f"{at}/api/v2/silences", login)
    for pid in pids:
        with suppress(OSError):  # another user's: py-spy says why
            if not Path(f"/proc/{pid}/exe").readlink().name.startswith("python"):
                continue
        yield _printed(f"process/stack-{pid}.txt", "py-spy", "dump", "--nonblocking", "--pid", str(pid))
    if own := ",".join(map(str, pids)):
        columns = "pid,ppid,stat,lstart,rss,vsz,args"
        yield _printed("process/trainer.txt", "ps", "-ww", "-o", columns, "-p", own)
        yield _printed("process/threads.txt", "ps", "-L", "-o", "pid,lwp,stat,wchan:32,comm", "-p", own)
    else:
        yield Item("process/trainer.txt", "ps", partial(_missing, "no process of the run was found"))
    yield _printed("machine/processes.txt", "ps", "-eo", "pid,ppid,stat,rss,etime,comm")
    yield _printed("machine/nvidia-smi.txt", "nvidia-smi", "-q", seconds=12)
    # Only root may read the kernel's ring buffer on most machines; its journal may be open to more.
    yield _printed("machine/dmesg.txt", "dmesg", "--time-format", "iso", most=4 << 20)
    yield _printed("machine/journal.txt", "journalctl", "-k", "-n", "3000", "-o", "short-iso")
    yield Item("machine/memory.txt", "/proc, /sys/fs/cgroup", partial(_memory, pids))
    places = dict.fromkeys([*(str(found.path.parent) for found in logs.found), "/", "/tmp", "/dev/shm"])  # noqa: S108
    yield _printed("machine/disks.txt", "df", "--output=source,fstype,size,avail,iavail,target", *places)
    if at := sources.prometheus:
        yield _answer("stack/rules.json", f"{at}/api/v1/rules?type=alert", login, most=4 << 20)


def _printed(name: str, *command: str, seconds: float = 8, most: int = 1 << 20) -> Item:
    return Item(name, " ".join(command), command, seconds, most)


def _answer(name: str, url: str, login: Mapping[str, str], seconds: float = 8, most: int = 1 << 20) -> Item:
    return Item(name, url, lambda: web.get(url, login, seconds, most=most).body, seconds + 1, most)


def _write(name: str, folder: Path, results: Sequence[Result]) -> Path:
    """Write the archive in one step, for its owner alone, and remove the oldest; returns its path."""
    now, left = datetime.now(timezone.utc), MOST_BYTES
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:80] or "run"
    top = f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{label}.evidence"
    final, half = folder / f"{top}.tar.gz", folder / f".{top}.tar.gz.partial"
    contents, items = dict[str, bytes](), list[dict[str, Any]]()
    for item, found, problem, seconds, _ in results:
        kept, missing = found, problem
        if len(found) > left:
            kept, missing = b"", f"left out: {len(found)} bytes exceed the size limit"
        left -= len(kept)
        member, source = scrubbed(item.name), scrubbed(item.source)
        if member in contents:
            member = f"{member}-{len(items)}"
        contents |= {member: kept} if kept else {}
        size = {"name": member, "source": source, "bytes": len(kept), "seconds": round(seconds, 2)}
        items.append({**size, "problem": scrubbed(missing)})
    head = {"run": scrubbed(name), "collected": _time(now.timestamp()), "version": __version__}
    contents = {"index.json": _document({**head, "items": items}), **contents}
    try:
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
                for member, data in contents.items():
                    about = tarfile.TarInfo(f"{top}/{member}")
                    about.size, about.mode, about.mtime = len(data), 0o600, int(time.time())
                    tar.addfile(about, io.BytesIO(data))
            file.flush()
            os.fsync(file.fileno())
        half.replace(final)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
    with suppress(OSError):
        own = sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.is_file())
        old = [path for path in own if path.suffix == ".gz"][:-KEPT]
        # What a kill left behind; a newer one may be being written.
        old += [path for path in own if path.suffix != ".gz" and time.time() - path.stat().st_mtime > 3600]
        for path in old:
            path.unlink(missing_ok=True)
    return final


def _records(found: Found, part: str, options: Options) -> bytes:
    """The last steps as the run exporter reads them: our signals, and values by the trainer's own keys."""
    rows = dict[int, list[dict[str, Any]]]()

    def note(run: Run, record: Record, signals: Mapping[str, float], clock: Clock) -> None:
        at, own = clock.of(record), rows.setdefault(run.serial, [])
        if not own or own[-1]["step"] != record.step:
            when = None if at is None else _time(at)
            own.append({"step": record.step, "time": when, "signals": {}, "keys": {}})
        own[-1]["signals"].update(signals)
        own[-1]["keys"].update(record.values)
        del own[:-STEPS]

    options = replace(options, recorder=note)
    log = Log(_shortened(found), State(None), Health(), options)
    while log.more:
        log.read(time.time(), time.monotonic())
    log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())
    run = log.run_set.runs.get(part) if log.run_set else None
    if run is None or run.serial not in rows:
        raise LookupError("no step could be read")
    lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows[run.serial])
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _shortened(found: Found) -> Found:
    """A log that can be read in seconds: itself, or the head and the end of a long text, in memory."""
    parts = list(found.parts[-MOST_FILES:])
    for place, part in enumerate(parts):
        size, kind = part.stat().st_size, content(part)
        if size > READ_WHOLE_BYTES and kind in ("text", "events"):
            with part.open("rb") as file:
                head = os.pread(file.fileno(), HEAD_BYTES, 0)
                end = os.pread(file.fileno(), END_BYTES, size - END_BYTES)
            if kind == "text":  # a reader of event files finds the next frame by itself
                head, end = head[: head.rfind(b"\n") + 1], end[end.find(b"\n") + 1 :]
            copy = os.memfd_create(part.name[:200])
            with os.fdopen(os.dup(copy), "wb") as out:
                out.write(head + end)
            parts[place] = Path(f"/proc/self/fd/{copy}")
    if tuple(parts) == found.parts:
        return found
    return replace(found, path=parts[-1], root=parts[-1].parent, parts=tuple(parts))


def tail(path: Path, most: int = TAIL_BYTES) -> bytes:
    """The whole lines at the end of a text: a secret of which half was cut off would not be recognised."""
    if content(path) not in ("text", "document", "empty"):
        raise ValueError("no text: its last steps are in records.jsonl")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        text = os.pread(file.fileno(), most, max(0, size - most))
    if size > most:
        begins = re.search(rb"[\r\n]", text)
        if begins is None:
            raise ValueError(f"its last line is longer than {most >> 10} KiB")
        text = text[begins.end() :]
    # NUL bytes: holes, such as a file begins with that was emptied under its writer.
    return text.replace(b"\0", b"")


def _timeline(prometheus: str, login: Mapping[str, str], run: str, last: float) -> bytes:
    """When each alert of the run, and of machines, GPUs and the stack, was pending and fired."""
    end = min(time.time(), last + AFTER_SECONDS)  # the last point is there
    start = end - BEFORE_SECONDS
    # Each point looks back to the one before: an alert may be over within seconds.
    query = f'max_over_time(ALERTS{{run=~"|{escape(re.escape(run))}"}}[{POINT_SECONDS}s])'
    form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": str(POINT_SECONDS)}
    body = urlencode(form).encode()
    answer = web.get(f"{prometheus}/api/v1/query_range", login, 10, body, most=8 << 20).body
    rows = []
    for series in json.loads(answer)["data"]["result"]:
        spans: list[list[float]] = []
        for at, _ in series["values"]:
            if spans and at - spans[-1][1] <= 1.5 * POINT_SECONDS:
                spans[-1][1] = at
            else:
                spans.append([at, at])
        rows.append({**series["metric"], "spans": [[_time(each) for each in pair] for pair in spans]})
    return _document(rows)


def _memory(pids: Sequence[int]) -> bytes:
    """Memory, load and pressure of the machine, and of the run's cgroups up to the root."""
    files = [Path("/proc", name) for name in ("meminfo", "loadavg", "uptime", "vmstat")]
    files += sorted(Path("/proc/pressure").glob("*"))
    root, groups = Path("/sys/fs/cgroup"), dict[Path, None]()
    for pid in pids:
        with suppress(OSError):  # it has ended
            if line := re.search(r"^0::/(.+)$", Path(f"/proc/{pid}/cgroup").read_text("utf-8"), re.M):
                groups |= dict.fromkeys([root / line[1], *(root / line[1]).parents[:-4]])
    files += [file for group in groups for file in sorted(group.glob("memory.[cemps]*"))]
    parts = []
    for file in files:
        with suppress(OSError):  # some of a cgroup can only be written to
            parts.append(f"== {file}\n{file.read_text('utf-8', 'replace')}\n")
    return "".join(parts).encode()


def _missing(why: str) -> bytes:
    raise LookupError(why)


def _document(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, default=str).encode("utf-8", "replace") + b"\n"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")
