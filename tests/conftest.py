from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.list: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.list.append(record.getMessage())


@pytest.fixture(name="logged")
def _logged() -> Iterator[list[str]]:
    """The messages that our code logs in this process, from warnings on, as they come."""
    handler = _Messages()
    logging.getLogger().addHandler(handler)
    yield handler.list
    logging.getLogger().removeHandler(handler)
