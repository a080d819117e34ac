"""What `stepwatch run` costs a trainer, beside `CMD | tee`."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import table

WRAPPER_TRIES = 5
LOADS = {"TRL's, 5 steps/s": (40, 1), "40 MB, as fast as it can": (1, 100_000)}
"""How many steps a trainer makes, and how many lines each writes."""

TRAINER = """
import hashlib, sys, time
steps, lines, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
metrics = {f"rewards/{n}/mean": 0.123456789 + n for n in range(12)} | {"loss": 0.01, "kl": 0.1, "epoch": 0.2}
began, printing = time.perf_counter(), 0.0
for step in range(steps):
    if lines == 1:
        for _ in range(60):
            hashlib.sha256(bytes(1 << 20)).digest()
    writes = time.perf_counter()
    for _ in range(lines):
        print(metrics, flush=lines == 1)
    print(f" {step}%|####      | {step}/{steps} [00:01<00:01, 9.1it/s]", end="\\r", file=sys.stderr)
    printing += time.perf_counter() - writes
sys.stdout.flush()
open(result, "w").write(f"{time.perf_counter() - began} {printing / steps} {time.process_time()}")
"""


class _Cost(NamedTuple):
    """Seconds: of the trainer's loop, of a step's output in it, and of a core for what carries the output."""

    loop: float
    step: float
    carrier: float


def _run(how: str, folder: Path, load: Sequence[int]) -> _Cost:
    result = folder / "result"
    trainer = [sys.executable, "-c", TRAINER, *map(str, load), str(result)]
    run = [sys.executable, "-m", "stepwatch", "run", "--runs", str(folder), "--name", "run", "--"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if how == "`tee`":
        with subprocess.Popen(
            ["tee", folder / "tee.log"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as tee:
            subprocess.run(trainer, stdout=tee.stdin, stderr=subprocess.STDOUT, check=True)
            tee.communicate()
    else:
        subprocess.run([*run, *trainer], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    loop, step, own = map(float, result.read_text().split())
    return _Cost(loop, step, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - own)


@table("output", "by", "loop, s", "output of a step, ms", "`tee` or wrapper, s of a core")
def wrapper() -> Iterator[Sequence[object]]:
    """The trainer's own times under both, in turn; the best of each."""
    for name, load in LOADS.items():
        found: dict[str, list[_Cost]] = {"`tee`": [], "wrapper": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(WRAPPER_TRIES):
                for how, costs in found.items():
                    costs.append(_run(how, Path(folder), load))
        for how, costs in found.items():
            loop, step, carrier = (min(each) for each in zip(*costs, strict=True))
            yield name, how, f"{loop:.2f}", f"{1000 * step:.2f}", f"{carrier:.2f}"
