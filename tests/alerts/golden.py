"""Messages with real data: ``python -m tests.alerts.golden [ALERT ...]`` writes them for people to read."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stepwatch.alerts.table import TABLE
from stepwatch.config.deployment import InContainers
from stepwatch.languages import ENGLISH, LANGUAGES
from stepwatch.rules import alerting
from tests import real
from tests.alerts.configured import config
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import proofs, rendered, variations
from tests.rules.catalogue import RULES as ABOUT_RUNS
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.variations import Phase

FILES = {
    language: Path(__file__).with_name(f"messages{'' if language == ENGLISH else f'.{language}'}.txt")
    for language in LANGUAGES
}

SAMPLE = {
    *("RewardCollapse", "RewardStagnation", "KLSequenceHigh", "EntropyCollapse", "NonFinite", "Stalled"),
    *("RunFailed", "RunFinished", "NeverStarted", "GPULost", "GPUXid", "GPURecoveryNeeded", "GPUHot"),
    *(
        "PCIeDegraded",
        "EngineGone",
        "RayNodeLost",
        "HostMemory",
        "DiskLow",
        "ExporterDown",
        "GPUExporterStale",
    ),
    *("NotificationFailures", "Watchdog", "NodeLost", "AgentBacklog", "InfiniBandErrors"),
}
"""Alerts that have each kind of text and each subject: all of them in each language would take a minute."""

RUN = "ppo/gsm8k"
_NUMBER = re.compile(r"(?<!Xid )(?<!recovery )-?\d[\d.]*[kMGT]?i?")

LOOK = 37
"""A second by which every rule about a run has decided."""


def text(promtool: Path, language: str = ENGLISH, only: Collection[str] = ()) -> str:
    """Return the messages of alerts, in the order of the table: one for each condition.

    In English of every alert, in another language of a sample. With names of alerts, all others are as they
    were written last: all take a minute.
    """
    settings = config({**rendered.EVERYTHING, "language": language})
    every = [*alerting.rules(settings, InContainers(), TABLE)]
    every += alerting.code_rules(alerting.translated(TABLE, settings))
    found = [rule for rule in every if "alert" in rule and (language == ENGLISH or rule["alert"] in SAMPLE)]
    written = FILES[language].read_text().removesuffix("\n").split("\n\n") if only else []
    known = {each.partition(":")[0]: f"{each}\n" for each in written if each.partition("-")[0] not in only}

    def entry(rule: dict[str, Any]) -> str:
        return known.get(proofs.named(rule)) or _entry(promtool, Path(folder), rule, every)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        return "\n".join(pool.map(entry, found))


def _entry(promtool: Path, folder: Path, rule: dict[str, Any], every: list[dict[str, Any]]) -> str:
    name = proofs.named(rule)
    records = [each for each in every if "record" in each]
    files = [
        unit.write(
            folder, f"{name}{number}", [*rendered.looked_up(rule, records, group.series), rule], [group]
        )
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
    for language, file in FILES.items():
        file.write_text(text(real.prometheus("3.13").tool, language, sys.argv[1:]))
