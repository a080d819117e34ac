"""No rule has what breaks in silence once there are samples; each check finds a rule that has it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from demo import OVERRIDES
from stepwatch.config.deployment import OnThisMachine
from stepwatch.config.models import Alerts
from stepwatch.render.generator import generate
from tests.grafana.scraped import recorded
from tests.rules import expressions, labelled, lints, proofs, rendered
from tests.rules.served import COUNTER, FOREIGN, GAUGE, SGLANG, TARGET, VLLM, Metric

JsonObject = dict[str, Any]

RULES = proofs.rules()
SHIPPED = {"overrides": OVERRIDES}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_nothing_that_breaks_in_silence(name: str) -> None:
    assert lints.faults(RULES[name]) == []


@pytest.mark.slow
def test_nor_has_one_for_some_runs_only() -> None:
    for group in rendered.groups():
        for rule in rendered.rules(group, SHIPPED):
            assert lints.faults(rule) == [], rule["alert"]


@pytest.mark.parametrize("name", RULES)
def test_what_a_message_asks_for_can_be_joined(name: str) -> None:
    for annotation in RULES[name]["annotations"].values():
        asked = expressions.asked(annotation)
        assert len(asked) == sum(map(annotation.count, ("|query", "query (", "query `")))
        for query in asked:
            assert list(labelled.faults(expressions.parse(query))) == []


def test_rules_of_one_alert_all_wait_or_none_does() -> None:
    assert list(lints.uneven_waits(RULES.values())) == []


def _rule(expression: str, **more: Any) -> JsonObject:
    return {"alert": "Bad", "expr": expression, "labels": {"severity": "info", "topic": "stack"}, **more}


REWARD = 'rl_drawdown{signal="reward"}'

BAD = [
    ("unknown_metrics", "rl_rewrad > 1"),
    ("unknown_metrics", '{__name__=~"rl_rewrad|rl_klx"} > 1'),
    ("impossible_joins", "up == 0 and on (run) rl_reward > 1"),
    ("impossible_joins", "rl_reward > 1 and on (run) max(up) == 1"),
    ("impossible_joins", "rl_reward > on (gpu) group_left () gpu_memory_used_bytes"),
    ("impossible_joins", f"{REWARD} > rl_reward"),
    ("impossible_joins", f"{REWARD} > ignoring (alpha) rl_reward"),
    ("impossible_joins", "max by (run) (rl_reward) > max by (run, job) (rl_best)"),
    ("impossible_joins", "max by (run) (up) == 0"),
    ("impossible_joins", 'rl_reward{signal="kl"} > 1'),
    ("impossible_joins", "vector(1) > 0 unless on (job) up > 1"),
    ("no_comparison", "max by (run) (rl_reward)"),
    ("no_comparison", "rl_reward > 1 or rl_kl"),
    ("no_comparison", "rl_reward unless rl_kl > 1"),
    ("no_comparison", "rl_reward > bool 1"),
    ("no_comparison", "vector(1)"),
    ("volatile_labels", "gpu_up == 0"),
    ("wrong_type", "increase(rl_reward[5m]) < 1"),
    ("wrong_type", "irate(gpu_power_watts[5m]) < 1"),
    ("wrong_type", "rate(max_over_time(rl_step[5m])[10m:1m]) < 1"),
    ("wrong_type", "delta(rl_records_total[5m]) > 1"),
    ("wrong_type", "predict_linear(gpu_energy_joules_total[1h], 60) > 1"),
    ("wrong_type", "deriv(stepwatch_bytes_read_total[5m]) > 1"),
    ("hasty_absence", 'absent(up{job="runs"})'),
    ("hasty_absence", 'absent_over_time(up{job="runs"}[5m])'),
    ("odd_patterns", 'up{job=~"^a.*"} == 0'),
    ("odd_patterns", 'up{job!~"a|b$"} == 0'),
    ("odd_patterns", 'up{job=~"runs"} == 0'),
    ("odd_patterns", 'up{job=~".*"} == 0'),
    ("odd_patterns", 'up{job!~"a?"} == 0'),
    ("short_ranges", "max_over_time(rl_reward[3m]) > 1"),
    ("short_ranges", "max_over_time((rl_reward > 1)[1m:10s]) > 1"),
    ("fragile", "topk(1, rl_reward) > 1"),
]


@pytest.mark.parametrize(("lint", "expression"), BAD, ids=[" ".join(each) for each in BAD])
def test_a_check_finds_a_bad_rule_and_no_other_does(lint: str, expression: str) -> None:
    found = {fault.partition(":")[0] for fault in lints.faults(_rule(expression))}
    assert found == {lint}


def test_every_check_has_a_bad_rule_that_it_finds() -> None:
    assert {lint.__name__ for lint in lints.LINTS} == {lint for lint, _ in BAD}


GOOD = [
    "max by (run) (rl_reward) > 2 * max by (run) (rl_best)",
    f"{REWARD} > ignoring (signal, alpha) rl_reward",
    "gpu_memory_used_bytes / gpu_memory_total_bytes > 0.9",
    'sum without (reason) (gpu_up) == 0 and on (job, instance) up{job=~"gpu|mine"} == 1',
    'rl_reward > 1 and on () max(up{role="rollout"}) == 1',
    "rl_reward * on (instance, run) group_left (framework) rl_run_info > 1",
    "max by (framework) (rl_reward * on (instance, run) group_left (framework) rl_run_info) > 1",
    'max by (run) (rl_kl or {__name__=~"rl_kl_.*"}) > 1',
    "increase(rl_records_total[10m]) == 0 and deriv(rl_reward[10m]) < 0",
    'time() - max by (run) (rl_last_step_timestamp_seconds{run=~"demo/.*",run!~"demo/a.*"}) > 60',
    'scalar(max(up)) * rl_reward > 1 or label_replace(up, "host", "$1", "instance", "(.*):.*") == 0',
    'histogram_quantile(0.9, rl_reward) > 1 unless on () absent(rl_kl{run="a"}) == on () 2 * vector(1)',
]


@pytest.mark.parametrize("expression", GOOD)
def test_no_check_finds_fault_with_a_good_rule(expression: str) -> None:
    assert lints.faults(_rule(expression, **{"for": "5m"})) == []


@pytest.mark.parametrize(
    "value", ["{{ $value }}", "{{ $labels.step }}", '{{ query "rl_step" }}', "{{ now }}"]
)
def test_a_label_of_the_rule_may_not_move_either(value: str) -> None:
    (found,) = lints.faults(_rule("rl_reward > 1", labels={"severity": "info", "at": value}))
    assert found == f"volatile_labels: label at is not the same at all times: {value}"


def test_an_alert_one_rule_of_which_waits_is_found() -> None:
    rules = [_rule("rl_reward > 1"), _rule("rl_reward > 2", **{"for": "5m"})]
    assert list(lints.uneven_waits(rules)) == ["Bad: one rule waits, another does not"]
    assert list(lints.uneven_waits(rules[1:])) == []


def _linted(promtool: Path, *words: str | Path) -> tuple[int, str]:
    command = [promtool, "check", *words[:1], "--lint=all", "--lint-fatal", *words[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_promtool_finds_nothing_to_say_about_rules_and_configuration(promtool: Path, tmp_path: Path) -> None:
    others = {name: {} for name, block in Alerts() if block.about_runs}
    overrides = [*SHIPPED["overrides"], *({"runs": runs, "alerts": others} for runs in ("a*", "b-{{c}}"))]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**rendered.EVERYTHING, "overrides": overrides}))
    generate(tmp_path / "config.yaml", tmp_path, place=OnThisMachine)
    folder = tmp_path / "prometheus" / "generated"
    for words in (("rules", *sorted(folder.glob("rules/*.yml"))), ("config", folder / "prometheus.yml")):
        code, said = _linted(promtool, *words)
        assert code == 0, said


def test_promtool_finds_a_rule_that_is_there_twice(promtool: Path, tmp_path: Path) -> None:
    twice = {"groups": [{"name": "twice", "rules": [_rule("rl_reward > 1")] * 2}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(twice))
    code, said = _linted(promtool, "rules", tmp_path / "rules.yml")
    assert code == 3
    assert "1 duplicate rule(s) found" in said


OLD = {
    "gpu_cache_usage_perc",
    "gpu_prefix_cache_hits_total",
    "gpu_prefix_cache_queries_total",
    "time_per_output_token_seconds_bucket",
}
"""What vLLM called its metrics before Ray Serve reported them."""


@pytest.mark.parametrize(
    ("program", "pages"),
    [
        ("vLLM", ("vllm-0.33.0", "vllm-0.8.5", "ray_vllm-0.33.0")),
        ("SGLang", ("sglang-0.5.23", "sglang-0.4.6")),
    ],
)
def test_engines_really_have_the_metrics_that_are_asked_for(program: str, pages: tuple[str, ...]) -> None:
    real: dict[str, Metric] = {}
    for page in pages:
        families = text_string_to_metric_families("\n".join(recorded(page)))
        for sample, kind in ((each, family.type) for family in families for each in family.samples):
            name = sample.name.replace("sglang:", "sglang_") if program == "SGLang" else sample.name
            known = real.get(name, Metric("", frozenset())).labels
            real[name] = Metric(GAUGE if kind == "gauge" else COUNTER, known.union(sample.labels))

    for name, metric in FOREIGN[program].items():
        if name not in {"ray_vllm_" + old for old in OLD}:
            found = real[name.replace("sglang:", "sglang_")]
            assert found.type == metric.type, name
            assert metric.labels - TARGET - {*VLLM, *SGLANG} <= found.labels, name
    assert {*(VLLM if program == "vLLM" else SGLANG)} <= set().union(*(each.labels for each in real.values()))
