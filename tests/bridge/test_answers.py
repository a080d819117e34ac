"""Each error of each robot is answered to Alertmanager and counted, with the vendor's words."""

from __future__ import annotations

import pytest

from tests.bridge import answers
from tests.bridge.answers import Result
from tests.real.robots import KINDS


@pytest.fixture(name="results", scope="module")
def _results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return answers.results(tmp_path_factory.mktemp("answers"))


def test_no_error_of_a_robot_is_silent(results: list[Result]) -> None:
    for result in results:
        assert result.status in (400, 503), result
        assert result.said, result
        assert result.counted == 1, result
        body = KINDS[result.case.kind].answers.get(result.case.fault)
        if body is not None:
            assert str(body.get("errmsg") or body.get("msg"))[:20] in result.said


def test_the_document_has_the_table(results: list[Result]) -> None:
    text = answers.DOCUMENT.read_text()
    assert answers.written(text, answers.table(results)) == text, "run python -m tests.bridge.answers"
