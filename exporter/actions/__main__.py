"""``python -m exporter.actions``: the circuit breaker. It acts on runs; without policies it does nothing."""

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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from exporter import logging_setup
from exporter.actions.audit import Audit, AuditError
from exporter.actions.breaker import Breaker
from exporter.actions.messages import Messages
from exporter.actions.pages import MOST_BODY, Site
from exporter.actions.policy import Limits, Rule
from exporter.actions.stack_client import StackClient
from exporter.actions.targets import Configured, Steps
from exporter.http.routes import HostCheck, Routes
from exporter.http.server import Server
from exporter.options import (
    CommandLine,
    log_cannot_listen,
    not_negative,
    number,
    start_again,
    stopped_by_signal,
    string,
    switch,
    texts,
)

logger = logging.getLogger("exporter.actions")

TICK_SECONDS = 1.0
SERVE_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the circuit breaker until SIGTERM or SIGINT. Returns the exit code."""
    settings = command_line(arguments)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    try:
        audit = Audit(options.state_dir)
    except AuditError as problem:
        logger.error("%s", problem)  # noqa: TRY400 - a user's mistake
        return 2
    breaker = _breaker(options, audit)
    pages = HostCheck(Routes(Site(breaker, options.password_file).routes()), {*options.hosts, options.listen})
    try:
        server = Server((options.listen, options.port), pages, MOST_BODY)
    except OSError as error:
        log_cannot_listen(options, error)
        return 2
    dry = "dry run: nothing is done" if options.dry_run else "not a dry run"
    logger.info(
        "http://%s:%s/ shows the actions; %d policies; %s",
        options.listen,
        options.port,
        len(options.rules),
        dry,
    )
    over = Event()
    ticks = Thread(target=_run, args=(breaker, over), name="ticks", daemon=True)
    ticks.start()
    while not stop.is_set():
        server.serve(SERVE_SECONDS)
        if settings.changed() and settings.renewed():
            break
    over.set()
    server.close()
    ticks.join(30)
    audit.close()
    start_again("exporter.actions", stop)
    return 0


def _breaker(options: argparse.Namespace, audit: Audit) -> Breaker:
    stack = StackClient(
        options.prometheus, options.alertmanager, options.exporter, options.password_file, options.targets
    )
    evidence = [sys.executable, "-m", "exporter.evidence"]
    settings = Path(options.config_file).with_name("evidence.json") if options.config_file else None
    if settings and settings.exists():
        evidence.append(f"--config.file={settings}")
    if options.config_yaml:
        evidence.append(f"--config-yaml={options.config_yaml}")
    out = options.evidence_dir or options.state_dir / "evidence"
    evidence += [f"--out={out}", "--path", *options.path, "--"]
    link = options.link or f"http://{options.listen}:{options.port}"
    return Breaker(
        options.rules,
        Limits(options.dry_run, options.veto, options.per_day, options.cooldown),
        audit=audit,
        stack=stack,
        perform=Steps(stack.target, evidence).perform,
        messages=Messages(link, options.texts, options.labels),
    )


def _run(breaker: Breaker, over: Event) -> None:
    while not over.wait(TICK_SECONDS):
        breaker.survive(breaker.tick)
    while breaker.busy:  # else it would be unknown whether the step was done
        time.sleep(0.1)


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process."""
    flags = CommandLine(
        "python -m exporter.actions",
        "Act on runs while their alerts fire, as the policies say: collect evidence, notify, stop.",
        arguments,
    )
    flags.add_address(9413)
    flags.add("state-dir", Path, Path("actions"), "folder of the audit log and of the kill switch")
    flags.add("link", string, None, "where people open this service's page")
    flags.add("prometheus", string, "http://127.0.0.1:9090", "URL of Prometheus")
    flags.add("alertmanager", string, "http://127.0.0.1:9093", "URL of Alertmanager")
    flags.add("exporter", string, "http://127.0.0.1:9410", "URL of the run exporter")
    flags.add("password-file", Path, None, "file with the password of the first two, and of the webhook")
    flags.add("dry-run", switch, default=True, text="log and announce, but do nothing")
    flags.add("veto", not_negative, 300.0, "seconds from the announcement of a step to the step")
    flags.add("per-day", number, 3, "most actions on one run within 24 hours")
    flags.add("cooldown", not_negative, 1800.0, "seconds between two actions on one run")
    flags.add("rules", partial(_list, _rule), (), "the policies, as JSON")
    flags.add("targets", partial(_list, _target), (), "how runs without a wrapper are reached, as JSON")
    flags.add("path", string, ("./runs",), "run folders from which evidence is collected", many=True)
    flags.add("config-yaml", Path, None, "the file config.yaml, for the archives")
    flags.add("evidence-dir", Path, None, "folder of archives; by default evidence in the state folder")
    flags.add("labels", texts, {}, "the external labels of Prometheus, as JSON")
    flags.add("texts", texts, {}, "translations of messages by English text, as JSON")
    return flags


def _list(check: Any, value: object) -> tuple[Any, ...]:
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        return tuple(check(**each) for each in found)
    except (ValueError, TypeError, KeyError, re.error) as problem:
        raise argparse.ArgumentTypeError(f"{value!r}: {problem}. Expected a list of tables.") from None


def _rule(runs: str, do: list[str], **others: Any) -> Rule:
    return Rule(runs=re.compile(runs, re.DOTALL), do=tuple(do), **others)


def _target(runs: str, pid_file: str) -> Configured:
    return Configured(re.compile(runs, re.DOTALL), Path(pid_file))


if __name__ == "__main__":
    process.run(main)
