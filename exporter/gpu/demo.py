"""Simulated GPUs that train a model together, in scenes; all values follow from the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import fsum
from random import Random
from uuid import UUID

from exporter.gpu.backend import PROFILES, Call, Event, Problem, Reading, Settings, Tier
from exporter.gpu.table import rows


def _table(text: str) -> dict[str, dict[str, float]]:
    """Columns by name, of rows by name, in which a colon stands for a space."""
    names, *lines = (line.split() for line in text.strip().splitlines())
    return {
        column: {line[0].replace(":", " "): float(line[place]) for line in lines}
        for place, column in enumerate(names, 1)
    }


SCENES = _table("""
                                    sampling transfer update preparation
seconds                             12       2        8      2
memory                              0.82     0.55     0.91   0.42
power                               0.74     0.20     0.96   0.17
clock                               0.95     0.60     0.90   0.30
nvlink                              30e9     150e9    90e9   0
pcie                                0.2e9    12e9     1e9    4e9
hot                                 1        0        1      0
capped                              0        0        1      0
utilization_ratio                   0.93     0.08     0.98   0.03
utilization_window_max_ratio        0.95     0.1      1      0.05
memory_controller_utilization_ratio 0.56     0.05     0.59   0.02
clock_event_active:idle             0        0        0      1
fan_speed_ratio                     0.6      0.38     0.68   0.37
graphics_active_ratio               0.93     0.08     0.98   0.03
sm_active_ratio                     0.70     0.05     0.88   0.01
sm_occupancy_ratio                  0.25     0.02     0.40   0
dram_active_ratio                   0.62     0.30     0.48   0.01
pipe_active_ratio:tensor            0.22     0        0.46   0
pipe_active_ratio:fp32              0.07     0.005    0.088  0.001
pipe_active_ratio:int               0.0875   0.0063   0.11   0.0013
""")
"""The parts of a training step: their seconds, what they share of the most that a card can do, and metrics.

``nvlink`` and ``pcie`` are bytes per second and direction, of a card whose links are the fastest; ``hot``:
whether a card gets hot in it, ``capped``: whether its power limit slows some cards down.
"""
STEP_SECONDS = sum(scene["seconds"] for scene in SCENES.values())
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
ecc_mode                               1            1           1
fabric_state                           3            3           3
pcie_link_width                        16           16          16
xid                                    48           48          119
""")
"""Constants of the cards, most by metric; ``warmest``: the degrees to which the margin is reported,
``nvlink``: the links' speed as a share of the fastest ones', ``xid``: the error that a sick card reports."""
NAMES = {
    "h200": ("simulated H200", "hopper", "9.0"),
    "a100": ("simulated A100", "ampere", "8.0"),
    "rtx4080": ("simulated RTX 4080", "ada", "8.9"),
}
_NO_PARTS = "|graphics_active|sm_|dram_|pipe_|retired"
LACKS = {
    "h200": "retired",
    "a100": "fabric_state" + _NO_PARTS,
    "a100-mig": "fabric_state|utilization|memory_controller|engine|remapped|process_sm"
    "|ecc_(volatile_)?errors_total uncorrected" + _NO_PARTS,
    "rtx4080": "engine_utilization_ratio jpeg|clock_max_hertz video|temperature_celsius memory|recovery"
    "|fabric|mig|ecc|remapped|row|nvlink" + _NO_PARTS,
}
"""How metrics begin, also with a label, that a card does not have."""
INSTANCES = {1: ("3g.40gb", 40192 << 20), 3: ("2g.20gb", 19968 << 20), 5: ("2g.20gb", 19968 << 20)}
"""Profile and bytes of each instance of a split card; the driver keeps some for itself."""
XID_AFTER, XID_EVERY, HOT_AFTER, LINK_ERROR_EVERY = 45.0, 180.0, 60.0, 2.0
"""Seconds until a sick card reports errors, again, and is too hot; and between bad packets on NVLink."""
AMBIENT, FULL_LOAD, COOLING_SECONDS = 28.0, 42.0, 30.0
"""Degrees of the air, and by how much a card that draws all it may is warmer."""
USES = {"trainer": 0.55, "rollout": 0.45}
"""Two processes, and which share of the card's memory each holds."""


def rng(*about: int) -> Random:
    """Numbers that follow from what they are about."""
    return Random(str((7, *about)))  # noqa: S311  (no secret comes of it)


def uuid(kind: str, *about: int) -> str:
    """A name of this kind, ``GPU`` or ``MIG``, that looks like the driver's."""
    return f"{kind}-{UUID(int=rng(*about).getrandbits(128))}"


def total(seconds: float, rate: str, factor: float = 1) -> float:
    """A counter that grows at this rate of the scenes per second: its integral since the start."""
    steps, rest = divmod(seconds, STEP_SECONDS)
    # Exact: `sum` rounds otherwise before Python 3.12.
    mean = fsum(scene["seconds"] * (scene[rate] * factor) for scene in SCENES.values()) / STEP_SECONDS
    found = steps * STEP_SECONDS * mean
    for scene in SCENES.values():
        found += min(rest, scene["seconds"]) * (scene[rate] * factor)
        rest = max(0.0, rest - scene["seconds"])
    return found


def errors(seconds: float) -> int:
    """Uncorrectable memory errors of a sick card so far, each with an Xid error."""
    return 1 + int((seconds - XID_AFTER) // XID_EVERY) if seconds >= XID_AFTER else 0


class DemoCard:
    """A simulated card; ``seconds`` returns how long the machine has been at work."""

    def __init__(self, number: int, settings: Settings, seconds: Callable[[], float]) -> None:
        self.uuid = uuid("GPU", number)
        self.calls = [Call(tier.value, tier, partial(self._readings, tier)) for tier in Tier]
        self._kind, _, split = settings.profile.partition("-")
        self._card, self._instances = CARDS[self._kind], INSTANCES if split else {}
        self._number, self._settings, self._clock = number, settings, seconds
        has_pcie = settings.pcie or self._card["pcie_link_generation"] == 5
        self._lacks = re.compile(f"gpu_({LACKS[settings.profile]}{'' if has_pcie else '|pcie_(trans|rec)'})")
        links = range(int(self._card["links"]))
        errors_of = "each" if settings.links else "sum"  # of a single link, the driver reports fewer kinds
        self._rows = []
        for row in rows("580.95"):
            is_error = row.metric == "gpu_nvlink_errors_total"
            if row.scope in ("latency", "GetPcieThroughput") or (is_error and row.scope != errors_of):
                continue
            single = settings.links and row.scope in ("link", "each")
            self._rows += [row.of_link(link) for link in links] if single else [row]

    def find(self) -> None:
        """It never was lost."""

    def read(self, call: Call) -> Iterator[Reading | Problem]:
        """What such a card reports."""
        for found in call.read(None):
            names = [found.metric, *found.labels.values()] if isinstance(found, Reading) else []
            if not self._lacks.match(" ".join(names)):
                yield found

    def _readings(self, tier: Tier, _: None) -> Iterator[Reading]:
        at = rest = max(0.0, self._clock() - 0.2 * self._number)  # a little behind the one before it
        rest %= STEP_SECONDS
        for scene in SCENES.values():
            if rest < scene["seconds"]:
                break
            rest -= scene["seconds"]
        values = {**self._card, **scene, **self._values(at, scene)}
        for row in (row for row in self._rows if row.tier is tier):
            metric, link = row.metric.removeprefix("gpu_"), row.labels.get("link", "0")
            named = " ".join([metric, *(text for label, text in row.labels.items() if label != "link")])
            # the first link of a sick card is bad
            value = 0 if "errors" in metric and link != "0" else values.get(named, values.get(metric, 0))
            yield Reading(row.metric, value, row.labels)
        if tier is Tier.FAST:
            yield from self._others(scene, values["memory_used_bytes"])

    def _values(self, at: float, scene: dict[str, float]) -> dict[str, float]:
        """Values by metric, or by metric and label; what is not here, nor in a table, is 0."""
        card, watts = self._card, self._card["power_limit_watts"]
        jitter = rng(self._number, round(at)).uniform(-0.02, 0.02)
        rate = scene["pcie"] * 2 ** (card["pcie_link_generation"] - 5)
        links = card["links"] if self._settings.links else 1
        size, reserved = card["memory_total_bytes"], card["memory_reserved_bytes"]
        carried = total(at, "nvlink") * card["nvlink"] / (links or 1) // 1024 * 1024  # the driver counts so
        is_sick, capped = self._number == self._settings.sick, self._number % 4 == 1
        # the temperature follows the mean power of the last half minute; a sick card's margin is soon used up
        drawn = total(at, "power") - total(max(0.0, at - COOLING_SECONDS), "power")
        heat = min(1.0, at / HOT_AFTER) if is_sick else 0.0
        too_hot = card["warmest"] - (AMBIENT + FULL_LOAD * total(STEP_SECONDS, "power") / STEP_SECONDS)
        celsius = round(AMBIENT + FULL_LOAD * drawn / COOLING_SECONDS + heat * too_hot)
        slowed = heat == 1 and scene["hot"]
        bad, packets = (errors(at), int(at // LINK_ERROR_EVERY)) if is_sick else (0, 0)
        return {
            **_memory(size, reserved, (size - reserved) * (scene["memory"] + jitter / 4) // 1),
            "utilization_ratio": round(scene["utilization_ratio"] + jitter, 2),
            "power_watts": scene["power"] * watts,
            "power_instant_watts": scene["power"] * watts * (1 + jitter),
            "energy_joules_total": total(at, "power", watts),
            "mig_mode": bool(self._instances),
            "pcie_transmit_bytes_per_second": 0.4 * rate // 1,
            "pcie_receive_bytes_per_second": rate // 1,
            **dict.fromkeys(("nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"), carried),
            "temperature_celsius gpu": celsius,
            "temperature_celsius memory": celsius + 6,
            "temperature_margin_celsius": card["warmest"] - celsius,
            "clock_hertz": round(scene["clock"] * (1 - 0.2 * slowed) * card["clock_max_hertz"]),
            "clock_hertz memory": card["clock_max_hertz memory"],
            "clock_hertz video": card["clock_max_hertz video"],
            "clock_event_active power_cap": capped and scene["capped"],
            "clock_event_active software_thermal": slowed,
            "clock_event_seconds_total power_cap": capped and total(at, "capped"),
            "clock_event_seconds_total software_thermal": (
                total(at, "hot") - total(min(at, HOT_AFTER), "hot") if is_sick else 0
            ),
            **dict.fromkeys(("recovery_action", "row_remap_pending"), bad > 0),
            **dict.fromkeys((f"ecc_{of}errors_total uncorrected" for of in ("", "volatile_")), bad),
            "remapped_rows_total uncorrectable": bad,
            f"nvlink_errors_total {'crc' if self._settings.links else 'crc_flit'}": packets,
            "nvlink_errors_total replay": packets // 10,
            "nvlink_errors_total recovery": packets // 100,
        }

    def _others(self, scene: dict[str, float], used: float) -> Iterator[Reading]:
        """What the table has no row for."""
        number, most = self._number, self._settings.processes
        name, architecture, capability = NAMES[self._kind]
        labels = {"name": name, "pci_bus_id": f"00000000:{16 * number + 1:02X}:00.0"}
        labels |= {"architecture": architecture, "compute_capability": capability, "vbios_version": "demo"}
        labels |= {"serial": f"demo-{number}"} if self._settings.serial else {}
        yield Reading("gpu_info", 1, labels)
        yield Reading("gpu_utilization_window_max_ratio", scene["utilization_window_max_ratio"])
        for state, count in (("active", self._card["links"]), ("inactive", 0)):
            yield Reading("gpu_nvlink_links", count, {"state": state})
        for kind, count in (("compute", len(USES)), ("graphics", 0), ("mps", 0)):
            yield Reading("gpu_processes", count, {"type": kind})
        for fan in range(int(self._card["fans"])):
            yield Reading("gpu_fan_speed_ratio", scene["fan_speed_ratio"], {"fan": str(fan)})
        whole = sum(size for _, size in self._instances.values())
        for place, (profile, size) in self._instances.items():
            instance = {"gpu_instance_id": str(place)}
            others = {"profile": profile, "mig_uuid": uuid("MIG", number, place)}
            yield Reading("gpu_mig_info", 1, {**instance, "compute_instance_id": "0", **others})
            for metric, value in _memory(size, 2**25, used * size // whole).items():
                yield Reading(f"gpu_mig_{metric}", value, instance)
        for place, (use, share) in enumerate(USES.items() if most else ()):
            pid = str(4000 + len(USES) * number + place)
            texts = (pid, "simulated", use, "") if place < most else ("", "", "other", "")
            labels = dict(zip(("pid", "pid_namespace", "name", "container"), texts, strict=True))
            yield Reading("gpu_process_memory_bytes", share * used // 1, labels)
            work = round(share * scene["utilization_ratio"], 2)
            yield Reading("gpu_process_sm_utilization_ratio", work, labels)


def _memory(size: float, reserved: float, used: float) -> dict[str, float]:
    parts = {"total": size, "used": used, "reserved": reserved, "free": size - reserved - used}
    return {f"memory_{part}_bytes": value for part, value in parts.items()}


class Demo:
    """The GPUs and their errors. ``clock`` in seconds."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock, self._errors = settings, clock, 0

    def open(self) -> tuple[int, dict[str, str]]:
        self._started = self._clock()
        versions = dict.fromkeys(("driver_version", "cuda_version", "nvml_version"), "demo")
        return PROFILES[self._settings.profile], versions

    def card(self, number: int) -> DemoCard:
        return DemoCard(number, self._settings, lambda: self._clock() - self._started)

    def events(self, seconds: float) -> list[Event]:
        sick, xid = self._settings.sick, int(CARDS[self._settings.profile.partition("-")[0]]["xid"])
        if sick is not None and errors(self._clock() - self._started) > self._errors:
            self._errors += 1
            return [Event(uuid("GPU", sick), xid, time.time())]
        time.sleep(seconds)
        return []

    def close(self) -> None:
        """There is nothing to release."""
