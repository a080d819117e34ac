"""Simulated GPUs that train a model together, in scenes; all values follow from the seed and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import fsum
from random import Random
from uuid import UUID

from exporter.gpu.backend import PROFILES, Call, Event, Extras, Problem, Reading, Tier
from exporter.gpu.table import rows

KIB = 1024
"""The driver counts NVLink's bytes in these."""


def _table(text: str) -> dict[str, dict[str, float]]:
    """Columns by name, of rows by name, in which a colon stands for a space."""
    names, *lines = (line.split() for line in text.strip().splitlines())
    return {
        column: {line[0].replace(":", " "): float(line[place]) for line in lines}
        for place, column in enumerate(names, 1)
    }


Scene = Mapping[str, float]
SCENES = _table("""
            sampling transfer update preparation
seconds     12       2        8      2
utilization 0.93     0.08     0.98   0.03
memory      0.82     0.55     0.91   0.42
power       0.74     0.20     0.96   0.17
clock       0.95     0.60     0.90   0.30
sm          0.70     0.05     0.88   0.01
occupancy   0.25     0.02     0.40   0.0
tensor      0.22     0.0      0.46   0.0
dram        0.62     0.30     0.48   0.01
nvlink      30e9     150e9    90e9   0
pcie        0.2e9    12e9     1e9    4e9
""")
"""The parts of a training step: their seconds, and shares of what a card can do at most.

``nvlink`` and ``pcie`` are bytes per second and direction, of a card whose links are the fastest.
"""
UPDATE, STEP = SCENES["update"], list(SCENES.values())
STEP_SECONDS = sum(scene["seconds"] for scene in STEP)
CARDS = _table("""
                                       h200         a100        rtx4080
memory_total_bytes                     150754820096 85899345920 17171480576
memory_reserved_bytes                  643825664    645922816   397410304
power_limit_watts                      700          400         320
power_limit_watts:min                  200          100         150
clock_max_hertz                        1.98e9       1.41e9      3.105e9
clock_max_hertz:memory                 3.201e9      1.593e9     11.201e9
clock_max_hertz:video                  1.545e9      1.29e9      2.415e9
temperature_threshold_celsius:shutdown 95           92          98
temperature_threshold_celsius:slowdown 89           89          95
temperature_threshold_celsius:gpu_max  87           85          90
warmest                                87           89          95
pcie_link_generation                   5            4           4
links                                  18           12          0
nvlink                                 1            0.6666666666666666 0
fans                                   0            0           2
performance_state                      0            0           2
persistence_mode                       1            1           0
xid                                    48           48          119
""")
"""Constants of the cards, most by metric; ``warmest``: the degrees to which the margin is reported,
``nvlink``: the links' speed as a share of the fastest ones', ``xid``: the error that a sick card reports."""
NAMES = {
    "h200": ("simulated H200", "hopper", "9.0"),
    "a100": ("simulated A100", "ampere", "8.0"),
    "rtx4080": ("simulated RTX 4080", "ada", "8.9"),
}
_NO_PARTS = ("gpu_graphics_active", "gpu_sm_", "gpu_dram_", "gpu_pipe_", "gpu_retired")
_SPLIT: tuple[str, ...] = (
    "gpu_utilization",
    "gpu_memory_controller",
    "gpu_engine",
    "gpu_remapped",
    "gpu_process_sm",
)
_SPLIT += tuple(f"gpu_ecc_{of}errors_total uncorrected" for of in ("", "volatile_"))
_CONSUMER: tuple[str, ...] = (
    "gpu_engine_utilization_ratio jpeg",
    "gpu_clock_max_hertz video",
    "gpu_temperature_celsius memory",
)
_CONSUMER += ("gpu_recovery", "gpu_fabric", "gpu_mig", "gpu_ecc", "gpu_remapped", "gpu_row", "gpu_nvlink")
LACKS = {
    "h200": ("gpu_retired",),
    "a100": ("gpu_fabric_state", *_NO_PARTS),
    "a100-mig": ("gpu_fabric_state", *_SPLIT, *_NO_PARTS),
    "rtx4080": (*_CONSUMER, *_NO_PARTS),
}
"""How metrics begin, also with a label, that a card does not have."""
INSTANCES = {
    1: ("3g.40gb", 40192 * 2.0**20),
    3: ("2g.20gb", 19968 * 2.0**20),
    5: ("2g.20gb", 19968 * 2.0**20),
}
"""Profile and bytes of each instance of a split card; the driver keeps some for itself."""
INSTANCE_RESERVED = 2**25
LAG_SECONDS = 0.2
"""Each card is a little behind the one before it."""
XID_AFTER, XID_EVERY, HOT_AFTER, LINK_ERROR_EVERY = 45.0, 180.0, 60.0, 2.0
"""Seconds until a sick card reports errors, again, and is too hot; and between bad packets on NVLink."""
AMBIENT, FULL_LOAD, MEMORY_WARMER, COOLING_SECONDS = 28.0, 42.0, 6.0, 30.0
"""Degrees of the air, by how much a card that draws all it may is warmer, and how much more its memory."""
USES = {"trainer": 0.55, "rollout": 0.45}
"""Processes, and which share of the card's memory each holds."""
FIRST_PID = 4000
DRIVER = "580.95"
"""What the cards report is what this driver does."""


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
    mean = fsum(scene["seconds"] * rate(scene) for scene in STEP) / STEP_SECONDS
    found = steps * STEP_SECONDS * mean
    for scene in STEP:
        found += min(rest, scene["seconds"]) * rate(scene)
        rest = max(0.0, rest - scene["seconds"])
    return found


def errors(seconds: float) -> int:
    """Uncorrectable memory errors of a sick card so far, each with an Xid error."""
    return 1 + int((seconds - XID_AFTER) // XID_EVERY) if seconds >= XID_AFTER else 0


def hot(scene: Scene) -> bool:
    """Whether a card gets hot in it."""
    return scene["utilization"] > 0.5


class DemoCard:
    """A simulated card; ``seconds`` returns how long the machine has been at work."""

    def __init__(self, number: int, seed: int, extras: Extras, seconds: Callable[[], float]) -> None:
        self.uuid = uuid("GPU", seed, number)
        self.calls = [Call(tier.value, tier, partial(self._readings, tier)) for tier in Tier]
        self._kind, _, split = extras.profile.partition("-")
        self._card, self._instances = CARDS[self._kind], INSTANCES if split else {}
        self._number, self._seed, self._extras, self._clock = number, seed, extras, seconds
        self._sick = number == extras.sick
        errors_of = "each" if extras.links else "sum"  # of a single link, the driver reports fewer kinds
        has_pcie = extras.pcie or self._card["pcie_link_generation"] == 5
        self._lacks = LACKS[extras.profile] + (() if has_pcie else ("gpu_pcie_transmit", "gpu_pcie_receive"))
        self._rows = []
        links = range(int(self._card["links"]))
        for row in rows(DRIVER):
            is_error = row.metric == "gpu_nvlink_errors_total"
            if row.scope == "latency" or "pcie" in row.options or (is_error and row.scope != errors_of):
                continue
            single = extras.links and row.scope in ("link", "each")
            self._rows += [row.of_link(link) for link in links] if single else [row]

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
            if rest < scene["seconds"]:
                break
            rest -= scene["seconds"]
        jitter = rng(self._seed, self._number, round(at)).uniform(-0.02, 0.02)
        values = {**self._card, **self._work(at, scene, jitter), **self._health(at, scene)}
        for row in (row for row in self._rows if row.tier is tier):
            metric, link = row.metric.removeprefix("gpu_"), row.labels.get("link", "0")
            named = " ".join([metric, *(text for label, text in row.labels.items() if label != "link")])
            # the first link of a sick card is bad
            value = 0 if "errors" in metric and link != "0" else values.get(named, values.get(metric, 0))
            yield Reading(row.metric, value, row.labels)
        if tier is Tier.FAST:
            yield from self._others(scene, values["memory_used_bytes"])

    def _work(self, at: float, scene: Scene, jitter: float) -> dict[str, float]:
        """Values by metric, or by metric and label; what is not here is 0."""
        card, busy, watts = self._card, scene["utilization"], self._card["power_limit_watts"]
        rate = scene["pcie"] * 2 ** (card["pcie_link_generation"] - 5)
        links = card["links"] if self._extras.links else 1
        size, reserved = card["memory_total_bytes"], card["memory_reserved_bytes"]
        carried = total(at, lambda scene: scene["nvlink"]) * card["nvlink"] / (links or 1) // KIB * KIB
        return {
            **_memory(size, reserved, (size - reserved) * (scene["memory"] + jitter / 4) // 1),
            "utilization_ratio": round(busy + jitter, 2),
            "memory_controller_utilization_ratio": round(0.6 * busy, 2),
            "power_watts": scene["power"] * watts,
            "power_instant_watts": scene["power"] * watts * (1 + jitter),
            "energy_joules_total": total(at, lambda scene: scene["power"] * watts),
            "mig_mode": bool(self._instances),
            "ecc_mode": 1,
            "pcie_link_width": 16,
            "pcie_transmit_bytes_per_second": 0.4 * rate // 1,
            "pcie_receive_bytes_per_second": rate // 1,
            **dict.fromkeys(("nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"), carried),
            "fabric_state": 3,
            "graphics_active_ratio": busy,
            "sm_active_ratio": scene["sm"],
            "sm_occupancy_ratio": scene["occupancy"],
            "dram_active_ratio": scene["dram"],
            "pipe_active_ratio tensor": scene["tensor"],
            "pipe_active_ratio fp32": round(scene["sm"] / 10, 4),
            "pipe_active_ratio int": round(scene["sm"] / 8, 4),
        }

    def _health(self, at: float, scene: Scene) -> dict[str, float]:
        """Temperatures, clocks and errors."""
        card, capped = self._card, self._number % 4 == 1
        # the temperature follows the mean power of the last half minute; a sick card's margin is soon used up
        drawn, whole = (total(seconds, lambda scene: scene["power"]) for seconds in (at, STEP_SECONDS))
        before = total(max(0.0, at - COOLING_SECONDS), lambda scene: scene["power"])
        heat, limit = min(1.0, at / HOT_AFTER) if self._sick else 0.0, card["warmest"]
        too_hot = limit - (AMBIENT + FULL_LOAD * whole / STEP_SECONDS)
        celsius = round(AMBIENT + FULL_LOAD * (drawn - before) / COOLING_SECONDS + heat * too_hot)
        slowed = heat == 1 and hot(scene)
        bad, packets = (errors(at), int(at // LINK_ERROR_EVERY)) if self._sick else (0, 0)
        return {
            "temperature_celsius gpu": celsius,
            "temperature_celsius memory": celsius + MEMORY_WARMER,
            "temperature_margin_celsius": limit - celsius,
            "clock_hertz": round(scene["clock"] * (1 - 0.2 * slowed) * card["clock_max_hertz"]),
            "clock_hertz memory": card["clock_max_hertz memory"],
            "clock_hertz video": card["clock_max_hertz video"],
            "clock_event_active idle": scene["utilization"] < 0.05,
            "clock_event_active power_cap": capped and scene is UPDATE,
            "clock_event_active software_thermal": slowed,
            "clock_event_seconds_total power_cap": total(at, lambda scene: capped and scene is UPDATE),
            "clock_event_seconds_total software_thermal": (
                total(at, hot) - total(min(at, HOT_AFTER), hot) if self._sick else 0
            ),
            **dict.fromkeys(("recovery_action", "row_remap_pending"), bad > 0),
            **dict.fromkeys((f"ecc_{of}errors_total uncorrected" for of in ("", "volatile_")), bad),
            "remapped_rows_total uncorrectable": bad,
            f"nvlink_errors_total {'crc' if self._extras.links else 'crc_flit'}": packets,
            "nvlink_errors_total replay": packets // 10,
            "nvlink_errors_total recovery": packets // 100,
        }

    def _others(self, scene: Scene, used: float) -> Iterator[Reading]:
        """What the table has no row for; the largest processes are named, the others summed up."""
        number, most, links = self._number, self._extras.processes, self._card["links"]
        name, architecture, capability = NAMES[self._kind]
        labels = {"name": name, "pci_bus_id": f"00000000:{16 * number + 1:02X}:00.0"}
        labels |= {"architecture": architecture, "compute_capability": capability, "vbios_version": "demo"}
        labels |= {"serial": f"demo-{number}"} if self._extras.serial else {}
        yield Reading("gpu_info", 1, labels)
        yield Reading("gpu_utilization_window_max_ratio", min(1.0, round(scene["utilization"] + 0.02, 2)))
        for state, count in (("active", links), ("inactive", 0)):
            yield Reading("gpu_nvlink_links", count, {"state": state})
        for kind, count in (("compute", len(USES)), ("graphics", 0), ("mps", 0)):
            yield Reading("gpu_processes", count, {"type": kind})
        for fan in range(int(self._card["fans"])):
            yield Reading("gpu_fan_speed_ratio", round(0.3 + 0.4 * scene["power"], 2), {"fan": str(fan)})
        whole = sum(size for _, size in self._instances.values())
        for place, (profile, size) in self._instances.items():
            instance = {"gpu_instance_id": str(place)}
            others = {"profile": profile, "mig_uuid": uuid("MIG", self._seed, number, place)}
            yield Reading("gpu_mig_info", 1, {**instance, "compute_instance_id": "0", **others})
            for metric, value in _memory(size, INSTANCE_RESERVED, used * size // whole).items():
                yield Reading(f"gpu_mig_{metric}", value, instance)
        found = [
            (share, (str(FIRST_PID + len(USES) * number + place), "simulated", name))
            for place, (name, share) in enumerate(list(USES.items())[:most])
        ]
        if 0 < most < len(USES):
            found.append((fsum(list(USES.values())[most:]), ("", "", "other")))
        for share, texts in found:
            labels = {**dict(zip(("pid", "pid_namespace", "name"), texts, strict=True)), "container": ""}
            yield Reading("gpu_process_memory_bytes", share * used // 1, labels)
            yield Reading("gpu_process_sm_utilization_ratio", round(share * scene["utilization"], 2), labels)


def _memory(size: float, reserved: float, used: float) -> dict[str, float]:
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
        sick, xid = self._extras.sick, int(CARDS[self._extras.profile.partition("-")[0]]["xid"])
        if sick is not None and errors(self._clock() - self._started) > self._errors:
            self._errors += 1
            return [Event(uuid("GPU", self._seed, sick), xid, time.time())]
        self._sleep(seconds)
        return []

    def close(self) -> None:
        """There is nothing to release."""

    def outdated(self) -> bool:
        return False
