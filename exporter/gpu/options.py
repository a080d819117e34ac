"""The flags of ``python -m exporter.gpu``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from exporter.gpu.backend import BACKENDS, COMPATS, PROFILES, Extras
from exporter.options import CommandLine, number, one_of, positive, switch, text

_USUAL = Extras()


def command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Return the options, of these flags or of those of this process; new ones apply but for the address."""
    flags = CommandLine(
        "python -m exporter.gpu",
        "Serve what NVIDIA's driver says about the GPUs to Prometheus.",
        arguments,
        _sick_exists,
    )
    flags.add_address(9411)
    flags.add(
        "backend",
        one_of("backend", BACKENDS),
        "nvml",
        "where the GPUs are: nvml, or demo for simulated ones",
    )
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
    flags.add("processes", number, _USUAL.processes, "most processes of a GPU that are named; 0 for none")
    flags.add("proc", text, _USUAL.proc, "the /proc that knows the processes' names, of the host's")
    flags.add("serial", switch, _USUAL.serial, "serve the serial numbers of the boards: true or false")
    flags.add("links", switch, _USUAL.links, "count bytes and errors of each NVLink: true or false")
    flags.add("pcie", switch, _USUAL.pcie, "sample PCIe before Hopper, 40 ms each time: true or false")
    flags.add(
        "compat",
        one_of("set of names", COMPATS),
        _USUAL.compat,
        "names that are served beside our own: none, or NVIDIA's dcgm",
    )
    flags.add(
        "profile",
        one_of("profile", PROFILES),
        _USUAL.profile,
        f"what the simulated GPUs are: {', '.join(PROFILES)}",
    )
    flags.add("sick", number, _USUAL.sick, "the number of the simulated GPU that fails")
    return flags


def _sick_exists(options: argparse.Namespace) -> None:
    there = PROFILES[options.profile]
    if options.sick is not None and options.sick >= there:
        raise argparse.ArgumentTypeError(
            f"--sick {options.sick}: there is no such GPU. "
            f"Expected a number from 0 to {there - 1}: --profile {options.profile} has {there} GPUs."
        )
