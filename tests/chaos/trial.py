"""One schedule, from a stack that works to the verdict on what it promised."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stepwatch.system.processes import SUPERVISORD
from tests.chaos.faults import Struck, strike
from tests.chaos.native import Native, Samples
from tests.chaos.runs import SICK, SILENCED
from tests.chaos.schedule import Fault, Schedule, draw
from tests.real.waiting import eventually, in_time

KEPT_SECONDS = 12
"""From the silence to the first fault: Alertmanager writes silences down every 10 s."""
BACK_SECONDS = 15
"""In which everything runs and answers again once the last fault is over."""
PAGED_SECONDS = 60
"""In which a sick run is paged, since the parts are back or since it went sick."""
NAMED_SECONDS = 60
"""In which `make status` names a fault that lasts."""
QUIET_SECONDS = 20
"""In which a second or a wrong notification would come: Alertmanager's `group_interval`, and some more."""


class Trial:
    """Has a stack suffer the schedule of a seed; ``broken`` are the promises that did not hold.

    Args:
        stack: Runs already, and so do its runs.
        seed: Of the schedule.
    """

    def __init__(self, stack: Native, seed: int) -> None:
        self.schedule: Schedule | None = None
        self.broken: list[str] = []
        self._stack, self._seed = stack, seed
        self._begun = time.time()
        self._said: list[tuple[float, str]] = []
        self._samples: Samples = {}
        self._striking = threading.Lock()
        self._lasting: list[Struck] = []
        self._needs_up = False

    def run(self) -> None:
        """Do all of it."""
        self._prepare()
        expected = set(self._stack.processes())
        self.schedule = draw(self._seed, sorted(expected), sorted(self._stack.servers()))
        self._suffer(self.schedule)
        self._come_back(expected)
        self._wait_paged()
        time.sleep(QUIET_SECONDS)
        self._judge()

    def verdict(self) -> str:
        """Return the schedule, the timeline, and what is to be known of broken promises."""
        reported = f"{self.schedule}\n\n{self._timeline()}\n"
        if not self.broken:
            return reported
        return "\n".join([reported, self._stack.last_words(), "Broken promises:", *self.broken])

    def _timeline(self) -> str:
        messages = [(at, _reported(alert)) for at, alert in self._stack.notified()]
        lines = sorted([*self._said, *messages])
        return "\n".join(f"{at - self._begun:6.1f} s  {text}" for at, text in lines)

    def _note(self, text: str) -> None:
        self._said.append((time.time(), text))

    def _break(self, promise: str, seen: object) -> None:
        self.broken.append(promise)
        self._note(f"BROKEN: {promise}; seen: {seen}")

    def _prepare(self) -> None:
        known = self._stack.runs.names
        eventually(lambda: known <= (self._stack.samples() or {}).keys(), pause=0.5)
        self._stack.command("silence", "--for=1h", "--", SILENCED)
        time.sleep(KEPT_SECONDS)

    def _suffer(self, schedule: Schedule) -> None:
        begun = time.time()
        with ThreadPoolExecutor() as pool:
            ends = [pool.submit(self._undergo, fault, begun) for fault in schedule.faults]
            time.sleep(schedule.sick_at)
            self._stack.runs.sicken(SICK, SILENCED)
            self._note(f"{SICK} goes sick")
        for end in ends:
            end.result()
        if self._needs_up:
            self._note("the user runs `make up`")
            if code := self._stack.repair():
                self._break("`make up` repairs what only it can repair", f"exit code {code}")

    def _undergo(self, fault: Fault, begun: float) -> None:
        time.sleep(fault.at)
        with self._striking:
            self._samples = self._stack.samples() or self._samples
            struck = strike(fault, self._stack)
            self._lasting.append(struck)
            self._needs_up |= struck.needs_up
        self._note(struck.done)
        if struck.named:
            self._look(struck)
        time.sleep(max(0, begun + fault.at + fault.lasts - time.time()))
        struck.heal()
        self._lasting.remove(struck)
        self._note(f"over: {struck.done}")

    def _look(self, struck: Struck) -> None:
        """Look at `make status` until it names the fault."""
        said = ""

        def named() -> bool:
            nonlocal said
            _, said = self._stack.status()
            # Where nothing runs, or is described, `status` can tell of nothing else.
            hidden = any(each.needs_up for each in self._lasting if each is not struck)
            return hidden or bool(re.search(struck.named, said)) or not struck.lasts()

        if _took(named, NAMED_SECONDS) is None:
            self._break(f"`make status` names a fault: {struck.done}", said)

    def _come_back(self, expected: set[str]) -> None:
        if (took := _took(lambda: not self._stack.missing(expected), BACK_SECONDS)) is None:
            self._break(f"all is back within {BACK_SECONDS} s", f"missing {self._stack.missing(expected)}")
        else:
            self._note(f"all is back after {took:.1f} s")

    def _wait_paged(self) -> None:
        def paged() -> bool:
            return any(alert["labels"]["severity"] == "critical" for alert in self._about(SICK))

        if _took(paged, PAGED_SECONDS) is None:
            self._break(f"a sick run is paged within {PAGED_SECONDS} s", self._stack.critical())

    def _about(self, *runs: str) -> list[dict[str, Any]]:
        return [alert for _, alert in self._stack.notified() if alert["labels"].get("run") in runs]

    def _judge(self) -> None:
        stack = self._stack
        pages = Counter(_reported(alert) for alert in self._about(SICK))
        if max(pages.values(), default=0) > 2:
            self._break("no notification of a sick run comes more than twice", dict(pages))
        quiet = self._stack.runs.names - ({SILENCED} if self._loses_silences() else set())
        if others := {_reported(alert) for alert in self._about(*quiet)} - pages.keys():
            self._break("no healthy and no silenced run is reported", others)
        if resolved := [reported for reported in pages if "resolved" in reported]:
            self._break("nothing resolves while a run is sick", resolved)
        if _took(lambda: stack.critical() >= {SICK, SILENCED}, PAGED_SECONDS) is None:
            held = f"holds those of {stack.critical()}"
            self._break(f"Alertmanager holds the alerts of sick runs within {PAGED_SECONDS} s", held)
        if SILENCED not in stack.silenced() and not self._loses_silences():
            self._break("a silence outlives faults", stack.silenced())
        kept = stack.samples() or {}
        lost = {run: sorted(seen - kept.get(run, set())) for run, seen in self._samples.items()}
        if any(lost.values()):
            self._break("no sample is lost that was stored before a fault", lost)
        code, said = stack.status()
        if code:
            self._break("`make status` finds all well in the end", said)

    def _loses_silences(self) -> bool:
        """Whether Alertmanager may have died on a full disk, which costs all silences."""
        faults = self.schedule.faults if self.schedule else ()
        filled = min((fault.at for fault in faults if fault.kind == "fill"), default=math.inf)
        fatal = ("kill alertmanager", f"kill {SUPERVISORD}", "damage data/alertmanager/nflog", "power ")
        return any(f"{fault.kind} {fault.target}" in fatal for fault in faults if fault.at > filled)


def _reported(alert: dict[str, Any]) -> str:
    labels = alert["labels"]
    return f"message: {alert['status']} {labels['severity']} {labels['alertname']} {labels.get('run', '')}"


def _took(fact: Callable[[], bool], seconds: float) -> float | None:
    """Wait until something is so; return the seconds it took, ``None`` if more than promised."""
    begun = time.monotonic()
    while not fact():
        if not in_time(time.monotonic() - begun, seconds):
            return None
        time.sleep(0.2)
    return time.monotonic() - begun
