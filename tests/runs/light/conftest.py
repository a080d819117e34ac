from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from exporter.http.routes import Routes
from exporter.http.server import Server
from exporter.runs.light.site import Light
from tests.runs.light.browser import Browser, started
from tests.runs.light.stories import Reported

Serve = Callable[[Reported], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve the pages about these runs; gives the address."""
    servings: list[Server] = []

    def begin(reported: Reported) -> str:
        server = Server(("127.0.0.1", 0), Routes(Light(reported, ["/logs/rl"]).routes()))
        servings.append(server)
        server.start()
        return f"http://127.0.0.1:{server.port}"

    yield begin
    for serving in servings:
        serving.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser, started once."""
    with started() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser as someone opens it: nothing seen, nothing changed."""
    chromium.forget()
    return chromium
