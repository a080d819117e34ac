"""``python -m exporter.evidence RUN``: prints the path of the archive."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from exporter import credentials, process
from exporter.evidence.collect import EvidenceError, Sources, collect
from exporter.options import CommandLine, string, texts
from exporter.runs.cli import address, signals
from exporter.secret_shapes import masked


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, and print the archive's path. Returns 0, or 1 with the reason on standard error."""
    about = "Collect evidence about a run in one archive."
    flags = CommandLine("python -m exporter.evidence", about, arguments)
    flags.add_positional("run", "its name")
    flags.add("out", Path, Path("./evidence"), "folder of the archives")
    flags.add("path", string, ("./runs",), "run folders, log files or globs", many=True)
    flags.add("exporter", address, None, "URL of the run exporter")
    flags.add("prometheus", address, None, "URL of Prometheus")
    flags.add("alertmanager", address, None, "URL of Alertmanager")
    flags.add("password-file", Path, None, "file with the password of the user internal of these two")
    flags.add("signals", signals, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    flags.add("limits", texts, {}, "the limits in force and the overrides, as JSON")
    flags.add("config-yaml", Path, None, "the file that the settings were rendered from")
    options = flags.options()
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
