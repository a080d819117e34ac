"""How tests run: each file in one worker, modules compiled once, and with `--fast` no other program."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
"""What Python reports to audit hooks before it starts a program or a copy of itself."""
DOWNLOAD = "tests.download"
"""What tests report before they download a program."""
REFUSED_EVENTS = {*STARTS, DOWNLOAD}
SLOW = {"e2e", "slow"}
REFUSED = "starts a program"
CASES, CASES_SECONDS = 5, 0.1
"""Number and seconds of a processor after which the further cases of a test are left out."""
SLOW_SECONDS = 5.0
"""Of a processor, which even on a busy machine no test takes that is not marked as slow."""
WORLD = (
    "tests/compose/",
    "tests/container_targets/",
    "tests/native/",
    "tests/gpu",
    "tests/e2e/",
    "tests/parity/",
    "tests/bridge/test_actions.py",
    "tests/bridge/test_delivery.py",
    "tests/bridge/test_story.py",
    "tests/runs/alerting_health/",
    "tests/runs/targets/test_end_to_end.py",
    "tests/runs/targets/test_rl_insight.py",
    "tests/runs/pages/test_mlflow.py",
    "tests/runs/files/test_hung_mounts.py",
    "tests/runs/files/test_hung_files.py",
    "tests/runs/light/test_browser.py",
    "tests/runs/light/test_stack.py",
    "tests/cluster/",
    "tests/launch/test_checkpoints.py",
    "tests/launch/test_retries.py",
    "tests/credentials/test_browser.py",
    "tests/evidence/test_archive.py",
    "tests/evidence/test_stack.py",
    "tests/installation/",
    "tests/testalert/",
    "tests/grafana/test_drawn.py",
    "tests/grafana/test_scale.py",
    "tests/grafana/test_firing.py",
    "tests/grafana/test_clusters.py",
    "tests/grafana/test_every_panel.py",
    "tests/grafana/test_narrow.py",
    "tests/grafana/test_phases.py",
    "tests/grafana/test_stack.py",
    "tests/grafana/test_tutorial.py",
    "tests/tensorboard/",
    "tests/rules/test_mutants.py",
    "tests/chaos/",
    "tests/demo/test_hour.py",
)
"""Beginnings of what `make test-world` runs, by worth: what starts more programs than Prometheus and
Alertmanager, or waits long for clocks. Real trainers (tests/world), which take 5 GB, come last."""
FOREIGN = {
    "bindfs", "busybox", "cc", "chromedriver", "chromium", "debootstrap", "docker", "dockerd", "gcc", "ip",
    "mkfs.ext4", "node", "npm",
}  # fmt: skip
"""Programs that only tests of the world may start: `make test` needs none of them."""
TRAINERS = "tests/world/"
LEFT_OUT = "no time left"
TIME_IS_UP = "STEPWATCH_TESTS_UNTIL"
"""Environment variable: from when on no further test is started, in seconds since the epoch."""
CONTAINERS = ("tests/compose/", "tests/container_targets/")
"""Run in one worker: Docker Engines of one machine wait for each other."""
APART = ("tests/rules/test_mutants.py::", "tests/chaos/test_native.py::", "tests/parity/test_parity.py::")
"""Files of long tests that share nothing, each of which may run in any worker."""
STACKS_DONE = 0.7
"""Part of all files by which those with whole stacks have begun, so that none is left alone at the end."""

USUAL = "not world"
"""The marker expression of `make test`, as pyproject.toml has it."""

for name, examples in (("whole", 300), ("usual", 25), ("fast", 10)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
settings.load_profile("usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="skip tests that start programs or take long")
    parser.addoption("--minutes", type=float, help="start no test after so long, and say which were left out")


def pytest_configure(config: pytest.Config) -> None:
    # Else each of hundreds of interpreters that tests start would compile all modules again, for a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # What a script starts in its background ignores these, and so would all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
    if (minutes := config.getoption("--minutes")) and not hasattr(config, "workerinput"):
        os.environ[TIME_IS_UP] = str(time.time() + 60 * minutes)
    if "hypothesis" in config.getoption("markexpr"):  # the marker that it gives its tests
        settings.load_profile("whole")
    if config.getoption("--fast"):
        settings.load_profile("fast")
        os.environ.pop("CI", None)  # a missing program skips a test here, in CI too
        os.environ["STEPWATCH_TEST_RUNS"] = ""
        # What a test that is skipped had opened is closed at a moment of another one.
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
        config.pluginmanager.register(Fast())
    elif config.getoption("markexpr") == USUAL:
        sys.addaudithook(_refuse_foreign)


def _refuse_foreign(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and (place := shutil.which(os.fsdecode(str(arguments[0])))):
        folder, program = os.path.split(place)
        installed = folder.startswith("/usr/")  # others are stand-ins, which tests write
        assert not (installed and program in FOREIGN), (
            f"starts {place}: name it in WORLD of tests/conftest.py"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the world, and order all tests.

    The world is run by worth, for there may be no time for all of it. Else no worker shall be idle: files
    with a whole stack mainly wait for clocks, so they run early, between the others, which keep the processor
    busy.
    """
    worth = {item: _worth(item) for item in items}
    for item in items:
        if item.nodeid.startswith(WORLD):
            item.add_marker("world")
    if config.getoption("--fast"):
        cases: Counter[str] = Counter()
        for item in items:
            cases[_function(item)] += 1
            if cases[_function(item)] > CASES:
                item.add_marker("slow")
        items[:] = [item for item in items if not SLOW & {mark.name for mark in item.iter_markers()}]
    if "world" in config.getoption("markexpr").replace(USUAL, ""):
        if config.getoption("--minutes"):
            items[:] = [item for item in items if not item.nodeid.startswith(TRAINERS)]
        items.sort(key=worth.__getitem__)
        return
    waiting = {item.path: None for item in items if item.get_closest_marker("e2e")}
    others = {item.path: None for item in items if item.path not in waiting}
    turn = {path: number / len(waiting) * STACKS_DONE for number, path in enumerate(waiting)}
    turn |= {path: number / len(others) for number, path in enumerate(others)}
    items.sort(key=lambda item: (not item.nodeid.startswith(APART), turn[item.path]))


def _worth(item: pytest.Item) -> tuple[bool, bool, int]:
    """Where a test of the world comes: real trainers last, before them further cases that have its marker."""
    places = [place for place, start in enumerate(WORLD) if item.nodeid.startswith(start)]
    marked = item.get_closest_marker("world") is not None
    return item.nodeid.startswith(TRAINERS), marked, min(places, default=len(WORLD))


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(TIME_IS_UP, "inf")):
        pytest.skip(LEFT_OUT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which files were left out, wholly or in part, since the time was up."""
    skipped = terminalreporter.stats.get("skipped", ())
    files = Counter(
        report.nodeid.partition("::")[0] for report in skipped if LEFT_OUT in str(report.longrepr)
    )
    if files:
        minutes = config.getoption("--minutes")
        terminalreporter.section(f"{files.total()} tests left out after {minutes:g} minutes")
        for file, count in files.items():
            terminalreporter.write_line(f"{file}: {count}")


class ByFile(LoadFileScheduling):
    """Give a worker all tests of a file: they share what takes long to start."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(CONTAINERS):
            return "containers"
        return nodeid if nodeid.startswith(APART) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


class Fast:
    """Leaves out each test that starts a program, at the moment at which it is about to, and what takes long.

    Whatever the caller makes of the refusal, the test is skipped: no test has to say what it needs.
    """

    def __init__(self) -> None:
        self._running = ""
        self._refused: set[str] = set()
        self._starting: set[str] = set()
        self._used: Counter[str] = Counter()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _arguments: object) -> None:
        if event in REFUSED_EVENTS and self._running:
            self._refused.add(self._running)
            pytest.skip(REFUSED)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running = item.nodeid
        begun = time.process_time()
        try:
            return (yield)
        finally:
            self._used[_function(item)] += time.process_time() - begun
            self._running = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._used[_function(item)] > CASES_SECONDS:
            pytest.skip("its first cases have taken long enough")
        if _function(item) in self._starting:
            pytest.skip(REFUSED)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        begun = time.process_time()
        result = yield
        took = time.process_time() - begun
        assert took < SLOW_SECONDS, f"{took:.1f} s of a processor: mark it with @pytest.mark.slow"
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if item.nodeid in self._refused:
            self._starting.add(_function(item))
        if report.failed and item.nodeid in self._refused:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {REFUSED}")
        return report


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


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
