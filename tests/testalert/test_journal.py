"""What a log holds since a moment."""

from __future__ import annotations

from stepwatch.system.files import from_now_on


def test_a_journal_gives_what_came_since_it_was_from_now_on(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    news = from_now_on(log)
    assert news() == ""

    log.write_text("before\nafter\n")
    assert news() == "after\n"

    log.write_text("new\n")  # rotated
    assert news() == "new\n"

    log.unlink()
    assert news() == ""
