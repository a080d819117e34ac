"""Simulated GPUs that train a model together, in scenes; all values follow from the seed and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import fsum
from random import Random
from typing import NamedTuple

from exporter.gpu.backend import CLOCK_EVENTS, NO_LABELS, PROFILES, Event, Extras, Quantity, Reading, Tier

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
MEAN_POWER = fsum(scene.seconds * scene.power for scene in STEP) / STEP_SECONDS
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
ENGINES = ("encoder", "decoder", "jpeg", "ofa")
LINKS_ERRORS = ("crc_flit", "crc_data", "replay", "recovery", "ecc")
LINK_ERRORS = ("crc", "replay", "recovery")


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
               (1.98e9, 3.201e9, 1.545e9), (95.0, 89.0, 87.0), "gpu_max", 5, 18, 1.0)  # fmt: skip
A100 = Profile("simulated A100", "ampere", "8.0", 80 * GIB, 616 * MIB, (100.0, 400.0),
               (1.41e9, 1.593e9, 1.29e9), (92.0, 89.0, 85.0), "slowdown", 4, 12, 2 / 3,
               lacks=("gpu_fabric_state", *_PARTS))  # fmt: skip
KNOWN: Mapping[str, Profile] = {
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
               "gpu_nvlink", *_PARTS),
    ),
}  # fmt: skip
"""By the names of ``--profile``."""


def rng(*seed: int) -> Random:
    """Numbers that follow from the seed."""
    return Random(str(seed))  # noqa: S311  (no secret comes of it)


def uuid(kind: str, *seed: int) -> str:
    """A name of this kind, ``GPU`` or ``MIG``, that looks like the driver's."""
    digits = f"{rng(*seed).getrandbits(128):032x}"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def total(seconds: float, rate: Callable[[Scene], float]) -> float:
    """A counter that grows at this rate per second: its integral over all scenes since the start."""
    steps, rest = divmod(seconds, STEP_SECONDS)
    # Exact: `sum` rounds otherwise before Python 3.12.
    found = steps * STEP_SECONDS * (fsum(scene.seconds * rate(scene) for scene in STEP) / STEP_SECONDS)
    for scene in STEP:
        found += min(rest, scene.seconds) * rate(scene)
        rest = max(0.0, rest - scene.seconds)
    return found


def hot(scene: Scene) -> bool:
    """Whether a card gets hot in it."""
    return scene.utilization > 0.5


def errors(seconds: float) -> int:
    """Uncorrectable memory errors of a sick card so far, each with an Xid error."""
    return 1 + int((seconds - XID_AFTER) // XID_EVERY) if seconds >= XID_AFTER else 0


def each(metric: str, more: Mapping[str, str] = NO_LABELS, **by: Mapping[str, float]) -> Iterator[Reading]:
    """A reading of a metric, without its ``gpu_``, for each value of a label."""
    for label, values in by.items():
        for name, value in values.items():
            yield Reading(f"gpu_{metric}", value, {label: name, **more})


def plain(**values: float) -> Iterator[Reading]:
    """A reading without labels for each metric, without its ``gpu_``."""
    return (Reading(f"gpu_{name}", value) for name, value in values.items())


class DemoCard:
    """A simulated card; ``seconds`` returns how long the machine has been at work."""

    def __init__(self, number: int, seed: int, extras: Extras, seconds: Callable[[], float]) -> None:
        self.uuid = uuid("GPU", seed, number)
        self.profile = KNOWN[extras.profile]
        reads: dict[Tier, Callable[[float], Iterator[Reading]]] = {
            Tier.STATIC: self._static,
            Tier.FAST: self._fast,
            Tier.SLOW: self._slow,
        }
        self.quantities = [
            Quantity(tier.value, tier, partial(self._read, read)) for tier, read in reads.items()
        ]
        self._number, self._seed, self._extras, self._clock = (number, seed, extras, seconds)
        self._sick = number == extras.sick

    def find(self) -> None:
        """It never was lost."""

    def _read(self, read: Callable[[float], Iterator[Reading]]) -> Iterator[Reading]:
        for reading in read(max(0.0, self._clock() - LAG_SECONDS * self._number)):
            if not " ".join([reading.metric, *reading.labels.values()]).startswith(self.profile.lacks):
                yield reading

    def _static(self, _: float) -> Iterator[Reading]:
        card, serial = self.profile, {"serial": f"demo-{self._number}"} if self._extras.serial else {}
        labels = {"name": card.name, "pci_bus_id": f"00000000:{16 * self._number + 1:02X}:00.0"}
        labels |= {"architecture": card.architecture, "compute_capability": card.capability}
        yield Reading("gpu_info", 1, {**labels, "vbios_version": "demo", **serial})
        yield from each("clock_max_hertz", domain=self._clocks)
        yield from each("temperature_threshold_celsius", threshold=self._thresholds)

    @property
    def _clocks(self) -> dict[str, float]:
        sm, memory, video = self.profile.clocks
        return {"graphics": sm, "sm": sm, "memory": memory, "video": video}

    @property
    def _thresholds(self) -> dict[str, float]:
        return dict(zip(("shutdown", "slowdown", "gpu_max"), self.profile.thresholds, strict=True))

    @property
    def _links(self) -> list[dict[str, str]]:
        """The labels of all links together, or of each by itself."""
        return [{"link": str(link)} for link in range(self.profile.links)] if self._extras.links else [{}]

    def _now(self, at: float) -> tuple[Scene, float, float]:
        """The scene, a small share by which values are off, and the bytes of memory in use."""
        rest, card = at % STEP_SECONDS, self.profile
        for scene in STEP:
            if rest < scene.seconds:
                break
            rest -= scene.seconds
        jitter = rng(self._seed, self._number, round(at)).uniform(-0.02, 0.02)
        return scene, jitter, (card.memory - card.reserved) * (scene.memory + jitter / 4) // 1

    def _fast(self, at: float) -> Iterator[Reading]:
        scene, jitter, used = self._now(at)
        yield from self._board(at, scene, jitter)
        yield from self._work(scene, jitter, used)
        yield from self._traffic(at, scene)

    def _board(self, at: float, scene: Scene, jitter: float) -> Iterator[Reading]:
        card, capped = self.profile, self._number % 4 == 1
        watts = scene.power * card.watts[1]
        yield from plain(power_watts=watts, power_instant_watts=watts * (1 + jitter))
        yield from plain(energy_joules_total=total(at, lambda scene: scene.power * card.watts[1]))
        # the temperature follows the mean power of the last half minute; a sick card's margin is soon used up
        before = total(max(0.0, at - COOLING_SECONDS), lambda scene: scene.power)
        power = (total(at, lambda scene: scene.power) - before) / COOLING_SECONDS
        heat, limit = min(1.0, at / HOT_AFTER) if self._sick else 0.0, self._thresholds[card.margin_to]
        too_hot = limit - (AMBIENT + FULL_LOAD * MEAN_POWER)
        celsius = float(round(AMBIENT + FULL_LOAD * power + heat * too_hot))
        yield from each("temperature_celsius", sensor={"gpu": celsius, "memory": celsius + MEMORY_WARMER})
        yield from plain(temperature_margin_celsius=limit - celsius)
        slowed = heat == 1 and hot(scene)
        now = float(round(scene.clock * (1 - 0.2 * slowed) * card.clocks[0]))
        yield from each("clock_hertz", domain={**self._clocks, "graphics": now, "sm": now})
        active = {"idle": scene.utilization < 0.05, "power_cap": capped and scene is UPDATING}
        active |= {"software_thermal": slowed}
        reasons = {reason: float(active.get(reason, False)) for reason in CLOCK_EVENTS.values()}
        yield from each("clock_event_active", reason=reasons)
        slow = total(at, hot) - total(min(at, HOT_AFTER), hot) if self._sick else 0.0
        counted = {"power_cap": total(at, lambda scene: capped and scene is UPDATING), "sync_boost": 0.0}
        counted |= {"software_thermal": slow, "hardware_thermal": 0.0, "power_brake": 0.0}
        yield from each("clock_event_seconds_total", reason=counted)
        yield from plain(performance_state=card.state)
        speed = round(0.3 + 0.4 * scene.power, 2)
        yield from each("fan_speed_ratio", fan={str(fan): speed for fan in range(card.fans)})

    def _work(self, scene: Scene, jitter: float, used: float) -> Iterator[Reading]:
        card, busy = self.profile, scene.utilization
        yield from plain(utilization_ratio=round(busy + jitter, 2), graphics_active_ratio=busy)
        yield from plain(utilization_window_max_ratio=min(1.0, round(busy + 0.02, 2)))
        yield from plain(memory_controller_utilization_ratio=round(0.6 * busy, 2))
        yield from each("engine_utilization_ratio", engine=dict.fromkeys(ENGINES, 0.0))
        yield from plain(sm_active_ratio=scene.sm, sm_occupancy_ratio=scene.occupancy)
        yield from plain(dram_active_ratio=scene.dram)
        pipes = {"tensor": scene.tensor, "fp64": 0.0, "fp32": scene.sm / 10, "fp16": 0.0, "int": scene.sm / 8}
        yield from each("pipe_active_ratio", pipe={name: round(share, 4) for name, share in pipes.items()})
        for name, value in self._memory(card.memory, used, card.reserved):
            yield Reading(f"gpu_memory_{name}_bytes", value)
        whole = sum(size for *_, size in card.instances)
        for number, _, size in card.instances:
            for name, value in self._memory(size, used * size // whole, INSTANCE_RESERVED):
                yield Reading(f"gpu_mig_memory_{name}_bytes", value, {"gpu_instance_id": str(number)})

    @staticmethod
    def _memory(size: float, used: float, reserved: float) -> Iterator[tuple[str, float]]:
        yield from (("total", size), ("reserved", reserved), ("used", used), ("free", size - reserved - used))

    def _traffic(self, at: float, scene: Scene) -> Iterator[Reading]:
        card, links = self.profile, self._links
        rate = scene.pcie * 2 ** (card.pcie - 5)
        if card.pcie == 5 or self._extras.pcie:
            yield from plain(pcie_transmit_bytes_per_second=0.4 * rate // 1)
            yield from plain(pcie_receive_bytes_per_second=rate // 1)
        yield from each("nvlink_links", state={"active": float(card.links), "inactive": 0.0})
        carried = (
            total(at, lambda scene: scene.nvlink) * card.nvlink / len(links) // KIB * KIB if links else 0
        )
        for way in ("transmit", "receive"):
            yield from (Reading(f"gpu_nvlink_{way}_bytes_total", carried, labels) for labels in links)

    def _slow(self, at: float) -> Iterator[Reading]:
        card, bad = self.profile, errors(at) if self._sick else 0
        least, most = card.watts
        limits = {**dict.fromkeys(("default", "requested", "enforced", "max"), most), "min": least}
        yield from each("power_limit_watts", limit=limits)
        yield from plain(compute_mode=0, persistence_mode=card.persistence, ecc_mode=1)
        yield from plain(mig_mode=bool(card.instances), fabric_state=3, pcie_replays_total=0)
        yield from plain(recovery_action=bad > 0, row_remap_pending=bad > 0, row_remap_failed=0)
        for name, value in (("generation", float(card.pcie)), ("width", 16.0)):
            yield from each(f"pcie_link_{name}", kind=dict.fromkeys(("current", "max"), value))
        # the first link is the bad one; of a single link its driver reports fewer kinds
        kinds = LINK_ERRORS if self._extras.links else LINKS_ERRORS
        packets = int(at // LINK_ERROR_EVERY) if self._sick else 0
        counts = {kinds[0]: packets, "replay": packets // 10, "recovery": packets // 100}
        for place, labels in enumerate(self._links):
            found = {kind: 0 if place else counts.get(kind, 0) for kind in kinds}
            yield from each("nvlink_errors_total", labels, type=found)
        for metric in ("ecc_errors_total", "ecc_volatile_errors_total"):
            yield from each(metric, type={"corrected": 0.0, "uncorrected": float(bad)})
        yield from each("remapped_rows_total", cause={"correctable": 0.0, "uncorrectable": float(bad)})
        yield from each("processes", type={"compute": len(USES), "graphics": 0, "mps": 0})
        yield from self._processes(at)
        names = ("gpu_instance_id", "compute_instance_id", "profile", "mig_uuid")
        for number, profile, _ in card.instances:
            known = (str(number), "0", profile, uuid("MIG", self._seed, self._number, number))
            yield Reading("gpu_mig_info", 1, dict(zip(names, known, strict=True)))

    def _processes(self, at: float) -> Iterator[Reading]:
        """The largest are named, the others summed up."""
        scene, _, used = self._now(at)
        most, shares = self._extras.processes, list(USES.items())
        found = [
            (share, (str(FIRST_PID + len(USES) * self._number + place), "simulated", name))
            for place, (name, share) in enumerate(shares[:most])
        ]
        if most and shares[most:]:
            found.append((fsum(share for _, share in shares[most:]), ("", "", "other")))
        for share, (pid, namespace, name) in found:
            labels = {"pid": pid, "pid_namespace": namespace, "name": name, "container": ""}
            yield Reading("gpu_process_memory_bytes", share * used // 1, labels)
            yield Reading("gpu_process_sm_utilization_ratio", round(share * scene.utilization, 2), labels)


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

    def system(self) -> list[Reading]:
        labels = dict.fromkeys(("driver_version", "cuda_version", "nvml_version"), "demo")
        return [Reading("gpu_driver_info", 1, labels)]

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
