"""``python -m stepwatch evidence``: one archive about a run, to look at later or elsewhere."""

from __future__ import annotations

from pathlib import Path

from exporter import credentials
from exporter.evidence.collect import EvidenceError, Sources, collect
from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.deploy.native.state import State
from stepwatch.render import exporters
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say


def evidence(config: Path, run: str, out: Path | None, place: State, say: Say) -> int:
    """Collect evidence about a run, though parts of the stack are silent; print the path. Raises Refused."""
    settings = load(config)
    paths = place.log_folders(settings.runs.path, say)
    where = dict(exporters.evidence(settings, OnThisMachine(settings)))
    del where["password_file"]  # where this command finds it, the stack's own need not be
    password = http_client.password_of(settings.address("prometheus"))
    login = {"Authorization": credentials.authorization(password)} if password else {}
    sources = Sources(paths, **where, login=login, config=config)
    try:
        archive = collect(run, sources, out or place.folder / "evidence")
    except EvidenceError as problem:
        raise Refused(str(problem)) from None
    say(str(archive))
    return 0
