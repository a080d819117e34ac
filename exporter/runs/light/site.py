"""What is answered to those who look at runs, by path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.light import Story, formatting, links
from exporter.runs.light.api import Api
from exporter.runs.light.card import Card, ordered
from exporter.runs.light.headers import headers
from exporter.runs.logs.names import nearest

if TYPE_CHECKING:
    from exporter.runs.light.pages import Pages
import pickle
from collections.abc import Callable, Hashable
from hashlib import sha256

MOST = 8
"""Pages that are kept: a page of a run may take 200 kB."""


class Kept:
    """The last answers, each with what it was made of."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[object, Answer]] = {}

    def answer(self, key: Hashable, basis: object, make: Callable[[], Answer]) -> Answer:
        """The answer for a key, made anew only if ``basis`` is no longer the same."""
        known = self._answers.pop(key, None)
        answer = known[1] if known and known[0] == basis else make()
        self._answers[key] = basis, answer
        while len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]
        return answer


def digest(value: object) -> bytes:
    """Stands in a basis for what would take too much memory there: the charts of a run hold 1.4 MB.

    It may differ for equals, whose page is then made once more, and is never the same for others. Unlike
    ``hash`` it tells -1.0 from -2.0.
    """
    return sha256(pickle.dumps(value)).digest()


ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<path d="M1 12h4V8h4V4h6" fill="none" stroke="#1a6fc0" stroke-width="3"/></svg>'
)


class Light:
    """The pages and their JSON. ``watched`` are the folders in which runs are looked for."""

    def __init__(self, story: Story, watched: Sequence[str]) -> None:
        self._story = story
        self._watched = watched
        self._kept = Kept()

    def routes(self) -> Table:
        """By path."""
        return {
            "/": {"GET": self._runs},
            "/run/*": {"GET": self._run},
            "/icon.svg": {"GET": lambda _: Answer("200 OK", "image/svg+xml", ICON, headers())},
            **Api(self._story).routes(),
        }

    @cached_property
    def _pages(self) -> Pages:
        # templates weigh 8 MB, which no one need pay who looks at no page
        made: Pages = import_module("exporter.runs.light.pages").Pages(self._watched)
        return made

    def _runs(self, request: Request) -> Answer:
        cards, others, as_of = ordered(self._story.runs()), self._story.others(), _as_of(request)
        basis = cards, others, self._story.unshown, self._story.prometheus, as_of
        faults = self._story.faults

        def make() -> Answer:
            return self._html("200 OK", self._pages.runs(*basis, faults=faults), refreshed=not as_of)

        return self._kept.answer(("", not as_of), (basis, faults), make)

    def _run(self, request: Request) -> Answer:
        if "/" in request.name:
            return _whole(request)
        name, as_of = unquote(request.name), _as_of(request)
        story = self._story.run(name)
        if story is None:
            return self._unknown(name)
        card, trouble = Card.of(story.summary), self._story.prometheus or story.lack
        faults = self._story.faults

        def make() -> Answer:
            page = self._pages.run(card, story, trouble, as_of, faults=faults)
            return self._html("200 OK", page, refreshed=not as_of)

        others = trouble, faults, as_of
        basis = card, digest(story.charts), story.episodes, story.rows, story.candidates, others
        return self._kept.answer((name, not as_of), basis, make)

    def _unknown(self, name: str) -> Answer:
        """It may come yet while logs are read, and an open page must show it then."""
        near, unshown = nearest(name, [run.name for run in self._story.runs()]), self._story.unshown
        status = "503 Service Unavailable" if unshown.reading else "404 Not Found"
        return self._html(status, self._pages.unknown(name, near, unshown), refreshed=unshown.reading)

    def _html(self, status: str, page: bytes, *, refreshed: bool) -> Answer:
        fields = headers(self._pages.style)
        if refreshed:
            fields = (*fields, ("Refresh", str(self._pages.seconds)))
        return Answer(status, "text/html; charset=utf-8", page, fields)


def _whole(request: Request) -> Answer:
    """Leads to the same run with its slashes escaped, since links are relative to the page."""
    up = "../" * (request.name.count("/") + 1)
    query = f"?{request.query}" if request.query else ""
    link = f"{up}{links.page(unquote(request.name))}{query}"
    return text("302 Found", f"{link}\n", ("Location", link), *headers())


def _as_of(request: Request) -> str:
    """The time, if the page shall not refresh itself."""
    return formatting.clock(time.time()) if parse_qs(request.query).get("refresh") == ["off"] else ""
