"""Alerts on failed GPUs, GPU memory errors and missing GPUs."""

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
from stepwatch.schema.scalars import Duration, PositiveSpan, RecoveryAction, Span, XidCode
from stepwatch.schema.section import default

_alert = partial(gpu_alert, style=NOTHING)

# Texts of the driver's codes. From NVIDIA's public documents, in our words: the description of Xid errors,
# NVML's nvmlDeviceGpuRecoveryAction_t, and the guide to memory errors of GPUs. ``{gpu}`` is the GPU's UUID,
# or its number where that is unknown: numbers change when a GPU is lost.

RESET = "on its machine `make gpu-release`, then `nvidia-smi -r -i {gpu}`"
"""A GPU that a process has open, Stepwatch's exporter included, cannot be reset."""

STOP_AND_RESET = f"stop the processes on it; then {RESET}"
DRAIN_AND_RESET = f"wait for its runs to end; then {RESET}"
_POWER_CYCLE = "move its runs, then power-cycle the machine; if it happens again, check slot, cables and card"
_PROGRAM = "read the end of the run's log; suspect the card only if other programs fail on it as well"
_NVLINK = "`nvidia-smi nvlink -e -i {gpu}`; runs over several GPUs hang or fail until it is reset"
_RESET_OR_REBOOT = "stop the processes on it and reset it; if the reset hangs, reboot the machine"
_REBOOT = "stop the machine's runs and reboot it; resume from an older checkpoint"
_DMESG = "`dmesg | grep -i xid`"

XIDS = {
    13: Explanation(
        "a program executed an illegal operation on the GPU, such as access to a bad address", _PROGRAM
    ),
    31: Explanation("page fault: a program accessed memory that it does not own", _PROGRAM),
    32: Explanation("commands arrived corrupted", "check the PCIe link: `nvidia-smi -q -d PCIE -i {gpu}`"),
    38: Explanation("the driver's firmware failed", _RESET_OR_REBOOT),
    43: Explanation("the driver stopped a program after an error in that program", _PROGRAM),
    45: Explanation(
        "the driver removed a program's work, for example after Ctrl-C", "look for an earlier error"
    ),
    46: Explanation("the GPU stopped working", STOP_AND_RESET),
    48: Explanation("uncorrectable memory error", STOP_AND_RESET),
    61: Explanation("internal microcontroller fault", DRAIN_AND_RESET),
    62: Explanation("internal microcontroller halted", STOP_AND_RESET),
    63: Explanation("bad memory was remapped; takes effect after a reset", DRAIN_AND_RESET),
    64: Explanation("bad memory could not be remapped", f"{STOP_AND_RESET}; replace the card"),
    68: Explanation("a video decoder failed", _PROGRAM),
    69: Explanation("a program executed an illegal operation on the GPU", _PROGRAM),
    74: Explanation("NVLink error between this GPU and others", _NVLINK),
    79: Explanation("fell off the bus; the machine cannot see it", _POWER_CYCLE),
    92: Explanation("many memory errors, all corrected", "watch the GPU: it is likely to fail"),
    94: Explanation("memory error, contained: it ended one program", DRAIN_AND_RESET),
    95: Explanation("memory error, not contained: results since then are suspect", STOP_AND_RESET),
    109: Explanation("the GPU could not switch between programs", _PROGRAM),
    110: Explanation("protection unit fault", STOP_AND_RESET),
    119: Explanation("GPU System Processor (GSP) does not respond", _RESET_OR_REBOOT),
    120: Explanation("GPU System Processor (GSP) failed", _RESET_OR_REBOOT),
    121: Explanation("error on the link between GPU and CPU", DRAIN_AND_RESET),
    137: Explanation("page fault: a program accessed memory over NVLink that it does not own", _PROGRAM),
    140: Explanation("unrecovered memory errors", STOP_AND_RESET),
    143: Explanation("the GPU does not start", _RESET_OR_REBOOT),
    154: Explanation(
        "the driver requests a recovery", "`nvidia-smi -q -i {gpu} | grep -i recovery` names it"
    ),
}
XIDS |= dict.fromkeys(
    range(144, 151),
    Explanation("NVLink error (Blackwell and later); `dmesg` shows whether it is fatal", _NVLINK),
)

LOSSES = {
    "lost": Explanation(
        "the driver lost the GPU", f"move its runs; then {RESET}; if that fails, power-cycle the machine"
    ),
    "reset_required": Explanation("the GPU needs a reset", STOP_AND_RESET),
    "no_permission": Explanation(
        "the GPU exporter has no permission to read it",
        "give its container all GPUs, or its user access to /dev/nvidia*",
    ),
    "timeout": Explanation("the driver does not answer", f"{_DMESG}; if the driver stays hung, reboot"),
    "unknown": Explanation(
        "the driver answers with an unknown error",
        f"recreate the exporter's container if it has one; otherwise {_DMESG}",
    ),
    "mig_changed": Explanation(
        "its MIG partition changed; the new one is not read yet",
        "wait a minute, then read the GPU exporter's log",
    ),
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
        "a drain of all traffic between GPUs",
        "stop the programs that use it together with other GPUs; the driver then requests the next action",
    ),
    4: Explanation("a reset after its runs end; until then it works, degraded", DRAIN_AND_RESET),
    5: Explanation("recovery of its NVLink domain", "check nvidia-imex on all machines of the domain"),
    6: Explanation("a reset of its PCIe bus", "move its runs, then power-cycle the machine"),
    7: Explanation("a reboot of the whole system", _REBOOT),
}


class GPULost(CriticalBlock):
    """The driver lost a GPU, or does not answer for it."""

    for_: Span = hold("30s", "The driver may answer slowly once; a lost GPU stays lost.", JUDGED)


GPU_LOST = _alert(
    GPULost,
    summary="GPU lost: the driver cannot read it",
    action="`dmesg | grep -i xid`; read the GPU exporter's log",
    conditions=(Condition("unreadable", gpus("gpu_up").equals(0)),),
    codes=Codes("reason", LOSSES, source="gpu_up{{{}}} == 0"),
)


class GPUXid(InfrastructureBlock):
    """The driver reports a GPU error by an Xid code.

    Fires for an hour after the last one, while the GPU is present.
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
        "Codes without an alert: 45 follows each killed program. The error itself has its own code.",
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

    Critical: the affected program was stopped, or computes with wrong data.
    """


GPU_ECC_UNCORRECTABLE = _alert(
    GPUECCUncorrectable,
    summary="Uncorrectable GPU memory errors",
    action=f"{STOP_AND_RESET}; resume from an older checkpoint",
    # The lifetime count may be written late; the other count restarts with the driver.
    conditions=tuple(
        Condition("memory errors within 1 h:", counted(f'{counter}{{type="uncorrected"}}') > 0)
        for counter in ("gpu_ecc_errors_total", "gpu_ecc_volatile_errors_total")
    ),
    style=WHOLE,
)


class GPURowRemapPending(WarningBlock):
    """The next reset remaps bad GPU memory (before Ampere: the next reboot retires a page).

    A warning: until then the GPU does not use that memory, and runs continue (NVIDIA's memory error guide).
    """

    for_: Span = hold("1m", "If a reset follows immediately, no alert is needed.", JUDGED)


GPU_ROW_REMAP_PENDING = _alert(
    GPURowRemapPending,
    summary="GPU memory row remap pending: reset required",
    action=f"{DRAIN_AND_RESET}; before Ampere, reboot",
    conditions=tuple(
        Condition("bad memory is not used until a reset remaps it", gpus(metric).equals(1))
        for metric in ("gpu_row_remap_pending", "gpu_retired_pages_pending")
    ),
)


class GPURowRemapFailed(WarningBlock):
    """Bad GPU memory could not be remapped: NVIDIA replaces such a card.

    The failure itself pages (GPUXid 64); this warning fires until the card is replaced.
    """

    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


GPU_ROW_REMAP_FAILED = _alert(
    GPURowRemapFailed,
    summary="GPU memory row remap failed: no spare rows left",
    action="start no new runs on the GPU; replace the card",
    conditions=(Condition("no spare row is left for bad memory", gpus("gpu_row_remap_failed").equals(1)),),
)


class GPURecoveryNeeded(InfrastructureBlock):
    """The driver requests an action before the GPU works again (R570 and later)."""

    names: ClassVar[Mapping[str, str]] = {"warning": "GPURecoveryNeeded", "critical": "GPURecoveryNeeded"}

    critical: tuple[RecoveryAction, ...] = default(
        (1, 2, 3, 6, 7),
        "Actions that page: until they are done, nothing runs on the GPU or over its links. 1 reset, 2 and"
        " 7 reboot, 3 drain traffic between GPUs, 6 bus reset. Others, such as 4 (reset after its runs"
        " end), are warnings. [] for none.",
        DOCUMENTED,
    )
    for_: Span = hold("1m", "If the action follows immediately, no alert is needed.", JUDGED)


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
    """A machine has fewer GPUs than expected, and GPULost, which pages, does not cover them.

    After a reboot the driver does not list a lost GPU. A warning: its runs have already ended.
    """

    within: PositiveSpan = default(
        Duration.parse("1d"),
        "The expected number is what the GPU exporter was configured to expect, or has seen, within this"
        " time: a reboot and the night after it. A removed GPU counts as missing until then.",
        JUDGED,
    )
    for_: Span = hold("5m", "Drivers may take minutes to start all GPUs of a machine.", JUDGED)


WAS_SIMULATED = 'present_over_time(gpu_info{name=~"simulated .+"}[<within>s])'
"""The demo's GPUs, which may disappear; on a machine that had some, no GPU counts as missing."""

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
