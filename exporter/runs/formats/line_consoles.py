"""Consoles that print each record in one line: verl, ROLL, prime-rl, minimind."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from exporter.runs.formats.base import Source, load_json
from exporter.runs.formats.console import HINTS, Console, ending, pieces, servers
from exporter.runs.formats.prefixes import TERMINAL_CUT
from exporter.runs.signals import NONE_MAPPED, Mapped, measurements
from exporter.runs.signals.record import Ended, Event, Record, ResponseLimit, TotalSteps, is_step, number

_FOLDED = " [repeated "  # Ray adds that to a line which several processes printed
_VERL_STEP = re.compile(rb"(?:^|[\s\]m)|])step:(\d{1,15}) - (?=[^\r\x1b\x00])")
_BREAKS = b"\r\x1b\x00"  # bytes at which the fields end: a bar redraws itself there, or a colour changes
_MAY_MATTER = re.compile(
    rb"[Tt]otal.training.steps|max_response_length|Training Progress: 100%|Final validation metrics"
    rb"|Total time for train steps|" + HINTS
)
_VERL_TOTAL = re.compile(rb"(?:Total training steps: |'total_training_steps': )(\d{1,15})\b")
_LIMIT = re.compile(rb"'max_response_length': (\d{1,15})\b")
_FULL_BAR = re.compile(rb"Training Progress: 100%\|[^|]*\| (\d+)/\1 ")
_VERL_FINISHED = re.compile(rb"Final validation metrics|Total time for train steps")


class VerlConsole(Source):
    """verl's ``console`` logger: ``step:12 - actor/entropy:0.41 - ...`` amid everything else it prints.

    Also as W&B's ``output.log``; all versions since 0.2. The line may stand behind colour codes, or glued to
    tqdm bars by a carriage return; values may be wrapped by numpy (``np.float64(0.5)``). A pseudo terminal
    cuts lines after 4096 bytes: the last field of such a line is dropped, since its digits may be cut.
    """

    name = "verl_console"
    framework = "verl"

    def recognises(self, line: bytes) -> bool:
        found = _VERL_STEP.search(line)
        return found is not None and _verl_record(found, _end(found)) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        found = _VERL_STEP.search(line)
        if found and (record := _verl_record(found, end := _end(found))):
            yield record
            line = line[: found.start()] + line[end:]
        if _MAY_MATTER.search(line):
            if total := _VERL_TOTAL.search(line):
                yield TotalSteps(int(total[1]))
            if limit := _LIMIT.search(line):
                yield ResponseLimit(int(limit[1]))
            if _VERL_FINISHED.search(line) or _FULL_BAR.search(line):
                yield Ended("finished")
            elif ended := ending(line):
                yield ended
        if mention := servers(line):
            yield mention


def _end(found: re.Match[bytes]) -> int:
    """Where the fields end that begin behind ``found``. A pattern would take ten times as long."""
    breaks = [found.string.find(byte, found.end()) for byte in _BREAKS]
    return min((at for at in breaks if at >= 0), default=len(found.string))


def _verl_record(found: re.Match[bytes], end: int) -> Record | None:
    fields = found.string[found.end() : end].decode("utf-8", "replace").split(" - ")
    fields[-1] = fields[-1].partition(_FOLDED)[0]
    if end == TERMINAL_CUT:
        fields.pop()
    try:
        values = dict([field.rsplit(":", 1) for field in fields])
    except ValueError:  # a key with " - " in it
        values = dict([pair for field in fields if len(pair := field.rsplit(":", 1)) == 2])
    if not any(number(value) is not None for value in values.values()):
        return None
    return Record(int(found[1]), values)


_TRACKED = b'metrics_tag: {"step": '
_ROLL_STEP = "system/global_step"
_PLAIN = re.compile(rb'(?:^|[\]:\s])(\{(?=")[^{}]*"system/global_step": \d.*\})\s*$')


class Roll(Console):
    """ROLL's console output: ``metrics_tag: {"step": 12, "metrics": {"critic/score/mean": 0.5}}``.

    That is its ``stdout`` tracker. With another one, each pipeline still logs the metrics as one JSON
    object every ``logging_steps`` steps; that they are of step ``system/global_step`` stands among them.
    Source: ``roll/utils/tracking.py`` and ``roll/pipeline`` (rlvr, agentic) of 2026-10. Steps start at 0.
    """

    name = "roll_console"
    framework = "roll"
    done = re.compile(rb"pipeline complete!")

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._tracked = False

    def recognises(self, line: bytes) -> bool:
        return _of_roll(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        tracked = _TRACKED in line
        if record := None if self._tracked and not tracked else _of_roll(line):
            self._tracked = self._tracked or tracked
            yield record
        else:
            yield from super().parse(line)


def _of_roll(line: bytes) -> Record | None:
    """The record of a line; keys may end in how they are reduced: ``actor/pg_loss@sum``."""
    text = line[: line.rfind(b"}") + 1]  # a colour code may follow the object
    if (place := text.find(_TRACKED)) >= 0:
        logged = load_json(text[place + len(b"metrics_tag: ") :])
    elif b'"system/global_step": ' in text and (found := _PLAIN.search(text)):
        metrics = load_json(found[1])
        logged = isinstance(metrics, dict) and {"step": metrics.get(_ROLL_STEP), "metrics": metrics}
    else:
        return None
    match logged:
        case {"step": step, "metrics": dict(values)} if is_step(step):
            measured = {key.partition("@")[0]: raw for key, raw in values.items() if number(raw) is not None}
            measured.pop(_ROLL_STEP, None)
            return Record(step, measured) if measured else None
    return None


_REWARD = "reward/all/mean"
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
    "Reward": _REWARD,
    "Val. Reward": "val_reward/all/mean",
    "Seq. Length": "seq_len/all/mean",
    "Turns": "num_turns/all/mean",
    "Branches": "num_branches/all/mean",
    "Max Off-Policy": "off_policy_level/all/max",
    "Max. Off-Policy Level": "off_policy_level/all/max",
    "Truncation": "is_truncated/all/mean",
    "Error": "train/agg/all/has_error/mean",
    "Cancelled": "train/agg/all/cancelled/mean",
    "Throughput": "perf/infer/throughput",
}
"""prime-rl's own keys for the words of its lines."""

_TIMED = r"Step (\d{1,15}) \| (?:Time: )?\s*([\d.]+(?:ms|s|m|h)[\d.msh ]*?) \| "
_PRIME_STEP = re.compile(rf"(?:^|[\s\])]){_TIMED}(.+)$")
_FIELD = re.compile(r"([A-Z][A-Za-z. -]{1,30}?):? (-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf))(%?)")
_TIME = re.compile(r"([\d.]+)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DROPPED = re.compile(r"Dropping \d{1,9} non-finite value\(s\) from [^:]{1,300}: (.+)")
_AGENTS_REWARD = re.compile(r"train/agg/effective/[^/]+/reward/mean")
_PRIME_TOTAL = re.compile(r"Starting (?:training|orchestrator) loop \(max_steps=(\d{1,15})\b")


class PrimeRl(Console):
    """prime-rl's console output and log files: lines of its trainer and its orchestrator, one a step.

    Where both parts write to one log, each has its stream.

    ``Step 12 | 3.2s | Loss 0.0012 | Entropy 0.4127 | Mismatch KL 0.0003 | Grad. Norm 0.5312 | LR 1.00e-06
    | Throughput 8123 tokens/s | MFU 31.2% | Peak Mem. 45.6 GiB``, and of the orchestrator ``Step 12 |
    9.8s | Reward 0.5312 | Trainable 60/64 (93.8%) | ... | Truncation 1.6%``. Until 2026-05 the words were
    followed by colons, and the time had one. Behind the line of a step it names what it leaves out of its
    JSON lines: ``Dropping 2 non-finite value(s) from metrics.jsonl: loss/mean, optim/grad_norm``. Source:
    ``trainer/rl/train.py``, ``orchestrator`` and ``monitors/file.py`` of 2026-10.
    """

    name = "prime_rl_console"
    framework = "prime_rl"
    known = re.compile(rf"{_TIMED}(?:Loss|Reward):? -?[\dn]".encode())
    done = re.compile(rb"(?:RL trainer|Orchestrator) finished")

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._waiting: dict[str, Record] = {}
        self._last: Record | None = None

    def recognises(self, line: bytes) -> bool:
        return b" | " in line and super().recognises(line)

    def _read(self, piece: str) -> Iterator[Event]:
        if "Step " in piece and " | " in piece:
            found = _PRIME_STEP.search(piece)
            if found and (record := _prime_record(int(found[1]), found[2], found[3])):
                if before := self._waiting.pop(record.stream, None):
                    yield before
                self._last = self._waiting[record.stream] = record
        elif dropped := _DROPPED.search(piece):
            yield from self._not_finite(dropped[1])
        elif total := _PRIME_TOTAL.search(piece):
            yield TotalSteps(int(total[1]))

    def flush(self) -> Iterator[Event]:
        """The last step of each part, which a line about NaN may still follow."""
        waiting, self._waiting = self._waiting, {}
        yield from waiting.values()

    def _not_finite(self, text: str) -> Iterator[Event]:
        """Up to five names, of the step before; without those of no line: nothing would show their end."""
        names = [name.removeprefix("metrics.") for name in text.removesuffix(" ...").strip().split(", ")]
        keys = [_REWARD if _AGENTS_REWARD.fullmatch(name) else name for name in names]
        printed = {*_TRAINER.values(), *_ORCHESTRATOR.values()}
        values = {key: math.nan for key in keys if key in printed}
        if self._last is None or not values:
            return
        if waiting := self._waiting.get(self._last.stream):
            self._waiting[waiting.stream] = replace(waiting, values={**waiting.values, **values})
        else:
            yield replace(self._last, values=values)


def _prime_record(step: int, time: str, text: str) -> Record | None:
    fields = list(filter(None, map(_FIELD.match, text.split(" | "))))
    is_orchestrator = any(field[1] == "Reward" for field in fields)
    keys = _ORCHESTRATOR if is_orchestrator else _TRAINER
    values: dict[str, float] = {}
    for field in fields:
        if key := keys.get(field[1]):
            # shares are logged in percent; elsewhere prime-rl logs the utilisation of FLOPs in percent, too
            values[key] = float(field[2]) / (100 if field[3] and key != "perf/mfu" else 1)
    if not values:
        return None
    values["time/step"] = sum(float(amount) * _SECONDS[unit] for amount, unit in _TIME.findall(time))
    return Record(step, values, stream="orchestrator" if is_orchestrator else "trainer")


_EPOCH = re.compile(
    r"[Ee]poch[: ]*\[?\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\]?[,| ]*(?:[Ss]tep[: ]*)?"
    r"[\[(]\s*(\d{1,15})\s*/\s*(\d{1,15})\s*[\])]"
)
_NAMED = re.compile(
    r"[\s,|)\]]([A-Za-z][\w ./-]{0,60}?)\s*[:=]\s*([-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf))(?![\w.%])",
    re.IGNORECASE,
)


class EpochLines(Console):
    """Lines that begin with epoch and step: ``Epoch:[1/2](100/9751), Reward: -1.7233, KL_ref: 0.1``.

    Those of minimind's trainers. Steps count on over the epochs, which may be counted from 0. Source:
    ``trainer/train_grpo.py`` and ``train_ppo.py`` of 2026-08.
    """

    name = "epoch_console"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._first = 1
        self._total: int | None = None

    def recognises(self, line: bytes) -> bool:
        return b"poch" in line and any(self._of_epoch(piece)[1] for piece in pieces(line))

    def _read(self, piece: str) -> Iterator[Event]:
        found, values = self._of_epoch(piece)
        if found and values:
            epoch, epochs, step, steps = map(int, found.groups())
            self._first = min(self._first, epoch)
            if epochs * steps != self._total:
                self._total = epochs * steps
                yield TotalSteps(self._total)
            yield Record((epoch - self._first) * steps + step, values)

    def _of_epoch(self, piece: str) -> tuple[re.Match[str] | None, dict[str, str]]:
        """Where the step stands in it, and the numbers behind that; none if they are no measurements."""
        if not (found := _EPOCH.match(piece)):
            return None, {}
        pairs = _NAMED.findall(piece, found.end() - 1)
        values = {key: value for key, value in pairs if number(value) is not None}
        return found, values if measurements(tuple(values), self._mapped) else {}
