"""A machine of its own that a real systemd runs, in namespaces: it can be rebooted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.real.tools import unavailable
from tests.real.waiting import eventually

SYSTEMD = Path("/lib/systemd/systemd")
USER = 1000
_NEEDED = ("unshare", "nsenter", "mount", "ip", "systemctl")
_NAMESPACES = "--net --pid --fork --mount --mount-proc --cgroup --ipc --uts --kill-child"

_BOOT = """
set -e
ip link set lo up
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /run/user/{user}
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind {folder}/units /etc/systemd/system
mkdir -p /var/lib/systemd/linger
mount --bind {folder}/linger /var/lib/systemd/linger
export container=test
export SYSTEMD_UNIT_PATH=/etc/systemd/system:{folder}/home/.config/systemd/user:{folder}/targets
export HOME={folder}/home XDG_RUNTIME_DIR=/run/user/{user}
{start}
"""
_SYSTEM = "exec {systemd} --system --unit=default.target --log-target=console --show-status=no"
# Root outside is this user inside, so that it can read what root can; as process 1 no user's systemd starts.
_USER = """
unshare --user --map-user={user} --map-group={user} \\
    {systemd} --user --unit=default.target --log-target=console &
wait
"""
_TARGETS = {
    "default.target": "[Unit]\nWants=multi-user.target\n",
    "multi-user.target": "[Unit]\nDescription=Multi-user\n",
    "sysinit.target": "[Unit]\nDescription=System\n",
    "basic.target": "[Unit]\nDescription=Basic\n",
    "shutdown.target": "[Unit]\nDefaultDependencies=no\n",
    "exit.target": "[Unit]\nDefaultDependencies=no\n",
}


class Machine:
    """systemd as the system's manager, or as that of a user without root's rights.

    ``folder`` holds what outlives a reboot: units and the user's home.
    """

    def __init__(self, folder: Path, *, user: bool = False) -> None:
        missing = [name for name in _NEEDED if not shutil.which(name)]
        if os.geteuid() != 0 or missing or not SYSTEMD.exists():
            unavailable(f"a machine with systemd needs root, systemd, {', '.join(_NEEDED)}")
        self.folder, self._user = folder, user
        for name in ("units", "targets", "linger", "home"):
            (folder / name).mkdir(parents=True)
        for name, text in _TARGETS.items():
            (folder / "targets" / name).write_text(text)
        mount = Path("/sys/fs/cgroup/unified")
        self._cgroup = (
            mount if mount.is_dir() else mount.parent
        ) / f"stepwatch-test-{os.getpid()}-{folder.name}"

    def boot(self) -> None:
        """Start it."""
        self._cgroup.mkdir(exist_ok=True)
        start = (_USER if self._user else _SYSTEM).format(systemd=SYSTEMD, user=USER)
        script = _BOOT.format(folder=self.folder, user=USER, start=start)
        # The shell enters the cgroup, which the namespace then shows as the root.
        enter = f'echo 0 > {self._cgroup}/cgroup.procs; exec unshare {_NAMESPACES} sh -c "$0"'
        with (self.folder / "systemd.log").open("ab") as log:
            self._machine = subprocess.Popen(["sh", "-c", enter, script], stdout=log, stderr=log)
        eventually(lambda: self.systemctl("show", "--property=Version").returncode == 0, seen=self._log)

    def crash(self) -> None:
        """End every process of it at once, as a power cut does."""
        self._machine.send_signal(signal.SIGKILL)
        self._machine.wait()
        eventually(lambda: not any(procs.read_text() for procs in self._cgroup.rglob("cgroup.procs")))

    def run(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        first = self._first()
        enter = ["nsenter", f"--target={first}", "--all", "--preserve-credentials"]
        enter += ["sh", "-c", 'cd / && exec "$@"', "sh"]  # nsenter's own --wd leads to the old root
        manager = {
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": f"/run/user/{USER}",
            "SYSTEMD_UNIT_PATH": "",
        }
        return subprocess.run(
            [*enter, *words],
            env={**os.environ, **manager, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask its systemd."""
        return self.run(["systemctl", *(["--user"] if self._user else []), *words], {})

    def _first(self) -> int:
        """The process whose namespaces are the machine's: systemd, or the user's."""
        children = _children(self._machine.pid)
        if self._user:
            inner = [each for pid in children for each in _children(pid)]
            return inner[0] if inner else 0
        return children[0] if children else 0

    def _removed(self) -> bool:
        try:
            for group in [*sorted(self._cgroup.rglob("*/"), reverse=True), self._cgroup]:
                group.rmdir()
        except OSError:  # the last processes are still ending
            return False
        return True

    def _log(self) -> str:
        return (self.folder / "systemd.log").read_text()

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.crash()
        eventually(self._removed)


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
