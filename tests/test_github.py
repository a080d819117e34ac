"""The workflows and forms in .github, which nothing here runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.system.environment import CHECKOUT

FOLDER = CHECKOUT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*"))
FORMS = sorted((FOLDER / "ISSUE_TEMPLATE").glob("*"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
TEXTS = [*WORKFLOWS, *FORMS, FOLDER / "pull_request_template.md", CHECKOUT / "CONTRIBUTING.md"]


def jobs() -> dict[str, dict[str, Any]]:
    read = [yaml.safe_load(file.read_text())["jobs"] for file in WORKFLOWS]
    return {name: job for each in read for name, job in each.items()}


def steps() -> list[dict[str, Any]]:
    return [step for job in jobs().values() for step in job["steps"]]


@pytest.mark.parametrize("file", TEXTS, ids=lambda path: path.name)
def test_each_make_target_that_a_workflow_a_form_or_the_guide_names_exists(file: Path) -> None:
    # In prose `make` is a verb: targets follow a backtick, an indent or the words of a command.
    named = set(re.findall(r"(?:`|^    |run: |\" )make ([a-z][a-z-]*)", file.read_text(), re.MULTILINE))

    assert named or file.name == "config.yml"
    assert named <= TARGETS


def test_the_workflows_run_the_checks_the_fast_tests_all_tests_and_the_comparison_with_trainers() -> None:
    run = [re.findall(r"\bmake ([a-z-]+)", step.get("run", "")) for step in steps()]

    assert sorted(name for names in run for name in names) == [
        "check",
        "drift",
        "test",
        "test-fast",
        "test-world",
    ]


def test_fast_tests_run_on_each_python_that_is_supported() -> None:
    project = (CHECKOUT / "pyproject.toml").read_text()
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)

    assert supported == [f"3.{minor}" for minor in range(10, 10 + len(supported))]
    assert f'requires-python = ">={supported[0]}"' in project
    assert jobs()["fast"]["strategy"]["matrix"]["python-version"] == supported
    for job in jobs().values():
        (setup,) = (step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
        assert setup["python-version"] in {*supported, "${{ matrix.python-version }}"}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_secret_no_right_to_write_and_ends(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())

    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in file.read_text()
    # YAML 1.1 reads `on` as true. Code of a fork runs by `pull_request` only, which gives it no rights.
    assert set(workflow[True]) <= {"push", "pull_request", "schedule", "workflow_dispatch"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 90
        (checkout,) = (step for step in job["steps"] if "checkout" in step.get("uses", ""))
        assert checkout["with"] == {"persist-credentials": False}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version_beside_it(file: Path) -> None:
    used = re.findall(r"uses: *(.*)", file.read_text())

    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_the_guide_names_only_paths_and_modules_that_exist() -> None:
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`([\w.<>/-]+)`", text))
    paths = {name for name in named if "/" in name and not name.startswith("..")}
    paths |= {name for name in named if re.fullmatch(r"[\w.-]+\.(md|yaml|toml|lock|py)", name)}
    paths |= set(re.findall(r"\]\(([\w./-]+)", text))
    modules = {name for name in named if re.fullmatch(r"tests(\.\w+)+", name)}
    modules |= set(re.findall(r"python -m ([\w.]+)", text))

    assert len(paths) > 40
    for path in paths:
        assert list(CHECKOUT.glob(re.sub(r"<\w+>", "*", path).rstrip("/"))), path
    assert len(modules) >= 4
    for module in modules:
        path = CHECKOUT / module.replace(".", os.sep)
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
