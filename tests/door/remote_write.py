"""Remote write 1.0 by hand: a naive encoder, and an agent's Prometheus."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.door.write_request import pack
from tests.real import PrometheusServer

CERTIFICATES = Path(__file__).parent / "certificates"

Labels = Iterable[tuple[str, str]]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def field(number: int, value: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(value)) + value


def label(name: str, value: str) -> bytes:
    return field(1, field(1, name.encode()) + field(2, value.encode()))


def sample(value: float, milliseconds: int) -> bytes:
    return field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(milliseconds))


def series(labels: Labels, *samples: bytes) -> bytes:
    return field(1, b"".join(label(*pair) for pair in labels) + b"".join(samples))


def one(name: str, node: str, *, ago: float = 0) -> bytes:
    """A request with one sample of one series."""
    labels = {"__name__": name, "node": node}
    return pack(series(labels.items(), sample(1, int((time.time() - ago) * 1000))))


class AgentServer(PrometheusServer):
    """A Prometheus in agent mode that scrapes itself and writes to a hub."""

    def __init__(self, version: str, folder: Path, url: str, token: str, labels: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        super().__init__(version, folder)
        write = {
            "url": f"{url}/api/v1/write",
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": {"ca_file": str(CERTIFICATES / "ca.pem")},
            "queue_config": {"batch_send_deadline": "1s", "min_backoff": "100ms", "max_backoff": "1s"},
        }
        scraped = {"job_name": "own", "static_configs": [{"targets": [f"127.0.0.1:{self.port}"]}]}
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "external_labels": dict(labels)},
            "scrape_configs": [scraped],
            "remote_write": [write],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        self.command = [
            word.replace("--storage.tsdb.path", "--storage.agent.path") for word in self.command
        ] + ["--agent" if version.startswith("3") else "--enable-feature=agent"]
