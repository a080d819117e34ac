"""presets/classic.yaml: a whole configuration that fires at the numbers of tutorials."""

from __future__ import annotations

from pathlib import Path

import yaml

from stepwatch.config import load
from stepwatch.config.models import Alerts
from stepwatch.generate import main
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import rendered, variations
from tests.rules.cases import Values
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.variations import Phase

CLASSIC = rendered.CHECKOUT / "presets" / "classic.yaml"
SETTINGS = yaml.safe_load(CLASSIC.read_text())
LOOK = 17

FIRES: dict[str, tuple[str, Values]] = {
    "KL above 0.1": ("KLHigh", {h.KL_MIN_5: 0.101}),
    "KL above 15": ("KLExplosion", {h.KL_MIN: 15.01, h.KL_MIN_5: 15.01, h.KL_START: 15}),
    "reward 21 % below its mean": ("RewardDrop", {h.REWARD_MAX_5: 0.79, h.REWARD_MEAN_32: 1}),
    "KL above 0.2 between updates": ("PolicyKLHigh", {h.POLICY_KL_MIN: 0.201, h.POLICY_KL_START: 0.2}),
}
SILENT: dict[str, Values] = {
    "KL at 0.1": {h.KL_MIN_5: 0.1},
    "reward 20 % below its mean": {h.REWARD_MAX_5: 0.8, h.REWARD_MEAN_32: 1},
    "KL at 0.2 between updates": {h.POLICY_KL_MIN: 0.2, h.POLICY_KL_START: 0.2},
}


def test_the_preset_is_a_whole_configuration_and_changes_alerts_only(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(CLASSIC.read_bytes())

    config = load(tmp_path / "config.yaml")

    assert SETTINGS.keys() == {"alerts"}
    assert config.alerts == Alerts.model_validate(SETTINGS["alerts"])
    assert main(["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")]) == 0


def test_the_preset_fires_at_the_numbers_of_tutorials(promtool: Path, tmp_path: Path) -> None:
    quiet: Values = {h.KL_MIN: 0.0625, h.KL_MIN_5: 0.0625, h.KL_START: 0.0625}
    runs = {**{name: values for name, (_, values) in FIRES.items()}, **SILENT}
    rules = rendered.rules("rl", SETTINGS)
    series: dict[str, str] = {}
    for run, values in runs.items():
        series |= variations.samples(run, (Phase(0, {**quiet, **values}),), list(HEALTHY), until=LOOK)
    fired: dict[str, list[dict[str, str]]] = {rule["alert"]: [] for rule in rules}
    labels = {rule["alert"]: rule["labels"] for rule in rules}
    for run, (alert, _) in FIRES.items():
        fired[alert].append({"run": run, **labels[alert]})
    fired["KLHigh"].append({"run": "KL above 15", **labels["KLHigh"]})
    every = unit.silently(each for rule in rules for each in rendered.whole(rule, SETTINGS))
    group = Group("classic", series, [Moment(LOOK, fired)])
    unit.check(promtool, unit.write(tmp_path, "classic", every, [group]))
