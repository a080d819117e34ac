"""The checkpoints of a wrapped trainer: complete ones are noted, the best kept, and nothing else deleted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.files import launch
from exporter.runs.model.run import Options
from stepwatch.launch import layouts
from stepwatch.launch.checkpoints import Watcher, read_scores
from stepwatch.launch.keeper import descendants
from tests.launch import saving
from tests.real.disk import small_disk
from tests.real.ending import Started, ended
from tests.real.waiting import eventually
from tests.runs.lines import console, measured

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "stepwatch", "run")

TRAINER = """
import shutil, sys, time
from pathlib import Path
from tests.launch import saving
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
def _started() -> Iterator[Started]:
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
    started: Started,
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
    best = tmp_path / "ckpt" / "e.best" / "global_step_20"
    said = json.loads((best / "best.json").read_text())
    assert (said["step"], said["measure"]) == (20, "smoothed reward")
    assert said["why"].startswith("smoothed reward 0.")
    assert len(saving.contents(best)) == 8 + 1


@pytest.mark.parametrize(
    ("settings", "expected", "says"),
    [
        ("", [], ""),
        ("checkpoints: {keep: 2}", ["global_step_10", "global_step_20"], ""),
        ('checkpoints: {keep: 2, runs: "b*"}', [], ""),
        ("checkpoints: {keep: many}", [], "no checkpoint is kept: "),
    ],
)
def test_the_settings_say_how_many_of_which_runs_are_kept_and_complete_ones_are_known_anyway(
    tmp_path: Path, started: Started, settings: str, expected: list[str], says: str
) -> None:
    (tmp_path / "config.yaml").write_text(f"{settings}\n")
    started.append(wrapped(tmp_path, "--config", str(tmp_path / "config.yaml"), rewards=RISES[:20]))
    go(tmp_path, 10, 20)

    _, errors = started[0].communicate(timeout=120)
    assert (started[0].returncode, kept(tmp_path)) == (0, expected)
    assert complete(tmp_path) == ["global_step_10", "global_step_20"]
    assert (says in errors, bool(errors)) == (True, bool(says))


def test_nothing_outlives_a_killed_wrapper(tmp_path: Path, started: Started) -> None:
    process = wrapped(tmp_path, "--keep-best", "1")
    started.append(process)
    eventually(lambda: kept(tmp_path) == ["global_step_10"])
    below = list(descendants(process.pid))
    assert len(below) == 3  # the watcher, the process of the attempts, the trainer
    process.kill()
    process.wait()

    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    assert kept(tmp_path) == ["global_step_10"]


def test_where_the_trainers_folder_is_unknown_the_user_has_to_name_it(tmp_path: Path) -> None:
    command = [*RUN, "--runs", str(tmp_path), "--name", "a", "--keep-best", "1", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.endswith("Fix: name the folder with --checkpoints.\n")

    command[-2:-2] = ["--checkpoints", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


class Trial:
    """A watcher over `e`, whose run has logged as many steps as it saved."""

    def __init__(self, folder: Path, rewards: dict[int, float] | None = None) -> None:
        self.folder, self.log, self.best = folder / "e", folder / "a.log", folder / "e.best"
        self.folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
        rewards = rewards or {step: 0.01 * step for step in range(1, 41)}
        log(folder, {step: {"critic/score/mean": reward} for step, reward in rewards.items()})
        self.watcher = Watcher(self.log, "a", self.folder, 1, folder / "config.yaml")

    def look(self, *, ended: bool = False) -> list[str]:
        """Look twice, as a checkpoint counts from the second time on; returns what is kept."""
        for _ in range(2):
            self.watcher.look(ended=ended)
        return sorted(each.name for each in self.best.glob("*")) if self.best.exists() else []

    @property
    def noted(self) -> list[str]:
        return [each.name for each in launch.read_checkpoints(self.log)]


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_what_is_being_written_or_deleted_is_not_complete(trial: Trial) -> None:
    place = saving.transformers(trial.folder, 5)
    trial.watcher.look()
    (place / "scheduler.pt").write_bytes(b"another rank is not yet done")
    trial.watcher.look()
    assert trial.noted == []
    trial.watcher.look()
    assert trial.noted == ["checkpoint-5"]
    shutil.rmtree(trial.best)
    (place / "optimizer.pt").unlink()
    trial.look()
    assert (trial.noted, trial.best.exists()) == ([], False)
    saving.transformers(trial.folder, 6)
    trial.look()
    assert trial.noted == ["checkpoint-6"]


def test_a_damaged_note_says_nothing(tmp_path: Path) -> None:
    for content in ("", "{", "[]", "null", '{"complete": 3}', '{"complete": [["a", "b"]]}'):
        (tmp_path / "a.log.checkpoints").write_text(content)
        assert launch.read_checkpoints(tmp_path / "a.log") == ()


# The choice


def log(folder: Path, values: dict[int, dict[str, float]]) -> Path:
    path = folder / "a.log"
    path.write_text("".join(console(step, {**measured(step), **found}) for step, found in values.items()))
    return path


def test_one_lucky_batch_is_not_the_best(tmp_path: Path) -> None:
    rewards = {step: 0.9 if step == 5 else 0.3 + 0.01 * step for step in range(1, 31)}
    trial = Trial(tmp_path, rewards)
    saving.verl(trial.folder, 5)
    assert trial.look() == ["global_step_5"]
    saving.verl(trial.folder, 30)

    assert trial.look() == ["global_step_30"]


def test_validation_counts_where_it_is_logged(tmp_path: Path) -> None:
    values = {step: {"critic/score/mean": 0.01 * step} for step in range(1, 41)}
    for step, score in ((10, 0.5), (20, 0.6), (30, 0.4)):
        values[step]["val-core/openai/gsm8k/reward/mean@1"] = score
    found = read_scores([log(tmp_path, values)], Options())

    assert (found.last, found.of(5)) == (40, None)
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

    found = read_scores([tmp_path / "a.log", state], Options())
    assert (found.last, found.of(7) is None) == (7, False)
    assert read_scores([tmp_path / "a.log", tmp_path / "missing"], Options()).of(7) is None


def test_a_step_is_scored_once_it_is_logged_and_validation_outweighs_any_reward(tmp_path: Path) -> None:
    trial = Trial(tmp_path, {step: 0.3 + 0.01 * step for step in range(1, 20)})
    for step in (10, 20):
        saving.verl(trial.folder, step)
    assert trial.look() == ["global_step_10"]
    values = {step: {"critic/score/mean": 0.3 + 0.01 * step} for step in range(1, 21)}
    values[20]["val-core/openai/gsm8k/reward/mean@1"] = 0.01
    log(tmp_path, values)

    assert trial.look() == ["global_step_20"]


# What is kept, and what is left alone


@pytest.mark.parametrize("save", [saving.verl, saving.transformers])
def test_a_kept_checkpoint_outlives_the_trainers_own_and_takes_no_space(
    trial: Trial, save: Callable[..., Path]
) -> None:
    place = save(trial.folder, 30)
    before, inodes = saving.contents(place), {each.stat().st_ino for each in place.rglob("*.*")}
    own = sorted(trial.folder.iterdir())
    trial.look()
    kept = trial.best / place.name
    assert {each.stat().st_ino for each in kept.rglob("*.*") if each.name != "best.json"} == inodes
    assert sorted(trial.folder.iterdir()) == own
    shutil.rmtree(place)
    trial.look()

    found = saving.contents(kept)
    said = json.loads(found.pop("best.json"))
    assert found == before
    assert (said["checkpoint"], said["step"], said["source"]) == (place.name, 30, str(place))


@pytest.mark.parametrize("at", [1, 4, 8])
@pytest.mark.parametrize("how", ["deletes", "changes"])
def test_what_the_trainer_deletes_or_changes_meanwhile_is_not_kept_and_the_best_before_stays(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], at: int, how: str
) -> None:
    saving.verl(trial.folder, 5)
    assert trial.look() == ["global_step_5"]
    place, link, done = saving.verl(trial.folder, 6), os.link, list[int]()

    def meanwhile(*names: Path, **_: object) -> None:
        done.append(1)
        if len(done) == at:
            shutil.rmtree(place) if how == "deletes" else (place / "data.pt").write_bytes(b"new")
        link(*names)

    monkeypatch.setattr("os.link", meanwhile)
    assert trial.look() == ["global_step_5"]
    says = {
        "deletes": "global_step_6 cannot be kept in",
        "changes": "the trainer changed or deleted it meanwhile.",
    }
    assert says[how] in capfd.readouterr().err


KILLED = """
import os, sys, time
from pathlib import Path
from stepwatch.launch import checkpoints

at, folder = sys.argv[1], Path(sys.argv[2])
number = [0]

def stop(*of, **more):
    number[0] += 1
    if at != "link" or number[0] == 3:
        (folder / "there").touch()
        time.sleep(600)
    return link(*of, **more)

link = os.link
if at == "link":
    os.link = stop
else:
    Path.rename = stop
watcher = checkpoints.Watcher(folder / "a.log", "a", folder / "e", 1, folder / "config.yaml")
for _ in range(2):
    watcher.look()
"""


@pytest.mark.parametrize("at", ["link", "rename"])
def test_after_a_kill_nothing_half_has_a_name_and_the_next_start_clears_up(
    tmp_path: Path, trial: Trial, at: str
) -> None:
    saving.verl(trial.folder, 5)
    trial.look()
    saving.verl(trial.folder, 6)
    with subprocess.Popen([sys.executable, "-c", KILLED, at, str(tmp_path)], cwd=ROOT) as process:
        eventually((tmp_path / "there").exists)
        process.send_signal(signal.SIGKILL)
    assert sorted(each.name for each in trial.best.iterdir()) == [".stepwatch-new", "global_step_5"]

    assert Trial.look(trial) == ["global_step_6"]
    found = saving.contents(trial.best / "global_step_6")
    assert found.keys() - {"best.json"} == saving.contents(trial.folder / "global_step_6").keys()


def test_a_trainer_that_writes_through_a_hard_link_is_found_out(
    trial: Trial, capfd: pytest.CaptureFixture[str]
) -> None:
    saving.verl(trial.folder, 5)
    trial.look()
    before = saving.contents(trial.best / "global_step_5")
    saving.verl(trial.folder, 5)  # opens the same files and writes them anew

    assert trial.look() == ["global_step_5"]
    assert "the trainer saved global_step_5 again, which wrote into" in capfd.readouterr().err
    found = saving.contents(trial.best / "global_step_5")
    assert found != before
    assert found.keys() - {"best.json"} == saving.contents(trial.folder / "global_step_5").keys()


@pytest.mark.parametrize("change", ["changed", "added"])
def test_what_someone_else_changed_is_left_alone(
    trial: Trial, capfd: pytest.CaptureFixture[str], change: str
) -> None:
    saving.verl(trial.folder, 5)
    trial.look()
    kept = trial.best / "global_step_5"
    shutil.rmtree(trial.folder / "global_step_5")
    mine = kept / ("data.pt" if change == "changed" else "notes.txt")
    mine.unlink(missing_ok=True)
    mine.write_text("mine")
    saving.verl(trial.folder, 6)

    assert trial.look() == ["global_step_5", "global_step_6"]
    assert f"{kept} was changed; it is left as it is and no longer counts as kept." in capfd.readouterr().err
    saving.verl(trial.folder, 30)
    assert trial.look() == ["global_step_30", "global_step_5"]
    assert (mine.read_text(), len(saving.contents(kept))) == ("mine", 8 if change == "changed" else 9)


def _file(best: Path) -> None:
    best.write_text("mine")


def _link(best: Path) -> None:
    best.with_name("elsewhere").mkdir()
    best.symlink_to(best.with_name("elsewhere"))


def _checkpoint(best: Path) -> None:
    (best / "global_step_5").mkdir(parents=True)


@pytest.mark.parametrize("make", [_file, _link, _checkpoint])
def test_what_stepwatch_did_not_make_is_never_touched(
    trial: Trial, make: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    make(trial.best)
    saving.verl(trial.folder, 5)
    trial.watcher.look()
    trial.watcher.look()

    said = capfd.readouterr().err
    assert "was not made by Stepwatch, so" in said
    assert said.endswith("Fix: move it away.\n")
    assert saving.contents(trial.folder.parent).keys() - saving.contents(trial.folder).keys()
    assert not list(trial.folder.parent.rglob("best.json"))


def test_a_disk_is_never_filled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", "tmpfs") as disk:
        trial = Trial(disk / "checkpoints")
        saving.verl(trial.folder, 5, size=4 << 20)  # 24 MiB
        assert trial.look() == ["global_step_5"]
        saving.verl(trial.folder, 6, size=4 << 20)
        taken = os.statvfs(disk)
        (disk / "others").write_bytes(bytes(taken.f_bavail * taken.f_frsize - (20 << 20)))

        assert trial.look() == ["global_step_5"]
        said = capfd.readouterr().err
        assert "GiB free; keeping a checkpoint takes" in said
        assert said.endswith("Fix: free some space.\n")


def test_where_the_trainers_folder_is_a_disk_the_best_are_on_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "e", "tmpfs") as disk:
        (tmp_path / "config.yaml").touch()
        log(tmp_path, {step: {"critic/score/mean": 0.1} for step in range(1, 9)})
        saving.transformers(disk, 5)
        watcher = Watcher(tmp_path / "a.log", "a", disk, 1, tmp_path / "config.yaml")
        watcher.look()
        watcher.look()
        assert (disk / "best" / "checkpoint-5").is_dir()


# Where trainers save, and what is complete

VERL = "python3 -m verl.trainer.main_ppo"
COMMANDS = [
    (f"{VERL} trainer.default_local_dir=/data/ckpt/a", "/data/ckpt/a"),
    (f"{VERL} trainer.project_name=p trainer.experiment_name=e", "/job/checkpoints/p/e"),
    (f"{VERL} data.train_batch_size=8", "/job/checkpoints/verl_examples/gsm8k"),
    (f"{VERL} trainer.default_local_dir=c/${{trainer.project_name}} trainer.project_name=p", "/job/c/p"),
    (f"{VERL} trainer.default_local_dir=${{oc.env:HOME_OF_NO_ONE}}/a", None),
    ("trl grpo --output_dir out --max_steps 5", "/job/out"),
    ("accelerate launch train.py --output-dir out", "/job/out"),
    ("python train.py --save /data/slime", "/data/slime"),
    ("python train.py --save --lr 1", None),
    ("uv run examples/run_grpo.py checkpointing.checkpoint_dir=results/a", "/job/results/a"),
    ("ray job submit -- python -m verl.trainer.main_ppo trainer.default_local_dir=out", None),
    ("bash run.sh", None),
]


@pytest.mark.parametrize(("command", "folder"), COMMANDS)
def test_the_command_line_says_where_the_trainer_saves(command: str, folder: str | None) -> None:
    assert layouts.folder(command.split(), Path("/job")) == (folder and Path(folder))


def _without(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def _written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda place: (place / name).write_bytes(content) and None


DAMAGE: list[tuple[Callable[..., Path], Callable[[Path], object]]] = [
    (saving.verl, lambda place: (place.parent / layouts.TRACKER).write_text("20")),  # not yet saved
    (saving.verl, lambda place: (place.parent / layouts.TRACKER).write_text("")),  # just being written
    (saving.verl, lambda place: (place.parent / layouts.TRACKER).unlink()),
    (saving.verl, _without("actor/model_world_size_2_rank_1.pt")),
    (saving.verl, _written("actor/model_world_size_2_rank_1.pt", b"")),
    (saving.verl, lambda place: shutil.rmtree(place / "actor")),  # as verl rotates
    (saving.transformers, _without("trainer_state.json")),
    (saving.transformers, _written("trainer_state.json", b'{"global_step": 29}')),
    (saving.transformers, _written("trainer_state.json", b'{"global_')),
    (saving.transformers, _without("model-00002-of-00002.safetensors")),
    (saving.transformers, lambda place: (place / "base").symlink_to("/usr")),  # its target may change
    (saving.transformers, _written("model.safetensors.index.json", b"{")),
]


@pytest.mark.parametrize(("save", "damage"), DAMAGE)
def test_only_what_the_trainer_has_saved_to_the_end_is_complete(
    tmp_path: Path, save: Callable[..., Path], damage: Callable[[Path], object]
) -> None:
    place = save(tmp_path, 30)
    whole = layouts.is_whole(saving.checkpoint(tmp_path, place.name))
    damage(place)

    assert (whole, layouts.is_whole(saving.checkpoint(tmp_path, place.name))) == (True, False)


def test_adapters_distributed_checkpoints_and_those_of_nemo_are_known(tmp_path: Path) -> None:
    adapter = tmp_path / "checkpoint-5"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(saving.safetensors(10))
    (adapter / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    megatron = tmp_path / "iter_0000007"
    megatron.mkdir()
    for name in ("__0_0.distcp", "common.pt"):
        (megatron / name).write_bytes(b"x")
    (tmp_path / layouts.TRACKER).write_text("7")
    nemo = tmp_path / "step_9" / "policy" / "weights"
    nemo.mkdir(parents=True)
    (nemo / "model.pt").write_bytes(b"x")
    unfinished = nemo.parents[1] / "training_info.json"

    found = {each.name: (each.step, layouts.is_whole(each)) for each in layouts.found(tmp_path)}
    assert found == {"checkpoint-5": (5, True), "iter_0000007": (7, True), "step_9": (9, False)}
    unfinished.write_text("{}")
    assert layouts.is_whole(saving.checkpoint(tmp_path, "step_9"))


def test_other_folders_links_and_files_are_no_checkpoints(tmp_path: Path) -> None:
    saving.verl(tmp_path / "real", 3)
    (tmp_path / "global_step_3").symlink_to(tmp_path / "real" / "global_step_3")
    (tmp_path / "checkpoint-4").write_text("a file")
    for name in ("best", "checkpoint-last", "tmp_step_7", "tmp-checkpoint-8", "global_step_9.old"):
        (tmp_path / name).mkdir()

    assert layouts.found(tmp_path) == []
    assert layouts.found(tmp_path / "missing") == []
