"""Simulated GPUs that train a model together, in scenes; all values follow from the seed and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import fsum
from random import Random
from typing import NamedTuple
from uuid import UUID

from exporter.gpu.backend import PROFILES, Call, Event, Extras, Problem, Reading, Tier
from exporter.gpu.table import rows

GIB, MIB = 2.0**30, 2.0**20
KIB = 1024
"""The driver counts NVLink's bytes in these."""


class Scene(NamedTuple):
    """A part of a training step: its seconds, and shares of what a card can do at most.

    ``nvlink`` and ``pcie`` are bytes per second and direction, of a card whose links are the fastest.
    """

    seconds: float
    utilization: float
    memory: float
    power: float
    clock: float
    sm: float
    occupancy: float
    tensor: float
    dram: float
    nvlink: float
    pcie: float


UPDATING = Scene(8, 0.98, 0.91, 0.96, 0.90, 0.88, 0.40, 0.46, 0.48, 90e9, 1e9)
STEP = (
    Scene(12, 0.93, 0.82, 0.74, 0.95, 0.70, 0.25, 0.22, 0.62, 30e9, 0.2e9),  # responses are sampled
    Scene(2, 0.08, 0.55, 0.20, 0.60, 0.05, 0.02, 0.0, 0.30, 150e9, 12e9),  # weights move
    UPDATING,
    Scene(2, 0.03, 0.42, 0.17, 0.30, 0.01, 0.0, 0.0, 0.01, 0.0, 4e9),  # the next batch is prepared
)
STEP_SECONDS = sum(scene.seconds for scene in STEP)
LAG_SECONDS = 0.2
"""Each card is a little behind the one before it."""
XID_AFTER, XID_EVERY, HOT_AFTER, LINK_ERROR_EVERY = 45.0, 180.0, 60.0, 2.0
"""Seconds until a sick card reports errors, again, and is too hot; and between bad packets on NVLink."""
AMBIENT, FULL_LOAD, MEMORY_WARMER, COOLING_SECONDS = 28.0, 42.0, 6.0, 30.0
"""Degrees of the air, by how much a card that draws all it may is warmer, and how much more its memory."""
USES = {"trainer": 0.55, "rollout": 0.45}
"""Processes, and which share of the card's memory each holds."""
FIRST_PID = 4000
INSTANCE_RESERVED = 2**25
DRIVER = "580.95"
"""What the cards report is what this driver does."""


class Profile(NamedTuple):
    """A kind of card: bytes, watts, hertz, degrees; ``lacks``: metrics, also by label, that it does not have.

    ``margin_to`` is the threshold to which the margin is reported, ``nvlink`` the links' speed as a share of
    the fastest ones', ``xid`` the error that a sick card reports.
    """

    name: str
    architecture: str
    capability: str
    memory: float
    reserved: float
    watts: tuple[float, float]
    clocks: tuple[float, float, float]
    thresholds: tuple[float, float, float]
    margin_to: str
    pcie: int
    links: int = 0
    nvlink: float = 0.0
    fans: int = 0
    state: int = 0
    persistence: int = 1
    xid: int = 48
    instances: tuple[tuple[int, str, float], ...] = ()
    lacks: tuple[str, ...] = ()


_PARTS = ("gpu_graphics_active", "gpu_sm_", "gpu_dram_", "gpu_pipe_")
H200 = Profile("simulated H200", "hopper", "9.0", 150_754_820_096.0, 643_825_664.0, (200.0, 700.0),
               (1.98e9, 3.201e9, 1.545e9), (95.0, 89.0, 87.0), "gpu_max", 5, 18, 1.0,
               lacks=("gpu_retired",))  # fmt: skip
A100 = Profile("simulated A100", "ampere", "8.0", 80 * GIB, 616 * MIB, (100.0, 400.0),
               (1.41e9, 1.593e9, 1.29e9), (92.0, 89.0, 85.0), "slowdown", 4, 12, 2 / 3,
               lacks=("gpu_retired", "gpu_fabric_state", *_PARTS))  # fmt: skip
KNOWN = {
    "h200": H200,
    "a100": A100,
    "a100-mig": A100._replace(
        instances=((1, "3g.40gb", 40192 * MIB), (3, "2g.20gb", 19968 * MIB), (5, "2g.20gb", 19968 * MIB)),
        lacks=(*A100.lacks, "gpu_utilization", "gpu_memory_controller", "gpu_engine", "gpu_remapped",
               "gpu_process_sm", *(f"gpu_ecc_{of}errors_total uncorrected" for of in ("", "volatile_"))),
    ),
    "rtx4080": Profile(
        "simulated RTX 4080", "ada", "8.9", 17_171_480_576.0, 379 * MIB, (150.0, 320.0),
        (3.105e9, 11.201e9, 2.415e9), (98.0, 95.0, 90.0), "slowdown", 4,
        fans=2, state=2, persistence=0, xid=119,
        lacks=("gpu_engine_utilization_ratio jpeg", "gpu_clock_max_hertz video", "gpu_recovery", "gpu_fabric",
               "gpu_temperature_celsius memory", "gpu_mig", "gpu_ecc", "gpu_remapped", "gpu_row",
               "gpu_nvlink", "gpu_retired", *_PARTS),
    ),
}  # fmt: skip
"""By the names of ``--profile``."""


def rng(*seed: int) -> Random:
    """Numbers that follow from the seed."""
    return Random(str(seed))  # noqa: S311  (no secret comes of it)


def uuid(kind: str, *seed: int) -> str:
    """A name of this kind, ``GPU`` or ``MIG``, that looks like the driver's."""
    return f"{kind}-{UUID(int=rng(*seed).getrandbits(128))}"


def total(seconds: float, rate: Callable[[Scene], float]) -> float:
    """A counter that grows at this rate per second: its integral over all scenes since the start."""
    steps, rest = divmod(seconds, STEP_SECONDS)
    # Exact: `sum` rounds otherwise before Python 3.12.
    found = steps * STEP_SECONDS * (fsum(scene.seconds * rate(scene) for scene in STEP) / STEP_SECONDS)
    for scene in STEP:
        found += min(rest, scene.seconds) * rate(scene)
        rest = max(0.0, rest - scene.seconds)
    return found


def errors(seconds: float) -> int:
    """Uncorrectable memory errors of a sick card so far, each with an Xid error."""
    return 1 + int((seconds - XID_AFTER) // XID_EVERY) if seconds >= XID_AFTER else 0


def hot(scene: Scene) -> bool:
    """Whether a card gets hot in it."""
    return scene.utilization > 0.5


class DemoCard:
    """A simulated card; ``seconds`` returns how long the machine has been at work."""

    def __init__(self, number: int, seed: int, extras: Extras, seconds: Callable[[], float]) -> None:
        self.uuid, self.profile = uuid("GPU", seed, number), KNOWN[extras.profile]
        self.calls = [Call(tier.value, tier, partial(self._readings, tier)) for tier in Tier]
        self._number, self._seed, self._extras, self._clock = number, seed, extras, seconds
        self._sick = number == extras.sick
        self._lacks = self.profile.lacks
        if self.profile.pcie < 5 and not extras.pcie:
            self._lacks += ("gpu_pcie_transmit", "gpu_pcie_receive")
        errors_of = "each" if extras.links else "sum"
        self._rows = [
            row
            for row in rows(DRIVER)
            if "pcie" not in row.options
            and row.scope != "latency"
            and (row.scope == errors_of or row.metric != "gpu_nvlink_errors_total")
        ]
        if extras.links:
            of_links = [row for row in self._rows if row.scope in ("link", "each")]
            others = [row for row in self._rows if row not in of_links]
            links = range(self.profile.links)
            self._rows = others + [row.of_link(link) for link in links for row in of_links]

    def find(self) -> None:
        """It never was lost."""

    def read(self, call: Call) -> Iterator[Reading | Problem]:
        """What such a card reports."""
        for found in call.read(None):
            names = [found.metric, *found.labels.values()] if isinstance(found, Reading) else []
            if not " ".join(names).startswith(self._lacks):
                yield found

    def _readings(self, tier: Tier, _: None) -> Iterator[Reading]:
        at = rest = max(0.0, self._clock() - LAG_SECONDS * self._number)
        rest %= STEP_SECONDS
        for scene in STEP:
            if rest < scene.seconds:
                break
            rest -= scene.seconds
        card, jitter = self.profile, rng(self._seed, self._number, round(at)).uniform(-0.02, 0.02)
        used = (card.memory - card.reserved) * (scene.memory + jitter / 4) // 1
        values = {
            **self._work(at, scene, jitter),
            **self._health(at, scene),
            **_memory(card.memory, used, card.reserved),
        }
        for row in (row for row in self._rows if row.tier is tier):
            metric, link = row.metric.removeprefix("gpu_"), row.labels.get("link", "0")
            named = " ".join([metric, *(text for label, text in row.labels.items() if label != "link")])
            value = values.get(named, values.get(metric, 0))
            # the first link of a sick card is bad
            yield Reading(row.metric, 0 if "errors" in metric and link != "0" else value, row.labels)
        if tier is Tier.FAST:
            yield from self._others(scene, used)

    def _work(self, at: float, scene: Scene, jitter: float) -> dict[str, float]:
        """Values by metric, or by metric and label; what is not here is 0."""
        card, busy = self.profile, scene.utilization
        rate, watts = scene.pcie * 2 ** (card.pcie - 5), scene.power * card.watts[1]
        links = card.links if self._extras.links else 1
        carried = total(at, lambda scene: scene.nvlink) * card.nvlink / (links or 1) // KIB * KIB
        return {
            "utilization_ratio": round(busy + jitter, 2),
            "memory_controller_utilization_ratio": round(0.6 * busy, 2),
            "power_watts": watts,
            "power_instant_watts": watts * (1 + jitter),
            "power_limit_watts": card.watts[1],
            "power_limit_watts min": card.watts[0],
            "energy_joules_total": total(at, lambda scene: scene.power * card.watts[1]),
            "performance_state": card.state,
            "persistence_mode": card.persistence,
            "mig_mode": bool(card.instances),
            "ecc_mode": 1,
            "pcie_link_generation": card.pcie,
            "pcie_link_width": 16,
            "pcie_transmit_bytes_per_second": 0.4 * rate // 1,
            "pcie_receive_bytes_per_second": rate // 1,
            "nvlink_transmit_bytes_total": carried,
            "nvlink_receive_bytes_total": carried,
            "fabric_state": 3,
            "graphics_active_ratio": busy,
            "sm_active_ratio": scene.sm,
            "sm_occupancy_ratio": scene.occupancy,
            "dram_active_ratio": scene.dram,
            "pipe_active_ratio tensor": scene.tensor,
            "pipe_active_ratio fp32": round(scene.sm / 10, 4),
            "pipe_active_ratio int": round(scene.sm / 8, 4),
        }

    def _health(self, at: float, scene: Scene) -> dict[str, float]:
        """Temperatures, clocks and errors."""
        card, capped = self.profile, self._number % 4 == 1
        limits = dict(zip(("shutdown", "slowdown", "gpu_max"), card.thresholds, strict=True))
        # the temperature follows the mean power of the last half minute; a sick card's margin is soon used up
        drawn, whole = (total(seconds, lambda scene: scene.power) for seconds in (at, STEP_SECONDS))
        power = (drawn - total(max(0.0, at - COOLING_SECONDS), lambda scene: scene.power)) / COOLING_SECONDS
        heat, limit = min(1.0, at / HOT_AFTER) if self._sick else 0.0, limits[card.margin_to]
        too_hot = limit - (AMBIENT + FULL_LOAD * whole / STEP_SECONDS)
        celsius = float(round(AMBIENT + FULL_LOAD * power + heat * too_hot))
        slowed = heat == 1 and hot(scene)
        sm, memory, video = card.clocks
        bad, packets = (errors(at), int(at // LINK_ERROR_EVERY)) if self._sick else (0, 0)
        return {
            "temperature_celsius gpu": celsius,
            "temperature_celsius memory": celsius + MEMORY_WARMER,
            "temperature_margin_celsius": limit - celsius,
            **{f"temperature_threshold_celsius {name}": value for name, value in limits.items()},
            "clock_hertz": float(round(scene.clock * (1 - 0.2 * slowed) * sm)),
            "clock_max_hertz": sm,
            **{f"clock_{of}hertz memory": memory for of in ("", "max_")},
            **{f"clock_{of}hertz video": video for of in ("", "max_")},
            "clock_event_active idle": scene.utilization < 0.05,
            "clock_event_active power_cap": capped and scene is UPDATING,
            "clock_event_active software_thermal": slowed,
            "clock_event_seconds_total power_cap": total(at, lambda scene: capped and scene is UPDATING),
            "clock_event_seconds_total software_thermal": (
                total(at, hot) - total(min(at, HOT_AFTER), hot) if self._sick else 0
            ),
            **dict.fromkeys(("recovery_action", "row_remap_pending"), bad > 0),
            **{f"ecc_{of}errors_total uncorrected": bad for of in ("", "volatile_")},
            "remapped_rows_total uncorrectable": bad,
            # of a single link its driver reports fewer kinds of errors
            f"nvlink_errors_total {'crc' if self._extras.links else 'crc_flit'}": packets,
            "nvlink_errors_total replay": packets // 10,
            "nvlink_errors_total recovery": packets // 100,
        }

    def _others(self, scene: Scene, used: float) -> Iterator[Reading]:
        """What the table has no row for; the largest processes are named, the others summed up."""
        card, number, most = self.profile, self._number, self._extras.processes
        labels = {"name": card.name, "pci_bus_id": f"00000000:{16 * number + 1:02X}:00.0"}
        labels |= {"architecture": card.architecture, "compute_capability": card.capability}
        serial = {"serial": f"demo-{number}"} if self._extras.serial else {}
        yield Reading("gpu_info", 1, {**labels, "vbios_version": "demo", **serial})
        yield Reading("gpu_utilization_window_max_ratio", min(1.0, round(scene.utilization + 0.02, 2)))
        for state, count in (("active", card.links), ("inactive", 0)):
            yield Reading("gpu_nvlink_links", count, {"state": state})
        for fan in range(card.fans):
            yield Reading("gpu_fan_speed_ratio", round(0.3 + 0.4 * scene.power, 2), {"fan": str(fan)})
        for kind, count in (("compute", len(USES)), ("graphics", 0), ("mps", 0)):
            yield Reading("gpu_processes", count, {"type": kind})
        for place, profile, size in card.instances:
            names = ("gpu_instance_id", "compute_instance_id", "profile", "mig_uuid")
            known = (str(place), "0", profile, uuid("MIG", self._seed, number, place))
            yield Reading("gpu_mig_info", 1, dict(zip(names, known, strict=True)))
            share = used * size // sum(size for *_, size in card.instances)
            for metric, value in _memory(size, share, INSTANCE_RESERVED).items():
                yield Reading(f"gpu_mig_{metric}", value, {"gpu_instance_id": str(place)})
        found = [
            (share, (str(FIRST_PID + len(USES) * number + place), "simulated", name))
            for place, (name, share) in enumerate(list(USES.items())[:most])
        ]
        if 0 < most < len(USES):
            found.append((fsum(list(USES.values())[most:]), ("", "", "other")))
        for share, texts in found:
            labels = {**dict(zip(("pid", "pid_namespace", "name"), texts, strict=True)), "container": ""}
            yield Reading("gpu_process_memory_bytes", share * used // 1, labels)
            yield Reading("gpu_process_sm_utilization_ratio", round(share * scene.utilization, 2), labels)


def _memory(size: float, used: float, reserved: float) -> dict[str, float]:
    parts = {"total": size, "used": used, "reserved": reserved, "free": size - reserved - used}
    return {f"memory_{part}_bytes": value for part, value in parts.items()}


class Demo:
    """The GPUs and their errors. ``clock`` in seconds; ``sleep`` waits that long."""

    def __init__(
        self,
        extras: Extras,
        seed: int = 7,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._extras, self._seed, self._clock, self._sleep = extras, seed, clock, sleep
        self._errors = 0

    def open(self) -> int:
        self._started = self._clock()
        return PROFILES[self._extras.profile]

    def card(self, number: int) -> DemoCard:
        return DemoCard(number, self._seed, self._extras, lambda: self._clock() - self._started)

    def system(self) -> Reading:
        labels = dict.fromkeys(("driver_version", "cuda_version", "nvml_version"), "demo")
        return Reading("gpu_driver_info", 1, labels)

    def events(self, seconds: float) -> list[Event]:
        sick = self._extras.sick
        if sick is not None and errors(self._clock() - self._started) > self._errors:
            self._errors += 1
            return [Event(uuid("GPU", self._seed, sick), KNOWN[self._extras.profile].xid, time.time())]
        self._sleep(seconds)
        return []

    def close(self) -> None:
        """There is nothing to release."""

    def outdated(self) -> bool:
        return False
