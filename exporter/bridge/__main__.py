"""``python -m exporter.bridge``: Alertmanager's webhook to chat robots, and actions on runs."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from exporter import logging_setup
from exporter.bridge.actions import Actions, Limits, Policy
from exporter.bridge.announcements import REASONS, Announcements
from exporter.bridge.audit import Action, Audit, AuditError
from exporter.bridge.receivers import Pace, Receiver, samples
from exporter.bridge.robots import KINDS, NEVER, TAKEN, Robot
from exporter.bridge.stack import Stack
from exporter.bridge.webhook import Notification, PayloadError, parse, refusal
from exporter.bridge.words import Words
from exporter.http.exposition import Metric, Sample, own
from exporter.http.message import Answer, Later, Request, metrics_page, text
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.options import (
    CommandLine,
    Served,
    not_negative,
    number,
    setting,
    start_again,
    stopped_by_signal,
    string,
    switch,
)
from exporter.options import port as port_number
from exporter.options import texts as mapping

logger = logging.getLogger("exporter.bridge")

MOST_BODY = 16 << 20
"""Bytes of a request: Alertmanager sends all alerts of a group with all their texts."""
TICK_SECONDS = 0.5
REVIEW_SECONDS = 10.0
MOST_SHOWN = 200
_MARK_SECONDS = 7 * 86400.0
"""How long an action is a mark on dashboards."""
_STATUS = {TAKEN: "200 OK", NEVER: "400 Bad Request"}
_INDEX = "Stepwatch bridge. Robots: /api/v1/robots  Actions: /api/v1/actions  Metrics: /metrics\n"


class Bridge:
    """The pages."""

    def __init__(self, receivers: dict[str, Receiver], actions: Actions, password_file: Path | None) -> None:
        self.receivers, self.actions = receivers, actions
        self._password_file = password_file

    def routes(self) -> Routes:
        """Return the pages by path."""
        return Routes(
            {
                "/": {"GET": lambda _: text("200 OK", _INDEX)},
                "/alerts/*": {"POST": partial(self._webhook, self._deliver)},
                "/actions": {"POST": partial(self._webhook, self._act)},
                "/api/v1/robots": {"GET": lambda _: _page(self._robots())},
                "/api/v1/actions": {"GET": lambda _: _page(self._known())},
                "/metrics": {"GET": lambda _: metrics_page(self._metrics())},
                "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
            }
        )

    def _webhook(self, answer: Callable[[Request, Notification], Answer], request: Request) -> Answer | Later:
        if refused := refusal(request.headers, self._password_file):
            return refused
        try:
            notification = parse(request.body)
        except PayloadError as problem:
            words = f"This is not a notification: {problem}. Expected: Alertmanager's webhook, version 4.\n"
            return text("400 Bad Request", words)
        return partial(answer, request, notification)

    def _deliver(self, request: Request, notification: Notification) -> Answer:
        if (receiver := self.receivers.get(name := unquote(request.name))) is None:
            return text("404 Not Found", f"{name[:200]!r} is not a receiver of the bridge. Fix: `make up`.\n")
        outcome = receiver.deliver(notification)
        said = f"{outcome.reason}: {outcome.said}" if outcome.reason else outcome.said
        return text(_STATUS.get(outcome.status, "503 Service Unavailable"), f"{said}\n")

    def _act(self, _: Request, notification: Notification) -> Answer:
        try:
            answers = [self.actions.arrive(alert) for alert in notification.alerts]
        except OSError as problem:
            words = f"The audit log cannot be written: {problem.strerror}. No action is taken until then.\n"
            logger.error(words.strip())  # noqa: TRY400 - a full disk
            return text("503 Service Unavailable", words)
        status, words = max(answers)
        return text(_STATUS.get(status, "503 Service Unavailable"), f"{words}\n")

    def _robots(self) -> list[dict[str, Any]]:
        return [
            {
                "receiver": name,
                "kind": receiver.robot.kind,
                "taken_total": sum(count for of, count in receiver.counts.items() if not of[1]),
                "not_taken_total": sum(count for of, count in receiver.counts.items() if of[1]),
                "waiting_seconds": receiver.oldest(),
                "reason": receiver.last[0].reason if receiver.last else "",
                "said": receiver.last[0].said if receiver.last else "",
                "at": receiver.last[1] if receiver.last else None,
            }
            for name, receiver in self.receivers.items()
        ]

    def _known(self) -> dict[str, Any]:
        same = (
            "id",
            "run",
            "alert",
            "severity",
            "attempt",
            "dry_run",
            "opened",
            "closed",
            "outcome",
            "results",
        )
        actions = [
            {
                **{name: getattr(action, name) for name in same},
                "steps": list(action.do),
                "state": _state(action, self.actions.limits.veto),
            }
            for action in self._latest()
        ]
        return {"dry_run": self.actions.limits.dry_run, "off": self.actions.off, "actions": actions}

    def _latest(self) -> list[Action]:
        actions = list(self.actions.audit.actions.values())
        return sorted(actions, key=lambda action: action.opened, reverse=True)[:MOST_SHOWN]

    def _metrics(self) -> Iterator[Metric]:
        yield from samples(self.receivers)
        marks: list[Sample] = []
        for each in self._latest():
            if each.closed is not None and time.time() - each.closed < _MARK_SECONDS:
                dry = " (dry run)" * each.dry_run
                labels = {
                    "run": each.run,
                    "action": each.id,
                    "alert": each.alert,
                    "steps": ", ".join(each.do) + dry,
                }
                marks.append(({**labels, "outcome": each.outcome}, each.closed))
        yield own("action_timestamp_seconds", "When an action on a run was closed.", marks)
        yield own("actions_dry_run", "1 in a dry run.", self.actions.limits.dry_run)
        yield own("actions_off", "1 while the kill switch is on.", self.actions.off)


def _page(document: Any) -> Answer:
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Answer("200 OK", "application/json", body + b"\n")


def _clock(seconds: float) -> str:
    return time.strftime("%d %b %H:%M:%S", time.localtime(seconds))


def _state(action: Action, veto: float) -> str:
    if action.outcome:
        why = str(REASONS[action.reason]) if action.reason else ""
        outcome = "not done, dry run" if action.dry_run and action.outcome == "done" else action.outcome
        return f"{outcome}{f': {why}' if why else ''}, {_clock(action.closed or 0.0)}"
    if action.doing:
        return f"doing {action.doing}"
    if action.announced is not None and action.stops:
        return f"stop at {_clock(action.announced + veto)}, unless the alert is silenced"
    return "open"


def _list(check: Any, value: object) -> tuple[Any, ...]:
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        return tuple(check(**each) for each in found)
    except (ValueError, TypeError, KeyError, re.error) as problem:
        raise argparse.ArgumentTypeError(f"{value!r}: {problem}. Expected a list of mappings.") from None


def _robot(
    name: str, kind: str, url_file: str, secret_file: str | None = None, keyword: str = ""
) -> tuple[str, Robot]:
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind}")
    return name, Robot(kind, Path(url_file), Path(secret_file) if secret_file else None, keyword or "")


def _policy(runs: str, do: list[str], **others: Any) -> Policy:
    return Policy(runs=re.compile(runs, re.DOTALL), do=tuple(do), **others)


@dataclass(frozen=True)
class Settings(Served):
    """The settings of the bridge, as flags and file have them."""

    port: int = setting(port_number, 9414, "port to serve on")
    state_dir: Path = setting(Path, Path("bridge"), "folder of the audit log and of the kill switch")
    robots: tuple[tuple[str, Robot], ...] = setting(partial(_list, _robot), (), "the receivers, as JSON")
    policies: tuple[Policy, ...] = setting(partial(_list, _policy), (), "the policies of actions, as JSON")
    dry_run: bool = setting(switch, default=True, text="log and announce actions, but do nothing")
    veto: float = setting(not_negative, 300.0, "seconds from the announcement of a stop to the stop")
    per_day: int = setting(number, 3, "most stops of one run within 24 hours")
    prometheus: str = setting(string, "http://127.0.0.1:9090", "URL of Prometheus")
    alertmanager: str = setting(string, "http://127.0.0.1:9093", "URL of Alertmanager")
    exporter: str = setting(string, "http://127.0.0.1:9410", "URL of the run exporter")
    password_file: Path | None = setting(
        Path, None, "file with the password of the first two, and of the webhook"
    )
    exporter_link: str = setting(string, "http://127.0.0.1:9410", "public URL of the run exporter")
    alertmanager_link: str = setting(string, "http://127.0.0.1:9093", "public URL of Alertmanager")
    grafana_link: str = setting(string, "", "public URL of Grafana, if any")
    waits: Mapping[str, Any] = setting(
        mapping, {}, "seconds between the onset of each alert and its start, as JSON"
    )
    path: Sequence[str] = setting(
        string, ("./runs",), "run folders from which evidence is collected", many=True
    )
    config_yaml: Path | None = setting(Path, None, "the file config.yaml, for the archives")
    evidence_dir: Path | None = setting(
        Path, None, "folder of archives; by default evidence in the state folder"
    )
    labels: Mapping[str, Any] = setting(mapping, {}, "the external labels of Prometheus, as JSON")
    texts: Mapping[str, Any] = setting(mapping, {}, "translations of messages by English text, as JSON")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    settings = command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    try:
        audit = Audit(options.state_dir)
    except AuditError as problem:
        logger.error("%s", problem)  # noqa: TRY400 - a user's mistake
        return 2
    bridge = _bridge(options, audit)
    try:
        server = Server(
            (options.listen, options.port),
            HostCheck(bridge.routes(), {*options.hosts, options.listen}),
            MOST_BODY,
        )
    except OSError as error:
        options.cannot_listen(error)
        return 2
    names = ", ".join(f"{name} ({each.robot.kind})" for name, each in bridge.receivers.items())
    dry = "dry run" if options.dry_run else "not a dry run"
    logger.info("robots: %s; %d policies of actions, %s", names or "none", len(options.policies), dry)
    server.start()
    reviewed = time.monotonic()
    while not stop.wait(TICK_SECONDS):
        if time.monotonic() - reviewed > REVIEW_SECONDS:
            bridge.actions.review()  # those whose alerts no longer come
            reviewed = time.monotonic()
        if settings.changed() and settings.renewed():
            break
    server.stop(finish=True)  # else it would be unknown whether what is under way was done
    audit.close()
    start_again("exporter.bridge", stop)
    return 0


def _bridge(options: Settings, audit: Audit) -> Bridge:
    words = Words(
        options.exporter_link,
        options.alertmanager_link,
        options.grafana_link,
        texts=options.texts,
        waits=options.waits,
    )
    paces: dict[str, Pace] = {}
    receivers = {name: Receiver(name, robot, words, paces) for name, robot in options.robots}
    evidence = [sys.executable, "-m", "exporter.evidence"]
    settings = Path(options.config_file).with_name("evidence.json") if options.config_file else None
    if settings and settings.exists():
        evidence.append(f"--config.file={settings}")
    if options.config_yaml:
        evidence.append(f"--config-yaml={options.config_yaml}")
    out = options.evidence_dir or options.state_dir / "evidence"
    actions = Actions(
        options.policies,
        Limits(options.dry_run, options.veto, options.per_day),
        audit=audit,
        stack=Stack(options.prometheus, options.alertmanager, options.exporter, options.password_file),
        announcements=Announcements(options.alertmanager_link, options.texts, options.labels),
        evidence=[*evidence, f"--out={out}", "--path", *options.path, "--"],
    )
    return Bridge(receivers, actions, options.password_file)


def command_line(arguments: Sequence[str] | None = None) -> CommandLine[Settings]:
    """Return the options, of these flags or of those of this process."""
    text = (
        "Bring Alertmanager's notifications to Feishu, DingTalk, WeCom and, by Apprise, other services; act "
        "on runs while their alerts fire, as the policies say."
    )
    return CommandLine("python -m exporter.bridge", text, Settings, arguments)


if __name__ == "__main__":
    process.run(main)
