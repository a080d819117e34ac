"""The cases of every rule about what Stepwatch reads and keeps: sources, clocks, room for history."""

from __future__ import annotations

from tests.rules.boxes import STALE
from tests.rules.cluster import SKEWS
from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector
from tests.rules.stack import POLLED, PROMETHEUS, Labels, Scenario, by_the_minute

TRACKING, PAGE = "http://10.0.0.7:5000", "http://10.0.0.8:9092/metrics"
TRACKING_DOWN, PAGE_DOWN = {"name": TRACKING}, {"name": PAGE}


def source_up(name: str, kind: str, exporter: Labels = EXPORTER) -> str:
    return selector("stepwatch_target_up", name=name, source=kind, **exporter)


def answered(name: str) -> str:
    return selector("stepwatch_target_answered_timestamp_seconds", name=name, **EXPORTER)


MLFLOW, TRAINER = source_up(TRACKING, "mlflow"), source_up(PAGE, "prometheus_page")

SOURCES = (
    Scenario("healthy", {MLFLOW: "1+0x200", TRAINER: "1+0x200"}, {302: [], 602: []}),
    Scenario(
        "a server does not answer",
        {MLFLOW: "1+0x11 0+0x200", answered(TRACKING): "0+5x11 55+0x200", TRAINER: "1+0x200"},
        {357: [], 362: [TRACKING_DOWN], 602: [TRACKING_DOWN]},
    ),
    Scenario(
        "a server and a page never answered",
        {MLFLOW: "0+0x200", TRAINER: "0+0x200"},
        {297: [], 302: [TRACKING_DOWN, PAGE_DOWN]},
    ),
    Scenario(
        "a page goes with its trainer",
        {TRAINER: "1+0x11 0+0x200", answered(PAGE): "0+5x11 55+0x200"},
        {362: [], 602: []},
    ),
    Scenario(
        "one of two run exporters cannot reach it",
        {MLFLOW: "0+0x200", source_up(TRACKING, "mlflow", OTHER_EXPORTER): "1+0x200"},
        {602: []},
    ),
    Scenario(
        "it does not answer for four minutes", {MLFLOW: "1+0x11 0+0x48 1+0x100"}, {302: [], 362: [], 602: []}
    ),
    Scenario("the run exporter is gone", {MLFLOW: "0+0x30 stale"}, {302: [], 602: []}),
)

RUN = "ppo/gsm8k"
KEYS = selector("rl_raw_keys_refused_total", run=RUN, **EXPORTER)
FINISHED = selector("rl_run_state", run=RUN, state="finished", **EXPORTER)
REFUSED = selector("stepwatch_events_refused_total", **EXPORTER)
TOO_LARGE = selector("prometheus_target_scrapes_exceeded_sample_limit_total", **PROMETHEUS)

FILES_LEFT = selector("stepwatch_files", **EXPORTER, kind="left_out")
RUNS_LEFT = selector("stepwatch_left_out_runs", **EXPORTER, state="running")
ENDED_LEFT = selector("stepwatch_left_out_runs", **EXPORTER, state="ended")
OLD_FILES = selector("stepwatch_files", **EXPORTER, kind="old")

LEFT_OUT = (
    by_the_minute(
        "healthy",
        {KEYS: "49+0x100", FINISHED: "0+0x100", REFUSED: "7+0x100", TOO_LARGE: "3+0x100"},
        {2: [], 65: [], 90: []},
    ),
    by_the_minute("just a thousand keys", {KEYS: "1000+0x100", FINISHED: "0+0x100"}, {3: []}),
    by_the_minute(
        "just more than a thousand keys, seen by two exporters",
        {KEYS: "1005+0x100", KEYS.replace("a:9410", "b:9410"): "1005+0x100", FINISHED: "0+0x100"},
        {0: [], 1: [{"run": RUN}], 90: [{"run": RUN}]},
    ),
    by_the_minute(
        "of a run that is done", {KEYS: "5000+0x100", FINISHED: "0+0x9 1+0x100"}, {9: [{"run": RUN}], 12: []}
    ),
    by_the_minute(
        "runs of a log", {REFUSED: "0+0x9 1+0x200"}, {10: [], 11: [EXPORTER], 68: [EXPORTER], 73: [], 130: []}
    ),
    by_the_minute(
        "a target's series",
        {TOO_LARGE: "0+0x9 1+0x200"},
        {10: [], 11: [PROMETHEUS], 68: [PROMETHEUS], 73: []},
    ),
    by_the_minute("files", {FILES_LEFT: "0+0x9 1+0x20 0+0x20"}, {10: [], 11: [EXPORTER], 40: []}),
    by_the_minute("live runs", {RUNS_LEFT: "0+0x9 1+0x20 0+0x20"}, {10: [], 11: [EXPORTER], 40: []}),
    by_the_minute("runs that ended", {ENDED_LEFT: "9000+0x90"}, {20: []}),
    by_the_minute("files that are old", {OLD_FILES: "9000+0x90"}, {20: []}),
    by_the_minute("the run exporter is restarted", {REFUSED: "50+0x9 0+0x90"}, {10: [], 12: [], 60: []}),
    Scenario("for less than a minute", {KEYS: "0+0x10 2000+0x10 0+0x50"}, {57: [], 107: [], 117: []}),
    Scenario(
        "for a minute and a half", {KEYS: "0+0x10 2000+0x17 0+0x50"}, {112: [], 117: [{"run": RUN}], 147: []}
    ),
)

NODE = {"job": "node", "instance": "a:9100"}
CLOCK = selector("node_time_seconds", **NODE)
OTHER_CLOCK = selector("node_time_seconds", job="node", instance="b:9100")

CLOCKS = (
    Scenario("healthy", {CLOCK: "0.4+5x200", POLLED: "-0.5+5x200"}, {302: [], 602: []}),
    Scenario(
        "just at the limit",
        {CLOCK: "30+5x200", OTHER_CLOCK: "-30+5x200", POLLED: "30+5x200"},
        {302: [], 602: []},
    ),
    Scenario("one of two ahead", {CLOCK: "30.2+5x200", OTHER_CLOCK: "0+5x200"}, {297: [], 302: [NODE]}),
    Scenario("behind", {CLOCK: "-30.2+5x200"}, {297: [], 302: [NODE]}),
    Scenario("the run exporter's ahead", {POLLED: "30.2+5x200"}, {297: [], 302: [EXPORTER]}),
    Scenario("the run exporter reads slowly", {POLLED: "-55+5x200"}, {302: [], 602: []}),
    Scenario("set right", {CLOCK: "90+5x50 255+5x100"}, {242: [], 302: [], 602: []}),
)

HOUR = 3600
MINE = {"instance": "a:9090"}
BLOCKS = selector("prometheus_tsdb_storage_blocks_bytes", **PROMETHEUS)
QUOTA = selector("prometheus_tsdb_retention_limit_bytes", **PROMETHEUS)
OLDEST = selector("prometheus_tsdb_lowest_timestamp_seconds", **PROMETHEUS)
SIZE, TIME = 20 << 30, 90 * 86_400


def history(share: float, age: float, step: int = 60, quota: int = SIZE) -> dict[str, str]:
    """Shares of what config.yaml allows: of the room, and of the time."""
    return {
        BLOCKS: f"{share * SIZE:.3f}+0x200",
        QUOTA: f"{quota}+0x200",
        OLDEST: f"{-age * TIME:.3f}+{step}x200",
    }


def _by_the_hour(name: str, series: dict[str, str], alerts: dict[float, list[Labels]]) -> Scenario:
    return Scenario(name, series, {HOUR * at + 60: fired for at, fired in alerts.items()}, HOUR)


ROOM = (
    by_the_minute("healthy", history(0.3, 0.99), {3: []}),
    by_the_minute("full when its time is over", history(0.95, 0.95), {3: []}),
    by_the_minute("nearly full long before", history(0.905, 0.2), {0: [], 1: [MINE], 90: [MINE]}),
    by_the_minute("nearly full just before", history(0.95, 0.899), {1: [MINE]}),
    by_the_minute("nearly full just after", history(0.95, 0.901), {1: [], 3: []}),
    by_the_minute("as full as the limit", history(0.9, 0.2), {1: [], 3: []}),
    by_the_minute("as old as the limit", history(0.95, 0.9), {1: [], 3: []}),
    by_the_minute("no limit of size", history(0.95, 0.2, quota=0), {1: [], 3: []}),
    Scenario(
        "for less than a minute",
        {**history(0.95, 0.2, step=5), BLOCKS: "_x10 2e10+0x10 stale"},
        {57: [], 107: []},
    ),
    Scenario(
        "for more than a minute", {**history(0.95, 0.2, step=5), BLOCKS: "2e10+0x100"}, {57: [], 62: [MINE]}
    ),
    _by_the_hour(
        "its oldest block was deleted, and for good",
        {**history(0.95, 0.2, step=HOUR), BLOCKS: f"{0.95 * SIZE:.0f}+0x9 {0.85 * SIZE:.0f}+0x90"},
        {0: [], 1: [MINE], 12: [MINE], 31: [MINE], 35: [], 60: []},
    ),
)

FAILED = [
    selector(f"prometheus_tsdb_{what}_total", **PROMETHEUS)
    for what in ("wal_corruptions", "wal_writes_failed", "compactions_failed", "head_truncations_failed")
]

FAILURES = (
    by_the_minute("healthy", dict.fromkeys(FAILED, "2+0x200"), {3: [], 65: []}),
    *(
        by_the_minute(
            each.partition("{")[0],
            {**dict.fromkeys(FAILED, "0+0x200"), each: "0+0x9 1+0x200"},
            {10: [], 11: [MINE], 68: [MINE], 73: [], 130: []},
        )
        for each in FAILED
    ),
    by_the_minute("all of them", dict.fromkeys(FAILED, "0+0x9 1+0x200"), {11: [MINE]}),
    by_the_minute("Prometheus is restarted", dict.fromkeys(FAILED, "2+0x9 0+0x90"), {10: [], 12: [], 60: []}),
    Scenario("just now", {FAILED[0]: "0+0x11 1+0x200"}, {117: [], 122: [MINE]}),
)

HUNG_MOUNT = selector("stepwatch_mount_hung_since_timestamp_seconds", **EXPORTER, mount="/data")
OTHER_HUNG = selector("stepwatch_mount_hung_since_timestamp_seconds", **EXPORTER, mount="/nfs")
THAT_MOUNT = {"instance": "a:9410", "mount": "/data"}

HANGS = (
    Scenario("just more than a minute", {HUNG_MOUNT: "-0.3+0x200"}, {57: [], 62: [THAT_MOUNT]}),
    Scenario("just a minute", {HUNG_MOUNT: "0+0x200"}, {62: [], 67: [THAT_MOUNT]}),
    Scenario("just less than a minute", {HUNG_MOUNT: "0.3+0x200"}, {62: [], 67: [THAT_MOUNT]}),
    Scenario("answers again", {HUNG_MOUNT: "0+0x20 stale"}, {97: [THAT_MOUNT], 107: []}),
    Scenario(
        "two, and one of them seen by two exporters",
        dict.fromkeys((HUNG_MOUNT, HUNG_MOUNT.replace("a:9410", "b:9410"), OTHER_HUNG), "-600+0x200"),
        {2: [THAT_MOUNT, {**THAT_MOUNT, "instance": "b:9410"}, {**THAT_MOUNT, "mount": "/nfs"}]},
    ),
)

SYSTEM = {**PROMETHEUS, "remote_name": "1f", "url": "http://10.0.0.9:8428/api/v1/write"}
OTHER_SYSTEM = {**SYSTEM, "remote_name": "2f", "url": "http://10.0.0.10/write"}
NOT_SENT = {"instance": "a:9090", "url": SYSTEM["url"]}


def taken(system: Labels = SYSTEM) -> str:
    return selector("prometheus_remote_storage_queue_highest_sent_timestamp_seconds", **system)


def refused(system: Labels = SYSTEM) -> str:
    return selector("prometheus_remote_storage_samples_failed_total", **system)


SENDING = (
    Scenario("healthy", {taken(): "1+5x300", refused(): "7+0x300"}, {602: [], 1202: []}),
    Scenario("just five minutes behind", {taken(): "_x61 5+5x300"}, {902: [], 1202: []}),
    Scenario(
        "just more than five minutes behind",
        {taken(): "_x61 4.5+5x300", taken(OTHER_SYSTEM): "1+5x300"},
        {602: [], 607: [NOT_SENT], 1202: [NOT_SENT]},
    ),
    Scenario("it has stopped taking them", {taken(): "1+5x11 56+0x300"}, {652: [], 662: [NOT_SENT]}),
    Scenario("it catches up", {taken(): "1+5x11 56+0x70 411+5x200"}, {622: [], 657: [], 902: []}),
    Scenario(
        "it never took any, of Prometheus 3",
        {taken(): "0+0x300", refused(): "0+0x300"},
        {297: [], 302: [NOT_SENT]},
    ),
    Scenario("it never took any, of Prometheus 2", {refused(): "3+0x300"}, {297: [], 302: [NOT_SENT]}),
    Scenario(
        "it refuses them", {taken(): "1+5x300", refused(): "0+0x11 1+1x200"}, {357: [], 362: [NOT_SENT]}
    ),
    Scenario(
        "it refused some", {taken(): "1+5x300", refused(): "0+0x11 9+0x300"}, {352: [], 402: [], 702: []}
    ),
    Scenario(
        "it refuses one a minute",
        {taken(): "1+5x300", refused(): " ".join(f"{count}+0x11" for count in range(9))},
        {357: [], 367: [NOT_SENT]},
    ),
    Scenario(
        "both",
        {refused(): "0+0x300", refused(OTHER_SYSTEM): "0+0x300"},
        {302: [NOT_SENT, {**NOT_SENT, "url": OTHER_SYSTEM["url"]}]},
    ),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("SourceDown", "warning"): SOURCES,
    ("GPUExporterStale", "warning"): STALE,
    ("MountHung", "warning"): HANGS,
    ("SeriesLimit", "warning"): LEFT_OUT,
    ("ClockSkew", "warning"): (*CLOCKS, *SKEWS),
    ("TSDBNearLimit", "warning"): ROOM,
    ("TSDBFailures", "warning"): FAILURES,
    ("RemoteWriteFailing", "warning"): SENDING,
}
