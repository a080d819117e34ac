"""What the person who is paged for a GPU reads: which card of which box, what is wrong, what to do first."""

from __future__ import annotations

import urllib.parse
from dataclasses import replace
from pathlib import Path

import pytest
from stepwatch.annotations import LOST
from stepwatch.xid import UNKNOWN, XIDS

from exporter.gpu.demo.profiles import H200
from tests.rules import boxes, cards, gpu, idle, rendered, xids
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
HOLES = ("<no value>", "%!", "?", "NaN", "error calling", "{gpu}")

ABOUT_GPUS = [rule for rule in SCENARIOS if rule[0] not in ("GPUIdleWhileRunning", "GPUsMissing")]


def _written(promtool: Path, folder: Path, rule: tuple[str, str], *groups: Group) -> list[Alert]:
    files = [
        unit.write(folder, f"{number}", [rendered.rule(*rule, group="gpu")], [group])
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
    summary, description = alert.annotations["summary"], alert.annotations["description"]
    assert not [hole for hole in HOLES if hole in summary + description], description
    assert len(summary) <= 80
    assert len(description) <= 300, description


@pytest.mark.parametrize("rule", ABOUT_GPUS, ids="-".join)
def test_message_names_card_box_limit_and_the_first_thing_to_do(
    rule: tuple[str, str], promtool: Path, tmp_path: Path
) -> None:
    groups = _about_all(rule)
    alerts = _written(promtool, tmp_path, rule, *groups)
    assert len(alerts) >= len(groups) > 0
    for alert in alerts:
        _check(alert)
        description, labels = alert.annotations["description"], alert.labels
        card = f"GPU {labels['gpu']}" if "gpu" in labels else "A GPU that is not known"
        assert description.startswith(f"{card} at {labels['instance']}")
        assert labels.get("uuid", "") in description
        assert f"Xid {labels['xid']} (" in description if "xid" in labels else True
        assert "First: " in description or "it could not be read" in description


def test_message_about_idle_gpus_names_the_step_and_both_limits(promtool: Path, tmp_path: Path) -> None:
    rule = ("GPUIdleWhileRunning", "warning")
    group = Group("idle", idle.IDLE, [Moment(602, {rule[0]: []})])
    (alert,) = _written(promtool, tmp_path, rule, group)
    _check(alert)
    assert alert.annotations["description"] == (
        "step 640, logged 10m 0s ago, limit 1m 0s (2 usual steps); "
        "busiest GPU 1 % busy, limit 5 %, for 10 min."
    )


def test_model_and_uuid_are_named_while_they_are_known(promtool: Path, tmp_path: Path) -> None:
    series = {cards.up("lost", REAL): "0+0x300", **INFO}
    (alert,) = _written(
        promtool, tmp_path, ("GPULost", "critical"), Group("lost", series, [Moment(602, {"GPULost": []})])
    )
    assert alert.annotations["description"].startswith(f"GPU 3 at a:9411 (NVIDIA H200), {UUID}: ")


def test_no_model_is_named_that_another_card_in_its_place_had(promtool: Path, tmp_path: Path) -> None:
    before = selector("gpu_info", **{**REAL, "uuid": "GPU-9"}, name=H200.name)
    series = {cards.up("lost", REAL): "0+0x300", before: "1+0x60 stale", **INFO}
    rule, moment = ("GPULost", "critical"), Moment(602, {"GPULost": []})
    for missing in INFO:
        known = Group("known", series, [moment])
        unknown = Group("unknown", {name: series[name] for name in series if name != missing}, [moment])
        alerts = _written(promtool, tmp_path, rule, known, unknown)
        assert [H200.name in alert.annotations["description"] for alert in alerts] == [False, False]


def test_messages_about_a_simulated_gpu_call_it_so(promtool: Path, tmp_path: Path) -> None:
    info = {selector("gpu_info", **HERE, name=H200.name): "1+0x300"}
    for rule in ABOUT_GPUS:
        (tmp_path / "-".join(rule)).mkdir()
        group = next(each for each in _about_all(rule) if cards.THIS["uuid"] in str(each.series))
        group = replace(group, series={**group.series, **info})
        alert = _written(promtool, tmp_path / "-".join(rule), rule, group)[0]
        assert alert.annotations["description"].startswith("GPU 3 at a:9411 (simulated H200), GPU-3: ")


@pytest.mark.parametrize(
    ("margin", "where"),
    [("4", "4 C below"), ("0", "0 C below"), ("-5.25", "5.25 C above"), ("-0.001", "0.001 C above")],
)
def test_hot_is_said_in_words_that_are_right_on_both_sides_of_the_limit(
    margin: str, where: str, promtool: Path, tmp_path: Path
) -> None:
    series = {gpu.MARGIN: f"{margin}+0x100", gpu.CORE: "92+0x100"}
    group = Group("hot", series, [Moment(302, {"GPUHot": []})])
    (alert,) = _written(promtool, tmp_path, ("GPUHot", "warning"), group)
    _check(alert)
    assert alert.annotations["summary"] == "A GPU is so hot that it slows down, or soon will."
    assert alert.annotations["description"] == (
        f"GPU 3 at a:9411, GPU-3: {where} where it slows down, now at 92 C; limit: a margin of 5 C, "
        "for 2 min. First: fans, air flow and the room; then what runs on it."
    )


def test_message_about_missing_gpus_names_the_box_and_how_many_are_left(
    promtool: Path, tmp_path: Path
) -> None:
    series = {**boxes.WELL, boxes.EXPECTED: "5+0x99"}
    group = Group("missing", series, [Moment(602, {"GPUsMissing": []})], interval=60)
    (alert,) = _written(promtool, tmp_path, ("GPUsMissing", "warning"), group)
    _check(alert)
    assert alert.annotations["description"].startswith("a:9411: 3 missing, 2 work, for 5 min. First: ")
    assert alert.annotations["dashboard_url"].endswith("/d/stepwatch-gpu?var-instance=a%3A9411")
    silenced = urllib.parse.unquote(alert.annotations["silence_url"].partition("?filter=")[2])
    assert silenced == '{alertname="GPUsMissing",instance="a:9411"}'


def test_links_lead_to_the_box_and_silence_the_card(promtool: Path, tmp_path: Path) -> None:
    for name, severity in ABOUT_GPUS:
        (tmp_path / name / severity).mkdir(parents=True)
        groups = _about_all((name, severity))[:1]
        (alert,) = _written(promtool, tmp_path / name / severity, (name, severity), *groups)[:1]
        notes = alert.annotations
        assert notes["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        shown = urllib.parse.urlsplit(notes["dashboard_url"])
        assert (shown.path, urllib.parse.unquote(shown.query)) == (
            "/d/stepwatch-gpu",
            f"var-instance={TARGET['instance']}",
        )
        silenced = urllib.parse.unquote(notes["silence_url"].partition("/#/silences/new?filter=")[2])
        assert silenced == f'{{alertname="{name}",instance="a:9411",gpu="{alert.labels["gpu"]}"}}'


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_every_xid_code_is_explained(severity: str, promtool: Path, tmp_path: Path) -> None:
    codes = {*XIDS, 777} - {45}
    series = {xids.xid(code, REAL): "0+0x11 1+0x9" for code in codes}
    group = Group("codes", {**series, **INFO, cards.up("ok", REAL): "1+0x20"}, [Moment(62, {"GPUXid": []})])
    alerts = _written(promtool, tmp_path, ("GPUXid", severity), group)
    critical = set(rendered.config().alerts.GPUXid.critical)
    assert {int(alert.labels["xid"]) for alert in alerts} == (
        critical if severity == "critical" else codes - critical
    )
    for alert in alerts:
        _check(alert)
        code = int(alert.labels["xid"])
        means, first = XIDS.get(code, UNKNOWN)
        assert f"Xid {code} (1 in the last hour): {means}. " in alert.annotations["description"]
        assert f"First: {first}.".replace("{gpu}", UUID) in alert.annotations["description"]


def test_an_error_of_a_gpu_that_the_driver_does_not_name_is_told_all_the_same(
    promtool: Path, tmp_path: Path
) -> None:
    series = {cards.TARGET_UP: xids.LONG, xids.xid(79, TARGET): "_x12 1+0x9"}
    group = Group("unknown", series, [Moment(62, {"GPUXid": []})])
    (alert,) = _written(promtool, tmp_path, ("GPUXid", "critical"), group)
    _check(alert)
    assert alert.annotations["description"].startswith("A GPU that is not known at a:9411: Xid 79 (1 in")


@pytest.mark.parametrize("reason", [*LOST, "something_new"])
def test_every_reason_of_a_loss_is_explained(reason: str, promtool: Path, tmp_path: Path) -> None:
    series = {cards.up(reason, {**TARGET, **CARD}): "0+0x300"}
    group = Group("lost", series, [Moment(602, {"GPULost": []})])
    (alert,) = _written(promtool, tmp_path, ("GPULost", "critical"), group)
    _check(alert)
    assert LOST.get(reason, (reason,))[0] in alert.annotations["description"]
