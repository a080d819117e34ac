"""``python -m stepwatch test-alert``: one marked message to a receiver, and what became of it."""

from __future__ import annotations

import json
import re
import shlex
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from exporter import secret_shapes
from stepwatch.config import load
from stepwatch.config.integrations import Mail
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
_SAMPLE = re.compile(r"^alertmanager_notification_requests(_failed)?_total\{(.*)\} (\S+)$", re.MULTILINE)
_ATTEMPTS = re.compile(
    r"(?s)^.*?: notify retry canceled(?: due to unrecoverable error)? after \d+ attempts: "
)
_RETRIES = "Alertmanager retries a real alert as long as it fires."
_LOOK, _NEWS, _SILENT = 0.2, 5.0, 2.0
"""Seconds between two looks, between two lines of news, and after which a message may count as silenced."""
_ROUND = 12.0
"""Seconds until Alertmanager has either delivered a message or logged a failed attempt: 10, and some."""

# Labels of receivers (http: of all that speak it; robot: of chats, by the bridge's reason), a sign in the
# error, and what to do; the first that fits.
# That of SNS is above timeouts: without credentials, it looks for them on a server of AWS.
_FIXES = r"""
robot: : signature: -> check secret_file, and the clock of this machine: a signature is valid for an hour
robot: : keyword: -> set keyword to one of the robot's own, or remove its keywords
robot: : address: -> add this machine's public address to the robot's list, or use its signature instead
robot: : revoked: -> create a new robot and put its URL into url_file
robot: : (http|answer): -> the answer is not from this robot: check the URL in url_file, and proxies
robot: : secret_file: -> correct that file
robot: : not_installed: -> install it where Stepwatch runs, then `make up`
robot: : (queue|rate_limit): -> wait: the robot's rate limit is reached
robot: : (message|other): -> see its answer; a robot that refuses a test refuses alerts as well
robot: : server: -> it has an internal error: try again later
robot: : (timeout|connection): -> check address, firewall and proxy from where the bridge runs
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
    if not alertmanager_runs(_page(alertmanager, "/metrics"), expected):
        raise Refused(
            f"The Alertmanager at {alertmanager} runs other settings than {config} says, and the test "
            "would be of those. Fix: `make up` (for another file `make up CONFIG=file`), then test again."
        )
    say(f"Sending a test message to {name} ...")
    begun, receiver, way = time.time(), known[name], known[name].integration
    texts = notes(name, catalogue(settings.language))
    why, *lines = deliver(receiver, alertmanager, stack, texts=texts, say=say, patience=patience)
    first = f"{name}: not delivered by {way.title}: {why}."
    if not why:
        first = f"{name}: Alertmanager delivered the test message by {way.title}."
    if not why and isinstance(way, Mail):
        lines = [f"The mail server took it: check that {' and '.join(way.to)} received it, and not as spam."]
    if receiver.robot:
        lines.append(robot_words(f"http://{settings.address('bridge')}", name, begun))
    say("\n  ".join([first, *lines]))
    return 1 if why else 0


def deliver(
    receiver: Receiver,
    alertmanager: str,
    stack: Stack,
    *,
    texts: Mapping[str, str],
    say: Say,
    patience: float = 60,
) -> tuple[str, ...]:
    """Send the test, and take it back once its end is known. Return why it failed, if so, and the fix."""
    # The receiver of Alertmanager's settings that gets it: it alone, and by the same way.
    way, route, mark = receiver.integration, f"(test) {receiver.name}", str(time.time_ns())
    journal, where = stack.journal("alertmanager"), stack.log("alertmanager")
    before, _ = _taken(alertmanager, way.label, route)
    begun, born, news, was_taken = time.monotonic(), datetime.now(timezone.utc), _NEWS, False
    labels = {"alertname": "TestAlert", "receiver": receiver.name, "severity": "info", "test": mark}
    alert = {"labels": labels, "annotations": texts, "startsAt": born.isoformat()}
    # It ends by itself in case this command is killed before it ends it.
    _post(alertmanager, {**alert, "endsAt": (born + timedelta(minutes=3)).isoformat()})
    try:
        while True:
            now, exact = _taken(alertmanager, way.label, route)
            seconds, (error, gave_up) = time.monotonic() - begun, log_result(journal(), route, mark)
            if seconds > _SILENT and not error and (found := _silence(alertmanager, mark)):
                link = f"{alertmanager}/#/silences/{found}"
                return "a silence covers it", "It may cover real alerts too.", f"Fix: expire it at {link}."
            # Where they are of all receivers of this kind, the log names a failure of this one by then.
            taken = now > before and not error and (exact or seconds > _ROUND)
            if taken and was_taken:  # an attempt is counted before its failure is: a second look decides
                return ("",)
            was_taken, late = taken, seconds > patience
            said = redacted(error, way.secrets)
            if gave_up or (late and error):
                return said, _RETRIES, f"Fix: {fix_of(error, receiver) or f'check {where}'}."
            if late:
                return f"no result after {patience:.0f} s", f"Fix: check whether it arrives, and {where}."
            if seconds > news:
                state = f"an attempt failed ({said}); Alertmanager retries" if error else "waiting"
                say(f"  {state} ({news:.0f} s)")
                news += _NEWS
            time.sleep(_LOOK)
    finally:
        _post(alertmanager, {**alert, "endsAt": datetime.now(timezone.utc).isoformat()})


def robot_words(bridge: str, name: str, since: float) -> str:
    """Return what the robot of a chat answered to the bridge since a time, in words without secrets."""
    with suppress(ValueError, LookupError, TypeError):  # no answer, or one of another form
        for robot in json.loads(http_client.read(f"{bridge}/api/v1/robots") or ""):
            if robot["receiver"] in (name, f"(test) {name}") and robot["at"] >= since:
                return f"The robot's answer: {redacted(str(robot['said']), ())}."
    return f"The bridge at {bridge} has no answer of the robot. Fix: read the bridge's log."


def _page(alertmanager: str, path: str) -> str:
    """A page of Alertmanager, which may take a minute on a machine that is busy. Raises Refused."""
    end = time.monotonic() + 60
    for seconds in (0.0, 0.5, 1.0, 2.0):  # it answers 8 GETs at a time, others with 503
        time.sleep(seconds)
        left = max(1.0, end - time.monotonic())
        if (text := http_client.read(alertmanager + path, timeout=left)) is not None:
            return text
    raise Refused(http_client.unanswered("Alertmanager", alertmanager))


def _taken(alertmanager: str, integration: str, route: str) -> tuple[float, bool]:
    """How many messages receivers of this kind took; whether they are of this receiver alone."""
    count, exact = 0.0, False
    for failed, labels, value in _SAMPLE.findall(_page(alertmanager, "/metrics")):
        known = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        if known.get("integration") == integration:
            exact = exact or "receiver_name" in known
            if known.get("receiver_name", route) == route:
                count += -float(value) if failed else float(value)
    return count, exact


def log_result(text: str, route: str, mark: str) -> tuple[str, bool]:
    """Read from Alertmanager's log why the last attempt of a test failed, if so, and whether it gave up."""
    error, gave_up = "", False
    for line in text.split("\n"):
        entry = dict[str, str]()
        with suppress(ValueError):  # a line that is cut off
            words = shlex.split(line.replace(r"\n", " ")) if "Notify " in line else ()
            entry = dict(word.split("=", 1) for word in words if "=" in word)
        message, said = entry.get("msg", ""), entry.get("err", "")
        # New Alertmanagers name the group, and so the test, that an entry is about.
        if mark not in entry.get("aggrGroup", mark):
            continue
        if message == "Notify for alerts failed" and said.startswith(f"{route}/"):
            error, gave_up = _ATTEMPTS.sub("", said), True
        elif entry.get("receiver") == route and message == "Notify success":
            error = ""
        elif entry.get("receiver") == route and message.startswith("Notify attempt failed") and not gave_up:
            error = said
    return error, gave_up


def _silence(alertmanager: str, mark: str) -> str:
    """The id of a silence that covers the test, if one does."""
    query = urllib.parse.urlencode({"filter": f'test="{mark}"'})
    alerts = json.loads(_page(alertmanager, f"/api/v2/alerts?{query}"))
    return next((each for alert in alerts for each in alert["status"]["silencedBy"]), "")


def _post(alertmanager: str, alert: Mapping[str, object]) -> None:
    """Post an alert as Prometheus does."""
    answer = http_client.order(f"{alertmanager}/api/v2/alerts", [alert])
    if answer is None:
        raise Refused(http_client.unanswered("Alertmanager", alertmanager))
    if answer:
        raise Refused(f"Alertmanager refuses the test alert. It says: {answer}")


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


def fix_of(error: str, receiver: Receiver) -> str | None:
    """What to do about an error, ``None`` if nothing is known."""
    label = receiver.integration.label
    own = {"all", label, *(["robot"] if receiver.robot else [])}
    own |= {"http"} if any(kind.http and kind.label == label for kind in KINDS.values()) else set()
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
