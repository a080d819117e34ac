"""Lines as verl's loggers write them: ``file`` (a JSON object a line) and ``console``."""

from __future__ import annotations

import json
from typing import Protocol

from demo.story import RESPONSE_LIMIT
from demo.verl import PROMPT_LIMIT, Values


class Logger(Protocol):
    """How one of verl's loggers writes a run."""

    suffix: str

    def opening(self, total: int) -> str:
        """What stands before the first record of a run of so many steps."""

    def record(self, step: int, values: Values) -> str:
        """The line of one record."""

    def closing(self, values: Values) -> str:
        """What stands behind the last record, with the values of the last validation."""


class File:
    """``trainer.logger=file``: nothing but records, and so no total and no end mark."""

    suffix = ".jsonl"

    def opening(self, total: int) -> str:  # noqa: ARG002 - the file does not say it
        return ""

    def record(self, step: int, values: Values) -> str:
        return json.dumps({"step": step, "data": values}, separators=(",", ":")) + "\n"

    def closing(self, values: Values) -> str:  # noqa: ARG002 - nor this
        return ""


class Console:
    """``trainer.logger=console``, as Ray shows it on the driver's terminal: with colours and chatter."""

    suffix = ".log"

    def opening(self, total: int) -> str:
        return "".join(
            map(
                _said,
                (
                    "TaskRunner hostname: simulation, PID: 4711",
                    f"{{'data': {{'max_prompt_length': {PROMPT_LIMIT},",
                    f"          'max_response_length': {RESPONSE_LIMIT}}},",
                    " 'trainer': {'logger': ['console'], 'project_name': 'demo'}}",
                    f"Total training steps: {total}",
                ),
            )
        )

    def record(self, step: int, values: Values) -> str:
        fields = [f"step:{step}", *(f"{key}:{value!r}" for key, value in values.items())]
        return _said(" - ".join(fields))

    def closing(self, values: Values) -> str:
        return _said(f"Final validation metrics: {values!r}")


LOGGERS: dict[str, Logger] = {"file": File(), "console": Console()}


def _said(line: str) -> str:
    return f"\x1b[36m(TaskRunner pid=4711)\x1b[0m {line}\n"
