"""``make judge``: score the rules on the real logs, beside others' rules, and write docs/alert-quality.md."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from stepwatch.backtest.progress import Progress
from stepwatch.backtest.rules import Rule
from stepwatch.backtest.verdict import Judge
from stepwatch.backtest.work import Backtest
from stepwatch.config import Config
from tests.formats import CHECKOUT
from tests.judge import page, real_logs, rlwatch, tutorials
from tests.judge.labels import Label, labels
from tests.judge.score import Verdict, score

PAGE = CHECKOUT / "docs" / "alert-quality.md"


def main() -> int:
    """Judge, write the page, tell the scores."""
    logs = labels()
    if not logs:
        sys.stderr.write("There are no labelled logs. STEPWATCH_TEST_RUNS names their folder.\n")
        return 2
    with real_logs.loaded(logs, Config(), tutorials.METRICS | rlwatch.METRICS) as backtest:
        ours = real_logs.verdicts(logs, backtest.results(Progress()).runs, backtest.catalogue.rules)
        rivals = dict(_rivals(logs, backtest))
    scores = {"Stepwatch": score(logs, ours, by_name=True)}
    scores |= {name: score(logs, found, by_name=False) for name, found in rivals.items()}
    tables = {
        "scores": page.scores(scores),
        "sick": page.sick(logs, ours),
        "false": page.false(scores["Stepwatch"]),
    }
    PAGE.write_text(page.written(PAGE.read_text(), tables))
    print("\n".join(tables["scores"]))
    return 0


def _rivals(logs: Sequence[Label], backtest: Backtest) -> Iterable[tuple[str, dict[str, Verdict]]]:
    yield "tutorial rules, all together", _of_rules(logs, backtest, tutorials.RULES)
    for rule in tutorials.RULES:
        yield f"`{rule.alert}` ({rule.severity})", _of_rules(logs, backtest, [rule])
    sent = rlwatch.alarms(backtest.prometheus, backtest.runs)
    yield (
        "rlwatch with its defaults",
        {
            log.file: real_logs.verdict(
                [(len(run.steps), sent[run.run]) for run in backtest.runs if str(log.path) in run.files]
            )
            for log in logs
        },
    )


def _of_rules(logs: Sequence[Label], backtest: Backtest, rules: Sequence[Rule]) -> dict[str, Verdict]:
    judged = list(Judge(backtest.prometheus, rules, ()).judge(backtest.runs, lambda: None))
    return real_logs.verdicts(logs, judged, rules)


if __name__ == "__main__":
    sys.exit(main())
