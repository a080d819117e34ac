"""The cases of every rule about the metrics of rollout engines: series over time, and what fires when."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tests.rules.series import selector
from tests.rules.servers import OTHER_SERVER, SERVER
from tests.rules.stack import Labels, Scenario, by_the_minute


def engine(name: str, labels: Labels = SERVER, **more: str) -> str:
    """A series of an engine; vLLM numbers its engines, SGLang its ranks."""
    rank = {"engine": "0"} if "vllm" in name else {"tp_rank": "0"}
    return selector(name, **labels, model_name="m", **rank, **more)


VLLM = {
    "waiting": "vllm:num_requests_waiting",
    "cache": "vllm:kv_cache_usage_perc",
    "tokens": "vllm:generation_tokens_total",
    "preempted": "vllm:num_preemptions_total",
    "finished": "vllm:request_success_total",
}
OLD_VLLM = {**VLLM, "cache": "vllm:gpu_cache_usage_perc"}


def by_ray(names: Mapping[str, str]) -> dict[str, str]:
    """Names of vLLM where Ray serves it."""
    return {what: name.replace("vllm:", "ray_vllm_") for what, name in names.items()}


SGLANG = {
    "waiting": "sglang:num_queue_reqs",
    "cache": "sglang:token_usage",
    "tokens": "sglang:generation_tokens_total",
    "preempted": "sglang:num_retracted_requests_total",
    "finished": "sglang:num_requests_total",
}
SPELLINGS = {
    "vLLM": VLLM,
    "an old vLLM": OLD_VLLM,
    "vLLM behind Ray": by_ray(VLLM),
    "an old vLLM behind Ray": by_ray(OLD_VLLM),
    "SGLang": SGLANG,
    "SGLang with underscores": {what: name.replace(":", "_") for what, name in SGLANG.items()},
}
"""What engines and versions call the same thing."""


def spelt(names: Mapping[str, str], labels: Labels = SERVER, **values: str) -> dict[str, str]:
    """Series of an engine of one kind."""
    return {engine(names[what], labels): value for what, value in values.items()}


STUCK = "5e6+1000x9 5009000+0x200"
"""Tokens: none after the ninth minute, so that ten minutes without one are over in the 18th or 19th."""

HANGS = (
    *(
        by_the_minute(
            f"{name} hangs, then answers",
            spelt(names, waiting="5+0x29 0+0x100", tokens=STUCK),
            {9: [], 22: [], 25: [SERVER], 39: [SERVER], 41: []},
        )
        for name, names in SPELLINGS.items()
    ),
    by_the_minute(
        "a batch waits and is worked on", spelt(VLLM, waiting="500+0x90", tokens="0+9x90"), {30: [], 80: []}
    ),
    by_the_minute("nothing waits", spelt(VLLM, waiting="0+0x90", tokens=STUCK), {30: [], 80: []}),
    by_the_minute("one waits", spelt(VLLM, waiting="1+0x90", tokens=STUCK), {25: [SERVER]}),
    by_the_minute(
        "it is restarted", spelt(VLLM, waiting="5+0x90", tokens="5e6+9x30 0+9x60"), {30: [], 40: [], 80: []}
    ),
    by_the_minute(
        "it waits for five minutes",
        spelt(VLLM, waiting="0+0x29 5+0x3 0+0x60", tokens=STUCK),
        {34: [], 50: []},
    ),
    by_the_minute("no tokens are counted", spelt(VLLM, waiting="5+0x90"), {30: [], 80: []}),
    by_the_minute(
        "one server of two hangs",
        {
            **spelt(VLLM, waiting="5+0x90", tokens=STUCK),
            **spelt(VLLM, OTHER_SERVER, waiting="5+0x90", tokens="5e6+1000x90"),
        },
        {25: [SERVER], 80: [SERVER]},
    ),
    by_the_minute(
        "it hangs, and is not scraped for two minutes",
        spelt(
            VLLM,
            waiting="5+0x29 stale _x1 5+0x60",
            tokens=STUCK.replace("0x200", "0x19 stale _x1 5009000+0x60"),
        ),
        {29: [SERVER], 31: [SERVER], 35: [SERVER], 80: [SERVER]},
    ),
)

FILLS = (
    *(
        by_the_minute(
            f"{name} has no room, then has",
            spelt(names, cache="0.905+0x40 0.5+0x100", waiting="3+0x200"),
            {29: [], 30: [SERVER], 50: [SERVER], 52: []},
        )
        for name, names in SPELLINGS.items()
    ),
    by_the_minute(
        "as full as the limit", spelt(VLLM, cache="0.9+0x200", waiting="3+0x200"), {35: [], 90: []}
    ),
    by_the_minute(
        "full, and nothing waits", spelt(VLLM, cache="1+0x200", waiting="0+0x200"), {35: [], 90: []}
    ),
    by_the_minute("full, and it does not report what waits", spelt(VLLM, cache="1+0x200"), {35: [], 90: []}),
    by_the_minute(
        "full in each step for 25 minutes",
        spelt(VLLM, cache=" ".join(["1+0x24 0.2+0x4"] * 4), waiting="3+0x200"),
        {35: [], 59: [], 90: []},
    ),
    by_the_minute(
        "one server of two",
        {
            **spelt(VLLM, cache="1+0x90", waiting="3+0x90"),
            **spelt(VLLM, OTHER_SERVER, cache="0.5+0x90", waiting="3+0x90"),
        },
        {35: [SERVER]},
    ),
)

SIX_MINUTES = 360
"""Five samples in 30 minutes: what is counted then comes out even, to the last digit."""


def _every_six(name: str, series: dict[str, str], alerts: Mapping[int, list[Labels]]) -> Scenario:
    """A scenario in steps of six minutes."""
    moments: dict[float, list[Labels]] = {SIX_MINUTES * at + 60: fired for at, fired in alerts.items()}
    return Scenario(name, series, moments, SIX_MINUTES)


def _steady(per_sample: float) -> str:
    """A counter that has counted before."""
    return f"100000+{per_sample}x60"


PREEMPTS = (
    *(
        _every_six(
            f"{name} preempts half of the requests and more, then none",
            spelt(names, preempted="100000+20.125x20 100402.5+0x40", finished=_steady(40)),
            {1: [], 2: [SERVER], 20: [SERVER], 22: [SERVER], 24: []},
        )
        for name, names in SPELLINGS.items()
    ),
    _every_six(
        "just half of the requests", spelt(VLLM, preempted=_steady(40), finished=_steady(80)), {9: [], 40: []}
    ),
    *(
        scenario
        for name, names in SPELLINGS.items()
        for scenario in (
            _every_six(
                f"{name}, two in five for hours",
                spelt(names, preempted=_steady(8), finished=_steady(20)),
                {9: [], 40: []},
            ),
            _every_six(
                f"{name}, three in five for hours",
                spelt(names, preempted=_steady(12), finished=_steady(20)),
                {9: [SERVER], 40: [SERVER]},
            ),
            _every_six(
                f"{name}, few of few after many of many",
                spelt(names, preempted="100000+8x5 100042+2x40", finished="100000+200x5 101002+2x40"),
                {9: [], 11: [], 12: [], 20: []},
            ),
        )
    ),
    _every_six("just thirty", spelt(VLLM, preempted=_steady(6), finished=_steady(6)), {9: [], 40: []}),
    _every_six(
        "just more than thirty", spelt(VLLM, preempted=_steady(6.05), finished=_steady(6)), {9: [SERVER]}
    ),
    _every_six("none", spelt(VLLM, preempted=_steady(0), finished=_steady(40)), {9: []}),
    _every_six("nothing is finished", spelt(VLLM, preempted=_steady(20), finished=_steady(0)), {9: [SERVER]}),
    _every_six(
        "it is restarted",
        spelt(VLLM, preempted="100000+1x20 0+1x40", finished="100000+40x20 0+40x40"),
        {19: [], 21: [], 22: [], 40: []},
    ),
    _every_six(
        "one server of two",
        {
            **spelt(VLLM, preempted=_steady(40), finished=_steady(40)),
            **spelt(VLLM, OTHER_SERVER, preempted=_steady(1), finished=_steady(40)),
        },
        {9: [SERVER]},
    ),
)


def _ends(
    length: float,
    stop: float,
    tokens: float,
    labels: Labels = SERVER,
    aborted: float = 0,
    *,
    names: Mapping[str, str] = VLLM,
) -> dict[str, str]:
    """Requests that end for these reasons within six minutes, with so many tokens for each answer."""
    how = {"length": length, "stop": stop, "abort": aborted}
    return {
        **{
            engine(names["finished"], labels, finished_reason=reason): _steady(count)
            for reason, count in how.items()
        },
        engine(names["tokens"], labels): _steady((length + stop) * tokens),
    }


def _answers(name: str, names: Mapping[str, str]) -> tuple[Scenario, ...]:
    ends = partial(_ends, names=names)
    return (
        _every_six(f"{name}: nearly all by length", ends(30, 1, 500), {3: [], 4: [SERVER], 40: [SERVER]}),
        _every_six(f"{name}: just nine in ten", ends(27, 3, 500), {9: [], 40: []}),
        _every_six(f"{name}: just more than nine in ten", ends(27.2, 2.8, 500), {9: [SERVER]}),
        _every_six(f"{name}: more than four in five for hours", ends(85, 15, 500), {9: [], 40: []}),
        _every_six(f"{name}: just a hundred answers", ends(20, 0, 500), {9: [], 40: []}),
        _every_six(
            f"{name}: just more than a hundred answers", ends(20.1, 0, 500), {9: [SERVER], 40: [SERVER]}
        ),
        _every_six(f"{name}: sixty answers in 30 minutes for hours", ends(12, 0, 500), {9: [], 40: []}),
        _every_six(f"{name}: answers of 16 tokens", ends(30, 0, 16), {9: [], 40: []}),
        _every_six(
            f"{name}: answers of just more than 16 tokens", ends(30, 0, 16.1), {9: [SERVER], 40: [SERVER]}
        ),
    )


ENDS = (
    *_answers("vLLM", VLLM),
    *_answers("vLLM behind Ray", by_ray(VLLM)),
    _every_six("scores of one token", _ends(3000, 0, 1), {9: [], 40: []}),
    _every_six("those that the trainer aborts are no answers", _ends(30, 1, 500, aborted=300), {9: [SERVER]}),
    _every_six("none ends", _ends(0, 0, 0), {9: []}),
    _every_six(
        "the limit is raised",
        {
            **_ends(30, 1, 500),
            engine(VLLM["finished"], finished_reason="length"): "100000+30x20 100600+0x40",
            engine(VLLM["finished"], finished_reason="stop"): "100000+1x20 100051+31x40",
        },
        {20: [SERVER], 22: [SERVER], 24: []},
    ),
    _every_six("one server of two", {**_ends(30, 1, 500), **_ends(1, 30, 500, OTHER_SERVER)}, {9: [SERVER]}),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("EngineQueue", "warning"): HANGS,
    ("EngineKVCacheFull", "warning"): FILLS,
    ("EnginePreemptions", "warning"): PREEMPTS,
    ("EngineTruncated", "warning"): ENDS,
}
