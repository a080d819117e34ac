"""Commands to parts of the running stack; each returns 0, or raises ``Refused``."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from exporter.bridge.actions import OFF
from exporter.gpu.backend import LONGEST_RELEASE_SECONDS
from exporter.runs.serve.endpoints import unknown
from stepwatch.config import Config, load
from stepwatch.deploy.native.state import State
from stepwatch.schema.errors import Refused
from stepwatch.schema.scalars import Duration
from stepwatch.services import health_report
from stepwatch.system import http_client
from stepwatch.system.terminal import Say, table

LONGEST_SILENCE = Duration.parse("365d")
"""For longer, `overrides` in config.yaml switches the alerts off."""
_LONGEST_RELEASE = Duration.parse(f"{LONGEST_RELEASE_SECONDS}s")
_RELEASE_ANSWER_SECONDS = 15  # A driver that hangs may hold the devices for a while
_IN_CONTAINER = "docker compose --profile bridge exec -T bridge"


def mark(config: Path, run: str, note: str | None, say: Say) -> int:
    """Re-baseline a run from its next step on, after an intended change of level."""
    settings = load(config)
    exporter = f"http://{settings.address('exporter')}"
    refused = "Nothing was marked. "
    try:
        _post("The run exporter", exporter, "/-/mark", {"run": run, "note": note}, refused=refused)
    except Refused:
        if nodes := (health_report.known_runs(settings.address("exporter")) or {}).get(run):
            where = " and ".join(sorted(nodes))
            raise Refused(f"{refused}{run} is read on {where}. Fix: `make mark RUN={run}` there.") from None
        raise
    say(f"Marked {run}: start, best, peak, noise and windows are re-baselined from its next step on.")
    say(
        f"Alerts that fire because of the old level end {settings.notify.keep_firing_for} later "
        "(notify.keep_firing_for)."
    )
    return 0


def silence(config: Path, run: str, span: str, note: str | None, say: Say) -> int:
    """Mute all alerts of a run in Alertmanager for a span such as `2h`; ``note`` says why. 0 ends that."""
    settings, duration = load(config), _duration("0s" if span == "0" else span, "30m, 2h or 1d")
    if duration > LONGEST_SILENCE:
        raise Refused(
            f"{span} is not a valid duration of a silence. Expected: at most {LONGEST_SILENCE}; 0 ends the "
            "silences of the run. Fix: choose one, for example 2h."
        )
    if not duration.milliseconds:
        return _end_silences(f"http://{settings.address('alertmanager')}", run, say)
    known = health_report.known_runs(settings.address("exporter"))
    if known is None:
        say(f"The run exporter does not answer, so the run name {run} was not checked.")
    elif run not in known:  # such a silence would mute nothing
        raise Refused(f"Nothing was silenced. {unknown(run, known)}")
    alertmanager = f"http://{settings.address('alertmanager')}"
    begin = datetime.now(timezone.utc)
    end = begin + timedelta(seconds=duration.seconds)
    wanted = {
        "matchers": [{"name": "run", "value": run, "isRegex": False, "isEqual": True}],
        "startsAt": begin.isoformat(),
        "endsAt": end.isoformat(),
        "createdBy": "stepwatch",
        "comment": note or "stepwatch silence",
    }
    refused = "Alertmanager refuses the silence. It says: "
    made = json.loads(_post("Alertmanager", alertmanager, "/api/v2/silences", wanted, refused=refused))
    say(
        f"{run} is silenced for {duration}, until {end.astimezone():%H:%M %Z, %d %b}: "
        "no notification is sent about it."
    )
    if not http_client.lacks_web_page(http_client.read(f"{alertmanager}/")):
        say(f"The silence: {settings.link('alertmanager')}/#/silences/{made['silenceID']}")
    say(f"To end it earlier: `make silence RUN={run} FOR=0`")
    return 0


def _end_silences(alertmanager: str, run: str, say: Say) -> int:
    """End the silences of a run alone."""
    only = [{"name": "run", "value": run, "isRegex": False, "isEqual": True}]
    found = json.loads(http_client.require("Alertmanager", alertmanager, "/api/v2/silences"))
    active = [each for each in found if each["status"]["state"] != "expired" and each["matchers"] == only]
    for each in active:
        problem = http_client.order(f"{alertmanager}/api/v2/silence/{each['id']}", method="DELETE")
        if problem != "":
            raise Refused(
                f"Alertmanager does not end the silence {each['id']}. It says: {problem or 'nothing'}"
            )
    count = "1 silence" if len(active) == 1 else f"{len(active)} silences"
    say(f"Ended: {count} of {run}." if active else f"No silence is about {run} alone.")
    return 0


def gpu_release(config: Path, span: str, say: Say) -> int:
    """Make the GPU exporter release the devices for seconds or a span such as `5m`; 0 ends the release."""
    settings = load(config)
    duration = _duration(f"{span}s" if span.isdecimal() else span, "60s or 5m")
    if duration > _LONGEST_RELEASE:
        raise Refused(
            f"{span} is too long. Expected: at most {_LONGEST_RELEASE}. Fix: release the GPUs again when the "
            "time is over."
        )
    seconds = duration.milliseconds // 1000
    path = f"/-/release?seconds={seconds}"
    _post("The GPU exporter", f"http://{settings.address('gpu')}", path, timeout=_RELEASE_ANSWER_SECONDS)
    if seconds:
        say(f"Stepwatch has released the GPUs for {duration}; meanwhile no new alert about them fires.")
        say(
            "Now, as root: `nvidia-smi -r -i N`. Other processes that have them open: `fuser -v "
            "/dev/nvidia*`."
        )
        say("To end the release: `make gpu-release FOR=0`.")
    else:
        say("The GPUs are read again.")
    return 0


def _post(
    part: str, url: str, path: str, value: Any = None, *, refused: str = "", timeout: float = 10
) -> str:
    """POST a command to a part and return the answer."""
    answer = http_client.post(f"{url}{path}", value, timeout=timeout)
    if answer is None:
        raise Refused(http_client.unanswered(part, url))
    if not answer.done:
        raise Refused(f"{refused}{answer.text}")
    return answer.text


def _duration(span: str, examples: str) -> Duration:
    try:
        return Duration.parse(span)
    except ValueError as error:
        raise Refused(
            f"{span} {error}. Expected: a time such as {examples}. Fix: write one of these."
        ) from error


def actions(config: Path, say: Say) -> int:
    """Show the actions on runs, the latest first. Raises ``Refused``."""
    settings = _with_policies(load(config))
    address = f"http://{settings.address('bridge')}"
    known = json.loads(http_client.require("The bridge", address, "/api/v1/actions"))
    if known["off"]:
        say("The kill switch is on: no action is taken. `make actions KILL=off` turns it off.")
    if known["dry_run"]:
        say("Dry run: no run is changed (actions.dry_run).")
    if not known["actions"]:
        say("No action yet.")
        return 0
    rows = [
        (
            each["id"],
            time.strftime("%d %b %H:%M", time.localtime(each["opened"])),
            each["run"],
            each["alert"],
            ", ".join(each["steps"]) + " (dry run)" * each["dry_run"],
            each["state"],
        )
        for each in known["actions"]
    ]
    for line in table([("id", "opened", "run", "alert", "steps", "state"), *rows]):
        say(line)
    return 0


def kill_switch(config: Path, place: State, on: bool, say: Say) -> int:  # noqa: FBT001  (on or off)
    """Turn the kill switch on, whether or not the bridge answers, or off. Raises ``Refused``."""
    _with_policies(load(config))
    file = place.data("bridge") / OFF
    try:
        if not file.parent.is_dir():
            raise Refused(
                "The kill switch is a file in a container. Fix: "
                f"{_IN_CONTAINER} {'touch' if on else 'rm -f'} /bridge/{OFF}"
            )
        if on:
            file.touch()
        else:
            file.unlink(missing_ok=True)
    except OSError as problem:
        raise Refused(
            f"{file}: {problem.strerror}. Expected: a folder that you may write to. Fix: work as its owner."
        ) from None
    say("The kill switch is on: no run is changed." if on else "The kill switch is off.")
    return 0


def _with_policies(config: Config) -> Config:
    if not config.actions.enabled:
        raise Refused(
            "actions.policies: none are set, so no action is taken. Expected: a policy. Fix: add one to "
            "config.yaml (docs/actions.md), then `make up`."
        )
    return config
