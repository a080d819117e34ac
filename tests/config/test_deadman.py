"""Who watches the watcher, in config.yaml: what is refused, and what is rendered of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config import load
from stepwatch.config.deployment import InContainers
from stepwatch.render.generator import render_all
from stepwatch.render.receivers import require_known
from stepwatch.schema.errors import ConfigError
from stepwatch.system.environment import RESOURCES


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


def rendered(folder: Path, text: str) -> dict[str, Any]:
    """The settings of Alertmanager and of the watchdog, for containers."""
    config = load(written(folder, text))
    files = render_all(
        config,
        RESOURCES,
        lambda _: InContainers({folder / "secrets": "/etc/stepwatch/secrets"}),
        ("alertmanager", "exporter"),
    )
    found = {path.name: content.decode() for path, content in files.items()}
    assert not any("s3cret" in content for content in found.values())
    return {
        "alertmanager": yaml.safe_load(found["alertmanager.yml"]),
        "watchdog": json.loads(found["watchdog.json"]),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deadman: {url_file: secrets/none}", "deadman.url_file: .*names no file"),
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
        ("peers: [{name: a}]", "peers.0..url: is missing"),
        ("peers: [{url: 'first:9093'}]", "peers.0..url: .*is not a URL"),
        ("peers: [{url: 'http://u:p@first:9093'}]", "holds a user name or password"),
        ("peers: [{url: 'http://a:1', username: ops}]", "peers.0.: has username without password_file"),
        ("peers: [{url: 'http://a:1'}, {url: 'http://a:1'}]", "peers.1..url: .*is also"),
        ("peers: [{url: 'http://a:1', name: x}, {url: 'http://b:1', name: x}]", "peers.1"),
    ],
)
def test_what_would_not_watch_is_refused_by_line_and_key(folder: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(written(folder, text))


def test_an_alertmanager_that_reads_no_url_from_a_file_is_refused_with_the_version_needed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "amtool"
    old.write_text("#!/bin/sh\necho amtool, version 0.25.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(old))
    file = written(folder, "deadman: {url_file: secrets/checker}")
    with pytest.raises(ConfigError, match=r":1: deadman.url_file: needs amtool 0.26 or later"):
        require_known(load(file), file, InContainers())


def test_watchdog_goes_to_the_checker_alone_at_its_pace_and_its_end_to_no_one(folder: Path) -> None:
    settings = rendered(folder, "deadman: {url_file: secrets/checker, every: 2m}")["alertmanager"]
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

    settings = rendered(folder, "")["alertmanager"]
    (route,) = (each for each in settings["route"]["routes"] if "Watchdog" in str(each["matchers"]))
    assert route["receiver"] == "(none)"
    assert "(deadman)" not in str(settings["receivers"])


def test_the_watchdog_is_given_peers_as_containers_see_them_and_nothing_without_any(folder: Path) -> None:
    settings = rendered(
        folder,
        """
alerts: {PeerDown: {for: 3m, severity: warning}}
external_labels: {cluster: b}
peers:
  - {url: "http://127.0.0.1:19093", name: first}
  - {url: "https://second:9093/am", username: ops, password_file: secrets/password}
""",
    )["watchdog"]
    assert settings["peers"] == [
        {"name": "first", "url": "http://host.docker.internal:19093"},
        {
            "name": "second:9093",
            "url": "https://second:9093/am",
            "username": "ops",
            "password_file": "/etc/stepwatch/secrets/password",
        },
    ]
    assert (settings["peer_for"], settings["peer_alert"]["severity"]) == (180, "warning")
    assert settings["peer_alert"]["labels"] == {"cluster": "b"}
    assert settings["peer_alert"]["annotations"]["runbook_url"].endswith("#peerdown")
    assert "peers" not in rendered(folder, "")["watchdog"]
