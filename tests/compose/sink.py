"""A webhook in a container of the stack's network: prints each message that it gets, a line each."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(body.decode().strip(), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


HTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
