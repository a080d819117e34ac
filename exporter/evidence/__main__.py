"""``python -m exporter.evidence RUN``: prints the path of the archive."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from exporter import credentials, process
from exporter.evidence.collect import Sources, UnknownRunError, WriteError, collect
from exporter.options import CommandLine, string
from exporter.runs.cli import address, signals
from exporter.runs.model.run import Options
from exporter.secret_shapes import masked

DIAGNOSIS = "diagnosis.json"
"""The queries of the dashboard Diagnose; it lies beside the settings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, and print the archive's path. Returns 0, or 1 with the reason on standard error."""
    options = command_line(arguments).options()
    settings = options.config_file
    try:
        login = credentials.login(options.password_file)
    except OSError:  # neither of the two says anything: their items name that
        login = {}
    beside = Path(settings).parent / DIAGNOSIS if settings else None
    sources = Sources(
        tuple(options.path),
        exporter=options.exporter or "",
        prometheus=options.prometheus or "",
        alertmanager=options.alertmanager or "",
        login=login,
        ray=options.ray,
        options=Options(keys=options.signals),
        queries=queries(options.diagnosis or beside),
        limits=options.limits,
        overrides=options.overrides,
        config=options.config_yaml,
    )
    try:
        archive = collect(options.run, sources, options.out)
    except (UnknownRunError, WriteError) as problem:
        sys.stderr.write(f"{masked(str(problem))}\n")
        return 1
    print(archive)
    return 0


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process."""
    flags = CommandLine(
        "python -m exporter.evidence", "Collect evidence about a run in one archive.", arguments
    )
    flags.add_positional("run", "its name")
    flags.add("out", Path, Path("./evidence"), "folder of the archives")
    flags.add("path", string, ("./runs",), "run folders, log files or globs", many=True)
    flags.add("exporter", address, None, "URL of the run exporter")
    flags.add("prometheus", address, None, "URL of Prometheus")
    flags.add("alertmanager", address, None, "URL of Alertmanager")
    flags.add("password-file", Path, None, "file with the password of the user internal of these two")
    flags.add("ray", Path, None, "Ray's folder, such as /tmp/ray")
    flags.add("signals", signals, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    flags.add("limits", partial(_json, dict, "a mapping"), {}, "the limits in force, as JSON")
    flags.add("overrides", partial(_json, list, "a list"), (), "limits that some runs have, as JSON")
    flags.add("config-yaml", Path, None, "the file that the settings were rendered from")
    flags.add(
        "diagnosis", Path, None, f"queries of what moved first; by default {DIAGNOSIS} beside the settings"
    )
    return flags


def queries(file: Path | None) -> Mapping[str, Mapping[str, str]]:
    """The queries by panel and column; none without the file."""
    if file is None:
        return {}
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {table: dict(columns) for table, columns in found["tables"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _json(kind: type, expected: str, value: object) -> Any:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, kind):
        raise ArgumentTypeError(f"{value!r} is not {expected}. Expected JSON.")
    return found


if __name__ == "__main__":
    process.run(main)
