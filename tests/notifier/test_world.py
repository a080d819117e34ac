"""What a message shows of a run: its curve, from a real run exporter, as a picture."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from exporter.notifier.notification import parse
from exporter.notifier.stack_client import StackClient
from exporter.notifier.wording import NOTHING_KNOWN
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.notifier.stack import Notifier, alert, payload
from tests.real import Server, eventually, free_port
from tests.real.robots import WeCom

NOWHERE = "http://127.0.0.1:9"


def test_wecom_gets_the_curve_of_the_alerts_signal_and_others_wait_for_no_one(tmp_path: Path) -> None:
    import PIL.Image  # noqa: PLC0415  takes time

    runs, port, state = tmp_path / "runs", free_port(), tmp_path / "service"
    runs.mkdir()
    state.mkdir()
    lines = [
        f"step:{step} - actor/kl_loss:{0.01 * step:.3f} - critic/score/mean:0.5\n" for step in range(1, 60)
    ]
    (runs / "夜 1.log").write_text("".join(lines))
    command = (sys.executable, "-m", "exporter.runs", f"--port={port}", f"--state-dir={tmp_path}/state")
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    exporter = Server((*command, "--path", str(runs)), f"{url}/-/healthy", cwd=CHECKOUT, env=env)
    robot = WeCom()
    settings = {"exporter": url, "signals": {"KLExplosion": "kl"}}
    with exporter, Notifier(state, {"chat": robot}, settings=settings) as notifier:
        eventually(lambda: "夜 1" in (http_client.read(f"{url}/api/v1/runs") or ""))
        notifier.post(alert(run="夜 1"))
        eventually(robot.pictures, seen=notifier.seen)
        notifier.post(alert("Unknown", run="夜 1"))
        notifier.post(alert(run="no such run"))
        eventually(lambda: notifier.metric("delivered_total") == 3, seen=notifier.seen)
        (picture,) = robot.pictures()

    with PIL.Image.open(io.BytesIO(picture)) as image:
        assert (image.format, image.size) == ("PNG", (720, 320))
        blue = {colour: count for count, colour in image.convert("RGB").getcolors() or ()}[26, 111, 192]
    assert blue > 1000


def test_nothing_is_known_where_no_one_answers() -> None:
    world = StackClient(NOWHERE, NOWHERE, NOWHERE, None, {"KLExplosion": "kl"})
    notification, _ = parse(payload(alert(run="a")))

    assert world.known(notification) == NOTHING_KNOWN
    assert world.picture(notification) is None
    assert "does not answer" in world.silence(notification.labels, "127.0.0.1")
