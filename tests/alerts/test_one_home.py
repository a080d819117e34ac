"""A default has one home: what changes it changes every reader of it, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from zlib import crc32

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from stepwatch.alerts.alert import Alert
from stepwatch.alerts.table import BLOCKS, TABLE
from stepwatch.config import Config
from stepwatch.config.deployment import InContainers
from stepwatch.config.reference import scalar
from stepwatch.render.generator import render_all
from stepwatch.render.panels import FILE
from stepwatch.rules import lines
from stepwatch.rules.alerting import rules
from stepwatch.rules.messages import LIMIT
from stepwatch.schema.scalars import Duration, Size
from stepwatch.schema.section import Section
from stepwatch.system.environment import CHECKOUT
from tests.alerts import runbook
from tests.config import documentation
from tests.grafana.queries import panels_of

DASHBOARDS = PurePosixPath("grafana/generated/dashboards")


@dataclass(frozen=True)
class Default:
    """A default below `alerts`: a number, a time, a size, a list of codes, or a limit that is off.

    Attributes:
        block: The block of the alert.
        path: The keys within it, as the models name them.
        field: Where it is written.
    """

    block: str
    path: tuple[str, ...]
    field: FieldInfo

    @property
    def key(self) -> str:
        """The key within the block as config.yaml has it."""
        return ".".join((*self.path[:-1], self.field.alias or self.path[-1]))

    @property
    def other(self) -> Any:
        """Another value that the configuration accepts."""
        for value in _others(self.field.default):
            if value == self.field.default:
                continue
            try:
                self.config(value)
            except ValidationError:
                continue
            return value
        raise AssertionError(f"{self.block}.{self.key}: no other value is accepted")

    def config(self, value: Any) -> Config:
        """Return the configuration with all alerts on, and this value."""
        block: dict[str, Any] = {"enabled": True}
        inside = block
        for each in self.path[:-1]:
            inside = inside.setdefault(each, {})
        inside[self.key.rpartition(".")[2]] = value
        return Config.model_validate({"alerts": {**ON, self.block: block}})

    def readers(self) -> Iterator[Alert]:
        """Yield the alerts that the default is for."""
        for alert in TABLE:
            waits = self.key == "for" and alert.conditions
            if alert.block is BLOCKS[self.block] and (self.key in alert.keys or waits):
                yield alert


def _others(value: Any) -> Iterator[Any]:
    match value:
        case Duration():
            yield from (Duration(2 * value.milliseconds), Duration(value.milliseconds // 2))
        case Size():
            yield Size.parse("3GB")
        case tuple():
            yield value[1:]
        case None:
            yield 0.5
        case _:
            yield from (value * 2, value / 2, value + 1, value * 1.05, value * 0.95, value + 0.5)


def _defaults(block: str, section: type[Section], above: tuple[str, ...] = ()) -> Iterator[Default]:
    for name, field in section.model_fields.items():
        if isinstance(field.default, Section):
            yield from _defaults(block, type(field.default), (*above, name))
        elif not isinstance(field.default, bool | str):
            yield Default(block, (*above, name), field)


ON: Mapping[str, Any] = {name: {"enabled": True} for name in BLOCKS}
DEFAULTS = {
    f"{name}.{default.key}": default for name, block in BLOCKS.items() for default in _defaults(name, block)
}


def fires(config: Config) -> dict[str, list[Any]]:
    """When each alert fires, and the limits with which it compares."""
    found: dict[str, list[Any]] = {}
    for rule in rules(config, InContainers(), TABLE):
        name = rule.get("alert") or rule.get("labels", {}).get("alert")
        found.setdefault(name, []).append((rule["expr"], rule.get("for")))
    return found


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The keys under which two mappings differ."""
    return {key for key in {*before, *now} if before.get(key) != now.get(key)}


def entries(text: str) -> dict[str, str]:
    """The entries of a runbook by alert."""
    return {entry.partition("\n")[0]: entry for entry in text.split("\n### ")[1:]}


BEFORE = fires(Config.model_validate({"alerts": ON}))
SAMPLED = 4
"""One default of so many is tried by `make test`; the others take a minute of a processor."""


def _sampled(key: str) -> Any:
    return key if crc32(key.encode()) % SAMPLED == 0 else pytest.param(key, marks=pytest.mark.world)


@pytest.mark.parametrize("key", [_sampled(key) for key in DEFAULTS])
def test_a_default_is_changed_in_one_place_for_rules_and_documents(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = DEFAULTS[key]
    value, about = default.other, list(default.readers())
    names = {alert.name for alert in about}
    assert names

    assert changed(BEFORE, fires(default.config(value))) == names

    monkeypatch.setattr(default.field, "default", value)
    reference = documentation.PAGE.read_text()
    rows = set(documentation.page(reference).splitlines()) - set(reference.splitlines())
    assert [row.split("`")[1:4:2] for row in rows] == [[f"alerts.{key}", scalar(value)]]
    text = runbook.PAGE.read_text()
    assert changed(entries(text), entries(runbook.page(text))) == names


def test_lines_of_a_signal_differ_in_name_or_severity() -> None:
    optional = {
        "KL": {"warning": {"above": 0.1}, "critical": {"above": 15}},
        "Reward": {"warning": {"below_mean_ratio": 0.2}, "critical": {"below_mean_ratio": 0.4}},
        "GradNormHigh": {"warning": {"above": 10}},
        "LengthRunaway": {"warning": {"above": 4000}},
    }
    found = lines.lines(Config.model_validate({"alerts": optional}), TABLE)
    names = [(line.signal, line.name, line.severity) for line in found]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("key", "value", "drawn"),
    [
        ("KL.warning.above_start", 0.25, {"page", "training"}),
        ("GPUHot.margin", 7, {"gpu"}),
        ("Stalled.silence", "20m", {"training"}),
        ("Restarting.restarts", 1, set()),
    ],
)
def test_a_limit_moves_its_line_wherever_it_is_drawn(key: str, value: object, drawn: set[str]) -> None:
    before = Config.model_validate({"alerts": ON})
    assert changed(_drawn(before), _drawn(DEFAULTS[key].config(value))) == drawn


def _drawn(config: Config) -> dict[str, set[str]]:
    """What the light page and each dashboard draw as limits: PromQL, or a number that colours."""
    files = render_all(config, CHECKOUT, lambda _: InContainers(), ("grafana", "exporter"))
    page = json.loads(files[FILE])["panels"]
    found = {"page": {limit["promql"] for panel in page for limit in panel["limits"]}}
    for path, text in files.items():
        if path.parent == PurePosixPath("grafana/generated/dashboards"):
            found[path.stem] = {
                json.dumps([each["targets"], each["fieldConfig"]["defaults"]["thresholds"]]).replace("\\", "")
                for each in panels_of(json.loads(text))
            }
    for rule in rules(config, InContainers(), TABLE):
        if rule.get("record") == LIMIT and "condition" in rule["labels"]:  # is drawn where it is asked for
            known = ",".join(
                f'{label}="{rule["labels"][label]}"' for label in ("alert", "severity", "condition")
            )
            for drawn in found.values():
                drawn |= {f"{known}: {rule['expr']}" for text in list(drawn) if known in text}
    return found
