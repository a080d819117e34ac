"""Each name in a rendered dashboard is one that Grafana's own models of dashboards and panels know.

The models are those of grafana-foundation-sdk. They drop what they do not know, without an error; what they
leave open (transformations, values of overrides, types) they do not check.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

if sys.version_info < (3, 11):
    pytest.skip("grafana-foundation-sdk needs Python 3.11", allow_module_level=True)

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.grafana.conftest import Json

NOT_IN_THE_MODELS = {
    "__generated",  # ours
    # Of Prometheus' data source; the models have those of Grafana's own annotations.
    *(f"annotations.list.{key}" for key in ("tagKeys", "textFormat", "titleFormat", "useValueForTime")),
    *("annotations.list.target.expr", "annotations.list.target.refId"),
    "templating.list.definition",
    "panels.fieldConfig.defaults.custom.spanNulls",  # false is lost: it may be a number as well
    "panels.panels.fieldConfig.defaults.custom.spanNulls",
}


@pytest.fixture(name="_plugins", scope="module", autouse=True)
def _plugins() -> None:
    register_default_plugins()


def lost(dashboard: Json) -> set[str]:
    """The names in a dashboard, below those around them, that the models do not hand on."""
    return set(_missing(dashboard, json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard))), ()))


def _missing(ours: Any, theirs: Any, place: tuple[str, ...]) -> Iterator[str]:
    if isinstance(ours, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from _missing(value, theirs[key], (*place, key))
            else:
                yield ".".join((*place, key))
    elif isinstance(ours, list):
        for one, other in zip(ours, theirs, strict=True):
            yield from _missing(one, other, place)
    else:
        assert ours == theirs, place


def test_grafana_knows_each_name_in_each_dashboard(default: dict[str, Json]) -> None:
    found = {uid: lost(dashboard) - NOT_IN_THE_MODELS for uid, dashboard in default.items()}
    assert found == {uid: set() for uid in default}
