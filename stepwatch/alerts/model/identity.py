"""Which labels identify what alerts are about, in rules, inhibition, silences and links alike.

The label ``cluster`` is empty if one Prometheus monitors one cluster, and then part of no label set. Two
machines with the same name in two clusters are never treated as one.
"""

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
