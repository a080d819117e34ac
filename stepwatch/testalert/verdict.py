"""How a test ended, in words."""

from __future__ import annotations

from dataclasses import dataclass

from stepwatch.config.receiver_types import Mail
from stepwatch.config.receivers import Receiver
from stepwatch.testalert.alertmanager import Sent
from stepwatch.testalert.fixes import fix
from stepwatch.testalert.journal import Story
from stepwatch.testalert.redacted import redacted


@dataclass(frozen=True)
class Verdict:
    """How it ended, as people read it, and whether that is what one hopes for."""

    delivered: bool
    words: str


def delivered(receiver: Receiver, sent: Sent) -> Verdict:
    """The receiver took it."""
    took = f" in {max(sent.seconds, 0.01):.2f} s" if sent.attempts == 1 else ""
    lines = [f"{receiver.name}: Alertmanager delivered the test message by {receiver.way.spoken}{took}."]
    if isinstance(receiver.way, Mail):
        lines += [f"The mail server took it: see that {_all(receiver.way.to)} got it, and not as spam."]
    return Verdict(delivered=True, words="\n  ".join(lines))


def refused(receiver: Receiver, story: Story, *, where: str) -> Verdict:
    """The receiver did not take it, as the log tells."""
    what = fix(story.error, receiver.way) or f"look into {where}"
    return _undelivered(receiver, redacted(story.error, receiver.way.secrets), _again(story), what)


def _again(story: Story) -> str:
    if story.final:
        return "Alertmanager takes that for final and tried once; a real alert is tried again at intervals."
    if story.gave_up:
        return "Alertmanager tried several times; with a real alert it goes on as long as the alert lasts."
    return "Alertmanager is still trying."


def failed(receiver: Receiver, *, where: str) -> Verdict:
    """Alertmanager counts a failure, and nothing at hand tells why."""
    return _undelivered(receiver, "Alertmanager counts a failure", f"{where} names the error.", "fix that")


def muted(receiver: Receiver, silences: list[str], url: str) -> Verdict:
    """A silence keeps it back."""
    return _undelivered(
        receiver,
        "a silence covers it",
        "It may cover real alerts as well.",
        f"expire it at {url}/#/silences/{silences[0]} and test again",
    )


def unknown(receiver: Receiver, sent: Sent, *, patience: float, where: str) -> Verdict:
    """Time is up."""
    return _undelivered(
        receiver,
        f"nothing is known after {patience:.0f} s",
        f"Alertmanager began {sent.messages:.0f} such messages in that time, and {sent.arrived:.0f} arrived.",
        f"see whether it arrives, and what {where} says",
    )


def _undelivered(receiver: Receiver, why: str, more: str, what: str) -> Verdict:
    first = f"{receiver.name}: not delivered by {receiver.way.spoken}: {why}."
    return Verdict(delivered=False, words="\n  ".join((first, more, f"Fix: {what}.")))


def _all(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
