"""The cases of every rule about Stepwatch itself and its targets: series over time, and what fires when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.rules.promtool import INTERVAL, Group, Moment
from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector

Labels = dict[str, str]


class Scenario(NamedTuple):
    """What happens, and the labels of the alerts at each second; samples come every so many seconds."""

    name: str
    series: dict[str, str]
    alerts: Mapping[float, list[Labels]]
    interval: int = INTERVAL

    def group(self, alert: str, labels: Labels) -> Group:
        """The scenario as promtool's group; ``labels`` are the rule's own."""
        moments = [
            Moment(at, {alert: [{**found, **labels} for found in fired]}) for at, fired in self.alerts.items()
        ]
        return Group(self.name, self.series, moments, interval=self.interval)


def by_the_minute(name: str, series: dict[str, str], alerts: Mapping[float, list[Labels]]) -> Scenario:
    """A scenario in minutes: a sample and an evaluation in each, and looks just after them."""
    return Scenario(name, series, {MINUTE * at + 2: fired for at, fired in alerts.items()}, MINUTE)


MINUTE = 60

UP, DOWN = "1+0x200", "0+0x200"
GOES_DOWN = "1+0x11 0+0x200"
"""From second 60 on."""

EXPORTER_UP = selector("up", **EXPORTER)
OTHER_UP = selector("up", **OTHER_EXPORTER)
POLLED = selector("stepwatch_last_poll_timestamp_seconds", **EXPORTER)

NODE = {"job": "node", "instance": "a:9100"}
NODE_UP = selector("up", **NODE, role="host")
ROLLOUT = {"job": "vllm", "instance": "c:8000"}
ROLLOUT_UP = selector("up", **ROLLOUT, role="rollout")
RUNNING = selector("rl_run_state", run="ppo/gsm8k", state="running", **EXPORTER)

PROMETHEUS = {"job": "prometheus", "instance": "a:9090"}
ALERTMANAGER = {"job": "alertmanager", "instance": "a:9093"}
FAILED_RULES = selector("prometheus_rule_evaluation_failures_total", **PROMETHEUS, rule_group="rl")
OTHER_GROUP = selector("prometheus_rule_evaluation_failures_total", **PROMETHEUS, rule_group="stack")
MISSED = selector("prometheus_rule_group_iterations_missed_total", **PROMETHEUS, rule_group="rl")
PUSH_ERRORS = selector("prometheus_notifications_errors_total", **PROMETHEUS, alertmanager="http://a:9093")
DROPPED = selector("prometheus_notifications_dropped_total", **PROMETHEUS)
LOADED = selector("prometheus_config_last_reload_success_timestamp_seconds", **PROMETHEUS)
LONG_AGO = "-3600+0x200"
WEBHOOK_FAILED = selector("alertmanager_notifications_failed_total", **ALERTMANAGER, integration="webhook")
EMAIL_FAILED = selector("alertmanager_notifications_failed_total", **ALERTMANAGER, integration="email")
NAMED_FAILED, TEST_FAILED = (
    selector(
        "alertmanager_notifications_failed_total",
        **ALERTMANAGER,
        integration="webhook",
        receiver_name=name,
    )
    for name in ("ops (test) it", "(test) ops")
)
BRIDGE = {"job": "bridge", "instance": "n:9414"}
BRIDGE_UP = selector("up", **BRIDGE)
CHAT = {"integration": "feishu", "receiver_name": "chat"}
REFUSED, OTHER_REASON, TEST_REFUSED = (
    selector("stepwatch_bridge_refused_total", **BRIDGE, **{**CHAT, **more})
    for more in (
        {"reason": "signature"},
        {"reason": "keyword"},
        {"reason": "signature", "receiver_name": "(test) chat"},
    )
)
SERVED, SERVED_UNNAMED = (
    selector("stepwatch_bridge_receiver_info", **BRIDGE, integration="webhook", **name)
    for name in ({"receiver_name": "ops (test) it"}, {})
)
WAITS = selector("stepwatch_bridge_waiting_seconds", **BRIDGE, **CHAT)
ANSWER = selector(
    "stepwatch_bridge_error_info",
    **{**BRIDGE, **CHAT, "reason": "rate_limit", "text": "errcode 11232 frequency limited psm"},
)
PROMETHEUS_LOADED = selector("prometheus_config_last_reload_successful", **PROMETHEUS)
ALERTMANAGER_LOADED = selector("alertmanager_config_last_reload_successful", **ALERTMANAGER)

ONE_FAILURE = "0+0x11 1+0x200"
"""A counter that rises by one at second 60: it fires from 120 on, and is forgotten five minutes later."""


def _up_of(role: str) -> str:
    return selector("up", **ROLLOUT, role=role)


def _instance(labels: Labels, **more: str) -> Labels:
    return {"instance": labels["instance"], **more}


def _counted(name: str, *series: str, alert: Labels, others: Mapping[str, str] | None = None) -> Scenario:
    return Scenario(
        name,
        {**dict.fromkeys(series, ONE_FAILURE), **(others or {})},
        {117: [], 122: [alert], 352: [alert], 367: []},
    )


SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "ExporterDown": (
        Scenario("healthy", {EXPORTER_UP: UP, POLLED: "0+5x200"}, {122: [], 602: []}),
        Scenario("does not answer", {EXPORTER_UP: GOES_DOWN}, {117: [], 122: [EXPORTER]}),
        Scenario("restarts", {EXPORTER_UP: "1+0x11 0+0x9 1+0x50"}, {117: [], 122: [], 172: []}),
        Scenario(
            "answers, but has stopped reading",
            {EXPORTER_UP: UP, POLLED: "4.5+0x200"},
            {62: [], 122: [], 127: [EXPORTER]},
        ),
        Scenario(
            "has just not stopped reading",
            {EXPORTER_UP: UP, POLLED: "5+0x200"},
            {127: [], 132: [EXPORTER]},
        ),
        Scenario(
            "has stopped reading, and is not scraped for half a minute",
            {EXPORTER_UP: "1+0x19 _x6 1+0x200", POLLED: "4.5+0x19 _x6 4.5+0x200"},
            {122: [], 127: [EXPORTER]},
        ),
        Scenario(
            "has another port from now on, and Prometheus restarted",
            {EXPORTER_UP: "1+0x11 _x200", POLLED: "4.5+0x11 _x200", OTHER_UP: UP},
            {117: [], 127: [], 172: []},
        ),
        Scenario("does not answer nor read", {EXPORTER_UP: DOWN, POLLED: "-100+0x200"}, {62: [EXPORTER]}),
        Scenario("one of two", {EXPORTER_UP: UP, OTHER_UP: DOWN}, {62: [OTHER_EXPORTER]}),
        Scenario("is not scraped at all", {NODE_UP: UP}, {57: [], 62: [{"job": "runs"}]}),
    ),
    "TargetDown": (
        Scenario("healthy", {NODE_UP: UP, ROLLOUT_UP: UP, RUNNING: UP, EXPORTER_UP: UP}, {602: []}),
        Scenario(
            "one of two",
            {NODE_UP: GOES_DOWN, selector("up", job="b", instance="b"): UP},
            {357: [], 362: [NODE]},
        ),
        Scenario("flaps", {NODE_UP: "0+0x50 1+0x1 0+0x50"}, {257: [], 502: []}),
        Scenario("the bridge has its own alert", {BRIDGE_UP: DOWN}, {602: []}),
        Scenario("the exporter has its own alert", {EXPORTER_UP: DOWN, POLLED: DOWN}, {602: []}),
        *(
            Scenario(
                f"what has the role {role} has an alert of its own",
                {_up_of(role): DOWN, RUNNING: UP},
                {602: []},
            )
            for role in ("rollout", "ray", "trainer")
        ),
        Scenario("a role of the user's", {_up_of("other"): DOWN}, {302: [ROLLOUT]}),
    ),
    "RuleFailures": (
        Scenario("healthy", {FAILED_RULES: "3+0x200", MISSED: "2+0x200"}, {122: [], 602: []}),
        Scenario("restarted", {FAILED_RULES: "3+0x11 0+0x200", MISSED: "2+0x11 0+0x200"}, {122: [], 352: []}),
        _counted("an evaluation fails", FAILED_RULES, alert=_instance(PROMETHEUS)),
        _counted("an evaluation is missed", MISSED, alert=_instance(PROMETHEUS)),
        _counted("all at once are one alert", FAILED_RULES, OTHER_GROUP, MISSED, alert=_instance(PROMETHEUS)),
        Scenario(
            "Prometheus is not scraped for a minute",
            {FAILED_RULES: "0+0x11 1+0x15 stale _x11 1+0x100"},
            {137: [_instance(PROMETHEUS)], 167: [_instance(PROMETHEUS)], 207: [_instance(PROMETHEUS)]},
        ),
    ),
    "BridgeDown": (
        Scenario("healthy", {BRIDGE_UP: UP}, {122: [], 602: []}),
        Scenario("does not answer", {BRIDGE_UP: GOES_DOWN}, {117: [], 122: [BRIDGE], 602: [BRIDGE]}),
        Scenario("restarts", {BRIDGE_UP: "1+0x11 0+0x9 1+0x50"}, {117: [], 122: [], 172: []}),
    ),
    "NotificationFailures": (
        Scenario(
            "healthy", {WEBHOOK_FAILED: "3+0x200", PUSH_ERRORS: DOWN, DROPPED: DOWN}, {122: [], 602: []}
        ),
        Scenario(
            "restarted",
            {
                WEBHOOK_FAILED: "3+0x11 0+0x200",
                PUSH_ERRORS: "3+0x11 0+0x200",
                DROPPED: "3+0x11 0+0x200",
                LOADED: LONG_AGO,
            },
            {122: [], 352: []},
        ),
        _counted(
            "one receiver of two",
            WEBHOOK_FAILED,
            alert=_instance(ALERTMANAGER, integration="webhook"),
        ),
        Scenario(
            "each receiver is one alert",
            {WEBHOOK_FAILED: ONE_FAILURE, EMAIL_FAILED: ONE_FAILURE},
            {122: [_instance(ALERTMANAGER, integration=each) for each in ("webhook", "email")]},
        ),
        _counted(
            "a receiver with its name",
            NAMED_FAILED,
            alert=_instance(ALERTMANAGER, integration="webhook", receiver_name="ops (test) it"),
        ),
        _counted(
            "a robot refuses, for two reasons: one alert",
            REFUSED,
            OTHER_REASON,
            alert=_instance(BRIDGE, **CHAT),
        ),
        Scenario(
            "a robot's queue is none", {NAMED_FAILED: ONE_FAILURE, SERVED: "1+0x200"}, {122: [], 352: []}
        ),
        Scenario(
            "nor is what failed while the bridge was removed",
            {NAMED_FAILED: ONE_FAILURE, SERVED: "1+0x11 stale"},
            {122: [], 352: []},
        ),
        Scenario(
            "a receiver of that name fails long after that",
            {NAMED_FAILED: "0+0x83 1+0x40", SERVED: "1+0x11 stale"},
            {
                477: [],
                482: [_instance(ALERTMANAGER, integration="webhook", receiver_name="ops (test) it")],
            },
        ),
        Scenario(
            "nor is it where Alertmanager does not name receivers",
            {WEBHOOK_FAILED: ONE_FAILURE, SERVED_UNNAMED: "1+0x200"},
            {122: [], 352: []},
        ),
        _counted(
            "another receiver beside the bridge",
            EMAIL_FAILED,
            alert=_instance(ALERTMANAGER, integration="email"),
            others={SERVED: "1+0x200", SERVED_UNNAMED: "1+0x200"},
        ),
        Scenario("a test of a robot", {TEST_REFUSED: ONE_FAILURE}, {122: [], 352: []}),
        Scenario(
            "a notification waits for more than 15 minutes",
            {WAITS: "840+5x200", ANSWER: "1+0x200"},
            {
                62: [],
                117: [],
                122: [],
                127: [_instance(BRIDGE, **CHAT)],
                132: [_instance(BRIDGE, **CHAT)],
            },
        ),
        Scenario("one waits, and is delivered", {WAITS: "840+5x18 0+0x200"}, {122: [], 352: []}),
        Scenario("a test of a receiver", {TEST_FAILED: ONE_FAILURE}, {122: [], 352: []}),
        _counted("Alertmanager refuses", PUSH_ERRORS, alert=_instance(PROMETHEUS)),
        _counted("alerts are dropped", DROPPED, alert=_instance(PROMETHEUS), others={LOADED: LONG_AGO}),
        _counted(
            "refused and dropped are one alert",
            PUSH_ERRORS,
            DROPPED,
            alert=_instance(PROMETHEUS),
            others={LOADED: LONG_AGO},
        ),
        Scenario(
            "alerts are dropped before Prometheus has found Alertmanager",
            {DROPPED: ONE_FAILURE, LOADED: "5+0x200"},
            {122: [], 352: []},
        ),
        Scenario(
            "alerts are dropped just over six minutes after the configuration was loaded",
            {DROPPED: ONE_FAILURE, LOADED: "-302+0x200"},
            {117: [], 122: [_instance(PROMETHEUS)]},
        ),
        Scenario(
            "alerts are dropped just six minutes after the start",
            {DROPPED: ONE_FAILURE, LOADED: "-300+0x200"},
            {122: [], 127: [_instance(PROMETHEUS)]},
        ),
    ),
    "ConfigReloadFailed": (
        Scenario("healthy", {PROMETHEUS_LOADED: UP, ALERTMANAGER_LOADED: UP}, {122: []}),
        Scenario(
            "Prometheus refuses",
            {PROMETHEUS_LOADED: GOES_DOWN, ALERTMANAGER_LOADED: UP},
            {117: [], 122: [PROMETHEUS]},
        ),
        Scenario(
            "Alertmanager refuses",
            {PROMETHEUS_LOADED: UP, ALERTMANAGER_LOADED: GOES_DOWN},
            {117: [], 122: [ALERTMANAGER]},
        ),
        Scenario(
            "fixed",
            {PROMETHEUS_LOADED: "0+0x40 1+0x50", ALERTMANAGER_LOADED: "0+0x40 1+0x50"},
            {202: [PROMETHEUS, ALERTMANAGER], 207: []},
        ),
        Scenario(
            "never heard of again",
            {PROMETHEUS_LOADED: "0+0x11 stale", ALERTMANAGER_LOADED: "0+0x11 stale"},
            {652: [PROMETHEUS, ALERTMANAGER], 662: []},
        ),
        Scenario("fixed within a minute", {PROMETHEUS_LOADED: "0+0x10 1+0x50"}, {52: [], 62: []}),
        Scenario(
            "not scraped for a minute",
            {PROMETHEUS_LOADED: "0+0x20 stale _x11 0+0x50"},
            {97: [PROMETHEUS], 112: [PROMETHEUS], 157: [PROMETHEUS], 172: [PROMETHEUS]},
        ),
    ),
    "Watchdog": (Scenario("fires always", {EXPORTER_UP: DOWN}, {2: [{}], 602: [{}]}),),
}
