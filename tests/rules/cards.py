"""GPUs and their series, as the cases of the rules about them name them."""

from __future__ import annotations

from tests.rules.series import selector
from tests.rules.stack import Labels

TARGET = {"job": "gpu", "instance": "a:9411"}
CARD = {"gpu": "3", "uuid": "GPU-3"}
HERE = {**TARGET, **CARD}
NEIGHBOUR = {**TARGET, "gpu": "4", "uuid": "GPU-4"}
OTHER_BOX = {"job": "gpu", "instance": "b:9411", **CARD}
TWICE = {**HERE, "job": "mine"}
"""The same GPU, read by a second job."""

TARGET_UP = selector("up", **TARGET, role="gpu")
TWICE_UP = selector("up", job="mine", instance="a:9411", role="gpu")


def alert(series: Labels, **more: str) -> Labels:
    """The labels that distinguish the alert about a GPU from others of its name."""
    return {name: series[name] for name in ("instance", "gpu", "uuid")} | more


THIS = alert(HERE)


def up(reason: str, labels: Labels = HERE) -> str:
    return selector("gpu_up", **labels, reason=reason)


USED = selector("gpu_memory_used_bytes", **HERE)
TOTAL = selector("gpu_memory_total_bytes", **HERE)
