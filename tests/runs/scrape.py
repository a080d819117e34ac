"""One scrape of the exporter, read by the official client's parser."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import Popen

from prometheus_client.parser import text_string_to_metric_families

from tests.real.waiting import Work, eventually

Labels = frozenset[tuple[str, str]]


class Scrape:
    """Samples by name and labels. Fails on a page that is no exposition text, or says a thing twice."""

    def __init__(self, page: bytes) -> None:
        self.text = page.decode()
        self.types: dict[str, str] = {}
        self.samples: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(self.text):
            assert family.name not in self.types, f"{family.name} stands twice on the page"
            self.types[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} stands twice on the page"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """The only sample of that name whose labels include these; ``None`` if there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels} is not one sample: {found}"
        return next(iter(found.values()), None)

    def all(self, name: str, **labels: str) -> dict[Labels, float]:
        wanted = labels.items()
        return {
            found: value
            for (known, found), value in self.samples.items()
            if known == name and wanted <= set(found)
        }

    def state(self, run: str) -> str | None:
        """The state of a run; ``None`` when it is not shown."""
        states = {dict(labels)["state"]: on for labels, on in self.all("rl_run_state", run=run).items()}
        assert not states or sum(states.values()) == 1, f"{run} is in several states: {states}"
        return next((state for state, on in states.items() if on), None)

    def runs(self) -> set[str]:
        return {dict(labels)["run"] for labels in self.all("rl_run_info")}

    def about_run(self, run: str) -> dict[tuple[str, Labels], float]:
        """Everything about a run that does not hang on when it was read."""
        return {
            key: value
            for key, value in self.samples.items()
            if ("run", run) in key[1] and "timestamp" not in key[0] and "interval" not in key[0]
        }


MOST_SCRAPES = 3000
"""Some minutes of an idle machine, and more of a busy one."""


def until(scrape: Callable[[], Scrape], true: Callable[[Scrape], object], process: Popen[str]) -> Scrape:
    """Scrape an exporter until it is true; fails after very many scrapes, or when its process ends."""
    scrapes = 0
    found = Scrape(b"")

    def is_true() -> object:
        nonlocal scrapes, found
        assert process.poll() is None, process.communicate()
        scrapes, found = scrapes + 1, scrape()
        return true(found)

    eventually(
        is_true,
        Work("scrapes", lambda: scrapes),
        MOST_SCRAPES,
        pause=0.1,  # to read a page takes as long
        seen=lambda: found.text or "it does not answer",
    )
    return found
