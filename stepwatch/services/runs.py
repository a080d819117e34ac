"""The folder that runs are read from, and the names of the runs that the exporter shows."""

from __future__ import annotations

import re
from pathlib import Path

from stepwatch.schema.errors import Refused
from stepwatch.system import http_client

_NAME = re.compile(r'^rl_run_info\{run="((?:[^"\\]|\\.)*)"', re.MULTILINE)


def known(exporter: str) -> list[str] | None:
    """The names of all runs on the page of an exporter (host:port); ``None`` without an answer."""
    page = http_client.read(f"http://{exporter}/metrics")
    return None if page is None else on(page)


def on(page: str) -> list[str]:
    """The names of all runs on a page."""
    return [
        re.sub(r"\\(.)", lambda sign: {"n": "\n"}.get(sign[1], sign[1]), name) for name in _NAME.findall(page)
    ]


def make_folder(runs: Path) -> bool:
    """Make the folder if it is missing and no glob; returns whether it was missing.

    Raises:
        Refused: it cannot be made.
    """
    if any(sign in str(runs) for sign in "*?[") or runs.is_dir():
        return False
    try:
        runs.mkdir(parents=True)
    except OSError as problem:
        raise Refused(
            f"runs.path: {runs}: {problem.strerror}. Expected: a folder. "
            "Fix: name the folder that your runs write to, `make up RUNS=folder`."
        ) from None
    return True


def folder_remark(*, made: bool, remembered: bool) -> str:
    """What is worth knowing about the folder, as the rest of a sentence that ends with its path."""
    if made:
        return (
            ", which did not exist, so it was made; it is empty. "
            "If that is a slip, `make up RUNS=folder` names another"
        )
    if remembered:
        return ", which `make up RUNS=folder` named last (the same, or runs.path in config.yaml, changes it)"
    return ""
