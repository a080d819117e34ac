"""Public tables are read to their last rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from exporter.runs.signals import Reading
from tests.runs.sources.test_csv_table import records


def tables(real_logs: Path, folder: str) -> list[Path]:
    found = sorted((real_logs / folder).glob("*.csv"))
    assert found
    return found


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("folder", "framework", "signals"),
    [
        ("ragen_csv", "generic", {"performance": "reward", "output length": "response_length"}),
        (
            "verl_csv",
            "verl",
            {
                "critic_score_mean": "reward",
                "actor_entropy": "entropy",
                "response_length_clip_ratio": "truncated_ratio",
            },
        ),
    ],
)
def test_real_tables_are_read_to_the_last_row(
    real_logs: Path, folder: str, framework: str, signals: dict[str, str]
) -> None:
    for path in tables(real_logs, folder):
        found = records(path.read_bytes().split(b"\n"))
        reading = Reading("")
        measured = [row for row in rows(path) if any(row[key] for key in row if key != "step")]

        assert [record.step for record in found] == [int(row["step"]) for row in measured], path.name
        for record, row in zip(found, measured, strict=True):
            values = reading.signals(record.values)
            for column, signal in signals.items():
                assert values[signal] == float(row[column])
        assert reading.framework == framework


def test_the_real_export_of_w_and_b_holds_each_run_to_its_end(real_logs: Path) -> None:
    for path in tables(real_logs, "wandb_csv"):
        found = records(path.read_bytes().split(b"\n"))
        table = rows(path)
        columns = [
            name for name in table[0] if name.startswith("Name: ") and not name.endswith(("MIN", "MAX"))
        ]

        assert len(columns) == 8
        for column in columns:
            run = column.removeprefix("Name: ").removesuffix(" - critic/rewards/mean")
            expected = [(int(row["Step"]), float(row[column])) for row in table if row[column]]
            of_run = [record for record in found if record.run == run]
            reading = Reading("")
            assert [(record.step, reading.signals(record.values)["reward"]) for record in of_run] == expected
