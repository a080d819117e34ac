"""Registrations with the exporter as a process: kept over restarts, and runs shown once."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from exporter.runs.targets.registry import ASIDE, NAME
from tests.runs.conftest import _folder  # noqa: F401  (a fixture)
from tests.runs.lines import append, measured, verl_json
from tests.runs.registrations.test_page import Hub, _hub  # noqa: F401  (a fixture)
from tests.runs.test_main import Exporter, Start, _start  # noqa: F401  (a fixture)


def register(exporter: Exporter, *targets: str, job: str = "trainer_metrics") -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{exporter.port}/api/v1/prometheus/targets",
        json.dumps({"job_name": job, "targets": list(targets)}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["status"] == "ok"


def started(start: Start, *flags: str | Path) -> Exporter:
    exporter = start(*flags, "--poll", "0.1")
    exporter.until(lambda found: found.value("stepwatch_registered_servers") is not None)
    return exporter


def step(hub: Hub, number: int) -> None:
    values = measured(number)
    hub.log(training__global_step=number, **{key.replace("/", "__"): value for key, value in values.items()})


def test_a_restart_forgets_no_server_and_polls_the_page_again(
    folder: Path, tmp_path: Path, start: Start, hub: Hub
) -> None:
    flags = ("--path", folder, "--state-dir", tmp_path / "state")
    exporter = started(start, *flags)
    register(exporter, hub.address)
    register(exporter, "127.0.0.1:8000", "127.0.0.1:8001", job="vllm")
    for number in (1, 2):
        step(hub, number)
        exporter.until(lambda found, number=number: found.value("rl_step", run="maths/ppo") == number)  # type: ignore[misc]
    assert exporter.end()[0] == 0

    again = started(start, *flags)
    step(hub, 3)
    found = again.until(lambda found: found.value("rl_step", run="maths/ppo") == 3)
    assert found.value("stepwatch_registered_servers") == 3
    assert found.value("rl_records_total", run="maths/ppo") == 3
    assert found.state("maths/ppo") == "running"


def test_a_damaged_file_is_not_fatal_and_is_moved_aside(folder: Path, tmp_path: Path, start: Start) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / NAME).write_bytes(b'stepwatch-registrations 1 00\n[{"address": "10.0')
    exporter = started(start, "--path", folder, "--state-dir", state)
    register(exporter, "127.0.0.1:8000", job="vllm")
    found = exporter.until(lambda found: found.value("stepwatch_registered_servers") == 1)
    code, _, errors = exporter.end()

    assert found.value("stepwatch_registration_file_errors_total") == 1
    assert code == 0
    assert str(state / ASIDE) in errors
    assert "Traceback" not in errors
    assert b"127.0.0.1:8000" in (state / NAME).read_bytes()


def test_a_log_keeps_its_name_beside_a_page_that_has_it_too(folder: Path, start: Start, hub: Hub) -> None:
    (folder / "maths").mkdir()
    append(folder / "maths/ppo.jsonl", verl_json(1, {"critic/score/mean": 0.5, "actor/grad_norm": 0.25}))
    exporter = started(start, "--path", folder)
    register(exporter, hub.address)
    step(hub, 7)
    found = exporter.until(lambda found: len(found.runs()) == 2)

    assert found.value("rl_step", run="maths/ppo") == 1
    assert found.value("rl_step", run="maths/ppo (/polled/rl_insight maths/ppo)") == 7


def test_a_page_that_the_settings_name_is_not_polled_twice(folder: Path, start: Start, hub: Hub) -> None:
    pages = json.dumps([{"url": f"http://{hub.address}/metrics"}])
    exporter = started(start, "--path", folder, "--pages", pages)
    register(exporter, hub.address)
    step(hub, 1)
    found = exporter.until(lambda found: found.runs() == {"maths/ppo"})

    assert len(found.all("stepwatch_target_up")) == 1


def test_a_page_that_is_not_a_trainers_is_not_a_run(folder: Path, start: Start, hub: Hub) -> None:
    exporter = started(start, "--path", folder)
    register(exporter, f"127.0.0.1:{exporter.port}")
    found = exporter.until(lambda found: found.value("stepwatch_target_up", source="rl_insight") == 1)

    assert found.runs() == set()
    assert "Traceback" not in exporter.end()[2]
