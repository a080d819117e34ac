"""``python -m exporter.evidence RUN``: prints the path of the archive."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter import credentials, process
from exporter.evidence.collect import EvidenceError, Sources, collect
from exporter.options import CommandLine, Options, setting, string, texts
from exporter.runs.cli import address
from exporter.runs.cli import signals as keys
from exporter.runs.signals.key import Keys
from exporter.secret_shapes import masked


@dataclass(frozen=True)
class Settings(Options):
    """What is collected, where, and about which run."""

    run: str = setting(string, None, "its name", positional=True)
    out: Path = setting(Path, Path("./evidence"), "folder of the archives")
    path: Sequence[str] = setting(string, ("./runs",), "run folders, log files or globs", many=True)
    exporter: str | None = setting(address, None, "URL of the run exporter")
    prometheus: str | None = setting(address, None, "URL of Prometheus")
    alertmanager: str | None = setting(address, None, "URL of Alertmanager")
    password_file: Path | None = setting(
        Path, None, "file with the password of the user internal of these two"
    )
    signals: Keys = setting(keys, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    limits: Mapping[str, Any] = setting(texts, {}, "the limits in force and the overrides, as JSON")
    config_yaml: Path | None = setting(Path, None, "the file that the settings were rendered from")


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, and print the archive's path. Returns 0, or 1 with the reason on standard error."""
    about = "Collect evidence about a run in one archive."
    options = CommandLine("python -m exporter.evidence", about, Settings, arguments).options()
    try:
        login = credentials.login(options.password_file)
    except OSError:  # their items name what they answer then
        login = {}
    where = options.path, options.exporter, options.prometheus, options.alertmanager
    sources = Sources(*where, options.signals, options.limits, login, options.config_yaml)
    try:
        archive = collect(options.run, sources, options.out)
    except EvidenceError as problem:
        sys.stderr.write(f"{masked(str(problem))}\n")
        return 1
    sys.stdout.write(f"{archive}\n")
    return 0


if __name__ == "__main__":
    process.run(main)
