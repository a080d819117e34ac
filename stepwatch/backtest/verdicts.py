"""``python -m stepwatch verdicts``: verdicts on alerts, and limits that would have avoided false alarms."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exporter.runs.light.verdicts import WORDS, Verdict
from stepwatch.backtest.command import prepared
from stepwatch.backtest.replay import Progress, find
from stepwatch.backtest.suggestions import Suggestion, Trial, Value, limits
from stepwatch.config import Config
from stepwatch.config.loading import load
from stepwatch.config.yaml_document import parse
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.terminal import Say

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Proposal:
    """A limit for one run with which an alert would not have fired on it.

    Attributes:
        run: The run.
        alert: The alert.
        key: The limit's key, as `--set` takes it: ``alerts.KL.critical``.
        now: What the limit is.
        value: What it would be.
    """

    run: str
    alert: str
    key: str
    now: Value
    value: Value

    @property
    def override(self) -> JsonObject:
        """The item of `overrides` in config.yaml."""
        value: Any = self.value
        for key in reversed(self.key.split(".")[1:]):
            value = {key: value}
        return {"runs": re.sub(r"[][*?]", "?", self.run), "alerts": value}

    @property
    def line(self) -> str:
        """The same as a line of YAML."""
        return f"- {_flow(self.override)}"


def verdicts(options: argparse.Namespace, config: Path, say: Say) -> int:
    """Print verdicts on alerts, and limits that would have avoided false alarms; ``write`` adds these.

    Returns:
        0; 1 if there is nothing to propose for a false alarm.

    Raises:
        Refused: The run exporter does not answer, or config.yaml cannot be changed.
    """
    settings = load(config)
    exporter = f"http://{settings.address('exporter')}"
    page = http_client.require("The run exporter", exporter, "/api/v1/verdicts")
    given = [Verdict(**each) for each in json.loads(page)["verdicts"]]
    if not given:
        say("No alert has been judged yet. Each message about a run links to the question.")
        return 0
    for verdict in given:
        since = time.strftime(" since %F %T", time.localtime(verdict.since)) if verdict.since else ""
        note = f" ({verdict.note})" if verdict.note else ""
        say(f"{WORDS[verdict.verdict]}: {verdict.alert} on {verdict.run}{since}{note}")
    code = 0
    wanted: list[Proposal] = []
    for run, alerts in _false(given).items():
        for alert, found in _proposals(run, alerts, settings):
            say(f"\n{alert} on {run}:")
            if isinstance(found, str):
                say(f"  no proposal: {found}")
                code = 1
                continue
            say(f"  {found.key}: {found.now:g} -> {found.value:g} would not have fired on this run's log.")
            say(f"  In config.yaml, under overrides:\n    {found.line}")
            wanted.append(found)
    if wanted and options.write:
        add(config, wanted)
        say(f"\nAdded to {config}. Fix: apply them with `make up`.")
    elif wanted:
        say("\nTo write them to config.yaml: --write.")
    return code


def _false(given: Sequence[Verdict]) -> dict[str, dict[str, bool]]:
    """By run, the alerts that were false; with whether the same was right there another time."""
    right = {(each.run, each.alert) for each in given if each.verdict != "false_alarm"}
    found: dict[str, dict[str, bool]] = {}
    for each in given:
        if each.verdict == "false_alarm":
            found.setdefault(each.run, {})[each.alert] = (each.run, each.alert) in right
    return found


def _proposals(run: str, alerts: dict[str, bool], config: Config) -> Iterator[tuple[str, Proposal | str]]:
    """Yield for each alert the limit that would have avoided it, or why there is none."""
    names = find([str(config.runs.path)], config.runs.path).found
    logs = [str(found.path) for name, found in names if name == run]
    for alert, right in alerts.items():
        if right:
            yield alert, "the same alert was judged right on this run at another time"
        elif not logs:
            yield alert, f"the run's log is no longer below {config.runs.path}"
    judged = [alert for alert, right in alerts.items() if logs and not right]
    if not judged:
        return
    with prepared(logs, config, 1, Progress()) as loaded:
        trial = Trial(loaded.prometheus, config)
        tried = list(trial.suggestions(list(limits(config)), lambda: None))
    for alert in judged:
        of_alert = [each for each in tried if each.alert == alert]
        fired = any(run in each.fires_on for each in of_alert)
        choices = [found for each in of_alert for found in _quiet(each, run)]
        if choices:
            yield alert, min(choices, key=lambda each: abs(each.value - each.now) / each.now)
        elif fired:
            yield alert, "no single limit, from 1/8 to 8 times its value, avoids it"
        else:
            yield alert, "with today's limits it does not fire on this run's log"


def _quiet(tried: Suggestion, run: str) -> Iterator[Proposal]:
    for change in (tried.lower, tried.higher):
        if change and run in change.no_longer:
            yield Proposal(run, tried.alert, tried.limit, tried.now, change.value)


def add(config: Path, proposals: Sequence[Proposal]) -> None:
    """Add overrides to a configuration file, of which all else stays as it is written.

    Raises:
        Refused: They cannot be added without touching what is there, or the file would not be valid.
    """
    file = config.resolve()
    text = file.read_text(encoding="utf-8")
    lines, items = [each.line for each in proposals], [each.override for each in proposals]
    changed = _added(text, lines)
    before: JsonObject = parse(text, str(file)).values or {}
    after = {**before, "overrides": [*(before.get("overrides") or []), *items]}
    if changed is None or parse(changed, str(file)).values != after:
        by_hand = "\n  ".join(lines)
        raise Refused(
            f"{config} was not changed: its overrides are not a list with a line for each item. "
            f"Fix: add by hand:\n  {by_hand}"
        )
    fresh = file.with_name(f".{file.name}.new")  # beside it: paths in it are relative
    try:
        fresh.write_text(changed, encoding="utf-8")
        shutil.copymode(file, fresh)
        load(fresh)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _added(text: str, lines: Sequence[str]) -> str | None:
    """The text with these items at the end of its overrides; None if those are not a list of lines."""
    root = yaml.compose(text, yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    if isinstance(root, yaml.MappingNode) and root.flow_style:
        return None
    node = next((value for key, value in pairs if key.value == "overrides"), None)
    written = text.splitlines()
    if node is None:
        return "\n".join([*written, "", "overrides:", *(f"  {line}" for line in lines), ""])
    if not isinstance(node, yaml.SequenceNode) or node.flow_style or not node.value:
        return None
    # A block ends where the next thing begins: comments before that are not of the list.
    last = node.end_mark.line
    while not written[last - 1].strip() or written[last - 1].lstrip().startswith("#"):
        last -= 1
    written[last:last] = [f"{' ' * node.start_mark.column}{line}" for line in lines]
    return "\n".join([*written, ""])


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(inside)}' for key, inside in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)
