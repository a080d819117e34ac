"""Every message with real data: ``python -m tests.alerts.golden`` writes messages.txt, for people to read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stepwatch.alerts.catalogue import TABLE
from stepwatch.rules.alerting import code_rules
from stepwatch.rules.messages import CODE_INFO, FIRING
from tests import real
from tests.alerts.configured import rules
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import proofs, rendered, variations
from tests.rules.catalogue import RULES as ABOUT_RUNS
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.variations import Phase

FILE = Path(__file__).with_name("messages.txt")

RUN = "ppo/gsm8k"
_NUMBER = re.compile(r"(?<!Xid )(?<!recovery )-?\d[\d.]*[kMGT]?i?")

LOOK = 37
"""A second by which every rule about a run has decided."""

_ALL = rules(rendered.EVERYTHING)


def text(promtool: Path) -> str:
    """Return the messages of every alert, in the order of the table: one for each condition."""
    found = [rule for rule in _ALL if "alert" in rule]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        return "\n".join(pool.map(lambda rule: _entry(promtool, Path(folder), rule), found))


def _entry(promtool: Path, folder: Path, rule: dict[str, Any]) -> str:
    name = proofs.named(rule)
    looked_up = [
        each
        for each in (*_ALL, *code_rules(TABLE))
        if each.get("labels", {}).get("rule") == name
        or (each.get("record") == CODE_INFO and CODE_INFO in rule["annotations"]["description"])
        or each.get("record") == FIRING
    ]
    files = [
        unit.write(folder, f"{name}{number}", [*looked_up, rule], [group])
        for number, group in enumerate(_groups(rule))
    ]
    seen = [alert.annotations for alert in unit.seen(promtool, *files)]
    lines = [f"{name}: {rule['annotations']['summary']}"]
    lines += _different(each["description"] for each in seen)
    lines += _different(f"First: {each['action']}" for each in seen)
    return "".join(f"{'  ' * bool(number)}{line}\n" for number, line in enumerate(lines))


def _different(texts: Iterable[str]) -> Iterable[str]:
    """Texts that differ in more than numbers, the first of each."""
    found: dict[str, str] = {}
    for each in texts:
        found.setdefault(_NUMBER.sub("", each), each)
    return found.values()


def _groups(rule: dict[str, Any]) -> Iterator[Group]:
    """Each condition, at a moment at which it holds; nothing is expected, so that promtool shows it."""
    name, look = rule["alert"], (rule["alert"], rule["labels"]["severity"])
    for each in ABOUT_RUNS:
        for condition in each.conditions if (each.alert, each.severity) == look else ():
            values = {h.LAST_STEP_AT: -1000, **condition.sick}
            series = variations.samples(RUN, (Phase(0, values),), list(HEALTHY), until=LOOK)
            yield Group("message", series, [Moment(LOOK, {name: []})])
    for scenario in proofs.scenarios().get(proofs.named(rule), ()):
        at, fired = max(scenario.alerts.items(), key=lambda moment: len(moment[1]))
        if fired:
            yield Group(scenario.name, scenario.series, [Moment(at, {name: []})], interval=scenario.interval)


if __name__ == "__main__":
    FILE.write_text(text(real.prometheus("3.13").tool))
