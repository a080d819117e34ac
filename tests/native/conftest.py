from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.deploy.native import commands
from stepwatch.deploy.native.commands import Processes
from stepwatch.deploy.native.stack import Part, Web
from stepwatch.deploy.native.state import State
from stepwatch.deploy.native.status import status
from stepwatch.services import lifecycle
from stepwatch.services.settings import Settings
from tests.native.installation import MAINLY_NEWEST, Installation, made
from tests.real import free_port
from tests.real.working import working_in

STANDIN = Path(__file__).with_name("standin.py")


class StandInStack:
    """A stack of small processes that goes the same way as the real one."""

    def __init__(self, folder: Path) -> None:
        self.place = State(folder)
        self.said: list[str] = []

    def part(
        self, name: str, *, port: int | None = None, settings: Path | None = None, die: bool = False
    ) -> Part:
        port = port or free_port()
        flags = ["--settings", str(settings)] if settings else []
        address = f"127.0.0.1:{port}"
        return Part(
            name=name,
            command=(sys.executable, str(STANDIN), str(port), *flags, *(["--die"] if die else [])),
            web=Web("127.0.0.1", {name: port}, address, "/-/ready", f"http://{address}"),
            shows="nothing much",
            settings=Settings(str(settings.parent), (settings.name,), "part") if settings else None,
        )

    def up(self, *parts: Part) -> int:
        self.said.clear()
        self.place.create()
        fresh = commands.start(parts, self.place, self.said.append)
        return commands.settle(parts, fresh, self.place, self.said.append)

    def status(self) -> int:
        self.said.clear()
        return status(self.place, self.said.append)

    def down(self) -> int:
        self.said.clear()
        return Processes(Path("no config"), self.place, self.said.append).down()

    def pids(self) -> set[int]:
        """Of every process, those that parts started included."""
        return working_in(self.place.folder)

    @property
    def words(self) -> str:
        return "\n".join(self.said)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PATIENCE", 30)


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Iterator[StandInStack]:
    stack = StandInStack(tmp_path / "state")
    yield stack
    stack.down()


@pytest.fixture(name="installation", params=MAINLY_NEWEST)
def _installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, request.param)
    yield installation
    installation.run("down")
