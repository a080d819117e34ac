"""Everything that is frozen, by the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.parity import alerts, callers, charts, gpus, machines, pages, routes, rules, targets

FOLDER = Path(__file__).with_name("golden")
SURFACES: dict[str, Callable[[], Iterator[str]]] = {
    # The longest first: they begin first.
    "alerts-public": alerts.public,
    "pages-public": pages.public,
    "pages-own": pages.own,
    "alerts-own": alerts.own,
    "alerts-demo": alerts.demo,
    "alerts-made": alerts.made,
    "alerts-machines": machines.alerts,
    "pages-signals": pages.signals,
    "pages-trainers": pages.trainers,
    "callers-generate": callers.generate,
    "callers-commands": callers.commands,
    "callers-inspect": callers.inspect,
    "callers-backtest": callers.backtest,
    "callers-run": callers.run,
    "gpus-demo": gpus.demo,
    "gpus-driver": gpus.driver,
    "targets": targets.served,
    "routes": routes.table,
    "rules-alerts": rules.alerts,
    "rules-verdicts": rules.verdicts,
    "rules-jobs": rules.jobs,
    "files": callers.files,
    "charts-panels": charts.panels,
    "charts-tutorial": charts.tutorial,
}
PUBLIC = {"alerts-public", "pages-public"}
"""Those that need the public logs."""


def golden(name: str) -> Path:
    """Where what a surface shows is kept."""
    return FOLDER / f"{name}.txt"


def shown(name: str) -> str:
    """What a surface shows now."""
    return "".join(f"{line}\n" for line in SURFACES[name]())
