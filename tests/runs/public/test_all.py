"""All public logs together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import rollout


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("vllm_opt125m.prom", set(rollout.VLLM.values()) | set(rollout.OLD_VLLM.values())),
        ("sglang_llama3.1-8b_docs.prom", {rollout.SGLANG[what] for what in ("waiting", "cache", "tokens")}),
        ("ray_head_2.6.1.prom", {"ray_node_mem_total", "ray_node_disk_usage", "ray_node_disk_free"}),
    ],
)
def test_what_rules_ask_for_stands_on_recorded_pages(real_logs: Path, page: str, names: set[str]) -> None:
    text = (real_logs / "prom" / page).read_text()
    assert {name for name in names if f"\n{name}{{" not in text} == set()
