"""``python -m benchmarks [NAME ...]``: run the benchmarks and print a table for each."""

from __future__ import annotations

import sys

from benchmarks.bridge import bridge
from benchmarks.cluster import cluster_agent, cluster_alerts, cluster_hub, cluster_writes
from benchmarks.containers import containers, image
from benchmarks.dashboards import dashboards, dashboards_at_5_s, dashboards_of_64_nodes
from benchmarks.gpu import gpu_page, gpu_soak
from benchmarks.load import idle, many
from benchmarks.pages import discovery, light, metrics_page, stuck_clients
from benchmarks.reading import cold_start, event_files, look, visible
from benchmarks.stack import backtest, generator, notification, rules
from benchmarks.tensorboard_out import tensorboard_out
from benchmarks.wrapper import wrapper

BENCHMARKS = {
    benchmark.__name__: benchmark
    for benchmark in (
        cold_start, event_files, tensorboard_out, metrics_page, idle, look, visible, generator, notification,
        rules, backtest, dashboards, dashboards_at_5_s, dashboards_of_64_nodes, discovery,
        light, stuck_clients, many, bridge, gpu_page, gpu_soak, containers, image, wrapper, cluster_hub,
        cluster_agent, cluster_alerts, cluster_writes,
    )
}  # fmt: skip


def main(names: list[str]) -> int:
    unknown = set(names) - BENCHMARKS.keys()
    if unknown:
        print(
            f"no such benchmark: {', '.join(sorted(unknown))}. Known: {', '.join(BENCHMARKS)}",
            file=sys.stderr,
        )
        return 2
    for name in names or BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        for line in BENCHMARKS[name]():
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
