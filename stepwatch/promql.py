"""Expressions over the run exporter's metrics, as the rule templates use them.

Every operand is ``max by (run) (...)``: two exporters that see one run do not break a join, and
all operands have the one label ``run``, so that plain vector matching joins them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from stepwatch.config.overrides import Variant
from stepwatch.config.quantities import Duration
from stepwatch.globs import alternation, to_re2

REMEMBERED = "10m"
"""How long what is not heard of is taken to be as it was: a lost scrape resolves nothing."""

UTILISATION = "gpu_utilization_ratio or DCGM_FI_DEV_GPU_UTIL / 100"
"""Of each GPU that is watched, whichever exporter there is: ours, or else NVIDIA's."""

HEAT = ("software_thermal", "hardware_thermal", "thermal")
"""Why a GPU is slowed down when it is too hot, as its exporter calls it."""

TOLD_FOR = "1h"
"""How long what happens in an instant, such as an error of a GPU or a resume, is reported."""

SETTLED = "2h"
"""How long after a run began or ended its servers may still come and go, and be reported."""

THIS_RUN = "run=%[1]q"
"""The run of an alert, filled in by ``printf`` when an annotation asks for a value."""

THIS_GPU = "instance=%[1]q,gpu=%[2]q"
"""The GPU of an alert, likewise."""

THIS_HOST = "instance=%[1]q"
"""The machine of an alert, likewise."""

THIS_DISK = "instance=%[1]q,mountpoint=%[2]q"
"""The file system of an alert, likewise."""

THIS_SOURCE = "name=%[1]q"
"""The page or tracking server of an alert, likewise."""


HOLDS_CHECKPOINTS = (
    'fstype!~"tmpfs|ramfs|devtmpfs|overlay|squashfs|erofs|iso9660|udf|fuse.lxcfs",'
    'mountpoint!~"/boot(/.*)?|/run/.*|/snap/.*"'
)
"""What may hold checkpoints: no memory, no image, no layer of a container, nothing of the system's start."""


def number(value: float) -> str:
    """A number as short as it can be written: 1, 0.5, 2.5."""
    return repr(float(value)).removesuffix(".0")


def percent(share: float) -> str:
    """A share in the words of a message: 30 %."""
    return f"{number(round(100 * share, 6))} %"


def seconds(value: float) -> str:
    """A time in the words of a message: 90 s, 10 min, 12 h."""
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= size and value % size == 0:
            return f"{number(value / size)} {unit}"
    return f"{number(value)} s"


SUFFERS_NOISES = 2
"""How many noises a mean of the reward must be below its best: five times (alpha 0.3) to nine times
(0.1) what chance does to that mean. For a batch of 8 a share of the best alone is chance."""

PINNED = 0.03
"""The spread of 10 rewards, as a share of the best, that is left at a ceiling. A batch of 512 spreads by
14 % with half of its answers right, by 1.4 % with 99 % of them."""


class QuickFall(Protocol):
    """Limits of a fall within 3 steps: in noises, and as a share of the best."""

    quick_noises: float
    quick_lost: float


@dataclass(frozen=True)
class Operands:
    """Operands about the runs that ``matcher`` selects; bare selectors if not ``joined``."""

    matcher: str = ""
    joined: bool = True

    def metric(self, name: str, **labels: str) -> str:
        """A metric of the runs, with these labels."""
        selector = self.selector(name, **labels)
        return f"max by (run) ({selector})" if self.joined else selector

    def selector(self, name: str, **labels: str) -> str:
        """The bare selector."""
        inside = [f'{label}="{value}"' for label, value in labels.items()]
        matchers = ",".join(filter(None, [*inside, self.matcher]))
        return f"{name}{{{matchers}}}" if matchers else name

    def over(self, function: str, signal: str, steps: int) -> str:
        """``min``, ``max``, ``mean``, ``median`` or ``range`` of the last steps."""
        return self.metric(f"rl_{function}_over_steps", signal=signal, steps=str(steps))

    def of(self, statistic: str, signal: str, **labels: str) -> str:
        """A statistic without a window: start, noise, best, peak, ewma, drawdown."""
        return self.metric(f"rl_{statistic}", signal=signal, **labels)

    def drawdown_min(self, alpha: str, steps: int) -> str:
        """The smallest drawdown of the reward over the last steps."""
        return self.of("drawdown_min_over_steps", "reward", alpha=alpha, steps=str(steps))

    def lost(self, share: float, alpha: str = "0.1") -> str:
        """The reward is below its best by more than this share of it."""
        return f"{self.of('drawdown', 'reward', alpha=alpha)} > {number(share)} * {self.best}"

    def suffers(self, share: float, alpha: str = "0.1") -> str:
        """The reward is below its best by more than this share of it, and by more than chance makes of it."""
        noises = f"{number(SUFFERS_NOISES)} * {self.of('noise', 'reward')}"
        return f"{self.lost(share, alpha)}\nand {self.of('drawdown', 'reward', alpha=alpha)} > {noises}"

    def solved(self, share: float) -> str:
        """The reward is near the largest score of the samples, or near a level that it does not leave.

        Both report success only; a run that has lost reward is not solved.
        """
        mean, highest = self.of("ewma", "reward", alpha="0.1"), self.over("median", "reward_max", 64)
        best, spread = self.of("best", "reward"), self.over("range", "reward", 10)
        return (
            f"{mean} > {number(share)} * {highest}\n  and {highest} > 0\n"
            f"or {spread} < {number(PINNED)} * {best}\n"
            f"  unless {best} - {mean} > 0.1 * {best}"
        )

    @property
    def best(self) -> str:
        """The size of the best reward, which may be negative."""
        return f"abs({self.of('best', 'reward')})"

    @property
    def gained(self) -> str:
        """How far the best reward is above the start."""
        return f"({self.of('best', 'reward')} - {self.of('start', 'reward')})"

    def dead(self, steps: int) -> str:
        """No positive reward in the last steps, and all of them alike."""
        return "\nor ".join(
            f"{self.over('max', signal, steps)} <= 0\n  and {self.over('range', signal, steps)} == 0"
            for signal in ("reward", "reward_max")
        )

    def beyond(self, drawdown: str, noises: float) -> str:
        """A drawdown of the reward is more than so many noises, for annotations: bare selectors."""
        return f"{drawdown} > ignoring (alpha, steps) {number(noises)} * {self.of('noise', 'reward')}"

    def fell_quickly(self, limit: QuickFall) -> str:
        """The reward, smoothed little, is far below its best for 3 steps."""
        below = self.drawdown_min("0.5", 3)
        in_noises = f"{below} > {number(limit.quick_noises)} * {self.of('noise', 'reward')}"
        return f"{in_noises}\n  and {below} > {number(limit.quick_lost)} * {self.best}"

    def below_mean(self, share: float) -> str:
        """The reward is below the mean of its last 32 steps by more than this share, 5 times in a row."""
        mean = self.over("mean", "reward", 32)
        return f"{self.over('max', 'reward', 5)} < {mean} - {number(share)} * abs({mean})"

    def risen(self, signal: str, above_start: float, noises: float) -> str:
        """The signal is above its start by more than both, for 3 steps in a row."""
        rise = f"{self.over('min', signal, 3)} - {self.of('start', signal)}"
        noise = self.of("noise", signal)
        return f"{rise} > {number(above_start)}\nand {rise} > {number(noises)} * {noise}"

    def validation_fell(self, drop: float, noises: float) -> str:
        """Two evaluations in a row are below the best confirmed one by more than both."""
        last, best = self.over("max", "validation_score", 2), self.of("confirmed_best", "validation_score")
        noise = self.of("noise", "validation_score")
        return f"{last} < {best} - {number(drop)}\nand {last} < {best} - {number(noises)} * {noise}"

    def is_in(self, *states: str) -> str:
        """The run is in one of these states."""
        if len(states) == 1:
            return f"{self.metric('rl_run_state', state=states[0])} == 1"
        matcher = ",".join(filter(None, [f'state=~"{"|".join(states)}"', self.matcher]))
        return f"max by (run) (rl_run_state{{{matcher}}}) == 1"

    def last(self, name: str, **labels: str) -> str:
        """A metric of the runs when last heard of, if that is not long ago."""
        return f"max by (run) (last_over_time({self.selector(name, **labels)}[{REMEMBERED}]))"

    def increased(self, name: str) -> str:
        """By how much a counter of the runs rose while it is reported: whole numbers, unlike `increase`."""
        least = f"max by (run) (min_over_time({self.selector(name)}[{TOLD_FOR}]))"
        return f"{self.metric(name)} - {least}"

    def was_in(self, state: str) -> str:
        """The run was in this state when last heard of."""
        return f"{self.last('rl_run_state', state=state)} == 1"


def gpus(expression: str) -> str:
    """One value for each GPU, whatever else its series are labelled with."""
    return f"max by (instance, gpu, uuid) ({expression})"


def events(counter: str) -> str:
    """What a counter counted of late: how many, if any.

    A counter that rose is one. So is one that appeared, which `increase` does not see: it is not in
    every scrape of the last hour that succeeded, as it would be had it been there before Prometheus
    was, and in none of the hour before, as it would be had it only been away for a while.
    """
    return (
        f"  increase({counter}[{TOLD_FOR}]) > 0\n"
        f"  or {counter} > 0\n"
        f"    and count_over_time({counter}[{TOLD_FOR}])\n"
        f"      < on (job, instance) group_left () max by (job, instance) (sum_over_time(up[{TOLD_FOR}]))\n"
        f"    unless present_over_time({counter}[{TOLD_FOR}] offset {TOLD_FOR})\n"
    )


def xid_events(matcher: str) -> str:
    """The Xid errors of each GPU and code that happened of late: how many, if any.

    Only GPUs that are there, if lost, count: no one is to reset what has gone, or what has taken its
    place. An error of a GPU that the driver does not name counts while its counter is there.
    """
    counter = f"gpu_xid_errors_total{{{matcher}}}"
    return (
        f"max by (instance, gpu, uuid, xid) (\n{events(counter)})\n"
        'and on (instance, gpu, uuid) (gpu_up or gpu_xid_errors_total{gpu=""})'
    )


def counted(counter: str) -> str:
    """By how much a counter of each GPU rose while it is reported: whole numbers, unlike `increase`."""
    return gpus(f"{counter} - min_over_time({counter}[{TOLD_FOR}])")


def is_one_of(expression: str, values: Iterable[int]) -> str:
    """Series that have one of these values."""
    return "\nor ".join(f"{expression} == {value}" for value in values)


def slowed(*reasons: str) -> str:
    """The share of the last 5 minutes in which one of the reasons held the clocks of a GPU down.

    By the driver's own count of the time, or where it has none by how it was at each reading.
    """
    matcher = f'reason="{reasons[0]}"' if len(reasons) == 1 else f'reason=~"{"|".join(reasons)}"'
    counted = gpus(f"rate(gpu_clock_event_seconds_total{{{matcher}}}[5m])")
    seen = gpus(f"avg_over_time(gpu_clock_event_active{{{matcher}}}[5m])")
    return f"(\n  {counted}\n  or {seen}\n)"


def simulated(within: Duration) -> str:
    """The demo's GPUs, which no one misses when they go; of a box that had some, not even others."""
    return f'present_over_time(gpu_info{{name=~"simulated .+"}}[{within}])'


def servers(expression: str) -> str:
    """One value for each target, whatever else its series are labelled with."""
    return f"max by (job, instance) ({expression})"


def hosts(expression: str) -> str:
    """One value for each machine, likewise."""
    return f"max by (instance) ({expression})"


def nodes(expression: str, of_ports: str = "max") -> str:
    """One value for each address, whatever its ports: a Ray node has up to three."""
    address = '"node", "$1", "instance", "(.+?)(?::[0-9]+)?"'
    return f"{of_ports} by (job, node) (label_replace({expression}, {address}))"


SOME_RUN = f"on () ({Operands().was_in('running')})"
"""To be put behind `and`: while at least one run is running, as far as is known."""


def left(there: str, listed: str) -> str:
    """Targets that were there within the last hour and are not among those ``listed`` any more.

    Only while a run is running, and unless one began anew or ended not long before: its servers come
    and go with it, and nothing says which were whose.
    """
    return (
        f"{there}\n"
        f"  unless {listed}\n"
        f"  and on () ({Operands().is_in('running')})\n"
        f'  unless on () (max by (run) (changes(rl_run_state{{state="running"}}[{SETTLED}])) > 0)'
    )


def those_of(pattern: str | None) -> Operands:
    """Operands about the runs of a pattern, or about all."""
    return Operands("" if pattern is None else f'run=~"{to_re2(pattern)}"')


def runs(variant: Variant) -> Operands:
    """Operands about the runs that a set of limits is for."""
    others = f'run!~"{alternation(variant.without)}"' if variant.without else ""
    return Operands(",".join(filter(None, [those_of(variant.only).matcher, others])))


THIS = Operands(THIS_RUN, joined=False)
"""The series of the alert's run, for its annotations."""
