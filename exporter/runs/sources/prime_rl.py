"""prime-rl's lines of its trainer and its orchestrator, one a step.

``Step 12 | 3.2s | Loss 0.0012 | Entropy 0.4127 | Mismatch KL 0.0003 | Grad. Norm 0.5312 | LR 1.00e-06 |
Throughput 8123 tokens/s | MFU 31.2% | Peak Mem. 45.6 GiB``, and of the orchestrator ``Step 12 | 9.8s |
Reward 0.5312 | Trainable 60/64 (93.8%) | ... | Truncation 1.6%``. Until 2026-05 the words were followed
by colons, and the time had one. Source: ``trainer/rl/train.py`` and ``orchestrator`` of 2026-10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import ending, pieces

_TRAINER = {
    "Loss": "loss/mean",
    "Entropy": "entropy/all/mean",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "Throughput": "perf/throughput",
    "MFU": "perf/mfu",
    "Peak Mem.": "perf/peak_memory",
    "Max Vio": "max_vio/mean",
    "Routing Conf.": "routing_confidence/mean",
}
_ORCHESTRATOR = {
    "Reward": "reward/all/mean",
    "Val. Reward": "val_reward/all/mean",
    "Seq. Length": "seq_len/all/mean",
    "Turns": "num_turns/all/mean",
    "Branches": "num_branches/all/mean",
    "Max Off-Policy": "off_policy_level/all/max",
    "Max. Off-Policy Level": "off_policy_level/all/max",
    "Truncation": "is_truncated/all/mean",
    "Error": "has_error/all/mean",
    "Throughput": "perf/infer/throughput",
}
"""prime-rl's own keys for the words of its lines."""

_TIMED = r"Step (\d{1,15}) \| (?:Time: )?\s*([\d.]+(?:ms|s|m|h)[\d.msh ]*?) \| "
_STEP = re.compile(rf"(?:^|[\s\])]){_TIMED}(.+)$")
_RECOGNISED = re.compile(rf"{_TIMED}(?:Loss|Reward):? -?[\dn]".encode())
_FIELD = re.compile(r"([A-Z][A-Za-z. -]{1,30}?):? (-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf))(%?)")
_TIME = re.compile(r"([\d.]+)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TOTAL = re.compile(rb"Starting (?:training|orchestrator) loop \(max_steps=(\d{1,15})\b")
_FINISHED = re.compile(rb"(?:RL trainer|Orchestrator) finished")


class PrimeRl(Source):
    """prime-rl's console output and log files. Where both parts write to one log, each has its stream."""

    name = "prime_rl_console"
    framework = "prime_rl"

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return b" | " in line and _RECOGNISED.search(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        if b"Step " in line and b" | " in line:
            for piece in pieces(line):
                if found := _STEP.search(piece):
                    yield from _record(int(found[1]), found[2], found[3])
        elif total := _TOTAL.search(line):
            yield TotalSteps(int(total[1]))
        elif _FINISHED.search(line):
            yield Ended("finished")
        elif ended := ending(line):
            yield ended


def _record(step: int, time: str, text: str) -> Iterator[Record]:
    fields = list(filter(None, map(_FIELD.match, text.split(" | "))))
    is_orchestrator = any(field[1] == "Reward" for field in fields)
    keys = _ORCHESTRATOR if is_orchestrator else _TRAINER
    values: dict[str, float] = {}
    for field in fields:
        if key := keys.get(field[1]):
            # shares are logged in percent; elsewhere prime-rl logs the utilisation of FLOPs in percent, too
            values[key] = float(field[2]) / (100 if field[3] and key != "perf/mfu" else 1)
    if values:
        values["time/step"] = sum(float(amount) * _SECONDS[unit] for amount, unit in _TIME.findall(time))
        yield Record(step, values, stream="orchestrator" if is_orchestrator else "trainer")
