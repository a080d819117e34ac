"""``python -m stepwatch evidence``: one archive about a run, to look at later or elsewhere."""

from __future__ import annotations

from pathlib import Path

from exporter import credentials
from exporter.evidence.collect import Sources, UnknownRunError, WriteError, collect
from exporter.runs.model.run import Options
from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.deploy.native.state import State
from stepwatch.render import exporters, generator
from stepwatch.render.layout import RESOURCES
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say

FOLDER = "evidence"
"""Of archives, in the state folder."""


def evidence(config: Path, run: str, out: Path | None, place: State, say: Say) -> int:
    """Collect evidence about a run, even if parts of the stack do not answer, and print the archive's path.

    ``out`` is the folder of archives; by default one in the state folder, ``place``.

    Raises:
        Refused: The run does not exist, or the archive cannot be written.
    """
    settings = load(config)
    where = exporters.evidence(settings, OnThisMachine(settings))
    password = http_client.password_of(settings.address("prometheus"))
    sources = Sources(
        place.log_folders(settings.runs.path, say),
        where["exporter"],
        where["prometheus"],
        where["alertmanager"],
        {"Authorization": credentials.authorization(password)} if password else {},
        Path(where["ray"]) if where["ray"] else None,
        Options(keys=settings.signals),
        generator.diagnosed(settings, RESOURCES, OnThisMachine),
        where["limits"],
        where["overrides"],
        config,
    )
    try:
        archive = collect(run, sources, out or place.folder / FOLDER)
    except (UnknownRunError, WriteError) as problem:
        raise Refused(str(problem)) from None
    say(str(archive))
    return 0
