"""Traps of what trainers log that only a whole run shows; those of keys stand in signals/rows.txt."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import pytest

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Event, Record, ResponseLimit
from tests.runs.conftest import Watching
from tests.runs.lines import append, console, measured, verl_json


def run_of(source: str, framework: str, *events: Event) -> Run:
    """A run that logged these while the exporter was watching, ten seconds apart."""
    run = Run(source, framework, Options())
    for number, event in enumerate(events):
        run.take(event, Clock(1e9 + 10 * number, 10.0 * number, live=True))
    return run


def verl(*values: dict[str, object]) -> Run:
    return run_of("verl_jsonl", "verl", *(Record(step, found) for step, found in enumerate(values, 1)))


def shown(run: Run, name: str, signal: str, steps: int | None = None) -> float | None:
    (value,) = [
        read() for s, read in run.statistics[signal].readers if (s.name, s.steps or None) == (name, steps)
    ]
    return value


# non-finite values hide


@pytest.mark.parametrize("signal", ["grad_norm", "reward"], ids=["updates skipped", "samples aborted"])
def test_a_run_whose_value_is_not_finite_stays_alive_and_its_streak_grows(
    folder: Path, watched: Watching, signal: str
) -> None:
    page, log = watched(), folder / "a.jsonl"
    append(log, verl_json(1, measured(1)))
    page.look()
    for step in range(2, 6):
        append(log, verl_json(step, measured(step, **{signal: float("nan")})))
        found = page.look(10.0)

    assert found.state("a") == "running"
    assert isnan(found.value(f"rl_{signal}", run="a") or 0.0)
    assert found.value("rl_nonfinite_streak_steps", run="a", signal=signal) == 4
    assert found.value("rl_nonfinite_steps_total", run="a", signal=signal) == 4
    assert found.value("rl_nonfinite_streak_steps", run="a", signal="kl") == 0


def test_a_loss_that_transformers_mended_does_not_hide_the_gradient(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "train.log"
    page.look()
    for step in range(1, 8):
        norm = "nan" if step > 3 else "1.5"
        append(log, f"{{'loss': 0.{step}, 'grad_norm': {norm}, 'reward': 0.{step}, 'epoch': 0.0{step}}}\n")
        found = page.discover()

    assert found.value("rl_nonfinite_streak_steps", run="train", signal="grad_norm") == 4
    assert found.value("rl_nonfinite_streak_steps", run="train", signal="policy_loss") in (0, None)


# grad_norm is before clipping, at any level


@pytest.mark.parametrize("level", [0.003, 1.0, 40.0])
def test_gradients_are_compared_with_their_own_past_at_any_level(level: float) -> None:
    norms = [level * (1 + step % 3 / 10) for step in range(40)] + [level * 12] * 5
    run = verl(*({"actor/grad_norm": norm} for norm in norms))
    recent, usual = (
        shown(run, "median_over_steps", "grad_norm", 5),
        shown(run, "level_over_steps", "grad_norm", 64),
    )

    assert recent is not None
    assert usual is not None
    # No value counts for more than 4 times the mean: mean = (40 * 1.0975 + 5 * 4 * mean) / 45.
    assert recent / usual == pytest.approx(12 / (40 * 1.0975 / (45 - 5 * 4)), rel=1e-3)


# missing is not zero


def test_what_is_not_logged_is_on_no_page(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.jsonl"
    page.look()
    for step in range(1, 40):
        append(log, verl_json(step, measured(step, kl=None, entropy=None)))
    found = page.discover()
    about = {name for name, labels in found.samples if ("run", "a") in labels}
    signals = {dict(labels)["signal"] for _, labels in found.samples if "signal" in dict(labels)}

    assert found.value("rl_records_total", run="a") == 39
    assert about.isdisjoint({"rl_kl", "rl_entropy", "rl_validation_score", "rl_value_loss"})
    assert signals.isdisjoint({"kl", "entropy", "policy_kl", "value_loss"})


def test_an_actor_that_waits_for_its_critic_has_no_zeros() -> None:
    warm_up = [{"critic/score/mean": 0.5, "critic/vf_loss": 9.0 / step} for step in range(1, 21)]
    run = verl(*warm_up, *(measured(step, kl=0.02) for step in range(21, 26)))

    assert shown(run, "start", "kl") == 0.02
    assert run.statistics["entropy"].values[0] == measured(21)["actor/entropy"]


def test_validation_now_and_then_keeps_its_last_score(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, console(0, {"val-core/gsm8k/acc/mean@1": 0.25}))
    found = page.look()
    assert found.value("rl_validation_score", run="a") == 0.25
    assert found.value("rl_reward", run="a") is None
    for step in range(1, 10):
        append(log, console(step, measured(step)))
    found = page.look(1.0)

    assert found.value("rl_validation_score", run="a") == 0.25
    assert found.value("rl_reward", run="a") == pytest.approx(measured(9)["critic/score/mean"])


def test_each_validation_set_keeps_its_last_score(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, console(0, {"val-core/openai/gsm8k/acc/mean@1": 0.25, "val-core/aime/acc/mean@8": 0.125}))
    append(log, console(1, measured(1) | {"val-core/openai/gsm8k/acc/mean@1": 0.5}), console(2, measured(2)))
    found = page.look()

    assert found.value("rl_validation_component", run="a", dataset="openai/gsm8k") == 0.5
    assert found.value("rl_validation_component", run="a", dataset="aime") == 0.125
    assert found.value("rl_raw", run="a", key="val-core/aime/acc/mean@8") is None


def test_trl_logs_one_record_for_each_of_its_evaluation_sets(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    for epoch in (0.1, 0.2):
        append(log, repr({"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "epoch": epoch}) + "\n")
        for name, score in (("gsm8k", 0.25), ("math_500", 0.5)):
            own = {f"eval_{name}_{what}": "1.5" for what in ("loss", "runtime", "steps_per_second")}
            append(log, repr({**own, "eval_reward": str(score + epoch), "epoch": epoch}) + "\n")
    found = page.look()

    assert found.value("rl_validation_component", run="a", dataset="gsm8k") == 0.25 + 0.2
    assert found.value("rl_validation_component", run="a", dataset="math_500") == 0.5 + 0.2


# the share of truncated responses


def test_the_longest_response_of_a_batch_is_not_truncated_by_being_the_longest() -> None:
    values = {
        "response_length/clip_ratio": 0.125,
        "response_length/max": 700.0,
        "training/num_turns/mean": 2.0,
        "critic/score/mean": 0.5,
    }
    records = [Record(step, {**values, "critic/score/mean": step / 10}) for step in range(1, 6)]
    without = run_of("verl_console", "verl", *records)
    known = run_of("verl_console", "verl", ResponseLimit(1024), *records)
    reached = run_of("verl_console", "verl", ResponseLimit(700), *records)

    assert shown(without, "mean_over_steps", "truncated_ratio", 5) is None
    assert shown(known, "mean_over_steps", "truncated_ratio", 5) == 0.0
    assert shown(reached, "mean_over_steps", "truncated_ratio", 5) == 0.125


# TRL logs every ten steps


def test_three_points_of_trl_are_twenty_one_steps_and_three_records(folder: Path, watched: Watching) -> None:
    entries = [{"step": step, "epoch": step / 100, "reward": step / 90, "loss": 0.1} for step in (10, 20, 30)]
    (folder / "out").mkdir()
    state = {"global_step": 30, "max_steps": 500, "logging_steps": 10, "log_history": entries}
    (folder / "out/trainer_state.json").write_text(json.dumps(state, indent=2))
    found = watched().look()

    assert found.value("rl_step", run="out") == 30
    assert found.value("rl_steps_seen", run="out") == 21
    assert found.value("rl_records_total", run="out") == 3


# warm-up hides the fastest collapse


def test_a_collapse_within_ten_steps_shows_in_the_floors_at_once() -> None:
    """The run that died in steps 5 to 12: length 1750 to 1, entropy to .002."""
    lengths = [1750.0] * 5 + [900.0, 300.0, 60.0, 9.0, 1.0, 1.0, 1.0]
    entropies = [0.2, 0.2, 0.2, 0.25, 0.37, 0.2, 0.1, 0.05, 0.02, 0.01, 0.003, 0.002]
    both = zip(lengths, entropies, strict=True)
    run = verl(*({"response_length/mean": length, "actor/entropy": entropy} for length, entropy in both))

    assert shown(run, "median_over_steps", "response_length", 5) == 1.0
    assert shown(run, "start", "response_length") == 1750.0
    assert shown(run, "min_over_steps", "entropy", 3) == 0.002
