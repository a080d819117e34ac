"""``python -m stepwatch gpu-release``: Stepwatch releases the GPUs, so that one can be reset."""

from __future__ import annotations

from pathlib import Path

from exporter.gpu.contract import LONGEST_RELEASE_SECONDS, RELEASE_SECONDS
from stepwatch.config import load
from stepwatch.schema.errors import Refused
from stepwatch.schema.quantities import Duration
from stepwatch.system import http_client
from stepwatch.system.terminal import Say

USUAL = Duration.parse(f"{RELEASE_SECONDS}s")
LONGEST = Duration.parse(f"{LONGEST_RELEASE_SECONDS}s")

END_SECONDS = 15
"""A driver that hangs may hold the devices for a while."""


def gpu_release(config: Path, span: str, say: Say) -> int:
    """Have the GPU exporter of this stack close the devices for a while, or take them back for a span of 0.

    Args:
        config: The configuration file.
        span: For how long: a number of seconds, or a time such as `5m`.
        say: Gets each line.

    Returns:
        0: it has.

    Raises:
        Refused: `span` is no such time, the exporter does not answer, or the driver holds the devices.
    """
    settings, duration = load(config), _duration(span)
    exporter = f"http://{settings.address('gpu')}"
    seconds = duration.milliseconds // 1000
    answer = http_client.post(f"{exporter}/-/release?seconds={seconds}", timeout=END_SECONDS)
    if answer is None:
        raise Refused(http_client.unanswered("The GPU exporter", exporter))
    if not answer.done:
        raise Refused(answer.text)
    if seconds:
        say(f"Stepwatch has closed the GPUs for {duration}; no new alert reports them meanwhile.")
        say("Now, as root: `nvidia-smi -r -i N`. Who else has them open: `fuser -v /dev/nvidia*`.")
        say("Sooner back: `make gpu-release FOR=0`.")
    else:
        say("The GPUs are read again.")
    return 0


def _duration(span: str) -> Duration:
    try:
        duration = Duration.parse(f"{span}s" if span.isdecimal() else span)
    except ValueError as error:
        raise Refused(f"{span} {error}. Expected: a time such as 60s or 5m. Fix: write it so.") from error
    if duration > LONGEST:
        raise Refused(f"{span} is too long. Expected: at most {LONGEST}. Fix: ask again when it is over.")
    return duration
