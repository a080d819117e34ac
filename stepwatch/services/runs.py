"""The runs that the exporter shows, by name."""

from __future__ import annotations

import re

from stepwatch.system import http_client

_NAME = re.compile(r'^rl_run_info\{run="((?:[^"\\]|\\.)*)"', re.MULTILINE)
_ESCAPED = re.compile(r"\\(.)")
_MEANT = {"n": "\n"}


def known(exporter: str) -> list[str] | None:
    """The names of all runs on the page of an exporter (host:port); ``None`` without an answer."""
    page = http_client.read(f"http://{exporter}/metrics")
    return None if page is None else on(page)


def on(page: str) -> list[str]:
    """The names of all runs on a page."""
    return [_ESCAPED.sub(lambda sign: _MEANT.get(sign[1], sign[1]), name) for name in _NAME.findall(page)]
