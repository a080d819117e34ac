"""The command: sends one marked message to a receiver, and watches until it is known what became of it."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from stepwatch.config import load
from stepwatch.config.receivers import Receiver
from stepwatch.languages import catalogue
from stepwatch.render.generator import rendered
from stepwatch.schema.errors import Refused
from stepwatch.system import http_client
from stepwatch.system.environment import RESOURCES
from stepwatch.system.terminal import Say
from stepwatch.testalert import verdict
from stepwatch.testalert.alertmanager import Alertmanager, LogResult, Probe, Sent, log_result
from stepwatch.testalert.verdict import Verdict, redacted

if TYPE_CHECKING:
    from stepwatch.deploy.backend import Stack

_SETTINGS = PurePosixPath("alertmanager/generated/alertmanager.yml")

_BETWEEN_LOOKS = 0.2
_BETWEEN_NEWS = 5.0
_SILENT = 2.0
"""Seconds without an attempt after which a message counts as blocked."""
_ROUND = 12.0
"""Seconds until Alertmanager has either delivered a message or logged that it gave up: 10, and some."""


def send_test(config: Path, name: str, stack: Stack, say: Say, *, patience: float = 60) -> int:
    """Send one marked message to a receiver through the running Alertmanager, and report what became of it.

    Args:
        config: The configuration file.
        name: The receiver.
        stack: The running stack, of containers or of plain processes.
        say: Gets each line.
        patience: Seconds until it is given up.

    Returns:
        0 when the receiver took it, 1 when not.

    Raises:
        Refused: There is no such receiver, or Alertmanager does not run what config.yaml says.
    """
    settings = load(config)
    known = {receiver.name: receiver for receiver in settings.receivers}
    if not known:
        raise Refused(f"{config}: receivers: there are none. Fix: add one there, then `make up`.")
    if name not in known:
        raise Refused(
            f"{name} is not a receiver of {config}. Expected: {' or '.join(known)}. "
            f"Fix: name one of these, or add it there and `make up`."
        )
    alertmanager = Alertmanager(f"http://{settings.address('alertmanager')}")
    if not alertmanager.runs(rendered(config, RESOURCES, stack.deployment)[_SETTINGS]):
        raise Refused(
            f"The Alertmanager at {alertmanager.url} runs other settings than {config} says, and the test "
            "would be of those. Fix: `make up` (for another file `make up CONFIG=file`), then test again."
        )
    say(f"Sending a test message to {name} ...")
    probe = Probe(name, catalogue(settings.language))
    journal, where = stack.journal("alertmanager"), stack.log("alertmanager")
    ended = Watch(known[name], probe, alertmanager, journal, where, patience).run(say)
    if ended.delivered and known[name].robot:
        ended = watch(known[name], probe, f"http://{settings.address('notifier')}", patience)
    say(ended.words)
    return 0 if ended.delivered else 1


@dataclass(frozen=True)
class Look:
    """The state of a test after some seconds: by the counters and by the log."""

    seconds: float
    sent: Sent
    log_result: LogResult

    @property
    def delivered(self) -> bool:
        """Whether the test arrived. The log is silent about a first attempt that succeeds."""
        if self.log_result.delivered or self.log_result.error or not self.sent.arrived:
            return self.log_result.delivered
        # What arrived may be another receiver's message; but the test's failure would be in the log by then.
        logged = self.log_result.failures or not self.sent.failed
        return self.sent.exact or (self.seconds > _ROUND and logged)


@dataclass(frozen=True)
class Watch:
    """One test of a receiver by an Alertmanager; ``journal`` reads its log, called ``where`` in messages."""

    receiver: Receiver
    probe: Probe
    alertmanager: Alertmanager
    journal: Callable[[], str]
    where: str
    patience: float

    def run(self, say: Say) -> Verdict:
        """Send the test, wait until its end is known or patience is, and take the test back.

        Raises:
            UnreachableError: Alertmanager does not answer.
        """
        integration = self.receiver.integration.label
        before, begun = self.alertmanager.sent(integration, self.probe), time.monotonic()
        news, fires, delivered = _BETWEEN_NEWS, True, False
        self.alertmanager.post(self.probe.alert())
        try:
            while True:
                sent = self.alertmanager.sent(integration, self.probe).since(before)
                look = Look(time.monotonic() - begun, sent, log_result(self.journal(), self.probe))
                if (delivered or not look.delivered) and (ended := self._ended(look)):
                    return ended
                # One page may have counted an attempt and not yet its failure: a second one decides.
                delivered = look.delivered
                if fires and look.log_result.error:
                    # The attempts continue; but once given up, they do not restart.
                    self.alertmanager.post(self.probe.alert(over=True))
                    fires = False
                if look.seconds > news:
                    say(f"  {self._news(look)} ({news:.0f} s)")
                    news += _BETWEEN_NEWS
                time.sleep(_BETWEEN_LOOKS)
        finally:
            if fires:
                self.alertmanager.post(self.probe.alert(over=True))

    def _ended(self, look: Look) -> Verdict | None:
        if look.log_result.gave_up:
            return verdict.refused(self.receiver, look.log_result, where=self.where)
        if look.delivered:
            return verdict.delivered(self.receiver, look.sent)
        if look.seconds > _SILENT:
            if look.sent.exact and look.sent.failed:  # the failure of this very message
                return verdict.failed(self.receiver, where=self.where)
            if not look.sent.messages and (ids := self.alertmanager.silences(self.probe)):
                return verdict.muted(self.receiver, ids, self.alertmanager.url)
        if look.seconds <= self.patience:
            return None
        return (
            verdict.refused(self.receiver, look.log_result, where=self.where)
            if look.log_result.error
            else verdict.unknown(self.receiver, look.sent, patience=self.patience, where=self.where)
        )

    def _news(self, look: Look) -> str:
        if look.log_result.error:
            error = redacted(look.log_result.error, self.receiver.integration.secrets)
            return f"an attempt failed ({error}); Alertmanager retries"
        if look.sent.arrived:
            return "messages arrive; waiting for Alertmanager's log"
        return "waiting for Alertmanager"


def watch(receiver: Receiver, probe: Probe, url: str, patience: float) -> Verdict:
    """Wait until the notifier has delivered a test, or has given it up.

    Args:
        receiver: The receiver of the message.
        probe: The test.
        url: The notifier.
        patience: Seconds until it is given up here; then what is known so far is printed.
    """
    query = urllib.parse.urlencode({"test": probe.mark})
    deadline, found = time.monotonic() + patience, None
    while time.monotonic() < deadline:
        found = _found(http_client.read(f"{url}/api/v1/deliveries?{query}"))
        if found and found["state"] != "waiting":
            break
        time.sleep(_BETWEEN_LOOKS)
    if found is None:
        return verdict.lost(receiver, http_client.unanswered("The notifier", url))
    if found["state"] == "delivered":
        return verdict.taken(receiver, str(found["answer"]), float(found["ended"]) - float(found["received"]))
    return verdict.not_taken(
        receiver, str(found["reason"]), str(found["answer"]), final=found["state"] == "failed"
    )


def _found(page: str | None) -> dict[str, Any] | None:
    """Return the test's delivery, ``None`` if the notifier does not answer or has no such test."""
    try:
        return next(iter(json.loads(page or "")["deliveries"]), None)
    except (ValueError, LookupError, TypeError):
        return None
