"""`make mutate`: what the cases of each rule notice, a line each; fails where a change escapes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.rules import mutation, proofs
from tests.rules.mutation import Verdict

COLUMNS = ("mutants", "killed", "equivalent", "unnoticed")


def main() -> int:
    """Judge every rule; return 1 if a change escapes its cases, or is excused without need."""
    rules = proofs.rules()
    width = max(map(len, rules))
    print(f"{'rule':{width}}", *COLUMNS, sep="  ")
    verdicts = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for verdict in pool.map(mutation.judge, rules.values()):
            verdicts.append(verdict)
            print(_row(verdict, width), f"  {len(verdicts)}/{len(rules)}", flush=True)
    faults = [*_faults(verdicts), *mutation.orphans()]
    print(*_equivalent(verdicts), *faults, _total(verdicts, faults), sep="\n")
    return bool(faults)


def _row(verdict: Verdict, width: int) -> str:
    counts = (verdict.mutants, verdict.killed, len(verdict.equivalent), len(verdict.unnoticed))
    cells = (f"{count:>{len(column)}}" for column, count in zip(COLUMNS, counts, strict=True))
    return "  ".join([f"{verdict.rule:{width}}", *cells])


def _equivalent(verdicts: Iterable[Verdict]) -> Iterable[str]:
    for verdict in verdicts:
        for mutant, reason in verdict.equivalent.items():
            yield f"{verdict.rule}: equivalent: {mutant.what}: {reason}"


def _faults(verdicts: Iterable[Verdict]) -> Iterable[str]:
    return (f"{verdict.rule}: {fault}" for verdict in verdicts for fault in verdict.faults)


def _total(verdicts: Iterable[Verdict], faults: list[str]) -> str:
    verdicts = list(verdicts)
    mutants, killed = (sum(getattr(each, name) for each in verdicts) for name in ("mutants", "killed"))
    return f"{len(verdicts)} rules, {mutants} mutants, {killed} killed; {len(faults)} faults."


if __name__ == "__main__":
    sys.exit(main())
