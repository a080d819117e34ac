"""Samples with which every panel of every dashboard has something to show, some of it with known values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.gpu.backend import Event, Settings
from exporter.gpu.demo import Demo
from exporter.runs.signals import SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATES, STATISTICS
from stepwatch.rules.messages import LIMIT, TEXT_INFO
from stepwatch.rules.subjects import SHOWN_STATE, SHOWN_STATES
from tests.gpu.box import Box
from tests.grafana import scraped as pages
from tests.grafana.queries import View
from tests.grafana.stored import scraped
from tests.rules.rendered import recorded

START, LASTS, EVERY = 1_700_006_400, 1800, 30
END = START + LASTS
STEP_SECONDS = 5
SICK, WELL, OVER = "grpo/sick", "ppo/well", "ppo/over"
RAN = 600
"""Seconds that the run took which is over; what is served of it stays."""
MOVES = END - 300
"""When the sick run's signals leave their band."""
BOX, SPLIT, FAULTY = "box-1:9411", "split-1:9411", 5
"""GPUs, those that are split into instances, and the one of `BOX` that reports errors."""
USED = {OVER: range(4), SICK: range(4, 8)}
"""GPUs of `BOX` by run."""
PAGE = "10.0.0.7:8000"
"""The trainer's own metrics that Prometheus scrapes."""
DISKS = {"/": (750e9, 1000e9), "/var/lib/stepwatch": (20e9, 100e9)}
"""Free and all bytes of the file systems of the stack, the fullest last."""
MACHINE = "node:9100"

VARIABLES: Mapping[str, str | tuple[str, ...]] = {
    **dict.fromkeys(("folder", "framework", "state", "server", "machine"), ".*"),
    "run": SICK,
    "runs": (SICK, WELL),
    "baseline": WELL,
    "reach": "0.3",
    "band": str(50 * STEP_SECONDS),
    "instance": BOX,
}
OF_DASHBOARD: Mapping[str, Mapping[str, str]] = {"tutorial": {"run": PAGE}, "rollout": {"run": WELL}}
"""Other values of variables."""


def view(dashboard: str, **chosen: str) -> View:
    """Return what a person chose on a dashboard, by its name: all of the time."""
    return View(START, END, {**VARIABLES, **OF_DASHBOARD.get(dashboard, {}), **chosen}, interval=EVERY)


class Alert(NamedTuple):
    """One that fires from a time on."""

    name: str
    severity: str
    since: int
    labels: Mapping[str, str]


FIRING = (
    Alert("KLHigh", "warning", MOVES + 60, {"topic": "kl", "run": SICK}),
    Alert("KLExplosion", "critical", MOVES + 90, {"topic": "kl", "run": SICK}),
    Alert("GPUHot", "warning", START + 600, {"topic": "gpu", "instance": BOX, "gpu": str(FAULTY)}),
    Alert(
        "GPUXid", "critical", START + 660, {"topic": "gpu", "instance": BOX, "gpu": str(FAULTY), "xid": "48"}
    ),
    Alert(
        "EngineQueue", "warning", START + 720, {"topic": "rollout", "job": "vllm", "instance": "vllm:8000"}
    ),
    Alert("DiskLow", "warning", START + 780, {"topic": "stack", "instance": MACHINE, "mountpoint": "/"}),
)


def step_at(time: int) -> int:
    """Return the step of a run at a time."""
    return (time - START) // STEP_SECONDS + 1


def samples() -> Iterator[str]:
    """Yield lines of OpenMetrics."""
    boxes = {BOX: _Gpus(Settings(processes=4, sick=FAULTY)), SPLIT: _Gpus(Settings(profile="a100-mig"))}
    for at in range(START, END + 1, EVERY):
        for series, value in _at(at, boxes):
            yield f"{series} {value} {at}\n"


def _at(at: int, boxes: Mapping[str, _Gpus]) -> Iterator[tuple[str, float]]:
    def target(lines: Iterator[str], job: str, instance: str, **more: str) -> Iterator[tuple[str, float]]:
        yield from scraped("\n".join(lines), job, instance, **more)

    yield from target(_runs(at), "runs", "exporter:9410")
    for instance, gpus in boxes.items():
        yield from target(gpus.page(at), "gpu", instance)
    for name, page in pages.SCRAPED.items():
        role = {"node": "host", "ray": "ray"}.get(name, "rollout")
        port = 9100 if name == "node" else 8000
        yield from target(page(at), name, f"{name}:{port}", role=role)
    for name, own in {"prometheus": _prometheus, "alertmanager": _alertmanager}.items():
        yield from target(own(at), name, f"{name}:9090")
    yield from target(_own_page(at), "by-hand", PAGE)
    yield from ((_series(name, **labels), value) for name, labels, value in _recorded(at, boxes[BOX]))


def _series(name: str, **labels: str) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}}"


def _runs(at: int) -> Iterator[str]:
    yield f"stepwatch_poll_duration_seconds {0.02 + 0.01 * math.sin(at / 60)}"
    yield f"stepwatch_unread_bytes {(at - START) % 600}"
    yield f"process_resident_memory_bytes {8e7 + at % 1000}"
    for mountpoint, (free, size) in DISKS.items():
        labels = f'device="/dev/vda",fstype="ext4",mountpoint="{mountpoint}"'
        yield f"stepwatch_state_filesystem_free_bytes{{{labels}}} {free}"
        yield f"stepwatch_state_filesystem_size_bytes{{{labels}}} {size}"
    for number, run in enumerate((SICK, WELL, OVER)):
        last = min(at, START + RAN) if run == OVER else at
        for name, labels, value in _run(run, number, last, over=run == OVER and at > last):
            yield f"{_series(name, run=run, **labels)} {value}"


OWN = {
    "rl_run_info",
    "rl_run_state",
    "rl_run_gpu_process_info",
    "rl_run_node_gpu_info",
    "rl_run_mark_timestamp_seconds",
}
KNOWN = {
    "step_seconds": 100,
    "rollout_seconds": 50,
    "update_actor_seconds": 20,
    "learning_rate": 1e-6,
    "step_tokens": 5e5,
}
"""Signals, the others by `LEVELS`."""
LEVELS = (
    ("_ratio", 0.4),
    ("_bytes", 2e10),
    ("_seconds", 2),
    ("per_second", 5000),
    ("per_gpu", 600),
    ("_length", 900),
)
"""Of signals by the ends of their names."""
MOVED = ("reward", "kl", "entropy", "grad_norm", "policy_kl")


def _run(run: str, number: int, at: int, *, over: bool) -> Iterator[tuple[str, dict[str, str], float]]:
    step = step_at(at)
    state = "finished" if over else "running"
    known = {
        "rl_step": step,
        "rl_total_steps": RAN // STEP_SECONDS + 1 if run == OVER else 1000,
        "rl_run_start_timestamp_seconds": START,
        "rl_last_step_timestamp_seconds": at - at % STEP_SECONDS,
        "rl_step_interval_typical_seconds": STEP_SECONDS,
    }
    for family in RUN_FAMILIES:
        if family.name not in OWN and (run, family.name) != (WELL, "rl_total_steps"):
            yield family.name, {}, known.get(family.name, 3)
    yield "rl_run_info", {"framework": "verl", "source": "console"}, 1
    for each in STATES:
        yield "rl_run_state", {"state": each}, int(each == state)
    if run == SICK:
        yield "rl_run_mark_timestamp_seconds", {"note": "new data"}, START + 900
    for index, signal in enumerate(SIGNALS):
        level = KNOWN.get(signal.name) or next(
            (each for end, each in LEVELS if signal.name.endswith(end)), 0.5
        )
        value = level * (
            1 + 0.05 * math.sin(step + index) + 0.05 * number + 1e-4 * index
        )  # none is like another
        moved = run == SICK and at >= MOVES and signal.name in MOVED
        yield f"rl_{signal.name}", {}, value * (3 if moved else 1)
    for statistic in STATISTICS:
        yield statistic.metric, statistic.labels, 4 if statistic.name.startswith("steps_since") else 0.25
    for part in range(10):  # more than a legend has room for
        yield "rl_reward_component", {"component": f"part {part}"}, part / 10 + 0.01 * math.sin(step)
        yield "rl_validation_component", {"dataset": f"set {part}"}, part / 10 + 0.01 * math.sin(step)
    yield "rl_raw", {"key": "actor/own"}, 0.5 + 0.1 * math.sin(step)


class _Gpus:
    """Simulated cards, whose values follow from the time."""

    def __init__(self, extras: Settings) -> None:
        self._at = float(START)
        self._box = Box(Demo(extras, clock=lambda: self._at), interval=60)
        self._box.page(0.0, START)
        self.uuids = [reader.uuid for reader in self._box.readers]
        self._sick = extras.sick

    def page(self, at: int) -> Iterator[str]:
        self._at = at
        fails = self._sick is not None and (at - START) % 600 == 0
        events = [Event(self.uuids[self._sick], 48, at)] if fails and self._sick is not None else []
        yield from self._box.page(at, at, events).splitlines()


def _prometheus(at: int) -> Iterator[str]:
    yield f"process_resident_memory_bytes {2e8 + at % 5000}"
    yield "prometheus_notifications_dropped_total 0"
    for group, seconds in {"rl": 0.02, "gpu": 0.01}.items():
        yield f'prometheus_rule_evaluation_failures_total{{rule_group="{group}"}} 0'
        yield f'prometheus_rule_group_last_evaluation_timestamp_seconds{{rule_group="{group}"}} {at - 3}'
        yield f'prometheus_rule_group_last_duration_seconds{{rule_group="{group}"}} {seconds}'


def _alertmanager(at: int) -> Iterator[str]:
    labels = 'integration="webhook",receiver_name="ops"'
    yield f"process_resident_memory_bytes {3e7}"
    yield f"alertmanager_notifications_total{{{labels}}} {(at - START) // 60}"
    yield f'alertmanager_notifications_failed_total{{{labels},reason="other"}} 0'


def _own_page(at: int) -> Iterator[str]:
    steps = (at - START) // STEP_SECONDS
    yield f"verl_average_reward {0.5 + 0.1 * math.sin(steps)}"
    yield f"verl_training_steps_total {steps}"
    yield f"verl_sample_generation_seconds_sum {3 * steps}"
    yield f"verl_sample_generation_seconds_count {steps}"
    for bound, share in (("2.5", 0), ("5.0", 1), ("+Inf", 1)):
        yield f'verl_sample_generation_seconds_bucket{{le="{bound}"}} {share * steps}'
    yield f'verl_gpu_memory_used_bytes{{gpu="0"}} {2**34}'


TEXTS = tuple(rule["labels"] for rule in recorded("texts") if rule["record"] == TEXT_INFO)
LIMITS = tuple(rule["labels"] for rule in recorded("rl") if rule["record"] == LIMIT)


def _recorded(at: int, box: _Gpus) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield what rules record."""
    for run in (SICK, WELL, OVER):
        state = "finished" if run == OVER and at > START + RAN else "running"
        yield SHOWN_STATE, {"run": run}, SHOWN_STATES.index(state) + 1
        yield from ((LIMIT, {"run": run, **labels}, 1) for labels in LIMITS)
    for run, gpus in USED.items():
        if run == OVER and at > START + RAN:
            continue
        yield "rl_run_power_watts", {"run": run}, 300 * len(gpus)
        for gpu in gpus:
            known = {"instance": BOX, "gpu": str(gpu), "uuid": box.uuids[gpu], "by": "process"}
            yield "rl_run_gpu", {"run": run, **known}, 1
    for texts in TEXTS:
        yield TEXT_INFO, {name: text.replace("\n", " ").replace('"', "'") for name, text in texts.items()}, 1
    for alert in FIRING:
        if at >= alert.since:
            labels = {"alertname": alert.name, "severity": alert.severity, **alert.labels}
            yield "ALERTS", {"alertstate": "firing", **labels}, 1
            yield "rl_alert_onset_timestamp_seconds", labels, alert.since
            if alert.labels.get("run"):
                yield "rl_alert_onset_step", labels, step_at(alert.since)
