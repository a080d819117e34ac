"""Which page answers which path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from exporter.http.message import Answer, Later, Request, text

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
        found = self._find(request)
        if found is None:
            return text("404 Not Found", f"Pages: {', '.join((*self._fixed, *self._open))}\n")
        pages, request = found
        page = pages.get(request.method)
        if page is None:
            allow = ", ".join(_methods(pages))
            return text("405 Method Not Allowed", f"only {allow} is allowed here\n", ("Allow", allow))
        return page(request)

    def _find(self, request: Request) -> tuple[Mapping[str, Page], Request] | None:
        if request.path in self._fixed:
            return self._fixed[request.path], request
        for pattern, pages in self._open.items():
            before, _, after = pattern.partition("*")
            if request.path.startswith(before) and request.path.endswith(after):
                name = request.path[len(before) : len(request.path) - len(after)]
                if name:
                    return pages, request._replace(name=name)
        return None


def _methods(pages: Mapping[str, Page]) -> Iterator[str]:
    for method in pages:
        yield from ("GET", "HEAD") if method == "GET" else (method,)
