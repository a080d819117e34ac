"""Where training runs write, and what is read of them: the `runs` and `signals` sections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from exporter.runs.signals import NAMES
from exporter.runs.stats.catalogue import JUDGED
from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.names import ReceiverName
from stepwatch.schema.path_types import FolderOrGlob, PageUrl, ServerUrl
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, SeriesCount, instead
from stepwatch.schema.secret import SecretFile
from stepwatch.schema.section import Checked, Section, default, needed


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise Fault("is no text", expected="a name as the trainer or server writes it", fix="quote it")


def _signal(value: Any) -> str:
    if value in NAMES:
        return str(value)
    fix = instead(value, NAMES, usual=JUDGED)
    raise Fault("is no signal", expected="a signal that docs/metrics.md lists", fix=fix)


def _some(keys: tuple[str, ...]) -> tuple[str, ...]:
    if keys:
        return keys
    raise Fault(
        "is empty", expected="one key or more", fix="write what the trainer logs, or delete the signal"
    )


LoggedName = Annotated[str, Checked(_text)]
SignalName = Annotated[str, Checked(_signal)]
Signals = dict[SignalName, Annotated[tuple[LoggedName, ...], AfterValidator(_some)]]
"""More keys of each signal, best first."""


class MetricsPage(Section):
    """A trainer that serves its numbers as a Prometheus page."""

    url: PageUrl = needed("The address of the page; each once.")
    run: ReceiverName | None = default(
        None, "The run's name, each once. null: its labels project and experiment_name, or else host:port."
    )
    step: LoggedName | None = default(
        None, "The metric that counts steps. null: known ones, or else every change is a step."
    )


class MlflowServer(Section):
    """A tracking server, and which of its runs are watched."""

    url: ServerUrl = needed("The server's address; each once.")
    experiments: tuple[LoggedName, ...] = default((), "Names of experiments. Set these, run_ids, or both.")
    run_ids: tuple[LoggedName, ...] = default((), "IDs of single runs.")
    token_file: SecretFile | None = default(None, "A file with a bearer token, never the token itself.")

    @model_validator(mode="after")
    def _names_some(self) -> MlflowServer:
        if not self.experiments and not self.run_ids:
            raise Fault(
                "names no runs",
                value=NOTHING,
                expected="experiments, run_ids or both",
                fix="write experiments: [name], as the server's page lists them",
            )
        return self


class Raw(Section):
    """Numbers that no signal uses: which are shown, and how many of one run."""

    allow: tuple[LoggedName, ...] = default(
        ("*",),
        "Patterns of the keys that are shown as rl_raw under the trainer's own names: * any "
        "text, ? any character. [] for none. No rule reads them.",
    )
    limit: SeriesCount = default(
        40, "How many keys of one run. Later ones are dropped and counted (rl_raw_keys_refused_total)."
    )


class Runs(Section):
    """Where training runs write, and how long an ended one is shown."""

    path: FolderOrGlob = Field(
        default=Path("runs"),
        validate_default=True,
        description="Folder or glob of the files that your trainers log to: verl, TRL, OpenRLHF, NeMo-RL, "
        "slime, AReaL, TensorBoard event files, JSON lines, CSV; detected by content "
        "(docs/formats.md). Only read.",
    )
    pages: tuple[MetricsPage, ...] = default(
        (),
        "Trainers that serve their metrics as a Prometheus page: verl's rl_insight logger, "
        "prometheus_client.",
    )
    mlflow: tuple[MlflowServer, ...] = default((), "MLflow tracking servers whose runs are watched.")
    raw: Raw = default(Raw(), "Numbers that are not signals.")
    forget_after: PositiveSpan = default(
        Duration.parse("12h"),
        "How long a run that ended or fell silent stays on the pages, and its alerts with it. "
        "Longer if no one looks at night, shorter if many short runs crowd the pages. Affects "
        "all alerts about runs.",
    )
