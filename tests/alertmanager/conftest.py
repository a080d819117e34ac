"""What the tests of routing and messages share: rendered files, and the programs that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwatch.config import load
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.render.generator import generate, render_all
from stepwatch.system.environment import RESOURCES
from tests.alertmanager.route import QUICK, Route
from tests.real import AlertmanagerServer, Tool, WebhookSink, alertmanager

Render = Callable[..., Path]


@pytest.fixture(params=["0.25", "0.31"])
def version(request: pytest.FixtureRequest) -> str:
    """The oldest Alertmanager that we promise to work on, and the newest that can be built."""
    name: str = request.param
    return name


@pytest.fixture
def tool(version: str) -> Tool:
    return alertmanager(version)


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render a configuration text; returns the folder that Alertmanager is given.

    The files of the other parts, which take nearly all of the time, are rendered only if asked for.
    """

    def rendered(
        text: str = "",
        slack: str = "http://127.0.0.1:9",
        place: Callable[..., Deployment] = OnThisMachine,
        *,
        whole: bool = False,
    ) -> Path:
        folder = tmp_path_factory.mktemp("rendered")
        (folder / "config.yaml").write_text(text)
        (folder / "token").write_text("s3cret-token\n")
        (folder / "password").write_text("s3cret-token")
        (folder / "chat-url").write_text("http://127.0.0.1:9/services/s3cret-url\n")
        (folder / "slack-url").write_text(f"{slack}/services/s3cret-url\n")
        if whole:
            generate(folder / "config.yaml", folder, place=place)
        else:
            files = render_all(load(folder / "config.yaml"), RESOURCES, place, ("alertmanager",))
            for path, content in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        return folder / "alertmanager" / "generated"

    return rendered


@pytest.fixture
def route(version: str, render: Render) -> Iterator[Route]:
    with WebhookSink() as sink:
        folder = render(f"receivers: [{{name: oncall, webhook: {{url: '{sink.url}'}}}}]\n{QUICK}")
        with AlertmanagerServer(version, folder) as server:
            yield Route(server, folder, sink)
