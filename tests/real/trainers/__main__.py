"""Regenerate the logs in tests/logs with real trainers: `python -m tests.real.trainers [LOG ...]`."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.real.trainers import SCRIPTS, TRL, VERL, Training, environment, ray_head

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "logs"


@dataclass(frozen=True)
class Start:
    """One start of a trainer.

    Attributes:
        options: Of its script, without the folder of its output.
        kill_at: The text in its log after which it is killed.
    """

    options: str
    kill_at: str | None = None


@dataclass(frozen=True)
class Log:
    """A log to be made.

    Attributes:
        name: In this folder.
        script: Of the trainer.
        starts: One after another, into the same log.
        through: What the shell does with the output.
        buffered: Whether standard output comes in blocks.
        keep: Files of the output that belong to it: a pattern in the trainer's folder, and the name here.
    """

    name: str
    script: Path
    starts: Sequence[Start]
    through: Literal["tee", "file"] = "tee"
    buffered: bool = False
    keep: tuple[tuple[str, str], ...] = ()


LOGS = [
    Log(
        "trl/healthy.log",
        TRL,
        [Start("--steps 60 --seed 11 --save-steps 60 --report-to tensorboard")],
        "file",
        keep=(
            ("checkpoint-60/trainer_state.json", "trl/healthy/checkpoint-60/trainer_state.json"),
            ("tensorboard/events.*", "trl/healthy/tensorboard"),
        ),
    ),
    Log("trl/healthy_buffered.log", TRL, [Start("--steps 60 --seed 12")], "file", buffered=True),
    Log("trl/every5.log", TRL, [Start("--steps 200 --seed 13 --logging-steps 5")]),
    Log(
        "trl/sick.log", TRL, [Start("--steps 64 --seed 14 --reward noisy --later-reward nothing --later 30")]
    ),
    Log("trl/constant_reward.log", TRL, [Start("--steps 90 --seed 15 --reward constant")]),
    Log("trl/noisy.log", TRL, [Start("--steps 80 --seed 16 --reward noisy")]),
    Log("trl/nan.log", TRL, [Start("--steps 40 --seed 17 --nan-at 12 19 20 21")]),
    Log("trl/killed_tee.log", TRL, [Start("--steps 160 --seed 18 --pace 0.1", "| 40/160 ")]),
    Log("trl/killed_file.log", TRL, [Start("--steps 160 --seed 19 --pace 0.1", "| 40/160 ")], "file"),
    Log(
        "trl/killed_buffered.log",
        TRL,
        [Start("--steps 160 --seed 20 --pace 0.1", "| 40/160 ")],
        "file",
        buffered=True,
    ),
    Log(
        "trl/resumed.log",
        TRL,
        [
            Start("--steps 80 --seed 21 --pace 0.1 --save-steps 20", "| 47/80 "),
            Start("--steps 80 --seed 21 --save-steps 20 --resume"),
        ],
        keep=(("checkpoint-80/trainer_state.json", "trl/resumed/checkpoint-80/trainer_state.json"),),
    ),
    Log(
        "trl/resumed_buffered.log",
        TRL,
        [
            Start("--steps 80 --seed 42 --pace 0.1 --save-steps 20", "| 47/80 "),
            Start("--steps 80 --seed 42 --save-steps 20 --resume"),
        ],
        buffered=True,
    ),
    Log(
        "trl/resumed_after_end.log",
        TRL,
        [
            Start("--steps 20 --seed 22 --save-steps 20"),
            Start("--steps 40 --seed 22 --save-steps 20 --resume"),
        ],
    ),
    Log("trl/failed.log", TRL, [Start("--steps 80 --seed 23 --later-reward failing --later 40")]),
    Log("trl/failed_before_step_1.log", TRL, [Start("--steps 80 --seed 24 --reward failing")]),
    Log("trl/two_runs.log", TRL, [Start("--steps 20 --seed 25"), Start("--steps 30 --seed 26")]),
    Log(
        "trl/starts",
        TRL,
        [
            Start("--steps 60 --seed 27 --pace 0.1 --save-steps 10 --report-to tensorboard", "| 27/60 "),
            Start("--steps 60 --seed 27 --save-steps 10 --report-to tensorboard --resume"),
        ],
        keep=(("tensorboard/events.*", "trl/starts"),),
    ),
    Log(
        "trl/wandb_console.log",
        TRL,
        [Start("--steps 20 --seed 28 --report-to wandb")],
        keep=(("wandb/offline-run-*", "trl/wandb"),),
    ),
    Log("verl/sick.log", VERL, [Start("--story collapse --steps 200 --seed 31 --ray", "| 60/200 ")]),
    Log(
        "verl/healthy.log",
        VERL,
        [Start("--trainer ppo --story learning --steps 100 --seed 32 --validate-every 20")],
    ),
    Log(
        "verl/resumed.log",
        VERL,
        [
            Start("--steps 80 --seed 33 --validate-every 20 --save-every 15", "| 40/80 "),
            Start("--steps 80 --seed 33 --validate-every 20 --save-every 15"),
        ],
    ),
    Log("verl/truncated.log", VERL, [Start("--story truncation --steps 60 --seed 34")]),
    Log("verl/healthy2.log", VERL, [Start("--steps 200 --seed 35", "| 80/200 ")], "file"),
    Log("verl/failed.log", VERL, [Start("--steps 100 --seed 36 --raise-at 31 --ray")]),
    Log("verl/sft.log", VERL, [Start("--trainer sft --steps 70 --seed 37")]),
    Log(
        "verl/file_console.log",
        VERL,
        [Start("--story collapse --steps 60 --seed 38 --loggers console file")],
        keep=(("jsonl/demo/*.jsonl", "verl/file.jsonl"),),
    ),
    Log(
        "verl/tensorboard",
        VERL,
        [Start("--steps 40 --seed 39 --loggers tensorboard")],
        keep=(("tensorboard/events.*", "verl/tensorboard"),),
    ),
    Log("verl/kl_explosion.log", VERL, [Start("--story kl_explosion --steps 50 --seed 40")]),
    Log(
        "verl/nan.log",
        VERL,
        [Start("--story nan --steps 44 --seed 41 --loggers console file")],
        keep=(("jsonl/demo/*.jsonl", "verl/nan.jsonl"),),
    ),
]


def main(names: Sequence[str]) -> None:
    """Make the logs whose names begin like this, all of them by default."""
    for log in LOGS:
        if not names or log.name.startswith(tuple(names)):
            print(log.name, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                make(log, Path(folder))
    if not names or "ray/head.prom" in names:
        (HERE / "ray").mkdir(exist_ok=True)
        (HERE / "ray" / "head.prom").write_text(ray_head.node_page())


def make(log: Log, folder: Path) -> None:
    """Make one in a folder of its own, and keep what belongs to it."""
    run, written = folder / Path(log.name).stem, folder / "log"
    for number, start in enumerate(log.starts):
        options = ["--output", run.name, *start.options.split()]
        more = {"through": log.through, "append": number > 0, "buffered": log.buffered}
        with Training(log.script, *options, log=written, **more) as training:
            if start.kill_at:
                training.wait_for(start.kill_at)
                training.kill()
            training.wait()
    place = HERE / log.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix:
        place.write_bytes(_shortened(written.read_bytes(), folder))
    for pattern, name in log.keep:
        _keep(run, pattern, HERE / name, folder)


def _keep(run: Path, pattern: str, place: Path, folder: Path) -> None:
    if not place.suffix and place.exists():
        shutil.rmtree(place)
    for number, found in enumerate(sorted(run.glob(pattern)), 1):
        for file in found.rglob("*") if found.is_dir() else [found]:
            beside = f"start-{number}/" if place.name == "starts" else ""
            name = str(file.relative_to(run.joinpath(pattern).parent))
            name = name.replace(socket.gethostname(), "trainer")
            target = place if place.suffix else place / f"{beside}{name}"
            if file.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                content = file.read_bytes()
                target.write_bytes(_shortened(content, folder) if file.suffix == ".log" else content)


def _shortened(content: bytes, folder: Path) -> bytes:
    paths = {environment().parent: "/opt/trainer", SCRIPTS: "/opt", folder: "/runs", sys.base_prefix: "/usr"}
    for path, shown in paths.items():
        content = content.replace(str(path).encode(), shown.encode())
    return content


if __name__ == "__main__":
    main(sys.argv[1:])
