"""Each error of each robot ends in a retry or a failure that is counted, with the vendor's words."""

from __future__ import annotations

import pytest

from exporter.notifier.channel import REASONS, Ended
from tests.notifier import answers
from tests.notifier.answers import Result
from tests.real.robots import KINDS


@pytest.fixture(name="results", scope="module")
def _results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return answers.results(tmp_path_factory.mktemp("answers"))


def test_no_error_of_a_robot_is_silent(results: list[Result]) -> None:
    for result in results:
        ended = REASONS[result.reason]
        assert result.answer, result
        assert result.state == ("failed" if ended is Ended.REJECTED else "waiting"), result
        assert (result.retries >= 1) == (ended is Ended.RETRY), result
        assert (result.failures >= 1) == (ended is not Ended.RETRY), result


def test_the_vendors_words_are_shown(results: list[Result]) -> None:
    for result in results:
        body = KINDS[result.case.kind].answers.get(result.case.fault)
        if body is not None:
            words = str(body.get("errmsg") or body.get("msg"))
            assert words[:20] in result.answer


def test_the_document_has_the_table(results: list[Result]) -> None:
    text = answers.DOCUMENT.read_text()
    assert answers.written(text, answers.table(results)) == text, "run python -m tests.notifier.answers"
