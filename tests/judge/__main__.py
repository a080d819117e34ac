"""``make judge``: score the rules on the real logs, beside others' rules, and write what came of it.

The scores, and what actions would have saved, go to docs/alert-quality.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepwatch.backtest.command import Backtest
from stepwatch.backtest.judge import Rule, judge
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.formats import CHECKOUT
from tests.judge import faults, page, real_logs, rlwatch, stopping, tutorials
from tests.judge.delays import Delays, delays
from tests.judge.departures import departures
from tests.judge.labels import Label, labels
from tests.judge.score import Verdict, score
from tests.public_logs import NAMED_BY

PAGE = CHECKOUT / "docs" / "alert-quality.md"


def main() -> int:
    """Judge, write the page, print the scores."""
    logs = labels()
    if not logs:
        sys.stderr.write(f"There are no labelled logs. Fix: name their folders in {NAMED_BY}.\n")
        return 2
    others = tutorials.METRICS | rlwatch.METRICS | faults.METRICS
    with real_logs.loaded([log.path for log in logs], Config(), others) as backtest:
        judged = backtest.results(Progress()).runs
        ours = real_logs.of_rules(judged, backtest.catalogue.rules)
        moved = departures(backtest, judged)
        rivals = dict(_rivals(backtest))
        slow = _delays(logs, backtest)
    scores = {"Stepwatch": score(logs, ours, by_name=True)}
    scores |= {name: score(logs, found, by_name=False) for name, found in rivals.items()}
    tables = {
        "scores": page.scores(scores),
        "sick": page.sick(logs, ours),
        "moved": page.moved(logs, moved),
        "false": page.false(scores["Stepwatch"]),
        "delays": page.delays(slow),
        "stopped": page.stopped(stopping.saved(logs, ours)),
    }
    PAGE.write_text(page.written(PAGE.read_text(), tables))
    print("\n".join([*tables["scores"], *tables["stopped"][-1:]]))
    return 0


def _rivals(backtest: Backtest) -> Iterator[tuple[str, dict[str, Verdict]]]:
    yield "tutorial rules, all together", _of_rules(backtest, tutorials.RULES)
    for rule in tutorials.RULES:
        yield f"`{rule.alert}` ({rule.severity})", _of_rules(backtest, [rule])
    sent = rlwatch.alarms(backtest.prometheus, backtest.runs)
    yield "rlwatch with its defaults", real_logs.of_runs(backtest.runs, sent)


def _of_rules(backtest: Backtest, rules: Sequence[Rule]) -> dict[str, Verdict]:
    judged = judge(backtest.prometheus, rules, (), backtest.runs, lambda: None)
    return real_logs.of_rules(judged, rules)


def _delays(logs: Sequence[Label], backtest: Backtest) -> list[Delays]:
    """What is reported about healthy runs that faults were put into."""
    healthy = {str(log.path) for log in logs if log.verdict == "healthy"}
    runs = [run for run in backtest.runs if healthy.issuperset(run.files)]
    with tempfile.TemporaryDirectory() as folder:
        sick = list(faults.write(backtest.prometheus, runs, Path(folder)))
        with real_logs.loaded([each.log for each in sick], Config()) as loaded:
            judged = loaded.results(Progress()).runs
            return delays(sick, real_logs.of_rules(judged, loaded.catalogue.rules))


if __name__ == "__main__":
    sys.exit(main())
