"""What each kind of fault does to the stack, how it ends, and how `make status` names it meanwhile."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwatch.system.processes import SUPERVISORD, suspended
from tests.chaos.native import WEBHOOK, Native, run
from tests.chaos.schedule import Fault

_WRITERS = {"data/exporter/*": "exporter", "data/alertmanager/nflog": "alertmanager"}
"""Whose state it is; the other files are written by `make up`."""


def nothing() -> None:
    """End a fault that has nothing to be ended."""


@dataclass(frozen=True)
class Struck:
    """A fault that lasts.

    ``done`` says what was done, ``heal`` ends it. While it lasts `make status` holds ``named``, a pattern for
    multi-line text; empty if the fault may be over before anyone can look. ``needs_up``: only `make up` ends
    it, which the user runs again once all faults are over; after others the stack comes back by itself.
    ``lasts``: Whether the stack has not ended the fault by itself.
    """

    done: str
    heal: Callable[[], object] = nothing
    named: str = ""
    needs_up: bool = False
    lasts: Callable[[], bool] = lambda: True


def strike(fault: Fault, stack: Native) -> Struck:
    """Begin a fault."""
    return _STRIKES[fault.kind](fault, stack)


def _kill(fault: Fault, stack: Native) -> Struck:
    process = stack.processes().get(fault.target)
    if not process or not stack.signal(process, signal.SIGKILL):
        return Struck(f"{fault.target} was not running")
    done = f"killed {fault.target}, pid {process.pid}"
    return _all_dead(done, stack) if fault.target == SUPERVISORD else Struck(done)


def _freeze(fault: Fault, stack: Native) -> Struck:
    process = stack.processes().get(fault.target)
    if not process or not stack.signal(process, signal.SIGSTOP):
        return Struck(f"{fault.target} was not running")
    return Struck(
        f"stopped {fault.target}, pid {process.pid}",
        lambda: stack.signal(process, signal.SIGCONT),
        stack.row(fault.target),
        # A supervisor may have replaced it, or `make up` have it go on.
        lasts=lambda: process in stack.processes().values() and suspended(process.pid),
    )


def _cut(fault: Fault, stack: Native) -> Struck:
    ports = stack.ports(fault.target)
    if not ports:
        return Struck(f"{fault.target} was not running")
    packets = ["-p", "tcp", "-m", "multiport", "--dports", ",".join(map(str, ports))]
    words = ["INPUT", *packets, "-j", *shlex.split(fault.how)]
    run("iptables", "-I", *words)
    return Struck(
        f"cut off {fault.target}",
        lambda: run("iptables", "-D", *words),
        stack.row(fault.target) if fault.target != WEBHOOK else "",
    )


def _fill(fault: Fault, stack: Native) -> Struck:
    filler = stack.place.folder / "filler"
    block = bytes(2**16)
    handle = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(OSError):
        while True:
            os.write(handle, block)
    os.close(handle)
    return Struck(
        "filled the disk",
        lambda: filler.unlink(missing_ok=True),
        "(?i)disk is full",
        lasts=filler.exists,  # the end of another such fault ends this one, too
    )


def _hang(fault: Fault, stack: Native) -> Struck:
    stack.mount.hang()
    mount = stack.mount
    return Struck(
        f"hung {mount.folder}",
        mount.come_back,
        re.escape(str(mount.folder)),
        lasts=lambda: mount.hangs,  # the end of another such fault ends this one, too
    )


def _damage(fault: Fault, stack: Native) -> Struck:
    files = [path for path in stack.place.folder.glob(fault.target) if path.is_file()]
    process = stack.processes().get(_WRITERS.get(fault.target, ""))
    if process:  # which cannot write the file again between the damage and its end
        stack.signal(process, signal.SIGSTOP)
    for path in files:
        _spoil(path, fault.how)
    if process:
        stack.signal(process, signal.SIGKILL)
    done = f"{fault.how}: {', '.join(path.name for path in files) or 'no file'}"
    if fault.target == "data/exporter/*":
        return Struck(done)
    if fault.target == "data/alertmanager/nflog":
        return Struck(done, needs_up=fault.how in ("half", "null"))
    damaged = re.escape(f"{fault.target}: the file is damaged")
    if fault.target == "parts.json":
        named = "no longer describes them" if fault.how == "deleted" else damaged
        return Struck(done, stack.repair, named, needs_up=True)
    spoiled = {path: path.read_bytes() for path in files if path.exists()}

    def lasts() -> bool:
        """Whether no command has moved the file aside yet: only the first one names it."""
        with suppress(OSError):
            return any(path.read_bytes() == content for path, content in spoiled.items())
        return False

    return Struck(done, stack.repair, damaged if spoiled else "", lasts=lasts)


def _spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "null": b"null"}[how])


def _power(fault: Fault, stack: Native) -> Struck:
    while running := stack.processes():
        for process in running.values():
            stack.signal(process, signal.SIGKILL)
    return _all_dead("killed every process", stack)


def _all_dead(done: str, stack: Native) -> Struck:
    """Return a fault that only `make up` ends, since nothing is left that would restart anything."""
    return Struck(
        done,
        stack.repair,
        "not running",
        needs_up=True,
        lasts=lambda: not stack.processes(),  # the `make up` that ends another fault ends this one, too
    )


_STRIKES: dict[str, Callable[[Fault, Any], Struck]] = {
    "kill": _kill,
    "freeze": _freeze,
    "cut": _cut,
    "fill": _fill,
    "hang": _hang,
    "damage": _damage,
    "power": _power,
}
