"""Limits of alerts on rollout engines. Field names are the keys of config.yaml; why each number: there."""

from __future__ import annotations

from pydantic import Field

from stepwatch.config.events import StackBlock
from stepwatch.config.quantities import Duration
from stepwatch.config.scalars import Count, Limit, Ratio, Severity, Span


class EngineGone(StackBlock):
    """A rollout server does not answer, or is on no list any more, while a run is running."""

    severity: Severity = "warning"
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class EngineQueue(StackBlock):
    """Requests wait, and no token was generated for 10 minutes."""

    severity: Severity = "warning"
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class EngineKVCacheFull(StackBlock):
    """More than `above`, a share, of the KV cache is in use while requests wait."""

    severity: Severity = "warning"
    above: Ratio = 0.9
    for_: Span = Field(default=Duration.parse("30m"), alias="for")


class EnginePreemptions(StackBlock):
    """Within 30 minutes, at least `preemptions` and `per_request` for each finished request."""

    severity: Severity = "warning"
    per_request: Limit = 0.5
    preemptions: Count = 30
    for_: Span = Field(default=Duration.parse("5m"), alias="for")


class EngineTruncated(StackBlock):
    """Within 30 minutes, a share `above` of at least `requests` of some `tokens` each ended by length."""

    severity: Severity = "warning"
    above: Ratio = 0.9
    requests: Count = 100
    tokens: Count = 16
    for_: Span = Field(default=Duration.parse("5m"), alias="for")
