"""All alerts: the entries of every topic (``*.yaml``), in the order of documents and of config.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import BeforeValidator, Field, ValidationError, create_model, model_validator

from stepwatch.alerts import promql
from stepwatch.alerts.alert import EVIDENCE, Alert, Explanation, Fact, Limit
from stepwatch.schema import scalars
from stepwatch.schema.errors import Fault, Faults, KeyPath
from stepwatch.schema.scalars import Duration, Size
from stepwatch.schema.section import Block, Level, Section

HERE = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, ten times as fast

_TOPICS: Mapping[str, tuple[str, ...]] = {
    "rl": ("reward", "kl", "entropy", "length", "gradient", "rollouts", "progress"),
    "gpu": ("gpu_health", "gpu_load"),
    "rollout": ("engines",),
    "ray": ("ray",),
    "host": ("host",),
    "cluster": ("cluster",),
    "stack": ("stack",),
}
"""The files of each group of Prometheus that evaluates their rules, which has a file of that name."""

_TYPES: Mapping[str, Any] = {
    "number": scalars.Limit,
    "negative": scalars.NegativeLimit,
    "ratio": scalars.Ratio,
    "count": scalars.Count,
    "duration": scalars.PositiveSpan,
    "size": scalars.StorageSize,
    "xids": tuple[scalars.XidCode, ...],
    "recoveries": tuple[scalars.RecoveryAction, ...],
}
_SEVERITIES = {
    "info": "Shown on dashboards only.",
    "warning": "Does not page: if a run is affected, another alert pages.",
    "critical": "Pages: runs fail, hang, compute wrong results, or are not monitored.",
}


def _severity(value: Any) -> Any:
    """Return a severity with its usual reason. Raises Fault for a word that is none."""
    if isinstance(value, dict) or value is None:
        return value
    return {"default": scalars.choice(*_SEVERITIES)(value), "why": _SEVERITIES[value]}


class Entry(Section):
    """A block of ``alerts`` in config.yaml; one alert stands in it, or several below ``alerts``."""

    about: str
    enabled: Limit | None = None
    severity: Annotated[Limit | None, BeforeValidator(_severity)] = None
    wait: Limit | None = Field(None, alias="for")
    limits: dict[str, Limit] = Field(default_factory=dict)

    def model(self, name: str, alerts: list[Alert]) -> type[Block]:
        """Return the model of its limits."""
        fields: dict[str, Any] = {}
        if self.enabled:
            fields["enabled"] = (scalars.Switch, _field(self.enabled))
        if self.severity:
            fields["severity"] = (scalars.Severity, _field(self.severity))
        for each in alerts:
            if each.limits and each.severity:
                level = _level(f"{name}{each.severity.title()}", each)
                fields[each.severity] = (level | None, level())
        fields |= dict(_limits(self.limits))
        if self.wait:
            fields["for_"] = (
                scalars.Span,
                _field(self.wait, default=Duration.parse(self.wait.default), alias="for"),
            )
        base = Block if all(each.subject == "run" for each in alerts) else _Infrastructure
        make: Callable[..., type[Block]] = create_model
        model = make(name, __base__=base, __doc__=self.about, **fields)
        model.names = {each.severity: each.name for each in alerts if each.severity and each.own_name}
        return model


class _Infrastructure(Block):
    """Limits that hold for all runs: no override can name them."""

    about_runs: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_list_each(self) -> _Infrastructure:
        seen: dict[object, str] = {}
        faults = []
        for key, codes in self:
            for index, code in enumerate(codes if isinstance(codes, tuple) else ()):
                if code in seen:
                    fault = Fault(
                        f"is also in {seen[code]}",
                        expected="each code once, in one of the two lists",
                        fix="delete one of the two",
                        at=(key, index),
                        value=code,
                    )
                    faults.append(fault)
                seen.setdefault(code, key)
        if faults:
            raise Faults(faults)
        return self


def _level(name: str, alert: Alert) -> type[Level]:
    level: type[Level] = create_model(
        name, __base__=Level, __doc__=alert.about, **dict(_limits(alert.limits))
    )
    level.falling = frozenset(key for key, limit in alert.limits.items() if limit.falling)
    return level


def _limits(limits: Mapping[str, Limit]) -> Iterator[tuple[str, Any]]:
    for name, limit in limits.items():
        default, kind = limit.default, limit.type or ("ratio" if "ratio" in name else "number")
        if isinstance(default, str):  # 5GB, or 10m
            kind = "size" if default[-1].isupper() else "duration"
            default = Size.parse(default) if kind == "size" else Duration.parse(default)
        elif isinstance(default, list):
            default = tuple(default)
        elif default is not None and default < 0:
            kind = "negative"
        found = _TYPES[kind]
        yield name, (found if default is not None else found | None, _field(limit, default=default))


def _field(limit: Limit, default: Any = None, alias: str | None = None) -> Any:
    value = limit.default if default is None else default
    return Field(value, alias=alias, description=f"{limit.why} {EVIDENCE.get(limit.evidence, '')}".strip())


def read(path: Path) -> Iterator[Alert]:
    """Yield the alerts of a file of entries."""
    document = yaml.load(path.read_text(encoding="utf-8"), LOADER)  # noqa: S506  (it is the safe one)
    usual, codes = document.pop("usual", {}), document.pop("codes", {})
    for name, entry in document.items():
        yield from alerts(name, entry, path.stem, usual, codes)


class EntryError(Exception):
    """Raised for a part of an entry, at a path within it, that is none."""

    def __init__(self, at: KeyPath, error: ValidationError) -> None:
        super().__init__(str(error))
        self.at, self.error = at, error


def alerts(
    name: str,
    entry: Mapping[str, Any],
    source: str,
    usual: Mapping[str, Any] = MappingProxyType({}),
    codes: Mapping[str, Any] = MappingProxyType({}),
) -> list[Alert]:
    """Return the alerts of an entry: of its list ``alerts``, or the one in it. Raises EntryError."""
    of_block = {field.alias or key for key, field in Entry.model_fields.items()}
    several = entry.get("alerts")
    rest = {key: value for key, value in entry.items() if key not in {*of_block, "alerts"}}
    found = []
    at: KeyPath = ()
    try:
        block = Entry.model_validate({key: value for key, value in entry.items() if key in of_block})
        for index, each in enumerate(several or [rest]):
            at = ("alerts", index) if several else ()
            found.append(_alert({**usual, **each}, codes))
    except ValidationError as error:
        raise EntryError(at, error) from error
    model = block.model(name, found)
    return [each.placed(model, source) for each in found]


def _alert(entry: Mapping[str, Any], codes: Mapping[str, Any]) -> Alert:
    alert = Alert.model_validate(_qualified(entry))
    if alert.codes:
        texts = {code: Explanation(**text) for code, text in codes[alert.codes.table].items()}
        alert = alert.model_copy(update={"codes": alert.codes.with_texts(texts)})
    return alert


def _qualified(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry in which each limit is named by its key within the block: ``$warning.stddevs``."""
    own = frozenset(entry.get("limits", ()))

    def qualify(value: Any) -> Any:
        if isinstance(value, str):
            return promql.qualified(value, own, entry["severity"])
        if isinstance(value, list):
            return [qualify(each) for each in value]
        return {key: qualify(each) for key, each in value.items()} if isinstance(value, dict) else value

    if not own:
        return dict(entry)
    return {key: value if key == "limits" else qualify(value) for key, value in entry.items()}


@dataclass(frozen=True)
class Table:
    """Alerts by the group of Prometheus that evaluates their rules, which has a file of that name."""

    groups: Mapping[str, tuple[Alert, ...]]

    @cached_property
    def alerts(self) -> tuple[Alert, ...]:
        """All of them, in the order of documents and of config.yaml."""
        return tuple(alert for alerts in self.groups.values() for alert in alerts)

    @cached_property
    def blocks(self) -> Mapping[str, type[Block]]:
        """The limits of each alert, or pair of alerts, by their key below ``alerts``."""
        return {alert.block.__name__: alert.block for alert in self.alerts}

    @property
    def own(self) -> tuple[Alert, ...]:
        """Those of users' own."""
        return self.groups.get(OWN, ())


OWN = "own"
"""The group of the alerts of users' own, below alerts.d."""

GROUPS: Mapping[str, tuple[Alert, ...]] = {
    group: tuple(alert for topic in topics for alert in read(HERE / f"{topic}.yaml"))
    for group, topics in _TOPICS.items()
}
"""By the group of Prometheus that evaluates their rules, which has a file of that name."""

BUILT_IN = Table(GROUPS)
TABLE, BLOCKS = BUILT_IN.alerts, BUILT_IN.blocks

FACTS: Mapping[str, Fact] = {
    name: Fact(**fact)
    for name, fact in yaml.load((HERE / "facts.yaml").read_text(encoding="utf-8"), LOADER).items()  # noqa: S506
}
"""What messages about runs say behind the limit, by name."""


def key(name: str, table: Table = BUILT_IN) -> str:
    """Return the key of config.yaml that a key may be meant for: ``KLHigh`` is a part of ``alerts.KL``."""
    first, dot, rest = name.removeprefix("alerts.").partition(".")
    blocks = {each.name: each.block.__name__ for each in table.alerts} | {each: each for each in table.blocks}
    return f"alerts.{blocks[first]}{dot}{rest}" if first in blocks else name
