"""Which labels identify what alerts are about; ``cluster`` is none where one Prometheus monitors one."""

from __future__ import annotations

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


def written(labels: Labels, *more: str) -> str:
    """Return labels as PromQL has them behind ``by`` and ``on``."""
    return ", ".join((*labels, *more))
