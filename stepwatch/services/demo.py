"""The demo from the stack's side: its runs, and how to end its alerts."""

from __future__ import annotations

import json
import time
import urllib.parse
from datetime import datetime, timezone

from demo import RUNS
from stepwatch.system import http_client

_PATIENCE = 60


def end_alerts(alertmanager: str, gpus: str) -> int:
    """Resolve the alerts of the demo in Alertmanager; returns how many there were.

    Prometheus would do so only minutes later, if at all: it forgets them when it restarts.

    ``alertmanager`` is its base URL, ``gpus`` the ``instance`` of the simulated GPUs.
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
    """Wait until Prometheus has seen that every run of the demo restarted after this Unix time."""
    return _wait(
        prometheus, f'min(rl_run_start_timestamp_seconds{{run=~"{RUNS}.+"}}) > {after:.3f}', _PATIENCE
    )


def wait_gone(prometheus: str) -> bool:
    """Wait until Prometheus has no run of the demo any more."""
    return _wait(prometheus, f'absent(rl_step{{run=~"{RUNS}.+"}})', _PATIENCE)


def wait_unscraped(prometheus: str, seconds: float) -> bool:
    """Wait until Prometheus has ended the series of the exporters of runs and GPUs, which were stopped.

    Stopped before, it would go on with their last samples, and with the demo's alerts, when it is started
    again within five minutes.
    """
    return _wait(prometheus, 'absent(up{job=~"runs|gpu"} == 1)', seconds)


def wait_ready(prometheus: str) -> bool:
    """Wait until Prometheus, started again, answers queries."""
    return _wait(prometheus, "vector(1)", _PATIENCE)


def _wait(prometheus: str, promql: str, seconds: float) -> bool:
    """Wait until a query has a result, no longer than these seconds."""
    deadline = time.monotonic() + seconds
    url = f"{prometheus}/api/v1/query?query={urllib.parse.quote(promql)}"
    while time.monotonic() < deadline:
        if (answer := http_client.read(url)) and json.loads(answer)["data"]["result"]:
            return True
        time.sleep(0.5)
    return False
