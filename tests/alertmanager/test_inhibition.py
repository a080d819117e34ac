"""What a graver alert keeps quiet, what comes as one message, and what no one is notified of."""

from __future__ import annotations

from itertools import product

import pytest

from stepwatch.alerts.incidents import PAIRS
from stepwatch.rules.routing import inhibitions
from tests.alertmanager.route import Labels, Route, alert, reported

pytestmark = pytest.mark.e2e


def _of_run(name: str, severity: str, topic: str) -> Labels:
    return alert(name, "?", severity, topic)


def _gpu(name: str, severity: str = "warning", **more: str) -> Labels:
    return {"alertname": name, "severity": severity, "topic": "gpu", "gpu": "0", "instance": "?:1"} | more


def _xid(code: str, severity: str) -> Labels:
    return _gpu("GPUXid", severity, xid=code)


def _server(name: str, severity: str = "warning") -> Labels:
    return {"alertname": name, "severity": severity, "topic": "rollout", "job": "vllm", "instance": "?:1"}


def _host(name: str, severity: str = "warning", **more: str) -> Labels:
    return {"alertname": name, "severity": severity, "topic": "stack", "instance": "?:1", **more}


def _node(name: str, severity: str = "warning") -> Labels:
    return {"alertname": name, "severity": severity, "topic": "stack", "node": "?"}


_THROTTLED = (
    ("GPUThermalThrottle", "warning"),
    ("GPUThermalThrottle", "critical"),
    ("GPUPowerBrake", "warning"),
)

ONE_INCIDENT: list[tuple[Labels, Labels]] = [
    (_of_run("RunFailed", "critical", "progress"), _of_run("KLExplosion", "critical", "kl")),
    *(
        (_of_run("RunVanished", "critical", "progress"), effect)
        for effect in (
            _of_run("RewardDrop", "warning", "reward"),
            _of_run("GPUIdleWhileRunning", "warning", "gpu"),
        )
    ),
    (_of_run("RunStopped", "warning", "progress"), _of_run("Stalled", "critical", "progress")),
    (_of_run("Stalled", "critical", "progress"), _of_run("RewardCollapse", "critical", "reward")),
    (_of_run("RewardCollapse", "critical", "reward"), _of_run("RewardDrop", "warning", "reward")),
    (_of_run("LengthCollapse", "warning", "length"), _of_run("SlowSteps", "warning", "progress")),
    (_of_run("LengthCollapse", "critical", "length"), _of_run("SlowSteps", "warning", "progress")),
    (_host("DiskLow", "critical", mountpoint="/data"), _host("DiskLow", mountpoint="/data")),
    *(
        (_xid("79", "critical"), effect)
        for effect in (
            _xid("94", "warning"),
            _gpu("GPULost", "critical"),
            _gpu("GPURecoveryNeeded", "critical"),
            _gpu("GPURowRemapPending"),
            _gpu("GPURowRemapFailed"),
            _gpu("FabricDown", "critical"),
            _gpu("GPUECCUncorrectable", "critical"),
            _gpu("NVLinkErrors"),
        )
    ),
    *((_xid(code, "warning"), _gpu("GPURowRemapPending")) for code in ("63", "92", "94")),
    (_gpu("GPURecoveryNeeded", "critical"), _gpu("GPURecoveryNeeded")),
    (_gpu("GPULost", "critical"), _gpu("GPURecoveryNeeded", "critical")),
    (_gpu("GPUECCUncorrectable", "critical"), _gpu("GPURowRemapPending")),
    *((_gpu("GPUECCUncorrectable", "critical"), _xid(code, "warning")) for code in ("63", "94")),
    (_gpu("GPURecoveryNeeded"), _gpu("GPURowRemapPending")),
    (_gpu("GPUThermalThrottle"), _gpu("GPUHot")),
    *((_gpu(cause, severity), _gpu("Straggler")) for cause, severity in _THROTTLED),
    *((_node("NodeLost", "critical"), _node(effect)) for effect in ("RayNodeLost", "AgentBacklog")),
    (_server("EnginePreemptions"), _server("EngineKVCacheFull")),
    (_server("ExporterDown", "critical"), _server("TargetDown")),
    (_host("RuleFailures", "critical"), _host("TSDBFailures")),
]
"""A cause, and what is not notified of beside it."""

TWO_INCIDENTS: list[tuple[Labels, Labels]] = [
    (_gpu("GPUThermalThrottle"), _gpu("GPUHot", "critical")),  # a warning keeps no page back
    # A stall is over the signals, but not over what may have caused it.
    (_of_run("Stalled", "critical", "progress"), _of_run("XidError", "warning", "gpu")),
    # Critical is over warning of the same topic, and of alerts that have one.
    (_of_run("RewardCollapse", "critical", "reward"), _of_run("KLHigh", "warning", "kl")),
    (_of_run("OwnPage", "critical", ""), _of_run("OwnWarning", "warning", "")),
    (_host("NotificationFailures", "critical"), _host("ConfigReloadFailed")),
    (_gpu("GPULost", "critical"), _gpu("GPUHot")),
    # Neither another part, nor another disk, nor the whole machine is what failed.
    (_host("ExporterDown", "critical", job="runs"), _host("TargetDown", job="gpu")),
    (_host("DiskLow", "critical", mountpoint="/data"), _host("DiskLow", mountpoint="/home")),
    (_host("DiskLow", "critical", mountpoint="/data"), _host("HostMemory")),
    # What the driver reported outweighs what it counted of this GPU; a program's error does not.
    (_xid("79", "critical"), _gpu("GPUECCUncorrectable", "critical", gpu="1")),
    (_xid("31", "warning"), _gpu("NVLinkErrors")),
    (_xid("31", "warning"), _gpu("GPURowRemapPending")),
    (_gpu("GPUECCUncorrectable", "critical"), _xid("31", "warning")),
    *(({**cause, "severity": "info"}, effect) for cause, effect in ONE_INCIDENT),
]
"""Both are notified of, unless the first one is for pages only."""


def _posted(pairs: list[tuple[Labels, Labels]], outcome: str) -> list[Labels]:
    """The alerts of pairs, each pair about a run or a machine of its own."""
    return [
        {name: value.replace("?", f"{outcome}{number}") for name, value in labels.items()}
        | {"is": f"{outcome} {number} {role}"}
        for number, pair in enumerate(pairs)
        for role, labels in zip(("cause", "effect"), pair, strict=True)
    ]


def test_of_one_incident_only_the_cause_is_notified_of(route: Route) -> None:
    one, two = _posted(ONE_INCIDENT, "one"), _posted(TWO_INCIDENTS, "two")
    apart = _posted([(effect, effect) for _, effect in ONE_INCIDENT], "apart")[::2]  # without its cause

    route.settle(*one, *two, *apart)

    sent = {each["labels"]["is"] for message in route.sink.received for each in message.alerts}
    expected = [alert for alert in (*one[::2], *two, *apart) if alert["severity"] != "info"]
    assert sent == {alert["is"] for alert in expected}


def test_every_rule_of_inhibition_has_an_incident_that_it_is_for() -> None:
    rules = inhibitions(pair for pair in PAIRS if pair.same)
    of_any_severity = [
        ({**cause, "severity": of_cause}, {**effect, "severity": of_effect})
        for cause, effect in ONE_INCIDENT
        for of_cause, of_effect in product(("critical", "warning"), repeat=2)
    ]

    without = [rule for rule in rules if not any(rule.inhibits(*pair) for pair in of_any_severity)]
    assert without == []


def test_alerts_of_one_name_run_and_severity_come_as_one_message_and_others_apart(route: Route) -> None:
    route.settle(
        alert("KLExplosion", "a", topic="kl"),
        alert("KLExplosion", "b", topic="kl"),
        alert("RewardDrop", "a", "warning"),
        *(
            alert("TargetDown", "", "warning", "stack", job="gpu", instance=f"n{number}:1")
            for number in range(3)
        ),
    )

    sizes = {
        tuple(message.payload["groupLabels"].values()): len(message.alerts) for message in route.sink.received
    }
    assert sizes == {
        ("KLExplosion", "a", "critical"): 1,
        ("KLExplosion", "b", "critical"): 1,
        ("RewardDrop", "a", "warning"): 1,
        ("TargetDown", "warning"): 3,
    }
    assert len(route.sink.received) == len(sizes), "nothing is said twice"


def test_what_was_kept_quiet_is_reported_when_the_graver_alert_is_over(route: Route) -> None:
    over, under = alert("RunFailed", "a", topic="progress"), alert("KLExplosion", "a", topic="kl")
    assert route.settle(over, under) == {("RunFailed", "a")}

    assert route.settle(over, over=True) == {("RunFailed", "a"), ("KLExplosion", "a")}
    assert reported(route.sink, "resolved") == {("RunFailed", "a")}


WRONG = ("ExporterDown", "TargetDown", "GPUExporterStale", "EngineGone", "RayNodeLost")
"""What Prometheus sends when samples are missing that it could not store."""


def broken(fault: str) -> Labels:
    return alert("AlertingBroken", topic="stack", fault=fault)


@pytest.mark.parametrize("fault", ["disk_full", "prometheus_not_storing"])
def test_what_comes_of_samples_that_were_not_stored_is_not_reported_beside_the_cause(
    route: Route, fault: str
) -> None:
    wrong = [alert(name, "", "warning", "stack", job="runs", instance="a:9410") for name in WRONG]
    sick = alert("KLExplosion", "sick", topic="kl")

    assert route.settle(broken(fault), *wrong, sick) == {("AlertingBroken", ""), ("KLExplosion", "sick")}


def test_an_exporter_that_is_down_is_reported_though_notifications_were_dropped(route: Route) -> None:
    down = alert("ExporterDown", topic="stack", job="runs", instance="a:9410")

    found = route.settle(broken("notifications_dropped"), down)

    assert found == {("AlertingBroken", ""), ("ExporterDown", "runs a:9410")}
