"""The folder that runs are read from, and the names of the runs that the exporter shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

from stepwatch.schema.errors import Refused
from stepwatch.system import http_client

_NAME = re.compile(r'^rl_run_info\{run="((?:[^"\\]|\\.)*)"', re.MULTILINE)


def known(exporter: str) -> dict[str, set[str]] | None:
    """The names of all runs that an exporter (host:port) shows, each with the nodes whose agents read it.

    ``None`` without an answer.
    """
    answer = http_client.read(f"http://{exporter}/api/v1/runs")
    if answer is None:
        return None
    found: dict[str, set[str]] = {}
    for run in json.loads(answer)["runs"]:
        found.setdefault(run["run"], set()).update(run["nodes"])
    return found


def on(page: str) -> list[str]:
    """The names of all runs that an exporter reads, from its metrics page."""
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
        return ", which did not exist and was created empty. To read another folder: `make up RUNS=folder`"
    if remembered:
        return (
            ", set by the last `make up RUNS=folder` (to change it, use RUNS=folder again, or runs.path "
            "in config.yaml)"
        )
    return ""
