"""Alerts on Ray: killed workers, lost nodes, spilled objects and full disks."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import (
    BYTES,
    COMPUTED,
    DOCUMENTED,
    JUDGED,
    NOTHING,
    RATIO,
    WHOLE,
    Alert,
    Condition,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Limit
from stepwatch.alerts.model.targets import (
    EVENT_WINDOW,
    SILENT,
    events,
    gone,
    ray_nodes,
    servers,
)
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Size, Span, StorageSize
from stepwatch.schema.section import default

_alert = partial(Alert, topic="rollout", about="ray")


class RayWorkerOOM(WarningBlock):
    """Ray killed a worker because its node ran out of memory. Fires for an hour.

    A warning: Ray may restart the worker; RunFailed or Stalled pages if the run fails or hangs.
    """


RAY_WORKER_OOM = _alert(
    RayWorkerOOM,
    summary="Ray killed a worker: node out of memory",
    action="`ray logs raylet.out` of that node names the worker and its memory",
    # The counter appears with its first event.
    conditions=(
        Condition(
            "workers killed within 1 h:",
            servers(events("ray_memory_manager_worker_eviction_total"), "sum") > 0,
        ),
    ),
    style=WHOLE,
)


class RayNodeLost(WarningBlock):
    """A node left Ray's list, or one of its discovered ports does not answer, during a run.

    One alert per address, regardless of ports. A warning, like EngineGone.
    """

    for_: Span = hold(
        "2m",
        "Ray drops a node some seconds after its last heartbeat; its list may be updated slowly.",
        JUDGED,
    )


RAY_NODE_LOST = _alert(
    RayNodeLost,
    summary="Ray node lost during a run",
    action="`ray status`, then `raylet.out` of that node",
    # A head has three ports on Ray's list (node, autoscaler, dashboard) and is one node.
    conditions=gone(
        "a port of node, autoscaler or dashboard does not answer",
        ray_nodes('up{role="ray"}', "min"),
        ray_nodes(f"present_over_time(ray_node_mem_total[{EVENT_WINDOW}])"),
        ray_nodes("up"),
        ray_nodes(SILENT),
    ),
    about="ray_node",
    style=NOTHING,
)


class RayObjectStoreSpilling(WarningBlock):
    """Ray's object store does not fit into memory and spills objects to disk."""

    spilled: StorageSize = default(
        Size.parse("10GB"),
        "Bytes on the disk of one node. At 500 MB/s (Ray's example), 10GB take 20 s to write and 20 s to"
        " read in each step.",
        COMPUTED,
    )
    for_: Span = hold("5m", "One step that spills is not a fault.", JUDGED)


RAY_OBJECT_STORE_SPILLING = _alert(
    RayObjectStoreSpilling,
    summary="Ray object store spills to disk",
    action="raise `object_store_memory`, or keep fewer batches in flight; `ray memory` lists objects",
    conditions=(
        Condition(
            "objects on disk:", servers('ray_object_store_memory{Location="SPILLED"}') > Limit("spilled")
        ),
    ),
    style=BYTES,
    unit="B",
)


class RayDiskLow(WarningBlock):
    """The disk of a Ray node is nearly full. The disk that Ray monitors; does not need node_exporter."""

    used_ratio: scalars.Ratio = default(
        0.9,
        "Share in use. Beyond 0.95 Ray refuses to create objects (local_fs_capacity_threshold).",
        DOCUMENTED,
    )
    for_: Span = hold("5m", "Longer than the temporary files of a step exist.", JUDGED)


RAY_DISK_LOW = _alert(
    RayDiskLow,
    summary="Disk of a Ray node is nearly full",
    action="delete old sessions in /tmp/ray; at 95 % Ray refuses to create objects",
    conditions=(
        Condition(
            "disk in use:",
            servers("ray_node_disk_usage") / servers("ray_node_disk_usage + ray_node_disk_free")
            > Limit("used_ratio"),
        ),
    ),
    style=RATIO,
)

ALERTS = (RAY_WORKER_OOM, RAY_NODE_LOST, RAY_OBJECT_STORE_SPILLING, RAY_DISK_LOW)
