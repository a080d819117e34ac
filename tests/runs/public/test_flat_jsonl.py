"""Public JSON lines are read to the last."""

from __future__ import annotations

import json
from pathlib import Path

from exporter.runs.signals import Reading
from tests.runs.sources.test_flat_jsonl import records

REAL = {
    "countdown": ("mean_reward", "avg_gen_tokens"),
    "skyrl": ("reward/total", None),
    "tinker": ("reward/mean", None),
}
"""Starts of the names of the logs, with the keys that hold reward and length there."""


def test_real_logs_are_read_to_the_last_line(real_logs: Path) -> None:
    logs = sorted((real_logs / "jsonl").glob("*.jsonl"))
    assert len(logs) == 4

    for log in logs:
        written = [json.loads(line) for line in log.read_text().splitlines()]
        found = records(*log.read_bytes().split(b"\n"))
        reward, length = next(keys for start, keys in REAL.items() if log.name.startswith(start))
        reading = Reading("")

        assert [record.step for record in found] == [line["step"] for line in written]
        assert [record.time for record in found] == [line.get("timestamp") for line in written]
        for record, line in zip(found, written, strict=True):
            signals = reading.signals(record.values)
            assert signals["reward"] == line[reward]
            assert signals.get("response_length") == line.get(length)


def test_a_count_of_truncated_responses_becomes_a_share(real_logs: Path) -> None:
    (log,) = (real_logs / "jsonl").glob("countdown*.jsonl")
    (first, *_) = records(*log.read_bytes().split(b"\n"))

    assert Reading("").signals(first.values)["truncated_ratio"] == 5 / 20
