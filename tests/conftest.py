"""How tests run: each file in one worker, modules compiled once, and with `--fast` no other program."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
"""What Python reports to audit hooks before it starts a program or a copy of itself."""
FUNCTION_SECONDS = 1.0
"""Of a processor, after which a test with many cases has shown enough for a fast look."""
CONTAINERS = "containers"
_COMPILED = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="skip tests that start programs or take long")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        # Hundreds of interpreters that the tests start would compile all modules again, each for a second.
        config.stash[_COMPILED] = compiled = Path(tempfile.mkdtemp(prefix="stepwatch-compiled-"))
        os.environ["PYTHONPYCACHEPREFIX"] = str(compiled)
    if config.getoption("--fast"):
        os.environ.pop("CI", None)  # a missing program skips a test here, in CI too
        config.pluginmanager.register(Fast())


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_COMPILED, None):
        shutil.rmtree(config.stash[_COMPILED], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests with containers run first, in one worker: their engines wait for each other."""
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
    """Skips each test that is about to start a program, whatever the caller makes of the refusal."""

    def __init__(self) -> None:
        self._running = ""
        self._refused: set[str] = set()
        self._used: Counter[str] = Counter()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _arguments: object) -> None:
        if self._running and event in STARTS:
            self._refused.add(self._running)
            pytest.skip("starts a program")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running, begun = item.nodeid, time.process_time()
        try:
            return (yield)
        finally:
            self._running = ""
            self._used[_function(item)] += time.process_time() - begun

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._used[_function(item)] > FUNCTION_SECONDS:
            pytest.skip("another case of a test that takes long")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and item.nodeid in self._refused:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: starts a program")
        return report


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
