"""Links in notifications that only this machine can open are named, once, with the fix."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.generate import main
from stepwatch.render.generator import generate

RECEIVER = 'receivers: [{name: oncall, webhook: {url: "http://127.0.0.1:5001/"}}]\n'
PROXY = "https://stepwatch.example.org"


@pytest.fixture(autouse=True)
def _without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("PROMTOOL", "AMTOOL"):
        monkeypatch.setenv(f"STEPWATCH_{tool}", "/bin/true")


def test_a_receiver_with_links_on_loopback_is_warned_about_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(RECEIVER)
    assert main(["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")]) == 0

    assert capsys.readouterr().err == (
        "Warning: links.grafana and links.alertmanager: notifications to oncall link to "
        "http://127.0.0.1:3000, which only this machine can open. Expected: addresses that recipients can "
        "reach. Fix: set them to the URL of your proxy or of this host, such as "
        "https://stepwatch.example.org.\n"
    )


@pytest.mark.parametrize(
    ("settings", "parts", "named"),
    [
        ("", {"grafana"}, None),
        (RECEIVER + f"links: {{grafana: '{PROXY}/g', alertmanager: '{PROXY}/a'}}", {"grafana"}, None),
        (RECEIVER + f"links: {{grafana: '{PROXY}/g'}}", {"grafana"}, "links.alertmanager: "),
        (
            RECEIVER + "links: {grafana: 'http://localhost:1', alertmanager: 'http://[::1]:1'}",
            {"grafana"},
            "links.g",
        ),
        (RECEIVER + "listen: 0.0.0.0", {"grafana"}, "links.grafana and links.alertmanager: "),
        (RECEIVER + "listen: 10.0.0.7", {"grafana"}, None),
        (RECEIVER, set[str](), "links.exporter and links.alertmanager: "),
    ],
)
def test_only_links_that_notifications_have_and_that_others_cannot_open_are_named(
    settings: str, parts: set[str], named: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(settings)
    parts = parts | {"exporter", "prometheus", "alertmanager"}
    place = partial(OnThisMachine, parts=frozenset(parts))
    warning = generate(tmp_path / "config.yaml", tmp_path / "out", place=place).warning

    assert (warning or "").startswith(f"Warning: {named}" if named else "")
    assert bool(warning) == bool(named)
