"""Rendered dashboards, for the tests about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from stepwatch.config import load
from stepwatch.config.deployment import InContainers
from stepwatch.render.generator import render_all
from stepwatch.system.environment import CHECKOUT

Json = dict[str, Any]
Render = Callable[..., dict[PurePosixPath, bytes]]
Dashboards = Callable[..., dict[str, Json]]

FOLDER = PurePosixPath("grafana/generated")


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render a configuration text to files by path."""
    folder = tmp_path_factory.mktemp("config")

    def rendered(text: str = "") -> dict[PurePosixPath, bytes]:
        path: Path = folder / "config.yaml"
        path.write_text(text)
        return render_all(load(path), CHECKOUT, lambda _: InContainers())

    return rendered


@pytest.fixture(scope="session")
def dashboards(render: Render) -> Dashboards:
    """Render a configuration text to dashboards by uid."""

    def rendered(text: str = "") -> dict[str, Json]:
        files = [
            json.loads(data) for path, data in render(text).items() if path.parent == FOLDER / "dashboards"
        ]
        return {dashboard["uid"]: dashboard for dashboard in files}

    return rendered


@pytest.fixture(scope="session")
def default(dashboards: Dashboards) -> dict[str, Json]:
    return dashboards()
