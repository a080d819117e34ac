"""A signal that two parts of a trainer log is taken from one of them."""

from __future__ import annotations

from exporter.runs.formats.dict_consoles import Slime
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Record


def scoped(*records: Record) -> Run:
    run = Run("scoped_jsonl", "scoped", Options())
    for record in records:
        run.take(record, Clock(float(record.step), float(record.step), live=True))
    return run


def part(stream: str, step: int, **values: float) -> Record:
    return Record(step, values, stream=stream)


def values(run: Run, signal: str) -> list[float]:
    return list(run.statistics[signal].values)


def test_what_two_parts_log_is_counted_once_a_step_from_the_one_that_came_first() -> None:
    both = [
        record
        for step in range(1, 6)
        for record in (
            part("rollout", step, reward_mean=step, response_length=100 + step),
            part("train", step, response_length=900 + step, grad_norm=step),
        )
    ]
    run = scoped(*both)

    assert values(run, "response_length") == [101, 102, 103, 104, 105]
    assert values(run, "grad_norm") == [1, 2, 3, 4, 5]
    assert run.records == 5


def test_a_zero_that_means_not_measured_gives_way_to_the_part_that_measures() -> None:
    run = Run("slime_console", "slime", Options())
    source = Slime()
    for step in range(6):
        rollout = {"rollout/raw_reward": 0.5, "rollout/kl": 0.0}
        update = {"train/kl_loss": 0.1 * (step + 1), "train/step": step}
        for line in (f"data.py:193 - rollout {step}: {rollout}", f"model.py:918 - step {step}: {update}"):
            for event in source.parse(line.encode()):
                run.take(event, Clock(float(step), float(step), live=True))

    assert [round(value, 1) for value in values(run, "kl")][-5:] == [0.2, 0.3, 0.4, 0.5, 0.6]
    assert 0 not in values(run, "kl")[1:]


def test_an_evaluation_before_the_training_does_not_keep_the_reward() -> None:
    evaluation = part("eval", 0, reward_mean=0.9)
    training = [part("rollout", step, reward_mean=step / 10) for step in range(1, 10)]
    run = scoped(evaluation, *training)

    assert values(run, "reward")[-7:] == [step / 10 for step in range(3, 10)]


def test_who_owns_a_signal_is_kept_over_a_restart() -> None:
    first = scoped(part("rollout", 1, response_length=10), part("train", 1, response_length=20, grad_norm=1))
    second = Run("scoped_jsonl", "scoped", Options())
    second.restore(first.snapshot())
    for record in (part("train", 2, response_length=21), part("rollout", 2, response_length=11)):
        second.take(record, Clock(2.0, 2.0, live=True))

    assert values(second, "response_length") == [11]
