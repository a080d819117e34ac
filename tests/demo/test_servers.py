"""The demo's rollout servers, as Prometheus and the product's rules see them."""

from __future__ import annotations

import re
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.servers import Servers
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
