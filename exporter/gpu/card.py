"""One GPU of NVIDIA's: the calls for it, and the linear pass that makes values of a call's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

from exporter.gpu import library
from exporter.gpu.backend import (
    MIG_CHANGED,
    UNKNOWN,
    BackendError,
    Call,
    CardError,
    DriverError,
    Problem,
    ReadError,
    Reading,
    Settings,
    Tier,
    UnsupportedError,
)
from exporter.gpu.library import Batch, Mark, Window, number
from exporter.gpu.processes import Processes
from exporter.gpu.table import Row, rows

Found = Reading | Problem
Answers = dict[tuple[Any, ...], Any]

_HOPPER = 9
_ARCHITECTURES = dict(enumerate(("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada"), 2))
_ARCHITECTURES |= {_HOPPER: "hopper", 10: "blackwell", 13: "rubin"}
_UNKNOWN_ARCHITECTURE = 0xFFFFFFFF
_LINK_COUNT = ("field", 91, 0)
_MOST_LINKS = 64
"""No GPU has more."""
_MOST_FAN_PERCENT = 1000
"""More than 100 is possible: it is the share of a speed at which the fan makes no noise."""
_UTILIZATION = 1
"""NVML's number of this kind of samples."""


class Pass:
    """Rows of the table that are read together; ``ask`` has answers for many of them at once."""

    def __init__(self, kept: Iterable[Row], ask: Callable[[Any], Answers] | None = None) -> None:
        self._rows, self._ask = list(kept), ask
        self._sizes = Counter(row.name for row in self._rows)

    def read(self, handle: Any) -> list[Found]:
        """A reading for each row, or what is wrong with it. Raises ``DriverError`` if there is none."""
        answers = self._ask(handle) if self._ask else {}
        if self._ask and not answers:
            return []
        found: list[Found] = []
        problems: list[tuple[Row, ReadError]] = []
        for row in self._rows:
            answer: Any = None
            for source in row.sources:
                if source.key not in answers:
                    answers[source.key] = library.answer(handle, *source.key)
                answer = answers[source.key]
                if not isinstance(answer, UnsupportedError):
                    break
            try:
                if isinstance(answer, DriverError):
                    raise answer
                rounding = row.scope == "gpm"  # 100.3 means 100
                value = number(source.part(answer), row.most + rounding, -inf if row.signed else 0)
                value = min(value, row.most) * source.factor / row.divisor
                found.append(Reading(row.metric, value, row.labels))
            except ReadError as problem:
                problems.append((row, problem))
        return found + self._problems(problems, nothing=not found) if problems else found

    def _problems(self, problems: list[tuple[Row, ReadError]], *, nothing: bool) -> list[Found]:
        """One for each row, or for all of a name that is missing altogether."""
        passing = [problem for _, problem in problems if not isinstance(problem, UnsupportedError)]
        if nothing:  # what may pass goes before what the driver does not have
            raise [*passing, problems[0][1]][0]
        lacking = Counter(row.name for row, problem in problems if isinstance(problem, UnsupportedError))
        listed: list[Found] = []
        for row, problem in problems:
            lacks = isinstance(problem, UnsupportedError)
            name, inside = row.name, " ".join(row.labels.values())
            if lacks and not name:  # no GPU counts all errors of links
                continue
            if not lacks or lacking[name] < self._sizes[name]:
                name = name or f"FieldValue({row.metric})"
                inside = inside or (row.metric if self._sizes[row.name] > 1 else "")
                name = f"{name.removesuffix(')')}{' ' if ')' in name else '('}{inside})" if inside else name
            listed.append(Problem(name, problem.code, lacks))
        return listed


def _optional(handle: Any, name: str, otherwise: Any = "") -> Any:
    try:
        return library.call(f"Device{name}", handle)
    except UnsupportedError:
        return otherwise


def _architecture(handle: Any) -> int:
    """NVML's number of it, 0 if that is not known."""
    found = int(_optional(handle, "GetArchitecture", 0))
    return 0 if found == _UNKNOWN_ARCHITECTURE else found


def _bus_id(handle: Any) -> str:
    found = library.call("DeviceGetPciInfo", handle).busId
    return found.decode() if isinstance(found, bytes) else str(found)


def _fans(handle: Any) -> Iterator[Found]:
    count = library.call("DeviceGetNumFans", handle)
    if not count:
        raise UnsupportedError("not_supported")
    for fan in range(count):
        percent = number(library.call("DeviceGetFanSpeed_v2", handle, fan), _MOST_FAN_PERCENT)
        yield Reading("gpu_fan_speed_ratio", percent / 100, {"fan": str(fan)})


class Mig:
    """The instances of one GPU: what each is, and the values of the table that an instance has, too.

    Handles of instances are invalid after a change of the MIG layout, and not all drivers give new ones
    before NVML is reopened. So a change is a ``CardError`` until then.
    """

    def __init__(self, kept: Iterable[Row]) -> None:
        names = {"GetMemoryInfo": "GetMemoryInfo(mig)", "GpmSampleGet": "GpmMigSampleGet"}
        own = [
            row._replace(metric=row.metric.replace("gpu_", "gpu_mig_", 1), name=names[row.name])
            for row in kept
            if row.name in names and "pcie" not in row.metric
        ]
        self._memory = Pass(row for row in own if "mig" in row.name)
        self._means = [row for row in own if row.name == "GpmMigSampleGet"]
        self._split: tuple[int, frozenset[tuple[str, ...]]] | None = None
        self._handles: dict[int, Any] = {}
        self._windows: dict[int, tuple[Window, Pass]] = {}
        # memory is that of a GPU instance: its compute instances share it
        self.calls = (
            Call("GetMigDeviceHandleByIndex", Tier.SLOW, self._walk),
            Call(
                "GetMemoryInfo(mig)", Tier.FAST, lambda _: self._each(lambda _, mig: self._memory.read(mig))
            ),
            Call("GpmMigSampleGet", Tier.FAST, lambda handle: self._each(lambda n, _: self._mean(n, handle))),
        )

    def forget(self) -> None:
        """Forget the instances of a GPU that was lost."""
        self._handles = {}
        for window, _ in self._windows.values():
            window.forget()

    def _walk(self, handle: Any) -> Iterator[Found]:
        mode = _optional(handle, "GetMigMode", [0])[0]
        found: dict[tuple[str, ...], Any] = {}
        for place in range(library.call("DeviceGetMaxMigDeviceCount", handle)) if mode else ():
            with _gone():
                mig = library.call("DeviceGetMigDeviceHandleByIndex", handle, place)
                part, inner = (library.call(f"DeviceGet{of}InstanceId", mig) for of in ("Gpu", "Compute"))
                # NVML's name ends in the profile: NVIDIA H200 MIG 1g.18gb
                profile = str(_optional(mig, "GetName")).partition(" MIG ")[2]
                found[str(part), str(inner), profile, str(library.call("DeviceGetUUID", mig))] = mig
        split = mode, frozenset(found)
        self._split = self._split or split
        if self._split != split:
            raise CardError(MIG_CHANGED)
        self._handles = {int(instance[0]): mig for instance, mig in found.items()}
        names = ("gpu_instance_id", "compute_instance_id", "profile", "mig_uuid")
        for instance in found:
            yield Reading("gpu_mig_info", 1, dict(zip(names, instance, strict=True)))

    def _mean(self, instance: int, handle: Any) -> list[Found]:
        if instance not in self._windows:
            window = Window(
                lambda handle, sample: library.call("GpmMigSampleGet", handle, instance, sample),
                (row.sources[0].key for row in self._means),
            )
            self._windows[instance] = window, Pass(self._means, window.ask)
        return self._windows[instance][1].read(handle)

    def _each(self, read: Callable[[int, Any], list[Found]]) -> Iterator[Found]:
        """What is read of each instance that is still there."""
        for instance, mig in self._handles.items():
            found: list[Found] = []
            with _gone():
                found = read(instance, mig)
            labels = {"gpu_instance_id": str(instance)}
            for each in found:
                if isinstance(each, Reading):
                    yield each._replace(labels={**labels, **each.labels})
                else:
                    yield each


@contextmanager
def _gone() -> Iterator[None]:
    """Pass over the errors of an instance that is not there, or no longer."""
    try:
        yield
    except ReadError as problem:
        if problem.code not in ("invalid_argument", "not_found"):
            raise


class NvmlCard:
    """A GPU that NVML gave a handle for. ``register`` has its Xid errors reported, by handle and UUID."""

    def __init__(
        self, handle: Any, register: Callable[[Any, str], list[Found]], settings: Settings, driver: str
    ) -> None:
        self.uuid = str(library.call("DeviceGetUUID", handle))
        self._bus_id = _bus_id(handle)
        self._handle, self._settings, self._links = handle, settings, range(0)
        pcie = settings.pcie and _architecture(handle) < _HOPPER  # since Hopper, GPM has it without a wait
        left_out = ("sum" if settings.links else "each", "" if pcie else "GetPcieThroughput")
        kept = [row for row in rows(driver) if row.scope not in left_out]
        self._of_links = [row for row in kept if row.scope in ("link", "each")] if settings.links else []
        kept = [row for row in kept if row not in self._of_links]
        self._mark, self._mig = Mark(), Mig(kept)
        self._processes = Processes(settings, driver)
        means = [row for row in kept if row.scope == "gpm"]
        self._window = Window(partial(library.call, "GpmSampleGet"), (row.sources[0].key for row in means))
        grouped: dict[tuple[Tier, str], list[Row]] = {}
        for row in kept:
            if row.scope not in ("gpm", "field", "link", "sum", "latency"):
                grouped.setdefault((row.tier, row.name), []).append(row)
        # first comes what shows whether the instances are still the same
        self.calls = [
            Call("RegisterEvents", Tier.STATIC, lambda handle: register(handle, self.uuid)),
            *self._mig.calls,
            Call("GetSamples", Tier.FAST, self._highest),
            Call("GpmSampleGet", Tier.FAST, Pass(means, self._window.ask).read),
            Call("GetName", Tier.STATIC, self._identity),
            Call("GetFanSpeed", Tier.SLOW, _fans),
            *(Call(name, tier, Pass(each).read) for (tier, name), each in grouped.items()),
            *self._processes.calls,
            Call("FieldValue(nvlink_count)", Tier.STATIC, self._count_links),
            Call("GetNvLinkState", Tier.SLOW, self._link_states),
            *_fields(row for row in kept if row.scope in ("field", "link", "sum", "latency")),
        ]
        self._fixed = len(self.calls)

    def read(self, call: Call) -> list[Found]:
        """Make one of its calls. Raises ``DriverError``."""
        try:
            return list(call.read(self._handle))
        except ReadError as problem:
            if problem.code == UNKNOWN:  # this call's, or a lost GPU's
                self._look_up()
            raise

    def find(self) -> None:
        """Look up the GPU again, by PCI bus id: a lost GPU changes the indices of the others."""
        self.forget()
        self._look_up()

    def forget(self) -> None:
        """Forget the state of a GPU that was lost, or is no longer read."""
        self._mig.forget()
        self._window.forget()

    def _look_up(self) -> None:
        try:
            self._handle = library.call("DeviceGetHandleByPciBusId", self._bus_id.encode())
        except DriverError as problem:
            raise down(problem) from problem

    def _identity(self, handle: Any) -> Iterator[Found]:
        """What distinguishes a GPU from others; with its serial number only if that is wanted."""
        kind = _architecture(handle)
        labels = {
            "name": library.call("DeviceGetName", handle),
            "pci_bus_id": _bus_id(handle),
            "architecture": _ARCHITECTURES.get(kind, str(kind or "")),
            "compute_capability": ".".join(map(str, _optional(handle, "GetCudaComputeCapability"))),
            "vbios_version": str(_optional(handle, "GetVbiosVersion")),
        }
        serial = {"serial": str(_optional(handle, "GetSerial"))} if self._settings.serial else {}
        yield Reading("gpu_info", 1, {**labels, **serial})

    def _highest(self, handle: Any) -> Iterator[Found]:
        """The highest sample since the last reading. One that is impossible makes no other wrong."""
        try:
            kind, samples = library.call("DeviceGetSamples", handle, _UTILIZATION, self._mark.since())
        except ReadError as problem:
            if problem.code != "not_found":
                raise
            kind, samples = 0, []
        percents = [library.decode(kind, bytes(each.sampleValue)) for each in self._mark.newer(samples)]
        good = [percent for percent in percents if percent is not None and 0 <= percent <= 100]
        if good:
            yield Reading("gpu_utilization_window_max_ratio", max(good) / 100)
        if len(good) < len(percents):
            yield Problem("GetSamples", "garbage", lacking=False)

    def _count_links(self, handle: Any) -> list[Found]:
        """Learn how many NVLinks there are, and read each from now on if that is wanted."""
        count = Batch([_LINK_COUNT]).ask(handle)[_LINK_COUNT]
        if isinstance(count, DriverError):
            raise count
        self._links = range(int(number(count, _MOST_LINKS)))
        single = [row.of_link(link) for link in self._links for row in self._of_links]
        self.calls[self._fixed :] = _fields(single, " of links")
        return []

    def _link_states(self, handle: Any) -> Iterator[Found]:
        found = []
        for link in self._links:
            state = library.answer(handle, "GetNvLinkState", link)
            if not isinstance(state, UnsupportedError):  # this GPU does not have all links
                if isinstance(state, ReadError):
                    raise state
                found.append(bool(state))
        for state, is_active in (("active", True), ("inactive", False)) if found else ():
            yield Reading("gpu_nvlink_links", found.count(is_active), {"state": state})


def _fields(kept: Iterable[Row], what: str = "") -> Iterator[Call]:
    """A call for all numbered values of a tier."""
    listed = list(kept)
    for tier in (Tier.FAST, Tier.SLOW):
        if some := [row for row in listed if row.tier is tier]:
            keys = {source.key: row for row in some for source in row.sources if source.key[0] == "field"}
            batch = Batch(keys, (key for key, row in keys.items() if row.wide))
            slow = "(slow)" if tier is Tier.SLOW else ""
            yield Call(f"GetFieldValues{what}{slow}", tier, Pass(some, batch.ask).read)


def down(problem: DriverError) -> DriverError:
    """What it means that a GPU cannot be found."""
    return problem if isinstance(problem, (CardError, BackendError)) else CardError(problem.code)
