"""Evidence from the machine: processes and their stacks, GPUs, the kernel's log, memory, disks, Ray, NCCL."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from exporter.evidence.bounded import Item, document
from exporter.evidence.run import tail_of
from exporter.runs.logs import processes as proc
from exporter.runs.logs.processes import GPUProcesses, Process
from exporter.runs.model.run_source import Place

PROC = "/proc"
CGROUPS = Path("/sys/fs/cgroup")
MOST_TRAINERS = 48
"""Processes of a run that are looked at: eight GPUs and their helpers."""
DUMP_SECONDS = 5.0
GPU_SECONDS = 12.0
"""Without persistence mode the driver initialises each GPU first."""
KERNEL_SECONDS = 6.0
KERNEL_BYTES = 512 * 1024
RAY_FILES, RAY_BYTES = 60, 48 * 1024
NCCL_FILES, NCCL_BYTES = 16, 1 << 20
_RAY_LOGS = "session_latest/logs"
_RAY_LIBRARY = "/ray/_raylet"
"""Part of the path of the library that each process of Ray has loaded."""
_RAY_WORDS = re.compile(
    rb"Started a local Ray instance|Connect(?:ing|ed) to (?:existing )?Ray cluster|ray::\w"
    rb"|^(?:\x1b\[\d+m)?\(\w+ pid=\d+|\bactor/pg_loss\b",
    re.MULTILINE,
)
"""What a driver's log shows of Ray: how it began, what its workers print, and verl's key, which needs it."""
_RAY_START_BYTES = 1 << 20
_FLIGHT_RECORDER = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_FLIGHT_RECORDER_ON = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FLIGHT_RECORDER_USUAL = "/tmp/nccl_trace_rank_"  # noqa: S108  (where PyTorch writes by default)
_OF_CGROUP = ("memory.events", "memory.current", "memory.max", "memory.swap.current", "memory.pressure")


def holders(wanted: Collection[Path]) -> Iterator[str]:
    """Yield the ids of the processes that have one of these files open for writing."""
    paths = {os.path.realpath(path) for path in wanted}
    own = str(os.getpid())
    for pid in proc.pids(PROC):
        if pid != own and any(
            target in paths and _writes(pid, number) for number, target in proc.open_files(PROC, pid)
        ):
            yield pid


def _writes(pid: str, number: str) -> bool:
    """Whether a file is open for writing: a reader of the log is not a trainer."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(PROC, pid, "fdinfo", number).read_text(encoding="ascii").splitlines()
        flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def trainer(writers: Iterable[str]) -> list[Process]:
    """The processes of a run, the first started first: what its writers and their launchers started."""
    place: Place = Path("run"), ""
    found = GPUProcesses().members({place: list(writers)})
    return sorted((process for process, _ in found), key=lambda each: (each.began, each.pid))[:MOST_TRAINERS]


def stacks(processes: Sequence[Process]) -> Iterator[Item]:
    """Where the Python code of each process is, by py-spy; processes are not paused for it."""
    program = shutil.which("py-spy")
    if not processes:
        yield Item("process/stack-PID.txt", "py-spy", missing="no process of the run was found")
        return
    if program is None:
        yield Item(
            "process/stack-PID.txt",
            "py-spy",
            missing="py-spy is not on PATH. Fix: `pip install py-spy` there",
        )
        return
    for process in processes:
        if not _runs_python(process.pid):
            continue
        command = (program, "dump", "--nonblocking", "--pid", str(process.pid))
        text, problem = _output(command, DUMP_SECONDS)
        if problem:  # it was read while it changed
            text, problem = _output(command, DUMP_SECONDS)
        yield Item(f"process/stack-{process.pid}.txt", " ".join(command), text, problem)


def _runs_python(pid: int) -> bool:
    try:
        return Path(os.readlink(f"{PROC}/{pid}/exe")).name.startswith("python")  # noqa: PTH115
    except OSError:
        return True  # another user's: py-spy says why


def threads(processes: Sequence[Process]) -> Iterator[Item]:
    """What the kernel shows of each process of the run: command line, state, memory; where threads wait."""
    if not processes:
        yield Item("process/trainer.txt", PROC, missing="no process of the run was found")
        return
    parts = []
    for process in processes:
        words = proc.command(PROC, process.pid).decode("utf-8", "replace").split("\0")
        parts.append(f"== {process.pid} {process.name}\ncommand: {' '.join(words).strip()}\n")
        parts.append(_text(Path(PROC, str(process.pid), "status")))
        parts.append(f"oom_score: {_text(Path(PROC, str(process.pid), 'oom_score')).strip()}\n")
        with suppress(OSError):
            for thread in sorted(os.listdir(f"{PROC}/{process.pid}/task"), key=int)[:200]:  # noqa: PTH208
                place = Path(PROC, str(process.pid), "task", thread)
                state = _text(place / "stat").rpartition(")")[2].split()[:1]
                waits = _text(place / "wchan").strip()
                name = _text(place / "comm").strip()
                parts.append(f"thread {thread} {name}: state {' '.join(state)}, waits in {waits or '?'}\n")
    yield Item("process/trainer.txt", PROC, "\n".join(parts).encode("utf-8", "replace"))


def all_processes(own: Collection[int]) -> Iterator[Item]:
    """All processes by name, and those of the run with their command lines."""
    rows = ["pid\tparent\tstate\tmemory MB\tname\tcommand, of the run only\n"]
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in sorted(proc.pids(PROC), key=int):
        if process := proc.process_of(PROC, pid):
            resident = _text(Path(PROC, pid, "statm")).split()[1:2]
            megabytes = int(resident[0]) * page >> 20 if resident else 0
            words = proc.command(PROC, pid).decode("utf-8", "replace").replace("\0", " ").strip()
            shown = words.replace("\n", " ") if process.pid in own else ""
            rows.append(f"{pid}\t{process.parent}\t{process.state}\t{megabytes}\t{process.name}\t{shown}\n")
    yield Item("machine/processes.txt", PROC, "".join(rows).encode("utf-8", "replace"))


def gpus() -> Iterator[Item]:
    """All that the driver says of its GPUs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        yield Item("machine/nvidia-smi.txt", "nvidia-smi -q", missing="nvidia-smi is not on PATH")
        return
    text, problem = _output((program, "-q"), GPU_SECONDS)
    yield Item("machine/nvidia-smi.txt", "nvidia-smi -q", text, problem)


def kernel() -> Iterator[Item]:
    """The end of the kernel's log."""
    why = []
    for command in (("dmesg", "--time-format", "iso"), ("journalctl", "-k", "-n", "3000", "-o", "short-iso")):
        program = shutil.which(command[0])
        if program is None:
            why.append(f"{command[0]} is not on PATH")
            continue
        text, problem = _output((program, *command[1:]), KERNEL_SECONDS)
        if not problem and text.strip():
            last = text[-KERNEL_BYTES:]
            yield Item("machine/kernel.txt", " ".join(command), last[last.find(b"\n") + 1 :] or last)
            return
        why.append(f"{command[0]}: {problem or 'empty'}")
    yield Item("machine/kernel.txt", "dmesg, journalctl -k", missing="; ".join(why))


def memory(processes: Iterable[Process]) -> Iterator[Item]:
    """Memory, load and pressure of the machine, and of the cgroups of the run up to the root."""
    sources = [Path(PROC, name) for name in ("meminfo", "loadavg", "uptime", "vmstat")]
    sources += sorted(Path(PROC, "pressure").glob("*"))
    yield Item("machine/memory.txt", PROC, _joined(sources))
    groups: dict[Path, None] = {}
    for process in processes:
        for line in _text(Path(PROC, str(process.pid), "cgroup")).splitlines():
            number, _, path = line.split(":", 2)
            group = CGROUPS / path.lstrip("/") if number == "0" else None
            while group is not None and group.is_relative_to(CGROUPS):
                groups[group] = None
                group = group.parent
    found = [group / name for group in groups for name in _OF_CGROUP if (group / name).exists()]
    missing = "" if found else "no cgroup of the run with a memory controller was found"
    yield Item("machine/cgroups.txt", str(CGROUPS), _joined(found) if found else b"", missing)


def disks(paths: Iterable[Path]) -> Iterator[Item]:
    """The free space of the file systems that these paths are on. One that hangs ends it."""
    rows = []
    for path in dict.fromkeys((*paths, Path("/"), Path("/tmp"), Path("/dev/shm"))):  # noqa: S108
        with suppress(OSError):
            at = os.statvfs(path)
            rows.append(
                {
                    "path": str(path),
                    "bytes": at.f_frsize * at.f_blocks,
                    "available_bytes": at.f_frsize * at.f_bavail,
                    "inodes": at.f_files,
                    "available_inodes": at.f_favail,
                }
            )
    yield Item("machine/disks.json", "statvfs", document(rows))


def ray(folder: Path, own: Iterable[Path], processes: Iterable[Process]) -> Iterator[Item]:
    """The ends of the newest logs of Ray's last session, if the run uses Ray.

    Args:
        folder: Ray's.
        own: The run's logs.
        processes: Those of the run.
    """
    logs = folder / _RAY_LOGS
    if not logs.is_dir():
        yield Item("ray", str(logs), missing="no such folder")
        return
    if not (any(map(_loaded_ray, processes)) or any(map(_names_ray, own))):
        why = "neither the run's processes nor its logs show Ray; the last session belongs to another job"
        yield Item("ray", str(logs), missing=why)
        return
    real = logs.resolve()
    found = []
    for above, _, names in os.walk(real):
        for name in names:
            path = Path(above, name)
            with suppress(OSError):
                status = path.stat()
                if path.is_file() and status.st_size:
                    found.append((status.st_mtime, path))
    found.sort(reverse=True)
    for _, path in found[:RAY_FILES]:
        name = "_".join(path.relative_to(real).parts)
        try:
            text, lead = tail_of(path, RAY_BYTES)
        except OSError as problem:
            yield Item(f"ray/{name}", str(path), missing=str(problem.strerror))
            continue
        yield Item(f"ray/{name}", str(path), text, f"its last {RAY_BYTES >> 10} KiB" if lead else "", lead)
    if len(found) > RAY_FILES:
        yield Item("ray", str(logs), missing=f"{len(found) - RAY_FILES} older files are left out")


def _loaded_ray(process: Process) -> bool:
    if process.name.startswith(("ray::", "raylet")):
        return True
    with suppress(OSError):
        return _RAY_LIBRARY in Path(PROC, str(process.pid), "maps").read_text(errors="replace")
    return False


def _names_ray(log: Path) -> bool:
    """Whether Ray is in the beginning or at the end of a log."""
    with suppress(OSError), log.open("rb") as file:
        begin = file.read(_RAY_START_BYTES)
        return bool(_RAY_WORDS.search(begin) or _RAY_WORDS.search(tail_of(log, _RAY_START_BYTES)[0]))
    return False


def flight_recorder(processes: Iterable[Process]) -> Iterator[Item]:
    """What PyTorch's flight recorder of NCCL wrote, where the environment of a process of the run says so."""
    prefixes: dict[str, None] = {}
    for process in processes:
        known = _environment(process.pid, (*_FLIGHT_RECORDER, *_FLIGHT_RECORDER_ON))
        named = [known[name] for name in _FLIGHT_RECORDER if known.get(name)]
        if not named and any(known.get(name, "0") != "0" for name in _FLIGHT_RECORDER_ON):
            named = [_FLIGHT_RECORDER_USUAL]
        prefixes.update(dict.fromkeys(named))
    if not prefixes:
        yield Item("nccl", "environment", missing="no process of the run has NCCL's flight recorder enabled")
        return
    for prefix in prefixes:
        at = Path(prefix)
        found = sorted(at.parent.glob(f"{glob.escape(at.name)}*")) if at.is_absolute() else []
        for path in found[:NCCL_FILES]:
            with suppress(OSError):
                with path.open("rb") as file:
                    content = file.read(NCCL_BYTES + 1)
                if len(content) > NCCL_BYTES:
                    yield Item(f"nccl/{path.name}", str(path), missing=f"larger than {NCCL_BYTES >> 20} MiB")
                else:
                    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime))
                    yield Item(f"nccl/{path.name}", f"{path}, written {when}", content, binary=True)
        if not found:
            yield Item("nccl", f"{prefix}*", missing="nothing was dumped")


def _environment(pid: int, names: Collection[str]) -> Mapping[str, str]:
    """These variables of a process: no other is looked at."""
    try:
        pairs = Path(PROC, str(pid), "environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name in names}


def _joined(paths: Iterable[Path]) -> bytes:
    return "".join(f"== {path}\n{_text(path)}\n" for path in paths).encode("utf-8", "replace")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        return f"({problem.strerror})\n"


def _output(command: Sequence[str], seconds: float) -> tuple[bytes, str]:
    """What a command prints, and why that is not what it should be."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return b"", f"no answer within {seconds:.0f} s"
    except OSError as problem:
        return b"", str(problem.strerror)
    if done.returncode:
        says = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        return done.stdout, f"exit code {done.returncode}: {says[-1][:300] if says else 'no word'}"
    return done.stdout, ""
