"""``python -m stepwatch mark``: the level of a run was changed on purpose."""

from __future__ import annotations

from pathlib import Path

from stepwatch.config import load
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say


def mark(config: Path, run: str, note: str | None, say: Say) -> int:
    """Have the run exporter measure a run anew from its next step on.

    Returns:
        0: it will.

    Raises:
        Refused: There is no such run, the note cannot be shown, or the exporter does not answer.
    """
    settings = load(config)
    exporter, keep = f"http://{settings.address('exporter')}", settings.notify.keep_firing_for
    answer = http_client.order(f"{exporter}/-/mark", {"run": run, "note": note})
    if answer is None:
        raise Refused(http_client.unanswered("The run exporter", exporter))
    if answer:
        raise Refused(f"Nothing was marked. {answer}")
    say(f"Marked {run}: from its next step on, start, best, peak, noise and windows begin anew.")
    say(f"What fires by the old level ends {keep} later (notify.keep_firing_for).")
    return 0
