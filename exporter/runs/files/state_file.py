"""What an exporter restart could not rebuild from a log, in one small file per log.

verl empties its log on every start, a resume included: best, start, peak and noise of the steps
before are then nowhere else. The files lie in Stepwatch's own folder; run folders are only read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from exporter.runs.files.mounts import PATIENCE_SECONDS, Call, HungError, Mounts


def write(path: Path, title: str, body: bytes) -> None:
    """Write ``body`` atomically, making its folder if need be: a crash leaves old or new. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_bytes(_seal(title, body) + b"\n" + body)
    scratch.replace(path)


def read(path: Path, title: str, most: int = -1) -> bytes | None:
    """What the file holds; ``None`` if damaged, or longer than ``most`` bytes. Raises OSError."""
    with path.open("rb") as file:
        seal, _, body = file.read(most).partition(b"\n")
    return body if seal == _seal(title, body) else None


def _seal(title: str, body: bytes) -> bytes:
    """The first line: what the file is, and what its content must add up to."""
    return f"{title} {sha256(body).hexdigest()}".encode()


T = TypeVar("T")
TITLE = "stepwatch-state 6"
SUFFIX = ".state"
SINCE_FILE, SINCE_TITLE = "since", "stepwatch-since 1"
ABOUT_BYTES = 16384  # more than the longest path, twice
RunSnapshots = dict[str, dict[str, Any]]  # what must survive, as plain JSON values, by run


@dataclass(slots=True)
class Saved:
    """What was known of a log and the runs in it.

    ``carry`` is what each run held before the log's present content began (``None``: nothing),
    ``latest`` what they held after reading up to ``offset``. ``head`` is the start of the content,
    ``watched`` the runs that logged while it was watched. ``writer``: whether a writer was there;
    ``None`` if none was ever seen. ``marks`` are the operator's, by run: each takes effect where the run
    passes its place, and ``carry`` or ``latest`` say which places are behind it.
    """

    carry: RunSnapshots | None
    latest: RunSnapshots
    head: str
    offset: int
    watched: list[str]
    writer: bool | None = None
    marks: dict[str, list[list[Any]]] = field(default_factory=dict)

    def before(self, head: bytes, size: float) -> RunSnapshots | None:
        """What the runs held before a log with this start and size."""
        same = size >= self.offset and head.hex().startswith(self.head)
        return self.carry if same else self.latest


class About(NamedTuple):
    """A log, its file that was read last, the mount of that (empty for no log), and if it had a writer."""

    log: str
    file: str = ""
    mount: str = ""
    writer: bool = False


class StateFolder:
    """Keeps what must survive a restart; ``None`` as folder keeps nothing.

    With ``mounts``, a folder that hangs raises HungError within seconds. ``since`` is when an exporter with
    this folder first looked at its logs, in seconds since the epoch: what ended before is history.
    """

    def __init__(self, folder: Path | None, mounts: Mounts | None = None) -> None:
        self.folder = folder
        self.since = time.time()
        self._mounts = mounts
        self._opening: Call[tuple[dict[str, About], float]] | None = None
        self._known: dict[str, About] | None = None

    @property
    def ready(self) -> bool:
        """Whether it is known of which logs there is a state: looked up once, which many files make slow."""
        if self._known is None:
            self._open()
        return self._known is not None

    def _open(self) -> None:
        if self.folder is None:
            self._known = {}
            return
        begun = self.since
        if self._mounts is None:
            self._known, self.since = _opened(self.folder, begun)
            return
        with suppress(HungError):
            folder = self.folder
            if self._opening is None:
                mount, _ = self._mounts.resolve(str(folder))
                self._opening = mount.start(lambda: _opened(folder, begun, mount.mark_alive))
            if self._opening.wait(PATIENCE_SECONDS):
                self._known, self.since = self._opening.result()

    def known(self) -> Iterator[About]:
        """The logs of which there is a state."""
        return iter(list((self._known or {}).values()))

    def has_writer(self, log: str) -> bool:
        """Whether a writer was there when the log's state was written."""
        about = self._known.get(_absolute(log)) if self._known else None
        return about is not None and about.writer

    def load(self, log: Path) -> Saved | None:
        """What was saved for a log; nothing if the file is unreadable or damaged. Raises HungError."""
        if self.folder is None or (self._known is not None and _absolute(log) not in self._known):
            return None
        path = self._file(self.folder, log)
        try:
            body = self._call(lambda: read(path, TITLE))
        except HungError:
            raise
        except OSError:
            return None
        return Saved(**orjson.loads(body.partition(b"\n")[2])) if body is not None else None

    def save(self, log: Path, saved: Saved, file: Path | None = None, mount: str = "") -> None:
        """Keep it in place of what was saved; ``file`` was read last, on the file system at ``mount``.

        Raises OSError.
        """
        if self.folder is None:
            return
        path = self._file(self.folder, log)
        about = About(_absolute(log), _absolute(file) if file else "", mount, bool(saved.writer))
        names = (os.fsencode(each).decode("latin-1") for each in about[:3])  # of any bytes, as text
        body = b"\n".join(map(orjson.dumps, ((*names, about.writer), asdict(saved))))
        self._call(lambda: write(path, TITLE, body))
        if self._known is not None:
            self._known[about.log] = about

    def forget(self, log: Path) -> None:
        """Remove the state of a log that no longer exists. Raises OSError."""
        if self.folder is not None:
            path = self._file(self.folder, log)
            self._call(lambda: path.unlink(missing_ok=True))
            if self._known is not None:
                self._known.pop(_absolute(log), None)

    def _call(self, work: Callable[[], T]) -> T:
        return self._mounts.call(str(self.folder), work) if self._mounts else work()

    @staticmethod
    def _file(folder: Path, log: Path) -> Path:
        return folder / f"{sha256(os.fsencode(log.absolute())).hexdigest()[:32]}{SUFFIX}"


def _opened(
    folder: Path, begun: float, mark_alive: Callable[[], None] = lambda: None
) -> tuple[dict[str, About], float]:
    """What the files of a folder are about, and since when it is used; a new one is from now on."""
    known, path = dict[str, About](), folder / SINCE_FILE
    with suppress(OSError):
        for each in folder.iterdir():
            mark_alive()
            if each.suffix == SUFFIX and (about := _read_about(each)):
                known[about.log] = about
    with suppress(OSError, ValueError):
        if body := read(path, SINCE_TITLE, ABOUT_BYTES):
            return known, float(body)
    since = 0.0 if known else begun  # older versions wrote down no time
    with suppress(OSError):  # the first state that cannot be saved is counted
        write(path, SINCE_TITLE, repr(since).encode())
    return known, since


def _read_about(path: Path) -> About | None:
    """What a file is about, unless it is not a state file of this version."""
    try:
        with path.open("rb") as file:
            title, about = file.read(ABOUT_BYTES).split(b"\n", 2)[:2]
        log, read, mount, writer = orjson.loads(about)
    except (OSError, ValueError, TypeError):
        return None
    if not title.startswith(f"{TITLE} ".encode()) or not all(
        isinstance(each, str) for each in (log, read, mount)
    ):
        return None
    return About(_decoded(log), _decoded(read), _decoded(mount), writer is True)


def _decoded(name: str) -> str:
    return os.fsdecode(name.encode("latin-1", "replace"))


def _absolute(path: Path | str) -> str:
    return path if isinstance(path, str) and path.startswith("/") else str(Path(path).absolute())
