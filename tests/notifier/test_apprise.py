"""What Apprise's result is taken for: it hides bodies, so only statuses count."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.notifier.channel import Secrets
from exporter.notifier.robots import Apprise
from tests.notifier import golden
from tests.real.answering import Answering


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # which Apprise imports
@pytest.mark.parametrize(
    ("status", "reason"), [(200, ""), (401, "http"), (404, "http"), (429, "rate_limit"), (500, "server")]
)
def test_a_status_is_what_apprise_lets_through(tmp_path: Path, status: int, reason: str) -> None:
    file = tmp_path / "url"
    with Answering(status=status) as server:
        file.write_text(f"json://user:s3cretpass@127.0.0.1:{server.port}/s3cretpath77")
        channel = Apprise(Secrets(file), golden.wording("en"))
        message, _ = channel.compose([golden.card("hostile run name")])
        outcome = channel.send(message)

    assert outcome.reason == reason
    assert "s3cret" not in outcome.text
    assert len(server.received) == 1
    assert "KLExplosion" in json.dumps(server.received)


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
def test_channels_that_send_at_once_read_their_own_answers(tmp_path: Path) -> None:
    def outcomes(status: int) -> set[str]:
        with Answering(status=status) as server:
            file = tmp_path / str(status)
            file.write_text(f"json://127.0.0.1:{server.port}")
            channel = Apprise(Secrets(file), golden.wording("en"))
            message, _ = channel.compose([golden.card("one")])
            return {channel.send(message).reason for _ in range(20)}

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(outcomes, (404, 500))) == [{"http"}, {"server"}]


def test_without_the_package_messages_wait_and_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)  # what makes an import fail
    (tmp_path / "url").write_text("json://127.0.0.1")
    channel = Apprise(Secrets(tmp_path / "url"), golden.wording("en"))
    outcome = channel.send(channel.compose([golden.card("one")])[0])

    assert outcome.reason == "not_installed"
    assert "Fix: pip install" in outcome.text
