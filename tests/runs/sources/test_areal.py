"""AReaL's tables, drawn in boxes."""

from __future__ import annotations

import math

import pytest

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Event, Record, TotalSteps, number
from exporter.runs.sources.block_consoles import Areal

LOGGER = "(AReaL) 20260521-10:11:12.345 StatsLogger INFO: "
HEADER = f"{LOGGER}Epoch 1/5 Step 12/100 Train step 12/500 done."
TABLE = [
    f"{LOGGER}Stats (1/1):",
    LOGGER,
    "╒═══════════════════════════╤════════════╤════════════════════════════════╤══════════════╕",
    "│ ppo_actor/task_reward/avg │ 5.3125e-01 │ timeperf/rollout               │ 5.5200e+01   │",
    "├───────────────────────────┼────────────┼────────────────────────────────┼──────────────┤",
    "│ ppo_actor/n_seqs          │ 2.5600e+02 │ ppo_actor/update/grad_norm     │ nan          │",
    "│ ppo_actor/old_logp/avg    │ -2.834e-01 │                                │              │",
    "╘═══════════════════════════╧════════════╧════════════════════════════════╧══════════════╛",
]


def read(*lines: str | bytes) -> list[Event]:
    source = Areal()
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return [event for line in encoded for event in source.parse(line)] + list(source.flush())


def records(*lines: str) -> list[Record]:
    return [event for event in read(*lines) if isinstance(event, Record)]


def test_a_table_is_one_record_of_the_step_above_it() -> None:
    total, found = read(HEADER, *TABLE)

    assert total == TotalSteps(500)
    assert isinstance(found, Record)
    values = {key: number(raw) for key, raw in found.values.items()}
    assert math.isnan(values.pop("ppo_actor/update/grad_norm") or 0.0)
    assert (found.step, values) == (
        12,
        {
            "ppo_actor/task_reward/avg": 0.53125,
            "timeperf/rollout": 55.2,
            "ppo_actor/n_seqs": 256.0,
            "ppo_actor/old_logp/avg": -0.2834,
        },
    )


def test_the_line_of_the_step_is_what_a_log_is_known_by() -> None:
    assert Areal.recognises(HEADER.encode())
    assert not any(Areal.recognises(line.encode()) for line in TABLE)


def test_the_steps_of_the_run_count_over_its_epochs() -> None:
    second = HEADER.replace("Epoch 1/5 Step 12/100 Train step 12", "Epoch 2/5 Step 3/100 Train step 103")

    assert [record.step for record in records(HEADER, *TABLE, second, *TABLE)] == [12, 103]


def test_a_table_ends_at_its_bottom_rule_whatever_a_collector_of_logs_puts_before_the_lines() -> None:
    source = Areal()
    lines = [f"2026-05-21T10:11:12.345678901Z {line}".encode() for line in (HEADER, *TABLE)]
    found = [event for line in lines for event in source.parse(line) if isinstance(event, Record)]

    assert [record.step for record in found] == [12]


@pytest.mark.parametrize("scope", ["ppo_actor", "grpo_actor", "my_own_actor"])
@pytest.mark.parametrize("update", ["update/", ""])
def test_the_actor_s_scope_may_have_any_name_and_none_for_its_updates(scope: str, update: str) -> None:
    table = ["╒═╤═╕"]
    table += [f"│ {scope}/{key} │ {value} │" for key, value in (("task_reward/avg", 0.5), ("n_tokens", 64.0))]
    table += [
        f"│ {scope}/{update}{key} │ {value} │"
        for key, value in (("grad_norm", 2.0), ("entropy/avg", 0.4), ("approx_kl/avg", -0.1))
    ]
    (record,) = records(HEADER, *table, "╘═╧═╛")

    assert Reading("areal").signals(record.values) == {
        "reward": 0.5,
        "step_tokens": 64.0,
        "grad_norm": 2.0,
        "entropy": 0.4,
        "policy_kl": 0.1,
    }


def test_two_tables_of_a_step_are_records_of_one_step() -> None:
    other = ["╒═╤═╕", "│ eval/reward/avg │ 2.5000e-01 │", "╘═╧═╛"]
    found = records(HEADER, *TABLE, *other)

    assert [record.step for record in found] == [12, 12]
    assert found[1].values == {"eval/reward/avg": "2.5000e-01"}


def test_what_a_table_holds_comes_when_the_log_pauses() -> None:
    (found,) = records(HEADER, *TABLE[:4])

    assert set(found.values) == {"ppo_actor/task_reward/avg", "timeperf/rollout"}


def test_a_table_without_a_step_is_someone_elses() -> None:
    assert read(*TABLE) == []


@pytest.mark.parametrize("cut", range(1, len(TABLE[3])))
def test_a_row_cut_anywhere_holds_no_cut_number(cut: int) -> None:
    whole = {"ppo_actor/task_reward/avg": "5.3125e-01", "timeperf/rollout": "5.5200e+01"}
    found = records(HEADER, TABLE[3][:cut])

    assert all(whole[key] == value for record in found for key, value in record.values.items())


@pytest.mark.parametrize("width", [40, 60, 61, 88, 180])
def test_a_table_that_a_terminal_wrapped_is_the_same(width: int) -> None:
    wide = [line[:-1] + line[1:] for line in TABLE[2:]]
    wide = [line.replace("ppo_actor", "critic").replace("timeperf", "perf") for line in wide]
    table = [left[:-1] + right for left, right in zip(TABLE[2:], wide, strict=True)]
    wrapped = [line[at : at + width] for line in table for at in range(0, len(line), width)]
    (whole,) = records(HEADER, *table)

    assert len(whole.values) == 10
    assert records(HEADER, *wrapped) == [whole]
    assert records(HEADER, *wrapped, HEADER.replace("step 12", "step 13"), *wrapped)[1].step == 13
