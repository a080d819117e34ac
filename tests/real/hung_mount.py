"""A real file system that hangs as one does whose file server is dead, and comes back.

bindfs passes a folder through FUSE. Stopped by SIGSTOP, it answers no call: anyone who asks for a file there
waits in the kernel, and only SIGKILL ends the wait, as with NFS.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.real.tools import unavailable
from tests.real.waiting import eventually

AT_ONCE = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
"""The kernel remembers no name and no size: each look at a file asks the server."""


class Mount:
    """A mounted file system.

    Args:
        folder: Where it is mounted.
        behind: The folder whose files it shows. Read and write there while the mount hangs, as a trainer
            on another machine does.
    """

    def __init__(self, folder: Path, behind: Path) -> None:
        self.folder, self.behind, self.hangs = folder, behind, False
        self._server: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Mount it; returns once it answers."""
        command = ["bindfs", "-f", "-o", AT_ONCE, str(self.behind), str(self.folder)]
        self._server = server = subprocess.Popen(command)
        eventually(lambda: server.poll() is not None or self.folder.is_mount())
        if server.returncode is not None:
            raise RuntimeError(f"bindfs ended with {server.returncode}")

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._signal(signal.SIGSTOP)
        self.hangs = True

    def come_back(self) -> None:
        """Answer what was asked meanwhile, and whatever comes."""
        self._signal(signal.SIGCONT)
        self.hangs = False

    def unmount(self) -> None:
        """End it: the folder below is seen again. Whoever still waits for the mount gets an error."""
        if self._server is None:
            return
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        self._signal(signal.SIGKILL)
        self._server.wait()
        self._server = None

    def _signal(self, number: signal.Signals) -> None:
        if self._server is None:
            raise RuntimeError(f"{self.folder} is not mounted")
        self._server.send_signal(number)


@contextmanager
def mounted(folder: Path, behind: Path | None = None) -> Iterator[Mount]:
    """Mount a file system at a folder; at the end no process is left that waits for it.

    Skips the test where this cannot be; fails it in CI.

    Args:
        folder: Made if need be.
        behind: The folder whose files it shows; a new one by default.
    """
    if os.geteuid() != 0:
        unavailable("only root may mount a file system that hangs")
    if not Path("/dev/fuse").exists():
        unavailable("/dev/fuse is missing: the kernel or the container has no FUSE")
    if shutil.which("bindfs") is None:
        unavailable("bindfs is missing (apt-get install bindfs)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as other:
        mount = Mount(folder, behind or Path(other))
        mount.mount()
        try:
            yield mount
        finally:
            with suppress(ProcessLookupError):
                mount.unmount()
