"""The real programs and small servers around them, for tests and benchmarks.

`prometheus("2.42")`, `alertmanager("0.31")` and so on give the programs. What cannot be had skips
the test that asked for it on a laptop, and fails it in CI.
"""

from tests.real.server import Server, free_port, query, running
from tests.real.servers import AlertmanagerServer, PrometheusServer
from tests.real.sink import Received, WebhookSink
from tests.real.tools import Tool, alertmanager, prometheus
from tests.real.waiting import eventually

__all__ = [
    "AlertmanagerServer",
    "PrometheusServer",
    "Received",
    "Server",
    "Tool",
    "WebhookSink",
    "alertmanager",
    "eventually",
    "free_port",
    "prometheus",
    "query",
    "running",
]
