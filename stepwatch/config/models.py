"""config.yaml as a whole, with its `alerts` section, a block for each entry of the table, and `overrides`."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationError, create_model, model_validator

from demo import OVERRIDES
from exporter.bridge.audit import STOP
from exporter.runs.signals.key import keys_of
from stepwatch.alerts.table import BLOCKS, BUILT_IN, Table
from stepwatch.config import cluster, reference
from stepwatch.config.actions import Actions
from stepwatch.config.cluster import Agents, Hub, NodeName
from stepwatch.config.hours import TimeInterval
from stepwatch.config.receivers import Deadman, Notify, Receiver
from stepwatch.config.retry import RetryPolicy
from stepwatch.config.sections import (
    Checkpoints,
    Discovery,
    ExternalLabels,
    Gpus,
    Intervals,
    Job,
    Links,
    Log,
    Ports,
    RemoteWrite,
    Retention,
    Runs,
    Signals,
    twice,
)
from stepwatch.schema.errors import NOTHING, Fault, Faults, KeyPath, Refused, quoted, spell
from stepwatch.schema.path_types import ListenAddress
from stepwatch.schema.scalars import (
    Duration,
    Language,
    MachineRole,
    RulesPlace,
    RunGlob,
    fits,
    instead,
    one_of,
)
from stepwatch.schema.section import Block, Section, default, needed


class _Blocks(Section):
    @classmethod
    def also_known_as(cls) -> dict[str, str]:
        """Return the block of each alert whose name is not that of its block."""
        blocks = ((key, field.annotation) for key, field in cls.model_fields.items())
        return {name: key for key, block in blocks if block for name in block.names.values()}

    def block(self, name: str) -> Any:
        """Return the block of that name, whose keys the table defines; AttributeError if there is none."""
        return getattr(self, name)


if TYPE_CHECKING:
    Alerts = _Blocks
else:
    _FIELDS: dict[str, Any] = {name: (block, block()) for name, block in BLOCKS.items()}
    Alerts = create_model("Alerts", __base__=_Blocks, __doc__="All blocks with their limits.", **_FIELDS)


class Override(Section):
    """Limits that differ for the runs of one pattern; what is left out stays as under `alerts`.

    The limits are stored as written: only with the base do they make a whole block.
    """

    runs: RunGlob = needed(
        "A pattern of run names: * any text, ? any character, [ab] one of these, [!ab] any other."
    )
    alerts: dict[str, dict[str, Any]] = needed(
        "The same keys as alerts, only those that differ. Alerts about GPUs (except GPUIdleWhileRunning) "
        "and about the stack cannot be overridden."
    )

    def over(self, name: str, base: Block) -> Block:
        """Return the base block with this override's limits over it. Raises ValidationError."""
        return type(base).model_validate(_merge(base.plain(), self.alerts[name]))


DEMO = tuple(Override.model_validate(override) for override in OVERRIDES)
"""The demo's overrides, in force after the user's: containers start the demo without a new rendering."""


def _merge(base: Any, partial: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(partial, Mapping):
        return partial
    return {**base, **{key: _merge(base.get(key), value) for key, value in partial.items()}}


@dataclass(frozen=True)
class Variant:
    """One set of limits of a block, for runs that ``only`` fits (None: all) and no pattern of ``without``."""

    limits: Block
    only: str | None
    without: tuple[str, ...]


# What Prometheus takes if nothing is said; it refuses a timeout longer than the interval.
DEFAULT_TIMEOUT = Duration.parse("10s")


class Config(Section):
    """config.yaml."""

    table: ClassVar[Table] = BUILT_IN
    """The alerts whose limits it has."""

    role: MachineRole = default(
        "all",
        "The role of this machine (docs/cluster.md). all: everything, for itself. hub: the same, and it "
        "receives the samples of agents. agent: it reads its GPUs, runs and servers and sends all samples "
        "to a hub, which has the rules, notifications and dashboards.",
    )
    node: NodeName | None = default(
        None,
        "The name of an agent's machine: the label node of all its samples, and the name in `make agent "
        "NODE=name`, which created its password on the hub. null: the host name.",
    )
    hub: Hub = default(Hub(), "Where an agent sends its samples.")
    agents: Agents = default(
        Agents(), "Where the hub receives the samples of agents: port ports.agents, with role hub."
    )
    runs: Runs = default(Runs(), "What your trainers write.")
    signals: Signals = Field(
        default_factory=dict,
        description="Your own keys for known signals; they take precedence over those of the trainers "
        "(docs/metrics.md lists the signals). Affects every alert about that signal.",
    )
    checkpoints: Checkpoints = default(
        Checkpoints(),
        "The best checkpoints of trainers that `stepwatch run` starts. Read again at each new checkpoint.",
    )
    gpus: Gpus = default(Gpus(), "How the GPU exporter reads this machine's GPUs.")
    discovery: Discovery = default(
        Discovery(),
        "Discovery of servers on random ports: rollout engines and Ray. The run exporter finds them in the "
        "files of trainers and Ray, and Prometheus reads the list from it (/sd/rollout). Affects "
        "EngineGone, and all alerts about rollout engines and Ray.",
    )
    scrape: tuple[Job, ...] = default(
        (),
        "Prometheus jobs of your own: rollout servers, GPU and host exporters. `make discover` finds "
        "containers labelled stepwatch.scrape=PORT. Affects TargetDown, one alert per target that is down; "
        "with the role rollout EngineGone instead.",
    )
    receivers: tuple[Receiver, ...] = default(
        (),
        "Who is notified (docs/notifications.md). Without a receiver, alerts are shown only on the pages. "
        "Each receiver has one of webhook, mail, slack, feishu, dingtalk, wecom and apprise, or one block "
        "in Alertmanager's own form. It gets the alerts that match all of its conditions; an alert that "
        "matches no receiver without hours also goes to the first receiver without hours. Put secrets in "
        "their own files, in secrets/ if the stack runs in containers. After `make up`, `make test-alert "
        "TO=name` sends a test notification.",
    )
    time_intervals: tuple[TimeInterval, ...] = default(
        (), "Named time intervals in Alertmanager's own form, for hours that several receivers share."
    )
    notify: Notify = default(Notify(), "When notifications are sent.")
    deadman: Deadman = default(
        Deadman(),
        "A dead man's switch outside, such as healthchecks: it gets pings while this stack can alert, and "
        "notifies you when they stop (docs/notifications.md). url_file names a file with its URL.",
    )
    alerts: Alerts = default(
        Alerts(),
        "When an alert fires. Every block accepts enabled: false; a level (warning, critical) set to null "
        "is off.",
    )
    overrides: tuple[Override, ...] = default(
        (),
        "Limits for some runs. The first entry whose pattern matches the run's name and that names the "
        "alert wins; keys it omits keep their values from alerts. runs is a pattern: * any text, ? any "
        "character, [ab] one of these.",
    )
    actions: Actions = default(
        Actions(),
        "Actions on a run while an alert about it fires. Off without policies, and a "
        "dry run unless dry_run is false (docs/actions.md).",
    )
    retry: tuple[RetryPolicy, ...] = default(
        (),
        "When `python -m stepwatch run --retry NAME -- CMD` restarts a failed trainer. Never without "
        "--retry, and never twice after the same failure at the same step with the same arguments. With "
        "--dry-run it only prints the retry.",
    )
    intervals: Intervals = default(
        Intervals(),
        "Intervals of scrapes and rule evaluations, at most 2m each: Prometheus forgets a series after "
        "5 minutes.",
    )
    external_labels: ExternalLabels = Field(
        default_factory=dict,
        description="Labels that this Prometheus adds to samples for remote_write, and to alerts. `cluster` "
        "distinguishes runs and machines of the same name; if several machines send to one "
        "system, set it to a different value on each cluster.",
    )
    remote_write: tuple[RemoteWrite, ...] = default(
        (),
        "Systems that receive a copy of all samples: another Prometheus, VictoriaMetrics, Thanos, Mimir. "
        "Rules, alerts and dashboards stay here as well (docs/cluster.md). Affects RemoteWriteFailing.",
    )
    rules: RulesPlace = default(
        "here",
        "Where rules are evaluated. here: on this machine. none: by a central ruler, on its copy of all "
        "samples; the rule files for it are written as well (docs/cluster.md).",
    )
    retention: Retention = default(
        Retention(), "How much history Prometheus keeps, whichever limit is reached first."
    )
    language: Language = default(
        "en",
        "The language of dashboards, alerts and notifications: en, or zh for Chinese. Names of alerts and "
        "labels, the light page's and the commands' own texts, and documents are English in both.",
    )
    log: Log = default(
        Log(),
        "What the exporters, the bridge and the demo log. All except the demo "
        "apply a change without a restart.",
    )
    listen: ListenAddress = default(
        "127.0.0.1",
        "The address that every part listens on. The exporters ask for no password: keep the default, and "
        "use an SSH tunnel or a proxy of your own.",
    )
    ports: Ports = default(
        Ports(), "Ports of the parts, all different. Change one if another program uses it."
    )
    links: Links = default(
        Links(),
        "The base URLs of links in notifications and pages. null: http://<listen>:<port>. Set the URL or "
        "host name under which people reach the part, such as a proxy's. The parts answer only requests for "
        "localhost, IP addresses, the machine's own name and the host names of these URLs, so that no page "
        "of another site can read or change anything through a browser.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if faults := [
            *_same(self.scrape, "job", ("scrape",)),
            *_same(self.receivers, "name", ("receivers",)),
            *_same(self.time_intervals, "name", ("time_intervals",)),
            *_deadman_faults(self),
            *_unknown_intervals(self),
            *_same(self.retry, "name", ("retry",)),
            *_same(self.remote_write, "url", ("remote_write",)),
            *_same(self.runs.pages, "url", ("runs", "pages")),
            *_same(self.runs.pages, "run", ("runs", "pages")),
            *_same(self.runs.mlflow, "url", ("runs", "mlflow")),
            *_shared_keys(self.signals),
            *_override_faults(self),
            *_interval_faults(self),
            *_action_faults(self),
            *cluster.faults(self),
        ]:
            raise Faults(faults)
        return self

    def variants(self, block: str) -> tuple[Variant, ...]:
        """Return the limits of a block with the runs each is for; the first override that fits wins."""
        base = self.alerts.block(block)
        touching = [override for override in self.overrides if block in override.alerts]
        globs = tuple(override.runs for override in touching)
        variants = [
            Variant(override.over(block, base), override.runs, globs[:index])
            for index, override in enumerate(touching)
        ]
        variants.append(Variant(base, None, globs))
        return tuple(variant for variant in variants if variant.limits.enabled)

    def of_run(self, run: str) -> Config:
        """Return the configuration with the limits of a run in place of overrides."""
        own = {
            name: found[1].over(name, block)
            for name, block in self.alerts
            if (found := self.override(name, run))
        }
        return self.model_copy(update={"alerts": self.alerts.model_copy(update=own), "overrides": ()})

    def override(self, block: str, run: str) -> tuple[int, Override] | None:
        """Return the override, with its number, that judges a run by this block; None for the base."""
        found = enumerate(self.overrides)
        return next((each for each in found if block in each[1].alerts and fits(each[1].runs, run)), None)

    def retry_policy(self, name: str) -> RetryPolicy:
        """Return a policy of `retry`. Raises Refused if it has none of that name."""
        policies = {policy.name: policy for policy in self.retry}
        if name in policies:
            return policies[name]
        known, fix = "an entry of retry in config.yaml; it has none", ""
        if policies:
            known, fix = one_of(tuple(policies)), instead(name, policies)
        if not fix.startswith("did you mean"):
            fix = "add it to retry in config.yaml, see docs/running.md."
        raise Refused(f"--retry {name}: no such policy. Expected: {known}. Fix: {fix}")

    def address(self, part: str) -> str:
        """Return host:port at which a part (a key below ports) is reached."""
        listen = ipaddress.ip_address(self.listen)
        host = "127.0.0.1" if listen.is_unspecified else str(listen)
        port = getattr(self.ports, part)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def link(self, part: str) -> str:
        """Return the URL, without a slash at its end, at which people open a part."""
        link: str | None = getattr(self.links, part, None)
        return link or f"http://{self.address(part)}"

    @property
    def link_hosts(self) -> tuple[str, ...]:
        """The host names of ``links``, sorted: pages opened by these names are ours."""
        return tuple(sorted({url.hostname for url in self._links if url.hostname}))

    @property
    def _links(self) -> list[SplitResult]:
        links = self.links
        own = (
            links.exporter,
            links.grafana,
            links.prometheus,
            links.alertmanager,
        )
        return [urlsplit(url) for url in own if url]

    @property
    def is_agent(self) -> bool:
        """Whether this machine only reads and sends."""
        return self.role == cluster.AGENT

    @property
    def is_hub(self) -> bool:
        """Whether this machine takes what agents send."""
        return self.role == cluster.HUB

    @property
    def several_clusters(self) -> bool:
        """Whether Prometheus may hold series of several clusters, each with the label ``cluster``."""
        return self.is_hub

    @property
    def receiver_url(self) -> str:
        """The address of a hub's receiver, on the hub itself."""
        listen, scheme = (
            ipaddress.ip_address(self.agents.listen),
            "https" if self.agents.cert_file else "http",
        )
        host = "127.0.0.1" if listen.is_unspecified else str(listen)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.ports.agents}"

    @property
    def hub_url(self) -> str:
        """The address that an agent sends to; empty for other roles."""
        return self.hub.url or ""

    @property
    def node_name(self) -> str:
        """What an agent's machine is called."""
        return self.node or cluster.own_name()

    @property
    def sent_labels(self) -> dict[str, str]:
        """The labels of everything that this Prometheus hands on."""
        return {**({cluster.NODE: self.node_name} if self.is_agent else {}), **self.external_labels}

    @property
    def bridge(self) -> bool:
        """Whether the bridge runs: a receiver is a robot, or there are policies of actions."""
        return self.actions.enabled or any(receiver.robot for receiver in self.receivers)

    @property
    def optional_parts(self) -> tuple[str, ...]:
        """The parts that run only for what is configured."""
        return ("bridge",) if self.bridge else ()

    @property
    def server_seconds(self) -> float:
        """How long a discovered server that accepts no connection stays: twice what EngineGone takes."""
        return max(60.0, 2 * float(self.alerts.block("EngineGone").for_.seconds))

    def timeout(self, interval: Duration) -> Duration:
        """Return how long a scrape may take that happens at this interval."""
        return min(interval, DEFAULT_TIMEOUT)


def _deadman_faults(config: Config) -> Iterator[Fault]:
    """Yield a fault if the checker would never get a ping."""
    if config.deadman.enabled and not (config.alerts.block("Watchdog").enabled and config.rules == "here"):
        off, on = (
            ("rules are evaluated elsewhere", "rules: here")
            if config.rules == "none"
            else ("the alert Watchdog is switched off", "alerts.Watchdog.enabled: true")
        )
        yield Fault(
            f"would never be pinged: {off}",
            expected=on,
            fix=f"write {on}, or delete deadman",
            value=NOTHING,
            at=("deadman",),
        )


def _same(items: Iterable[Section], key: str, at: KeyPath) -> Iterator[Fault]:
    """Yield a fault for each item of a list that says the same under a key as one before it."""
    values = [getattr(item, key) for item in items]
    for index, value in enumerate(values):
        if value is not None and (first := values.index(value)) < index:
            yield twice(f"the {key} of {spell((*at, first))}", at=(*at, index, key), value=value)


def _unknown_intervals(config: Config) -> Iterator[Fault]:
    """Yield a fault for each unknown name of a time interval."""
    known = [interval.name for interval in config.time_intervals]
    for index, receiver in enumerate(config.receivers):
        for key in ("active_time_intervals", "mute_time_intervals"):
            for number, name in enumerate(getattr(receiver, key)):
                if name not in known:
                    yield Fault(
                        "is not among time_intervals",
                        expected=one_of(known) if known else "a name that time_intervals has; it has none",
                        fix=instead(name, known) if known else "add it there",
                        at=("receivers", index, key, number),
                        value=name,
                    )


def _shared_keys(signals: Signals) -> Iterator[Fault]:
    """Yield a fault for each key below two signals, in any spelling."""
    owners: dict[str, str] = {}
    for signal, keys in keys_of(signals).items():
        for index, key in enumerate(keys):
            if key.how != "key" or key.when or key.unless:
                continue
            if (owner := owners.setdefault(key.names[0], signal)) != signal:
                yield twice(f"a key of {owner}", at=("signals", signal, index), value=signals[signal][index])


def _interval_faults(config: Config) -> Iterator[Fault]:
    """Yield a fault if a rule would take one reading of a GPU for several."""
    if config.gpus.interval > config.intervals.scrape:
        yield Fault(
            f"is longer than intervals.scrape, {config.intervals.scrape}",
            expected="GPUs read at least as often as their page is",
            fix="shorten it, or lengthen intervals.scrape",
            at=("gpus", "interval"),
            value=str(config.gpus.interval),
        )


def _action_faults(config: Config) -> Iterator[Fault]:
    """Yield a fault for a policy of an unknown alert, and for an announcement of a stop that no one gets."""
    actions = config.actions
    for index, policy in enumerate(actions.policies):
        yield from (each.below(("actions", "policies", index)) for each in policy.unknown(config.table))
    changed = [policy for policy in actions.policies if STOP in policy.do]
    if changed and not actions.dry_run and actions.veto.milliseconds and not config.receivers:
        yield Fault(
            "would change runs without announcing it to anyone",
            expected="a receiver, so that a person can veto",
            fix="add one below receivers, or set veto: 0s",
            at=("actions", "dry_run"),
            value=actions.dry_run,
        )


def _override_faults(config: Config) -> Iterator[Fault]:
    known = [key for key, block in config.alerts if block.about_runs]
    seen: Counter[tuple[str, str]] = Counter()
    for index, override in enumerate(config.overrides):
        for name in override.alerts:
            at = ("overrides", index, "alerts", name)
            seen[override.runs, name] += 1
            if seen[override.runs, name] > 1 and override not in DEMO:
                yield twice(f"in an earlier override of {quoted(override.runs)}", at=at, value=NOTHING)
            if name not in known:
                fix = instead(name, known, aliases=Alerts.also_known_as())
                says = "is not an alert about runs" if name in dict(config.alerts) else "unknown alert"
                yield Fault(says, expected=one_of(known), fix=fix, value=NOTHING, at=at)
                continue
            block = config.alerts.block(name)
            try:
                override.over(name, block)
            except ValidationError as error:
                yield from (fault.below(at) for fault in reference.faults(error, type(block)))


def with_table(table: Table) -> type[Config]:
    """Return the model of a configuration that has the limits of more alerts, those of users' own."""
    fields: dict[str, Any] = {
        name: (block, block()) for name, block in table.blocks.items() if name not in BLOCKS
    }
    make: Callable[..., Any] = create_model
    alerts = make("Alerts", __base__=Alerts, **fields)
    described = Field(alerts(), description=Config.model_fields["alerts"].description)
    model: type[Config] = make("Config", __base__=Config, alerts=(alerts, described))
    model.table = table
    return model
