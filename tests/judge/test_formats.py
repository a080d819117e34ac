"""The page of formats, which shows what is read of the labelled logs."""

from __future__ import annotations

from tests import formats
from tests.judge.labels import labels
from tests.public_logs import needed

pytestmark = needed


def test_the_page_of_formats_shows_what_is_read_of_the_real_logs_today() -> None:
    shown = formats.PAGE.read_text(encoding="utf-8")

    assert formats.page(shown) == shown


def test_every_real_log_of_a_trainer_is_read() -> None:
    others = {label.file for label in labels() if label.verdict == "other"}
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in formats.table().splitlines()[2:]]

    assert [row[0] for row in rows if row[0] not in others and int(row[4] or 0) < 10] == []
