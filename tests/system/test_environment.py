from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter import installation, process
from stepwatch.system import environment


@pytest.fixture(name="checkout")
def _checkout(tmp_path: Path) -> Path:
    """A checkout whose locks ask for nothing, so that no test downloads anything."""
    checkout = tmp_path / "a checkout"
    for module in (environment, installation, process):
        file = checkout / Path(*module.__name__.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module.__file__, file)
    for lock in (environment.RUNTIME, environment.DEVELOPMENT):
        (checkout / lock).write_text("# nothing\n")
    return checkout


def set_up(checkout: Path, lock: str) -> str:
    command = [sys.executable, "-m", "stepwatch.system.environment", lock]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return done.stderr


def test_the_environment_is_made_once_and_again_when_the_lock_changes(checkout: Path) -> None:
    assert "Making .venv" in set_up(checkout, environment.DEVELOPMENT)
    assert set_up(checkout, environment.DEVELOPMENT) == ""
    assert set_up(checkout, environment.RUNTIME) == ""

    (checkout / environment.DEVELOPMENT).write_text("# nothing more\n")

    assert set_up(checkout, environment.RUNTIME) == ""
    redone = set_up(checkout, environment.DEVELOPMENT)
    assert "Installing requirements-dev.lock" in redone
    assert "Making .venv" not in redone


def test_an_environment_whose_python_is_gone_is_recreated(checkout: Path) -> None:
    set_up(checkout, environment.RUNTIME)
    (checkout / ".venv/bin/python").unlink()

    assert "Making .venv" in set_up(checkout, environment.RUNTIME)


def test_a_lock_without_hashes_is_refused_and_not_taken_for_installed(checkout: Path) -> None:
    (checkout / environment.RUNTIME).write_text("jinja2==3.1.6\n")

    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError) as failure:
            set_up(checkout, environment.RUNTIME)
        assert "pip could not install requirements.lock" in failure.value.stderr
        assert failure.value.returncode == 2


def test_a_python_that_cannot_make_environments_is_named_with_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(environment.SetupError, match=r"Fix: sudo apt-get install python3\.\d+-venv$"):
        environment._require_venv()


def test_a_python_that_is_too_old_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))

    with pytest.raises(environment.SetupError, match=r"is Python 3\.9\.2\. Expected: 3\.10 or later\. Fix: "):
        environment._require_python()


def test_a_python_without_packages_hands_over_to_the_environment_of_the_checkout() -> None:
    bare = Path(sys.base_prefix, "bin", "python3")
    # -S: without site-packages, as a system's Python has none of ours.
    done = subprocess.run(
        [bare, "-S", "-m", "stepwatch", "--version"],
        cwd=environment.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
