"""The headers of our answers to browsers: nothing else may be fetched, run, kept or framed."""

from __future__ import annotations

Headers = tuple[tuple[str, str], ...]


def headers(style: str = "") -> Headers:
    """Of an answer whose only style is the one with this hash, as a policy writes it."""
    allowed = f" style-src '{style}'; img-src 'self';" if style else ""
    policy = f"default-src 'none';{allowed} base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return (
        ("Content-Security-Policy", policy),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
    )
