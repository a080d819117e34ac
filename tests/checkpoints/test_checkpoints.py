"""The checkpoints of a wrapped trainer: the best are kept, and complete ones noted for the run exporter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.runs.files import launch
from exporter.runs.model.run import Options
from stepwatch.checkpoints import keeping
from stepwatch.checkpoints.keeping import keep
from stepwatch.checkpoints.watcher import Order, Watcher
from stepwatch.launch.keeper import descendants
from tests.checkpoints import saving
from tests.real.ending import ended
from tests.real.waiting import eventually
from tests.runs.lines import console, measured

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "stepwatch", "run")

TRAINER = """
import shutil, sys, time
from pathlib import Path
from tests.checkpoints import saving
from tests.runs.lines import console, measured

folder, steps = Path(sys.argv[1]), [float(reward) for reward in sys.argv[2].split(",")]
for step, reward in enumerate(steps, 1):
    if step % 10 == 0:
        saving.verl(folder, step)
        for old in range(10, step - 10, 10):  # max_ckpt_to_keep=2
            shutil.rmtree(folder / f"global_step_{old}" / "actor", ignore_errors=True)
    sys.stdout.write(console(step, {**measured(step), "critic/score/mean": reward}))
    sys.stdout.flush()
    if step % 10 == 0:
        go = folder.parent / f"go-{step}"
        while not go.exists():
            time.sleep(0.05)
"""

RISES = [*(0.2 + 0.01 * step for step in range(1, 21)), *(0.05 for _ in range(20))]
"""A reward that is best at step 20 and then collapses."""


@pytest.fixture(name="started")
def _started() -> Iterator[list[subprocess.Popen[str]]]:
    """Wrappers that a test started; what is left of them is ended."""
    with ended() as started:
        yield started


def wrapped(folder: Path, *options: str, rewards: list[float] = RISES) -> subprocess.Popen[str]:
    """A wrapped trainer with verl's checkpoints in `ckpt/e`, which waits behind each for `go-STEP`."""
    place = folder / "ckpt" / "e"
    place.mkdir(parents=True)
    trainer = [sys.executable, "-c", TRAINER, str(place), ",".join(f"{each:.4f}" for each in rewards)]
    command = [*RUN, "--runs", str(folder / "runs"), "--name", "a", *options, "--", *trainer]
    command.append(f"trainer.default_local_dir={place}")
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def go(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / "ckpt" / f"go-{step}").touch()


def complete(folder: Path) -> list[str]:
    return [each.name for each in launch.read_checkpoints(folder / "runs" / "a.log")]


def kept(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "ckpt" / "e.best").glob("global_step_*"))


def test_the_best_is_kept_out_of_reach_of_the_rotation(
    tmp_path: Path,
    started: list[subprocess.Popen[str]],
) -> None:
    process = wrapped(tmp_path, "--keep-best", "1")
    started.append(process)
    for step in (10, 20, 30):
        eventually(lambda step=step: f"global_step_{step}" in complete(tmp_path))
        eventually(lambda step=step: kept(tmp_path) == [f"global_step_{min(step, 20)}"])
        go(tmp_path, step)
    eventually(lambda: "global_step_40" in complete(tmp_path))
    go(tmp_path, 40)

    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert kept(tmp_path) == ["global_step_20"]
    assert complete(tmp_path) == ["e.best/global_step_20", "global_step_30", "global_step_40"]
    (best,) = json.loads((tmp_path / "ckpt" / "e.best" / "best.json").read_text())["best"]
    assert (best["step"], best["measure"]) == (20, "smoothed reward")
    assert len(saving.contents(tmp_path / "ckpt" / "e.best" / "global_step_20")) == 8


def test_nothing_is_kept_unless_asked_for_and_complete_ones_are_known_anyway(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = wrapped(tmp_path, rewards=RISES[:10])
    started.append(process)
    go(tmp_path, 10)

    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors, complete(tmp_path)) == (0, "", ["global_step_10"])
    assert sorted(each.name for each in (tmp_path / "ckpt").iterdir()) == ["e", "go-10"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("checkpoints: {keep: 2}", (["global_step_10", "global_step_20"], "")),
        ('checkpoints: {keep: 2, runs: "b*"}', ([], "")),
        ("checkpoints: {keep: many}", ([], "no checkpoint is kept, since the settings cannot be used")),
    ],
)
def test_the_settings_say_how_many_of_which_runs_are_kept(
    tmp_path: Path, started: list[subprocess.Popen[str]], settings: str, expected: tuple[list[str], str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"{settings}\n")
    process = wrapped(tmp_path, "--config", str(config), rewards=RISES[:20])
    started.append(process)
    go(tmp_path, 10, 20)

    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert kept(tmp_path) == expected[0]
    assert expected[1] in errors
    assert bool(errors) == bool(expected[1])


def test_a_watcher_does_not_outlive_a_killed_wrapper(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = wrapped(tmp_path, "--keep-best", "1")
    started.append(process)
    eventually(lambda: kept(tmp_path) == ["global_step_10"])
    below = [pid for pid in descendants(process.pid) if b"checkpoints" in _command(pid)]
    assert below
    process.kill()
    process.wait()

    eventually(lambda: not any(b"launch.checkpoints" in _command(pid) for pid in below))
    assert kept(tmp_path) == ["global_step_10"]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_where_the_trainers_folder_is_unknown_the_user_has_to_name_it(tmp_path: Path) -> None:
    command = [*RUN, "--runs", str(tmp_path), "--name", "a", "--keep-best", "1", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.endswith("Fix: name the folder with --checkpoints.\n")

    command[-2:-2] = ["--checkpoints", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(name="watcher")
def _watcher(tmp_path: Path) -> Watcher:
    order = Order(str(tmp_path / "a.log"), "a", str(tmp_path / "e"), keep=1)
    (tmp_path / "e").mkdir()
    return Watcher(order)


def test_what_is_being_written_or_deleted_is_not_complete(
    tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(watcher, "_keep", lambda complete, **_: seen.append([each.name for each in complete]))
    place = saving.transformers(tmp_path / "e", 5)
    watcher.look()
    (place / "scheduler.pt").write_bytes(b"another rank is not yet done")
    watcher.look()
    assert seen == []
    watcher.look()
    assert seen == [["checkpoint-5"]]
    (place / "optimizer.pt").unlink()
    for _ in range(3):
        watcher.look()
    assert launch.read_checkpoints(tmp_path / "a.log") == ()
    assert seen == [["checkpoint-5"]]
    saving.transformers(tmp_path / "e", 6)
    for _ in range(2):
        watcher.look()
    assert seen == [["checkpoint-5"], ["checkpoint-6"]]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"complete": 3}', '{"complete": [["a", "b"]]}'])
def test_a_damaged_note_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.log.checkpoints").write_text(content)
    assert launch.read_checkpoints(tmp_path / "a.log") == ()


def log(folder: Path, values: dict[int, dict[str, float]]) -> Path:
    path = folder / "a.log"
    path.write_text("".join(console(step, {**measured(step), **found}) for step, found in values.items()))
    return path


def test_one_lucky_batch_is_not_the_best(tmp_path: Path) -> None:
    rewards = {step: {"critic/score/mean": 0.3 + 0.01 * step} for step in range(1, 31)}
    rewards[5] = {"critic/score/mean": 0.9}
    found = keeping.read_scores([log(tmp_path, rewards)], Options())
    lucky, later = found.of(5), found.of(30)
    assert lucky
    assert later
    assert (lucky.measure, later.measure) == ("smoothed reward", "smoothed reward")
    assert lucky.value < later.value < 0.6


def test_validation_counts_where_it_is_logged(tmp_path: Path) -> None:
    key = "val-core/openai/gsm8k/reward/mean@1"
    values = {step: {"critic/score/mean": 0.01 * step} for step in range(1, 41)}
    for step, score in ((10, 0.5), (20, 0.6), (30, 0.4)):
        values[step][key] = score
    found = keeping.read_scores([log(tmp_path, values)], Options())

    assert found.last == 40
    assert found.of(5) is None
    assert [found.of(step) for step in (20, 25, 35)] == [
        (0.6, "validation", "validation 0.6 at step 20"),
        (0.6, "validation", "validation 0.6 at step 20, the last before step 25"),
        (0.4, "validation", "validation 0.4 at step 30, the last before step 35"),
    ]


def test_a_log_without_numbers_is_replaced_by_the_trainers_own_history(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a bar\n")
    state = tmp_path / "trainer_state.json"
    history = [{"step": step, "reward": 0.1 * step, "epoch": 0.1, "loss": 0.1} for step in range(1, 8)]
    state.write_text(json.dumps({"global_step": 7, "max_steps": 9, "log_history": history}))

    found = keeping.read_scores([tmp_path / "a.log", state], Options())
    assert found.last == 7
    assert found.of(7)
    assert keeping.read_scores([tmp_path / "a.log", tmp_path / "missing"], Options()).of(7) is None


def test_what_was_best_before_goes_only_once_the_better_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    order = Order(str(log(tmp_path, rising(30))), "a", str(tmp_path / "e"), keep=1)
    for step in (10, 20, 30):
        saving.verl(tmp_path / "e", step)
    seen = {step: saving.checkpoint(tmp_path / "e", f"global_step_{step}") for step in (10, 20, 30)}
    assert keep(order, [seen[10]]).kept == [("global_step_10", 10)]
    (tmp_path / "e" / "global_step_20" / "data.pt").write_bytes(b"being deleted")

    result = keep(order, [seen[10], seen[20]])
    assert result.kept == [("global_step_10", 10)]
    assert result.says == ["global_step_20 is not kept: the trainer changed or deleted it meanwhile."]
    assert keep(order, [seen[10], seen[30]]).kept == [("global_step_30", 30)]
    assert [each.name for each in (tmp_path / "e.best").glob("[!.b]*")] == ["global_step_30"]
    assert keep(order, [seen[10]]).kept == [("global_step_30", 30)]


def test_a_validation_score_outweighs_any_reward_and_a_step_is_scored_once_it_is_logged(
    tmp_path: Path,
) -> None:
    (tmp_path / "e").mkdir()
    for step in (10, 20):
        saving.verl(tmp_path / "e", step)
    seen = [saving.checkpoint(tmp_path / "e", f"global_step_{step}") for step in (10, 20)]
    order = Order(str(log(tmp_path, rising(19))), "a", str(tmp_path / "e"), keep=1)
    result = keep(order, seen)
    assert (result.kept, result.pending) == ([("global_step_10", 10)], True)
    values = rising(20)
    values[20]["val-core/openai/gsm8k/reward/mean@1"] = 0.01
    log(tmp_path, values)

    result = keep(order, seen)
    assert (result.kept, result.pending) == ([("global_step_20", 20)], False)


def rising(steps: int) -> dict[int, dict[str, float]]:
    return {step: {"critic/score/mean": 0.3 + 0.01 * step} for step in range(1, steps + 1)}
