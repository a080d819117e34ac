"""promtool has nothing to say about rules, and what they ask engines for is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from demo import OVERRIDES
from stepwatch.config.deployment import OnThisMachine
from stepwatch.config.models import Alerts
from stepwatch.render.generator import generate
from tests.grafana.scraped import recorded
from tests.rules import rendered
from tests.rules.served import COUNTER, FOREIGN, GAUGE, SGLANG, TARGET, VLLM, Metric


def test_promtool_finds_nothing_to_say_about_rules_and_configuration(promtool: Path, tmp_path: Path) -> None:
    others = {name: {} for name, block in Alerts() if block.about_runs}
    overrides = [*OVERRIDES, *({"runs": runs, "alerts": others} for runs in ("a*", "b-{{c}}"))]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**rendered.EVERYTHING, "overrides": overrides}))
    generate(tmp_path / "config.yaml", tmp_path, place=OnThisMachine)
    folder = tmp_path / "prometheus" / "generated"
    for words in (("rules", *sorted(folder.glob("rules/*.yml"))), ("config", folder / "prometheus.yml")):
        command = [promtool, "check", words[0], "--lint=all", "--lint-fatal", *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


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
