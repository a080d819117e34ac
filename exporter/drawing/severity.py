"""How bad alerts are, and how that looks."""

from __future__ import annotations

SEVERITIES = ("critical", "warning", "info")
"""The worst first."""


def rank(severity: str) -> int:
    """Its place among them; one that is not ours comes last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def look(severity: str) -> str:
    """The class by which it gets its colour; one that is not ours looks like the mildest."""
    return severity if severity in SEVERITIES else SEVERITIES[-1]
