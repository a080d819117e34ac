"""What a graver alert keeps quiet, what comes as one message, and what no one is notified of."""

from __future__ import annotations

from itertools import product

import pytest

from stepwatch.alerts.incidents import PAIRS
from stepwatch.rules.routing import inhibitions
from tests.alertmanager.conftest import Render
from tests.alertmanager.route import HOST, QUICK, Labels, Route, alert, reported
from tests.real import AlertmanagerServer, WebhookSink

pytestmark = pytest.mark.e2e


def disk_low(disk: str, severity: str, instance: str, mountpoint: str) -> Labels:
    """The alert about a disk, which differs from others by a label that no rule of inhibition asks for."""
    return alert("DiskLow", "", severity, "stack", job=disk, instance=instance, mountpoint=mountpoint)


def of_gpu(what: str, name: str, severity: str, gpu: str) -> Labels:
    """An alert about a GPU, which differs from others by the same label."""
    return alert(name, "", severity, "gpu", job=what, instance="n3:1", gpu=gpu)


def test_what_is_reported_and_what_a_graver_alert_keeps_quiet(route: Route) -> None:
    """Every case has runs of its own, so that one look at the webhook judges all of them."""
    reported_about = route.settle(
        # How a run ended is over whatever else it did, Stalled included.
        *(alert("RunFailed", "failed", topic="progress"), alert("KLExplosion", "failed", topic="kl")),
        *(alert("RunVanished", "vanished", topic="progress"), alert("RewardDrop", "vanished", "warning")),
        *(
            alert("KLExplosion", "vanished", topic="kl"),
            alert("GPUIdleWhileRunning", "vanished", topic="gpu"),
        ),
        *(
            alert("RunStopped", "stopped", "warning", "progress"),
            alert("Stalled", "stopped", topic="progress"),
        ),
        # A stall is over the signals, but not over what may have caused it.
        *(alert("Stalled", "stalled", topic="progress"), alert("RewardCollapse", "stalled")),
        *(alert("NonFinite", "stalled", topic="gradient"), alert("XidError", "stalled", "warning", "gpu")),
        # Critical is over warning, of the same topic.
        *(alert("RewardCollapse", "sick"), alert("RewardDrop", "sick", "warning")),
        alert("KLHigh", "sick", "warning", "kl"),
        # Runs do not speak for each other, on one host either.
        *(
            alert("RunFailed", "one", topic="progress", **HOST),
            alert("KLExplosion", "other", topic="kl", **HOST),
        ),
        alert("KLExplosion", "one of two", topic="kl", **HOST),
        alert("KLHigh", "two of two", "warning", "kl", **HOST),
        # Alerts about no run, or of no topic, do not either, on one host or on two.
        *(alert("NotificationFailures", topic="stack"), alert("ConfigReloadFailed", "", "warning", "stack")),
        *(alert("OwnPage", "own", topic=""), alert("OwnWarning", "own", "warning", "")),
        *(alert("GPULost", topic="gpu", **HOST), alert("GPUHot", "", "warning", "gpu", **HOST)),
        alert("GPUMemoryHigh", "", "warning", "gpu", instance="b:9411"),
        # An exporter that is down is one fault, not two; on another host it is.
        *(
            alert("ExporterDown", topic="stack", job="runs", **HOST),
            alert("TargetDown", "", "warning", "stack", job="runs", **HOST),
        ),
        alert("TargetDown", "", "warning", "stack", job="gpu", **HOST),
        alert("TargetDown", "", "warning", "stack", job="runs", instance="b:9411"),
        # A disk without room is one fault, on each machine, and mutes neither runs nor other machines.
        disk_low("full", "critical", "n1:1", "/data"),
        disk_low("the same", "warning", "n1:1", "/data"),
        disk_low("another", "warning", "n1:1", "/home"),
        disk_low("another machine's", "warning", "n2:1", "/data"),
        alert("HostMemory", "", "warning", "stack", job="of the machine", instance="n1:1"),
        alert("GradNormHigh", "on that machine", "warning", "gradient"),
        # What a GPU's driver reported outweighs what it counted of this GPU; heat is one fault.
        of_gpu("reported", "GPUXid", "critical", "1"),
        of_gpu("its errors", "GPUECCUncorrectable", "critical", "1"),
        of_gpu("its memory", "GPURowRemapFailed", "warning", "1"),
        of_gpu("its links", "NVLinkErrors", "warning", "1"),
        of_gpu("its neighbour's", "GPUECCUncorrectable", "critical", "2"),
        of_gpu("a program's", "GPUXid", "warning", "3"),
        of_gpu("not by a program", "NVLinkErrors", "warning", "3"),
        of_gpu("slow", "GPUThermalThrottle", "warning", "4"),
        of_gpu("hot", "GPUHot", "warning", "4"),
        of_gpu("hot alone", "GPUHot", "warning", "5"),
        # Shown in the pages only, and no reason to say less of anything else.
        *(alert("Watchdog", topic="stack"), alert("RunFinished", "done", "info", "progress")),
        *(alert("RunStopped", "demoted", "info", "progress"), alert("RewardCollapse", "demoted")),
        *(
            alert("Stalled", "waits", "info", "progress"),
            alert("LengthRunaway", "waits", "warning", "length"),
        ),
        *(alert("KLExplosion", "reported", "info", "kl"), alert("KLHigh", "reported", "warning", "kl")),
    )

    assert reported_about == {
        ("RunFailed", "failed"),
        ("RunVanished", "vanished"),
        ("RunStopped", "stopped"),
        ("Stalled", "stalled"),
        ("XidError", "stalled"),
        ("RewardCollapse", "sick"),
        ("KLHigh", "sick"),
        ("RunFailed", "one"),
        ("KLExplosion", "other"),
        ("KLExplosion", "one of two"),
        ("KLHigh", "two of two"),
        ("NotificationFailures", ""),
        ("ConfigReloadFailed", ""),
        ("OwnPage", "own"),
        ("OwnWarning", "own"),
        ("GPULost", "a:9411"),
        ("GPUHot", "a:9411"),
        ("GPUMemoryHigh", "b:9411"),
        ("ExporterDown", "runs a:9411"),
        ("TargetDown", "gpu a:9411"),
        ("TargetDown", "runs b:9411"),
        ("RewardCollapse", "demoted"),
        ("LengthRunaway", "waits"),
        ("KLHigh", "reported"),
        ("DiskLow", "full n1:1"),
        ("DiskLow", "another n1:1"),
        ("DiskLow", "another machine's n2:1"),
        ("HostMemory", "of the machine n1:1"),
        ("GradNormHigh", "on that machine"),
        ("GPUXid", "reported n3:1"),
        ("GPUECCUncorrectable", "its neighbour's n3:1"),
        ("GPUXid", "a program's n3:1"),
        ("NVLinkErrors", "not by a program n3:1"),
        ("GPUThermalThrottle", "slow n3:1"),
        ("GPUHot", "hot alone n3:1"),
    }


def _of_run(name: str, severity: str, topic: str) -> Labels:
    return {"alertname": name, "severity": severity, "topic": topic, "run": "?"}


def _gpu(name: str, severity: str = "warning", **more: str) -> Labels:
    return {"alertname": name, "severity": severity, "topic": "gpu", "gpu": "0", "instance": "?:1", **more}


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


def test_info_is_sent_to_no_one_when_it_fires_alone_when_others_do_and_when_they_are_over(
    version: str, render: Render
) -> None:
    with WebhookSink() as sink, WebhookSink() as grave:
        folder = render(
            f"receivers:\n- {{name: all, webhook: {{url: '{sink.url}'}}}}\n"
            f"- {{name: grave, webhook: {{url: '{grave.url}'}}, severities: [critical]}}\n{QUICK}"
        )
        with AlertmanagerServer(version, folder) as server:
            route = Route(server, folder, sink)
            shown = [alert(name, "a", "info", "kl") for name in ("RunFinished", "KLHigh", "OwnNote")]
            page, warning = alert("KLExplosion", "a", topic="kl"), alert("RewardDrop", "a", "warning")
            vanished = alert("RunVanished", "a", topic="progress")
            assert route.settle(*shown) == set()
            assert route.settle(page, warning, *shown) == {("KLExplosion", "a"), ("RewardDrop", "a")}
            route.settle(vanished, *shown)
            route.settle(vanished, page, warning, over=True)
            route.settle(*shown, over=True)

    assert reported(sink) == {("KLExplosion", "a"), ("RewardDrop", "a"), ("RunVanished", "a")}
    assert reported(grave) == {("KLExplosion", "a"), ("RunVanished", "a")}
    for status in ("firing", "resolved"):
        assert {name for name, _ in reported(sink, status)} <= {"KLExplosion", "RewardDrop", "RunVanished"}


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
