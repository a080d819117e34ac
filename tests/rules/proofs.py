"""Every rule with its cases, from all modules of cases."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests import rules as package
from tests.rules import rendered, states, variations
from tests.rules.cases import Rule
from tests.rules.catalogue import RULES
from tests.rules.promtool import Group
from tests.rules.stack import Scenario

JsonObject = dict[str, Any]


def named(rule: JsonObject) -> str:
    """Unique among the rules."""
    return f"{rule['alert']}-{rule['labels']['severity']}"


def rules() -> dict[str, JsonObject]:
    """Every rule of every group, by name, with the default limits."""
    return {named(rule): rule for group in rendered.groups() for rule in rendered.rules(group)}


def groups(rule: JsonObject) -> list[Group]:
    """The cases of a rule, the shortest first; none if none are written."""
    of_runs = (group for each in RULES if str(each) == named(rule) for group in _about_runs(each, rule))
    others = scenarios().get(named(rule), ())
    of_others = (scenario.group(rule["alert"], rule["labels"]) for scenario in others)
    return sorted([*of_runs, *of_others], key=lambda group: group.evaluations)


def _about_runs(rule: Rule, rendered: JsonObject) -> Iterator[Group]:
    yield variations.still("limits", rule, rendered, variations.limits(rule))
    yield variations.over_time(rule, rendered)
    if rule.alert in states.ALERTS:
        yield from (group.about(rule.alert) for group in [*states.quick(), *states.lasting()])


def cases() -> set[str]:
    """The names of the rules that cases are about."""
    return {*map(str, RULES), *scenarios()}


@functools.cache
def scenarios() -> dict[str, tuple[Scenario, ...]]:
    """The scenarios of every module beside this one that has some, by the name of their rule."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules().values()}
    return {
        "-".join((key, severities.get(key, "")) if isinstance(key, str) else key): found
        for module in _modules()
        for key, found in getattr(module, "SCENARIOS", {}).items()
    }


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith(("_", "test_", "conftest")):
            yield importlib.import_module(f"{package.__name__}.{module.name}")
