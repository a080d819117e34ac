"""The options of the run exporter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from exporter.options import CommandLine, not_negative, number, port, positive, text
from exporter.runs.cli import arguments
from exporter.runs.history import panelfile
from exporter.runs.model.overrides import Overrides
from exporter.runs.rollouts.address import Allowed


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process."""
    flags = CommandLine(
        "python -m exporter.runs", "Serve statistics over training steps to Prometheus.", arguments
    )
    flags.add("path", text, ("./runs",), "run folders, log files or globs to read", many=True)
    flags.add_address(9410)
    flags.add("state-dir", Path, None, "folder that keeps what a restart could not rebuild")
    flags.add("hold", positive, 15.0, "seconds for which extremes are held: three scrape intervals")
    flags.add("forget-after", positive, 43200.0, "seconds after which a silent or ended run leaves")
    _add_meanings(flags)
    _add_targets(flags)
    _add_discovery(flags)
    _add_registrations(flags)
    _add_pages(flags)
    flags.add("silence", positive, 600.0, "least seconds without a step that count as silence")
    flags.add("silence-intervals", not_negative, 5.0, "typical step intervals that count as silence")
    return flags


def _add_meanings(flags: CommandLine) -> None:
    flags.add("signals", arguments.signals, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    flags.add("raw-allow", arguments.patterns, ("*",), "keys that may be shown as they are, as JSON")
    flags.add("overrides", arguments.overrides, Overrides(), "limits that some runs have, as JSON")
    flags.add("raw-limit", number, 40, "how many of them a run may have")


def _add_targets(flags: CommandLine) -> None:
    page = '[{"url": "http://host:9092/metrics"}]'
    server = '[{"url": "http://host:5000", "experiments": ["ppo"]}]'
    flags.add("poll", positive, 5.0, "seconds between two looks at pages and servers")
    flags.add("pages", arguments.pages, (), f"trainers' pages, as JSON: {page}")
    flags.add("mlflow", arguments.servers, (), f"tracking servers, as JSON: {server}")


def _add_discovery(flags: CommandLine) -> None:
    flags.add("discovery-allow", arguments.networks, Allowed(), "networks that servers may lie in, as JSON")
    flags.add("discovery-ray", Path, None, "Ray's folder, such as /tmp/ray")
    flags.add("discovery-files", arguments.patterns, (), "files or globs of what verl writes, as JSON")
    flags.add("discovery-root", Path, Path("/"), "where the file system is seen that links in those are of")
    flags.add("discovery-forget-after", positive, 600.0, "seconds after which a lost server leaves")
    flags.add("loopback", text, "", "the name by which containers reach the machine that they run on")


def _add_registrations(flags: CommandLine) -> None:
    flags.add("token-file", Path, None, "file with the token that clients must show to register servers")
    flags.add("prometheus-port", port, None, "port of Prometheus, which clients may ask for")
    flags.add("grafana-port", port, None, "port of Grafana, which clients may ask for")


def _add_pages(flags: CommandLine) -> None:
    flags.add("prometheus-url", arguments.address, None, "the Prometheus that watches the runs")
    flags.add("alertmanager-url", arguments.address, None, "the Alertmanager, whose silences the pages show")
    flags.add("watchdog-url", arguments.address, None, "the watchdog, whose findings the pages show")
    flags.add("panels", Path, None, f"what is drawn; by default {panelfile.NAME} beside the settings")
