"""Alerts on rollout engines (vLLM and SGLang): unreachable, hung or overloaded servers, and truncation.

Metrics are named as old and new versions do: vLLM renamed its cache, and has another prefix where Ray serves
it; SGLang writes its prefix with a colon or an underscore.
"""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import (
    COMPUTED,
    JUDGED,
    NOTHING,
    RATIO,
    REPORTED,
    RUNS,
    WHOLE,
    Alert,
    Condition,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Limit
from stepwatch.alerts.model.targets import EVENT_WINDOW, SILENT, gone, servers
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Span
from stepwatch.schema.section import default

_alert = partial(Alert, topic="rollout", about="engine")


def _vllm(*names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for prefix in ("vllm:", "ray_vllm_") for name in names)


def _sglang(name: str) -> tuple[str, ...]:
    return f"sglang:{name}", f"sglang_{name}"


VLLM_TOKENS = _vllm("generation_tokens_total")
TOKENS = (*VLLM_TOKENS, *_sglang("generation_tokens_total"))
PREEMPTIONS = (*_vllm("num_preemptions_total"), *_sglang("num_retracted_requests_total"))
FINISHED = (*_vllm("request_success_total"), *_sglang("num_requests_total"))
TRUNCATED = _vllm('request_success_total{finished_reason="length"}')
ANSWERED = _vllm('request_success_total{finished_reason=~"stop|length"}')

_waiting = servers(" or ".join((*_vllm("num_requests_waiting"), *_sglang("num_queue_reqs"))))
_cache = servers(
    " or ".join((*_vllm("kv_cache_usage_perc", "gpu_cache_usage_perc"), *_sglang("token_usage")))
)


def _risen(counters: tuple[str, ...], window: str = "30m") -> Expression:
    return servers(" or ".join(f"increase({each}[{window}])" for each in counters), "sum")


class EngineGone(WarningBlock):
    """A rollout server (`scrape`, role rollout) does not answer, or left the target list, during a run.

    A warning: Stalled pages if the run waits for it.
    """

    for_: Span = hold(
        "5m", "Servers may take minutes to load a model: one of 30B took over 5 (vime #90).", REPORTED
    )


ENGINE_GONE = _alert(
    EngineGone,
    summary="Rollout server is unreachable during a run",
    action="read the server's log, check its process; Stalled pages if a run waits for it",
    conditions=gone(
        "does not answer",
        servers('up{role="rollout"}'),
        servers(f'max_over_time(up{{role="rollout"}}[{EVENT_WINDOW}])'),
        servers("up"),
        servers(SILENT),
    ),
    style=NOTHING,
)


class EngineQueue(WarningBlock):
    """Requests wait for a rollout server that has generated no token for 10 minutes: it hangs.

    Many waiting requests are not a fault: a trainer sends its whole batch at once.
    """

    for_: Span = hold(
        "5m",
        "In addition to the 10 minutes. SGLang counts tokens when a response is complete: 32k tokens at 30"
        " per second take 18 minutes, but some response of a batch is complete within 15.",
        JUDGED,
    )


ENGINE_QUEUE = _alert(
    EngineQueue,
    summary="Rollout server hangs: requests wait, no tokens",
    action="read the server's log; `py-spy dump` of the engine",
    conditions=(
        Condition(
            "no token in 10 min, requests waiting:", _waiting > 0, given=_risen(TOKENS, "10m").equals(0)
        ),
    ),
    style=WHOLE,
)


class EngineKVCacheFull(WarningBlock):
    """A rollout server's KV cache has been full for a long time, and requests wait."""

    used_ratio: scalars.Ratio = default(0.9, "Share of the cache in use.", JUDGED)
    for_: Span = hold("30m", "A batch fills the cache by design, and empties it before the next one.", JUDGED)


ENGINE_KV_CACHE_FULL = _alert(
    EngineKVCacheFull,
    summary="KV cache of a rollout server is full",
    action="add memory for the cache, or send fewer or shorter requests at once",
    conditions=(
        Condition("KV cache in use while requests wait:", _cache > Limit("used_ratio"), given=_waiting > 0),
    ),
    style=RATIO,
)


class EnginePreemptions(WarningBlock):
    """A rollout server preempts requests (SGLang: retracts) for lack of KV cache, and recomputes them."""

    per_request: scalars.Limit = default(
        0.5,
        "Per finished request, within 30 minutes. With small caches, 10 to 30 % of the work was done twice"
        " (vLLM #54644).",
        JUDGED,
    )
    preemptions: scalars.Count = default(
        30, "And more than this many within 30 minutes: one per minute is harmless.", JUDGED
    )
    for_: Span = hold("5m", "Longer than one burst.", JUDGED)


ENGINE_PREEMPTIONS = _alert(
    EnginePreemptions,
    summary="Rollout server preempts too many requests",
    action="add memory for the KV cache, or send fewer requests at once",
    conditions=(
        Condition(
            "preemptions per finished request in 30 min:",
            _risen(PREEMPTIONS) / _risen(FINISHED) > Limit("per_request"),
            given=_risen(PREEMPTIONS) > Limit("preemptions"),
        ),
    ),
    style="%.2g",
)


class EngineTruncated(WarningBlock):
    """Nearly all responses of a rollout server end at the length limit.

    vLLM only: SGLang does not report how requests end. Replaces Truncation if the trainer does not log it.
    """

    truncated_ratio: scalars.Ratio = default(
        0.9,
        "Share of the responses within 30 minutes, without aborted ones. As for Truncation: healthy runs"
        " start at up to 0.84.",
        RUNS,
    )
    requests: scalars.Count = default(
        100,
        "And more than this many responses: with fewer, a true share of 0.8 can be measured as 0.9.",
        COMPUTED,
    )
    tokens: scalars.Count = default(
        16,
        "And more than this many tokens per response on average: scoring servers generate one token.",
        JUDGED,
    )
    for_: Span = hold("5m", "Longer than one unusual batch.", JUDGED)


ENGINE_TRUNCATED = _alert(
    EngineTruncated,
    summary="Rollout server truncates nearly all responses",
    action="read some responses; if they do not repeat themselves, raise the length limit",
    conditions=(
        Condition(
            "responses that ended at the length limit in 30 min:",
            _risen(TRUNCATED) / _risen(ANSWERED) > Limit("truncated_ratio"),
            given=(_risen(ANSWERED) > Limit("requests"))
            & (_risen(VLLM_TOKENS) / _risen(ANSWERED) > Limit("tokens")),
        ),
    ),
    style=RATIO,
)

ALERTS = (ENGINE_GONE, ENGINE_QUEUE, ENGINE_KV_CACHE_FULL, ENGINE_PREEMPTIONS, ENGINE_TRUNCATED)
