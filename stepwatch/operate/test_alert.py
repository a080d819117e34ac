"""``python -m stepwatch test-alert``: one marked message to a receiver, and what became of it."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from exporter import secret_shapes
from stepwatch.config import load
from stepwatch.config.integrations import Integration, Mail
from stepwatch.config.receiver_kinds import KINDS
from stepwatch.config.receivers import Receiver
from stepwatch.languages import Catalogue, catalogue
from stepwatch.render.generator import rendered
from stepwatch.schema.errors import Refused
from stepwatch.schema.path_types import read_secret
from stepwatch.services.settings import alertmanager_runs
from stepwatch.system import http_client
from stepwatch.system.environment import RESOURCES
from stepwatch.system.terminal import Say

if TYPE_CHECKING:
    from stepwatch.deploy.backend import Stack

_SETTINGS = PurePosixPath("alertmanager/generated/alertmanager.yml")
_SAMPLE = re.compile(r"^alertmanager_notification(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_GAVE_UP = re.compile(r": notify retry canceled( due to unrecoverable error)? after \d+ attempts: (.*)", re.S)
_BETWEEN_LOOKS, _BETWEEN_NEWS = 0.2, 5.0
_SILENT = 2.0
"""Seconds without an attempt after which a message counts as blocked."""
_ROUND = 12.0
"""Seconds until Alertmanager has either delivered a message or logged that it gave up: 10, and some."""
"""Seconds before each try: Alertmanager answers 8 GETs at a time (`--web.get-concurrency`), others 503."""

# Labels of receivers (http: of all that speak it), a sign in the error, and what to do; the first that fits.
# That of SNS is above timeouts: without credentials, it looks for them on a server of AWS.
_FIXES = r"""
sns: status code 40[013]|credential -> check the AWS credentials that Alertmanager finds, and what they allow
all: connection refused -> nothing listens there: check host and port, and that the receiver is running
all: no such host|server misbehaving -> unknown host: check its name
all: no route to host|is unreachable|timeout|deadline -> it is unreachable: check address, firewall and proxy
all: no such file -> put the file back, or name another one in config.yaml and `make up`
all: permission denied -> let Alertmanager's user read that file
all: x509|certificate|tls: -> use the host name of the certificate, or add its CA to the trusted ones here
http: unsupported protocol|invalid (URL|character) -> check the address in url or url_file
slack: status code 40[134]|no_service|no_team -> create a new webhook in Slack and put its URL into url_file
slack: channel_not_found|channel_is -> name another channel, or none to use the webhook's own
webhook: status code (401|403) -> check what credentials_file, or url_file, holds
webhook: status code 404 -> check the path in the URL: the server does not know it
telegram: Unauthorized|Not Found -> check what bot_token_file holds: BotFather shows the token
telegram: chat not found|was (blocked|kicked)|not a member -> check chat_id (a group's is < 0); add the bot
telegram: Too Many Requests|retry after -> wait: Telegram's rate limit is reached
discord mattermost msteams msteamsv2: status code (40[134]|410)|Invalid webhook -> create a new webhook \
    there and put its URL into webhook_url_file
opsgenie victorops: Key format|status code 40[134] -> check what api_key_file holds
rocketchat: Rocketchat|status code 400 -> check channel, and that the user of token_id_file may write there
wechat: invalid APISecret -> check corp_id and what api_secret_file holds
pagerduty: invalid.*key|status code 40[013] -> check what routing_key_file (v2) or service_key_file (v1) holds
http: status code (401|403) -> check what the file with its key or token holds
http: status code 3 -> use the address that it redirects to: redirects are not followed
http: status code 429 -> wait: its rate limit is reached
http: status code 4 -> it rejects this message: check what it expects, and its log
http: status code 5 -> it has an internal error: check its log
email:  auth: |\b53[45]\b -> check username and what password_file holds (before 0.27: without a newline)
email: STARTTLS extension -> it offers no encryption here: try 587 or 465, or tls: false in a trusted network
email: auth mechanism -> the server accepts neither PLAIN nor LOGIN: use another server
email: RCPT command -> the server does not accept mail for this address: check to, or log in
email: MAIL command -> the server does not accept mail from this address: check from, or log in
email: first record does not look like a TLS|EOF -> check the port: 465 speaks TLS at once, 587 later
""".replace("\\\n    ", "").strip()
_ROBOT_FIXES: Mapping[str, str] = {
    "signature": "check secret_file, and the clock of this machine: a signature is valid for an hour",
    "keyword": "set keyword to one of the robot's own, or remove its keywords",
    "address": "add this machine's public address to the robot's list, or use its signature instead",
    "revoked": "create a new robot and put its URL into url_file",
    "http": "check the URL in url_file",
    "secret_file": "correct that file; the notifier retries as soon as it changes",
    "not_installed": "install it where Stepwatch runs, then `make up`",
    "rate_limit": "wait: the robot's rate limit is reached",
    "message": "see its answer; a robot that refuses a test refuses alerts as well",
    "server": "it has an internal error: try again later",
    "answer": "the answer is not from this robot: check the URL in url_file, and proxies",
    "timeout": "check firewall and proxy from where the notifier runs",
    "connection": "check address, firewall and proxy from where the notifier runs",
}
"""By the notifier's reason."""


def send_test(config: Path, name: str, stack: Stack, say: Say, *, patience: float = 60) -> int:
    """Send one marked message to a receiver by Alertmanager. Returns 0 when it took it, 1 when not."""
    settings = load(config)
    known = {receiver.name: receiver for receiver in settings.receivers}
    if not known:
        raise Refused(f"{config}: receivers: there are none. Fix: add one there, then `make up`.")
    if name not in known:
        raise Refused(
            f"{name} is not a receiver of {config}. Expected: {' or '.join(known)}. "
            f"Fix: name one of these, or add it there and `make up`."
        )
    alertmanager = f"http://{settings.address('alertmanager')}"
    expected = rendered(config, RESOURCES, stack.deployment)[_SETTINGS]
    if not alertmanager_runs(page(alertmanager, "/metrics"), expected):
        raise Refused(
            f"The Alertmanager at {alertmanager} runs other settings than {config} says, and the test "
            "would be of those. Fix: `make up` (for another file `make up CONFIG=file`), then test again."
        )
    say(f"Sending a test message to {name} ...")
    journal, where = stack.journal("alertmanager"), stack.log("alertmanager")
    test = Probe(known[name], alertmanager, journal, where, catalogue(settings.language))
    delivered, words = test.run(say, patience)
    if delivered and known[name].robot:
        delivered, words = test.by_notifier(f"http://{settings.address('notifier')}", patience)
    say(words)
    return 0 if delivered else 1


def page(alertmanager: str, path: str) -> str:
    """A page of Alertmanager, which may take a minute on a machine that is busy. Raises Refused."""
    end = time.monotonic() + 60
    for seconds in (0.0, 0.5, 1.0, 2.0):
        time.sleep(seconds)
        left = max(1.0, end - time.monotonic())
        if (text := http_client.read(alertmanager + path, timeout=left)) is not None:
            return text
    raise Refused(http_client.unanswered("Alertmanager", alertmanager))


def sent(alertmanager: str, integration: str, route: str) -> tuple[Counter[str], bool]:
    """Alertmanager's counters of this kind of receiver by name; whether they are of this receiver alone."""
    samples = [
        (name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value))
        for name, labels, value in _SAMPLE.findall(page(alertmanager, "/metrics"))
    ]
    mine = [each for each in samples if each[1].get("integration") == integration]
    exact = any("receiver_name" in labels for _, labels, _ in mine)
    found: Counter[str] = Counter()
    for name, labels, value in mine:
        if not exact or labels.get("receiver_name") == route:
            found[name] += value  # type: ignore[assignment]
    return found, exact


class LogResult(NamedTuple):
    """A message's fate by the log; ``final``: the error does not pass, ``failures``: some failed."""

    error: str = ""
    delivered: bool = False
    gave_up: bool = False
    final: bool = False
    failures: bool = False


def log_result(text: str, route: str, mark: str) -> LogResult:
    """Read the fate of a test from Alertmanager's log."""
    result, failures = LogResult(), False
    for line in text.split("\n"):
        if "Notify " not in line:
            continue
        entry = {}
        for name, value in re.findall(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)', line):
            entry[name] = value.removeprefix('"').removesuffix('"')
            with suppress(ValueError):  # Go escapes a few characters that JSON does not know
                entry[name] = str(json.loads(value)) if value.startswith('"') else value
        message, error = entry.get("msg", ""), entry.get("err", "")
        failed = message == "Notify for alerts failed"
        failures = failures or failed
        # New Alertmanagers name the group, and so the test, that an entry is about.
        if mark not in entry.get("aggrGroup", mark):
            continue
        if failed and error.startswith(f"{route}/"):
            end = _GAVE_UP.search(error)
            result = LogResult(end[2] if end else error, gave_up=True, final=bool(end and end[1]))
        elif entry.get("receiver") == route:
            if message == "Notify success":
                result = LogResult(result.error, delivered=True)
            # After giving up, it restarts as long as the alert lasts.
            elif message.startswith("Notify attempt failed") and not result.gave_up:
                result = LogResult(error)
    return result._replace(failures=failures)


def notes(receiver: str, translate: Catalogue) -> dict[str, str]:
    """The texts of a test alert."""
    return {
        "summary": translate(
            "This is a test of the receiver {receiver}. Nothing is wrong.", receiver=receiver
        ),
        "description": translate(
            "Someone ran `test-alert {receiver}` to see that messages arrive here. "
            "A real one looks like this one. Nothing is wrong, and there is nothing to do.",
            receiver=receiver,
        ),
    }


@dataclass(frozen=True)
class Probe:
    """A test of one receiver by a mark of its own; ``journal`` reads Alertmanager's log since the start."""

    receiver: Receiver
    alertmanager: str
    journal: Callable[[], str]
    where: str = "the log"
    translate: Catalogue = field(default_factory=Catalogue)
    mark: str = field(default_factory=lambda: str(time.time_ns()))
    born: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def route(self) -> str:
        """The receiver of Alertmanager's settings that gets it: it alone, and by the same way."""
        return f"(test) {self.receiver.name}"

    def run(self, say: Say, patience: float) -> tuple[bool, str]:
        """Send the test, wait until its end is known or patience is, and take the test back."""
        way = self.receiver.integration
        (before, _), begun = sent(self.alertmanager, way.label, self.route), time.monotonic()
        news, fires, delivered = _BETWEEN_NEWS, True, False
        self._post()
        try:
            while True:
                now, exact = sent(self.alertmanager, way.label, self.route)
                counted, log = now - before, log_result(self.journal(), self.route, self.mark)
                seconds, was = time.monotonic() - begun, delivered
                arrived = counted["_requests_total"] - counted["_requests_failed_total"]
                delivered = log.delivered
                if arrived > 0 and not log.error:  # the log is silent about a first attempt that succeeds
                    # It may be another receiver's; but the test's failure would be in the log by then.
                    logged = log.failures or not counted["s_failed_total"]
                    delivered = log.delivered or exact or (seconds > _ROUND and logged)
                # One page may have counted an attempt and not yet its failure: a second one decides.
                if was and delivered:
                    return True, self._taken(counted)
                if not delivered and (ended := self._failed(seconds, counted, log, patience, exact=exact)):
                    return False, ended
                if fires and log.error:  # attempts continue; but once given up, they do not restart
                    self._post(over=True)
                    fires = False
                if seconds > news:
                    state = "waiting for Alertmanager"
                    if log.error:
                        state = (
                            f"an attempt failed ({redacted(log.error, way.secrets)}); Alertmanager retries"
                        )
                    elif arrived > 0:
                        state = "messages arrive; waiting for Alertmanager's log"
                    say(f"  {state} ({news:.0f} s)")
                    news += _BETWEEN_NEWS
                time.sleep(_BETWEEN_LOOKS)
        finally:
            if fires:
                self._post(over=True)

    def _post(self, *, over: bool = False) -> None:
        """Post the alert, firing or ended, as Prometheus does. Without run and topic: nothing inhibits it."""
        name = self.receiver.name
        labels = {"alertname": "TestAlert", "receiver": name, "severity": "info", "test": self.mark}
        # It ends by itself in case this command is killed before it ends it.
        end = datetime.now(timezone.utc) if over else self.born + timedelta(minutes=3)
        times = {"startsAt": self.born.isoformat(), "endsAt": end.isoformat()}
        alert = {"labels": labels, "annotations": notes(name, self.translate), **times}
        answer = http_client.order(f"{self.alertmanager}/api/v2/alerts", [alert])
        if answer is None:
            raise Refused(http_client.unanswered("Alertmanager", self.alertmanager))
        if answer:
            raise Refused(f"Alertmanager refuses the test alert. It says: {answer}")

    def _taken(self, counted: Counter[str]) -> str:
        way, once = self.receiver.integration, counted["_requests_total"] == 1
        took = f" in {max(counted['_latency_seconds_sum'], 0.01):.2f} s" if once else ""
        words = f"{self.receiver.name}: Alertmanager delivered the test message by {way.title}{took}."
        if isinstance(way, Mail):
            *others, last = way.to
            names = f"{', '.join(others)} and {last}" if others else last
            words += f"\n  The mail server accepted it: check that {names} received it, and not as spam."
        return words

    def _failed(
        self, seconds: float, counted: Counter[str], log: LogResult, patience: float, *, exact: bool
    ) -> str:
        """Why it did not arrive; empty as long as it may."""
        way, late = self.receiver.integration, seconds > patience
        if log.gave_up or (late and log.error):
            again = "Alertmanager is still trying."
            if log.final:
                again = "Alertmanager treats that as permanent and tried once; a real alert is retried at "
                again += "intervals."
            elif log.gave_up:
                again = "Alertmanager tried several times; a real alert is retried as long as it fires."
            what = fix(log.error, way) or f"check {self.where}"
            return self._undelivered(redacted(log.error, way.secrets), again, what)
        if seconds > _SILENT and exact and counted["s_failed_total"]:  # the failure of this very message
            return self._undelivered(
                "Alertmanager counts a failure", f"{self.where} names the error.", "fix that"
            )
        messages = counted["s_total"]
        if seconds > _SILENT and not messages:
            query = urllib.parse.urlencode({"filter": f'test="{self.mark}"'})
            alerts = json.loads(page(self.alertmanager, f"/api/v2/alerts?{query}"))
            for silence in (each for alert in alerts for each in alert["status"]["silencedBy"]):
                what = f"expire it at {self.alertmanager}/#/silences/{silence} and test again"
                return self._undelivered("a silence covers it", "It may cover real alerts as well.", what)
        if not late:
            return ""
        arrived = counted["_requests_total"] - counted["_requests_failed_total"]
        more = f"Alertmanager began {messages:.0f} such messages in that time, and {arrived:.0f} arrived."
        what = f"check whether it arrives, and {self.where}"
        return self._undelivered(f"no result after {patience:.0f} s", more, what)

    def _undelivered(self, why: str, more: str, what: str) -> str:
        first = f"{self.receiver.name}: not delivered by {self.receiver.integration.title}: {why}."
        return "\n  ".join((first, more, f"Fix: {what}."))

    def by_notifier(self, url: str, patience: float) -> tuple[bool, str]:
        """Wait until the notifier has delivered the test to a robot, or given it up, or patience ends."""
        query = urllib.parse.urlencode({"test": self.mark})
        deadline, found = time.monotonic() + patience, dict[str, Any]()
        while time.monotonic() < deadline and found.get("state", "waiting") == "waiting":
            text = http_client.read(f"{url}/api/v1/deliveries?{query}")
            with suppress(ValueError, LookupError, TypeError):  # it does not answer, or has no such test
                found = json.loads(text or "")["deliveries"][0]
            time.sleep(_BETWEEN_LOOKS)
        name = self.receiver.name
        if not found:
            why = http_client.unanswered("The notifier", url)
            return False, f"{name}: Alertmanager handed the test message to the notifier, and then: {why}"
        answer = redacted(str(found["answer"]), ())  # the notifier has taken the secrets out
        if found["state"] == "delivered":
            took = max(float(found["ended"]) - float(found["received"]), 0.01)
            title = self.receiver.integration.title
            words = f"{name}: the notifier delivered the test message by {title} in {took:.2f} s."
            return True, f"{words}\n  Its answer: {answer}."
        more = "The notifier is still trying."
        if found["state"] == "failed":
            more = "A test is not retried further; a real alert stays in the queue until it is accepted, "
            more += "for at most three days."
        what = _ROBOT_FIXES.get(str(found["reason"]), "see the documentation of the robot's vendor")
        return False, self._undelivered(answer if found["answer"] else "no attempt has ended", more, what)


def fix(error: str, integration: Integration) -> str | None:
    """What to do about an error, ``None`` if nothing is known."""
    own = {"all", integration.label}
    own |= (
        {"http"} if any(kind.http and kind.label == integration.label for kind in KINDS.values()) else set()
    )
    for line in _FIXES.splitlines():
        labels, _, rest = line.partition(": ")
        sign, _, words = rest.partition(" -> ")
        if own.intersection(labels.split()) and re.search(sign, error):
            return words
    return None


def redacted(error: str, files: Iterable[Path]) -> str:
    """An error as a message may print it: one line, not too long, without what the files hold."""
    parts = set()
    for path in files:
        with suppress(OSError, UnicodeDecodeError):
            parts.add(secret := read_secret(path))
            whole = urllib.parse.urlsplit(secret).path if "://" in secret else ""
            # Of URLs the path and its segments as well; a shorter one is a common word, no secret.
            parts |= {part for part in (whole, *whole.split("/")) if len(part) >= 6}
    for part in sorted(parts - {""}, key=len, reverse=True):
        error = error.replace(part, secret_shapes.MASK)
    printable = "".join(sign if sign.isprintable() else " " for sign in secret_shapes.masked(error))
    return printable.strip(". ")[:400] or "no reason given"
