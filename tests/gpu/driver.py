"""A driver of our own: the library that NVIDIA's Python module loads, which a test controls."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from tests.real.tools import unavailable

SOURCES = sorted(Path(__file__).with_name("fake").glob("*.c"))
LIBRARY = "libnvidia-ml.so.1"


def uuid(gpu: int) -> str:
    """The UUID that the library gives a GPU."""
    return f"GPU-00000000-0000-0000-0000-0000000000{gpu:02d}"


@functools.cache
def _compiled() -> tuple[str, Path, list[Path]]:
    """The compiler, a folder, and the objects there that make up the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        unavailable("the stand-in for NVIDIA's library needs a C compiler")
    folder = Path(tempfile.mkdtemp(prefix="stepwatch-nvml-"))
    command = [compiler, "-c", "-O1", "-Wall", "-Werror", "-fPIC", "-pthread", *SOURCES]
    subprocess.run(command, check=True, cwd=folder)
    return compiler, folder, [folder / f"{source.stem}.o" for source in SOURCES]


@functools.cache
def library(*missing: str) -> Path:
    """The library; without these functions, as an older driver would have it."""
    compiler, folder, objects = _compiled()
    folder = Path(tempfile.mkdtemp(dir=folder))
    hidden = " ".join(f"{name};" for name in (*missing, "*"))
    (folder / "symbols").write_text(f"{{ global: nvml*; local: {hidden} }};")
    linked = ["-shared", "-pthread", f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={folder / 'symbols'}"]
    subprocess.run([compiler, *linked, "-o", folder / LIBRARY, *objects], check=True)
    return folder / LIBRARY


class Driver:
    """A folder for the library, its settings, and the calls it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reported, self._log = folder / "reported", folder / "log"
        self.tell("gpus=8")

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to load this library."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_NVML_CTL": str(self._reported),
            "FAKE_NVML_LOG": str(self._log),
            "FAKE_NVML_DEV": str(self.folder),
        }

    def install(self, *missing: str) -> None:
        """Have the library from now on; without these functions."""
        shutil.copy(library(*missing), self.folder / "new")
        (self.folder / "new").rename(self.folder / LIBRARY)

    def tell(self, *lines: str) -> None:
        """Behave like this from now on, and no longer as set before; see fake/fake.h."""
        new = self._reported.with_suffix(".new")
        new.write_text("\n".join(lines))
        new.rename(self._reported)

    def release(self) -> None:
        """Release the threads that are held."""
        self._reported.with_suffix(".release").touch()

    def calls(self) -> Counter[tuple[str, int]]:
        """How often each function was called for each GPU, -1 for none."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return Counter((name, int(gpu)) for name, _, gpu in (line.partition(" ") for line in lines))

    def forget_calls(self) -> None:
        """Count from now on."""
        self._log.unlink(missing_ok=True)
