"""What is read from Alertmanager's log, in the forms of old and new versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.operate.test_alert import LogResult, log_result
from stepwatch.system.files import from_now_on

PROBE = "(test) ops", "17"

RETRIES = (
    'ts=2025-11-21T16:32:56.700Z caller=notify.go:732 level=warn component=dispatcher receiver="(test) ops" '
    'integration=webhook[0] msg="Notify attempt failed, will retry later" attempts=1 err="it is \\"broken\\""'
)
GAVE_UP = (
    "ts=2025-11-21T16:33:06.697Z caller=dispatch.go:352 level=error component=dispatcher "
    'msg="Notify for alerts failed" num_alerts=1 err="(test) ops/webhook[0]: notify retry canceled after 7 '
    'attempts: it is broken: really"'
)
FINAL = GAVE_UP.replace("canceled after 7", "canceled due to unrecoverable error after 1")
SUCCESS = RETRIES.replace("Notify attempt failed, will retry later", "Notify success").partition(" err=")[0]


def in_group(line: str, mark: str) -> str:
    """The line as new versions write it."""
    return f'{line} aggrGroup="{{}}/{{alertname=\\"TestAlert\\"}}:{{test=\\"{mark}\\"}}"'


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        ((), LogResult()),
        ((RETRIES,), LogResult('it is "broken"')),
        ((RETRIES, GAVE_UP), LogResult("it is broken: really", gave_up=True, failures=True)),
        ((GAVE_UP, RETRIES), LogResult("it is broken: really", gave_up=True, failures=True)),
        ((FINAL,), LogResult("it is broken: really", gave_up=True, final=True, failures=True)),
        ((RETRIES, SUCCESS), LogResult('it is "broken"', delivered=True)),
    ],
    ids=["nothing", "tries again", "gives up", "restarts", "final", "delivered late"],
)
def test_the_story_of_a_message(lines: tuple[str, ...], reported: LogResult) -> None:
    assert log_result("\n".join(["level=info msg=Listening", *lines]), *PROBE) == reported
    assert log_result("\n".join(in_group(line, "17") for line in lines), *PROBE) == reported


@pytest.mark.parametrize("line", [RETRIES, GAVE_UP, FINAL, SUCCESS])
def test_other_messages_have_stories_of_their_own(line: str) -> None:
    for other in (
        in_group(line, "16"),
        line.replace("(test) ops", "ops"),
        line.replace("(test) ops", "(test) op"),
        line.replace("(test) ops", "(test) ops 2"),
    ):
        reported = log_result(other, *PROBE)
        assert (reported.error, reported.delivered, reported.gave_up) == ("", False, False)
        assert reported.failures == ("Notify for alerts failed" in line)


def test_a_failure_in_words_that_are_new_is_still_a_failure() -> None:
    reported = log_result('msg="Notify for alerts failed" err="(test) ops/webhook[0]: something new"', *PROBE)

    assert (reported.error, reported.gave_up) == ("(test) ops/webhook[0]: something new", True)


@given(st.text())
def test_any_error_is_read_as_it_was_written(error: str) -> None:
    for ascii_only in (True, False):
        quoted = json.dumps(error, ensure_ascii=ascii_only)
        line = f'receiver="(test) ops" msg="Notify attempt failed, will retry later" err={quoted} attempts=1'
        assert log_result(line, *PROBE).error == error


@given(st.text())
def test_any_log_is_read(text: str) -> None:
    log_result(text, *PROBE)
    log_result(f'msg="Notify {text}', *PROBE)


def test_what_go_escapes_and_json_does_not_know_is_shown_as_it_stands() -> None:
    line = RETRIES.partition(" err=")[0] + r' err="bell \a and \x1b[0m"'
    assert log_result(line, *PROBE).error == r"bell \a and \x1b[0m"


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


def test_a_log_may_begin_after_its_journal(tmp_path) -> None:
    news = from_now_on(tmp_path / "log")
    assert news() == ""

    (tmp_path / "log").write_text("first\n")

    assert news() == "first\n"
