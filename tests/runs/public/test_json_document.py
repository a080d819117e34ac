"""Public JSON documents are read to their last entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Record, TotalSteps
from exporter.runs.sources.json_logs import JsonList, TrainerState
from tests.runs.sources.test_json_document import read


def independent(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text())
    entries = document if isinstance(document, list) else document["log_history"]
    return [found for found in entries if "train_runtime" not in found]


def test_real_documents_are_read_to_the_last_entry(real_logs: Path) -> None:
    paths = [*sorted((real_logs / "trl_state").glob("*.json")), *(real_logs / "jsonl").glob("*.json")]
    assert len(paths) == 6

    for path in paths:
        text = path.read_bytes()
        (source,) = [kind() for kind in (TrainerState, JsonList) if kind.recognises(text)]
        found = [event for event in read(source, text) if isinstance(event, Record)]
        expected = independent(path)

        assert isinstance(source, TrainerState) == path.name.endswith("trainer_state.json")
        assert [record.step for record in found] == [logged["step"] for logged in expected]
        reading = Reading(source.framework)
        for record, logged in zip(found, expected, strict=True):
            reward = logged.get("reward", logged.get("objective/scores", logged.get("reward_mean")))
            assert reading.signals(record.values).get("reward") == reward, path.name


def test_real_states_tell_total_and_end(real_logs: Path) -> None:
    reported = {
        path.name.partition("_")[0]: [
            event for event in read(TrainerState(), path.read_bytes()) if not isinstance(event, Record)
        ]
        for path in (real_logs / "trl_state").glob("*trainer_state.json")
    }

    assert reported == {
        "orpo": [TotalSteps(336), Ended("finished")],
        "wordle": [TotalSteps(400)],
        "xling": [TotalSteps(100)],
    }
