"""What NVIDIA's driver wants done about a GPU (`gpu_recovery_action`), in our words, and what to do first.

From NVML's nvmlDeviceGpuRecoveryAction_t and NVIDIA's guide to memory errors of GPUs. Which actions page
is said in config.yaml.
"""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """What the driver asks for, and what to do first; both are parts of a sentence."""

    means: str
    first: str


RESET = "on its box `make gpu-release`, `nvidia-smi -r -i {gpu}`"
"""Nobody may have the GPU open while it is reset, nor may Stepwatch."""

_REBOOT = "stop what runs on the box, and reboot it; resume from an older checkpoint"

ACTIONS = {
    1: Action("a reset", f"stop what runs on it, then {RESET}"),
    2: Action("a reboot: the system may be left in an odd state", _REBOOT),
    3: Action(
        "an end of all traffic between GPUs",
        "stop what uses it together with others; the driver then asks for what comes next",
    ),
    4: Action(
        "a reset when its runs are over; it works until then, with less",
        f"let its runs end, then {RESET}",
    ),
    5: Action("its NVLink domain of several boxes to be recovered", "look at nvidia-imex on all its boxes"),
    6: Action("a reset of its PCIe bus", "move its runs, then power-cycle the box"),
    7: Action("a reboot of the whole system", _REBOOT),
}
UNKNOWN = Action(
    "an action that is not explained here", "`nvidia-smi -q -i {gpu} | grep -i recovery` names it"
)
