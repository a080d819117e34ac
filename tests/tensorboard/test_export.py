"""What is exported is what TensorBoard's own library reads: each point once, over restarts and resumes."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

from exporter.runs.cli import Settings
from stepwatch.operate.tensorboard import FOREVER, export, folder_of
from stepwatch.schema.errors import Refused
from tests.real import free_port
from tests.real.disk import small_disk
from tests.real.waiting import eventually, in_time

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests/logs"


def settings_of(runs: Path, states: Path) -> Settings:
    return Settings(path=(str(runs),), state_dir=states, forget_after=FOREVER)


def exported(runs: Path, to: Path) -> list[str]:
    said: list[str] = []
    export(to, partial(settings_of, runs), None, said.append, follow=False)
    return said


def read(folder: Path) -> EventAccumulator:
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it reports each resume
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = read(folder)
    shown = {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}
    return {tag: [(point.step, point.value) for point in of] for tag, of in shown.items() if of}


def single(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


Line = tuple[int, dict[str, float]]


def expected(lines: Sequence[Line]) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard is to show: of a step that was logged again after a restart, the later value."""
    shown: dict[str, list[tuple[int, float]]] = {}
    before = -1
    last: dict[str, int] = {}
    for step, values in lines:
        if step < before:
            last = {tag: min(of, step - 1) for tag, of in last.items()}
            shown = {tag: [point for point in of if point[0] < step] for tag, of in shown.items()}
        before = step
        for tag, value in values.items():
            if last.get(tag, -1) < step:
                last[tag] = step
                shown.setdefault(tag, []).append((step, single(value)))
    return {tag: of for tag, of in shown.items() if of}


def own_keys(found: dict[str, list[tuple[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    return {tag: of for tag, of in found.items() if not tag.startswith("rl/")}


def write(log: Path, lines: Sequence[Line]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        for step, values in lines:
            file.write(json.dumps({"step": step, **values}) + "\n")


NUMBERS = (
    st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.floats(-1e300, 1e300)
    | st.integers(-(2**40), 2**40)
)
VALUES = st.fixed_dictionaries(
    {"reward": NUMBERS}, optional={"actor/kl": NUMBERS, "grad_norm": NUMBERS, "ünïcode/τ": NUMBERS}
)
WHOLE = st.fixed_dictionaries(dict.fromkeys(("reward", "actor/kl", "grad_norm", "ünïcode/τ"), NUMBERS))
RECORDS = st.builds(lambda first, rest: [first, *rest], WHOLE, st.lists(VALUES, max_size=8))
STARTS = st.lists(st.tuples(st.integers(1, 30), RECORDS), min_size=1, max_size=4)


def steps_of(starts: Sequence[tuple[int, list[dict[str, float]]]]) -> list[Line]:
    return [(first + n, values) for first, records in starts for n, values in enumerate(records)]


@pytest.mark.slow
@given(STARTS, st.lists(st.integers(0, 40), max_size=3))
@settings(max_examples=25)
@example([(1, [{"reward": 1.0}] * 5), (3, [{"reward": 2.0}] * 2)], [2, 4, 6])
@example([(5, [{"reward": 1.0}] * 3), (1, [{"reward": 2.0}] * 2)], [3])
def test_any_history_is_read_back_by_tensorboard_however_often_the_export_began_again(
    tmp_path, starts, pauses
):
    folder = tmp_path / str(time.monotonic_ns())
    lines = steps_of(starts)
    written = 0
    for pause in (*sorted(pauses), len(lines)):
        write(folder / "runs/ppo/a.jsonl", lines[written:pause])
        written = max(written, pause)
        if (folder / "runs/ppo/a.jsonl").stat().st_size:
            exported(folder / "runs", folder / "tb")
    found = points(folder / "tb/ppo/a")
    want = expected(lines)
    assert own_keys(found) == {tag: of for tag, of in want.items() if tag != "rl/reward"}
    assert found["rl/reward"] == want["reward"]
    shutil.rmtree(folder)


@pytest.mark.slow
def test_logs_of_real_trainers_are_exported_as_their_readers_read_them(tmp_path):
    said = exported(LOGS, tmp_path / "tb")
    assert "verl: logged to TensorBoard already, so its own keys are not exported." in said
    folders = {path.parent.relative_to(tmp_path / "tb") for path in (tmp_path / "tb").rglob("*tfevents*")}
    assert len(folders) > 20
    ended_badly = {Path("verl/failed"), Path("trl/failed"), Path("trl/killed_tee")}
    assert ended_badly <= folders
    logged = points(tmp_path / "tb/verl")
    assert own_keys(logged) == {}
    assert len(logged["rl/reward"]) > 10
    healthy = points(tmp_path / "tb/verl/healthy")
    assert len(healthy["rl/reward"]) > 10
    assert healthy["rl/reward"] == healthy["critic/score/mean"]
    steps = [step for step, _ in points(tmp_path / "tb/verl/resumed")["rl/reward"]]
    assert steps == list(range(1, 81))


def test_of_a_run_that_is_logged_to_tensorboard_too_only_our_signals_are_exported(tmp_path):
    runs = tmp_path / "runs/a"
    lines = [(step, {"reward": step / 7, "kl": step / 100}) for step in range(1, 40)]
    write(runs / "metrics.jsonl", lines)
    with SummaryWriter(str(runs)) as writer:
        for step, values in lines:
            for tag, value in values.items():
                writer.add_scalar(tag, value, step)
    said = exported(tmp_path / "runs", tmp_path / "tb")
    assert said == ["a: logged to TensorBoard already, so its own keys are not exported."]
    exported(tmp_path / "runs", tmp_path / "tb")
    assert points(tmp_path / "tb/a") == {
        f"rl/{tag}": [(step, single(values[tag])) for step, values in lines] for tag in ("reward", "kl")
    }


def test_a_point_has_the_time_of_its_record(tmp_path):
    (tmp_path / "runs").mkdir()
    lines = [{"step": step, "reward": 0.5, "timestamp": 1.7e9 + 10 * step} for step in (1, 2, 3)]
    (tmp_path / "runs/a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.utime(tmp_path / "runs/a.jsonl", (1.7e9 + 100, 1.7e9 + 100))
    (tmp_path / "runs/b.jsonl").write_text('{"step": 1, "reward": 0.3}\n')
    os.utime(tmp_path / "runs/b.jsonl", (1.7e9, 1.7e9))
    exported(tmp_path / "runs", tmp_path / "tb")
    times = [point.wall_time for point in read(tmp_path / "tb/a").Scalars("reward")]
    assert times == [pytest.approx(1.7e9 + 10 * step, abs=0.01) for step in (1, 2, 3)]
    (undated,) = read(tmp_path / "tb/b").Scalars("reward")
    assert undated.wall_time == pytest.approx(1.7e9, abs=60)


def test_half_an_event_at_the_end_hides_nothing_and_is_written_again(tmp_path):
    log = tmp_path / "runs/a.jsonl"
    lines = [(step, {"reward": step / 10}) for step in range(1, 11)]
    write(log, lines[:6])
    exported(log.parent, tmp_path / "tb")
    (file,) = (tmp_path / "tb/a").iterdir()
    os.truncate(file, file.stat().st_size - 5)
    write(log, lines[6:])
    exported(log.parent, tmp_path / "tb")
    assert own_keys(points(tmp_path / "tb/a")) == expected(lines)


def test_a_log_that_is_emptied_and_begun_again_is_another_attempt(tmp_path):
    log = tmp_path / "runs/a.jsonl"
    first = [(step, {"reward": 1.0}) for step in range(1, 9)]
    second = [(step, {"reward": 2.0}) for step in range(1, 4)]
    write(log, first)
    exported(log.parent, tmp_path / "tb")
    log.unlink()
    write(log, second)
    exported(log.parent, tmp_path / "tb")
    assert own_keys(points(tmp_path / "tb/a")) == expected([*first, *second])
    write(log, [(4, {"reward": 2.5})])
    exported(log.parent, tmp_path / "tb")
    assert own_keys(points(tmp_path / "tb/a")) == expected([*first, *second, (4, {"reward": 2.5})])


def test_a_resume_that_begins_with_a_validation_keeps_the_other_values_of_that_step(tmp_path):
    values = {"reward": 1.0, "kl": 0.1, "grad_norm": 1.0, "entropy": 1.0}
    first = [(step, values) for step in range(1, 36)]
    first[29] = 30, {**values, "val/score": 0.5}
    write(tmp_path / "runs/a.jsonl", [*first, (30, {"val/score": 0.6}), (31, {**values, "reward": 2.0})])
    exported(tmp_path / "runs", tmp_path / "tb")
    exported(tmp_path / "runs", tmp_path / "tb")
    found = points(tmp_path / "tb/a")
    assert found["reward"] == [*((step, 1.0) for step in range(1, 31)), (31, 2.0)]
    assert found["val/score"] == [(30, 0.5)]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ppo/a", "ppo/a"),
        ("/data/x/a.log", "data/x/a.log"),
        ("../../etc", "_../_../etc"),
        (".hidden/./a", "_.hidden/_./a"),
        ("x" * 300, "x" * 200),
        ("//", "run"),
    ],
)
def test_no_name_leads_out_of_the_folder(name, folder):
    assert str(folder_of(name)) == folder


def test_a_folder_among_the_logs_or_in_use_or_unwritable_is_refused(tmp_path):
    write(tmp_path / "runs/a.jsonl", [(1, {"reward": 1.0})])
    with pytest.raises(Refused, match=r"lies in .*whose files are read as logs of runs"):
        exported(tmp_path / "runs", tmp_path / "runs/tb")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    with pytest.raises(Refused, match="Fix: name one outside"):
        exported(tmp_path / "runs", tmp_path / "link/tb")
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match=r"cannot be written \(Not a directory\)"):
        exported(tmp_path / "runs", tmp_path / "file/tb")


def test_on_a_full_disk_it_ends_and_the_next_export_goes_on(tmp_path):
    lines = [(step, {f"key/{n}": float(n) for n in range(2000)} | {"reward": 1.0}) for step in range(1, 90)]
    write(tmp_path / "runs/a.jsonl", lines)
    with small_disk(tmp_path / "disk", "tmpfs", "size=1m") as disk:
        with pytest.raises(Refused, match=r"cannot be written \(No space left on device\)"):
            exported(tmp_path / "runs", disk / "tb")
        subprocess.run(["mount", "-o", "remount,size=90m", disk], check=True)
        exported(tmp_path / "runs", disk / "tb")
        assert own_keys(points(disk / "tb/a")) == expected(lines)


# Live, by the command itself


@pytest.fixture(name="following")
def _following(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()


def follow(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    if not (tmp_path / "config.yaml").exists():  # with no Prometheus there
        (tmp_path / "config.yaml").write_text(f"ports: {{prometheus: {free_port()}}}\n")
    words = ["--to", tmp_path / "tb", "--runs", tmp_path / "runs", "--config", tmp_path / "config.yaml"]
    command = [sys.executable, "-m", "stepwatch", "tensorboard", "--follow", *words]
    env = {**os.environ, "STEPWATCH_STATE": str(tmp_path / "state")}
    with (tmp_path / "out").open("ab") as out:
        started.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out))
    return started[-1]


def last_step(tmp_path: Path) -> int:
    found = points(tmp_path / "tb/a").get("reward") if (tmp_path / "tb/a").is_dir() else None
    return found[-1][0] if found else 0


def test_new_steps_are_there_within_seconds_and_each_once_after_kills(tmp_path, following):
    log, lines = tmp_path / "runs/a.jsonl", []
    write(log, [(1, {"reward": 0.0})])
    lines.append((1, {"reward": 0.0}))
    for start in range(3):
        process = follow(tmp_path, following)
        eventually(lambda: last_step(tmp_path) == lines[-1][0])
        for _ in range(2):
            lines.append((lines[-1][0] + 1, {"reward": float(start)}))
            begun = time.monotonic()
            write(log, lines[-1:])
            eventually(lambda: last_step(tmp_path) == lines[-1][0])
            assert in_time(time.monotonic() - begun, 5)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert own_keys(points(tmp_path / "tb/a")) == expected(lines)


def test_a_second_export_to_the_same_folder_is_refused_and_ctrl_c_ends_the_first_in_order(
    tmp_path, following
):
    write(tmp_path / "runs/a.jsonl", [(1, {"reward": 1.0})])
    first = follow(tmp_path, following)
    eventually(lambda: last_step(tmp_path) == 1)
    assert follow(tmp_path, following).wait(120) == 2
    assert "another export writes to it" in (tmp_path / "out").read_text()
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 0
    text = (tmp_path / "out").read_text()
    assert "Alerts are missing while Prometheus does not answer" in text
    assert "1 runs in" in text
    assert "Traceback" not in text
