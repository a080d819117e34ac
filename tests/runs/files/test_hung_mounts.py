"""A file system that hangs holds up its own logs only, is named, and comes back without loss."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.files.mounts import HUNG_SECONDS
from stepwatch.system import http_client
from tests.real.hung_mount import Mount, mounted
from tests.real.waiting import in_time
from tests.runs.conftest import saved_logs
from tests.runs.lines import append, json_steps
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, Start, _start  # noqa: F401  (a fixture)

HUNG = "stepwatch_mount_hung_since_timestamp_seconds"
UNREAD = "rl_run_unread_since_timestamp_seconds"


@pytest.fixture(name="mount")
def _mount(folder: Path) -> Iterator[Mount]:
    with mounted(folder / "nfs") as mount:
        append(mount.behind / "far.jsonl", *json_steps(1, 5))
        append(folder / "near.jsonl", *json_steps(1, 5))
        yield mount


def at(run: str, step: int) -> Callable[[Scrape], bool]:
    return lambda found: found.value("rl_step", run=run) == step


def hangs(mount: Mount) -> Callable[[Scrape], bool]:
    return lambda found: found.value(HUNG, mount=str(mount.folder)) is not None


def begin(start: Start, mount: Mount, *flags: str | Path) -> Exporter:
    """An exporter that watches both runs, each seen to make a step."""
    folder = mount.folder.parent
    exporter = start("--path", folder, *flags)
    exporter.until(lambda found: found.runs() == {"near", "nfs/far"})
    append(folder / "near.jsonl", *json_steps(6, 6))
    append(mount.behind / "far.jsonl", *json_steps(6, 6))
    exporter.until(lambda found: at("near", 6)(found) and at("nfs/far", 6)(found))
    return exporter


def test_other_folders_are_read_on_while_one_mount_hangs(mount: Mount, start: Start) -> None:
    exporter = begin(start, mount)
    mount.hang()
    for step in (7, 8, 9):
        append(mount.folder.parent / "near.jsonl", *json_steps(step, step))
        began = time.monotonic()
        exporter.until(at("near", step))
        assert in_time(time.monotonic() - began, 6)
    found = exporter.until(hangs(mount))
    append(mount.folder.parent / "new.jsonl", *json_steps(1, 3))
    found = exporter.until(at("new", 3))

    assert found.value("rl_step", run="nfs/far") == 6
    assert found.state("nfs/far") == "running"
    assert found.value(UNREAD, run="nfs/far") is not None
    assert found.value("rl_last_step_timestamp_seconds", run="nfs/far") is None
    assert found.value(UNREAD, run="near") is None


def test_the_health_page_names_the_mount_and_stays_healthy(mount: Mount, start: Start) -> None:
    exporter = begin(start, mount)
    mount.hang()
    exporter.until(hangs(mount))

    text = http_client.read(f"http://127.0.0.1:{exporter.port}/-/healthy")
    assert text.startswith("ok\n")
    assert f"{mount.folder} does not answer for " in text


def test_a_run_that_cannot_be_read_neither_stops_nor_vanishes_and_is_not_silent_afterwards(
    mount: Mount, start: Start
) -> None:
    exporter = begin(start, mount, "--silence", "8", "--silence-intervals", "1")
    mount.hang()
    exporter.until(hangs(mount))
    found = exporter.until(lambda found: found.state("near") == "stopped")
    assert found.state("nfs/far") == "running"
    time.sleep(3)
    mount.come_back()
    found = exporter.until(lambda found: found.value(UNREAD, run="nfs/far") is None)

    assert found.state("nfs/far") == "running"
    assert (found.value("rl_last_step_timestamp_seconds", run="nfs/far") or 0) > time.time() - HUNG_SECONDS
    assert found.value(HUNG, mount=str(mount.folder)) is None


def test_what_was_written_meanwhile_is_read_when_the_mount_comes_back(mount: Mount, start: Start) -> None:
    exporter = begin(start, mount)
    mount.hang()
    exporter.until(hangs(mount))
    append(mount.behind / "far.jsonl", *json_steps(7, 30))
    append(mount.behind / "new.jsonl", *json_steps(1, 4))
    mount.come_back()
    exporter.until(at("nfs/new", 4))
    found = exporter.until(at("nfs/far", 30))

    assert found.value("rl_records_total", run="nfs/far") == 30
    assert found.value("rl_restarts_total", run="nfs/far") == 0
    assert found.value("stepwatch_file_restarts_total") == 0
    assert found.state("nfs/far") == "running"


def test_a_hung_mount_costs_one_thread_and_does_not_keep_the_exporter_from_ending(
    mount: Mount, start: Start, tmp_path: Path
) -> None:
    exporter = begin(start, mount, "--state-dir", tmp_path / "state")
    threads = len(os.listdir(f"/proc/{exporter.process.pid}/task"))  # noqa: PTH208
    mount.hang()
    exporter.until(hangs(mount))
    assert len(os.listdir(f"/proc/{exporter.process.pid}/task")) <= threads  # noqa: PTH208
    began = time.monotonic()
    code, _, _ = exporter.end()

    assert code == 0
    assert in_time(time.monotonic() - began, 8)


def test_an_exporter_that_starts_while_a_mount_hangs_watches_the_others(mount: Mount, start: Start) -> None:
    mount.hang()
    exporter = start("--path", mount.folder.parent)
    exporter.until(at("near", 5))
    found = exporter.until(hangs(mount))
    assert found.runs() == {"near"}
    mount.come_back()

    exporter.until(at("nfs/far", 5))


def test_a_root_with_a_link_onto_a_mount_that_hangs_is_reported_as_a_whole(
    mount: Mount, start: Start, tmp_path: Path
) -> None:
    local, others = tmp_path / "local", tmp_path / "others"
    local.mkdir()
    others.mkdir()
    (local / "nfs").symlink_to(mount.folder)
    append(others / "other.jsonl", *json_steps(1, 5))
    exporter = start("--path", local, others)
    exporter.until(lambda found: found.runs() == {"nfs/far", "other"})
    mount.hang()
    exporter.until(lambda found: found.value(HUNG, mount=str(local)) is not None)
    append(others / "other.jsonl", *json_steps(6, 6))
    exporter.until(at("other", 6))
    mount.come_back()

    exporter.until(lambda found: found.value(HUNG, mount=str(local)) is None)


def test_runs_are_shown_on_while_the_state_folder_hangs(folder: Path, tmp_path: Path, start: Start) -> None:
    append(folder / "near.jsonl", *json_steps(1, 5))
    with mounted(tmp_path / "own") as own:
        exporter = start("--path", folder, "--state-dir", own.folder)
        exporter.until(at("near", 5))
        own.hang()
        append(folder / "near.jsonl", *json_steps(6, 6))
        exporter.until(at("near", 6))
        exporter.until(hangs(own))
        append(folder / "near.jsonl", *json_steps(7, 7))
        exporter.until(at("near", 7))
        own.come_back()
        exporter.until(lambda found: found.value(HUNG, mount=str(own.folder)) is None)
        assert exporter.end()[0] == 0
        assert saved_logs(own.behind) == {"near.jsonl"}


def test_a_mount_that_hangs_for_good_can_be_remounted(mount: Mount, start: Start) -> None:
    exporter = begin(start, mount)
    mount.hang()
    exporter.until(hangs(mount))
    append(mount.behind / "far.jsonl", *json_steps(7, 8))
    mount.unmount()
    mount.mount()

    found = exporter.until(at("nfs/far", 8))
    assert found.value("rl_records_total", run="nfs/far") == 8


def test_the_state_of_a_log_that_was_deleted_while_the_exporter_was_down_is_cleaned_up(
    folder: Path, tmp_path: Path, start: Start
) -> None:
    for name in ("kept", "gone"):
        append(folder / f"{name}.jsonl", *json_steps(1, 5))
    exporter = start("--path", folder, "--state-dir", tmp_path / "state")
    exporter.until(at("gone", 5))
    exporter.until(at("kept", 5))
    exporter.end()
    assert len(saved_logs(tmp_path / "state")) == 2
    (folder / "gone.jsonl").unlink()
    exporter = start("--path", folder, "--state-dir", tmp_path / "state")
    exporter.until(at("kept", 5))
    exporter.until(lambda _: saved_logs(tmp_path / "state") == {"kept.jsonl"})


@pytest.mark.parametrize("away", ["hangs", "is not mounted"])
def test_the_state_of_a_log_on_a_mount_that_is_away_is_kept(
    mount: Mount, start: Start, tmp_path: Path, away: str
) -> None:
    exporter = begin(start, mount, "--state-dir", tmp_path / "state")
    exporter.end()
    assert len(saved_logs(tmp_path / "state")) == 2
    mount.hang() if away == "hangs" else mount.unmount()
    exporter = start("--path", mount.folder.parent, "--state-dir", tmp_path / "state")
    exporter.until(at("near", 6))
    time.sleep(3)
    exporter.end()

    assert len(saved_logs(tmp_path / "state")) == 2
