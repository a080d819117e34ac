"""The front with workers that do what a test says, and a clock that the test moves."""

from __future__ import annotations

import signal
from typing import Any

from exporter.gpu.state import State
from exporter.gpu.supervisor import Interval, Limits, Supervisor


class Actor:
    """A worker that says what a test has it say."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.signals: list[signal.Signals] = []
        self.orders: list[float] = []
        self.exit: int | None = None
        self.holding = False
        self.closed = False

    def say(self, *cards: str, reason: str = "ok", events: tuple[Any, ...] = ()) -> None:
        reported = [(number, f"uuid{number}", card) for number, card in enumerate(cards)]
        self.said.append({"nvml": reason, "cards": reported, "events": list(events), "text": ""})

    def messages(self) -> list[dict[str, Any]]:
        said, self.said = self.said, []
        return said

    def order(self, interval: float) -> None:
        self.orders.append(interval)

    def ended(self) -> bool:
        return self.exit is not None

    def end(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def close(self) -> None:
        self.closed = True

    def held(self) -> bool:
        return self.holding


class Stage:
    """A supervisor, its workers in the order in which they were started, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.workers: list[Actor] = []
        self.state = State(interval=1.0)
        self.interval = Interval(usual=1.0, patience=1e6, now=self.now)
        self.limits = Limits(retry=2.0, hang=10.0)
        self.supervisor = Supervisor(self.start, self.state, self.interval, self.limits)  # type: ignore[arg-type]
        self.pass_time(0)

    def start(self) -> Actor:
        self.workers.append(Actor())
        return self.workers[-1]

    def pass_time(self, seconds: float) -> None:
        """In steps of a tenth of a second."""
        for _ in range(round(seconds * 10) + 1):
            self.supervisor.tick(self.now, 1e9)
            self.now += 0.1

    def live(self, worker: Actor, seconds: int, *cards: str) -> None:
        """Let time pass while this worker speaks each second."""
        for _ in range(seconds):
            worker.say(*cards)
            self.pass_time(0.9)

    def monotonic(self) -> float:
        return self.now

    def reason(self) -> str:
        return self.state.reason(self.now)

    def starts(self, seconds: float) -> int:
        """How many workers are started in that time."""
        before = len(self.workers)
        self.pass_time(seconds)
        return len(self.workers) - before
