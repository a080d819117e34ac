"""Alerts on whether a GPU works, its memory is sound, and all GPUs of a machine are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from pydantic import model_validator

from stepwatch.alerts.model.alert import (
    DOCUMENTED,
    JUDGED,
    NOTHING,
    WHOLE,
    Alert,
    Codes,
    Condition,
    CriticalBlock,
    Explanation,
    InfrastructureBlock,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Formula, On, OneOf
from stepwatch.alerts.model.targets import GPU, HOST, counted, events, gpu_alert, gpus, hosts
from stepwatch.schema.errors import Fault, Faults
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, RecoveryAction, Span, XidCode
from stepwatch.schema.section import default

_alert = partial(gpu_alert, style=NOTHING)

# Texts of the driver's codes. From NVIDIA's public documents, in our words: the description of Xid errors,
# NVML's nvmlDeviceGpuRecoveryAction_t, and the guide to memory errors of GPUs. ``{gpu}`` is the GPU's UUID,
# or its number where that is unknown: numbers change when a GPU is lost.

RESET = "on its machine `make gpu-release`, then `nvidia-smi -r -i {gpu}`"
"""A GPU that a process has open, Stepwatch's exporter included, cannot be reset."""

STOP_AND_RESET = f"stop what runs on it; then {RESET}"
DRAIN_AND_RESET = f"let its runs end; then {RESET}"
_POWER_CYCLE = "move its runs, then power-cycle the machine; if it happens again, check slot, cables and card"
_PROGRAM = "read the end of the run's log; suspect the card only if other programs fail on it as well"
_NVLINK = "`nvidia-smi nvlink -e -i {gpu}`; runs over several GPUs hang or fail until it is reset"
_RESET_OR_REBOOT = "stop what runs on it and reset it; if the reset hangs, reboot the machine"
_REBOOT = "stop what runs on the machine and reboot it; resume from an older checkpoint"
_DMESG = "`dmesg | grep -i xid`"

XIDS = {
    13: Explanation("a program made the GPU do something illegal, such as use a bad address", _PROGRAM),
    31: Explanation("a program accessed memory that is not its own", _PROGRAM),
    32: Explanation("commands arrived corrupted", "check the PCIe link: `nvidia-smi -q -d PCIE -i {gpu}`"),
    38: Explanation("the driver's firmware failed", _RESET_OR_REBOOT),
    43: Explanation("the driver stopped a program after an error of its own", _PROGRAM),
    45: Explanation("the driver cleared a program's work, as after Ctrl-C", "find the error before it"),
    46: Explanation("the GPU stopped working", STOP_AND_RESET),
    48: Explanation("uncorrectable memory error", STOP_AND_RESET),
    61: Explanation("fault of its internal microcontroller", DRAIN_AND_RESET),
    62: Explanation("its internal microcontroller halted", STOP_AND_RESET),
    63: Explanation("bad memory was replaced; in force after a reset", DRAIN_AND_RESET),
    64: Explanation("bad memory could not be replaced", f"{STOP_AND_RESET}; replace the card"),
    68: Explanation("a video decoder failed", _PROGRAM),
    69: Explanation("a program made the GPU do something illegal", _PROGRAM),
    74: Explanation("NVLink error between this GPU and others", _NVLINK),
    79: Explanation("fell off the bus; the machine cannot see it", _POWER_CYCLE),
    92: Explanation("many memory errors, all corrected", "watch the GPU: it is likely to fail"),
    94: Explanation("memory error, contained: it ended one program", DRAIN_AND_RESET),
    95: Explanation("memory error, not contained: results since then are suspect", STOP_AND_RESET),
    109: Explanation("it could not switch between programs", _PROGRAM),
    110: Explanation("fault of its protection unit", STOP_AND_RESET),
    119: Explanation("its system processor (GSP) does not answer", _RESET_OR_REBOOT),
    120: Explanation("its system processor (GSP) failed", _RESET_OR_REBOOT),
    121: Explanation("error of the link between GPU and CPU", DRAIN_AND_RESET),
    137: Explanation("a program accessed memory over NVLink that is not its own", _PROGRAM),
    140: Explanation("memory errors without recovery", STOP_AND_RESET),
    143: Explanation("the GPU does not start", _RESET_OR_REBOOT),
    154: Explanation(
        "the driver requests a recovery", "`nvidia-smi -q -i {gpu} | grep -i recovery` names it"
    ),
}
XIDS |= dict.fromkeys(
    range(144, 151), Explanation("NVLink error (Blackwell and later); `dmesg` says if it is fatal", _NVLINK)
)

LOSSES = {
    "lost": Explanation(
        "the driver has lost it", f"move its runs; then {RESET}; if that fails, power-cycle the machine"
    ),
    "reset_required": Explanation("it needs a reset", STOP_AND_RESET),
    "no_permission": Explanation(
        "the GPU exporter has no permission to read it",
        "give its container all GPUs, or its user access to /dev/nvidia*",
    ),
    "timeout": Explanation("the driver does not answer", f"{_DMESG}; if the driver stays hung, reboot"),
    "stuck": Explanation(
        "the driver hangs; processes that ask it cannot be killed", f"{_DMESG}; expect to reboot"
    ),
    "unknown": Explanation(
        "the driver answers with an unknown error",
        f"recreate the exporter's container if it has one; otherwise {_DMESG}",
    ),
    "mig_changed": Explanation(
        "its MIG partition changed; the new one is not read yet",
        "wait a minute, then read the GPU exporter's log",
    ),
    "crashed": Explanation("the driver's library crashes", f"read the GPU exporter's log, and {_DMESG}"),
    "driver_not_loaded": Explanation(
        "the driver is no longer loaded", "`modprobe nvidia` or reboot, unless someone unloaded it on purpose"
    ),
    "version_mismatch": Explanation(
        "the driver was upgraded while the old one is loaded",
        "reload it or reboot, then recreate the GPU exporter's container",
    ),
}

RECOVERIES = {
    1: Explanation("a reset", STOP_AND_RESET),
    2: Explanation("a reboot; the system may be in an inconsistent state", _REBOOT),
    3: Explanation(
        "an end of all traffic between GPUs",
        "stop what uses it together with other GPUs; the driver then requests the next action",
    ),
    4: Explanation("a reset when its runs are over; until then it works, degraded", DRAIN_AND_RESET),
    5: Explanation("recovery of its NVLink domain", "check nvidia-imex on all machines of the domain"),
    6: Explanation("a reset of its PCIe bus", "move its runs, then power-cycle the machine"),
    7: Explanation("a reboot of the whole system", _REBOOT),
}


class GPULost(CriticalBlock):
    """The driver has lost a GPU, or does not answer for it."""

    for_: Span = hold("30s", "The driver may answer slowly once; a lost GPU stays lost.", JUDGED)


GPU_LOST = _alert(
    GPULost,
    summary="GPU lost: the driver cannot read it",
    action="`dmesg | grep -i xid`; read the GPU exporter's log",
    conditions=(Condition("unreadable", gpus("gpu_up").equals(0)),),
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


def _xid(severity: str, summary: str, matcher: str) -> Alert:
    return _alert(
        GPUXid,
        severity,
        summary=summary,
        action="look the code up in NVIDIA's list of Xid errors",
        conditions=(
            Condition(
                "Xid {} errors within 1 h:",
                Formula(f"max by ({GPU}, xid) ({events(f'gpu_xid_errors_total{{{matcher}}}')})") > 0,
                given=_IS_THERE,
            ),
        ),
        style=WHOLE,
        codes=Codes("xid", XIDS),
    )


GPU_XID = (
    _xid("critical", "GPU failed: critical Xid error", 'xid=~"<critical>"'),
    _xid("warning", "GPU driver reports an Xid error", 'xid!~"<critical>|<ignored>"'),
)


class GPUECCUncorrectable(CriticalBlock):
    """The driver counted memory errors that it could not correct. Fires for an hour after the last one.

    Critical: the program that met one was ended, or computes with wrong data.
    """


GPU_ECC_UNCORRECTABLE = _alert(
    GPUECCUncorrectable,
    summary="Uncorrectable GPU memory errors",
    action=f"{STOP_AND_RESET}; resume from an older checkpoint",
    # The count of the card's life may be written late, and the other one starts anew with the driver.
    conditions=tuple(
        Condition("memory errors within 1 h:", counted(f'{counter}{{type="uncorrected"}}') > 0)
        for counter in ("gpu_ecc_errors_total", "gpu_ecc_volatile_errors_total")
    ),
    style=WHOLE,
)


class GPURowRemapPending(WarningBlock):
    """The next reset replaces a bad part of a GPU's memory (before Ampere: the next reboot retires a page).

    A warning: until then the GPU leaves the part out, and runs go on (NVIDIA's guide to memory errors).
    """

    for_: Span = hold("1m", "A repair that a reset takes up at once needs no alert.", JUDGED)


GPU_ROW_REMAP_PENDING = _alert(
    GPURowRemapPending,
    summary="GPU memory repair waits for a reset",
    action=f"{DRAIN_AND_RESET}; before Ampere, reboot",
    conditions=tuple(
        Condition("bad memory is left out until a reset replaces it", gpus(metric).equals(1))
        for metric in ("gpu_row_remap_pending", "gpu_retired_pages_pending")
    ),
)


class GPURowRemapFailed(WarningBlock):
    """A bad part of a GPU's memory could not be replaced: NVIDIA replaces such a card.

    The failure itself pages (GPUXid 64); this fires until the card is gone, and can wait for the morning.
    """

    for_: Span = hold("1m", "Longer than one odd scrape.", JUDGED)


GPU_ROW_REMAP_FAILED = _alert(
    GPURowRemapFailed,
    summary="GPU memory repair failed: no spare rows left",
    action="keep new runs off the GPU, and have the card replaced",
    conditions=(Condition("no spare row is left for bad memory", gpus("gpu_row_remap_failed").equals(1)),),
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


def _recovery(severity: str, summary: str, requested: Expression, sparing: Expression | None = None) -> Alert:
    return _alert(
        GPURecoveryNeeded,
        severity,
        summary=summary,
        action="`nvidia-smi -q -i {gpu} | grep -i recovery` names the action",
        conditions=(Condition("the driver requests recovery {}", requested > 0, sparing=sparing),),
        codes=Codes("recovery", RECOVERIES, by_value=True),
    )


GPU_RECOVERY_NEEDED = (
    _recovery("critical", "GPU unusable until the driver's requested recovery is done", _pages),
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

GPUS_MISSING = _alert(
    GPUsMissing,
    summary="Machine has fewer GPUs than expected",
    action="`nvidia-smi -L`, `lspci | grep -i nvidia`, `dmesg | grep -i nvrm`; a power-cycle may help",
    conditions=(
        Condition(
            "GPUs present:",
            # GPULost is about a GPU that the exporter has seen.
            (Formula(f"count by ({HOST}) ({gpus('gpu_up').text})") | hosts("gpu_devices"))
            < hosts("max_over_time(gpu_devices_expected[<within>s])"),
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
