"""The dead man's switch in config.yaml: what is refused, and what is rendered of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from stepwatch.config import load
from stepwatch.config.deployment import InContainers
from stepwatch.render.generator import render_all
from stepwatch.schema.errors import ConfigError
from stepwatch.system.environment import CHECKOUT, RESOURCES
from tests.real import alertmanager


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    for name, text in (("checker", "https://checker.example/ping/s3cret-uuid"), ("password", "s3cret")):
        (secrets / name).write_text(f"{text}\n")
        (secrets / name).chmod(0o644)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    (folder / "config.yaml").write_text(text)
    return folder / "config.yaml"


def rendered(folder: Path, text: str) -> str:
    """The settings of Alertmanager, for containers."""
    files = render_all(
        load(written(folder, text)),
        RESOURCES,
        lambda _: InContainers({folder / "secrets": "/etc/stepwatch/secrets"}),
        ("alertmanager",),
    )
    (found,) = (content.decode() for path, content in files.items() if path.name == "alertmanager.yml")
    assert "s3cret" not in found
    return found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deadman: {url_file: secrets/none}", "deadman.url_file: .*names a file that does not exist"),
        ("deadman: {url_file: secrets/password}", "names a file that holds no URL"),
        ("deadman: {url_file: secrets/checker, url: 'http://a/'}", "deadman: names two URLs"),
        ("deadman: {credentials_file: secrets/password}", "deadman: names no URL"),
        ("deadman: {url_file: secrets/checker, every: 2d}", 'every: "2d" is longer than 1d'),
        (
            "deadman: {url_file: secrets/checker}\nalerts: {Watchdog: {enabled: false}}",
            "deadman: would never be pinged: the alert Watchdog is switched off",
        ),
        (
            "deadman: {url_file: secrets/checker}\nrules: none",
            "deadman: would never be pinged: rules are evaluated elsewhere",
        ),
        (
            (
                'role: agent\nhub: {url: "https://h:1", token_file: secrets/password}\n'
                "deadman: {url_file: secrets/checker}"
            ),
            "deadman: has no effect on an agent",
        ),
    ],
)
def test_what_would_not_watch_is_refused_by_line_and_key(folder: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(written(folder, text))


def test_watchdog_goes_to_the_checker_alone_at_its_pace_and_its_end_to_no_one(folder: Path) -> None:
    settings = yaml.safe_load(rendered(folder, "deadman: {url_file: secrets/checker, every: 2m}"))
    (route,) = (each for each in settings["route"]["routes"] if "Watchdog" in str(each["matchers"]))
    assert route == {
        "matchers": ['alertname="Watchdog"'],
        "receiver": "(deadman)",
        "group_wait": "0s",
        # Looked at each minute; what is older than 90 s is sent: each second look.
        "group_interval": "1m",
        "repeat_interval": "1m30s",
    }
    (receiver,) = (each for each in settings["receivers"] if each["name"] == "(deadman)")
    assert receiver["webhook_configs"] == [
        {
            "url_file": "/etc/stepwatch/secrets/checker",
            "http_config": {"follow_redirects": False},
            "send_resolved": False,
        }
    ]

    settings = yaml.safe_load(rendered(folder, ""))
    (route,) = (each for each in settings["route"]["routes"] if "Watchdog" in str(each["matchers"]))
    assert route["receiver"] == "(none)"
    assert "(deadman)" not in str(settings["receivers"])


def test_alertmanager_accepts_the_example_of_the_documentation(folder: Path) -> None:
    page = (CHECKOUT / "docs/notifications.md").read_text().partition("\n## Dead man's switch\n")[2]
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (folder / "secrets/checker").rename(folder / "secrets/checker-url")
    file = folder / "alertmanager.yml"
    file.write_text(rendered(folder, example))
    assert file.read_text().count("/etc/stepwatch/secrets/checker-url") == 1
    command = [alertmanager("0.31").tool, "check-config", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
