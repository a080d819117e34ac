"""What is wrong with a configuration, in the words its author reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exporter import secret_shapes

KeyPath = tuple[str | int, ...]

SHOWN_CHARACTERS = 60
SHOWN_PROBLEMS = 20

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_OPEN_RECEIVER_KEYS = {
    *("name", "severities", "send_resolved", "to", "from", "tls"),
    *("topics", "runs", "matchers", "when", "active_time_intervals", "mute_time_intervals"),
}
_OPEN_POLLED_KEYS = {"run", "step", "experiments", "run_ids"}
_TOKEN_KEYS = {"token_file", "bearer_token_file", "password_file", "headers"}
# A login, a query, or a long word such as tokens are.
_SECRET_IN_URL = re.compile(r"[@?]|[\w-]{20}")


class Written(str):
    """A value as written in the file, where its type is in doubt."""

    __slots__ = ()


# The value of a fault that is about no single value.
NOTHING = Written()


class Refused(Exception):  # noqa: N818  a refusal is the user's to correct, not an error of the program
    """Raised when a command cannot do what was asked; its text is the whole message."""


class Fault(ValueError):  # noqa: N818  a fault of the file, not an error of the program
    """Raised by a check of one value: the fault as the rest of a sentence after it, and how to correct it."""

    def __init__(self, says: str, *, expected: str, fix: str, at: KeyPath = (), value: Any = None) -> None:
        super().__init__(says)
        self.says = says
        self.expected = expected
        self.fix = fix
        self.at = at
        self.value = value

    def below(self, path: KeyPath) -> Fault:
        """Return the same fault as seen from further up."""
        return type(self)(
            self.says, expected=self.expected, fix=self.fix, at=path + self.at, value=self.value
        )

    def of(self, value: Any) -> Fault:
        """Return the same fault with its value, unless it has one."""
        value = value if self.value is None else self.value
        return type(self)(self.says, expected=self.expected, fix=self.fix, at=self.at, value=value)


class SecretFault(Fault):
    """Raised where a secret must not be, with the fix for that key."""


class Faults(ValueError):  # noqa: N818  as above
    """Raised by a check of a whole model that found one fault or more."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.says for fault in self.faults))


@dataclass(frozen=True)
class Problem:
    """One fault at its place in the file; the line is None where the whole file is meant."""

    line: int | None
    fault: Fault

    def __str__(self) -> str:
        fault = self.fault
        place = f"{spell(fault.at)}: " if fault.at else ""
        value = f"{shown(fault.at, fault.value)} " if fault.value is not NOTHING else ""
        stop = "" if fault.fix.endswith("?") else "."
        text = f"{place}{value}{fault.says}. Expected: {fault.expected}. Fix: {fault.fix}{stop}"
        return secret_shapes.masked(text)


class ConfigError(Refused):
    """Raised when a configuration file is refused; one line of text per problem."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        lines = [
            f"{file}:{problem.line}: {problem}" if problem.line else f"{file}: {problem}"
            for problem in self.problems[:SHOWN_PROBLEMS]
        ]
        if (more := len(self.problems) - SHOWN_PROBLEMS) > 0:
            lines.append(f"{file}: {more} more problems, shown once these are corrected.")
        super().__init__("\n".join(lines))


def refusal(file: str, says: str, *, expected: str, fix: str, line: int | None = None) -> ConfigError:
    """Return the error for a file that is refused as a whole."""
    return ConfigError(file, [Problem(line, Fault(says, expected=expected, fix=fix, value=NOTHING))])


def spell(path: KeyPath) -> str:
    """Return a key path as text: `scrape[0].labels.rack`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            masked = secret_shapes.masked(part)  # before it is cut, since half a secret has no shape
            text += f".{masked}" if _PLAIN_KEY.fullmatch(masked) else f"[{clip(quoted(masked))}]"
    return text.removeprefix(".")


def shown(path: KeyPath, value: Any) -> str:
    """Return a value as a message may print it: short, and never a secret."""
    if _may_be_secret(path, value):
        return "the value (not shown)"
    if isinstance(value, Mapping | list | tuple):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    return clip(value if isinstance(value, Written) and value.isprintable() else quoted(value))


def named(path: KeyPath) -> bool:
    """Return whether the last key of a path is the name of a secret."""
    return bool(path) and isinstance(path[-1], str) and secret_shapes.names_one(path[-1])


def _may_be_secret(path: KeyPath, value: Any) -> bool:
    """Return whether the value may be a secret, even by mistake: secrets belong in files of their own."""
    if named(path) or secret_shapes.found(str(value)):
        return True
    if path[:1] == ("receivers",):
        return not _OPEN_RECEIVER_KEYS.intersection(path)
    if path[:2] in (("runs", "pages"), ("runs", "mlflow")) and not _OPEN_POLLED_KEYS.intersection(path):
        return bool(_TOKEN_KEYS.intersection(path) or _SECRET_IN_URL.search(str(value)))
    return bool(_TOKEN_KEYS.intersection(path)) or (path[:1] == ("links",) and "@" in str(value))


def quoted(value: Any) -> str:
    """Return a value as JSON on one line, without characters that YAML or a terminal would act upon."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def clip(text: str) -> str:
    """Return the text, cut where a message would become unreadable."""
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
