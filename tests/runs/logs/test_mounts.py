"""The path of the run folder disappears and returns, as that of a network mount does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.tools import unavailable
from tests.runs.conftest import Watching
from tests.runs.lines import append, json_steps
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, Start, _start  # noqa: F401  (a fixture)
from tests.runs.test_watch import Writer, _writer, write  # noqa: F401  (a fixture)

HOUR = 3600.0


def is_whole(found: Scrape, last: int) -> bool:
    """Is each step up to the last there, and once?"""
    facts = [found.value(name, run="a") for name in ("rl_step", "rl_records_total", "rl_resumes_total")]
    return facts == [last, last, 0]


def test_a_folder_that_is_renamed_away_and_back_costs_no_step_and_no_state(
    folder: Path, watched: Watching
) -> None:
    away = folder.with_name("away")
    page = watched()
    append(folder / "a.jsonl", *json_steps(1, 3))
    page.look()
    append(folder / "a.jsonl", *json_steps(4, 5))
    page.look(1.0)
    folder.rename(away)
    for _ in range(5):
        gone = page.discover()
    assert gone.state("a") == "running"
    assert is_whole(gone, 5)
    append(away / "a.jsonl", *json_steps(6, 8))
    away.rename(folder)
    back = page.discover()

    assert is_whole(back, 8)
    assert back.state("a") == "running"
    assert back.value("stepwatch_file_restarts_total") == 0
    assert back.value("stepwatch_file_errors_total", reason="vanished") == 1


def test_a_link_that_dangles_for_a_while_and_leads_to_a_copy_then_counts_nothing_twice(
    folder: Path, tmp_path: Path, watched: Watching
) -> None:
    link, copy = tmp_path / "link", tmp_path / "copy"
    link.symlink_to(folder)
    append(folder / "a.jsonl", *json_steps(1, 5))
    page = watched(path=(str(link),))
    page.look()
    append(folder / "a.jsonl", *json_steps(6, 6))
    page.look(1.0)
    shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    page.discover()
    append(copy / "a.jsonl", *json_steps(7, 8))
    link.unlink()
    page.discover()
    link.symlink_to(copy)
    back = page.discover()

    assert is_whole(back, 8)
    assert back.state("a") == "running"
    assert back.value("stepwatch_file_restarts_total") == 1


def test_a_mount_that_is_away_for_longer_than_runs_are_remembered_comes_back_whole(
    folder: Path, tmp_path: Path, watched: Watching
) -> None:
    page = watched(forget_after=HOUR, state_dir=tmp_path / "state")
    append(folder / "a.jsonl", *json_steps(1, 5))
    page.look()
    append(folder / "a.jsonl", *json_steps(6, 6))
    page.look(1.0)
    folder.rename(folder.with_name("away"))
    page.look(2 * HOUR)
    assert page.discover().runs() == set()
    append(folder.with_name("away") / "a.jsonl", *json_steps(7, 8))
    os.utime(folder.with_name("away") / "a.jsonl", (page.clock.wall, page.clock.wall))
    folder.with_name("away").rename(folder)

    assert is_whole(page.discover(), 8)


@pytest.fixture(name="mounted")
def _mounted(folder: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run ``mount`` and ``umount`` on the folder, which shows a disk of its own; all gone at the end."""
    if os.geteuid() != 0:
        unavailable("only root can mount")
    disk = tmp_path / "disk"
    disk.mkdir()

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run("mount", "-t", "tmpfs", "-o", "size=1m", "stepwatch-test", str(disk))
    if done.returncode:
        unavailable(f"this machine mounts nothing: {done.stderr.strip()}")
    run("mount", "--bind", str(disk), str(folder))
    yield run
    run("umount", "--lazy", str(folder))
    run("umount", "--lazy", str(disk))


def test_a_real_mount_goes_and_comes_under_a_real_exporter(
    folder: Path,
    tmp_path: Path,
    mounted: Callable[..., subprocess.CompletedProcess[str]],
    start: Start,
) -> None:
    log = tmp_path / "disk/a.jsonl"
    append(log, *json_steps(1, 5))
    exporter = start("--path", folder)
    exporter.until(lambda found: is_whole(found, 5))
    append(log, *json_steps(6, 6))
    exporter.until(lambda found: is_whole(found, 6))
    assert mounted("umount", str(folder)).returncode == 0
    append(log, *json_steps(7, 8))
    gone = exporter.until(lambda found: found.value("stepwatch_file_errors_total", reason="vanished") == 1)
    assert is_whole(gone, 6)
    mounted("mount", "--bind", str(tmp_path / "disk"), str(folder))
    back = exporter.until(lambda found: is_whole(found, 8))

    assert back.state("a") == "running"
    assert back.value("stepwatch_file_restarts_total") == 0


def test_a_disk_can_be_unmounted_while_its_runs_are_followed(
    folder: Path,
    tmp_path: Path,
    mounted: Callable[..., subprocess.CompletedProcess[str]],
    start: Start,
) -> None:
    append(tmp_path / "disk/a.jsonl", *json_steps(1, 5))
    exporter = start("--path", folder)
    exporter.until(lambda found: is_whole(found, 5))
    tries = [mounted("umount", str(folder)).returncode == 0 for _ in range(3)]

    assert any(tries)
