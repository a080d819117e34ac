"""One table of a GPU's values: which call each is from, and how its answer becomes the metric.

What takes more than a line of the table is a function below it, which the table names.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from exporter.gpu.backend import (
    CLOCK_EVENTS,
    BackendError,
    CardError,
    Extras,
    Failure,
    Missing,
    Reading,
    Tier,
    UnsupportedError,
)
from exporter.gpu.nvml import library
from exporter.gpu.nvml.library import Batch, Call, Found, either, number, parts

# How often it is read; its name in gpu_exporter_unsupported; the metric, with its unit, and its labels; how
# it is asked for; the scale from NVML's unit; the most that NVML can mean (- for anything); the driver from
# which it answers. For a span of drivers: outside of it the number means another value. {a,b}: several lines.
# Sources:
#   GetEccMode(0)[1].gpu   a function, its argument, and which part of the answer
#   =function              a function of this module
#   field:82               a value with a number. link:202 one of each NVLink, or of all together; sum:38 only
#                          of all, each:161 only of each. a|b*1024: the second where the first is not known
_TABLE = """
static GetName                       gpu_info                        -                      =identity                *1   -    535
static GetMaxClockInfo               gpu_clock_max_hertz             domain={graphics,sm,memory,video} GetMaxClockInfo({0,1,2,3}) *1e6 -    535
fast   GetClockInfo                  gpu_clock_hertz                 domain={graphics,sm,memory,video} GetClockInfo({0,1,2,3})  *1e6 -    535
fast   GetCurrentClocksEventReasons  gpu_clock_event_active          reason                 =clock_events            *1   -    535
static GetTemperatureThreshold       gpu_temperature_threshold_celsius threshold              =thresholds              *1   -    535
fast   GetTemperature                gpu_temperature_celsius         sensor=gpu             =celsius                 *1   -    535
fast   GetMarginTemperature          gpu_temperature_margin_celsius  -                      =margin                  *1   -    570
static GetPowerManagementDefaultLimit gpu_power_limit_watts           limit=default          GetPowerManagementDefaultLimit /1e3 -    535
static GetPowerManagementLimitConstraints gpu_power_limit_watts           limit={min,max}        GetPowerManagementLimitConstraints[{0,1}] /1e3 -    535
fast   GetPowerUsage                 gpu_power_watts                 -                      GetPowerUsage            /1e3 -    535
fast   GetTotalEnergyConsumption     gpu_energy_joules_total         -                      GetTotalEnergyConsumption /1e3 -    535
slow   GetPowerManagementLimit       gpu_power_limit_watts           limit=requested        GetPowerManagementLimit  /1e3 -    535
slow   GetEnforcedPowerLimit         gpu_power_limit_watts           limit=enforced         GetEnforcedPowerLimit    /1e3 -    535
fast   GetUtilizationRates           gpu_utilization_ratio           -                      GetUtilizationRates.gpu  /100 100  535
fast   GetUtilizationRates           gpu_memory_controller_utilization_ratio -                      GetUtilizationRates.memory /100 100  535
slow   GetEngineUtilization          gpu_engine_utilization_ratio    engine={encoder,decoder,jpeg,ofa} Get{Encoder,Decoder,Jpg,Ofa}Utilization[0] /100 100  535
fast   GetMemoryInfo                 gpu_memory_bytes                -                      =memory                  *1   -    535
slow   GetPerformanceState           gpu_performance_state           -                      GetPerformanceState      *1   15   535
slow   GetComputeMode                gpu_compute_mode                -                      GetComputeMode           *1   3    535
slow   GetPersistenceMode            gpu_persistence_mode            -                      GetPersistenceMode       *1   1    535
slow   GetMigMode                    gpu_mig_mode                    -                      GetMigMode[0]            *1   1    535
slow   GetEccMode                    gpu_ecc_mode                    -                      GetEccMode[0]            *1   1    535
slow   GetFanSpeed                   gpu_fan_speed_ratio             fan                    =fans                    *1   -    535
slow   GetGpuFabricInfo              gpu_fabric_state                -                      =fabric                  *1   3    535
static GetMaxPcieLinkGeneration      gpu_pcie_link_generation        kind=max               GetMaxPcieLinkGeneration *1   -    535
static GetMaxPcieLinkWidth           gpu_pcie_link_width             kind=max               GetMaxPcieLinkWidth      *1   -    535
slow   GetCurrPcieLinkGeneration     gpu_pcie_link_generation        kind=current           GetCurrPcieLinkGeneration *1   -    535
slow   GetCurrPcieLinkWidth          gpu_pcie_link_width             kind=current           GetCurrPcieLinkWidth     *1   -    535
fast   power_instant                 gpu_power_instant_watts         -                      field:186                /1e3 -    535
fast   memory_temperature            gpu_temperature_celsius         sensor=memory          field:82                 *1   -    535
fast   throttling                    gpu_clock_event_seconds_total   reason={power_cap,sync_boost} field:{74,76}            /1e9 wide 535
fast   throttling                    gpu_clock_event_seconds_total   reason=thermal         field:75                 /1e9 wide 0-574.999
fast   throttling                    gpu_clock_event_seconds_total   reason=thermal         field:75                 /1e9 wide 580.66-580.81
fast   throttling                    gpu_clock_event_seconds_total   reason={software_thermal,hardware_thermal,power_brake} field:{251,252,253}      /1e9 wide 575-580.65
fast   throttling                    gpu_clock_event_seconds_total   reason={software_thermal,hardware_thermal,power_brake} field:{269,270,271}      /1e9 wide 580.82-9999
fast   nvlink                        gpu_nvlink_transmit_bytes_total -                      link:202|138*1024        *1   wide 535
fast   nvlink                        gpu_nvlink_receive_bytes_total  -                      link:204|139*1024        *1   wide 535
slow   ecc                           gpu_ecc_volatile_errors_total   type={corrected,uncorrected} field:{3,4}              *1   -    535
slow   ecc                           gpu_ecc_errors_total            type={corrected,uncorrected} field:{5,6}              *1   -    535
slow   row_remap                     gpu_remapped_rows_total         cause={correctable,uncorrectable} field:{142,143}          *1   -    535
slow   row_remap                     gpu_row_remap_pending           -                      field:144                *1   -    535
slow   row_remap                     gpu_row_remap_failed            -                      field:145                *1   -    535
slow   retired_pages                 gpu_retired_pages_total         cause={single_bit,double_bit} field:{29,30}            *1   -    535
slow   retired_pages                 gpu_retired_pages_pending       -                      field:31                 *1   -    535
slow   recovery_action               gpu_recovery_action             -                      field:230                *1   -    570
slow   pcie_replays                  gpu_pcie_replays_total          -                      field:94                 *1   -    535
slow   -                             gpu_nvlink_errors_total         type={crc_flit,crc_data,replay,recovery,ecc} sum:{38,45,52,59,160}    *1   -    535
slow   -                             gpu_nvlink_errors_total         type={replay,recovery,crc} each:{161,162,163}       *1   -    535
slow   -                             gpu_nvlink_errors_total         type={malformed_packet,buffer_overrun,receive,receive_remote,receive_general,integrity,transmit_discard,link_recovery_failed,link_recovery,symbol} link:{206,207,208,209,210,211,212,214,215,221} *1   -    550
"""  # noqa: E501

HOPPER = 9
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    HOPPER: "hopper",
    10: "blackwell",
    13: "rubin",
}
_UNKNOWN_ARCHITECTURE = 0xFFFFFFFF
_ALL_LINKS = 0xFFFFFFFF
"""The scope of a value that is the sum over all links."""
_LINK_COUNT = 91
_MOST_LINKS = 64
"""No GPU has more."""
_NARROW = frozenset((1, 5, 6))
"""Types of so few bits that a count of bytes or nanoseconds wraps within seconds."""

DriverVersion = tuple[int, ...]


class Row(NamedTuple):
    """A line of the table."""

    tier: Tier
    part: str
    metric: str
    labels: Mapping[str, str]
    source: str
    scale: str
    most: str

    def scaled(self, value: float) -> float:
        """The value in the metric's unit."""
        factor = float(self.scale[1:])
        return value / factor if self.scale[0] == "/" else value * factor


def driver_version(text: str) -> DriverVersion:
    """A driver's version as two numbers; 0 if there is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


def _rows(driver: DriverVersion) -> Iterator[Row]:
    """The lines that hold for this driver."""
    for line in _TABLE.strip().splitlines():
        tier, part, metric, labels, source, scale, most, since = line.split()
        first, _, last = since.partition("-")
        spans = [tuple(map(int, each.split("."))) for each in (first, last) if each]
        # a value that an older driver does not know is asked for all the same: it says so
        if not last or spans[0] <= driver <= spans[1]:
            for label, one in zip(_each(labels), _each(source), strict=True):
                named = dict([label.split("=")]) if "=" in label else {}
                yield Row(Tier(tier), part.strip("-"), metric, named, one, scale, most)


def _each(text: str) -> list[str]:
    found = re.fullmatch(r"(.*){(.*)}(.*)", text)
    return [f"{found[1]}{each}{found[3]}" for each in found[2].split(",")] if found else [text]


def calls(extras: Extras, driver: DriverVersion) -> Iterator[Call]:
    """All calls of the table for one GPU; those of NVLinks one by one remember how many there are."""
    rows = list(_rows(driver))
    getters = (row for row in rows if ":" not in row.source)
    for (tier, name), group in groupby(getters, key=lambda row: (row.tier, row.part)):
        yield Call(name, tier, _getter(name, list(group), extras))
    links = _Links(rows)
    yield Call("FieldValue(nvlink_count)", Tier.STATIC, links.count)
    yield Call("GetNvLinkState", Tier.SLOW, links.states)
    kinds = ["field:"] if extras.links else ["field:", "link:", "sum:"]
    if extras.links:  # counted one by one instead of all together
        yield Call("GetFieldValues(bytes of links)", Tier.FAST, links.traffic)
        yield Call("GetFieldValues(errors of links)", Tier.SLOW, links.errors)
    fast, slow = (
        Fields([(row, None) for row in rows if row.tier is tier and row.source.startswith(tuple(kinds))])
        for tier in (Tier.FAST, Tier.SLOW)
    )

    def read_fast(handle: Any) -> list[Found]:
        return [*fast.read(handle), Reading("gpu_exporter_driver_latency_seconds", fast.latency)]

    yield Call("GetFieldValues", Tier.FAST, read_fast)
    yield Call("GetFieldValues(slow)", Tier.SLOW, slow.read)


_SOURCE = re.compile(r"(\w+)(?:\((\d+)\))?(?:\[(\d)\]|\.(\w+))?")


def _getter(name: str, rows: Sequence[Row], extras: Extras) -> library.Read:
    """What reads these lines of one call."""
    if rows[0].source.startswith("="):
        read = _FUNCTIONS[rows[0].source[1:]]
        return partial(read, serial=extras.serial) if read is _identity else read
    sources = [_SOURCE.fullmatch(row.source).groups() for row in rows]  # type: ignore[union-attr]

    def asked(source: tuple[str, ...], handle: Any) -> Any:
        return library.ask(handle, source[0], *(int(argument) for argument in source[1:2] if argument))

    def picked(row: Row, source: tuple[str, ...], answer: Any) -> float:
        *_, index, attribute = source
        value = answer[int(index)] if index else getattr(answer, attribute) if attribute else answer
        return row.scaled(number(value, float("inf") if row.most == "-" else float(row.most)))

    def read_one(handle: Any) -> list[Found]:
        answer = asked(sources[0], handle)
        return [
            Reading(row.metric, picked(row, source, answer), row.labels)
            for row, source in zip(rows, sources, strict=True)
        ]

    def probe(row: Row, source: tuple[str, ...]) -> library.Probe:
        return lambda handle: picked(row, source, asked(source, handle))

    probes = [(row.metric, row.labels, probe(row, source)) for row, source in zip(rows, sources, strict=True)]
    one = len({source[:2] for source in sources}) == 1
    return read_one if one else lambda handle: parts(handle, name, probes)


class Fields:
    """Numbered values that one thread reads together; ``latency``: seconds for the slowest of them.

    Each is a line and its NVLink, ``None`` for all together.
    """

    def __init__(self, rows: Iterable[tuple[Row, int | None]]) -> None:
        self.latency = 0.0
        self._rows: list[tuple[Row, dict[str, str], list[float]]] = []
        ids = []
        for row, link in rows:
            kind, _, numbers = row.source.partition(":")
            scope = 0 if kind == "field" else _ALL_LINKS if link is None else link
            pairs = [(*each.split("*"), "1")[:2] for each in numbers.split("|")]
            ids += [(int(number), scope) for number, _ in pairs]
            labels = {**row.labels, **({} if link is None else {"link": str(link)})}
            self._rows.append((row, labels, [float(factor) for _, factor in pairs]))
        self._sizes = Counter(row.part for row, *_ in self._rows)
        self._batch = Batch(ids)

    def read(self, handle: Any) -> list[Found]:
        """What the driver says of each; one name for all of a part that is missing altogether."""
        answers = self._batch.ask(handle) if self._rows else []
        self.latency = max((answer.latency for answer in answers), default=0.0)
        rest = iter(answers)
        pairs = [
            (row.part, _found(row, labels, [(factor, next(rest)) for factor in factors]))
            for row, labels, factors in self._rows
        ]
        lacking = Counter(part for part, found in pairs if isinstance(found, Missing))
        listed: list[Found] = []
        for part, found in pairs:
            if not isinstance(found, Missing):
                listed.append(found)
            elif part:  # no GPU counts all errors of links: what has no part is not worth a line
                whole = lacking[part] == self._sizes[part]
                listed.append(Missing(f"FieldValue({part})", found.reason) if whole else found)
        return listed


def _found(row: Row, labels: Mapping[str, str], answers: Sequence[tuple[float, library.Answer]]) -> Found:
    name = f"FieldValue({' '.join((row.part or row.metric, *labels.values()))})"
    for factor, answer in answers:
        if answer.code != library.OK:
            continue
        if answer.kind >= len(library.TYPES):
            return Missing(name, "garbage")
        if row.most == "wide" and answer.kind in _NARROW:
            return Missing(name, "wraps")
        if answer.value is None or answer.value < 0:
            return Failure(name, "garbage")
        return Reading(row.metric, row.scaled(answer.value * factor), labels)
    problems = [library.error_of(answer.code) for _, answer in answers]
    for problem in problems:  # what may pass goes before what the driver does not have
        if isinstance(problem, (CardError, BackendError)):
            raise problem
        if not isinstance(problem, UnsupportedError):
            return Failure(name, problem.code)
    return Missing(name, problems[0].code)


class _Links:
    """The NVLinks of one GPU, and their values one by one. For one thread."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = [row for row in rows if row.source.startswith(("link:", "each:"))]
        self._number = Batch([(_LINK_COUNT, 0)])
        self._resize(0)

    def _resize(self, count: int) -> None:
        self._links = range(count)
        self._fast, self._slow = (
            Fields([(row, link) for link in self._links for row in self._rows if row.tier is tier])
            for tier in (Tier.FAST, Tier.SLOW)
        )

    def count(self, handle: Any) -> list[Found]:
        """Learn how many there are."""
        (answer,) = self._number.ask(handle)
        if answer.code:
            raise library.Error(answer.code)
        self._resize(int(number(answer.value, _MOST_LINKS)))
        return []

    def traffic(self, handle: Any) -> list[Found]:
        """Bytes over each."""
        return self._fast.read(handle)

    def errors(self, handle: Any) -> list[Found]:
        """Errors of each."""
        return self._slow.read(handle)

    def states(self, handle: Any) -> Iterator[Found]:
        """How many are up, and down."""
        found = []
        for link in self._links:
            with library.ignored(library.NOT_HERE):  # this GPU does not have all links
                found.append(bool(library.ask(handle, "GetNvLinkState", link)))
        if found:
            yield Reading("gpu_nvlink_links", found.count(True), {"state": "active"})
            yield Reading("gpu_nvlink_links", found.count(False), {"state": "inactive"})


def bus_id(handle: Any) -> str:
    """Where the GPU sits: what it is found again by, since its number may change."""
    found = library.ask(handle, "GetPciInfo").busId
    return found.decode() if isinstance(found, bytes) else str(found)


def architecture(handle: Any) -> int:
    """NVML's number of it, 0 if that is not known. Raises ``library.Error``."""
    found = int(either(partial(library.ask, name="GetArchitecture"), lambda _: 0)(handle))
    return 0 if found == _UNKNOWN_ARCHITECTURE else found


def _identity(handle: Any, *, serial: bool = False) -> Iterator[Found]:
    """What distinguishes a GPU from others; with its serial number only if that is wanted."""
    kind = architecture(handle)
    optional = {"compute_capability": "GetCudaComputeCapability", "vbios_version": "GetVbiosVersion"}
    labels = {
        "name": library.ask(handle, "GetName"),
        "pci_bus_id": bus_id(handle),
        "architecture": _ARCHITECTURES.get(kind, str(kind or "")),
    }
    for label, name in {**optional, **({"serial": "GetSerial"} if serial else {})}.items():
        found = either(partial(library.ask, name=name), lambda _: "")(handle)
        labels[label] = "{}.{}".format(*found) if isinstance(found, (tuple, list)) else str(found)
    yield Reading("gpu_info", 1, labels)


def _clock_events(handle: Any) -> Iterator[Found]:
    """The second name is the one before driver 535, and goes with CUDA 14."""
    bits = either(
        partial(library.ask, name="GetCurrentClocksEventReasons"),
        partial(library.ask, name="GetCurrentClocksThrottleReasons"),
    )(handle)
    for bit, reason in CLOCK_EVENTS.items():
        yield Reading("gpu_clock_event_active", float(bool(bits & bit)), {"reason": reason})


class _Temperature(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("sensor", ctypes.c_int), ("celsius", ctypes.c_int))


class _Margin(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("celsius", ctypes.c_int))


def _celsius_since_570(handle: Any) -> float:
    found = _Temperature(0x100000C, 0)
    library.fill(handle, "GetTemperatureV", ctypes.byref(found))
    return number(found.celsius)


_celsius = either(_celsius_since_570, lambda handle: number(library.ask(handle, "GetTemperature", 0)))
"""The second call goes with CUDA 14."""


def _margin_since_ada(handle: Any) -> float:
    """Since Ada and driver 570; below 0 beyond the limit."""
    found = _Margin(0x1000008)
    library.fill(handle, "GetMarginTemperature", ctypes.byref(found))
    return float(found.celsius)


_THRESHOLDS = {"shutdown": (0, 193), "slowdown": (1, 194), "gpu_max": (3, 196)}
"""NVML's number of each, and since Ada that of its distance from where the margin is 0."""


def _threshold(handle: Any, name: str) -> float:
    return number(library.ask(handle, "GetTemperatureThreshold", _THRESHOLDS[name][0]))


_margin = either(_margin_since_ada, lambda handle: float(_threshold(handle, "slowdown") - _celsius(handle)))


def _thresholds(handle: Any) -> list[Found]:
    metric = "gpu_temperature_threshold_celsius"
    probes = [(metric, {"threshold": name}, partial(_threshold, name=name)) for name in _THRESHOLDS]
    return parts(handle, "GetTemperatureThreshold", probes)


def _thresholds_since_ada(handle: Any) -> list[Found]:
    """Right to one degree: temperature and margin are read one after the other."""
    zero = _celsius(handle) + _margin_since_ada(handle)
    answers = Batch((field, 0) for _, field in _THRESHOLDS.values()).ask(handle)
    thresholds: list[Found] = [
        Reading("gpu_temperature_threshold_celsius", zero - answer.value, {"threshold": name})
        for name, answer in zip(_THRESHOLDS, answers, strict=True)
        if answer.value is not None
    ]
    if not thresholds:
        raise library.Error(library.NOT_SUPPORTED)
    return thresholds


_MEMORY_VERSION_2 = 0x2000028


def _memory(*of: str, arguments: tuple[int, ...] = ()) -> Callable[[Any], list[Found]]:
    def read(handle: Any) -> list[Found]:
        found = library.ask(handle, "GetMemoryInfo", *arguments)
        return [Reading(f"gpu_memory_{part}_bytes", number(getattr(found, part))) for part in of]

    return read


memory = either(
    _memory("total", "used", "free", "reserved", arguments=(_MEMORY_VERSION_2,)),
    _memory("total", "used", "free"),
)
"""The memory of a GPU, or of an instance that it is split into.

Before driver 510 it counts what is reserved as used.
"""

_MOST_FAN_PERCENT = 1000
"""More than 100 is possible: it is the share of a speed at which the fan makes no noise."""


def _fans(handle: Any) -> list[Found]:
    count = library.ask(handle, "GetNumFans")
    if not count:
        raise library.Error(library.NOT_SUPPORTED)

    def speed(fan: int) -> library.Probe:
        return lambda handle: number(library.ask(handle, "GetFanSpeed_v2", fan), _MOST_FAN_PERCENT) / 100

    return parts(
        handle,
        "GetFanSpeed",
        [("gpu_fan_speed_ratio", {"fan": str(fan)}, speed(fan)) for fan in range(count)],
    )


class _Fabric(ctypes.Structure):
    _fields_ = (
        ("cluster", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint),
    )


class _Fabric2(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), *_Fabric._fields_, ("health", ctypes.c_uint32))


def _fabric_of(found: Any, name: str, handle: Any) -> float:
    library.fill(handle, name, ctypes.byref(found))
    return number(found.state, most=3)


_fabric = either(
    lambda handle: _fabric_of(_Fabric2(0x2000024), "GetGpuFabricInfoV", handle),
    lambda handle: _fabric_of(_Fabric(), "GetGpuFabricInfo", handle),
)
"""The second call is that before driver 550, and goes with CUDA 14."""

_FUNCTIONS: dict[str, Callable[..., Iterable[Found]]] = {
    "identity": _identity,
    "clock_events": _clock_events,
    "thresholds": either(_thresholds, _thresholds_since_ada),
    "celsius": lambda handle: [Reading("gpu_temperature_celsius", _celsius(handle), {"sensor": "gpu"})],
    "margin": lambda handle: [Reading("gpu_temperature_margin_celsius", _margin(handle))],
    "memory": memory,
    "fans": _fans,
    "fabric": lambda handle: [Reading("gpu_fabric_state", _fabric(handle))],
}
