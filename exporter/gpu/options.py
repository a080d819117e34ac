"""The flags of ``python -m exporter.gpu``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

from exporter.gpu.backend import BACKENDS, COMPATS, PROFILES, Extras
from exporter.options import Flags, hosts, number, port, positive, switch
from exporter.settings import VARIABLE

PREFIX = "STEPWATCH_GPU_"
_USUAL = Extras()


def parse(arguments: Sequence[str] | None, variables: Mapping[str, str]) -> argparse.Namespace:
    """What the flags and variables say; ends the program where that cannot be."""
    found = parser(variables)
    options = found.parse_args(arguments)
    there = PROFILES[options.profile]
    if options.sick is not None and options.sick >= there:
        found.error(
            f"--sick {options.sick}: there is no such GPU. "
            f"Expected a number from 0 to {there - 1}: --profile {options.profile} has {there} GPUs."
        )
    return options


def parser(variables: Mapping[str, str]) -> argparse.ArgumentParser:
    """Knows all flags; each may be among the variables too."""
    found = argparse.ArgumentParser(
        prog="python -m exporter.gpu",
        description="Serve what NVIDIA's driver says about the GPUs to Prometheus. "
        f"Each flag is also a variable: {PREFIX}PORT, {PREFIX}BACKEND, ... The file that {VARIABLE} names "
        "may give them as well, in lines NAME=value; all but the address are heeded again when it changes.",
    )
    flags = Flags(found, PREFIX, variables)
    _add_service(flags)
    _add_extras(flags)
    return found


def _add_service(flags: Flags) -> None:
    flags.add("port", port, 9411, "port to serve on")
    flags.add("listen", str, "127.0.0.1", "address to serve on")
    flags.add("hosts", hosts, (), "names besides the machine's own that requests may use, with commas")
    flags.add("backend", _backend, "nvml", "where the GPUs are: nvml, or demo for simulated ones")
    flags.add("interval", positive, 1.0, "seconds between two readings")
    flags.add("idle", positive, 60.0, "seconds without a scrape until GPUs are read each 15 s only")
    flags.add("expected", number, 0, "how many GPUs there should be; 0 for the most that were seen")
    flags.add(
        "retry",
        positive,
        2.0,
        "seconds until a missing driver or GPU is looked for, doubled up to 32 times that",
    )
    flags.add(
        "hang",
        positive,
        10.0,
        "seconds of silence, at least three intervals, until the reading process is replaced",
    )
    flags.add(
        "restart-after",
        number,
        0,
        "seconds in which no GPU can be read any more, for a reason that a new container may fix, until "
        "it ends to be started again; 0 for never",
    )


def _add_extras(flags: Flags) -> None:
    flags.add("processes", number, _USUAL.processes, "most processes of a GPU that are named; 0 for none")
    flags.add("proc", str, _USUAL.proc, "the /proc that knows the processes' names, of the host's")
    flags.add("serial", switch, _USUAL.serial, "tell the serial numbers of the boards: true or false")
    flags.add("links", switch, _USUAL.links, "count bytes and errors of each NVLink: true or false")
    flags.add("pcie", switch, _USUAL.pcie, "sample PCIe before Hopper, 40 ms each time: true or false")
    flags.add(
        "compat", _compat, _USUAL.compat, "names that are served beside our own: none, or NVIDIA's dcgm"
    )
    flags.add("profile", _profile, _USUAL.profile, f"what the simulated GPUs are: {', '.join(PROFILES)}")
    flags.add("sick", number, _USUAL.sick, "the number of the simulated GPU that fails")


def _backend(text: str) -> str:
    return _one_of(text, "backend", BACKENDS)


def _compat(text: str) -> str:
    return _one_of(text, "set of names", COMPATS)


def _profile(text: str) -> str:
    return _one_of(text, "profile", PROFILES)


def _one_of(text: str, noun: str, known: Iterable[str]) -> str:
    names = list(known)
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is no {noun}. Expected {' or '.join(names)}.")
    return text
