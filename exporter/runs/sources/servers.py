"""Where trainers say that their rollout servers listen, in what they print.

verl: ``AgentLoopManager: ['10.0.0.7:41233', '10.0.0.8:40001']``, since 0.8 ``LLMServerManager: [...]``; its
fully asynchronous trainer first ``AgentLoopManager Hybrid: [...]`` of the servers that share GPUs with the
trainer (``fully_async_rollouter.py`` of 0.9.1), then the other line of those that do not.
slime: ``Router launched at 10.0.0.7:3512, Prometheus port: 4711``.
"""

from __future__ import annotations

import re

from exporter.runs.signals.record import Servers

_HINTS = (b"ServerManager: [", b"LoopManager: [", b"LoopManager Hybrid: [", b"outer launched at ")
"""Only lines with one of these can report servers; to look for them takes a tenth of a pattern's time."""

ENGINES_PATH = "/engine_metrics"
"""Of slime's router: the metrics of all its engines. Its other port has only what the router itself does."""

_BEFORE = rb"(?:^|[\s\]m)|])"
_LIST = re.compile(
    _BEFORE + rb"(?:AgentLoopManager(?: Hybrid)?|\w{0,40}LLMServerManager): \[((?:'[^']{1,60}'(?:, )?)+)"
)
_ITEM = re.compile(r"'([^']+)'")
_ROUTER = re.compile(_BEFORE + rb"(?:SGLang r|R)outer launched at ([0-9A-Fa-f.:\[\]]{1,60})")


def servers(line: bytes) -> Servers | None:
    """The servers that a line reports, if any. Of a list that was cut, those that are whole."""
    if not any(hint in line for hint in _HINTS):
        return None
    if found := _LIST.search(line):
        return Servers(tuple(_ITEM.findall(found[1].decode("utf-8", "replace"))))
    if found := _ROUTER.search(line):
        return Servers((found[1].decode(),), ENGINES_PATH)
    return None
