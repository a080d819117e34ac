"""Messages about runs have no holes where a trainer logs little, and lead to their run."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pytest

from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import rendered, variations
from tests.rules.cases import Condition, Rule
from tests.rules.catalogue import RULES
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Alert, Group, Moment
from tests.rules.series import Series
from tests.rules.variations import Phase

AWKWARD = '实验/a b"c'
LOOK = 37
"""A second by which every rule about a run has decided."""

HOLES = ("<no value>", "%!", "?", "NaN", "error calling")

OPTIONAL: dict[str, tuple[Series, ...]] = {
    "RewardDrop": (h.REWARD_DRAWDOWN_20, h.REWARD_MAX_5, h.REWARD_MEAN_32, h.TOTAL_STEPS),
    "RewardCollapse": (h.REWARD_MAX_20, h.REWARD_RANGE_20, h.HIGHEST_20, h.SAMPLES_RANGE_20),
    "NoLearningSignal": (h.REWARD_MAX_32, h.REWARD_RANGE_32, h.REWARD_MEDIAN_32, h.ZERO_STD),
    "ValidationDrop": (h.REWARD, h.REWARD_MEAN, h.REWARD_BEST),
    "RewardHackSuspect": (h.VALIDATION_MAX, h.VALIDATION_BEST, h.VALIDATION_NOISE),
    "CriticDiverged": (h.VALUE_LOSS, h.VALUE_LOSS_USUAL),
    "RolloutMismatch": (h.PROB_ERROR_MIN, h.CORRELATION_MAX, h.ENGINE_KL_MIN),
    "EntropyCollapse": (h.REWARD, h.REWARD_BEST, h.REWARD_LOST, h.GAIN),
    "LengthRunaway": (h.TRUNCATED, h.TRUNCATED_MEAN_5, h.TRUNCATED_START),
    "LengthCollapse": (h.REWARD, h.REWARD_BEST, h.REWARD_LOST),
    "SlowSteps": (h.TOTAL_STEPS, h.SPEED, h.SPEED_USUAL, h.SECONDS_PER_TOKEN, h.SECONDS_PER_TOKEN_USUAL),
    "Stalled": (h.TOTAL_STEPS, h.STEP_INTERVAL),
    "RunFailed": (h.TOTAL_STEPS, h.EXIT),
    "RunVanished": (h.EXIT,),
    "RunStopped": (h.EXIT,),
    "RunFinished": (h.TOTAL_STEPS, h.REWARD_BEST),
}
"""What a trainer may not log, or not yet, while the alert fires all the same."""


CONDITIONS = [(rule, condition) for rule in RULES for condition in rule.conditions]


def _written(
    promtool: Path, folder: Path, conditions: list[tuple[Rule, Condition]], missing: tuple[Series, ...] = ()
) -> list[Alert]:
    """The message of each condition, one after the other."""
    files = []
    for rule, condition in conditions:
        values = {h.LAST_STEP_AT: -1000, **condition.sick, **dict.fromkeys(missing)}
        series = variations.samples(AWKWARD, (Phase(0, values),), list(HEALTHY), until=LOOK)
        group = Group("message", series, [Moment(LOOK, {rule.alert: []})])
        name = f"{len(files)}"
        found = rendered.rule(rule.alert, rule.severity)
        records = rendered.looked_up(found, rendered.recorded("rl"), series)
        files.append(unit.write(folder, name, [*records, found], [group]))
    return unit.seen(promtool, *files)


def _holes(alert: Alert) -> list[str]:
    text = f"{alert.annotations['summary']} {alert.annotations['description']}".replace("NaN or Inf", "")
    return [hole for hole in HOLES if hole in text]


@pytest.mark.parametrize("alert", OPTIONAL)
def test_message_leaves_out_what_the_trainer_does_not_log(alert: str, promtool: Path, tmp_path: Path) -> None:
    first = [next((rule, rule.conditions[0]) for rule in RULES if rule.alert == alert)]
    (written,) = _written(promtool, tmp_path, first, OPTIONAL[alert])
    assert not _holes(written), written.annotations["description"]


def test_links_lead_to_the_run_whatever_its_name_from_its_start(promtool: Path, tmp_path: Path) -> None:
    for alert in _written(promtool, tmp_path, CONDITIONS):
        name, notes = alert.labels["alertname"], alert.annotations
        assert notes["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        shown = urllib.parse.urlsplit(notes["dashboard_url"])
        assert shown.path == "/d/stepwatch-training"
        assert urllib.parse.unquote(shown.query) == f"var-run={AWKWARD}&from=-20000000&to=now"
        assert notes["dashboard_url"].isascii()
        assert not set(' +"') & set(notes["dashboard_url"])
