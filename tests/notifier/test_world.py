"""What a message shows of a run: its curve and limit, from a real run exporter, as a picture."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from exporter.notifier.outbox import parse
from exporter.notifier.stack_client import StackClient
from exporter.notifier.wording import NOTHING_KNOWN
from exporter.runs.overview.models import RunId
from exporter.runs.overview.prometheus import STEPS
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.notifier.stack import Notifier, alert, payload
from tests.real import Server, eventually, free_port
from tests.real.listening import Listening
from tests.real.robots import WeCom
from tests.runs.overview.conftest import limit

NOWHERE = "http://127.0.0.1:9"
STEPS_LOGGED = range(1, 60)


class PrometheusStandin(Listening):
    """Knows the past of these expressions, one value at each step; and nothing else."""

    def __init__(self, values: dict[str, dict[int, float]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                found = []
                for promql, points in values.items() if self.path.endswith("query_range") else ():
                    if asked := re.search(re.escape(promql) + r', "curve", "(\d+)"', form["query"][0]):
                        pairs = [(step, str(value)) for step, value in points.items()]
                        found.append({"metric": {"curve": asked[1]}, "values": pairs})
                self.answer({"result": found})

            def do_GET(self) -> None:
                self.answer({"alerts": []})

            def answer(self, data: Any) -> None:
                body = json.dumps({"status": "success", "data": data}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                """Say nothing."""

        super().__init__(Handler)


def test_wecom_gets_the_curve_of_the_alerts_signal_with_its_limit_and_others_wait_for_no_one(
    tmp_path: Path,
) -> None:
    import PIL.Image  # noqa: PLC0415  takes time

    about = RunId("夜 1")
    prometheus = PrometheusStandin(
        {
            STEPS.of(about): {step: step for step in STEPS_LOGGED},
            limit("KLExplosion").of(about): dict.fromkeys(STEPS_LOGGED, 0.4),
        }
    )
    runs, port, state = tmp_path / "runs", free_port(), tmp_path / "service"
    runs.mkdir()
    state.mkdir()
    lines = [
        f"step:{step} - actor/kl_loss:{0.01 * step:.3f} - critic/score/mean:0.5\n" for step in STEPS_LOGGED
    ]
    (runs / "夜 1.log").write_text("".join(lines))
    options = (f"--port={port}", f"--state-dir={tmp_path}/state")
    command = (sys.executable, "-m", "exporter.runs", *options, f"--prometheus-url={prometheus.url}")
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    exporter = Server((*command, "--path", str(runs)), f"{url}/-/healthy", cwd=CHECKOUT, env=env)
    robot = WeCom()
    settings = {"exporter": url, "signals": {"KLExplosion": "kl"}}
    with prometheus, exporter, Notifier(state, {"chat": robot}, settings=settings) as notifier:
        series = f"{url}/api/v1/runs/{quote('夜 1')}/series?signal=kl"
        eventually(lambda: "KLExplosion" in (http_client.read(series) or ""))
        notifier.post(alert(run="夜 1"))
        eventually(robot.pictures, seen=notifier.seen)
        notifier.post(alert("Unknown", run="夜 1"))
        notifier.post(alert(run="no such run"))
        eventually(lambda: notifier.metric("delivered_total") == 3, seen=notifier.seen)
        (picture,) = robot.pictures()

    with PIL.Image.open(io.BytesIO(picture)) as image:
        assert (image.format, image.size) == ("PNG", (720, 320))
        below_title = image.convert("RGB").crop((0, 40, *image.size))
        dots = Counter({colour: count for count, colour in below_title.getcolors() or ()})
    curve, critical = (26, 111, 192), (196, 32, 44)
    assert dots[curve] > 1000
    assert dots[critical] > 600


def test_nothing_is_known_where_no_one_answers() -> None:
    world = StackClient(NOWHERE, NOWHERE, NOWHERE, None, {"KLExplosion": "kl"})
    notification, _ = parse(payload(alert(run="a")))

    assert world.known(notification) == NOTHING_KNOWN
    assert world.picture(notification) is None
    assert "does not answer" in world.silence(notification.labels, "127.0.0.1")
