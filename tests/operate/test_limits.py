"""`python -m stepwatch alerts`: the limits that hold are those that the rules are rendered with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from exporter.runs import alerting_health
from stepwatch.__main__ import main
from stepwatch.config import Config
from stepwatch.operate.limits_report import Alert, effective
from stepwatch.schema.scalars import fits
from tests.operate.conftest import Site
from tests.real import free_port
from tests.rules import rendered

SETTINGS: dict[str, Any] = {
    "alerts": {
        "KL": {"warning": {"above_start": 0.25}, "critical": None},
        "Reward": {"warning": {"stddevs": 2.5}},
        "NonFinite": {"warning": {"steps": 2}},
        "GradNormHigh": {"enabled": False},
    },
    "overrides": [
        {"runs": "sft-*", "alerts": {"KL": {"warning": None, "critical": {"stddevs": 9}}}},
        {
            "runs": "*-long",
            "alerts": {"KL": {"enabled": False}, "Stalled": {"silence": "1h", "severity": "info"}},
        },
        {"runs": "noisy", "alerts": {"GradNormHigh": {"enabled": True, "warning": {"times_level": 5}}}},
    ],
}


def reported(run: str | None, settings: dict[str, Any] | None = None) -> dict[tuple[str, str], Alert]:
    config = Config.model_validate(SETTINGS if settings is None else settings)
    return {(alert.name, alert.severity): alert for alert in effective(config, run, "config.yaml")}


def limit(alert: Alert, key: str) -> tuple[str, str]:
    return next((str(found.value), found.origin) for found in alert.limits if found.key == key)


def test_each_alert_that_is_rendered_is_reported_and_no_other() -> None:
    rules = [rule for group in rendered.groups() for rule in rendered.rules(group, {})]
    posted_by_the_exporter = {(alerting_health.ALERT, "critical")}

    on = {name for name, alert in reported(None, {}).items() if alert.enabled}
    assert on == posted_by_the_exporter | {(rule["alert"], rule["labels"]["severity"]) for rule in rules}


@pytest.mark.parametrize("run", ["ppo", "sft-a", "sft-long", "ppo-long", "noisy"])
def test_a_run_has_the_limits_of_the_rules_that_judge_it(run: str) -> None:
    config = Config.model_validate(SETTINGS)
    for name, base in config.alerts:
        if base.about_runs:
            judging = [
                variant.limits
                for variant in config.variants(name)
                if (variant.only is None or fits(variant.only, run))
                and not any(fits(other, run) for other in variant.without)
            ]
            found = config.override(name, run)
            block = found[1].over(name, base) if found else base
            assert judging == ([block] if block.enabled else [])


def test_a_limit_is_from_an_override_or_the_file_or_is_the_default() -> None:
    base, sft, long = reported(None), reported("sft-a"), reported("ppo-long")

    assert limit(base["KLHigh", "warning"], "alerts.KL.warning.above_start") == ("0.25", "config.yaml")
    assert limit(base["KLHigh", "warning"], "alerts.KL.warning.stddevs") == ("3", "default")
    assert limit(base["RewardDrop", "warning"], "alerts.Reward.warning.stddevs") == ("2.5", "default")
    assert limit(base["NonFinite", "warning"], "alerts.NonFinite.warning.steps") == ("2", "config.yaml")
    assert limit(sft["KLExplosion", "critical"], "alerts.KL.critical.stddevs") == (
        "9",
        "overrides[0] `sft-*`",
    )
    assert limit(sft["KLExplosion", "critical"], "alerts.KL.critical.above_start") == ("1", "default")
    assert limit(sft["NonFinite", "warning"], "alerts.NonFinite.warning.steps") == ("2", "config.yaml")
    assert limit(long["Stalled", "info"], "alerts.Stalled.silence") == ("1h", "overrides[1] `*-long`")
    assert limit(long["Stalled", "info"], "alerts.Stalled.intervals") == ("5", "default")


def test_an_alert_that_is_off_says_by_which_key() -> None:
    base, sft, long, noisy = reported(None), reported("sft-a"), reported("ppo-long"), reported("noisy")

    off = {
        (alert.name, *limit(alert, alert.limits[0].key)): alert.limits[0].key
        for alert in (
            base["KLExplosion", "critical"],
            base["GradNormHigh", "warning"],
            base["RunFinished", "info"],
            sft["KLHigh", "warning"],
            long["KLExplosion", "critical"],
        )
        if not alert.enabled
    }
    assert off == {
        ("KLExplosion", "None", "config.yaml"): "alerts.KL.critical",
        ("GradNormHigh", "False", "config.yaml"): "alerts.GradNormHigh.enabled",
        ("RunFinished", "False", "default"): "alerts.RunFinished.enabled",
        ("KLHigh", "None", "overrides[0] `sft-*`"): "alerts.KL.warning",
        ("KLExplosion", "False", "overrides[1] `*-long`"): "alerts.KL.enabled",
    }
    assert noisy["GradNormHigh", "warning"].enabled


def _said(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    # A stack may run on this machine, on the usual ports.
    settings = {**SETTINGS, "ports": {"exporter": free_port()}}
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    assert main(["alerts", "--config", str(tmp_path / "config.yaml"), *words]) == 0
    return capsys.readouterr().out


def test_the_table_is_for_eyes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split() for line in _said(tmp_path, capsys, "sft-a").splitlines()]

    assert rows[0] == ["alert", "severity", "limit", "value", "unit", "from"]
    assert ["KLHigh", "warning", "alerts.KL.warning", "off", "overrides[0]", "`sft-*`"] in rows
    assert ["KLExplosion", "critical", "alerts.KL.critical.above", "null", "nats/token", "default"] in rows
    assert ["Stalled", "critical", "alerts.Stalled.silence", "10m", "default"] in rows


def test_json_is_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_said(tmp_path, capsys, "--format=json", "ppo-long"))
    by_name = {(alert["alert"], alert["severity"]): alert for alert in found["alerts"]}

    assert found["run"] == "ppo-long"
    assert by_name["Stalled", "info"]["limits"]["alerts.Stalled.silence"] == {
        "value": "1h",
        "unit": "",
        "from": "overrides[1] `*-long`",
    }
    assert by_name["KLHigh", "warning"]["enabled"] is False
    assert json.loads(_said(tmp_path, capsys, "--format", "json"))["run"] is None


def test_a_run_that_is_not_known_is_said_to_be_unknown_before_the_limits_that_its_name_would_have(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(**SETTINGS)

    def said(*words: str) -> str:
        assert site.run("alerts", *words) == 0
        return capsys.readouterr().out

    known, unknown = said("ppo/gsm8k"), said("ppo/gsm")
    assert known.startswith("alert ")
    first, _, table = unknown.partition("\n\n")
    assert first.startswith("There is no run named ppo/gsm. Similar names: ppo/gsm8k, ")
    assert first.endswith(" A run of that name would have these limits:")
    assert table == known
    assert [json.loads(said("--format=json", run))["known"] for run in ("sft-7", "sft-8")] == [True, False]
    site.exporter.end()
    assert said("ppo/gsm") == known
    assert json.loads(said("--format=json", "sft-7"))["known"] is None


def test_the_runbook_is_named_by_its_whole_path_or_by_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = re.findall(
        r"^Each built-in alert has a heading in (.+)$", _said(tmp_path, capsys), re.MULTILINE
    )
    assert "### KLExplosion" in Path(name).read_text()

    (tmp_path / "config.yaml").write_text("links: {runbook: 'https://docs.example.org/runbook'}")
    assert main(["alerts", "--config", str(tmp_path / "config.yaml")]) == 0
    assert capsys.readouterr().out.endswith(
        "\nEach built-in alert has a heading in https://docs.example.org/runbook\n"
    )
