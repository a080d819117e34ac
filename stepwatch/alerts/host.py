"""Alerts on machines, as node_exporter sees them: memory and disks."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from stepwatch.alerts.model.alert import (
    BYTES,
    DOCUMENTED,
    JUDGED,
    RATIO,
    Alert,
    Condition,
    InfrastructureBlock,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Limit, Number, smaller
from stepwatch.alerts.model.targets import disks, hosts
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Duration, PositiveSpan, Size, Span, StorageSize
from stepwatch.schema.section import Level, default

_alert = partial(Alert, topic="stack")


class HostMemory(WarningBlock):
    """A machine's memory is nearly full, or soon will be."""

    used_ratio: scalars.Ratio = default(
        0.95, "Share of the memory that is not available. Ray starts to kill workers at 0.95.", DOCUMENTED
    )
    full_within: PositiveSpan = default(
        Duration.parse("4h"),
        "Or: at the rate of the last hour, and of the hour before, memory is full within this time. What a"
        " run allocates at its start counts in only one of the two hours. Long enough to save a checkpoint"
        " and restart.",
        JUDGED,
    )
    for_: Span = hold("5m", "A peak may last a few minutes; a leak lasts longer.", JUDGED)


_total = hosts("node_memory_MemTotal_bytes")


def _left(offset: str = "") -> Expression:
    """The memory that is left after `full_within`, at the rate of an hour."""
    return hosts(f"predict_linear(node_memory_MemAvailable_bytes[1h]{offset}, <full_within>)")


HOST_MEMORY = _alert(
    HostMemory,
    summary="Machine is running out of memory",
    action="`ps aux --sort=-rss | head`",
    conditions=(
        Condition(
            "memory in use:",
            Number(1) - hosts("node_memory_MemAvailable_bytes") / _total > Limit("used_ratio"),
        ),
        Condition(
            "memory in use in <full_within> at the current rate:",
            Number(1) - _left() / _total > 1,
            given=(_left(" offset 1h") < 0) & hosts("node_memory_MemAvailable_bytes offset 2h"),
        ),
    ),
    about="host",
    style=RATIO,
)


class DiskWarning(Level):
    """A disk is running full."""

    falling: ClassVar[frozenset[str]] = frozenset({"free_ratio", "checkpoints"})

    free_ratio: scalars.Ratio = default(0.1, "Share of the disk that is free.", JUDGED)
    checkpoints: scalars.Limit = default(
        2,
        "Or room for fewer checkpoints than this: the next one, and one more while you free space.",
        JUDGED,
    )


class DiskCritical(DiskWarning):
    """A disk is full, or has no room for the next checkpoint."""

    free_ratio: scalars.Ratio = default(0.01, "Full within minutes at any write rate.", JUDGED)
    checkpoints: scalars.Limit = default(
        1, "The next checkpoint fails, and with many trainers the run fails too.", JUDGED
    )


class DiskLow(InfrastructureBlock):
    """A disk (node_exporter) is running full.

    The checkpoint size is measured: the most that was written within 10 minutes, in both halves of the last
    day. A single copy of data does not count.
    """

    warning: DiskWarning | None = DiskWarning()
    critical: DiskCritical | None = DiskCritical()
    enough: StorageSize = default(
        Size.parse("1TB"),
        "This much is enough on any disk, regardless of its share: 10 % of shared storage is many TB. A"
        " checkpoint of a 70B model with its optimizer takes about 1 TB.",
        JUDGED,
    )
    for_: Span = hold("5m", "Old checkpoints are often deleted just after the new one is written.", JUDGED)


HOLDS_CHECKPOINTS = (
    'fstype!~"tmpfs|ramfs|devtmpfs|overlay|squashfs|erofs|iso9660|udf|fuse.lxcfs",'
    'mountpoint!~"/boot(/.*)?|/run/.*|/snap/.*"'
)
"""No memory, image, container layer or boot file systems."""

_free = disks(f"node_filesystem_avail_bytes{{{HOLDS_CHECKPOINTS}}}")


def _written(offset: str = "") -> Expression:
    """The most that was written within 10 minutes, in 12 hours.

    Sampled every 5 minutes, so a checkpoint that takes 5 minutes is counted in full.
    """
    return disks(
        "max_over_time((node_filesystem_avail_bytes offset 10m - node_filesystem_avail_bytes)"
        f"[12h:5m]{offset})"
    )


def _disk_low(severity: str, summary: str) -> Alert:
    checkpoints = Limit(f"{severity}.checkpoints")
    return _alert(
        DiskLow,
        severity,
        summary=summary,
        action="delete old checkpoints and checkpoints of ended runs",
        conditions=(
            Condition(
                "free:",
                _free
                < smaller(
                    Limit(f"{severity}.free_ratio") * disks("node_filesystem_size_bytes"), Limit("enough")
                ),
                "from its size",
            ),
            Condition(
                "free:",
                _free < smaller(checkpoints * _written(), checkpoints * _written(" offset 12h")),
                "from the checkpoint size",
            ),
        ),
        sparing=disks("node_filesystem_readonly").equals(1),
        about="disk",
        style=BYTES,
        unit="B",
    )


DISK_LOW = (
    _disk_low("warning", "Disk is running full"),
    _disk_low("critical", "Disk is full, or has no room for a checkpoint"),
)

ALERTS = (HOST_MEMORY, *DISK_LOW)
