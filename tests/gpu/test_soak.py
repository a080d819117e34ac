"""What the exporter takes does not grow; `make bench ARGS=gpu_soak` shows it over 100,000 readings."""

from __future__ import annotations

import pytest

from benchmarks.gpu import soak

pytestmark = pytest.mark.world


def test_neither_memory_nor_files_nor_threads_grow() -> None:
    reported = list(soak(2000))
    early, late = (
        {key: max(each[key] for each in half) for key in reported[0]} for half in (reported[:5], reported[5:])
    )

    assert late["errors"] > early["errors"] > 0
    assert late["files"] == early["files"]
    assert late["threads"] == early["threads"]
    # An object kept in each reading would be 1000 more, one kept with each change of the machine 20.
    assert late["objects"] - early["objects"] < 20
    assert late["resident"] - early["resident"] < 4
