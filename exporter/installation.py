"""Whether this is a checkout or an installed wheel, and how texts name commands and pages in each.

Our texts name those of a checkout: `make up RUNS=folder`, docs/metrics.md. `adapt` makes them right for an
installation where they leave the program, so that no text has to be written twice.
"""

from __future__ import annotations

import os.path
import re
import shlex

# No pathlib here: the front of the GPU exporter, which answers in these texts, does without its megabyte.
DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "stepwatch", "data")  # noqa: PTH100, PTH118, PTH120
"""What lies beside the packages in a checkout; building a wheel puts it here (setup.py)."""

INSTALLED = os.path.isdir(DATA)  # noqa: PTH112

_COMMAND = re.compile(r"(`|<code>)make ([a-z][^`<]*)(?=`|</code>)")
_PAGE = re.compile(r"(?<![\w/.-])(?:docs|presets)/[\w-]+\.(?:md|yaml)")

_COMMANDS = {
    "up": None,
    "down": None,
    "status": None,
    "demo-reset": None,
    "test-alert": "TO",
    "mark": "RUN",
    "silence": "RUN",
    "config": None,
    "alerts": "RUN",
    "discover": None,
    "gpu-release": None,
    "inspect": "RUNS",
    "backtest": "RUNS",
    "actions": None,
    "agent": "NODE",
    "evidence": "RUN",
    "tensorboard": None,
}
"""The targets of the Makefile that are commands of an installation as well, and the variables of each that
are arguments there; all other variables are options."""

_OPTIONS = {"KEY": "--explain", "KILL": "--kill-switch"}
_SWITCHES = ("DEMO", "NATIVE", "RENEW", "REVOKE", "SERVICE", "FOLLOW")


def adapt(text: str) -> str:
    """Return a text with the commands and pages that it names as they are called here.

    Commands are recognized between backticks, or in an HTML element `code`.
    """
    if not INSTALLED:
        return text
    return _PAGE.sub(lambda page: f"{DATA}/{page[0]}", _COMMAND.sub(_installed, text))


def _installed(command: re.Match[str]) -> str:
    try:
        target, *variables = shlex.split(command[2])
    except ValueError:  # no command, but prose between two backticks
        return command[0]
    if target not in _COMMANDS:
        return command[0]
    words = ["stepwatch", target]
    for variable in variables:
        name, _, value = variable.partition("=")
        if name not in (_COMMANDS[target] or "").split():
            words.append(_OPTIONS.get(name, f"--{name.lower()}"))
        if value and name not in _SWITCHES:
            words.append(value)
    return command[1] + shlex.join(words)
