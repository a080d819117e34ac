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

COMMAND = ("-m", "stepwatch")
RUNS, GPU, DEMO = ("-m", "exporter.runs"), ("-m", "exporter.gpu", "--backend=demo"), ("-m", "demo")
DOOR, WATCHDOG = ("-m", "exporter.door"), ("-m", "exporter.watchdog")


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

    def run(event, *words, before=heed_ctrl_c):
        return subprocess.run(
            [sys.executable, *words],
            env={**environment, "CTRL_C_AT": event.replace("{folder}", str(tmp_path))},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=before,
        )

    return run


def ends_quietly(done):
    assert done.returncode == 130, done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert not re.search(r"Traceback|KeyboardInterrupt|Exception", done.stdout + done.stderr)
    return True


@pytest.mark.parametrize(
    "event",
    [
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
    ],
)
def test_generate_ends_without_a_traceback(interrupted, tmp_path, event):
    script = str(CHECKOUT / "generate.py")

    done = interrupted(
        event, script, "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")
    )

    assert ends_quietly(done)
    assert not list(tmp_path.glob("out/*/generated/*"))


@pytest.mark.parametrize(
    "event",
    [
        "import argparse",
        "import stepwatch.config",
        "import pydantic",
        "import stepwatch.operate.limits_report",
        "open {folder}/config.yaml",
    ],
)
def test_a_command_ends_without_a_traceback(interrupted, tmp_path, event):
    done = interrupted(event, *COMMAND, "alerts", "--config", str(tmp_path / "config.yaml"))

    assert ends_quietly(done)


@pytest.mark.parametrize("event", ["import hashlib", "import venv"])
def test_the_setup_of_the_environment_ends_without_a_traceback(interrupted, event):
    assert ends_quietly(interrupted(event, "-m", "stepwatch.system.environment", "requirements.lock"))


@pytest.mark.parametrize(
    ("program", "event"),
    [
        (RUNS, "import argparse"),
        (RUNS, "import orjson"),
        (RUNS, "import exporter.runs.app"),
        (GPU, "import argparse"),
        (GPU, "import exporter.gpu.supervisor"),
        (DEMO, "import argparse"),
        (DEMO, "import demo.trainer"),
        (DOOR, "import aiohttp"),
        (DOOR, "import exporter.door.agents"),
        (WATCHDOG, "import argparse"),
        (WATCHDOG, "import exporter.watchdog.servers"),
    ],
)
def test_a_service_that_is_still_starting_ends_without_a_traceback(interrupted, tmp_path, program, event):
    flags = {
        RUNS: [f"--port={free_port()}", "--path", str(tmp_path)],
        GPU: [f"--port={free_port()}"],
        DEMO: ["--path", str(tmp_path)],
        DOOR: [f"--port={free_port()}", f"--agents-port={free_port()}"],
        WATCHDOG: [f"--port={free_port()}"],
    }

    assert ends_quietly(interrupted(event, *program, *flags[program]))


def test_a_program_in_the_background_goes_on_ignoring_ctrl_c(interrupted, tmp_path):
    def ignoring():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    words = ("alerts", "--config", str(tmp_path / "config.yaml"))

    assert interrupted("import pydantic", *COMMAND, *words, before=ignoring).returncode == 0
