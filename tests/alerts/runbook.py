"""What docs/runbook.md takes from tables: ``python -m tests.alerts.runbook`` regenerates it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stepwatch.alerts.alert import Alert, Codes, Condition, Explanation
from stepwatch.alerts.incidents import PAIRS
from stepwatch.alerts.promql import is_number
from stepwatch.alerts.table import TABLE
from stepwatch.config import Config
from stepwatch.config.reference import keys

PAGE = Path(__file__).parents[2] / "docs/runbook.md"

_ENTRY = re.compile(r"(?<=^### )(\w+)\n\n(?:<!-- table -->\n(?:.*\n)*?<!-- end -->\n\n)?", re.MULTILINE)
_INCIDENTS = re.compile(r"(?<=^<!-- incidents -->\n)(?:\|.*\n)*", re.MULTILINE)


def page(text: str) -> str:
    """Return the page with the pairs of incidents, and what the table says below each alert's heading."""
    entries = _Entries({key.path: key.default for key in keys(Config)})
    text = _INCIDENTS.sub(lambda _: "".join(_incidents()), text)
    return _ENTRY.sub(lambda found: f"{found[1]}\n\n{entries.of(found[1])}", text)


def _incidents() -> Iterator[str]:
    yield "| while this fires | no notification of | of the same | because |\n|---|---|---|---|\n"
    for pair in PAIRS:
        cause, effect, same = _matched(pair.cause), _matched(pair.effect), ", ".join(pair.same) or "stack"
        yield f"| {cause} | {effect} | {same} | {pair.why} |\n"


def _matched(matchers: tuple[str, ...]) -> str:
    """Matchers of Alertmanager for people: alerts by name, other labels as they are."""
    found = []
    for matcher in matchers:
        label, operator, value = re.fullmatch(r'(\w+)(\W+)"(.+)"', matcher).groups()  # type: ignore[union-attr]
        if label != "alertname":
            found.append(f"`{matcher}`".replace("|", "\\|"))
        else:
            found.append(f"{'all but ' if operator.startswith('!') else ''}{value.replace('|', ', ')}")
    return ", ".join(found)


def _codes(codes: Codes) -> Iterator[str]:
    yield f"| {codes.label} | meaning | first |\n|---|---|---|\n"
    alike: dict[Explanation, list[str]] = {}
    for code, text in codes.texts.items():
        alike.setdefault(text, []).append(str(code))
    for (meaning, action), found in alike.items():
        first = action.replace("{gpu}", "N").replace("|", "\\|")
        yield f"| {', '.join(found)} | {meaning} | {first} |\n"
    yield "\n"


def _above(alert: Alert) -> str:
    return f"alerts.{alert.block.__name__}."


class _Entries:
    """What the table says of each alert, with the defaults of the configuration."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        self._defaults = defaults

    def of(self, name: str) -> str:
        """Return what stands below the heading of an alert; nothing if no rule raises it."""
        alerts = [alert for alert in TABLE if alert.name == name and alert.conditions]
        if not alerts:
            return ""
        said = "".join(line for alert in alerts for line in self._lines(alert))
        codes = "".join(_codes(alerts[0].codes)) if alerts[0].codes else ""
        return f"<!-- table -->\n{said}{codes}<!-- end -->\n\n"

    def _lines(self, alert: Alert) -> Iterator[str]:
        block = alert.block.__name__
        severity = alert.severity or self._defaults[f"alerts.{block}.severity"]
        off = "" if self._defaults[f"alerts.{block}.enabled"] == "true" else ", off by default"
        yield f"*{alert.summary}* ({severity}{off})\n\n"
        rows = dict.fromkeys(self._rows(alert))
        if any(limit for _, _, limit in rows):
            yield f"| value | fires | limits below `alerts.{block}`, and their defaults |\n|---|---|---|\n"
            yield from (f"| {' | '.join(row)} |\n" for row in rows)
        else:
            yield from (f"- {value}\n" for value, _, _ in rows)
        yield f"\nFirst: {alert.action.replace('{gpu}', 'N')}.\n\n"

    def _rows(self, alert: Alert) -> Iterator[tuple[str, str, str]]:
        for each in alert.conditions:
            operator = f"`{each.operator}`" if alert.verb else ""
            yield self._measured(alert, each), operator, self._limit(alert, each)
        if guards := alert.keys.difference(*(each.keys for each in alert.conditions)):
            yield "in each case", "", self._keys(alert, guards)
        key = f"alerts.{alert.block.__name__}.for"
        if key in self._defaults:
            yield "for", "", f"`for` {self._defaults[key]}"
        elif alert.wait:
            yield "for", "", alert.wait

    def _measured(self, alert: Alert, condition: Condition) -> str:
        measured = re.sub(r"\$(\w+)", lambda found: self._default(alert, found[1]), condition.measured)
        return measured.format("N").rstrip(",:").replace("|", "\\|")

    def _limit(self, alert: Alert, condition: Condition) -> str:
        number = condition.limit if is_number(condition.limit) and alert.verb else ""
        said = "; ".join(filter(None, (number, self._keys(alert, condition.keys))))
        return f"{said} ({condition.baseline})".strip() if condition.baseline else said

    def _keys(self, alert: Alert, found: frozenset[str]) -> str:
        own = (key.removeprefix(_above(alert)) for key in self._defaults if key.startswith(_above(alert)))
        return ", ".join(self._with_default(alert, key) for key in own if key in found)

    def _with_default(self, alert: Alert, key: str) -> str:
        default = self._default(alert, key)
        if default == "null":
            return f"`{key}` off"
        is_number = re.fullmatch(r"-?[\d.]+", default)
        unit = f" {alert.unit_of(key)}" if is_number and alert.unit_of(key) != "share" else ""
        return f"`{key}` {default}{unit.rstrip()}"

    def _default(self, alert: Alert, key: str) -> str:
        return self._defaults[_above(alert) + key].strip('"')


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
