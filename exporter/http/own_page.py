"""The pages of small services: HTML without scripts, with forms that their own buttons send."""

from __future__ import annotations

from html import escape

from exporter.http.message import Answer

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;color:#1f2328}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #d0d7de;overflow-wrap:anywhere}button{font:inherit;padding:.6rem 1.2rem}"
)
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Cache-Control", "no-store"),
    # With no-referrer a browser sends a form with `Origin: null`, which the host check refuses.
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)


def html(title: str, body: str) -> Answer:
    """Return a page; ``title`` is text, ``body`` is HTML."""
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{body}</html>"
    )
    return Answer("200 OK", "text/html; charset=utf-8", page.encode("utf-8", "backslashreplace"), HEADERS)
