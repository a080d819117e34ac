"""What a program of ours has logged, in either format."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping

from tests.real.waiting import HANG_SECONDS

_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)(?: |$)')

Record = Mapping[str, str]


def records(lines: str) -> list[Record]:
    """Each line as a record, ``message`` included; fails where a line is none."""
    return [_record(line) for line in lines.splitlines()]


def _record(line: str) -> Record:
    if line.startswith("{"):
        found: dict[str, str] = json.loads(line)
    else:
        pairs = _FIELD.findall(line)
        assert " ".join(f"{key}={value}" for key, value in pairs) == line, f"no record: {line}"
        found = {"message" if key == "msg" else key: _unquoted(value) for key, value in pairs}
    assert found.keys() >= {"time", "level", "logger", "message"}, line
    return found


def _unquoted(value: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", value[1:-1]) if value.startswith('"') else value


def split(lines: str, expected: str = "") -> tuple[str, str]:
    """The messages of information, and those of what went wrong, a line each.

    Those of the ``expected`` logger count as information.
    """
    found = records(lines)
    wrong = [each for each in found if each["level"] in ("WARN", "ERROR") and each["logger"] != expected]
    return _messages(each for each in found if each not in wrong), _messages(wrong)


def _messages(found: Iterable[Record]) -> str:
    return "".join(f"{each['message']}\n" for each in found)


def refusal(process: subprocess.Popen[str]) -> str:
    """What a program says that does not start, with exit code 2 and without a traceback."""
    try:
        out, errors = process.communicate(timeout=HANG_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 2
    assert out == ""
    assert "Traceback" not in errors
    return errors
