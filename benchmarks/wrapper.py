"""What `stepwatch run` costs a trainer, beside `CMD | tee`."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import quantiles, table

WRAPPER_TRIES = 5
LOADS = {"TRL's, 5 steps/s": (40, 1), "40 MB, as fast as it can": (1, 100_000)}
"""How many steps a trainer makes, and how many lines each writes."""

TRAINER = """
import hashlib, sys, time
steps, lines, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
metrics = {f"rewards/{n}/mean": 0.123456789 + n for n in range(12)} | {"loss": 0.01, "kl": 0.1, "epoch": 0.2}
began = time.perf_counter()
for step in range(steps):
    if lines == 1:
        for _ in range(60):
            hashlib.sha256(bytes(1 << 20)).digest()
    for _ in range(lines):
        print(metrics, flush=lines == 1)
    print(f" {step}%|####      | {step}/{steps} [00:01<00:01, 9.1it/s]", end="\\r", file=sys.stderr)
sys.stdout.flush()
open(result, "w").write(f"{time.perf_counter() - began} {time.process_time()}")
"""


def _run(how: str, folder: Path, load: Sequence[int]) -> tuple[float, float]:
    """Seconds of the trainer's loop, and seconds of processor time that what carries its output took."""
    result = folder / "result"
    trainer = [sys.executable, "-c", TRAINER, *map(str, load), str(result)]
    run = [sys.executable, "-m", "stepwatch", "run", "--runs", str(folder), "--name", "run", "--"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if how == "tee":
        with subprocess.Popen(
            ["tee", folder / "tee.log"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as tee:
            subprocess.run(trainer, stdout=tee.stdin, stderr=subprocess.STDOUT, check=True)
            tee.communicate()
    else:
        subprocess.run([*run, *trainer], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, own = map(float, result.read_text().split())
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - own


@table("output", "`tee`, s", "wrapper, s", "ratio", "`tee`, s of a core", "wrapper, s of a core")
def wrapper() -> Iterator[Sequence[object]]:
    """The trainer's own time under both, in turn; medians."""
    for name, load in LOADS.items():
        found: dict[str, list[tuple[float, float]]] = {"tee": [], "wrapper": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(WRAPPER_TRIES):
                for how, times in found.items():
                    times.append(_run(how, Path(folder), load))
        (tee,), (own,) = (quantiles([wall for wall, _ in times], 0.5) for times in found.values())
        busy = [quantiles([cost for _, cost in times], 0.5)[0] for times in found.values()]
        yield name, f"{tee:.2f}", f"{own:.2f}", f"{own / tee:.3f}", *(f"{each:.2f}" for each in busy)
