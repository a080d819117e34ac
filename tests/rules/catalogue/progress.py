"""No step is made, or the run has ended; signs of life are told in `test_states.py`."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import Rule, Way

RULES = (
    Rule(
        "Stalled",
        "critical",
        "Stalled",
        ways=(
            Way(
                "no step",
                {h.LAST_STEP_AT: -1000},
                needs=(h.LAST_STEP_AT, h.STATE),
                spares=(h.STEP_INTERVAL, h.WRITER_PRESENT),
                says=("640 of 1000", "17m 15s ago", "limits 10 min and 2m 30s (5 usual"),
            ),
        ),
        silent={
            "steps are that slow": {h.LAST_STEP_AT: -1000, h.STEP_INTERVAL: 400},
            "its writer is gone": {h.LAST_STEP_AT: -1000, h.WRITER_PRESENT: 0},
        },
        wait=15,
    ),
    *(
        Rule(
            f"Run{state.capitalize()}",
            severity,
            f"Run{state.capitalize()}",
            ways=(Way(state, {h.STATE: state}, needs=(h.STATE,), spares=(h.LAST_STEP_AT,), says=(says,)),),
            keep=0,
            of_ended=state == "finished",
        )
        for state, severity, says in (
            ("failed", "critical", "640 of 1000, logged 17m 15s ago"),
            ("vanished", "critical", "640 of 1000, logged 17m 15s ago"),
            ("stopped", "warning", "640 of 1000, logged 17m 15s ago"),
            ("finished", "info", "640 of 1000, after 5h 16m 40s; best reward 2"),
        )
    ),
)
