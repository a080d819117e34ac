"""Labels that a client gives its servers: few, short, and none of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter import secret_shapes
from exporter.runs.registrations.refusal import RefusedError

OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""

MOST = 8
LONGEST_NAME = 64
LONGEST_VALUE = 100
"""Characters; Prometheus keeps each label's text for as long as the series."""

_OPEN = "labels without secrets, since everyone who sees an alert reads them"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def checked(found: Any, where: str, usual: Mapping[str, str] | None = None) -> dict[str, str]:
    """The labels of an object in the body, beside the usual ones; numbers become text.

    Args:
        found: What stands in the body; ``None`` is no labels.
        where: Its place there.
        usual: Labels that hold where it says nothing else; they count as well.

    Raises:
        RefusedError: it is no object, or holds what a label may not.
    """
    usual = usual or {}
    if found is None:
        return dict(usual)
    if not isinstance(found, Mapping):
        raise _refused(f"{where} is no object", 'an object such as {"replica": "0"}')
    count = len(usual.keys() | found.keys())
    if count > MOST:
        raise _refused(f"{where} has {count} labels", f"at most {MOST}, those of all targets included")
    own = {_name(name, where): _value(value, f"{where}.{name}") for name, value in found.items()}
    return {**usual, **own}


def _name(name: str, where: str) -> str:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.startswith("__"):
        raise _refused(
            f"{where} has a label {name[:LONGEST_NAME]!r}",
            f"names of letters, digits and _, at most {LONGEST_NAME}, that begin with no digit and no __",
        )
    if name in OURS:
        raise _refused(f"{where} has a label {name!r}, which Stepwatch gives", "another name")
    if secret_shapes.names_one(name):
        raise _refused(f"{where} has a label {name!r}, named like a secret", _OPEN)
    return name


def _value(value: Any, where: str) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else None
    if text is None or not text.isprintable() or len(text) > LONGEST_VALUE:
        raise _refused(f"{where} is no label", f"at most {LONGEST_VALUE} printable characters, or a number")
    if kind := secret_shapes.found(text):
        raise _refused(f"{where} holds what looks like {kind}", _OPEN)
    return text


def _refused(fault: str, expected: str) -> RefusedError:
    return RefusedError("labels", "400 Bad Request", f"{fault}. Expected: {expected}.")
