"""How tests run: each file in one worker, modules compiled once, and with `--fast` no other program."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from typing import NoReturn

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
"""What Python reports to audit hooks before it starts a program or a copy of itself."""
SECONDS = 1.0
"""What a test with all its cases may take of a processor when only fast ones are wanted."""
CONTAINERS = "containers"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="skip tests that start programs or take long")


def pytest_configure(config: pytest.Config) -> None:
    # Else each of hundreds of interpreters that tests start would compile all modules again, for a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("--fast"):
        os.environ.pop("CI", None)  # a missing program skips a test here, in CI too
        config.pluginmanager.register(Fast())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have tests with containers run first, in one worker: their engines wait for each other."""
    if config.getoption("--fast"):
        items[:] = [item for item in items if not any(item.iter_markers("e2e"))]
    for item in items:
        if "docker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(CONTAINERS))
    items.sort(key=lambda item: not any(item.iter_markers("xdist_group")))


class ByFile(LoadGroupScheduling):
    """Gives a worker all tests of a file, or of a group: they share what takes long to start."""

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    return ByFile(config, log) if config.getoption("dist") == "loadgroup" else None


class Fast:
    """Leaves out each test that is about to start a program, and what of a test takes long.

    A test, whatever the caller makes of the refusal, is skipped once it wants a program. Nothing has to be
    marked, so a new test is a fast one until it is seen to be none.
    """

    def __init__(self) -> None:
        self._running = ""
        self._skipped: dict[str, str] = {}
        self._used: Counter[str] = Counter()
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, lambda *_: self._skip("takes long"))

    def _skip(self, reason: str) -> NoReturn:
        self._skipped[self._running] = f"Skipped: {reason}"
        pytest.skip(reason)

    def _audit(self, event: str, _arguments: object) -> None:
        if self._running and event in STARTS:
            self._skip("starts a program")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running = item.nodeid
        try:
            return (yield)
        finally:
            self._running = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        function, begun = pyfuncitem.nodeid.partition("[")[0], time.process_time()
        if self._used[function] >= SECONDS:
            self._skip("takes long")
        signal.setitimer(signal.ITIMER_PROF, SECONDS - self._used[function])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._used[function] += time.process_time() - begun

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and item.nodeid in self._skipped:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, self._skipped[item.nodeid])
        return report


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.list: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.list.append(record.getMessage())


@pytest.fixture(name="logged")
def _logged() -> Iterator[list[str]]:
    """The messages that our code logs in this process, from warnings on, as they come."""
    handler = _Messages()
    logging.getLogger().addHandler(handler)
    yield handler.list
    logging.getLogger().removeHandler(handler)
