"""A small server in place of a real part: says how it is, reads its settings again on SIGHUP.

Run as ``standin.py PORT [--settings FILE] [--die]``. Settings that hold the word "bad" are refused,
those that hold the word "fatal" end it.
"""

import argparse
import pathlib
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

loaded = {"successful": 1.0, "success_timestamp_seconds": time.time()}


def load(settings: pathlib.Path | None) -> None:
    text = settings.read_text() if settings else ""
    if "fatal" in text:
        sys.exit("settings are fatal")
    loaded["successful"] = float("bad" not in text)
    if loaded["successful"]:
        loaded["success_timestamp_seconds"] = time.time()


def chatter() -> None:
    while True:
        print("stand-in lives", flush=True)
        time.sleep(0.5)


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = {
            "/-/ready": "",
            "/metrics": "".join(f"part_{name} {value}\n" for name, value in loaded.items()),
        }
        self.send_response(200 if self.path in known else 404)
        self.end_headers()
        self.wfile.write(known.get(self.path, "").encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--settings", type=pathlib.Path)
    parser.add_argument("--die", action="store_true")
    options = parser.parse_args()
    if options.die:
        sys.exit("no such database")
    load(options.settings)
    signal.signal(signal.SIGHUP, lambda *_: load(options.settings))
    print("stand-in serves", flush=True)
    threading.Thread(target=chatter, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", options.port), Pages).serve_forever()


main()
