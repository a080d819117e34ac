"""``python -m stepwatch silence``: all alerts of one run are muted for a while."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from exporter.runs.serve.endpoints import unknown
from stepwatch.config import Config, load
from stepwatch.schema.errors import Refused
from stepwatch.schema.quantities import Duration
from stepwatch.services import runs
from stepwatch.system import http_client
from stepwatch.system.terminal import Say

LONGEST = Duration.parse("365d")
"""Anyone who wants more wants the alert off for that run, which `overrides` is for."""


def silence(config: Path, run: str, span: str, note: str | None, say: Say) -> int:
    """Mute all alerts of a run in the running Alertmanager.

    Args:
        config: The configuration file.
        run: The run's name, exactly.
        span: For how long, such as `2h`.
        note: Why; shown beside the silence.
        say: Gets each line.

    Returns:
        0: they are muted.

    Raises:
        Refused: There is no such run, `span` is no such time, or Alertmanager does not answer or refuses.
    """
    settings, duration = load(config), _duration(span)
    _require(settings, run, say)
    end = datetime.now(timezone.utc) + timedelta(seconds=duration.seconds)
    made = _make(settings, run, end, note)
    address = settings.address("alertmanager")
    say(
        f"{run} is silenced for {duration}, until {end.astimezone():%H:%M %Z, %d %b}: "
        "no notification is sent about it."
    )
    if not http_client.lacks_web_page(http_client.read(f"http://{address}/")):
        say(f"The silence: {settings.link('alertmanager')}/#/silences/{made}")
    say(f"To end it: curl -X DELETE http://{address}/api/v2/silence/{made}")
    return 0


def _duration(span: str) -> Duration:
    try:
        duration = Duration.parse(span)
    except ValueError as error:
        raise Refused(f"{span} {error}. Expected: a time such as 30m, 2h or 1d. Fix: write it so.") from error
    if not duration.milliseconds or duration > LONGEST:
        raise Refused(f"{span} is no time for a silence. Expected: more than nothing, at most {LONGEST}.")
    return duration


def _require(config: Config, run: str, say: Say) -> None:
    """A silence for a name that is none would keep nothing back, and no one would know."""
    known = runs.known(config.address("exporter"))
    if known is None:
        say(f"The run exporter does not answer, so it is not known whether there is a run named {run}.")
    elif run not in known:
        raise Refused(f"Nothing was silenced. {unknown(run, known)}")


def _make(config: Config, run: str, end: datetime, note: str | None) -> str:
    """Make the silence; returns its id."""
    alertmanager = f"http://{config.address('alertmanager')}"
    wanted = {
        "matchers": [{"name": "run", "value": run, "isRegex": False, "isEqual": True}],
        "startsAt": datetime.now(timezone.utc).isoformat(),
        "endsAt": end.isoformat(),
        "createdBy": "stepwatch",
        "comment": note or "stepwatch silence",
    }
    answer = http_client.post(f"{alertmanager}/api/v2/silences", wanted)
    if answer is None:
        raise Refused(http_client.unanswered("Alertmanager", alertmanager))
    if not answer.done:
        raise Refused(f"Alertmanager refuses the silence. It says: {answer.text}")
    return str(json.loads(answer.text)["silenceID"])
