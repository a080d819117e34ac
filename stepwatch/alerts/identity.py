"""Which labels identify what alerts are about; ``cluster`` is none where one Prometheus monitors one."""

from __future__ import annotations

from collections.abc import Mapping

Labels = tuple[str, ...]

ALL: Labels = ("cluster",)
RUN: Labels = (*ALL, "run")
HOST: Labels = (*ALL, "instance")
GPU: Labels = (*HOST, "gpu")
DISK: Labels = (*HOST, "mountpoint")
MOUNT: Labels = (*HOST, "mount")
RECEIVER: Labels = (*HOST, "integration", "receiver_name")
SERVER: Labels = (*ALL, "job", "instance")
NODE: Labels = (*ALL, "node")
PORT: Labels = (*HOST, "device", "port")
RAY_NODE: Labels = (*ALL, "job", "node")
SOURCE: Labels = (*ALL, "name")
REMOTE: Labels = (*HOST, "url")

SUBJECTS: Mapping[str, Labels] = {
    "run": RUN,
    "host": HOST,
    "gpu": (*GPU, "uuid"),
    "disk": DISK,
    "mount": MOUNT,
    "receiver": RECEIVER,
    "server": SERVER,
    "node": NODE,
    "port": PORT,
    "source": SOURCE,
    "remote": REMOTE,
}
"""The labels of one value for each of these, in the table of alerts: ``by_gpu(gpu_up)``."""


REAL_DISKS = (
    'fstype!~"tmpfs|ramfs|devtmpfs|overlay|squashfs|erofs|iso9660|udf|fuse.lxcfs",'
    'mountpoint!~"/boot(/.*)?|/run/.*|/snap/.*"'
)
"""Matchers for file systems that may hold checkpoints: no memory, image, container layer or boot ones."""


def written(labels: Labels, *more: str) -> str:
    """Return labels as PromQL has them behind ``by`` and ``on``."""
    return ", ".join((*labels, *more))
