"""``python -m exporter.runs`` as a real process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS, in_time
from tests.records import refusal, split
from tests.runs.conftest import saved_logs
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape, until

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[str]


class Exporter:
    """The exporter in a process of its own; ``module`` may be another that starts it."""

    def __init__(
        self,
        *flags: str | Path,
        port: int | None = None,
        module: Sequence[str] = ("exporter.runs",),
    ) -> None:
        self.port = port or free_port()
        given = [] if "--port" in flags else ["--port", str(self.port)]
        self.process: Process = subprocess.Popen(
            [sys.executable, "-m", *module, *given, *map(str, flags)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def scrape(self) -> Scrape:
        page = http_client.read(f"http://127.0.0.1:{self.port}/metrics")
        return Scrape((page or "").encode())

    def until(self, true: Callable[[Scrape], object]) -> Scrape:
        """Scrape until it is true; fails after very many scrapes, or when the exporter ends."""
        return until(self.scrape, true, self.process)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, and what it logged: information, and what went wrong."""
        self.process.send_signal(number)
        out, log = self.process.communicate(timeout=HANG_SECONDS)
        assert out == ""
        return self.process.returncode, *split(log)


Start = Callable[..., Exporter]


@pytest.fixture(name="start")
def _start() -> Iterator[Start]:
    started: list[Exporter] = []

    def start(*flags: str | Path, port: int | None = None) -> Exporter:
        started.append(Exporter(*flags, port=port))
        return started[-1]

    yield start
    for exporter in started:
        exporter.process.kill()
        exporter.process.communicate()


def refused(*flags: str | Path) -> str:
    """What the exporter says when it does not start."""
    return refusal(Exporter(*flags).process)


def log(folder: Path, name: str = "a", steps: int = 3) -> Path:
    path = folder / f"{name}.jsonl"
    append(path, *(verl_json(step, measured(step)) for step in range(1, steps + 1)))
    return path


def has(run: str) -> Callable[[Scrape], bool]:
    return lambda found: run in found.runs()


def test_flags_say_what_is_read_and_where_it_is_served(folder: Path, start: Start) -> None:
    log(folder)
    port = free_port()
    exporter = start("--path", folder, "--port", port, "--listen", "127.0.0.1", port=port)

    exporter.until(has("a"))
    assert exporter.end() == (0, f"http://127.0.0.1:{port}/ shows the runs of {folder}\n", "")


def test_a_file_sets_what_flags_set(tmp_path: Path, start: Start) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        log(tmp_path / name, name)
    states = tmp_path / "state"
    settings = {
        "__comment": "no flag",
        "path": [str(tmp_path / "one"), str(tmp_path / "two")],
        "listen": "127.0.0.1",
        "state_dir": str(states),
        "hold": 30,
        "forget_after": 3600.0,
        "silence": 60,
        "silence_intervals": 2,
        "token_file": None,
    }
    (tmp_path / "runs.json").write_text(json.dumps(settings))
    exporter = start("--config.file", tmp_path / "runs.json")

    exporter.until(lambda found: found.runs() == {"one", "two"})
    assert exporter.end()[0] == 0
    assert saved_logs(states) == {"one.jsonl", "two.jsonl"}


def test_a_flag_wins_over_the_file(tmp_path: Path, start: Start) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        log(tmp_path / name, name)
    (tmp_path / "runs.json").write_text(json.dumps({"path": [str(tmp_path / "two")]}))
    exporter = start("--path", tmp_path / "one", "--config.file", tmp_path / "runs.json")

    assert exporter.until(lambda found: bool(found.runs())).runs() == {"one"}


def test_the_short_silence_that_is_set_stops_a_run(folder: Path, start: Start) -> None:
    path = log(folder)
    exporter = start("--path", folder, "--silence", "5", "--silence-intervals", "1")
    exporter.until(has("a"))
    append(path, verl_json(4, measured(4)))

    exporter.until(lambda found: found.state("a") == "stopped")


def test_extremes_are_held_for_as_long_as_is_set(folder: Path, start: Start) -> None:
    path = log(folder, steps=20)
    exporter = start("--path", folder, "--hold", "0.1")
    exporter.until(has("a"))
    append(path, *(verl_json(step, measured(step, kl=9.0)) for step in (21, 22, 23)))
    exporter.until(lambda found: found.value("rl_step", run="a") == 23)
    append(path, verl_json(24, measured(24)))

    exporter.until(
        lambda found: (found.value("rl_min_over_steps", run="a", signal="kl", steps="3") or 9.0) < 1.0
    )


def test_a_missing_folder_is_waited_for(folder: Path, start: Start) -> None:
    later = folder / "later"
    exporter = start("--path", later)
    assert exporter.until(lambda found: bool(found.samples)).runs() == set()
    later.mkdir()
    log(later)

    exporter.until(has("a"))
    assert exporter.end()[2] == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_state_and_ends_it_quickly(
    folder: Path, tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    path, states = log(folder), tmp_path / "state"
    exporter = start("--path", folder, "--state-dir", states)
    exporter.until(has("a"))
    append(path, verl_json(4, measured(4)))
    exporter.until(lambda found: found.value("rl_step", run="a") == 4)
    before = {file: file.read_bytes() for file in states.iterdir()}
    started = time.monotonic()
    code, _, errors = exporter.end(number)

    assert (code, errors) == (0, "")
    assert in_time(time.monotonic() - started, 3)
    assert {file: file.read_bytes() for file in states.iterdir()} != before


def test_a_killed_exporter_goes_on_where_it_was(folder: Path, tmp_path: Path, start: Start) -> None:
    path, states = log(folder, steps=50), tmp_path / "state"
    first = start("--path", folder, "--state-dir", states)
    first.until(lambda _: bool(saved_logs(states)))
    first.end(signal.SIGKILL)
    path.write_text("".join(verl_json(step, measured(step)) for step in range(40, 61)))
    second = start("--path", folder, "--state-dir", states)

    assert second.until(has("a")).value("rl_records_total", run="a") == 60


def test_a_port_in_use_is_reported_with_its_fix(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--path", str(folder), "--port", str(port))

    assert f"--port {port}" in said
    assert "Address already in use" in said
    assert "Fix: " in said


def test_an_address_of_another_machine_is_reported(folder: Path) -> None:
    assert "--listen 192.0.2.1" in refused("--path", str(folder), "--listen", "192.0.2.1")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--port", "http", "'http' is not a port. Expected a number from 1 to 65535."),
        ("--port", "0", "'0' is not a port"),
        ("--port", "65536", "'65536' is not a port"),
        ("--port", "-1", "'-1' is not a port"),
        ("--hold", "15s", "'15s' is not a positive number. Expected one such as 15 or 0.5."),
        ("--hold", "0", "'0' is not a positive number"),
        ("--forget-after", "-5", "'-5' is not a positive number"),
        ("--forget-after", "inf", "'inf' is not a positive number"),
        ("--silence", "nan", "'nan' is not a positive number"),
        ("--silence-intervals", "", "'' is not a number of 0 or more"),
    ],
)
def test_a_bad_value_is_refused_with_its_flag(flag: str, value: str, expected: str) -> None:
    assert f"argument {flag}: {expected}" in refused(f"{flag}={value}")


def test_an_unknown_flag_is_reported() -> None:
    assert "unrecognized arguments: --treshold" in refused("--treshold=3")


def test_help_names_the_file_and_the_flags() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "exporter.runs", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "--config.file" in done.stdout
    assert "--forget-after" in done.stdout
    assert " object at " not in done.stdout
