"""Where a trainer saves checkpoints, and which of them are complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwatch.launch import layouts
from tests.launch import saving

VERL = "python3 -m verl.trainer.main_ppo"
COMMANDS = [
    (f"{VERL} trainer.default_local_dir=/data/ckpt/a", "/data/ckpt/a"),
    (f"{VERL} +trainer.default_local_dir='out'", "/job/out"),
    (f"{VERL} trainer.project_name=p trainer.experiment_name=e", "/job/checkpoints/p/e"),
    (f"{VERL} data.train_batch_size=8", "/job/checkpoints/verl_examples/gsm8k"),
    (f"{VERL} trainer.default_local_dir=c/${{trainer.project_name}} trainer.project_name=p", "/job/c/p"),
    (f"{VERL} trainer.default_local_dir=${{oc.env:HOME_OF_NO_ONE}}/a", None),
    ("trl grpo --output_dir out --max_steps 5", "/job/out"),
    ("torchrun train.py --output_dir=/data/./out/", "/data/out"),
    ("accelerate launch train.py --output-dir out", "/job/out"),
    ("python train.py --save /data/slime", "/data/slime"),
    ("python train.py --save --lr 1", None),
    ("uv run examples/run_grpo.py checkpointing.checkpoint_dir=results/a", "/job/results/a"),
    ("ray job submit -- python -m verl.trainer.main_ppo trainer.default_local_dir=out", None),
    ("ray job submit -- python -m verl.trainer.main_ppo trainer.default_local_dir=/out", "/out"),
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
