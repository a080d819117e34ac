"""A thread that keeps asking Prometheus, so that no page waits for it; the last good answers stay."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from threading import Thread
from typing import Any

from exporter.runs.files.notice import Once
from exporter.runs.overview.models import Firing
from exporter.runs.overview.panels import Asked
from exporter.runs.overview.prometheus_api import Past, Questions, Span
from exporter.runs.remote.web import PollError

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Between two rounds of questions."""

LONGEST_PAUSE = 30.0
"""Between two attempts at one that does not answer."""

LOOKED_AT_SECONDS = 300.0
"""So long after someone looked at a run its past is asked for in each round; of the others, one in turn."""

MOST_LOOKED_AT = 8

PAST_SECONDS = 5.0
"""So long a round goes on to the next run's past: where that takes longer, alerts are not to wait for all."""

NOTHING = Past((), {})


@dataclass(frozen=True)
class Said:
    """The last good answers, by run (``now`` by what was asked), and when they came.

    ``answered`` in seconds since the epoch, ``None`` before the first. ``problem`` says why the last
    question got no answer; why one about the past of a run got none stands in ``lacks``.
    """

    firing: Mapping[str, tuple[Firing, ...]] = field(default_factory=dict)
    now: Mapping[Asked, Mapping[str, float]] = field(default_factory=dict)
    pasts: Mapping[str, Past] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    answered: float | None = None
    problem: str | None = None

    def trouble(self, now: float) -> str:
        """What keeps Prometheus from telling more, and how old its answers are; empty if nothing does."""
        if self.problem is None or self.answered is None:
            return self.problem or ""
        minutes = max(0.0, now - self.answered) // 60
        age = f"{minutes:.0f} min ago" if minutes else "less than a minute ago"
        return f"Prometheus last answered {age}; alerts are as they were then. {self.problem}"

    def lack(self, run: str) -> str:
        """What Prometheus does not know of a run's past, and why; empty if it does."""
        if run not in self.lacks:
            return ""
        how = "as they were last known" if run in self.pasts else "missing"
        return f"Past alerts, limits and GPU curves of this run are {how}. {self.lacks[run]}"


UNASKED = Said(
    problem="No Prometheus is named (--prometheus-url): nothing is known of alerts, limits and GPUs."
)


class Prometheus:
    """Asks from ``start`` on.

    Args:
        url: Of the Prometheus; without one, nothing is ever asked.
        judged: Gives the curves and limits whose values now are asked for, of all runs.
        drawn: Gives those whose past is asked for, of one run after another.
        spans: Gives the runs that are shown, and since when they are.

    ``errors`` counts the rounds that failed, and the questions about a past.
    """

    def __init__(
        self,
        url: str | None,
        judged: Callable[[], Sequence[Asked]],
        drawn: Callable[[], Sequence[Asked]],
        spans: Callable[[], Sequence[Span]],
    ) -> None:
        self.errors = 0
        self.said = Said() if url else UNASKED
        self._questions = Questions(url) if url else None
        self._judged, self._drawn, self._spans = judged, drawn, spans
        self._once = Once(logger)
        self._looked: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._wake, self._stop = Flag(), Flag()
        self._pause = INTERVAL_SECONDS

    def start(self) -> None:
        """Begin to ask, in the background."""
        if self._questions:
            # A daemon: a question that hangs must not keep the exporter from ending.
            Thread(target=self._run, args=(self._questions,), name="prometheus", daemon=True).start()

    def stop(self) -> None:
        """Ask no more; a question that is under way ends by itself."""
        self._stop.set()
        self._wake.set()

    def look_at(self, run: str) -> Past:
        """What is known of a run's past; it is asked for again at once, and for some minutes."""
        is_new = time.monotonic() - self._looked.get(run, 0.0) > LOOKED_AT_SECONDS
        self._looked[run] = time.monotonic()
        if is_new and self.said.problem is None:
            self._wake.set()
        return self.said.pasts.get(run, NOTHING)

    def _run(self, questions: Questions) -> None:
        while not self._stop.is_set():
            self._round(questions)
            self._wake.wait(self._pause)
            self._wake.clear()

    def _round(self, questions: Questions) -> None:
        try:
            self._ask(questions)
        except Exception as fault:  # noqa: BLE001  (an answer that no one thought of must not end the thread)
            self._failed(_reason(questions, fault))
        else:
            self._pause = INTERVAL_SECONDS

    def _ask(self, questions: Questions) -> None:
        drawn, spans = self._drawn(), {span.run: span for span in self._spans()}
        firing, now = questions.firing(), questions.now(self._judged())
        pasts = {run: past for run, past in self.said.pasts.items() if run in spans}
        lacks = {run: why for run, why in self.said.lacks.items() if run in spans}
        self._answer(firing=firing, now=now, pasts=pasts, lacks=lacks)
        until = time.monotonic() + PAST_SECONDS
        for run in self._due(spans):
            if time.monotonic() < until:
                self._asked_at[run] = time.monotonic()
                self._ask_past(questions, spans[run], drawn)

    def _ask_past(self, questions: Questions, span: Span, drawn: Sequence[Asked]) -> None:
        try:
            past = questions.past(span, drawn)
        except Exception as fault:  # noqa: BLE001  (one run's past must not keep those of others, and alerts)
            self._lack(span.run, _reason(questions, fault))
        else:
            lacks = {run: why for run, why in self.said.lacks.items() if run != span.run}
            self._answer(pasts={**self.said.pasts, span.run: past}, lacks=lacks)

    def _lack(self, run: str, reason: str) -> None:
        if not self._stop.is_set():
            self._once.warn(
                "past", f"{reason} Of the past of a run what was last known is shown, or nothing."
            )
        self.errors += 1
        self.said = replace(self.said, lacks={**self.said.lacks, run: reason})

    def _answer(self, **new: Any) -> None:
        self.said = replace(self.said, answered=time.time(), problem=None, **new)

    def _due(self, spans: Mapping[str, Span]) -> list[str]:
        """Those that are looked at, and one of the others; each in turn, should time not suffice for all."""
        now = time.monotonic()
        for run, at in self._looked.copy().items():  # other threads add to it meanwhile
            if now - at >= LOOKED_AT_SECONDS:
                self._looked.pop(run, None)
        self._asked_at = {run: at for run, at in self._asked_at.items() if run in spans}
        known = {run: at for run, at in self._looked.copy().items() if run in spans}
        looked = sorted(known, key=known.__getitem__)[-MOST_LOOKED_AT:]
        others = sorted(spans.keys() - set(looked), key=lambda run: self._asked_at.get(run, 0.0))
        return [*sorted(looked, key=lambda run: self._asked_at.get(run, 0.0)), *others[:1]]

    def _failed(self, problem: str) -> None:
        if self.said.problem is None and not self._stop.is_set():
            logger.warning("%s Alerts are shown as they were last known.", problem)
        self.errors += 1
        self.said = replace(self.said, problem=problem)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _reason(questions: Questions, fault: Exception) -> str:
    if isinstance(fault, PollError):
        return str(fault)
    return f"{questions.name}: {type(fault).__name__}, which is a fault of Stepwatch."
