"""What Apprise's result is taken for: it hides bodies, so only statuses count."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.bridge.robots import Outcome, Robot
from tests.bridge import golden
from tests.real.answering import Answering


def sent(file: Path, url: str, case: str = "one") -> Outcome:
    """What came of a message to a service by its Apprise URL."""
    file.write_text(url)
    robot = Robot("apprise", file)
    return robot.send(robot.compose(golden.card(case), golden.words()))


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # which Apprise imports
@pytest.mark.parametrize(
    ("status", "reason"), [(200, ""), (401, "http"), (404, "http"), (429, "rate_limit"), (500, "server")]
)
def test_a_status_is_what_apprise_lets_through(tmp_path: Path, status: int, reason: str) -> None:
    with Answering(status=status) as server:
        url = f"json://user:s3cretpass@127.0.0.1:{server.port}/s3cretpath77"
        outcome = sent(tmp_path / "url", url, "hostile run name")

    assert outcome.reason == reason
    assert "s3cret" not in outcome.said
    assert len(server.received) == 1
    assert "KLExplosion" in json.dumps(server.received)


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
def test_services_that_send_at_once_read_their_own_answers(tmp_path: Path) -> None:
    def reasons(status: int) -> set[str]:
        with Answering(status=status) as server:
            url = f"json://127.0.0.1:{server.port}"
            return {sent(tmp_path / str(status), url).reason for _ in range(20)}

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(reasons, (404, 500))) == [{"http"}, {"server"}]


def test_without_the_package_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)  # what makes an import fail
    outcome = sent(tmp_path / "url", "json://127.0.0.1")

    assert (outcome.reason, outcome.status) == ("not_installed", 400)
    assert "Fix: pip install" in outcome.said
