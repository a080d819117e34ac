"""Changes of rules that make no difference, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

_WHOLE = "counters rise by whole numbers"

_XID = {
    "> [0]  -> 0.01": _WHOLE,
    '"} [[1h]] ) -> [2h]': "what is older than an hour was there in the hour before",
    "(sum_over_time(up [[1h]] )) -> [2h]": "the same",
}

EQUIVALENTS: dict[str, Mapping[str, str]] = {
    "GPUXid-critical": _XID,
    "GPUXid-warning": _XID,
    "NotificationFailures-critical": {"> [0]  -> 0.01": _WHOLE},
    "RuleFailures-critical": {"> [0]  -> 0.01": _WHOLE},
    "RunStopped-warning": {
        '(rl_run_state{state="stopped"}[10m])) == 1 and on  -> max': "the first condition decides",
        '(rl_run_state{state="stopped"} [[10m]] )) == 1 and on () ( -> [20m]': "the same",
        "[last_over_time] (rl_run_writer_present[10m])) == 0 -> min": "if its writer came back, it runs",
        "(rl_run_writer_present [[10m]] )) == 0 -> [20m]": "its state is forgotten as soon",
    },
    "Watchdog-info": {"vector( [1] )": "it fires whatever its value is"},
}
"""By the name of the rule, and a part of what is changed that no change with a difference has."""
