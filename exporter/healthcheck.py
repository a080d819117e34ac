"""``python -m exporter.healthcheck PORT [PATH]``: whether a program of ours answers; for its container."""

from __future__ import annotations

import socket
import sys

TIMEOUT_SECONDS = 4


def main(arguments: list[str]) -> int:
    """Returns 0 if the page, ``/-/healthy`` if none is named, answers with success, else 1."""
    return 0 if healthy(int(arguments[0]), *arguments[1:]) else 1


def healthy(port: int, path: str = "/-/healthy") -> bool:
    """Whether the program on this port of 127.0.0.1 is well."""
    # No HTTP library: this runs every few seconds, and importing one costs more than all the rest.
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
