"""Which page answers which path, and what is refused because the page of another site made a browser ask.

Such a page may send requests to this machine from its reader's browser, with its own name as ``Origin``; or
have its own name resolve to 127.0.0.1 (DNS rebinding), which then stands in ``Host``. An IP address in
``Host`` cannot be a page's name, so any is accepted: behind a published port of a container the server does
not know the machine's.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from exporter.http.message import Answer, Later, Pages, Request, text

Page = Callable[[Request], Answer | Later]
Table = Mapping[str, Mapping[str, Page]]
"""Pages by path and method. One star in a path stands for any text, which the page gets as ``name``."""


class Routes:
    """Gives the answer to each request; words where there is no such page or method."""

    def __init__(self, table: Table) -> None:
        self._fixed = {path: pages for path, pages in table.items() if "*" not in path}
        self._open = {path: pages for path, pages in table.items() if "*" in path}

    def __call__(self, request: Request) -> Answer | Later:
        """The answer, or what will have it."""
        pages, path = self._fixed.get(request.path), request.path
        for pattern in self._open if pages is None else ():
            before, _, after = pattern.partition("*")
            name = path[len(before) : len(path) - len(after)]
            if name and path.startswith(before) and path.endswith(after):
                pages, request = self._open[pattern], request._replace(name=name)
                break
        if pages is None:
            return text("404 Not Found", f"Pages: {', '.join((*self._fixed, *self._open))}\n")
        if page := pages.get(request.method):
            return page(request)
        allow = ", ".join("GET, HEAD" if method == "GET" else method for method in pages)
        return text("405 Method Not Allowed", f"only {allow} is allowed here\n", ("Allow", allow))


CONTAINER_NAMES = (
    "exporter",
    "gpu",
    "bridge",
    "demo-gpu",
    "host.docker.internal",
)
"""By which containers of compose.yaml reach what is ours."""

OWN_NAMES = frozenset({"localhost", socket.gethostname().lower(), *CONTAINER_NAMES})

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
_ORIGIN = re.compile(r"https?://(.+)")


class HostCheck:
    """Answers by ``pages`` what passes the check.

    ``hosts`` are names, in lower case, that lead here besides this machine's own, such as those of
    ``links`` in config.yaml; they may be replaced at any time.
    """

    def __init__(self, pages: Pages, hosts: Iterable[str]) -> None:
        self.hosts = hosts
        self._pages = pages

    def __call__(self, request: Request) -> Answer | Later:
        """The answer of ``pages``, or 403 with the fix."""
        names = OWN_NAMES.union(self.hosts)
        asked = request.headers.get("host", "localhost")
        if not is_known(asked, names):
            return refusal("Host", asked)
        origin = request.headers.get("origin")
        if origin is not None:  # the page that asks is one of this machine's, whichever port served it
            site, host = _ORIGIN.fullmatch(origin), host_name(asked)
            name = host_name(site[1]) if site else None
            if name is None or not (name == host or name in names or {name, host} <= _LOOPBACK):
                return refusal("Origin", origin)
        return self._pages(request)


def is_known(authority: str, names: Collection[str]) -> bool:
    """Whether a ``Host`` is one of these names, or an IP address; the port is ignored."""
    host = host_name(authority)
    if host is None or host in names:
        return host is not None
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False


def host_name(authority: str) -> str | None:
    """The host of ``host:port`` in lower case, ``None`` if it is neither a name nor an address."""
    found = _AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower().rstrip(".") if found else None


def refusal(header: str, value: str) -> Answer:
    """403 because of this header, with the fix."""
    return text(
        "403 Forbidden",
        f"{header}: {value[:200]!r} is not a name of this machine. Expected: localhost, an IP address, or "
        "the host of a URL below `links` in config.yaml. Fix: add it there, then run `make up`.\n",
    )
