"""Real processes that are killed, or raise, and the message that leaves the webhook."""

from __future__ import annotations

import time

import pytest

from tests.e2e.stack import PAIRS, Stack
from tests.runs.formats.test_ends import _start, trainer  # noqa: F401  (a fixture)
from tests.runs.logs.test_crashes import loader

pytestmark = pytest.mark.e2e

KILLED = {f"{kind}-{how}": (kind, how) for kind in ("trl", "verl") for how in ("tee", "file")}


def test_killed_trainers_vanish_and_a_loader_that_raises_fails_and_nothing_else_is_sent(tmp_path, start):
    with Stack(tmp_path / "stack", PAIRS[-1]) as stack:
        jobs = {
            run: start(stack.runs / f"{run}.log", how, *trainer(kind, "--interval", "0.5"))
            for run, (kind, how) in KILLED.items()
        }
        start(stack.runs / "healthy.log", "tee", *trainer("trl", "--interval", "0.4"))
        _, ready = loader(start, stack.runs / "crash.log", "tee", "raises")
        seen = '{run=~"' + "|".join(KILLED) + '"} == 1'
        stack.wait_until(lambda: len(stack.query(f"rl_run_writer_present{seen}")) == len(KILLED))
        time.sleep(10)  # the loader is seen as soon as they are, but is no run yet
        killed = time.monotonic()
        for job in jobs.values():
            job.kill()
        ready.touch()

        for run in KILLED:
            alert = stack.wait_sent(run, {"RunVanished", "RunStopped", "Stalled"})
            print(run, alert["labels"]["alertname"], round(time.monotonic() - killed, 1))
            assert (alert["labels"]["alertname"], alert["labels"]["severity"]) == ("RunVanished", "critical")
            assert alert["annotations"]["description"].startswith("the log's writer is gone; step ")
        alert = stack.wait_sent("crash", {"RunFailed", "RunStopped", "RunVanished"})
        assert (alert["labels"]["alertname"], alert["labels"]["severity"]) == ("RunFailed", "critical")
        assert alert["annotations"]["description"] == "ended with an error before the first step."
        assert stack.sent("healthy") == []
        assert all(stack.sent(run) == [("RunVanished", "critical")] for run in KILLED)
