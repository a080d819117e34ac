"""What pages show of verl's console logs, be they public ones or those that verl wrote for us."""

from __future__ import annotations

from pathlib import Path

from tests.runs.conftest import Watched
from tests.runs.lines import append, console, measured
from tests.runs.scrape import Scrape


def live(page: Watched, log: Path, step: int) -> Watched:
    """One more step, while the exporter is watching."""
    page.look()
    append(log, "\n", console(step, measured(step)))
    page.look(1.0)
    return page


def state_at_the_end(page: Watched, log: Path, content: bytes) -> str | None:
    """The state of the run ``a`` hours after the second half of its log was written; running until then."""
    middle = content.rfind(b"\n", 0, len(content) // 2) + 1
    log.write_bytes(content[:middle])
    assert page.look().state("a") == "running"
    with log.open("ab") as file:
        file.write(content[middle:])
    page.look(1.0)
    return page.look(4 * 3600.0).state("a")


def one_more_step(page: Watched, folder: Path, logs: dict[str, bytes], step: int) -> Scrape:
    """The page after these logs were read and each has logged this step, without a reward."""
    for name, content in logs.items():
        (folder / f"{name}.log").write_bytes(content)
    page.look()
    for name in logs:
        append(folder / f"{name}.log", "\n", console(step, {"perf/throughput": 1.0}))
    return page.look(1.0)


def stddevs_below_best(page: Scrape, run: str) -> float:
    """How far the reward has fallen, for five steps or more."""
    fallen = page.value("rl_drawdown_min_over_steps", run=run, signal="reward", steps="5") or 0.0
    return fallen / (page.value("rl_noise", run=run, signal="reward") or 1.0)
