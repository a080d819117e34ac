"""Alerts on Stepwatch itself and on its sources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from stepwatch.alerts.gpu_health import WAS_SIMULATED
from stepwatch.alerts.host import HOLDS_CHECKPOINTS
from stepwatch.alerts.model import identity
from stepwatch.alerts.model.alert import (
    BYTES,
    DURATION,
    JUDGED,
    NOTHING,
    RATIO,
    REPORTED,
    RUNS,
    WHOLE,
    Alert,
    Condition,
    CriticalBlock,
    InfrastructureBlock,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Formula, Limit, On, smaller
from stepwatch.alerts.model.identity import written
from stepwatch.alerts.model.targets import (
    DISK,
    EVENT_WINDOW,
    HOST,
    LAST_KNOWN,
    STEADY_DELAY,
    delay,
    disks,
    hosts,
    servers,
)
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Duration, PositiveSpan, Size, Span, StorageSize
from stepwatch.schema.section import default

_alert = partial(Alert, topic="stack", keep=False, style=NOTHING)


class ExporterDown(CriticalBlock):
    """The run exporter does not answer, or has stopped reading: no run is monitored."""

    for_: Span = hold("1m", "A restart takes some seconds.", JUDGED)


_polled = "stepwatch_last_poll_timestamp_seconds"

EXPORTER_DOWN = _alert(
    ExporterDown,
    summary="Run exporter is down: no run is monitored",
    action="`make status`; read the run exporter's log",
    conditions=(
        Condition("does not answer", servers('up{job="runs"}').equals(0)),
        # By scrape time: Prometheus remembers an exporter's previous port for minutes.
        Condition(
            "has not read the logs for more than 60 s", servers(f"timestamp({_polled}) - {_polled}") > 60
        ),
        Condition("is not a scrape target", Formula('absent(up{job="runs"})').equals(1)),
    ),
    about="server",
)


class TargetDown(WarningBlock):
    """A target under `scrape`, or one of Stepwatch's own, does not answer.

    EngineGone covers rollout servers, RayNodeLost covers Ray, RunStopped covers trainers' metrics pages.
    Discovered targets end with their run and are not covered.
    """

    for_: Span = hold("5m", "Longer than a machine takes to restart its exporters.", JUDGED)


TARGET_DOWN = _alert(
    TargetDown,
    summary="Scrape target is down",
    action="read the error on Prometheus' Targets page",
    conditions=(
        Condition("does not answer", servers('up{job!~"runs|bridge",role!~"rollout|ray|trainer"}').equals(0)),
    ),
    about="server",
)


class SourceDown(WarningBlock):
    """An MLflow server does not answer, or a page under `runs` has never answered.

    A page that has answered ends with its trainer; RunStopped covers it.
    """

    for_: Span = hold("5m", "MLflow can take minutes to restart workers that hang (mlflow #1760).", REPORTED)


def _sources(inner: str) -> Formula:
    return Formula(f"max by ({written(identity.SOURCE)}) ({inner})")


SOURCE_DOWN = _alert(
    SourceDown,
    summary="Source of runs is down: its runs are not monitored",
    action="read the reason in the run exporter's log",
    conditions=(
        Condition("does not answer", _sources('stepwatch_target_up{source="mlflow"}').equals(0)),
        Condition(
            "has not answered since the run exporter started",
            _sources('stepwatch_target_up{source="prometheus_page"}').equals(0),
            sparing=_sources("stepwatch_target_answered_timestamp_seconds"),
        ),
    ),
    about="source",
)


class GPUExporterStale(WarningBlock):
    """The GPU exporter answers, but its last reading is stale, or the driver does not answer it.

    Does not fire where GPULost fires, or on machines without GPUs.
    """

    age: PositiveSpan = default(
        Duration.parse("1m"),
        "Age of the last reading. The exporter reads every second, or every 15 if it is not scraped.",
        JUDGED,
    )
    within: PositiveSpan = default(
        Duration.parse("1d"), "A machine has GPUs if it had some within this time.", JUDGED
    )
    for_: Span = hold("5m", "Reloading a driver takes minutes.", JUDGED)


GPU_EXPORTER_STALE = _alert(
    GPUExporterStale,
    summary="GPU metrics are stale",
    action="on the machine, check `nvidia-smi`, the clock and the GPU exporter's log",
    conditions=(
        Condition(
            "the last reading is older than <age>",
            hosts(
                "timestamp(gpu_exporter_last_collect_timestamp_seconds)"
                " - gpu_exporter_last_collect_timestamp_seconds"
            )
            > Limit("age"),
        ),
        Condition("the driver does not answer", hosts("gpu_exporter_nvml_up").equals(0)),
    ),
    given=hosts("max_over_time(gpu_devices_expected[<within>s])") > 0,
    # GPULost is about GPUs that cannot be read, TargetDown about an exporter that does not answer.
    sparing=On(HOST, Formula(f'gpu_up == 0 or gpu_exporter_nvml_up{{reason="released"}} or {WAS_SIMULATED}')),
    about="gpu_host",
)


class SeriesLimit(WarningBlock):
    """Stepwatch drops runs, targets, files or keys because there are too many."""

    raw_keys: scalars.Count = default(
        1000,
        "Keys of one run beyond `runs.raw.limit`. No rule uses them, and 8 of 62 real runs have some, at"
        " most 49: only a trainer that keeps creating new keys fires.",
        RUNS,
    )
    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


SERIES_LIMIT = _alert(
    SeriesLimit,
    summary="Series limit reached; some data is dropped",
    action="find what creates new runs, keys or series, and filter it in config.yaml",
    conditions=(
        # One raw key too many is not a fault; hundreds are created at each step.
        Condition(
            "raw keys dropped:",
            Formula(f"max by ({written(identity.RUN)}) (rl_raw_keys_refused_total)") > Limit("raw_keys"),
            sparing=Formula(f'max by ({written(identity.RUN)}) (rl_run_state{{state="finished"}}) == 1'),
        ),
        Condition(
            "records dropped within 1 h, from runs beyond the 200th of a log:",
            servers(f"increase(stepwatch_events_refused_total[{EVENT_WINDOW}])") > 0,
        ),
        Condition(
            "files without a record, beyond the newest 5000:", servers('stepwatch_files{kind="left_out"}') > 0
        ),
        Condition("live runs beyond the 400th:", servers('stepwatch_left_out_runs{state="running"}') > 0),
        Condition(
            "scrapes dropped within 1 h, from targets with too many series:",
            servers(f"increase(prometheus_target_scrapes_exceeded_sample_limit_total[{EVENT_WINDOW}])") > 0,
        ),
    ),
    about="series",
    style=WHOLE,
)


class MountHung(WarningBlock):
    """A file system does not answer, for example because its NFS server is down: its logs are not read.

    Its runs keep their last values, and no other alert treats them as silent.
    """

    silence: PositiveSpan = default(
        Duration.parse("1m"),
        "No answer for at least this long: file servers that fail over take up to 1m.",
        JUDGED,
    )


MOUNT_HUNG = _alert(
    MountHung,
    summary="File system hangs: its runs are not monitored",
    action="run `ls` on the mount in a separate shell; check the file server and `dmesg`",
    conditions=(
        Condition(
            "no answer for",
            Formula("time()")
            - Formula(f"max by ({written(identity.MOUNT)}) (stepwatch_mount_hung_since_timestamp_seconds)")
            > Limit("silence"),
        ),
    ),
    about="mount",
    style=DURATION,
)


class ClockSkew(WarningBlock):
    """The clock of a machine (node_exporter), the run exporter or an agent differs from Prometheus' clock.

    For an agent, the delay of its data counts: rules do not see data that is five minutes late.
    """

    offset: PositiveSpan = default(
        Duration.parse("30s"), "Difference. A slow response alone adds up to 10s.", JUDGED
    )
    ahead: PositiveSpan = default(
        Duration.parse("5s"),
        "The same for an agent's clock that is ahead: data cannot arrive early.",
        JUDGED,
    )
    for_: Span = hold("5m", "Longer than a clock correction takes.", JUDGED)


_delay = "stepwatch_agent_delay_seconds"


def _agents(inner: str) -> Formula:
    """Return one value for each agent, labelled as a server."""
    instance = f'label_replace({inner}, "instance", "$1", "node", "(.+)")'
    return servers(f'label_replace({instance}, "job", "agent", "", "")')


CLOCK_SKEW = _alert(
    ClockSkew,
    summary="Clock of a machine is wrong: timing of alerts is off",
    action="`timedatectl` on the machine",
    conditions=(
        Condition(
            "off by", servers("abs(node_time_seconds - timestamp(node_time_seconds))") > Limit("offset")
        ),
        # The run exporter cannot have read in the future; if it read long ago, ExporterDown fires.
        Condition("off by", servers(f"{_polled} - timestamp({_polled})") > Limit("offset")),
        # What an agent scrapes has its own time; a delay that changes is a backlog.
        Condition("behind by", _agents(delay(_delay)) > Limit("offset"), given=_agents(STEADY_DELAY)),
        Condition("ahead by", _agents(delay(f"-{_delay}")) > Limit("ahead")),
    ),
    about="clock",
    style=DURATION,
)


class RuleFailures(CriticalBlock):
    """Prometheus cannot evaluate rules: alerts may be missing."""

    for_: Span = hold("1m", "Longer than a brief load peak of the machine.", JUDGED)


RULE_FAILURES = _alert(
    RuleFailures,
    summary="Prometheus fails to evaluate rules",
    action="read the error on Prometheus' Rules page, or its log; check the load of its machine",
    conditions=tuple(
        Condition("evaluations failed or missed in 5 min:", hosts(f"increase({counter}[5m])") > 0)
        for counter in (
            "prometheus_rule_evaluation_failures_total",
            "prometheus_rule_group_iterations_missed_total",
        )
    ),
    about="prometheus",
    style=WHOLE,
)


class NotificationFailures(CriticalBlock):
    """Notifications do not reach Alertmanager, or do not get from there to a receiver.

    For receivers served by the bridge: the robot refuses them, or they wait for it. A failure of an action is
    none of a notification.
    """

    waiting: PositiveSpan = default(
        Duration.parse("15m"),
        "How long a notification waits for a robot. DingTalk blocks one for 10m.",
        JUDGED,
    )
    for_: Span = hold("1m", "Both retry: a failure that a retry fixes needs no alert.", JUDGED)


_receivers = written(identity.RECEIVER)


def _of_receivers(counter: str, unless: str = "") -> Formula:
    failed = f'increase({counter}{{receiver_name!~"[(]test[)] .+"}}[5m])'
    return Formula(f"max by ({_receivers}) ({failed}{unless})")


NOTIFICATION_FAILURES = _alert(
    NotificationFailures,
    summary="Notifications are lost",
    action="`make test-alert TO=name`; read the logs of Prometheus and Alertmanager",
    conditions=(
        *(
            Condition("notifications failed in 5 min:", failed > 0, given=given)
            for failed, given in (
                # The user of test-alert sees its failure; Alertmanager names receivers from 0.27 on.
                # It also counts what waits in the bridge, which counts what robots refuse itself; for as
                # long as the count looks back, since a bridge that is no longer configured is not scraped.
                (
                    _of_receivers(
                        "alertmanager_notifications_failed_total",
                        " unless on (integration, receiver_name)"
                        " last_over_time(stepwatch_bridge_receiver_info[5m])",
                    ),
                    None,
                ),
                (_of_receivers("stepwatch_bridge_refused_total"), None),
                (hosts("increase(prometheus_notifications_errors_total[5m])"), None),
                # In the first seconds of a configuration Prometheus knows no Alertmanager: it retries.
                (
                    hosts("increase(prometheus_notifications_dropped_total[5m])"),
                    hosts("time() - prometheus_config_last_reload_success_timestamp_seconds") > 360,
                ),
            )
        ),
        Condition(
            "seconds of waiting for the robot:",
            Formula(f"max by ({_receivers}) (stepwatch_bridge_waiting_seconds)") > Limit("waiting"),
        ),
    ),
    about="receiver",
    style=WHOLE,
)


class BridgeDown(CriticalBlock):
    """The bridge does not answer: its chat robots get no notifications, and no action is taken.

    Alertmanager keeps undelivered notifications. Only receivers of other types get this alert.
    """

    for_: Span = hold("1m", "A restart takes some seconds.", JUDGED)


BRIDGE_DOWN = _alert(
    BridgeDown,
    summary="Bridge is down: no notifications to chats, no actions",
    action="`make status`; read the bridge's log",
    conditions=(Condition("does not answer", servers('up{job="bridge"}').equals(0)),),
    about="server",
)


class ConfigReloadFailed(WarningBlock):
    """Prometheus or Alertmanager rejected a new configuration and keeps the old one."""

    for_: Span = hold("1m", "An edit that is corrected immediately needs no alert.", JUDGED)


CONFIG_RELOAD_FAILED = _alert(
    ConfigReloadFailed,
    summary="New configuration rejected; the old one stays active",
    action="read its log, which names the line; run `python generate.py --check`",
    conditions=(
        Condition(
            "rejected its new configuration",
            servers(
                f"last_over_time(prometheus_config_last_reload_successful[{LAST_KNOWN}])"
                f" or last_over_time(alertmanager_config_last_reload_successful[{LAST_KNOWN}])"
            ).equals(0),
        ),
    ),
    about="server",
)


class RemoteWriteFailing(WarningBlock):
    """A system under `remote_write` does not accept this machine's samples; nothing is lost locally."""

    behind: PositiveSpan = default(
        Duration.parse("5m"), "Age of the newest accepted sample; some seconds are normal.", JUDGED
    )
    for_: Span = hold("5m", "A system that restarts catches up sooner.", JUDGED)


def _remote(inner: str) -> Formula:
    return Formula(f"max by ({written(identity.REMOTE)}) ({inner})")


_refused = "prometheus_remote_storage_samples_failed_total"
_taken = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"

REMOTE_WRITE_FAILING = _alert(
    RemoteWriteFailing,
    summary="Remote write target does not accept samples",
    action="read the response in Prometheus' log; open the address from this machine",
    conditions=(
        Condition(
            "the newest accepted sample is older than <behind>",
            _remote(f"timestamp({_taken}) - ({_taken} > 0)") > Limit("behind"),
        ),
        # Prometheus 2 does not export the time before it is known.
        Condition(
            "has accepted nothing since Prometheus started",
            _remote(f"0 * {_refused} unless {_taken} > 0").equals(0),
        ),
        Condition(
            "refuses samples",
            _remote(f"increase({_refused}[5m]) > bool 0").equals(1),
        ),
    ),
    about="remote",
    style=NOTHING,
)


class TSDBNearLimit(WarningBlock):
    """Prometheus reaches `retention.size` before `retention.time`: it deletes history early."""

    used_ratio: scalars.Ratio = default(
        0.9,
        "Share of the size that was in use within a day, while the history covers less than this share of"
        " the time.",
        JUDGED,
    )
    for_: Span = hold("1m", "Disk usage changes over days; waiting longer is not necessary.", JUDGED)


TSDB_NEAR_LIMIT = _alert(
    TSDBNearLimit,
    summary="Prometheus deletes history early: disk quota used up",
    action="raise `retention.size`, or lower `retention.time` to what fits",
    conditions=(
        Condition(
            "quota in use:",
            hosts("max_over_time(prometheus_tsdb_storage_blocks_bytes[1d])")
            / hosts("prometheus_tsdb_retention_limit_bytes > 0")
            > Limit("used_ratio"),
            given=hosts("time() - prometheus_tsdb_lowest_timestamp_seconds")
            < Limit("used_ratio") * Limit("retention_time"),
        ),
    ),
    about="prometheus",
    style=RATIO,
)


class AlertingBroken(CriticalBlock):
    """Prometheus cannot store, evaluate or notify, for example because its disk is full.

    The run exporter detects it and sends the alert to Alertmanager itself, within a minute and without a
    rule. Resolved a minute after the fault.
    """


ALERTING_BROKEN = _alert(
    AlertingBroken, summary="Alerting is broken", action="see the runbook", conditions=(), about="stack"
)


class StateDiskLow(WarningBlock):
    """A disk with Stepwatch's own state is nearly full. DiskLow covers disks that node_exporter exports."""

    free_ratio: scalars.Ratio = default(0.1, "Free share of the disk, and of its inodes.", JUDGED)
    enough: StorageSize = default(
        Size.parse("5GB"),
        "This much is enough on any disk: Prometheus writes less than that in a week.",
        JUDGED,
    )
    for_: Span = hold("1m", "A file that is deleted immediately needs no alert.", JUDGED)


def _state_disks(metric: str) -> Expression:
    return disks(f"stepwatch_state_filesystem_{metric}")


_shown = f'node_filesystem_avail_bytes{{job="node",{HOLDS_CHECKPOINTS}}}'


STATE_DISK_LOW = _alert(
    StateDiskLow,
    summary="Disk with Stepwatch's own state is nearly full",
    action="free space there; a full disk stops all alerts about runs",
    conditions=(
        Condition(
            "free bytes:",
            _state_disks("free_bytes")
            < smaller(Limit("free_ratio") * _state_disks("size_bytes"), Limit("enough")),
            "from its size",
        ),
        Condition(
            "free inodes:",
            _state_disks("files_free") < Limit("free_ratio") * _state_disks("files"),
            "from all inodes",
        ),
    ),
    # Any file system, tmpfs and overlay too, except those that DiskLow covers.
    sparing=On(DISK, Formula(f"stepwatch_state_filesystem_free_bytes and on (device) {_shown}")),
    about="state_disk",
    style=BYTES,
)


class TSDBFailures(WarningBlock):
    """Prometheus fails to write its data, or found it corrupted at startup. Fires for an hour.

    A warning: RuleFailures and DiskLow page if alerts are at risk.
    """

    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


TSDB_FAILURES = _alert(
    TSDBFailures,
    summary="Prometheus cannot write its data: history is lost",
    action="read Prometheus' log; check the free space on its disk",
    conditions=tuple(
        Condition(
            "failures within 1 h:", hosts(f"increase(prometheus_tsdb_{counter}_total[{EVENT_WINDOW}])") > 0
        )
        for counter in (
            "wal_corruptions",
            "wal_writes_failed",
            "compactions_failed",
            "head_truncations_failed",
        )
    ),
    about="prometheus",
    style=WHOLE,
)


class Watchdog(InfrastructureBlock):
    """Always fires, notifies no one: its absence shows a checker (`deadman`) that the stack died."""

    names: ClassVar[Mapping[str, str]] = {"info": "Watchdog"}


WATCHDOG = _alert(
    Watchdog,
    "info",
    summary="Always firing; absence means the alerting pipeline is down",
    action="none",
    conditions=(Condition("alerting works", Formula("vector(1)").equals(1)),),
    about="stack",
)

ALERTS = (
    EXPORTER_DOWN,
    TARGET_DOWN,
    SOURCE_DOWN,
    GPU_EXPORTER_STALE,
    MOUNT_HUNG,
    SERIES_LIMIT,
    CLOCK_SKEW,
    RULE_FAILURES,
    NOTIFICATION_FAILURES,
    BRIDGE_DOWN,
    CONFIG_RELOAD_FAILED,
    REMOTE_WRITE_FAILING,
    TSDB_NEAR_LIMIT,
    ALERTING_BROKEN,
    STATE_DISK_LOW,
    TSDB_FAILURES,
    WATCHDOG,
)
