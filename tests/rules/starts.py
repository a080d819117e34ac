"""The cases of the rules about a run's starts: events, so series over time, and what fires when."""

from __future__ import annotations

from tests.rules.series import EXPORTER, OTHER_EXPORTER, fact, selector, state_series
from tests.rules.stack import Labels, Scenario

MINUTE = 60
"""Seconds between two samples of the rules that look an hour back."""

RUN = "ppo/gsm8k"
THIS = {"run": RUN}
RESTARTS = fact("rl_restarts_total").of(RUN)
RETRIES = fact("rl_run_retries_total").of(RUN)
SEEN_BY_OTHER = fact("rl_restarts_total").of(RUN, OTHER_EXPORTER)
RESUMES = fact("rl_resumes_total").of(RUN)
LOST = fact("rl_resume_lost_steps").of(RUN)
STATES = {
    state: {series.of(RUN): f"{value}+0x200" for series, value in state_series(state).items()}
    for state in ("running", "stopped", "finished")
}

LOG = selector("stepwatch_log_without_step_timestamp_seconds", log="ppo/train.log", **EXPORTER)
OTHER_LOG = selector("stepwatch_log_without_step_timestamp_seconds", log="ppo/train.log", **OTHER_EXPORTER)
AGAIN = selector(
    "stepwatch_log_without_step_timestamp_seconds", log="ppo/train.log", job="mine", instance="a:9410"
)


def _here(labels: Labels) -> Labels:
    return {"instance": labels["instance"], "log": "ppo/train.log"}


THREE = "0+0x11 1+0x9 2+0x9 3+0x200"
"""Starts in the minutes 12, 22 and 32: they are within an hour until minute 71."""


def _by_the_minute(name: str, series: dict[str, str], alerts: dict[int, list[Labels]]) -> Scenario:
    return Scenario(name, series, {MINUTE * at + 2: fired for at, fired in alerts.items()}, MINUTE)


RESTARTING = (
    _by_the_minute("never", {RESTARTS: "0+0x200", **STATES["running"]}, {1: [], 59: [], 150: []}),
    _by_the_minute("twice", {RESTARTS: "0+0x11 1+0x9 2+0x200"}, {12: [], 22: [], 59: [], 90: []}),
    _by_the_minute(
        "three times",
        {RESTARTS: THREE, **STATES["running"]},
        {31: [], 32: [THIS], 70: [THIS], 79: [THIS], 83: [], 150: []},
    ),
    _by_the_minute("three times, and then no more", {RESTARTS: THREE, **STATES["stopped"]}, {32: [THIS]}),
    _by_the_minute("three times, and done", {RESTARTS: THREE, **STATES["finished"]}, {32: [], 60: []}),
    _by_the_minute(
        "three times, each a planned retry",
        {RESTARTS: THREE, RETRIES: "0+0x10 1+0x9 2+0x9 3+0x200", **STATES["running"]},
        {31: [], 32: [], 60: [], 70: []},
    ),
    _by_the_minute(
        "three times beside a planned retry",
        {RESTARTS: "0+0x11 1+0x9 2+0x9 4+0x200", RETRIES: "0+0x30 1+0x200", **STATES["running"]},
        {31: [], 32: [THIS], 60: [THIS]},
    ),
    _by_the_minute(
        "three times, after planned retries of long ago",
        {RESTARTS: "0+0x9 3+0x80 4+0x9 5+0x9 6+0x200", RETRIES: "0+0x8 3+0x230", **STATES["running"]},
        {90: [], 110: [], 111: [THIS], 125: [THIS]},
    ),
    _by_the_minute(
        "three times in more than an hour",
        {RESTARTS: "0+0x11 1+0x39 2+0x29 3+0x100"},
        {52: [], 82: [], 111: []},
    ),
    _by_the_minute("before Prometheus began to read", {RESTARTS: "5+0x200"}, {0: [], 1: [], 61: [], 125: []}),
    _by_the_minute(
        "the exporter has lost its memory of them",
        {RESTARTS: "5+0x30 0+0x19 1+0x9 2+0x100"},
        {31: [], 51: [], 61: []},
    ),
    _by_the_minute(
        "not scraped for five minutes",
        {RESTARTS: "0+0x11 1+0x9 2+0x9 3+0x9 stale _x4 3+0x100"},
        {32: [THIS], 43: [THIS], 48: [THIS], 70: [THIS], 83: []},
    ),
    _by_the_minute(
        "two exporters, one of which came late",
        {RESTARTS: THREE, SEEN_BY_OTHER: "_x30 0+0x200"},
        {31: [], 32: [THIS], 83: []},
    ),
)

RESUMED_WITH_LOSS = (
    _by_the_minute("never", {RESUMES: "0+0x200"}, {1: [], 61: []}),
    _by_the_minute(
        "one step lost",
        {RESUMES: "0+0x11 1+0x200", LOST: "_x12 1+0x200"},
        {11: [], 12: [THIS], 70: [THIS], 73: [], 150: []},
    ),
    _by_the_minute(
        "again after an hour and a half",
        {RESUMES: "0+0x11 1+0x89 2+0x200", LOST: "_x12 20+0x89 30+0x200"},
        {12: [THIS], 101: [], 102: [THIS], 163: []},
    ),
    _by_the_minute(
        "before Prometheus began to read", {RESUMES: "2+0x200", LOST: "20+0x200"}, {1: [], 61: []}
    ),
    _by_the_minute(
        "and then made all its steps",
        {RESUMES: "0+0x11 1+0x200", LOST: "_x12 20+0x200", **STATES["finished"]},
        {12: [], 60: []},
    ),
)

NEVER_STARTED = (
    Scenario("no log is without steps", {selector("up", **EXPORTER): "1+0x500"}, {2002: []}),
    Scenario(
        "a log grows for half an hour, and then its first step is made",
        {LOG: "100+0x399 stale"},
        {
            1897: [],
            1902: [],
            1907: [_here(EXPORTER)],
            1997: [_here(EXPORTER)],
            2592: [_here(EXPORTER)],
            2607: [],
        },
    ),
    Scenario("its first step comes in time", {LOG: "0+0x359 stale"}, {1797: [], 2402: []}),
    Scenario(
        "one log on each of two boxes",
        {LOG: "0+0x500", OTHER_LOG: "600+0x500"},
        {1802: [], 1807: [_here(EXPORTER)], 2407: [_here(EXPORTER), _here(OTHER_EXPORTER)]},
    ),
    Scenario("read by two jobs", {LOG: "0+0x500", AGAIN: "0+0x500"}, {1807: [_here(EXPORTER)]}),
)

UNKNOWN, LOST_KL = (
    selector("rl_run_signal_missing_info", **EXPORTER, run=RUN, signal=signal, reason=reason, setting=setting)
    for signal, reason, setting in (("reward", "unknown", "reward: [env/points]"), ("kl", "lost", ""))
)
SIGNALS_UNKNOWN = (
    _by_the_minute(
        "no known key", {UNKNOWN: "_x9 1+0x9 stale", **STATES["running"]}, {8: [], 10: [THIS], 21: []}
    ),
    _by_the_minute("lost", {LOST_KL: "_x9 1+0x90", **STATES["running"]}, {8: [], 10: [THIS], 90: [THIS]}),
    _by_the_minute(
        "both of one run", {UNKNOWN: "1+0x90", LOST_KL: "1+0x90", **STATES["running"]}, {9: [THIS]}
    ),
    _by_the_minute("a run that has finished", {LOST_KL: "1+0x90", **STATES["finished"]}, {10: []}),
    _by_the_minute("nothing is missing", STATES["running"], {10: []}),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("NeverStarted", "warning"): NEVER_STARTED,
    ("Restarting", "critical"): RESTARTING,
    ("ResumedWithLoss", "info"): RESUMED_WITH_LOSS,
    ("SignalsUnknown", "info"): SIGNALS_UNKNOWN,
}
