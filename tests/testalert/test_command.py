"""`test-alert` against real Alertmanagers and real receivers: what arrives, and what is said about it."""

from __future__ import annotations

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stepwatch.config import load
from stepwatch.operate.test_alert import deliver
from stepwatch.schema.errors import ConfigError, Refused
from stepwatch.system import http_client
from tests.real.silences import silence
from tests.testalert.conftest import LOGIN, Bench

pytestmark = pytest.mark.e2e

Ended = dict[str, tuple[int, list[str]]]

FAILURES = {
    "broken": (r"webhook \(HTTP\): .*unexpected status code 500: .*it is broken", "has an internal error"),
    "gone": (r"webhook \(HTTP\): .*unexpected status code 404: .*says it", "check the path"),
    "no one there": (r"webhook \(HTTP\): .*connection refused", "nothing listens there"),
    "unencrypted": (r"mail \(SMTP\): .*does not advertise the STARTTLS extension", "try 587 or 465"),
    "wrong password": (r"mail \(SMTP\): .* auth: 535", "check username and what password_file holds"),
    "no mail server": (r"mail \(SMTP\): .*connection refused", "nothing listens there"),
    "chat is gone": (r"Slack: .*404: nothing at \(secret\), says it", "create a new webhook in Slack"),
    "chat is broken": (r"Slack: .*unexpected status code 500: it is broken", "has an internal error"),
}
WORKING = ("ops", "slow", "mail", "plain mail", "chat")


@pytest.fixture(name="ended", scope="module")
def _ended(bench: Bench) -> Ended:
    """Every receiver tested, all at once: each verdict must be found among the others' messages."""
    names = [*WORKING, *FAILURES]
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(bench.test, names), strict=True))


def get(bench: Bench, path: str) -> Any:
    return json.loads(http_client.read(f"{bench.server.url}/api/v2/{path}") or "null")


@pytest.mark.parametrize("name", WORKING)
def test_a_receiver_that_works_is_said_to_have_got_the_message(ended: Ended, name: str) -> None:
    code, said = ended[name]

    assert code == 0
    way = "Slack" if name == "chat" else r"mail \(SMTP\)" if "mail" in name else r"webhook \(HTTP\)"
    assert re.match(rf"{name}: Alertmanager delivered the test message by {way}\.", said[-1])


@pytest.mark.parametrize("name", FAILURES)
def test_a_receiver_that_fails_is_reported_with_its_own_error_and_the_fix(ended: Ended, name: str) -> None:
    code, said = ended[name]
    error, fix = FAILURES[name]

    assert code == 1
    first, second, last = said[-1].splitlines()
    assert re.match(f"{name}: not delivered by {error}", first)
    assert second == "  Alertmanager retries a real alert as long as it fires."
    assert last.startswith("  Fix: ")
    assert fix in last
    assert not re.search("s3cret|password-", "".join(said))


def test_a_webhook_gets_one_message_that_says_it_is_a_test(bench: Bench, ended: Ended) -> None:
    [message] = bench.good.received[:1]
    [alert] = message["alerts"]

    assert alert["status"] == "firing"
    assert (
        alert["labels"].items() >= {"alertname": "TestAlert", "receiver": "ops", "severity": "info"}.items()
    )
    assert "Nothing is wrong" in alert["annotations"]["summary"]


def test_a_mail_arrives_with_login_encrypted_and_readable_in_both_forms(bench: Bench, ended: Ended) -> None:
    [mailed] = bench.mailbox.received

    assert (mailed.encrypted, mailed.login) == (True, LOGIN[0])
    assert mailed.message["Subject"] == "TestAlert  This is a test of the receiver mail. Nothing is wrong."
    assert mailed.message["To"] == "on@call.example, second@call.example"
    for kind in ("plain", "html"):
        assert "there is nothing to do" in mailed.part(kind)
    assert "check that on@call.example and second@call.example received it" in ended["mail"][1][-1]


def test_what_goes_wrong_is_said_while_alertmanager_still_tries(ended: Ended) -> None:
    _, said = ended["broken"]

    assert re.fullmatch(r"  an attempt failed \(.*500.*it is broken\); Alertmanager retries \(5 s\)", said[1])


def test_nothing_that_fires_or_silences_is_left_behind(bench: Bench, ended: Ended) -> None:
    assert get(bench, "alerts?active=true") == []
    assert get(bench, "silences") == []


def test_when_patience_ends_it_says_that_nothing_is_known(bench: Bench) -> None:
    code, said = bench.test("slow", patience=1.5)

    assert code == 1
    assert "slow: not delivered by webhook (HTTP): no result after 2 s." in said[-1]
    assert "check whether it arrives, and the log of alertmanager" in said[-1]


def test_a_file_that_is_gone_when_it_is_needed_is_named(bench: Bench) -> None:
    receiver = next(each for each in load(bench.config).receivers if each.name == "lost")
    (path := bench.folder / "lost-url").unlink()
    why, *_, fix = deliver(receiver, bench.server.url, bench, texts={}, say=print)

    assert f"open {path}: no such file" in why
    assert "Fix: put the file back" in fix
    with pytest.raises(
        ConfigError, match=r"receivers\[13\]\.slack\.url_file: .* names a file that does not exist"
    ):
        bench.test("lost")
    path.write_text(bench.chat.url)


def test_a_silence_that_covers_it_is_named_and_left_alone(bench: Bench) -> None:
    made = silence(bench.server.url, "severity", ".+")
    code, said = bench.test("ops")

    assert code == 1
    assert "ops: not delivered by webhook (HTTP): a silence covers it." in said[-1]
    assert f"Fix: expire it at {bench.server.url}/#/silences/{made}." in said[-1]
    assert get(bench, f"silence/{made}")["status"]["state"] == "active"
    urllib.request.urlopen(
        urllib.request.Request(f"{bench.server.url}/api/v2/silence/{made}", method="DELETE"), timeout=10
    ).close()


def test_a_configuration_without_receivers_is_refused(bench: Bench, tmp_path: Any) -> None:
    (tmp_path / "config.yaml").touch()

    with pytest.raises(Refused, match=r"there are none\. Fix: add one there"):
        Bench(tmp_path, bench.server, bench.good, bench.chat, bench.mailbox).test("ops")


def test_settings_that_alertmanager_does_not_run_are_not_tested(bench: Bench) -> None:
    before = bench.config.read_text()
    bench.config.write_text(before.replace("credentials_file: token", "credentials_file: right"))
    sent = len(bench.good.received)

    with pytest.raises(Refused, match=r"runs other settings than .*config.yaml says.* Fix: `make up`"):
        bench.test("ops")

    assert len(bench.good.received) == sent
    bench.config.write_text(before)
