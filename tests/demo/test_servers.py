"""The demo's rollout servers, as Prometheus and the product's rules see them."""

from __future__ import annotations

import re
import urllib.request
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.servers import Servers
from demo.verl import SHARES
from exporter.runs.discovery.address import Allowed
from stepwatch.alerts.engines import EngineKVCacheFull, EnginePreemptions
from tests.grafana.scraped import recorded
from tests.rules.served import FOREIGN

SECONDS = 600
PERIOD = 10
"""Of a scrape."""
Page = dict[str, float]


def page(address: str) -> Page:
    """Values of one server by name; of an histogram's buckets the last."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture(scope="module", name="seen")
def _seen() -> list[tuple[Page, Page]]:
    """Ten minutes of both servers."""
    servers = Servers("127.0.0.1", seed=1)
    found = []
    for tick in range(2 * SECONDS):
        servers.tick(0.5)
        if tick % (2 * PERIOD) == 0:
            roomy, tight = map(page, servers.addresses)
            found.append((roomy, tight))
    return found


@pytest.mark.slow
def test_each_has_what_the_dashboard_and_the_rules_read_of_a_real_server(
    seen: list[tuple[Page, Page]],
) -> None:
    real = {re.split("[{ ]", line)[0] for line in recorded("vllm-0.33.0")}

    for server in seen[-1]:
        names = {name for name in server if name.startswith("vllm:") and not name.endswith("_created")}
        assert names <= real
        assert real & FOREIGN["vLLM"].keys() <= names


def test_addresses_are_such_as_the_exporter_takes() -> None:
    addresses = Servers("127.0.0.1", seed=1).addresses

    assert len(set(addresses)) == 2
    assert [Allowed().checked(each) for each in addresses] == list(addresses)


def test_counters_never_go_back_and_all_go_on(seen: list[tuple[Page, Page]]) -> None:
    for values in zip(*seen, strict=True):
        for name in values[0]:
            if name.endswith(("_total", "_count", "_sum")):
                assert all(before[name] <= after[name] for before, after in pairwise(values))
    for name in ("vllm:generation_tokens_total", "vllm:e2e_request_latency_seconds_count"):
        assert all(last[name] > first[name] for first, last in zip(seen[0], seen[-1], strict=True))


def test_the_tight_one_works_for_the_share_of_a_step_that_the_log_reports_and_the_other_waits(
    seen: list[tuple[Page, Page]],
) -> None:
    roomy, tight = (
        [values["vllm:num_requests_running"] > 0 for values in server] for server in zip(*seen, strict=True)
    )
    begun = [place for place, (before, now) in enumerate(pairwise(tight)) if now > before]
    whole = slice(begun[0], begun[-1])  # of steps
    tight_share, roomy_share = (sum(each[whole]) / len(each[whole]) for each in (tight, roomy))

    assert tight_share == pytest.approx(SHARES["gen"], abs=0.06)
    assert roomy_share < 0.7 * tight_share
    assert max(values["vllm:kv_cache_usage_perc"] for _, values in seen) == 1
    assert 0.4 < max(values["vllm:kv_cache_usage_perc"] for values, _ in seen) < 0.9
    assert max(values["vllm:num_requests_waiting"] for values, _ in seen) == 0


def test_neither_raises_an_alert(seen: list[tuple[Page, Page]]) -> None:
    full = EngineKVCacheFull()
    pressed = [
        values["vllm:kv_cache_usage_perc"] > full.used_ratio and values["vllm:num_requests_waiting"] > 0
        for _, values in seen
    ]
    assert any(pressed)
    longest = max(map(len, "".join(" x"[each] for each in pressed).split()))
    assert longest * PERIOD < 0.1 * full.for_.seconds

    last = seen[-1][1]
    ratio = last["vllm:num_preemptions_total"] / last["vllm:request_generation_tokens_count"]
    assert 0 < ratio < EnginePreemptions().per_request / 2
