"""Alerts on whether a GPU works, its memory is sound, and all GPUs of a machine are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import model_validator

from stepwatch.alerts.alert import NOTHING, WHOLE, Alert, Codes, Way
from stepwatch.alerts.basis import DOCUMENTED, JUDGED
from stepwatch.alerts.codes import DRAIN_AND_RESET, LOSSES, RECOVERIES, STOP_AND_RESET, XIDS
from stepwatch.alerts.expression import Expression, Number
from stepwatch.alerts.infrastructure import (
    GPU,
    HOST,
    CriticalBlock,
    Formula,
    InfrastructureBlock,
    On,
    OneOf,
    WarningBlock,
    counted,
    counts,
    events,
    fails,
    gpu_alert,
    gpus,
    hold,
    hosts,
)
from stepwatch.schema.errors import Fault, Faults
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, RecoveryAction, Span, XidCode
from stepwatch.schema.section import default


class GPULost(CriticalBlock):
    """The driver has lost a GPU, or does not answer for it."""

    for_: Span = hold("30s", "The driver may answer slowly once; a lost GPU stays lost.", JUDGED)


GPU_LOST = gpu_alert(
    GPULost,
    summary="GPU lost: the driver cannot read it",
    action="`dmesg | grep -i xid`; read the GPU exporter's log",
    ways=(fails("unreadable", gpus("gpu_up")),),
    style=NOTHING,
    codes=Codes("reason", LOSSES, source="gpu_up{{{}}} == 0"),
)


class GPUXid(InfrastructureBlock):
    """The driver reports an error of a GPU by an Xid code.

    Fires for an hour after the last one, while the GPU is there.
    """

    names: ClassVar[Mapping[str, str]] = {"warning": "GPUXid", "critical": "GPUXid"}

    critical: tuple[XidCode, ...] = default(
        (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143),
        "Codes that page: the GPU has stopped, or computes wrong results, until someone resets or replaces it"
        " (46 stopped, 48 and 140 memory, 62 microcontroller, 64 no spare memory, 74 NVLink, 79 off the bus,"
        " 95 memory error not contained, 119 and 120 GSP, 143 does not start). All others are warnings: a"
        " program's own fault (13, 31, 43), a repair that waits for a reset (63), a memory error that ended"
        " one program only (94), and codes of newer drivers. [] for none.",
        DOCUMENTED,
    )
    ignored: tuple[XidCode, ...] = default(
        (45,),
        "Codes without an alert: 45 follows each killed program. What went wrong has its own code.",
        DOCUMENTED,
    )

    @model_validator(mode="after")
    def _one_severity_each(self) -> GPUXid:
        if faults := list(self._repeated()):
            raise Faults(faults)
        return self

    def _repeated(self) -> Iterator[Fault]:
        seen: dict[int, str] = {}
        for key, codes in (("critical", self.critical), ("ignored", self.ignored)):
            for index, code in enumerate(codes):
                if code in seen:
                    yield Fault(
                        f"is also in {seen[code]}",
                        expected="each code once, in one of the two lists",
                        fix="delete one of the two",
                        at=(key, index),
                        value=code,
                    )
                seen.setdefault(code, key)


_IS_THERE = On(GPU, Formula('gpu_up or gpu_xid_errors_total{gpu=""}'))
"""A GPU that is there, if lost: one that has gone, or was replaced, needs no reset. An error of a GPU that
the driver does not name counts while its counter is there."""


def _xid(severity: str, summary: str, matcher: str, level: str = "") -> Alert:
    return gpu_alert(
        GPUXid,
        severity=severity,
        level=level,
        summary=summary,
        action="look the code up in NVIDIA's list of Xid errors",
        ways=(
            counts(
                "Xid {} errors within 1 h:",
                Formula(f"max by ({GPU}, xid) ({events(f'gpu_xid_errors_total{{{matcher}}}')})"),
                given=_IS_THERE,
            ),
        ),
        style=WHOLE,
        codes=Codes("xid", XIDS),
    )


GPU_XID = (
    _xid("critical", "GPU failed: critical Xid error", 'xid=~"<critical>"', "critical"),
    _xid("warning", "GPU driver reports an Xid error", 'xid!~"<critical>|<ignored>"'),
)


class GPUECCUncorrectable(CriticalBlock):
    """The driver counted memory errors that it could not correct. Fires for an hour after the last one.

    Critical: the program that met one was ended, or computes with wrong data.
    """


GPU_ECC_UNCORRECTABLE = gpu_alert(
    GPUECCUncorrectable,
    summary="Uncorrectable GPU memory errors",
    action=f"{STOP_AND_RESET}; resume from an older checkpoint",
    # The count of the card's life may be written late, and the other one starts anew with the driver.
    ways=tuple(
        counts("memory errors within 1 h:", counted(f'{counter}{{type="uncorrected"}}'))
        for counter in ("gpu_ecc_errors_total", "gpu_ecc_volatile_errors_total")
    ),
    style=WHOLE,
)


class GPURowRemapPending(WarningBlock):
    """The next reset replaces a bad part of a GPU's memory (before Ampere: the next reboot retires a page).

    A warning: until then the GPU leaves the part out, and runs go on (NVIDIA's guide to memory errors).
    """

    for_: Span = hold("1m", "A repair that a reset takes up at once needs no alert.", JUDGED)


GPU_ROW_REMAP_PENDING = gpu_alert(
    GPURowRemapPending,
    summary="GPU memory repair waits for a reset",
    action=f"{DRAIN_AND_RESET}; before Ampere, reboot",
    ways=tuple(
        Way("bad memory is left out until a reset replaces it", gpus(metric), "==", Number(1))
        for metric in ("gpu_row_remap_pending", "gpu_retired_pages_pending")
    ),
    style=NOTHING,
)


class GPURowRemapFailed(WarningBlock):
    """A bad part of a GPU's memory could not be replaced: NVIDIA replaces such a card.

    The failure itself pages (GPUXid 64); this fires until the card is gone, and can wait for the morning.
    """

    for_: Span = hold("1m", "Longer than one odd scrape.", JUDGED)


GPU_ROW_REMAP_FAILED = gpu_alert(
    GPURowRemapFailed,
    summary="GPU memory repair failed: no spare rows left",
    action="keep new runs off the GPU, and have the card replaced",
    ways=(Way("no spare row is left for bad memory", gpus("gpu_row_remap_failed"), "==", Number(1)),),
    style=NOTHING,
)


class GPURecoveryNeeded(InfrastructureBlock):
    """The driver requests an action before the GPU works again (R570 and later)."""

    names: ClassVar[Mapping[str, str]] = {"warning": "GPURecoveryNeeded", "critical": "GPURecoveryNeeded"}

    critical: tuple[RecoveryAction, ...] = default(
        (1, 2, 3, 6, 7),
        "Actions that page, since until they are taken nothing runs on the GPU, or not over its links: 1"
        " reset, 2 and 7 reboot, 3 end what uses several GPUs, 6 reset of its bus. Others, such as 4 (reset"
        " when its runs are over), are warnings. [] for none.",
        DOCUMENTED,
    )
    for_: Span = hold("1m", "An action that someone takes at once needs no alert.", JUDGED)


_requested = gpus("gpu_recovery_action")
_pages = OneOf(_requested, "critical")


def _recovery(
    severity: str, summary: str, requested: Expression, sparing: Expression | None = None, level: str = ""
) -> Alert:
    return gpu_alert(
        GPURecoveryNeeded,
        severity=severity,
        level=level,
        summary=summary,
        action="`nvidia-smi -q -i {gpu} | grep -i recovery` names the action",
        ways=(counts("the driver requests recovery {}", requested, sparing=sparing),),
        style=NOTHING,
        codes=Codes("recovery", RECOVERIES, by_value=True),
    )


GPU_RECOVERY_NEEDED = (
    _recovery(
        "critical", "GPU unusable until the driver's requested recovery is done", _pages, level="critical"
    ),
    _recovery("warning", "GPU needs maintenance", _requested, sparing=_pages),
)


class GPUsMissing(WarningBlock):
    """A machine has fewer GPUs than it should have, and GPULost, which pages, knows nothing of them.

    After a reboot the driver does not list the lost one. A warning: what ran on it has ended.
    """

    within: PositiveSpan = default(
        Duration.parse("1d"),
        "Expected are as many as the GPU exporter is configured to expect, or has seen, within this time: a"
        " reboot, and the night after it. A GPU that was taken out counts as missing until then.",
        JUDGED,
    )
    for_: Span = hold("5m", "Drivers may take minutes to start all GPUs of a machine.", JUDGED)


WAS_SIMULATED = 'present_over_time(gpu_info{name=~"simulated .+"}[<within>s])'
"""The demo's GPUs, which no one misses; of a machine that had some, not even others."""

GPUS_MISSING = gpu_alert(
    GPUsMissing,
    summary="Machine has fewer GPUs than expected",
    action="`nvidia-smi -L`, `lspci | grep -i nvidia`, `dmesg | grep -i nvrm`; a power-cycle may help",
    ways=(
        Way(
            "GPUs present:",
            # GPULost is about a GPU that the exporter has seen.
            Formula(f"count by ({HOST}) ({gpus('gpu_up').text})") | hosts("gpu_devices"),
            "<",
            hosts("max_over_time(gpu_devices_expected[<within>s])"),
            "expected or seen",
            given=On(HOST, Formula("gpu_exporter_nvml_up == 1")),
            sparing=On(HOST, Formula(WAS_SIMULATED)),
        ),
    ),
    about="gpu_host",
    style=WHOLE,
)

ALERTS = (
    GPU_LOST,
    *GPU_XID,
    GPU_ECC_UNCORRECTABLE,
    GPU_ROW_REMAP_PENDING,
    GPU_ROW_REMAP_FAILED,
    *GPU_RECOVERY_NEEDED,
    GPUS_MISSING,
)
