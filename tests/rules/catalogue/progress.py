"""No step is made, steps are slow, or the run has ended; signs of life are in `test_states.py`."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, Condition, Limit, Rule

RULES = (
    Rule(
        "Stalled",
        "critical",
        "Stalled",
        conditions=(
            Condition(
                "no step",
                {h.LAST_STEP_AT: -1000},
                needs=(h.LAST_STEP_AT, h.STATE),
                spares=(h.STEP_INTERVAL, h.WRITER_PRESENT),
            ),
        ),
        silent={
            "steps are that slow": {h.LAST_STEP_AT: -1000, h.STEP_INTERVAL: 400},
            "its writer is gone": {h.LAST_STEP_AT: -1000, h.WRITER_PRESENT: 0},
            "it was stopped on request": {h.LAST_STEP_AT: -1000, h.REQUESTED: 1},
            "it waits for a retry": {h.LAST_STEP_AT: -1000, h.RETRY_AT: 1e9},
        },
        wait=15,
    ),
    Rule(
        "SlowSteps",
        "warning",
        "SlowSteps",
        conditions=(
            Condition(
                "few tokens per GPU",
                {h.GPU_SPEED: 128},
                limits=(Limit(h.GPU_SPEED, BELOW, 0.5 * 512),),
                needs=(h.GPU_SPEED, h.GPU_SPEED_USUAL),
                spares=(h.SPEED, h.SPEED_USUAL, h.SECONDS_PER_TOKEN, h.SECONDS_PER_TOKEN_USUAL),
            ),
            Condition(
                "few tokens",
                {h.SPEED: 512},
                limits=(Limit(h.SPEED, BELOW, 0.5 * 4096),),
                needs=(h.SPEED, h.SPEED_USUAL),
                spares=(h.GPU_SPEED, h.GPU_SPEED_USUAL, h.SECONDS_PER_TOKEN, h.SECONDS_PER_TOKEN_USUAL),
            ),
            Condition(
                "slow generation",
                {h.SECONDS_PER_TOKEN: 1},
                limits=(Limit(h.SECONDS_PER_TOKEN, ABOVE, 3 * 0.25),),
                needs=(h.SECONDS_PER_TOKEN, h.SECONDS_PER_TOKEN_USUAL),
                spares=(h.SPEED, h.SPEED_USUAL, h.GPU_SPEED, h.GPU_SPEED_USUAL),
            ),
        ),
    ),
    *(
        Rule(
            f"Run{state.capitalize()}",
            severity,
            f"Run{state.capitalize()}",
            conditions=(
                Condition(
                    state,
                    {h.STATE: state},
                    needs=(h.STATE,),
                    spares=(h.LAST_STEP_AT,),
                ),
            ),
            silent={"on request": {h.STATE: state, h.REQUESTED: 1}} if state == "stopped" else {},
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
