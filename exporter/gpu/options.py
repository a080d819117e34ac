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
        "Export GPU metrics from NVIDIA's driver to Prometheus.",
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
    flags.add("idle", positive, 60.0, "seconds without a scrape after which GPUs are read only every 15 s")
    flags.add("expected", number, 0, "expected number of GPUs; 0 for the most that were seen")
    flags.add(
        "retry",
        positive,
        2.0,
        "seconds until a missing driver or GPU is searched for again, doubled up to 32 times that",
    )
    flags.add(
        "hang",
        positive,
        10.0,
        "seconds without an answer, at least three intervals, until the reading process is replaced",
    )
    flags.add(
        "restart-after",
        number,
        0,
        "seconds without a readable GPU, for a reason that a new container may fix, until the exporter exits "
        "to be restarted; 0 for never",
    )
    flags.add("processes", number, _USUAL.processes, "maximum number of processes named per GPU; 0 for none")
    flags.add("proc", text, _USUAL.proc, "the host's /proc, with the names of the processes")
    flags.add("serial", switch, _USUAL.serial, "serve the serial numbers of the boards: true or false")
    flags.add("links", switch, _USUAL.links, "count bytes and errors of each NVLink: true or false")
    flags.add("pcie", switch, _USUAL.pcie, "sample PCIe before Hopper, 40 ms each time: true or false")
    flags.add(
        "compat",
        one_of("set of names", COMPATS),
        _USUAL.compat,
        "metric names served in addition to Stepwatch's: none, or NVIDIA's dcgm",
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
            f"--sick {options.sick}: no such GPU. "
            f"Expected a number from 0 to {there - 1}: --profile {options.profile} has {there} GPUs."
        )
