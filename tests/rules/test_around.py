"""Each rule about what is around the runs speaks when it should, and says who it is about."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pytest

from tests.rules import cluster, host, ray, rendered, rollout, servers, upkeep
from tests.rules import promtool as unit
from tests.rules.promtool import Alert, Group, Moment

AROUND = {
    (group, *rule): scenarios
    for group, module in (
        ("rollout", servers),
        ("rollout", rollout),
        ("ray", ray),
        ("host", host),
        ("cluster", cluster),
        ("stack", upkeep),
    )
    for rule, scenarios in module.SCENARIOS.items()
}
HOLES = ("<no value>", "%!", "?B", "? ", "NaN", "error calling")


def _written(promtool: Path, folder: Path, rule: tuple[str, str, str]) -> list[Alert]:
    """The messages of each scenario at the moment at which most fires."""
    group, alert, severity = rule
    found = rendered.rule(alert, severity, group)
    files = []
    for scenario in AROUND[rule]:
        at, fired = max(scenario.alerts.items(), key=lambda moment: len(moment[1]))
        if fired:
            look = Group(
                scenario.name, scenario.series, [Moment(at, {alert: []})], interval=scenario.interval
            )
            records = rendered.looked_up(found, rendered.recorded(group), look.series)
            files.append(unit.write(folder, f"{len(files)}", [*records, found], [look]))
    return unit.seen(promtool, *files)


@pytest.mark.parametrize("rule", AROUND, ids="-".join)
def test_message_names_what_it_is_about_and_its_link_silences_that_alone(
    rule: tuple[str, str, str], oldest: Path, tmp_path: Path
) -> None:
    alerts = _written(oldest, tmp_path, rule)
    assert alerts
    for alert in alerts:
        summary, description = alert.annotations["summary"], alert.annotations["description"]
        assert not [hole for hole in HOLES if hole in description], description
        assert len(summary) <= 80
        assert len(description) <= 300, description
        who = {
            name: alert.labels[name]
            for name in alert.labels.keys() - {"alertname", "severity", "topic", "job", "uuid"}
        }
        assert [value for value in who.values() if value not in description] == []
        silenced = urllib.parse.unquote(alert.annotations["silence_url"].partition("?filter=")[2])
        wanted = [f'{name}="{value}"' for name, value in who.items()]
        assert rule[1] == "SeriesLimit" or [each for each in wanted if each not in silenced] == []
