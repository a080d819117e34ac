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
    "EngineGone-warning": {"[2h])) > [0] ) -> 0.01": "changes are counted in whole numbers"},
    "EngineKVCacheFull-warning": {"sglang_num_queue_reqs) > [0]  -> 0.01": "requests are whole"},
    "EngineQueue-warning": {"sglang_num_queue_reqs) > [0]  -> 0.01": "requests are whole"},
    "FabricDown-critical": {"gpu_fabric_state) > [0]  -> 0.01": "states are whole numbers"},
    "GPUECCUncorrectable-critical": {"> [0]  -> 0.01": _WHOLE},
    "GPUExporterStale-warning": {"> [0]  -> 0.01": "GPUs are whole"},
    "GPURecoveryNeeded-warning": {"> [0]  -> 0.01": "actions are whole numbers"},
    "GPUIdleWhileRunning-warning": {
        "[*] on (uuid) group_right () group by (cluster, run, u": "the right side is 1",
        ") [*] on () group_right () (max by (cluster, run) (rl_ru": "the right side is 1",
        "[*] on (pid_namespace, pid) group_left (cluster, run)": "only the labels count",
        "(rl_run_gpu_process_info)) > [1]  -> 1.01": "counts are whole numbers",
    },
    "GPURecoveryNeeded-critical": {
        ") [>] 0 -> >=": "the listed actions are 1 and above",
        ") > [0]  -> 0.01": "the same",
    },
    "GPUXid-critical": _XID,
    "GPUXid-warning": _XID,
    "HostMemory-warning": {
        "14400)) [/] max by": "only its sign counts",
        "(node_memory_MemTotal_bytes) [>] 1 -> >=": "a line is never exactly at 0",
        "14400)) [<] 0 -> <=": "the same",
        "14400)) < [0]  -> 0.01": "nor so close to it",
    },
    "NVLinkErrors-warning": {"> [2]  -> 2.02": _WHOLE},
    "NotificationFailures-critical": {"> [0]  -> 0.01": _WHOLE},
    "RayNodeLost-warning": {"[2h])) > [0] ) -> 0.01": "changes are counted in whole numbers"},
    "RayWorkerOOM-warning": {
        "> [0]  -> 0.01": _WHOLE,
        "over_time(ray_memory_manager_worker_eviction_total [[1h]] ) -> [2h]": (
            "what is older than an hour was there in the hour before"
        ),
        "(sum_over_time(up [[1h]] )) -> [2h]": "the same",
    },
    "ResumedWithLoss-info": {
        "(rl_resume_lost_steps) >= [1]  -> 0.5": "steps are whole",
        "(min_over_time(rl_resumes_total[1h])) >= [1]  -> 0.5": _WHOLE,
    },
    "RemoteWriteFailing-warning": {
        "> bool [0] ) == 1 -> 0.01": _WHOLE,
        "_highest_sent_timestamp_seconds [>] 0)) > 300 -> >=": "the condition for 0 fires as well, in words",
        "_highest_sent_timestamp_seconds > [0] )) > 300 -> 0.01": "seconds since 1970",
        "_highest_sent_timestamp_seconds > [0] ) == 0 -> 0.01": "seconds since 1970",
    },
    "RuleFailures-critical": {"> [0]  -> 0.01": _WHOLE},
    "RunStopped-warning": {
        '(rl_run_state{state="stopped"}[10m])) -> ': "the first condition decides",
        '(rl_run_state{state="stopped"} [[10m]] )) -> [20m]': "the same",
        '(rl_run_exit_info{requested="true"}[10m])) -> ': "always 1",
        '(rl_run_exit_info{requested="true"} [[10m]] )) -> [20m]': "its state is forgotten as soon",
        "[last_over_time] (rl_run_writer_present[10m])) == 0 -> min": "if its writer came back, it runs",
        "(rl_run_writer_present [[10m]] )) == 0 -> [20m]": "its state is forgotten as soon",
    },
    "SeriesLimit-warning": {"> [0]  -> 0.01": _WHOLE},
    "TSDBFailures-warning": {"> [0]  -> 0.01": _WHOLE},
    "TSDBNearLimit-warning": {"> [0] ) > 0.9 -> 0.01": "bytes are whole"},
}
"""By the name of the rule, and a part of what is changed that no change with a difference has."""
