"""Logs by rl-insight's own client in the ways verl 0.9 has, as lines of JSON on standard input say.

``python rl_insight_client.py CLUSTER PORT``: the address of a Ray cluster, and of the page to serve.
"""

from __future__ import annotations

import json
import os
import sys

import ray
import rl_insight

CLUSTER, PORT = sys.argv[1], int(sys.argv[2])


def begin(project: str, experiment: str) -> None:
    """As verl does when it makes its logger."""
    ray.init(address=CLUSTER)
    config = {"prometheus": {"metrics_report_port": PORT}}
    rl_insight.init(project=project, experiment_name=experiment, config=config)


def log(data: dict[str, float]) -> None:
    """As verl does at each step: a gauge for each scalar, in the order of its dictionary."""
    for key, value in data.items():
        rl_insight.metric_gauge(key.replace("/", "_"), float(value))


def servers(addresses: list[str], job: str | None, labels: list[dict[str, object]] | None) -> None:
    """As verl does when its rollout servers or its queue are there."""
    rl_insight.update_prometheus_config(addresses, job, labels)


METHODS = {function.__name__: function for function in (begin, log, servers)}

# Ray writes to standard output whenever it likes.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

for line in sys.stdin:
    method, *arguments = json.loads(line)
    print(json.dumps(METHODS[method](*arguments)), file=answers, flush=True)
