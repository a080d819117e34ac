"""Runs that hang or have ended: what their state, their writer and the box say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exporter.runs.stats.catalogue import STATES
from tests.rules import healthy as h
from tests.rules import rendered, variations
from tests.rules.cases import Values
from tests.rules.promtool import Group, Moment
from tests.rules.series import EXPORTER, OTHER_EXPORTER, selector
from tests.rules.variations import STALE, Phase

ALERTS = ("Stalled", "RunFailed", "RunVanished", "RunStopped", "RunFinished")
READS = (h.LAST_STEP_AT, h.STEP_INTERVAL, h.WRITER_PRESENT, h.REQUESTED)
SILENT = {h.LAST_STEP_AT: -1000}

ROLLOUT_UP = selector("up", job="vllm", instance="c:8000", role="rollout")
USED = selector("gpu_memory_used_bytes", job="gpu", instance="a:9400", gpu="0")
TOTAL = selector("gpu_memory_total_bytes", job="gpu", instance="a:9400", gpu="0")
DCGM_USED = selector("DCGM_FI_DEV_FB_USED", job="dcgm", instance="a:9400", gpu="0")
DCGM_FREE = selector("DCGM_FI_DEV_FB_FREE", job="dcgm", instance="a:9400", gpu="0")

DEAD_WORLDS = {
    "nothing is known": {},
    "all rollout servers are down": {ROLLOUT_UP: 0},
    "another target is up": {selector("up", job="node", instance="a:9100", role="host"): 1},
    "a tenth of GPU memory": {USED: 8e9, TOTAL: 80e9},
    "a tenth of GPU memory, by DCGM": {DCGM_USED: 8192, DCGM_FREE: 73728},
}
LIVE_WORLDS = {
    "a rollout server is up": {ROLLOUT_UP: 1, selector("up", job="vllm", instance="d:1", role="rollout"): 0},
    "more than a tenth of GPU memory": {USED: 8.04e9, TOTAL: 80e9},
    "more than a tenth of GPU memory, by DCGM": {DCGM_USED: 8230, DCGM_FREE: 73690},
}

# state and writer of a run that has been silent for long: the alert in a dead world, and in a live one
VERDICTS = {
    ("running", None): ("Stalled", "Stalled"),
    ("running", 1): ("Stalled", "Stalled"),
    ("running", 0): (None, None),  # gone a moment ago: its state follows
    ("stopped", None): ("RunStopped", "Stalled"),
    ("stopped", 0): ("RunStopped", "RunStopped"),
    ("vanished", 0): ("RunVanished", "RunVanished"),
    ("failed", None): ("RunFailed", "RunFailed"),
    ("failed", 1): ("RunFailed", "RunFailed"),
    ("finished", None): ("RunFinished", "RunFinished"),
    ("finished", 1): ("RunFinished", "RunFinished"),
}
RUNS = {
    f"{state}, writer {writer}": {**SILENT, h.STATE: state, h.WRITER_PRESENT: writer}
    for state, writer in VERDICTS
}


def _moment(at: float, verdicts: dict[str, str | None]) -> Moment:
    """What every run's only alert is at a time."""
    rules = {rule["alert"]: rule["labels"] for rule in rendered.rules("rl")}
    return Moment(
        at,
        {
            alert: [{"run": run, **rules[alert]} for run, verdict in verdicts.items() if verdict == alert]
            for alert in ALERTS
        },
    )


def _series(
    phases: dict[str, tuple[Phase, ...]],
    world: dict[str, float],
    until: float,
    target: Mapping[str, str] = EXPORTER,
) -> dict[str, str]:
    series = {name: f"{value}+0x{until}" for name, value in world.items()}
    for run, its in phases.items():
        series |= variations.samples(run, its, READS, target, until=until)
    return series


def silent(worlds: dict[str, dict[str, float]], *, alive: bool) -> Iterator[Group]:
    """Every state and writer in each of these worlds."""
    verdicts = {run: both[alive] for run, both in zip(RUNS, VERDICTS.values(), strict=True)}
    phases = {run: (Phase(0, values),) for run, values in RUNS.items()}
    for name, world in worlds.items():
        yield Group(name, _series(phases, world, 20), [_moment(17, verdicts)])


def growing_silent() -> Group:
    """Runs whose silence reaches its limits, of ten minutes and of five intervals where these are known."""
    runs: dict[str, Values] = {
        "ten minutes over at 50 s": {h.LAST_STEP_AT: -550},
        "no interval known, ten minutes over at 50 s": {h.LAST_STEP_AT: -550, h.STEP_INTERVAL: None},
        "five intervals over at 100 s": {h.LAST_STEP_AT: -550, h.STEP_INTERVAL: 130},
    }
    series = _series({run: (Phase(0, values),) for run, values in runs.items()}, {}, 130)
    first, unknown, last = runs
    soon = {first: "Stalled", unknown: "Stalled"}
    moments = [
        _moment(67, {}),
        _moment(72, soon),
        _moment(117, soon),
        _moment(122, {**soon, last: "Stalled"}),
    ]
    return Group("growing silent", series, moments)


def not_scraped() -> Group:
    """The run exporter is lost for a minute, the rollout server is not."""
    runs = {**dict(zip(RUNS, (live for _, live in VERDICTS.values()), strict=True)), "on request": None}
    asked: Values = {**SILENT, h.STATE: "stopped", h.WRITER_PRESENT: 0, h.REQUESTED: 1}
    phases = {
        run: (Phase(0, values), Phase(60, values, STALE), Phase(120, values))
        for run, values in {**RUNS, "on request": asked}.items()
    }
    series = _series(phases, LIVE_WORLDS["a rollout server is up"], 150)
    return Group("not scraped", series, [_moment(at, runs) for at in (57, 62, 117, 122, 147)])


def dying_world() -> Group:
    """The last sign of life goes while a run hangs."""
    run = "stopped, writer None"
    series = {**_series({run: (Phase(0, RUNS[run]),)}, {}, 800), ROLLOUT_UP: "1+0x11 0+0x150"}
    hangs, stopped = _moment(57, {run: "Stalled"}), _moment(677, {run: "RunStopped"})
    # Stalled is held for ten minutes more; RunStopped inhibits it
    both = Moment(62, {**stopped.alerts, "Stalled": hangs.alerts["Stalled"]})
    return Group("dying world", series, [hangs, both, stopped])


def ending_in_a_live_world() -> Group:
    """Runs that hang until the exporter takes them to have stopped; it sees the writer of one go."""
    live = LIVE_WORLDS["a rollout server is up"]
    unseen, seen = "stopped, writer None", "stopped, writer 0"
    phases = {
        unseen: (Phase(0, RUNS["running, writer None"]), Phase(60, RUNS[unseen])),
        seen: (Phase(0, RUNS["running, writer 1"]), Phase(60, RUNS[seen])),
    }
    hang = _moment(57, {unseen: "Stalled", seen: "Stalled"})
    stopped = _moment(677, {unseen: "Stalled", seen: "RunStopped"})
    # Stalled is held for ten minutes more; RunStopped inhibits it
    both = Moment(62, {**stopped.alerts, "Stalled": hang.alerts["Stalled"]})
    moments = [hang, both, stopped]
    return Group("ending in a live world", _series(phases, live, 680), moments)


def resumed() -> Group:
    """A run that had stopped goes on."""
    run = "resumed"
    going = {h.LAST_STEP_AT: 60, h.STATE: "running", h.WRITER_PRESENT: 1}
    phases = {run: (Phase(0, RUNS["stopped, writer None"]), Phase(60, going))}
    moments = [_moment(57, {run: "RunStopped"}), _moment(62, {run: None}), _moment(122, {run: None})]
    return Group("resumed", _series(phases, {}, 130), moments)


def disagreeing() -> Group:
    """Two exporters see a run end in different ways, or only one of them does."""
    verdicts = {f"{state} and finished": "RunFinished" for state in STATES}
    verdicts |= {"running and failed": "RunFailed", "running and vanished": "RunVanished"}
    series: dict[str, str] = {}
    for number, target in enumerate((EXPORTER, OTHER_EXPORTER)):
        states = {run: run.split(" and ")[number] for run in verdicts}
        phases = {run: (Phase(0, {**SILENT, h.STATE: state}),) for run, state in states.items()}
        series |= _series(phases, {}, 20, target)
    return Group("disagreeing", series, [_moment(17, verdicts)])


def quick() -> list[Group]:
    """What is decided within seconds."""
    return [
        *silent(DEAD_WORLDS, alive=False),
        *silent(LIVE_WORLDS, alive=True),
        disagreeing(),
    ]


def lasting() -> list[Group]:
    """What takes minutes."""
    return [growing_silent(), not_scraped(), resumed(), dying_world(), ending_in_a_live_world()]
