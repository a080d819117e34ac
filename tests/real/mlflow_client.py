"""Logs to a tracking server through MLflow's own client, as lines of JSON on standard input say."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1])


def experiment(name: str) -> str:
    return client.create_experiment(name)


def run(experiment_id: str, name: str, started: int | None = None) -> str:
    return client.create_run(experiment_id, start_time=started, run_name=name).info.run_id


def log(run_id: str, metrics: list[tuple[str, float, int, int]]) -> None:
    """Each metric is a key, a value, a time in ms and a step."""
    for start in range(0, len(metrics), 1000):
        client.log_batch(run_id, [Metric(*metric) for metric in metrics[start : start + 1000]])


def status(run_id: str, text: str, ended: int | None = None) -> None:
    if text == "RUNNING":
        client.update_run(run_id, text)
    else:
        client.set_terminated(run_id, text, end_time=ended)


METHODS = {function.__name__: function for function in (experiment, run, log, status)}

for line in sys.stdin:
    method, *arguments = json.loads(line)
    with redirect_stdout(sys.stderr):  # the client chats
        result = METHODS[method](*arguments)
    print(json.dumps(result), flush=True)
