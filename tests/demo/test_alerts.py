"""What the demo raises in the real stack, and what it does not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.e2e.stack import PAIRS, ROOT, Stack

pytestmark = pytest.mark.e2e

PROMISED = {
    ("KLExplosion", "demo/kl-explodes"),
    ("RewardStagnation", "demo/stagnates"),
    ("Stalled", "demo/hangs"),
}
WITHIN_SECONDS = 180


def overrides() -> list[object]:
    """Those that users get."""
    found: list[object] = yaml.safe_load((ROOT / "config.yaml").read_text())["overrides"]
    return found


@pytest.mark.parametrize("versions", PAIRS[-1:], ids=lambda versions: "prometheus-" + versions[0])
def test_the_sick_runs_alert_in_three_minutes_and_the_healthy_one_does_not(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    raised: dict[tuple[str, str], float] = {}
    with Stack(tmp_path / "stack", versions, overrides=overrides()) as stack:
        command = [sys.executable, "-m", "demo", "--path", str(stack.runs)]
        with subprocess.Popen(command, cwd=ROOT) as process:
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < WITHIN_SECONDS:
                raised.update(dict.fromkeys(stack.firing() - set(raised), passed))
                time.sleep(1)
            steps = stack.query("sum by (run) (rl_step)")
            process.terminate()

    assert set(raised) >= PROMISED
    assert {alert for alert in raised if alert[1] not in ("", "demo/kl-explodes")} <= PROMISED
    assert {alert for alert in raised if alert[1] == ""} <= {("Watchdog", "")}
    assert {result["metric"]["run"] for result in steps} == {
        f"demo/{name}" for name in ("healthy", "kl-explodes", "stagnates", "hangs")
    }
