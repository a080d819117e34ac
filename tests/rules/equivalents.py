"""Changes of rules that make no difference, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

_WHOLE = "counters rise by whole numbers"

_XID = {
    "> [0]  -> 0.01": _WHOLE,
    '"} [[1h]] ) < on -> [2h]': "what is older than an hour was there in the hour before",
    "(sum_over_time(up [[1h]] )) -> [2h]": "the same",
}

_REMEMBERED = "the node itself is remembered for an hour, by `up`"
_LISTED = "servers are remembered for an hour"
_LABELS = "only the labels count"
_STEPS = "a delay that made one step is steady later"

EQUIVALENTS: dict[str, Mapping[str, str]] = {
    "AgentBacklog-warning": {
        "_delay_seconds [[5m]] ) - min_over_time(stepwatch_agent_delay_seconds[5m -> [10m]": _STEPS,
        "stepwatch_agent_delay_seconds [[5m]] ) < 10) -> [10m]": _STEPS,
    },
    "ClockSkew-warning": {
        "_delay_seconds [[5m]] ) - min_over_time(stepwatch_agent_delay_seconds[5m -> [10m]": _STEPS,
        '[[5m]] ) < 10, "instance", "$1", "node", "(.+)"), "job",  -> [10m]': _STEPS,
    },
    "InfiniBandErrors-warning": {"[1h])) > [5]  -> 5.05": _WHOLE, "[1h])) > [0]  -> 0.01": _WHOLE},
    "EngineGone-warning": {
        "[2h])) > [0] ) -> 0.01": "changes are counted in whole numbers",
        '(up{node!=""} [[1h]] ) and on (node) (time() - max by (node) (max_over_ -> [2h]': _LISTED,
        "stepwatch_agent_last_write_timestamp_seconds [[1h]] )) > 60)) -> [2h]": _LISTED,
    },
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
    "NotificationFailures-critical": {
        "> [0]  -> 0.01": _WHOLE,
        "[last_over_time] (stepwatch_bridge_receiver_info[5m])) > 0 -> ": "always 1",
    },
    "NodeLost-critical": {
        "[[1h]] )) > 120 -> [2h]": _REMEMBERED,
        '(rl_run_state{state="running"} [[1h]] )) == 1)) unless -> [2h]': _REMEMBERED,
        '[[1h]] )) == 1), "node", "$1", "instance", "(.+):[0-9]+") -> [2h]': _REMEMBERED,
        '(rl_run_gpu [[1h]] ), "node", "$1", "instance", "(.+):[0-9]+")) -> [2h]': _REMEMBERED,
        "(rl_run_gpu [[1h]] ) and on (cluster, run) (max by (cluster, run) (la -> [2h]": _REMEMBERED,
        '(gpu_memory_used_bytes{node!=""} [[1h]] ))) -> [2h]': _REMEMBERED,
        '_bytes{node!=""} [[1h]] ) / last_over_time(gpu_memory_total_bytes{node!="" -> [2h]': _REMEMBERED,
        '(gpu_memory_total_bytes{node!=""} [[1h]] ) > 0.1 -> [2h]': _REMEMBERED,
        '[last_over_time] (gpu_memory_total_bytes{node!=""}[1h]) > 0.1 -> ': "it stays the same",
    },
    "RayNodeLost-warning": {
        "[2h])) > [0] ) -> 0.01": "changes are counted in whole numbers",
        '(up{node!=""} [[1h]] ) and on (node) (time() - max by (node) (max_over_ -> [2h]': _LISTED,
        '_timestamp_seconds [[1h]] )) > 60), "node", "$1", "instance", "(.+?)(?::[0-9 -> [2h]': _LISTED,
    },
    "RayWorkerOOM-warning": {
        "> [0]  -> 0.01": _WHOLE,
        "over_time(ray_memory_manager_worker_eviction_total [[1h]] ) -> [2h]": (
            "what is older than an hour was there in the hour before"
        ),
        "(sum_over_time(up [[1h]] )) -> [2h]": "the same",
    },
    "ResumedWithLoss-info": {
        "limit  [1] -> 0.5": "steps are whole",
        "(min_over_time(rl_resumes_total[1h]))) >= [1] -> 0.5": _WHOLE,
    },
    "RemoteWriteFailing-warning": {
        "> bool [0] ) == 1 -> 0.01": _WHOLE,
        "_highest_sent_timestamp_seconds [>] 0)) > 300 -> >=": "the condition for 0 fires as well, in words",
        "_highest_sent_timestamp_seconds > [0] )) > 300 -> 0.01": "seconds since 1970",
        "_highest_sent_timestamp_seconds > [0] ) == 0 -> 0.01": "seconds since 1970",
    },
    "RuleFailures-critical": {"> [0]  -> 0.01": _WHOLE},
    "RunStopped-warning": {
        '[last_over_time] (rl_run_state{state="stopped"}[10m])) and -> ': "the first condition decides",
        '(rl_run_state{state="stopped"} [[10m]] )) and -> [20m]': "the same",
        '[last_over_time] (rl_run_exit_info{requested="true"}[10m])) -> ': "always 1",
        '(rl_run_exit_info{requested="true"} [[10m]] )) -> [20m]': "its state is forgotten as soon",
        "[last_over_time] (rl_run_writer_present[10m])) == 0 -> min": "if its writer came back, it runs",
        "(rl_run_writer_present [[10m]] )) == 0 -> [20m]": "its state is forgotten as soon",
    },
    "SeriesLimit-warning": {"> [0]  -> 0.01": _WHOLE},
    "Straggler-warning": {
        "(0 [*] rl_gpu_clock_ratio + on (cluster, run, peers, mo": _LABELS,
        "and min by (cluster, instance, gpu, uuid) ( [0] * rl_gpu_clock_ratio": _LABELS,
        "( [0.5] , rl_gpu_clock_ratio)) -> 0.505": "hardly another median",
    },
    "TSDBFailures-warning": {"> [0]  -> 0.01": _WHOLE},
    "TSDBNearLimit-warning": {"> [0] ) > 0.9 -> 0.01": "bytes are whole"},
}
"""By the name of the rule, and a part of what is changed that no change with a difference has."""
