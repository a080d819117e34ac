"""Runs in rlwatch's own environment: steps of runs come in, what it sends goes out."""

import json
import sys
import tempfile
from contextlib import redirect_stdout

from rlwatch.config import RLWatchConfig
from rlwatch.core import RLWatch


def sent(steps, folder):
    """What one run's monitor, with all defaults, sends: record, detector, severity."""
    config = RLWatchConfig()
    config.storage.log_dir = folder
    monitor = RLWatch(config)
    monitor.start()
    found = [
        (alert.step, alert.detector, alert.severity)
        for record, values in enumerate(steps, 1)
        for alert in monitor.log_step(record, **values)
    ]
    monitor.stop()
    return found


def main():
    """Read and judge all runs."""
    runs = json.load(sys.stdin)
    found = {}
    with redirect_stdout(sys.stderr):
        for run, steps in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                found[run] = sent(steps, folder)
    print(json.dumps(found))


main()
