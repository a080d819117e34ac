"""What Prometheus reads besides Stepwatch's own parts: the `scrape` section."""

from __future__ import annotations

from pydantic import Field, model_validator

from stepwatch.config.errors import NOTHING, Fault
from stepwatch.config.names import JobName, LabelName, LabelValue
from stepwatch.config.places import MetricsPath, Target, TargetFiles
from stepwatch.config.scalars import Interval, Role, Scheme
from stepwatch.config.secret import SecretFile
from stepwatch.config.section import Section


class Job(Section):
    """A named set of targets: given one by one, or in files that other programs write."""

    job: JobName
    role: Role = "other"
    targets: tuple[Target, ...] = ()
    files: tuple[TargetFiles, ...] = ()
    labels: dict[LabelName, LabelValue] = Field(default_factory=dict)
    metrics_path: MetricsPath = "/metrics"
    scheme: Scheme = "http"
    interval: Interval | None = None
    bearer_token_file: SecretFile | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Job:
        if bool(self.targets) == bool(self.files):
            raise Fault(
                "has both targets and files" if self.targets else "has no targets",
                value=NOTHING,
                expected="targets or files, and not both",
                cure="write targets: [host:port], or make two jobs",
            )
        return self

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels of its targets, the role among them."""
        return {"role": self.role, **self.labels}
