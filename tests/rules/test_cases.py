"""Each rule speaks when its cases say so, and only then, whichever way a run or a part is seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from tests import real
from tests.rules import promtool as unit
from tests.rules import proofs, rendered, servers, stack, variations
from tests.rules.cases import Rule
from tests.rules.catalogue import RULES
from tests.rules.promtool import Group, Moment
from tests.rules.series import EXPORTER, OTHER_EXPORTER


@pytest.mark.parametrize("name", proofs.rules())
def test_fires_as_its_cases_say(name: str, promtool: Path, tmp_path: Path) -> None:
    rule, every = proofs.rules()[name], attrgetter("interval")
    files = [
        unit.write(tmp_path, f"every-{interval}", unit.silently(rendered.whole(rule)), groups)
        for interval, groups in groupby(sorted(proofs.groups(rule), key=every), every)
    ]
    unit.check(promtool, *files)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_fires_once_for_a_run_that_two_exporters_see(rule: Rule, promtool: Path, tmp_path: Path) -> None:
    expected = rendered.rule(rule.alert, rule.severity)
    cases = variations.limits(rule)
    group = variations.still("two exporters", rule, expected, cases, (EXPORTER, OTHER_EXPORTER))
    unit.check(promtool, unit.write(tmp_path, "rule", unit.silently(rendered.whole(expected)), [group]))


OTHERS = [name for name, found in proofs.scenarios().items() if "rl_" in str([each.series for each in found])]
"""Rules about GPUs, servers and the stack that look at runs as well."""


@pytest.mark.parametrize("name", OTHERS)
def test_fires_alike_where_two_exporters_see_the_runs(name: str, tmp_path: Path) -> None:
    rule, every = proofs.rules()[name], attrgetter("interval")
    own, other = (f'instance="{each["instance"]}"' for each in (EXPORTER, OTHER_EXPORTER))

    def twice(group: Group) -> Group:
        runs = {
            key.replace(own, other): value for key, value in group.series.items() if key.startswith("rl_")
        }
        return replace(group, series={**runs, **group.series})

    files = [
        unit.write(tmp_path, f"every-{interval}", unit.silently(rendered.whole(rule)), map(twice, groups))
        for interval, groups in groupby(sorted(proofs.groups(rule), key=every), every)
    ]
    unit.check(real.prometheus("3.13").tool, *files)


def test_where_there_are_no_engines_no_ray_and_no_machines_nothing_fires(
    promtool: Path, tmp_path: Path
) -> None:
    rules = [rule for group in ("rollout", "ray", "host") for rule in rendered.rules(group)]
    series = {stack.EXPORTER_UP: stack.UP, servers.RUN: stack.UP, stack.POLLED: "0+5x200"}
    nothing = {rule["alert"]: [] for rule in rules}
    group = Group("bare", series, [Moment(at, nothing) for at in (2, 62, 302, 902)])
    unit.check(promtool, unit.write(tmp_path, "bare", unit.silently(rules), [group]))
