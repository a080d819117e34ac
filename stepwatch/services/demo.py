"""What the stack needs to know of the demo: its runs, and how its alerts are ended."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime, timezone

from demo.limits import RUNS
from stepwatch.system import http_client

_PATIENCE = 60


def end_alerts(alertmanager: str, gpus: str) -> int:
    """Tell Alertmanager that the alerts of the demo are over; returns how many there were.

    Prometheus would say so only minutes later, if at all: it forgets them when it starts again.

    Args:
        alertmanager: Its base URL.
        gpus: The ``instance`` of the simulated GPUs.
    """
    alerts = json.loads(http_client.read(f"{alertmanager}/api/v2/alerts") or "[]")
    now = datetime.now(timezone.utc).isoformat()
    ended = [
        {**{key: alert[key] for key in ("labels", "annotations", "startsAt")}, "endsAt": now}
        for alert in alerts
        if alert["labels"].get("run", "").startswith(RUNS) or alert["labels"].get("instance") == gpus
    ]
    refusal = http_client.order(f"{alertmanager}/api/v2/alerts", ended) if ended else ""
    return 0 if refusal != "" else len(ended)


def wait_started(prometheus: str, after: float) -> bool:
    """Wait until Prometheus has seen that every run of the demo began anew.

    Args:
        prometheus: Its base URL.
        after: Unix seconds; what began before was the last time.
    """
    promql = f'min(rl_run_start_timestamp_seconds{{run=~"{RUNS}.+"}}) > {after:.3f}'
    return _wait(lambda: _found(prometheus, promql))


def wait_gone(prometheus: str) -> bool:
    """Wait until Prometheus has seen that there is no run of the demo any more."""
    promql = f'absent(rl_step{{run=~"{RUNS}.+"}})'
    return _wait(lambda: _found(prometheus, promql))


def wait_unscraped(prometheus: str, seconds: float) -> bool:
    """Wait until Prometheus has ended the series of the exporters of runs and GPUs, which were stopped.

    Stopped before, it would go on with their last samples, and with the demo's alerts, when it is started
    again within five minutes.
    """
    return _wait(lambda: _found(prometheus, 'absent(up{job=~"runs|gpu"} == 1)'), seconds)


def wait_ready(prometheus: str) -> bool:
    """Wait until Prometheus, started again, answers."""
    return _wait(lambda: http_client.read(f"{prometheus}/-/ready") is not None)


def _found(prometheus: str, promql: str) -> bool:
    """Whether a query has a result."""
    answer = http_client.read(f"{prometheus}/api/v1/query?query={urllib.parse.quote(promql)}")
    return bool(answer and json.loads(answer)["data"]["result"])


def _wait(condition: Callable[[], bool], seconds: float = _PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return False
