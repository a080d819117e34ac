"""``python -m exporter.gpu``: serve what NVIDIA's driver says about the GPUs to Prometheus."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from threading import Event

from exporter.exposition import CONTENT_TYPE
from exporter.gpu.backend import Extras
from exporter.gpu.box import Box
from exporter.gpu.child import Child
from exporter.gpu.contract import NVML_REASONS, STALE_INTERVALS
from exporter.gpu.keeper import Keeper, Limits
from exporter.gpu.options import parse, parser
from exporter.gpu.server import Answer, Server
from exporter.options import cannot_listen, stopped_by_signal

TICK_SECONDS = 0.1
INDEX = b"Stepwatch GPU exporter. Metrics: /metrics  Health: /-/healthy  After the first reading: /-/ready\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    options = parse(parser(), arguments)
    stop = stopped_by_signal()
    box = Box(options.interval)
    try:
        server = Server((options.listen, options.port), lambda path: _page(box, path))
    except OSError as error:
        print(cannot_listen(options, error), file=sys.stderr)
        return 2
    print(f"http://{options.listen}:{options.port}/metrics shows the GPUs of this machine", flush=True)
    limits = Limits(options.retry, max(options.hang, STALE_INTERVALS * options.interval))
    extras = Extras(*(getattr(options, name) for name in Extras._fields))
    keeper = Keeper(lambda: Child(options.backend, extras, options.interval), box, limits)
    _run(stop, server, keeper, box)
    server.close()
    keeper.stop()
    return 0


def _run(stop: Event, server: Server, keeper: Keeper, box: Box) -> None:
    """Serve until it is time to stop; say it when the driver comes or goes."""
    said = box.reason(time.monotonic())
    while not stop.is_set():
        server.serve(TICK_SECONDS)
        keeper.tick(time.monotonic(), time.time())
        reason = box.reason(time.monotonic())
        if reason != said:
            print(f"NVML {reason}: {NVML_REASONS.get(reason, 'an error of the driver.')}", flush=True)
            said = reason


def _page(box: Box, path: str) -> Answer:
    if path == "/metrics":
        return Answer("200 OK", CONTENT_TYPE, box.page(time.monotonic()))
    if path == "/-/healthy":
        return Answer("200 OK", "text/plain", b"ok\n")
    if path == "/-/ready":
        ready = Answer("200 OK", "text/plain", b"ok\n")
        return ready if box.ready else Answer("503 Service Unavailable", "text/plain", b"not read yet\n")
    if path == "/":
        return Answer("200 OK", "text/plain", INDEX)
    return Answer("404 Not Found", "text/plain", b"Pages: /metrics, /-/healthy, /-/ready\n")


if __name__ == "__main__":
    sys.exit(main())
