"""Ctrl-C at every stage of a program's start, as its user sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real import free_port

CHECKOUT = Path(__file__).parents[1]

# Loaded by Python itself before the program: sends Ctrl-C when the program is about to do something.
SITE = """
import os, signal, sys

def hook(event, arguments, done=[]):
    if not done and (f"{event} {arguments[0]}" if arguments else event).startswith(os.environ["CTRL_C_AT"]):
        done.append(event)
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
"""

ALERTS = ("-m", "stepwatch", "alerts", "--config", "{folder}/config.yaml")
GENERATE = (str(CHECKOUT / "generate.py"), "--config", "{folder}/config.yaml", "--out", "{folder}/out")
RUNS = ("-m", "exporter.runs", "--port={port}", "--path={folder}")
GPU = ("-m", "exporter.gpu", "--backend=demo", "--port={port}")
DEMO = ("-m", "demo", "--path={folder}")
SETUP = ("-m", "stepwatch.system.environment", "requirements.lock")
EVENTS = {
    GENERATE: (
        "import pathlib",
        "import importlib.util",
        "import stepwatch",
        "import pydantic",
        "import yaml",
        "import jinja2",
        "import stepwatch.render.templates",
        "open {folder}/config.yaml",
        "tempfile.mkdtemp",
        "subprocess.Popen /bin/true",
        "os.rename",
    ),
    ALERTS: (
        "import argparse",
        "import stepwatch.config",
        "import pydantic",
        "import stepwatch.operate.limits_report",
        "open {folder}/config.yaml",
    ),
    SETUP: ("import hashlib", "import venv"),
    RUNS: ("import argparse", "import orjson", "import exporter.runs.app"),
    GPU: ("import argparse", "import exporter.gpu.gpus"),
    DEMO: ("import argparse", "import demo.trainer"),
}


@pytest.fixture(name="interrupted")
def _interrupted(tmp_path):
    """Run a program that gets Ctrl-C at its first such audit event: ``import NAME``, ``open PATH``, ..."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(SITE)
    (tmp_path / "config.yaml").write_text("")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path / 'site'}:{CHECKOUT}",
        "STEPWATCH_STATE": str(tmp_path / "state"),
        "STEPWATCH_PROMTOOL": "/bin/true",
        "STEPWATCH_AMTOOL": "/bin/true",
    }

    def heed_ctrl_c():  # which a suite that was started in the background ignores, and its children with it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    ports = {"port": free_port(), "other": free_port()}

    def filled(word):
        return word.format(folder=tmp_path, **ports)

    def run(event, *words, before=heed_ctrl_c):
        return subprocess.run(
            [sys.executable, *(filled(word) for word in words)],
            env={**environment, "CTRL_C_AT": filled(event)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=before,
        )

    return run


@pytest.mark.parametrize(
    ("words", "event"), [(words, event) for words, events in EVENTS.items() for event in events]
)
def test_a_program_that_is_still_starting_ends_without_a_traceback(interrupted, tmp_path, words, event):
    done = interrupted(event, *words)

    assert done.returncode == 130, done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert not re.search(r"Traceback|KeyboardInterrupt|Exception", done.stdout + done.stderr)
    # Between two moves of files some are new: the next start replaces the rest.
    assert event == "os.rename" or not list(tmp_path.glob("out/*/generated/*"))


def test_a_program_in_the_background_goes_on_ignoring_ctrl_c(interrupted, tmp_path):
    def ignoring():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert interrupted("import pydantic", *ALERTS, before=ignoring).returncode == 0
