"""What Prometheus reads besides Stepwatch's own parts: the `scrape` section."""

from __future__ import annotations

from pydantic import Field, model_validator

from stepwatch.schema.errors import NOTHING, Fault
from stepwatch.schema.names import JobName, LabelName, LabelValue
from stepwatch.schema.path_types import MetricsPath, Target, TargetFiles
from stepwatch.schema.scalars import Interval, Role, Scheme
from stepwatch.schema.secret import SecretFile
from stepwatch.schema.section import Section, default, needed


class Job(Section):
    """A named set of targets: given one by one, or in files that other programs write."""

    job: JobName = needed("A name that no other job has.")
    role: Role = default(
        "other", "What the targets are; becomes a label. Engine, Ray and machine alerts select by it."
    )
    targets: tuple[Target, ...] = default((), "host:port, always quoted. Targets or files, not both.")
    files: tuple[TargetFiles, ...] = default(
        (), "Files in Prometheus' file_sd format; at most one * in the name."
    )
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, description="More labels for these targets."
    )
    metrics_path: MetricsPath = default("/metrics", "The path of their metrics.")
    scheme: Scheme = default("http", "http or https.")
    interval: Interval | None = default(None, "null: intervals.scrape.")
    bearer_token_file: SecretFile | None = default(None, "A file with the token, never the token itself.")

    @model_validator(mode="after")
    def _one_source(self) -> Job:
        if bool(self.targets) == bool(self.files):
            raise Fault(
                "has both targets and files" if self.targets else "has no targets",
                value=NOTHING,
                expected="targets or files, and not both",
                fix="write targets: [host:port], or make two jobs",
            )
        return self

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels of its targets, the role among them."""
        return {"role": self.role, **self.labels}
