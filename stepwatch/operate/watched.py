"""The folders of logs that the stack of this machine watches."""

from __future__ import annotations

from pathlib import Path

from stepwatch.config import Config
from stepwatch.deploy.native.state import State
from stepwatch.system.terminal import Say


def paths(settings: Config, runs: Path | None, place: State, say: Say) -> tuple[str, ...]:
    """Return the folders or globs of logs, as absolute paths.

    Args:
        settings: The configuration.
        runs: A folder to watch in place of all; ``None`` for those of the stack.
        place: The state folder, with the folder of ``make up RUNS=`` and the demo's runs.
        say: Prints a line if that knowledge was lost.
    """
    if runs is not None:
        return (str(runs.absolute()),)
    simulated = place.data("demo-runs")
    watched = place.runs(settings.runs.path, say) or settings.runs.path
    return tuple(str(path.absolute()) for path in (watched, *([simulated] if simulated.is_dir() else [])))
