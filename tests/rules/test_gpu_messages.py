"""What the person who is paged for a GPU reads: which card of which box, what is wrong, what to do first."""

from __future__ import annotations

import urllib.parse
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.gpu.demo import NAMES
from stepwatch.alerts.table import TABLE
from tests.rules import cards, rendered, xids
from tests.rules import promtool as unit
from tests.rules.cards import CARD, HERE, OTHER_BOX, TARGET
from tests.rules.gpu import SCENARIOS
from tests.rules.promtool import Alert, Group, Moment
from tests.rules.series import selector

UUID = "GPU-3f1c27aa-0d52-4b41-9c1e-6a8f0e5b7d21"
REAL = {**HERE, "uuid": UUID}
INFO = {
    selector("gpu_info", **REAL, name="NVIDIA H200", pci_bus_id="0000:1B:00.0"): "1+0x300",
    selector("gpu_info", **OTHER_BOX, name="another"): "1+0x300",
}
LOSSES, XIDS = (
    next(each.codes.texts for each in TABLE if each.codes and each.codes.table == table)
    for table in ("losses", "xids")
)
HOLES = ("<no value>", "%!", "?", "NaN", "error calling", "{gpu}")

ABOUT_GPUS = [rule for rule in SCENARIOS if rule[0] not in ("GPUIdleWhileRunning", "GPUsMissing")]


def _written(promtool: Path, folder: Path, rule: tuple[str, str], *groups: Group) -> list[Alert]:
    found = rendered.rule(*rule, group="gpu")
    records = [*rendered.recorded("gpu"), *rendered.recorded("texts")]
    files = [
        unit.write(folder, f"{number}", [*rendered.looked_up(found, records, group.series), found], [group])
        for number, group in enumerate(groups)
    ]
    return unit.seen(promtool, *files)


def _about_all(rule: tuple[str, str]) -> list[Group]:
    """Each scenario at the moment at which most fires."""
    busiest = [(each, max(each.alerts, key=lambda at: len(each.alerts[at]))) for each in SCENARIOS[rule]]
    return [
        Group(each.name, each.series, [Moment(at, {rule[0]: []})], interval=each.interval)
        for each, at in busiest
        if each.alerts[at]
    ]


def _check(alert: Alert) -> None:
    description, action = alert.annotations["description"], alert.annotations["action"]
    assert not [hole for hole in HOLES if hole in description + action], description
    assert len(description) <= 300, description


def test_model_and_uuid_are_named_while_they_are_known(promtool: Path, tmp_path: Path) -> None:
    series = {cards.up("lost", REAL): "0+0x300", **INFO}
    (alert,) = _written(
        promtool, tmp_path, ("GPULost", "critical"), Group("lost", series, [Moment(602, {"GPULost": []})])
    )
    assert alert.annotations["description"].startswith(f"GPU 3 at a:9411 (NVIDIA H200), {UUID}: ")


def test_no_model_is_named_that_another_card_in_its_place_had(promtool: Path, tmp_path: Path) -> None:
    before = selector("gpu_info", **{**REAL, "uuid": "GPU-9"}, name=NAMES["h200"][0])
    series = {cards.up("lost", REAL): "0+0x300", before: "1+0x60 stale", **INFO}
    rule, moment = ("GPULost", "critical"), Moment(602, {"GPULost": []})
    for missing in INFO:
        known = Group("known", series, [moment])
        unknown = Group("unknown", {name: series[name] for name in series if name != missing}, [moment])
        alerts = _written(promtool, tmp_path, rule, known, unknown)
        assert [NAMES["h200"][0] in alert.annotations["description"] for alert in alerts] == [False, False]


def test_messages_about_a_simulated_gpu_call_it_so(promtool: Path, tmp_path: Path) -> None:
    info = {selector("gpu_info", **HERE, name=NAMES["h200"][0]): "1+0x300"}
    for rule in ABOUT_GPUS:
        (tmp_path / "-".join(rule)).mkdir()
        group = next(each for each in _about_all(rule) if cards.THIS["uuid"] in str(each.series))
        group = replace(group, series={**group.series, **info})
        alert = _written(promtool, tmp_path / "-".join(rule), rule, group)[0]
        assert alert.annotations["description"].startswith("GPU 3 at a:9411 (simulated H200), GPU-3: ")


def test_links_lead_to_the_box(promtool: Path, tmp_path: Path) -> None:
    rule = ("GPUHot", "warning")
    notes = _written(promtool, tmp_path, rule, *_about_all(rule)[:1])[0].annotations
    assert notes["runbook_url"] == "docs/runbook.md#gpuhot"
    shown = urllib.parse.urlsplit(notes["dashboard_url"])
    assert shown.path == "/d/stepwatch-gpu"
    assert urllib.parse.unquote(shown.query) == f"var-instance={TARGET['instance']}"


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_every_xid_code_is_explained(severity: str, promtool: Path, tmp_path: Path) -> None:
    codes = {*XIDS, 777} - {45}
    series = {xids.xid(code, REAL): "0+0x11 1+0x9" for code in codes}
    group = Group("texts", {**series, **INFO, cards.up("ok", REAL): "1+0x20"}, [Moment(62, {"GPUXid": []})])
    alerts = _written(promtool, tmp_path, ("GPUXid", severity), group)
    critical = set(rendered.config().alerts.GPUXid.critical)
    assert {int(alert.labels["xid"]) for alert in alerts} == (
        critical if severity == "critical" else codes - critical
    )
    for alert in alerts:
        _check(alert)
        code = int(alert.labels["xid"])
        meaning, action = XIDS.get(code, ("", "look the code up in NVIDIA's list of Xid errors"))
        said = f"Xid {code} errors within 1 h: 1" + f" ({meaning})" * bool(meaning)
        assert alert.annotations["description"].endswith(f": {said}.")
        assert alert.annotations["action"] == action.replace("{gpu}", UUID)


def test_an_error_of_a_gpu_that_the_driver_does_not_name_is_reported_all_the_same(
    promtool: Path, tmp_path: Path
) -> None:
    series = {cards.TARGET_UP: xids.LONG, xids.xid(79, TARGET): "_x12 1+0x9"}
    group = Group("unknown", series, [Moment(62, {"GPUXid": []})])
    (alert,) = _written(promtool, tmp_path, ("GPUXid", "critical"), group)
    _check(alert)
    assert alert.annotations["description"].startswith("GPU unknown at a:9411: Xid 79 errors")


@pytest.mark.parametrize("reason", [*LOSSES, "something_new"])
def test_every_reason_of_a_loss_is_explained(reason: str, promtool: Path, tmp_path: Path) -> None:
    series = {cards.up(reason, {**TARGET, **CARD}): "0+0x300"}
    group = Group("lost", series, [Moment(602, {"GPULost": []})])
    (alert,) = _written(promtool, tmp_path, ("GPULost", "critical"), group)
    _check(alert)
    meaning = f" ({LOSSES[reason].meaning})" if reason in LOSSES else ""
    assert alert.annotations["description"] == f"GPU 3 at a:9411, GPU-3: unreadable{meaning}, for 30s."
