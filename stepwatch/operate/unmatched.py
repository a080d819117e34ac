"""Overrides whose pattern fits no run: a slip, or a run that is still to come."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.runs.logs.names import nearest
from stepwatch.config import Config
from stepwatch.config.overrides import DEMO
from stepwatch.schema.globs import fits
from stepwatch.services import runs
from stepwatch.system import http_client


def unmatched(config: Config) -> list[str]:
    """What is to be said of such overrides, a line each; nothing while runs are not all known.

    Those of the demo are in force when it does not run, too.
    """
    page = http_client.read(f"http://{config.address('exporter')}/metrics")
    known = runs.on(page or "")
    if not known or http_client.metric(page or "", "stepwatch_unread_bytes"):
        return []
    return list(_remarks(config, known))


def _remarks(config: Config, known: list[str]) -> Iterator[str]:
    for number, override in enumerate(config.overrides):
        pattern = override.runs
        if override not in DEMO and not any(fits(pattern, name) for name in known):
            yield (
                f"overrides[{number}].runs: {pattern} fits no run that there is. "
                f"The nearest: {', '.join(nearest(pattern, known))}."
            )
