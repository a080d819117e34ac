"""Runs the check, prints it, and writes it into the documentation."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from stepwatch.system.terminal import Say, table
from tools.gpu_check.readings import NoGpuError, Round, rounds
from tools.gpu_check.verdicts import DIFFERS, LACKS, Verdict, findings, verdicts

USUAL_PAGE = Path(__file__).resolve().parents[2] / "docs/gpu.md"
ROUNDS = 5
PAUSE_SECONDS = 1.0
BEGIN = "<!-- made by `make gpu-check` -->\n"
END = "<!-- end -->\n"
HEAD = ("metric", "exporter", "nvidia-smi", "NVML", "verdict")


def main() -> int:
    """Run the command; 0 if all agree or there is no GPU, 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=__doc__)
    parser.add_argument("--page", type=Path, default=USUAL_PAGE, help="gets the table (default: %(default)s)")
    return gpu_check(parser.parse_args().page, print)


def gpu_check(page: Path, say: Say) -> int:
    """Compare what the exporter, ``nvidia-smi`` and NVML say of this machine's GPUs.

    In the documentation, the ``page``, what stands between its two marks is replaced. Returns 0 if all agree,
    or if there is no GPU to ask; 1 if something differs.
    """
    try:
        readings = rounds(ROUNDS, PAUSE_SECONDS)
    except NoGpuError as reason:
        say(f"No NVIDIA GPU to check here: {reason}. Nothing was compared, and {page.name} is as it was.")
        return 0
    found = verdicts(readings)
    remarks = findings(readings, found)
    cells = [_cells(verdict) for verdict in found]
    for line in (*table([HEAD, *cells]), "", *remarks):
        say(line)
    rows = [f"| `{name}` | {' | '.join(rest)} |" for name, *rest in cells]
    head = [_title(readings), "", f"| {' | '.join(HEAD)} |", "|---|---|---|---|---|"]
    text = "\n".join([*head, *rows, "", *(f"- {each}" for each in remarks), ""])
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")
    say(f"\nWritten to {page}.")
    return int(any(verdict.says in (DIFFERS, LACKS) for verdict in found))


def _title(rounds: Sequence[Round]) -> str:
    names = sorted({board.findtext("product_name", "GPU") for board in rounds[0].boards.values()})
    drivers = sorted(rounds[0].page.values("gpu_driver_info", "driver_version"))
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return (
        f"{len(rounds[0].boards)} x {', '.join(names)}, driver {', '.join(drivers)}, "
        f"{platform.system()} {platform.machine()}, {when}; median of {len(rounds)} readings, "
        "of the GPU on which they differ most."
    )


def _cells(verdict: Verdict) -> tuple[str, ...]:
    values = (verdict.ours, verdict.smi, verdict.nvml)
    return (verdict.row.name, *("" if value is None else f"{value:.12g}" for value in values), verdict.says)


if __name__ == "__main__":
    sys.exit(main())
