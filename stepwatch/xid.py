"""Xid codes, by which NVIDIA's driver says what went wrong with a GPU: their meaning, and what to do first.

From NVIDIA's public description of the codes, in our words. Which of them page somebody is said in
config.yaml. A code that is missing here is told of all the same.
"""

from __future__ import annotations

from typing import NamedTuple

from stepwatch.recovery import RESET


class Xid(NamedTuple):
    """What a code means, and what to do first; both are parts of a sentence."""

    means: str
    first: str


_PROGRAM = "look at the end of the run's log; suspect the card only if other programs fail on it too"
_RESET = f"stop what runs on it, then {RESET}"
_LATER = f"let its runs end, then {RESET}"
_POWER = "move its runs, then power-cycle the box; if it comes again, the slot, the cables, the card"
_LINK = "`nvidia-smi nvlink -e -i {gpu}`; runs over several GPUs hang or fail until it is reset"
_REBOOT = "stop what runs on it, then reset it; if that hangs, reboot the box"

XIDS = {
    13: Xid("a program did what the GPU cannot do, such as an illegal address", _PROGRAM),
    31: Xid("a program read or wrote memory that is not its own", _PROGRAM),
    32: Xid("the commands sent to the GPU were garbled", "look at the PCIe link: `nvidia-smi -q -d PCIE`"),
    38: Xid("the driver's firmware failed", _REBOOT),
    43: Xid("a program was stopped on the GPU after an error of its own", _PROGRAM),
    45: Xid("a program's work was cleared away, as after Ctrl-C", "look for the error before it"),
    46: Xid("the GPU stopped working", _RESET),
    48: Xid("an error in its memory that cannot be corrected", _RESET),
    61: Xid("its internal controller hit a fault", _LATER),
    62: Xid("its internal controller has halted", _RESET),
    63: Xid("a bad part of its memory was replaced; in force after a reset", _LATER),
    64: Xid("a bad part of its memory could not be replaced", _RESET + "; have the card exchanged"),
    68: Xid("a video decoder failed", _PROGRAM),
    69: Xid("a program did what the GPU cannot do", _PROGRAM),
    74: Xid("an error of NVLink, between this GPU and others", _LINK),
    79: Xid("it has fallen off the bus: the box no longer sees it", _POWER),
    92: Xid("many memory errors, all corrected", "watch it: the card is likely to fail"),
    94: Xid("a memory error that cost one program, and was contained", _LATER),
    95: Xid("a memory error that was not contained: any result since is suspect", _RESET),
    109: Xid("it could not switch from one program to another", _PROGRAM),
    110: Xid("a fault of its protection unit", _RESET),
    119: Xid("its own processor (GSP) does not answer the driver", _REBOOT),
    120: Xid("its own processor (GSP) failed", _REBOOT),
    121: Xid("an error of the link between GPU and CPU", _LATER),
    137: Xid("a program reached over NVLink for memory that is not its own", _PROGRAM),
    140: Xid("memory errors from which the GPU did not recover", _RESET),
    143: Xid("it could not be started up", _REBOOT),
    154: Xid("the driver asks for a recovery", "`nvidia-smi -q -i {gpu} | grep -i recovery` names it"),
}
XIDS |= dict.fromkeys(
    range(144, 151), Xid("an error of NVLink since Blackwell: `dmesg` says if fatal", _LINK)
)
UNKNOWN = Xid("a code that is not explained here", "look it up in NVIDIA's list of Xid errors")
