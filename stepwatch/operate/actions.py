"""``python -m stepwatch actions``: actions of the circuit breaker, vetoes, and the kill switch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from exporter.actions.breaker import OFF
from exporter.actions.targets import ANSWER_SECONDS
from exporter.runs.files import launch
from stepwatch.config import Config, load
from stepwatch.deploy.native.state import State
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say, table

_HEADINGS = ("id", "opened", "run", "alert", "steps", "state")
_IN_CONTAINER = "docker compose --profile actions exec actions rm -f /actions/off"


def show(config: Path, say: Say) -> int:
    """Show the actions, the latest first.

    Raises:
        Refused: There is no circuit breaker, or it does not answer.
    """
    url = _url(load(config))
    page = http_client.read(f"{url}/api/v1/actions")
    if page is None:
        raise Refused(http_client.unanswered("The circuit breaker", url))
    known = json.loads(page)
    if known["off"]:
        say("The kill switch is on: no action is taken. `make actions KILL=off` turns it off.")
    if known["dry_run"]:
        say("Dry run: no run is changed (actions.dry_run).")
    # Fewer than fire: each causes one action, and one that fired before this service began causes none.
    say(f"Firing alerts that may still cause an action: {known['watched']}.")
    if not known["actions"]:
        say("No action yet.")
        return 0
    for line in table([_HEADINGS, *map(_row, known["actions"])]):
        say(line)
    return 0


def veto(config: Path, action: str, say: Say) -> int:
    """Veto an open action.

    Raises:
        Refused: It is not open, or the circuit breaker does not answer.
    """
    url = _url(load(config))
    answer = http_client.order(f"{url}/veto/{action}")
    if answer is None:
        raise Refused(http_client.unanswered("The circuit breaker", url))
    if answer:
        raise Refused(f"Action {action}: {answer}")
    say(f"Vetoed {action}: the run continues, and this alert causes no other action on this attempt.")
    return 0


def kill_switch(config: Path, place: State, on: bool, say: Say) -> int:  # noqa: FBT001  (on or off)
    """Turn the kill switch on, whether or not the circuit breaker answers, or off.

    Raises:
        Refused: It cannot be turned.
    """
    url, file = _url(load(config)), place.data("actions") / OFF
    native = file.parent.is_dir()
    try:
        if on and native:
            file.touch()
        elif native:
            file.unlink(missing_ok=True)
    except OSError as problem:
        raise Refused(
            f"{file}: {problem.strerror}. Expected: a folder that you may write to. Fix: work as its owner."
        ) from None
    if not on and not native:
        raise Refused(f"The kill switch is in a container. Fix: {_IN_CONTAINER}")
    if on and not native and (answer := http_client.order(f"{url}/off")) != "":
        raise Refused(answer or http_client.unanswered("The circuit breaker", url))
    say("The kill switch is on: no run is changed." if on else "The kill switch is off.")
    return 0


def resume(config: Path, run: str, say: Say) -> int:
    """Continue a paused run, by its wrapper.

    Raises:
        Refused: It is not paused, or its wrapper does not answer.
    """
    exporter = f"http://{load(config).address('exporter')}"
    page = http_client.read(f"{exporter}/api/v1/runs")
    if page is None:
        raise Refused(http_client.unanswered("The run exporter", exporter))
    logs = {each["run"]: each["log"] for each in json.loads(page)["runs"]}
    log = Path(logs.get(run) or "")
    known = launch.read(log) if logs.get(run) else None
    if known is None or known.paused is None:
        raise Refused(f"{run} is not paused. Expected: a paused run. Fix: `make status` lists the runs.")
    request = launch.Request(f"continue-{uuid4().hex[:12]}", "continue", known.attempt, "a person")
    try:
        launch.ask(log, request)
    except OSError as problem:
        raise Refused(
            f"{log.parent}: {problem.strerror}. Expected: a folder that you may write to. "
            "Fix: work as its owner."
        ) from None
    until = time.monotonic() + ANSWER_SECONDS
    while (answer := launch.answers(log).get(request.id)) is None and time.monotonic() < until:
        time.sleep(0.1)
    if answer is None or not answer.done:
        reason = answer.reason if answer else "its wrapper does not answer"
        raise Refused(f"{run} cannot continue: {reason}. Fix: send SIGTERM to its wrapper, which ends it.")
    say(f"{run} continues.")
    return 0


def _url(config: Config) -> str:
    if not config.actions.enabled:
        raise Refused(
            "actions.policies: none are set, so there is no circuit breaker. Expected: a policy. Fix: add "
            "one to config.yaml (docs/actions.md), then `make up`."
        )
    return f"http://{config.address('actions')}"


def _row(action: dict[str, Any]) -> tuple[str, ...]:
    opened = time.strftime("%d %b %H:%M", time.localtime(action["opened"]))
    steps = ", ".join(action["steps"]) + " (dry run)" * action["dry_run"]
    return action["id"], opened, action["run"], action["alert"], steps, action["state"]
