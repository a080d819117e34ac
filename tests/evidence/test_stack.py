"""With the whole stack: an alert about a real run in the archive and in TensorBoard."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from stepwatch.operate.tensorboard import Alerts, export
from tests.e2e.stack import PAIRS, Stack
from tests.evidence.test_archive import Archive
from tests.real.credentials import login
from tests.real.waiting import eventually, in_time
from tests.tensorboard.test_export import read, settings_of

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
HEALTHY = 60
RUNS = ("ppo/sick", "ppo/board")


def test_an_alert_is_in_the_archive_and_live_in_tensorboard(tmp_path):
    with Stack(tmp_path / "stack", PAIRS[-1], intervals={"runs": "1s", "rules": "1s"}) as stack:
        log = stack.runs / "ppo/sick.jsonl"
        log.parent.mkdir()
        tb = tmp_path / "tb"
        done = threading.Event()
        alerts = Alerts(
            f"http://{stack.config.address('prometheus')}", partial(login, stack.state.credentials)
        )
        follower = threading.Thread(
            target=partial(
                export,
                tb,
                partial(settings_of, stack.runs),
                alerts,
                print,
                follow=True,
                stopped=done.is_set,
            )
        )
        follower.start()
        try:
            with log.open("a") as file, SummaryWriter(str(stack.runs / "ppo/board")) as board:

                def step(number: int, kl: float) -> None:
                    values = {"reward": 0.5 + number % 3 / 50, "kl": kl + number % 5 / 1000}
                    file.write(f"{json.dumps({'step': number, **values})}\n")
                    file.flush()
                    for tag, value in values.items():  # of other numbers: else it would be the same run
                        board.add_scalar(tag, 1.1 * value, number)
                    board.flush()

                for number in range(1, HEALTHY):
                    step(number, 0.02)
                stack.wait_step("ppo/sick", HEALTHY - 1)
                for number in range(HEALTHY, HEALTHY + 20):
                    step(number, 30.0)
                fires = 'rl_alert_onset_step{alertname=~"KL.*"} and on (run) ALERTS{alertstate="firing"}'
                stack.wait_until(lambda: {each["metric"]["run"] for each in stack.query(fires)} == set(RUNS))
                begun = time.monotonic()
                eventually(lambda: all((tb / run).is_dir() and _texts(tb / run) for run in RUNS))
                took = time.monotonic() - begun
        finally:
            done.set()
            follower.join()
        assert in_time(took, 5)
        for run in RUNS:
            name, text = next(iter(_texts(tb / run).items()))
            assert name.startswith("alerts/KL")
            assert text.startswith(f"**{name.removeprefix('alerts/')}** (")
            assert "KL" in text.partition("\n\n")[2]  # its summary
        assert {"reward", "kl", "rl/reward", "rl/kl"} <= set(read(tb / "ppo/sick").Tags()["scalars"])
        assert set(read(tb / "ppo/board").Tags()["scalars"]) == {"rl/reward", "rl/kl"}

        command = [sys.executable, "-m", "stepwatch", "evidence", "ppo/sick", "--out", str(tmp_path / "out")]
        environment = {"STEPWATCH_STATE": str(stack.state.folder)}
        done_ = subprocess.run(
            [*command, "--config", str(stack.folder / "config.yaml")],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**_environment(), **environment},
            check=False,
        )
        assert (done_.returncode, done_.stderr) == (0, "")
        found = Archive(Path(done_.stdout.strip()), 0)
        _check(found, stack)
        assert found.files["stack/config.yaml"] == (stack.folder / "config.yaml").read_bytes()


def _check(found: Archive, stack: Stack) -> None:
    served = ("alerts/", "stack/", "records")
    assert [
        each for each in found.index["items"] if each["name"].startswith(served) and each["problem"]
    ] == []
    firing = {
        each["alertname"]
        for each in json.loads(found.files["alerts/timeline.json"])
        if each.get("run") == "ppo/sick" and each["alertstate"] == "firing" and each["spans"]
    }
    assert {name for name, run in stack.firing() if run == "ppo/sick"} & firing
    held = json.loads(found.files["alerts/alertmanager.json"])
    assert {each["labels"]["run"] for each in held} == {"ppo/sick"}
    assert json.loads(found.files["alerts/silences.json"]) == []
    assert "ppo/sick" in {each["run"] for each in json.loads(found.files["stack/runs.json"])["runs"]}
    assert json.loads(found.files["stack/limits.json"])["limits"]["KL"]["enabled"] == 1
    groups = json.loads(found.files["stack/rules.json"])["data"]["groups"]
    assert firing <= {rule["name"] for group in groups for rule in group["rules"]}
    assert found.rows()[-1]["step"] == HEALTHY + 19


def _texts(folder: Path) -> dict[str, str]:
    found = read(folder)
    return {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}


def _environment() -> dict[str, str]:
    import os  # noqa: PLC0415

    return dict(os.environ)
