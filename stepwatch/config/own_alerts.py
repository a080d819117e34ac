"""Alerts of users' own: entries in ``alerts.d/*.yaml`` beside config.yaml, as those of stepwatch/alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import yaml
from pydantic import ValidationError

from exporter.runs.signals import NAMES, PART_SIGNALS, SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATISTIC_HELP, STATISTICS, Hold, Statistic
from exporter.runs.stats.statistics import WINDOW
from stepwatch.alerts import identity, promql
from stepwatch.alerts.alert import OWN_LIMIT, Alert
from stepwatch.alerts.table import BUILT_IN, OWN, Entry, EntryError, Table, alerts
from stepwatch.config import reference
from stepwatch.config.yaml_document import Document
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem
from stepwatch.schema.scalars import instead, one_of
from stepwatch.schema.section import Section

FOLDER = "alerts.d"
UNITS = ("", "s", "B", *dict.fromkeys(signal.unit for signal in SIGNALS))
"""Units of limits: those of signals."""

_GRAFANA_UNITS = {"s": "s", "seconds": "s", "B": "bytes", "bytes": "bytes", "0 to 1": "percentunit"}

_BY_RUN = identity.written(identity.RUN)
_METRICS = frozenset(
    (
        *(family.name for family in RUN_FAMILIES),
        *(f"rl_{name}" for name in (*NAMES, *STATISTIC_HELP, *(part.name for part in PART_SIGNALS))),
        *("rl_raw", "rl_raw_keys_refused_total"),
        *("rl_run_gpu", "rl_gpu_clock_ratio", "rl_run_power_watts", "rl_alert_onset_step", "rl_firing"),
    )
)
"""Those of the run exporter, and what Prometheus records of runs."""

_RAW = re.compile(r'\braw\("([^"\\]*)"\)')
_STATISTIC = re.compile(r'\brl_(\w+)\{signal="([^"]*)"(?:,alpha="([^"]*)")?(?:,steps="([^"]*)")?\}')


def files(config: Path) -> list[Path]:
    """Return the files of users' alerts beside a configuration."""
    return sorted(path for path in (config.absolute().parent / FOLDER).glob("*.y*ml") if path.is_file())


def table(documents: Iterator[tuple[Path, Document]]) -> Table:
    """Return the table with the alerts of these files. Raises ConfigError with all problems of one."""
    own: list[Alert] = []
    for path, document in documents:
        problems = list(document.problems)
        for name, entry in document.values.items():
            found, faults = _read(name, entry, f"{FOLDER}/{path.name}:{document.line((name,))}", own)
            own += found
            problems += [Problem(document.line((name, *each.at)), each.below((name,))) for each in faults]
        if problems:
            raise ConfigError(str(path), problems)
    return Table({**BUILT_IN.groups, OWN: tuple(own)}) if own else BUILT_IN


def _read(name: str, entry: Any, source: str, before: list[Alert]) -> tuple[list[Alert], list[Fault]]:
    """Return the alerts of an entry, and what is wrong with it."""
    if not isinstance(entry, dict):
        says = "is not a mapping"
        return [], [Fault(says, expected="an alert", fix="write its keys below it", value=entry)]
    try:
        found = alerts(name, entry, source)
    except EntryError as error:
        model = Entry if error.error.title == Entry.__name__ else Alert
        return [], [fault.below(error.at) for fault in reference.faults(error.error, model)]
    wrong = (fault for alert in found for fault in _wrong(alert))
    return found, [*_taken(name, found, before), *_wrong_limits(found), *wrong]


def _taken(name: str, found: list[Alert], before: list[Alert]) -> Iterator[Fault]:
    """Yield a fault if another alert has its name."""
    taken = {alert.name for alert in (*BUILT_IN.alerts, *before)} | set(BUILT_IN.blocks)
    for each in dict.fromkeys((name, *(alert.name for alert in found))):
        if each in taken:
            yield Fault(
                f"{each} is another alert's name",
                expected="a name of its own",
                fix="rename it; limits of built-in alerts are changed under alerts in config.yaml",
                value=NOTHING,
            )


def _wrong(alert: Alert) -> Iterator[Fault]:
    """Yield what is wrong with the texts of an alert; promtool judges the PromQL itself."""
    if alert.severity is None and "severity" not in alert.block.model_fields:
        says, expected = "is missing", "critical, warning or info"
        yield Fault(says, expected=expected, fix="add it", at=("severity",), value=NOTHING)
    if alert.unit not in UNITS:
        yield Fault(
            "is not a unit of a signal",
            expected=one_of(UNITS[1:]),
            fix=instead(alert.unit, UNITS[1:]),
            at=("unit",),
            value=alert.unit,
        )
    yield from _wrong_conditions(alert)
    known = {key.path for key in reference.keys(alert.block)} - {"enabled", "severity", "for"}
    for at, text in _texts(alert):
        for key in sorted(promql.keys(text) - known - {OWN_LIMIT}):
            yield Fault(
                f"names the limit ${key}, which it does not have",
                expected=one_of([f"${each}" for each in sorted(known)]) if known else "a limit below limits",
                fix="add it to limits, with a default",
                at=at,
                value=text,
            )
        yield from (fault.below(at) for fault in _wrong_signals(text))


def _wrong_conditions(alert: Alert) -> Iterator[Fault]:
    """Yield the conditions with a signal or a value that nothing has."""
    raw = {key for _, text in _texts(alert) for key in _RAW.findall(text)}
    for index, each in enumerate(alert.conditions):
        if each.signal and each.signal not in raw and each.signal not in NAMES:
            yield Fault(
                "is not a signal",
                expected="a signal of docs/metrics.md, or a raw key of the condition",
                fix=instead(each.signal, [*raw, *NAMES]),
                at=("conditions", index, "signal"),
                value=each.signal,
            )
        if alert.subject == "run" and not promql.unknown_calls(each.value) and not _by_run(each.value):
            yield Fault(
                "has no value for each run",
                expected="a value by run, such as by_run(rl_epoch)",
                fix="use by_run(...), or name another subject",
                at=("conditions", index, "value"),
                value=each.value,
            )


def _by_run(text: str) -> bool:
    """Whether PromQL has a value for each run; what cannot be expanded is reported elsewhere."""
    try:
        return _BY_RUN in promql.expand(text, lambda _: "1")
    except (jinja2.TemplateError, TypeError, ValueError):
        return True


def _wrong_limits(alerts: list[Alert]) -> Iterator[Fault]:
    """Yield the limits of a block that no condition has, or whose default is not of their type."""
    block = alerts[0].block
    used = promql.keys(*(text for alert in alerts for _, text in _texts(alert)))
    for name in sorted(block.model_fields.keys() - used - {"enabled", "severity", "for_"}):
        if not isinstance(block.model_fields[name].default, Section):
            says, fix = "is in no condition", f"write ${name} where it counts, or delete it"
            yield Fault(says, expected=f"${name} in a condition", fix=fix, at=("limits", name), value=NOTHING)
    try:
        block.model_validate(block().plain())
    except ValidationError as error:
        for fault in reference.faults(error, block):
            at = ("limits", *fault.at[-1:], "default")
            yield Fault(fault.says, expected=fault.expected, fix=fault.fix, at=at, value=fault.value)


def _texts(alert: Alert) -> Iterator[tuple[KeyPath, str]]:
    """Yield each PromQL text of an alert, and where it stands in the entry."""
    texts: dict[KeyPath, str] = {("given",): alert.given, ("unless",): alert.unless}
    for index, each in enumerate(alert.conditions):
        at = ("conditions", index)
        texts |= {(*at, name): getattr(each, name) for name in ("value", "given", "unless")}
        texts[(*at, each.relation)] = each.limit
        if each.line:
            texts[(*at, "line")] = each.line.limit
    yield from ((at, text) for at, text in texts.items() if text)


def _wrong_signals(text: str) -> Iterator[Fault]:
    for name in promql.unknown_calls(text):
        yield Fault(
            f"calls {name}, which is neither a macro nor a function of PromQL",
            expected="macros as docs/alerts.md lists them, such as min_over(kl, 3)",
            fix=instead(name, promql.macro_names()),
            value=text,
        )
        return
    try:
        expanded = promql.expand(text, lambda _: "1")
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        yield Fault(
            f"cannot be expanded ({error})",
            expected="macros as docs/alerts.md lists them, such as min_over(kl, 3)",
            fix="correct the call",
            value=text,
        )
        return
    raw = set(_RAW.findall(text))
    for name in sorted(promql.metrics(expanded) - _METRICS):
        if name.startswith("rl_"):
            expected, fix = "a metric of docs/metrics.md", instead(name, _METRICS)
            yield Fault(f"reads {name}, which is not a metric", expected=expected, fix=fix, value=text)
    for name, signal, alpha, steps in _STATISTIC.findall(expanded):
        if name not in STATISTIC_HELP:
            continue
        if signal not in raw and signal not in NAMES:
            yield Fault(
                f"reads {signal}, which is not a signal",
                expected='a signal of docs/metrics.md, or a key of the trainer as raw("env/score")',
                fix=instead(signal, NAMES),
                value=text,
            )
        if steps and not (steps.isdigit() and 1 <= int(steps) <= WINDOW):
            yield Fault(
                f"looks at {steps} steps", expected=f"1 to {WINDOW} steps", fix="write a number", value=text
            )
        if alpha and not _is_share(alpha):
            yield Fault(
                f"smooths by {alpha}", expected="a share of 0 to 1, such as 0.1", fix="write one", value=text
            )


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


class Drawn(NamedTuple):
    """A panel of the dashboard Training: a signal of users' alerts, its unit, and the metric that has it."""

    signal: str
    unit: str
    metric: str
    labels: Mapping[str, str]
    alerts: str


def drawn(own: tuple[Alert, ...]) -> list[Drawn]:
    """Return the panels of users' alerts, one for each signal that they name."""
    found: dict[str, list[Alert]] = {}
    for alert in own:
        for each in alert.conditions:
            if each.signal and alert not in found.setdefault(each.signal, []):
                found[each.signal].append(alert)
    return [
        Drawn(
            signal,
            _GRAFANA_UNITS.get(alerts[0].unit, "short"),
            *((f"rl_{signal}", {}) if signal in NAMES else ("rl_raw", {"key": signal})),
            ", ".join(dict.fromkeys(alert.name for alert in alerts)),
        )
        for signal, alerts in found.items()
    ]


def looked_at(own: tuple[Alert, ...]) -> dict[str, Any]:
    """Return what the run exporter is to serve for alerts of users' own, as JSON."""
    listed = {each._replace(hold=Hold.NONE, at_least=None) for each in STATISTICS}
    statistics: dict[Statistic, Hold] = {}
    keys: dict[str, None] = {}
    drawn: dict[str, None] = {}
    for alert in own:
        values = {each.value: Hold.HIGH if each.operator[0] == ">" else Hold.LOW for each in alert.conditions}
        for _, text in _texts(alert):
            keys |= dict.fromkeys(_RAW.findall(text))
            for name, signal, alpha, steps in _STATISTIC.findall(promql.expand(text, lambda _: "1")):
                found = Statistic(name, signal, steps=int(steps) if steps else None, alpha=alpha or None)
                if name in STATISTIC_HELP and found not in listed:
                    hold = values.get(text, Hold.NONE) if steps else Hold.NONE
                    statistics[found] = hold if hold is not Hold.NONE else statistics.get(found, hold)
        drawn |= dict.fromkeys(each.signal for each in alert.conditions if each.signal)
    return {
        "statistics": [{**each._asdict(), "hold": hold.value} for each, hold in statistics.items()],
        "keys": list(keys),
        "drawn": list(drawn),
    }


def located(words: str, rules: bytes, own: tuple[Alert, ...]) -> str:
    """Return what promtool says of users' alerts, by their places in place of those of the rules."""
    found: list[dict[str, Any]] = yaml.safe_load(rules)["groups"][0]["rules"]
    sources = {alert.name: alert.source for alert in own}

    def place(match: re.Match[str]) -> str:
        rule = found[int(match[1]) - 1]
        name = rule.get("alert") or rule.get("labels", {}).get("alert", "")
        return f"{sources.get(name, FOLDER)}: {name}: {match[2]}"

    return re.sub(rf'\S*{OWN}\.yml: \S+ group "{OWN}", rule (\d+), "\w+": (.*)', place, words)
