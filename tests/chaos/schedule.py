"""Which faults strike when. The same seed gives the same faults to a stack with the same parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

WINDOW = 25.0
"""Seconds in which faults begin."""

KINDS = ("kill", "freeze", "cut", "fill", "hang", "damage", "power")
FILES = ("parts.json", "remembered.json", "data/exporter/*", "data/alertmanager/nflog")
"""State files that may be damaged. Alertmanager's silences are not among them: they are what must be kept."""
DAMAGES = ("empty", "half", "null", "deleted")
CUTS = ("DROP", "REJECT --reject-with tcp-reset")


@dataclass(frozen=True)
class Fault:
    """One fault.

    ``at`` is in seconds since the first one could strike, ``lasts`` in seconds until it is over. ``target``
    is a process, a server or a file by its name, ``how`` what is done to it; empty if there is no choice.
    """

    kind: str
    at: float
    lasts: float = 0
    target: str = ""
    how: str = ""

    def __str__(self) -> str:
        words = [self.kind, self.target, f"({self.how})" if self.how else ""]
        lasts = f"for {self.lasts} s" if self.lasts else ""
        return " ".join(filter(None, [f"{self.at:5.1f} s ", *words, lasts]))


@dataclass(frozen=True)
class Schedule:
    """What happens under one seed; ``sick_at`` as a fault's ``at``."""

    seed: int
    faults: tuple[Fault, ...]
    sick_at: float

    def __str__(self) -> str:
        sick = f"{self.sick_at:5.1f} s  one run goes sick"
        lines = sorted([*map(str, self.faults), sick], key=lambda line: float(line.split()[0]))
        return "\n".join([f"seed {self.seed}", *lines])


def filesystem(seed: int) -> str:
    """Return what the state folder of this seed lies on."""
    return ("ext4", "tmpfs")[seed % 2]


def draw(seed: int, processes: Sequence[str], servers: Sequence[str]) -> Schedule:
    """Return the schedule of a seed.

    It kills the processes by turns, and has two other kinds of faults by turns, so that some seeds in a row
    leave nothing out; what else happens is random.

    Args:
        seed: Any whole number from 0.
        processes: The stack's processes by name, in any order.
        servers: Those of them, and of the servers around the stack, that can be cut off.
    """
    dice = Random(seed)
    others = [kind for kind in KINDS if kind != "kill"]
    kinds = [others[(2 * seed + number) % len(others)] for number in range(2)]
    kinds += [dice.choice(KINDS) for _ in range(dice.choice((0, 1)))]
    faults = [_fault(kind, dice, sorted(processes), sorted(servers)) for kind in kinds]
    killed = sorted(processes)[seed % len(processes)]
    faults.append(Fault("kill", round(dice.uniform(0, WINDOW), 1), target=killed))
    return Schedule(
        seed,
        tuple(sorted(faults, key=lambda fault: fault.at)),
        sick_at=round(dice.uniform(0, WINDOW), 1),
    )


def _fault(kind: str, dice: Random, processes: Sequence[str], servers: Sequence[str]) -> Fault:
    # Drawn in the same order whatever the kind.
    at, lasts = round(dice.uniform(0, WINDOW), 1), round(dice.uniform(5, 15), 1)
    process, server, file = dice.choice(processes), dice.choice(servers), dice.choice(FILES)
    damage, cut = dice.choice(DAMAGES), dice.choice(CUTS)
    return {
        "kill": Fault(kind, at, target=process),
        "freeze": Fault(kind, at, lasts, process),
        "cut": Fault(kind, at, lasts, server, cut),
        "fill": Fault(kind, at, lasts),
        "hang": Fault(kind, at, lasts),
        "damage": Fault(kind, at, lasts, file, damage),
        "power": Fault(kind, at, lasts),
    }[kind]
