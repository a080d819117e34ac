"""prime-rl's lines of trainer and orchestrator; the writer here follows ``trainer/rl/train.py``."""

from __future__ import annotations

from json import dumps
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources import recognise
from exporter.runs.sources.line_consoles import PrimeRl
from tests.runs.conftest import Watching
from tests.runs.lines import append

BEFORE = "\x1b[2m10:11:12\x1b[0m\x1b[32m\x1b[1m SUCCESS\x1b[0m\x1b[32m\x1b[1m \x1b[22m"
AFTER = "\x1b[0m"


def trainer(step: int, entropy: float = 0.4127, seconds: str = "3.25s") -> str:
    reported = (
        f"Step {step} | {seconds:>7} | Loss {0.0012:.4f} | Entropy {entropy:.4f} | Mismatch KL {0.0003:.4f}"
        f" | Grad. Norm {0.5312:.4f} | LR {1e-06:.2e} | Throughput {8123:.0f} tokens/s | MFU {31.2:.1f}%"
        f" | Peak Mem. {45.6:.1f} GiB"
    )
    return f"{BEFORE}{reported}{AFTER}"


def orchestrator(step: int, reward: float = 0.5312) -> str:
    reported = (
        f"Step {step} |  12.50s | Reward {reward:.4f} | Trainable 60/64 (93.8%) | Turns 1.0 | Branches 1.0",
        "Max Off-Policy 2 | Error 3.1% | Cancelled 25.0% | Truncation 12.5% | Timeout 0.0%",
    )
    return f"{BEFORE}{' | '.join(reported)}{AFTER}"


OLD_TRAINER = " | ".join(
    (
        "10:11:12 SUCCESS Step 7 | Time: 3.25s | Loss: -0.0036 | Entropy: 1.0338 | Mismatch KL: 0.3523",
        "Grad. Norm: 0.1000 | LR: 1.00e-06 | Throughput: 812 tokens/s | MFU: 1.0% | Peak Mem.: 4.0 GiB",
    )
)
OLD_ORCHESTRATOR = " | ".join(
    (
        "10:11:12 SUCCESS Step 7 | Time: 98.02s | Reward: 0.4353 | Val. Reward: 0.5000",
        "Throughput: 811.2 tokens/s | Seq. Length: 2069.9 tokens/sample | Async Level: 1",
        "Max. Off-Policy Level: 1",
    )
)


def read(*lines: str) -> list[Event]:
    source = PrimeRl()
    return [event for line in lines for event in source.parse(line.encode())] + list(source.flush())


def signals(line: str) -> dict[str, float]:
    (record,) = read(line)
    assert isinstance(record, Record)
    return Reading("prime_rl").signals(record.values)


def test_a_line_of_the_trainer_is_a_step_with_its_signals() -> None:
    assert signals(trainer(12)) == {
        "policy_loss": 0.0012,
        "entropy": 0.4127,
        "kl_engine": 0.0003,
        "grad_norm": 0.5312,
        "learning_rate": 1e-6,
        "tokens_per_second": 8123.0,
        "mfu_ratio": pytest.approx(0.312),
        "gpu_memory_reserved_bytes": 45.6 * 1024**3,
        "step_seconds": 3.25,
    }


def test_a_line_of_the_orchestrator_is_a_step_with_its_signals() -> None:
    assert signals(orchestrator(12)) == {
        "reward": 0.5312,
        "turns": 1.0,
        "staleness_max": 2.0,
        "rollout_failure_ratio": 0.031,
        "stale_drop_ratio": 0.25,
        "truncated_ratio": 0.125,
        "step_seconds": 12.5,
    }


def test_lines_of_older_versions_are_read_as_well() -> None:
    assert signals(OLD_TRAINER)["entropy"] == 1.0338
    assert signals(OLD_ORCHESTRATOR) == {
        "reward": 0.4353,
        "validation_score": 0.5,
        "response_length": 2069.9,
        "staleness_max": 1.0,
        "step_seconds": 98.02,
    }


@pytest.mark.parametrize(("reported", "seconds"), [("850ms", 0.85), ("1.50m", 90.0), ("1h 2m", 3720.0)])
def test_the_time_of_a_step_is_read_in_every_unit(reported: str, seconds: float) -> None:
    assert signals(trainer(1, seconds=reported))["step_seconds"] == pytest.approx(seconds)


def test_a_log_is_known_by_such_a_line_and_by_no_other() -> None:
    found = [
        recognise(line.encode()) for line in (trainer(0), orchestrator(0), OLD_TRAINER, OLD_ORCHESTRATOR)
    ]
    others = (
        "Micro Step 3/8 | Loss 0.1 | Entropy 0.4",
        "Step 3 | Loss 0.1",
        "Step 3 | 3s | Price 7",
        "a | b",
    )

    assert [source.name for source in found if source] == ["prime_rl_console"] * 4
    assert not any(PrimeRl.recognises(line.encode()) for line in others)


def test_the_total_and_the_end_are_reported() -> None:
    assert read("Starting training loop (max_steps=200)") == [TotalSteps(200)]
    assert read("Starting training loop (max_steps=infinite)") == []
    assert read("RL trainer finished!") == read("Orchestrator finished.") == [Ended("finished")]


@given(
    st.integers(0, 10**9),
    st.floats(-1e6, 1e6, allow_nan=False) | st.just(float("nan")),
)
def test_any_step_and_number_come_back_as_printed(step: int, entropy: float) -> None:
    (record,) = read(trainer(step, entropy))

    assert isinstance(record, Record)
    assert (record.step, record.stream) == (step, "trainer")
    assert repr(record.values["entropy/all/mean"]) == repr(float(f"{entropy:.4f}"))


def test_both_parts_in_one_growing_log_are_one_run(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "prime/rl.log"
    log.parent.mkdir()
    for step in range(6):
        append(log, f"{orchestrator(step, 0.25 + step / 16)}\n", f"{trainer(step)}\n")
        found = page.discover()

    assert found.runs() == {"prime/rl"}
    assert found.value("rl_step", run="prime/rl") == 5
    assert found.value("rl_reward", run="prime/rl") == pytest.approx(0.5625)
    assert found.value("rl_entropy", run="prime/rl") == 0.4127
    assert found.value("rl_restarts_total", run="prime/rl") == 0


@pytest.mark.parametrize("printed", ["nan", "0.5312", None])
@pytest.mark.parametrize("json", [False, True], ids=["alone", "beside its JSON lines"])
def test_what_its_json_drops_as_not_finite_counts_until_it_is_finite_again(
    folder: Path, watched: Watching, printed: str | None, *, json: bool
) -> None:
    page, place = watched(hold=0.0), folder / "prime"
    place.mkdir()
    drop = "10:11:13 WARNING Dropping 7 non-finite value(s) from"
    grad_norm, reward = "optim/grad_norm", "train/agg/effective/default/reward/mean"
    for step in range(13):
        entropy, broken = 0.4 + step / 64, 9 <= step <= 11
        line = trainer(step, entropy)
        if broken:
            shown = "" if printed is None else f"Grad. Norm {printed} | "
            line = line.replace("Grad. Norm 0.5312 | ", shown)
        lines = [orchestrator(step), *broken * [f"{drop} metrics.jsonl: {reward}, train/a/tokens/mean"], line]
        lines += broken * [f"{drop} metrics.jsonl: {grad_norm}"]
        lines += broken * [f"{drop} Prime monitor metrics payload: metrics.{grad_norm}, metrics.a[1] ..."]
        append(place / "rl.log", *(f"{each}\n" for each in lines))
        if json:
            finite = {} if broken else {grad_norm: 0.5312, reward: 0.5312}
            logged = {"step": step, "entropy/all/mean": entropy, "optim/lr": 1e-6, **finite}
            append(place / "metrics.jsonl", dumps({**logged, "perf/throughput": 8123.0}) + "\n")
        found = page.discover()
        if step < 8:  # by so many the logs are known to be of one run
            continue
        (run,) = found.runs()
        for signal in ("grad_norm", "reward"):
            streak = found.value("rl_nonfinite_streak_steps", run=run, signal=signal)
            assert streak == (step - 8 if broken else 0), (step, signal)
    assert found.value("rl_step", run=run) == 12
    assert found.value("rl_nonfinite_streak_steps", run=run, signal="entropy") == 0
    assert bool(found.value("stepwatch_duplicate_logs")) == json
