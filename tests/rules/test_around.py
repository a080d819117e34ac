"""What a person reads of an alert about a part or a GPU: what is wrong where, and what to do first."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.alert_labels import ABOUT
from tests.rules import promtool as unit
from tests.rules import proofs, rendered
from tests.rules.promtool import Alert, Group, Moment

OTHERS = ("GPUIdleWhileRunning", "Restarting", "ResumedWithLoss", "SignalsUnknown", "Watchdog")
"""What is about a run, whose name is the heading of its message, or about nothing."""
NAMES = [name for name in proofs.scenarios() if not name.startswith(OTHERS)]
HOLES = ("<no value>", "%!", "?B", "? ", "NaN", "error calling", "{gpu}")
UNNAMED = {"alertname", "severity", "topic", "job", "uuid"}
"""Labels that need not be named for the reader."""


def _written(promtool: Path, folder: Path, name: str) -> list[Alert]:
    """The messages of each scenario at the moment at which most fires."""
    found = proofs.rules()[name]
    group = next(each for each in rendered.groups() if found in rendered.rules(each))
    files = []
    for scenario in proofs.scenarios()[name]:
        at, fired = max(scenario.alerts.items(), key=lambda moment: len(moment[1]))
        if fired:
            moments = [Moment(at, {found["alert"]: []})]
            look = Group(scenario.name, scenario.series, moments, interval=scenario.interval)
            records = [*rendered.recorded(group), *rendered.recorded("texts")]
            there = rendered.looked_up(found, records, look.series)
            files.append(unit.write(folder, f"{len(files)}", [*there, found], [look]))
    return unit.seen(promtool, *files)


@pytest.mark.parametrize("name", NAMES)
def test_message_names_what_it_is_about_and_its_form_for_silences_that_alone(
    name: str, oldest: Path, tmp_path: Path
) -> None:
    alerts = _written(oldest, tmp_path, name)
    assert alerts
    for alert in alerts:
        summary, description = alert.annotations["summary"], alert.annotations["description"]
        said = description + alert.annotations["action"]
        assert not [hole for hole in HOLES if hole in said], said
        assert len(summary) <= 80
        assert len(description) <= 300, description
        about = {label: alert.labels[label] for label in alert.labels.keys() - UNNAMED}
        assert [value for value in about.values() if value not in description] == []
        assert name.startswith("SeriesLimit") or about.keys() - {"xid"} <= set(ABOUT)
        if alert.labels["topic"] == "gpu" and "gpu" in alert.labels:
            assert description.startswith(f"GPU {alert.labels['gpu']} at {alert.labels['instance']}")
            assert alert.labels.get("uuid", "") in description
