"""Evidence from the stack about a run: its page, alerts, what moved first, rules, limits and silences."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from exporter.evidence.bounded import Item, document
from exporter.http.exposition import escape
from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import of_run
from exporter.runs.remote import web

ANSWER_SECONDS = 8.0
LARGEST_ANSWER = 4 * 1024 * 1024
HOUR = 3600.0
LONGEST_WINDOW = 24 * HOUR
FINEST_SECONDS = 15.0
MOST_POINTS = 500
BAND_STEPS, LEAST_BAND_SECONDS = 50, 60
"""As in the dashboard Diagnose: a signal is compared with its last 50 steps."""


@dataclass(frozen=True)
class Window:
    """The time that is asked about, in seconds since the epoch; and the seconds of the signals' bands."""

    start: float
    end: float
    band: float

    @property
    def interval(self) -> float:
        """Seconds between two points."""
        return max(FINEST_SECONDS, (self.end - self.start) / MOST_POINTS)


@dataclass(frozen=True)
class Api:
    """The JSON API of a server, by its URL, with the headers that sign in."""

    url: str
    login: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, path: str, form: Mapping[str, str] | None = None) -> Any:
        """Return what the server answers.

        Raises:
            PollError: There is none.
        """
        body = urlencode(form).encode() if form else None
        return json.loads(
            web.get(self.url + path, self.login, ANSWER_SECONDS, body, most=LARGEST_ANSWER).body
        )


def page(exporter: str, run: str) -> Iterator[Item]:
    """What the run exporter shows of the run, and what it serves of it."""
    address = f"{exporter}/api/v1/runs"
    runs = Api(exporter).get("/api/v1/runs")["runs"]
    mine = next((each for each in runs if each["run"] == run), None)
    if mine is None:
        yield Item("stack/run.json", address, missing="the run exporter does not list this run")
    else:
        yield Item("stack/run.json", address, document(mine))
        others = [{key: each[key] for key in ("run", "state", "severity", "step")} for each in runs]
        yield Item("stack/runs.json", address, document(others))
    metrics = web.get(f"{exporter}/metrics", {}, ANSWER_SECONDS, most=LARGEST_ANSWER).body.decode()
    label = f'run="{escape(run)}"'
    lines = [line for line in metrics.splitlines(keepends=True) if label in line]
    lines += [line for line in metrics.splitlines(keepends=True) if line.startswith("stepwatch_")]
    yield Item("stack/metrics.txt", f"{exporter}/metrics", "".join(lines).encode())


def window(prometheus: Api, run: str, last: float | None) -> Window:
    """The time around what happened to a run: an hour, or three bands of 50 steps, before its last step.

    Args:
        prometheus: Its API.
        run: The run's name.
        last: When its log was written last; ``None`` if that is unknown.
    """
    now = time.time()
    last = now if last is None else min(last, now)
    typical = f'max(last_over_time(rl_step_interval_typical_seconds{{run="{escape(run)}"}}[1d]))'
    found = prometheus.get("/api/v1/query", {"query": typical, "time": f"{min(now, last + HOUR):.3f}"})
    values = [float(each["value"][1]) for each in found["data"]["result"]]
    seconds = values[0] if values and math.isfinite(values[0]) else 0.0
    band = math.ceil(max(BAND_STEPS * seconds, LEAST_BAND_SECONDS))
    start = last - min(max(HOUR, 3 * band), LONGEST_WINDOW)
    return Window(start, min(now, last + LONGEST_WINDOW / 4), band)


def timeline(prometheus: Api, run: str, last: float | None) -> Iterator[Item]:
    """When each alert of the run was pending and fired, and which others fired meanwhile."""
    span = window(prometheus, run, last)
    mine = f'run="{escape(run)}"'
    # Each point looks back to the one before: an alert may be over within seconds.
    past = f"[{math.ceil(span.interval)}s]"
    states = f"max by (alertname, severity, alertstate) (max_over_time(ALERTS{{{mine}}}{past}))"
    fired = _range(prometheus, states, span)
    yield Item(
        "alerts/timeline.json",
        f"{prometheus.url}, from {_clock(span.start)} to {_clock(span.end)}",
        document([_spans(each, span) for each in fired]),
    )
    others = f'max_over_time(ALERTS{{alertstate="firing",run=""}}{past})'
    around = _range(prometheus, others, span)
    yield Item("alerts/around.json", prometheus.url, document([_spans(each, span) for each in around]))


def diagnosis(
    prometheus: Api, run: str, last: float | None, queries: Mapping[str, Mapping[str, str]]
) -> Iterator[Item]:
    """What the tables of the dashboard Diagnose show of the run; ``queries`` by table and column."""
    span = window(prometheus, run, last)
    for name, columns in queries.items():
        rows: dict[str, dict[str, Any]] = {}
        for column, promql in columns.items():
            form = {"query": filled(promql, run, span), "time": f"{span.end:.3f}"}
            for each in prometheus.get("/api/v1/query", form)["data"]["result"]:
                labels = each["metric"]
                key = json.dumps(labels, sort_keys=True)
                rows.setdefault(key, dict(labels))[column] = float(each["value"][1])
        table = sorted(
            rows.values(), key=lambda row: (row.get("step", math.inf), -row.get("deviations", 0.0))
        )
        for row in table:
            if "since" in row:
                row["since"] = _clock(row["since"] / 1000)
        yield Item(
            f"alerts/{name}.json",
            f"{prometheus.url}, table {name} of Diagnose, band of {span.band:.0f} s",
            document([row for row in table if "step" in row or "step" not in columns]),
        )
    if not queries:
        yield Item("alerts/what-moved-first.json", prometheus.url, missing="no queries are set: --diagnosis")


def filled(promql: str, run: str, span: Window) -> str:
    """PromQL of a dashboard with its variables replaced."""
    milliseconds = math.ceil(1000 * span.interval)
    values = {
        "${band}": f"{span.band:.0f}",
        "run=~`|${run:regex}`": f'run=~"|{escape(re.escape(run))}"',
        "cluster=~`|${cluster:regex}`": 'cluster=""',
        "$__interval_ms": str(milliseconds),
        "$__interval": f"{milliseconds}ms",
        "$__range": f"{span.end - span.start:.0f}s",
    }
    promql = of_run(promql, RunId(run))
    for variable, value in values.items():
        promql = promql.replace(variable, value)
    return promql


def rules(prometheus: Api) -> Iterator[Item]:
    """The rules of alerts as Prometheus evaluates them now."""
    found = prometheus.get("/api/v1/rules?type=alert")["data"]["groups"]
    kept = ("name", "query", "duration", "keepFiringFor", "labels", "state", "health", "lastError")
    plain = [{key: rule[key] for key in kept if rule.get(key)} for group in found for rule in group["rules"]]
    yield Item("stack/rules.json", f"{prometheus.url}/api/v1/rules", document(plain))


def notifications(alertmanager: Api, run: str) -> Iterator[Item]:
    """What Alertmanager has of the run now, and all silences."""
    matcher = quote(f'run="{escape(run)}"')
    found = alertmanager.get(f"/api/v2/alerts?filter={matcher}")
    yield Item("alerts/alertmanager.json", f"{alertmanager.url}/api/v2/alerts", document(found))
    address = f"{alertmanager.url}/api/v2/silences"
    lasting = [
        each
        for each in alertmanager.get("/api/v2/silences")
        if each.get("status", {}).get("state") != "expired"
    ]
    yield Item("alerts/silences.json", address, document(lasting))


def _range(prometheus: Api, promql: str, span: Window) -> list[Any]:
    points = (span.end - span.start) // span.interval
    start = span.end - points * span.interval  # so that the last point is at the end
    form = {"query": promql, "start": f"{start:.3f}", "end": f"{span.end:.3f}"}
    answer = prometheus.get("/api/v1/query_range", {**form, "step": f"{span.interval:.3f}"})
    return list(answer["data"]["result"])


def _spans(series: Mapping[str, Any], span: Window) -> dict[str, Any]:
    """The labels of a series, and from when to when it was there."""
    spans: list[list[float]] = []
    for at, _ in series["values"]:
        if spans and at - spans[-1][1] <= 1.5 * span.interval:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    labels = {key: value for key, value in series["metric"].items() if key != "__name__"}
    return {**labels, "spans": [[_clock(each) for each in pair] for pair in spans]}


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")


def settings(
    limits: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]], config: Path | None, run: str
) -> Iterator[Item]:
    """The limits in force, the overrides that fit the run, and config.yaml."""
    import re  # noqa: PLC0415  (of this alone)

    fitting = [each for each in overrides if re.fullmatch(str(each.get("runs", "")), run, re.DOTALL)]
    if limits:
        found = {"limits": limits, "overrides": fitting}
        yield Item("stack/limits.json", "config.yaml, as rendered", document(found))
    else:
        yield Item("stack/limits.json", "config.yaml", missing="no rendered settings are set")
    if config is None:
        yield Item("stack/config.yaml", "config.yaml", missing="its path is not set: --config-yaml")
    else:  # it may have been edited since it was rendered
        source = f"{config}, changed {_clock(config.stat().st_mtime)}"
        yield Item("stack/config.yaml", source, config.read_bytes())
