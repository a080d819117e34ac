"""``python -m stepwatch tensorboard``: the runs that the stack watches, as event files of TensorBoard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from exporter.runs import cli
from exporter.runs.collector import Settings
from exporter.runs.model.run import Options
from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.deploy.native.state import State
from stepwatch.operate.watched import paths
from stepwatch.render import exporters
from stepwatch.system.terminal import Say
from stepwatch.tensorboard.alerts import Alerts
from stepwatch.tensorboard.export import FOREVER, MOST_RUNS, POLL_SECONDS, Recorder, export


def tensorboard(config: Path, to: Path, runs: Path | None, place: State, say: Say, *, follow: bool) -> int:
    """Export all runs to a folder, or go on where an earlier export to it ended.

    Args:
        config: The configuration file.
        to: The folder.
        runs: In place of the file's ``runs.path``.
        place: The state folder.
        say: Prints a line.
        follow: Whether to go on until Ctrl-C.

    Returns:
        0.

    Raises:
        Refused: The configuration is wrong, or the folder cannot be written to.
    """
    settings = load(config)
    as_served = exporters.runs(settings, OnThisMachine(settings))

    def watched(recorder: Recorder, states: Path) -> Settings:
        return Settings(
            paths(settings, runs, place, say),
            states,
            forget_after=FOREVER,
            options=replace(Options(keys=settings.signals), recorder=recorder.note),
            targets=(*cli.pages(as_served["pages"]), *cli.servers(as_served["mlflow"])),
            poll=POLL_SECONDS,
            poll_targets=as_served["poll"],
            most_runs=MOST_RUNS,
        )

    if follow:
        say(f"Exporting to {to} until Ctrl-C. To see it: tensorboard --logdir {to}")
    alerts = Alerts(f"http://{settings.address('prometheus')}")
    written = export(to, watched, alerts, say, follow=follow)
    say(f"{len(written)} runs in {to}, {sum(written.values()) / 1e6:.1f} MB written.")
    return 0
