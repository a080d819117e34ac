"""Sections of config.yaml: what is read, what a central system gets, ports, intervals, log and links."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from exporter.runs.signals import NAMES
from exporter.runs.signals.key import KeyFault, key_of
from exporter.runs.stats.catalogue import JUDGED
from exporter.runs.targets.target import USUAL
from stepwatch.schema.errors import NOTHING, Fault, Faults, KeyPath, SecretFault
from stepwatch.schema.path_types import (
    FolderOrGlob,
    Link,
    MetricsPath,
    Page,
    PageUrl,
    SecretFile,
    ServerUrl,
    Target,
    TargetFiles,
    TrustFile,
)
from stepwatch.schema.scalars import (
    CheckpointCount,
    Duration,
    GpuCount,
    Interval,
    JobName,
    LabelName,
    LabelValue,
    LogFormat,
    LogLevel,
    Port,
    PositiveSpan,
    ProcessCount,
    ReceiverName,
    Role,
    RunGlob,
    Scheme,
    SeriesCount,
    Size,
    StorageSize,
    Switch,
    instead,
)
from stepwatch.schema.section import Checked, Section, default, needed, not_empty, require_both


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise Fault("is not a string", expected="a name as the trainer or server writes it", fix="quote it")


def _signal(value: Any) -> str:
    if value in NAMES:
        return str(value)
    fix = instead(value, NAMES, usual=JUDGED)
    raise Fault("is not a signal", expected="a signal that docs/metrics.md lists", fix=fix)


def _key(value: Any) -> Any:
    try:
        key_of(value)
    except KeyFault as fault:
        fix = "write it as docs/formats.md shows, under Keys of your own"
        raise Fault(fault.problem, expected=fault.expected, fix=fix) from None
    return value


LoggedName = Annotated[str, Checked(_text)]
LoggedKey = Annotated[Any, Checked(_key)]
SignalName = Annotated[str, Checked(_signal)]
Signals = dict[
    SignalName,
    Annotated[
        tuple[LoggedKey, ...],
        not_empty("one key or more", "write what the trainer logs, or delete the signal"),
    ],
]
"""More keys of each signal, best first."""


class MetricsPage(Section):
    """A trainer that serves its numbers as a Prometheus page."""

    url: PageUrl = needed("The URL of the page; unique.")
    run: ReceiverName | None = default(
        None, "The run's name; unique. null: its labels project and experiment_name, or else host:port."
    )
    step: LoggedName | None = default(
        None, "The metric that counts steps. null: a known one, or else every change counts as a step."
    )


class MlflowServer(Section):
    """A tracking server, and which of its runs are watched."""

    url: ServerUrl = needed("The server's URL; unique.")
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
        "Patterns of the keys that are shown as rl_raw under the trainer's own names: * any text, ? any "
        "character. [] for none. No rule uses them.",
    )
    limit: SeriesCount = default(
        40,
        "Maximum number of these keys per run. Further keys are dropped and counted "
        "(rl_raw_keys_refused_total).",
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
        "Trainers that serve their metrics on a Prometheus page: verl's rl_insight logger, "
        "prometheus_client.",
    )
    mlflow: tuple[MlflowServer, ...] = default((), "MLflow tracking servers to read runs from.")
    raw: Raw = default(Raw(), "Numbers that are not signals.")
    forget_after: PositiveSpan = default(
        Duration.parse("12h"),
        "How long a run that ended or went silent stays on the pages, with its alerts. Longer if no one "
        "looks at night, shorter if many short runs fill the pages. Affects all alerts about runs.",
    )


class Checkpoints(Section):
    """What `stepwatch run` does with the checkpoints of a trainer."""

    keep: CheckpointCount = default(
        0,
        "How many of a run's best checkpoints are protected from the trainer's rotation, as hard links "
        "(docs/running.md). Each takes the space of a checkpoint once the trainer has deleted its own. "
        "0: none; notifications name complete checkpoints anyway. Affects no alert.",
    )
    runs: RunGlob = default("*", "The runs whose checkpoints are kept: * any text, ? any character.")


# Judged: five times the processor time, and the driver itself takes samples hardly more often.
SHORTEST = Duration.parse("200ms")
# What is read each 15th time would be minutes old: errors of memory, links.
LONGEST = Duration.parse("15s")


def _readable(value: Duration) -> Duration:
    if SHORTEST <= value <= LONGEST:
        return value
    raise Fault(
        f"is shorter than {SHORTEST}" if value < SHORTEST else f"is longer than {LONGEST}",
        expected=f"from {SHORTEST} to {LONGEST}",
        fix="write 1s, or more if processor time is scarce",
    )


class Gpus(Section):
    """What the GPU exporter is configured with."""

    interval: Annotated[PositiveSpan, AfterValidator(_readable)] = default(
        Duration.parse("1s"),
        "How often the exporter reads the driver; every 15th time it also reads values that rarely change "
        "(memory and link errors, limits). 1s catches bursts and costs 1 % of a core for 8 GPUs. At most "
        "intervals.scrape, or a rule would count one value several times. Affects GPULost: values older "
        "than three intervals are not shown.",
    )
    expected: GpuCount = default(
        0,
        "How many GPUs this machine should have. 0: the most seen since the exporter started, which misses "
        "GPUs that were already gone. Affects GPUsMissing.",
    )
    processes: ProcessCount = default(
        0,
        "How many processes of each GPU, those with the most memory, are shown by name, PID and container; "
        "the rest as one. 0: only their number. One or two series each. With plain processes, Prometheus "
        "also records which run uses which GPU. With containers, the stack's containers see the host's "
        "/proc, read-only.",
    )
    serial: Switch = default(
        False, "Serial numbers of the boards in gpu_info, for RMA. They identify the machine."
    )
    links: Switch = default(
        False,
        "Bytes and errors per NVLink instead of sums: 18 links are 90 series per GPU. Use it to find a "
        "faulty link.",
    )
    pcie: Switch = default(
        False,
        "PCIe traffic of GPUs before Hopper: each sample blocks a thread for 40 ms. Newer "
        "GPUs report it anyway.",
    )


def _network(value: Any) -> str:
    try:
        return str(ip_network(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise Fault(
            "is not a network",
            expected="an IP address, or one with the number of bits that count, such as 10.0.0.0/8",
            fix="write it so; bits beyond that number are 0",
        ) from error


Network = Annotated[str, Checked(_network)]


class Discovery(Section):
    """Where word of servers is found, and which of them Prometheus may read."""

    allow: tuple[Network, ...] = default(
        USUAL,
        "Networks in which Prometheus may scrape discovered servers; other addresses are refused and "
        "counted. Default: loopback and private networks; add 100.64.0.0/10 if your pods use it. []: no "
        "discovery.",
    )
    ray: FolderOrGlob | None = Field(
        default=Path("/tmp/ray"),  # noqa: S108  Ray's own default
        description="Ray's folder (ray start --temp-dir), with Ray's list of targets and the prometheus.yml "
        "that verl writes. null: no Ray on this machine.",
    )
    files: tuple[FolderOrGlob, ...] = default(
        (),
        "More files that verl writes (actor_rollout_ref.rollout.prometheus.file), or globs. Only read. "
        "Never name a file that a Prometheus uses: verl overwrites it.",
    )
    token_file: SecretFile | None = default(
        None,
        "A file with a token that clients of rl-insight must send to register servers: "
        "RL_INSIGHT_SERVER_URL=http://any:TOKEN@host:9410. null: anyone who can reach the port may "
        "register.",
    )


class Job(Section):
    """A named set of targets: given one by one, or in files that other programs write."""

    job: JobName = needed("The job's name; unique.")
    role: Role = default(
        "other", "The kind of targets; becomes a label. Alerts about engines, Ray and machines select by it."
    )
    targets: tuple[Target, ...] = default((), "host:port, always quoted. Targets or files, not both.")
    files: tuple[TargetFiles, ...] = default(
        (), "Files in Prometheus' file_sd format; at most one * in the name. Targets or files, not both."
    )
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, description="Additional labels of these targets."
    )
    metrics_path: MetricsPath = default("/metrics", "The path of the metrics.")
    scheme: Scheme = default("http", "http or https.")
    interval: Interval | None = default(None, "The scrape interval. null: intervals.scrape.")
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


def _plain(value: str) -> str:
    # Prometheus 3 puts variables of its environment in their place, Prometheus 2 does not.
    if "$" in value:
        raise Fault("holds $", expected="a text without it", fix="write another name")
    return value


ExternalLabels = dict[LabelName, Annotated[LabelValue, AfterValidator(_plain)]]

# What Prometheus refuses, since it sets them itself.
_RESERVED = frozenset(
    {
        "authorization",
        "host",
        "content-encoding",
        "content-length",
        "content-type",
        "user-agent",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "www-authenticate",
        "accept-encoding",
        "x-prometheus-remote-write-version",
        "x-prometheus-remote-read-version",
    }
)


def _header(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", value):
        raise Fault(
            "is not the name of a header", expected="letters, digits and -", fix="write X-Scope-OrgID, say"
        )
    if value.lower() in ("authorization", "proxy-authorization", "cookie"):
        raise SecretFault(
            "would hold a secret, which would be written to generated files",
            expected="no login among headers",
            fix="name a file with it: token_file, or username and password_file",
        )
    if value.lower() in _RESERVED:
        raise Fault("is set by Prometheus itself", expected="another header", fix="delete it")
    return value


class Login(Section):
    """How Prometheus signs in to a system that takes remote write."""

    token_file: SecretFile | None = default(None, "A file with a bearer token, never the token itself.")
    username: LabelValue | None = default(
        None, "The login, with password_file, instead of a token. null: on an agent the node's name."
    )
    password_file: SecretFile | None = default(None, "A file with the password.")
    ca_file: TrustFile | None = default(
        None, "A file with the certificates (PEM) to trust for the server. null: the system's."
    )
    headers: dict[Annotated[str, Checked(_header)], LabelValue] = Field(
        default_factory=dict,
        description="Additional headers, such as X-Scope-OrgID for Mimir's tenants. No secrets.",
    )

    @model_validator(mode="after")
    def _one_login(self) -> Login:
        if self.username and not self.password_file:
            require_both(self, ("username", "password_file"))
        if self.password_file and self.token_file:
            raise Fault(
                "has two logins",
                value=NOTHING,
                expected="token_file, or username with password_file",
                fix="delete one of the two",
            )
        return self


class RemoteWrite(Login):
    """A system that takes Prometheus' remote write: another Prometheus, VictoriaMetrics, Thanos, Mimir."""

    url: ServerUrl = needed("The remote write URL, such as https://metrics.example.org/api/v1/write.")

    @model_validator(mode="after")
    def _named(self) -> RemoteWrite:
        require_both(self, ("username", "password_file"))
        return self


class Ports(Section):
    """Ports of the parts, all different."""

    exporter: Port = default(9410, "The run exporter and its page.")
    gpu: Port = default(9411, "The GPU exporter.")
    bridge: Port = default(
        9414, "The bridge, if a receiver needs it (feishu, dingtalk, wecom, apprise), or actions.policies."
    )
    agents: Port = default(9415, "The hub's port for agents, with role hub.")
    node: Port = default(9100, "node_exporter.")
    prometheus: Port = default(9090, "Prometheus.")
    alertmanager: Port = default(9093, "Alertmanager.")
    grafana: Port = default(3000, "Grafana.")

    @model_validator(mode="after")
    def _distinct(self) -> Ports:
        seen: dict[int, str] = {}
        faults = []
        for name, port in self:
            if (first := seen.setdefault(port, name)) != name:
                faults.append(twice(f"the port of {first}", at=(name,), value=port))
        if faults:
            raise Faults(faults)
        return self


class Intervals(Section):
    """How often targets are read and rules judged."""

    runs: Interval = default(
        Duration.parse("5s"),
        "How often Prometheus scrapes the run exporter. A longer interval delays every alert about a run; "
        "with 5s the notification of a bad step is sent within 15 s.",
    )
    scrape: Interval = default(
        Duration.parse("15s"),
        "How often Prometheus scrapes everything else. A longer interval delays the alerts "
        "about GPUs. Affects TargetDown and EngineGone.",
    )
    rules: Interval = default(
        Duration.parse("5s"),
        "How often the rules about runs are evaluated. A longer interval delays every alert about a run.",
    )
    stack_rules: Interval = default(
        Duration.parse("15s"),
        "How often the rules about GPUs, rollout engines, Ray and the stack are evaluated; those about "
        "machines are evaluated every minute.",
    )


class Retention(Section):
    """How much history Prometheus keeps; whichever limit is reached first."""

    time: PositiveSpan = default(
        Duration.parse("90d"), "How long Prometheus keeps history, unless it reaches the size first."
    )
    size: StorageSize = default(
        Size.parse("20GB"),
        "Maximum size of the history, in KB, MB, GB or TB. Ten concurrent runs write some 6 GB in 90 days "
        "at the default intervals.",
    )


class Log(Section):
    """What the programs of Stepwatch log: exporters, bridge and the demo."""

    level: LogLevel = default(
        "info",
        "The minimum level. error: you have to act; warn: something is missing or late; info: what started, "
        "recovered or reloaded its settings; debug: details.",
    )
    format: LogFormat = default(
        "logfmt", "logfmt, as in Prometheus, or json: one record per line, with time, level and logger."
    )


class Links(Section):
    """Addresses that messages and pages point to; None means the part's own."""

    exporter: Link | None = default(
        None, "The run exporter's page, the target of links in notifications without Grafana."
    )
    grafana: Link | None = default(None, "Grafana's URL for people.")
    prometheus: Link | None = default(None, "Prometheus' URL for people.")
    alertmanager: Link | None = default(None, "Alertmanager's URL for people.")
    runbook: Page = default(
        "docs/runbook.md",
        "The runbook; #alertname in lower case is appended. Set a URL if the docs are published.",
    )


def twice(other: str, *, at: KeyPath, value: Any) -> Fault:
    """Return the fault of what another key says already."""
    return Fault(
        f"is also {other}", expected="each only once", fix="change one of the two", at=at, value=value
    )
