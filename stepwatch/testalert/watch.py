"""Watches a running Alertmanager until it is known what became of a test message."""

from __future__ import annotations

import time
from dataclasses import dataclass

from stepwatch.config.receivers import Receiver
from stepwatch.system.terminal import Say
from stepwatch.testalert import verdict
from stepwatch.testalert.alertmanager import Alertmanager, Sent
from stepwatch.testalert.journal import Journal, Story, story
from stepwatch.testalert.probe import Probe
from stepwatch.testalert.redacted import redacted
from stepwatch.testalert.verdict import Verdict

_BETWEEN_LOOKS = 0.2
_BETWEEN_NEWS = 5.0
_SILENT = 2.0
"""Seconds until a message that was not even tried is held back by something."""
_ROUND = 12.0
"""Seconds until Alertmanager has either delivered a message or logged that it gave up: 10, and some."""


@dataclass(frozen=True)
class Look:
    """What is known so many seconds after the test began: by the counters, and by the log."""

    seconds: float
    sent: Sent
    story: Story

    @property
    def delivered(self) -> bool:
        """Whether the test arrived. The log is silent about a first attempt that succeeds."""
        if self.story.delivered or self.story.error or not self.sent.arrived:
            return self.story.delivered
        # What arrived may be another receiver's message; but the test's failure would be in the log by then.
        logged = self.story.failures or not self.sent.failed
        return self.sent.exact or (self.seconds > _ROUND and logged)

    @property
    def failed(self) -> bool:
        """Whether the counters report the failure of this very message."""
        return self.sent.exact and self.sent.failed > 0


@dataclass(frozen=True)
class Watch:
    """One test: of whom, by which Alertmanager, whose log is called ``where`` in words."""

    receiver: Receiver
    probe: Probe
    alertmanager: Alertmanager
    journal: Journal
    where: str
    patience: float

    def run(self, say: Say) -> Verdict:
        """Send the test, wait until its end is known or patience is, and take the test back.

        Raises:
            UnreachableError: Alertmanager does not answer.
        """
        before, begun, news, lives = self._sent(), time.monotonic(), _BETWEEN_NEWS, True
        self.alertmanager.tell(self.probe.firing())
        try:
            while not (ended := self._ended(look := self._look(before, begun))):
                if lives and look.story.error:
                    # The attempts go on; but once given up, they do not begin anew.
                    self.alertmanager.tell(self.probe.over())
                    lives = False
                if look.seconds > news:
                    say(f"  {self._news(look)} ({news:.0f} s)")
                    news += _BETWEEN_NEWS
                time.sleep(_BETWEEN_LOOKS)
        finally:
            if lives:
                self.alertmanager.tell(self.probe.over())
        return ended

    def _sent(self) -> Sent:
        return self.alertmanager.sent(self.receiver.way.integration, self.probe)

    def _look(self, before: Sent, begun: float) -> Look:
        return Look(time.monotonic() - begun, self._sent().since(before), self._story())

    def _story(self) -> Story:
        return story(self.journal(), self.probe)

    def _ended(self, look: Look) -> Verdict | None:
        if look.story.gave_up:
            return verdict.refused(self.receiver, look.story, where=self.where)
        if look.delivered:
            return verdict.delivered(self.receiver, look.sent)
        if look.failed and look.seconds > _SILENT:
            return verdict.failed(self.receiver, where=self.where)
        if (
            look.seconds > _SILENT
            and not look.sent.messages
            and (ids := self.alertmanager.silences(self.probe))
        ):
            return verdict.muted(self.receiver, ids, self.alertmanager.url)
        return self._unfinished(look) if look.seconds > self.patience else None

    def _unfinished(self, look: Look) -> Verdict:
        if look.story.error:
            return verdict.refused(self.receiver, look.story, where=self.where)
        return verdict.unknown(self.receiver, look.sent, patience=self.patience, where=self.where)

    def _news(self, look: Look) -> str:
        if look.story.error:
            error = redacted(look.story.error, self.receiver.way.secrets)
            return f"an attempt failed ({error}); Alertmanager tries again"
        return (
            "messages arrive; waiting for Alertmanager's log"
            if look.sent.arrived
            else "waiting for Alertmanager"
        )
