"""Every message is as messages.txt, or that of its language, has it, which people read from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwatch.languages import LANGUAGES
from tests import real
from tests.alerts import golden


@pytest.fixture(name="promtool", scope="module")
def _promtool() -> Path:
    return real.prometheus("3.13").tool


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_is_the_one_that_was_reviewed(promtool: Path, language: str) -> None:
    assert golden.text(promtool, language) == golden.FILES[language].read_text(), (
        "messages changed; `python -m tests.alerts.golden` writes them: read the difference"
    )
