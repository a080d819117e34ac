"""``python -m benchmarks [NAME ...]``: run the benchmarks and print a table for each."""

from __future__ import annotations

import sys

from benchmarks import (
    backtest,
    cold_start,
    containers,
    discovery,
    door,
    event_files,
    generator,
    gpu_page,
    gpu_soak,
    idle,
    image,
    light,
    look,
    many,
    metrics_page,
    notification,
    rules,
    visible,
)

BENCHMARKS = {
    "cold_start": cold_start.run,
    "event_files": event_files.run,
    "metrics_page": metrics_page.run,
    "idle": idle.run,
    "look": look.run,
    "visible": visible.run,
    "generator": generator.run,
    "notification": notification.run,
    "rules": rules.run,
    "backtest": backtest.run,
    "discovery": discovery.run,
    "door": door.run,
    "light": light.run,
    "many": many.run,
    "gpu_page": gpu_page.run,
    "gpu_soak": gpu_soak.run,
    "containers": containers.run,
    "image": image.run,
}


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
