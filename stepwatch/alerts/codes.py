"""What the codes of NVIDIA's driver mean, and what to do first: Xid errors, losses, requested recoveries.

From NVIDIA's public documents, in our words: the description of Xid errors, NVML's
nvmlDeviceGpuRecoveryAction_t, and the guide to memory errors of GPUs. Which codes page stands in
config.yaml. ``{gpu}`` stands for the GPU's UUID, or its number where that is unknown: numbers change
when a GPU is lost.
"""

from __future__ import annotations

from stepwatch.alerts.alert import Explanation

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
