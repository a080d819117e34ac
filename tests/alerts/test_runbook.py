"""The runbook says of each alert what the table says."""

from __future__ import annotations

import re

from stepwatch.config import Config
from stepwatch.config.reference import keys
from tests.alerts.runbook import PAGE, page

TEXT = PAGE.read_text()


def test_the_runbook_has_the_messages_limits_and_incidents_of_the_table() -> None:
    assert page(TEXT) == TEXT, "regenerate them: python -m tests.alerts.runbook"


def test_every_key_of_an_alert_that_a_document_names_is_one_of_the_configuration() -> None:
    known = {key.path for key in keys(Config)}
    named = [
        (path.name, key)
        for path in sorted(PAGE.parent.glob("*.md"))
        for key in re.findall(r"`(alerts\.[\w.]+)`", path.read_text())
    ]

    assert len(named) > 100
    assert [each for each in named if each[1] not in known] == []
