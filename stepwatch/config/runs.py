"""Where training runs write, and what is read of them: the `runs` and `signals` sections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from exporter.runs.contract import JUDGED
from exporter.runs.signals import NAMES
from stepwatch.config.errors import NOTHING, Fault
from stepwatch.config.names import ReceiverName
from stepwatch.config.places import FolderOrGlob, PageUrl, ServerUrl
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import PositiveSpan, SeriesCount, instead
from stepwatch.config.secret import SecretFile
from stepwatch.config.section import Section


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise Fault("is no text", expected="a name as the trainer or server writes it", cure="quote it")


def _signal(value: Any) -> str:
    if value in NAMES:
        return str(value)
    cure = instead(value, NAMES, usual=JUDGED)
    raise Fault("is no signal", expected="a signal that docs/metrics.md lists", cure=cure)


def _some(keys: tuple[str, ...]) -> tuple[str, ...]:
    if keys:
        return keys
    raise Fault(
        "is empty", expected="one key or more", cure="write what the trainer logs, or delete the signal"
    )


LoggedName = Annotated[str, PlainValidator(_text)]
SignalName = Annotated[str, PlainValidator(_signal)]
Signals = dict[SignalName, Annotated[tuple[LoggedName, ...], AfterValidator(_some)]]
"""More keys of each signal, best first."""


class MetricsPage(Section):
    """A trainer that serves its numbers as a Prometheus page."""

    url: PageUrl
    run: ReceiverName | None = None
    step: LoggedName | None = None


class MlflowServer(Section):
    """A tracking server, and which of its runs are watched."""

    url: ServerUrl
    experiments: tuple[LoggedName, ...] = ()
    run_ids: tuple[LoggedName, ...] = ()
    token_file: SecretFile | None = None

    @model_validator(mode="after")
    def _names_some(self) -> MlflowServer:
        if not self.experiments and not self.run_ids:
            raise Fault(
                "names no runs",
                value=NOTHING,
                expected="experiments, run_ids or both",
                cure="write experiments: [name], as the server's page lists them",
            )
        return self


class Raw(Section):
    """Numbers that no signal uses: which are shown, and how many of one run."""

    allow: tuple[LoggedName, ...] = ("*",)
    limit: SeriesCount = 40


class Runs(Section):
    """Where training runs write, and how long an ended one is shown."""

    path: FolderOrGlob = Field(default=Path("runs"), validate_default=True)
    pages: tuple[MetricsPage, ...] = ()
    mlflow: tuple[MlflowServer, ...] = ()
    raw: Raw = Raw()
    forget_after: PositiveSpan = Duration.parse("12h")
