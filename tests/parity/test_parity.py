"""The product does what it did: what each surface shows is what was frozen of it."""

from __future__ import annotations

import difflib

import pytest

from tests import public_logs
from tests.gpu import golden as gpu
from tests.parity.surfaces import FOLDER, PUBLIC, SURFACES, golden, shown

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FIX = "If this is meant: `python -m tests.parity {}`, and name the difference in the commit."
MOST_BYTES = 600_000


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=public_logs.needed if name in PUBLIC else ()) for name in SURFACES],
)
def test_the_product_shows_what_was_frozen(name: str) -> None:
    now, frozen = shown(name), golden(name).read_text(encoding="utf-8")
    difference = difflib.unified_diff(
        frozen.splitlines(), now.splitlines(), "frozen", "now", n=0, lineterm=""
    )
    assert now == frozen, "\n".join([FIX.format(name), *difference])


def test_the_simulated_gpus_show_what_tests_gpu_keeps_of_them() -> None:
    changed = [name for name, page in gpu.pages().items() if page != gpu.path(name).read_text()]
    assert changed == [], "If this is meant: `python -m tests.gpu.golden`."


def test_every_golden_file_is_compared_and_all_are_small() -> None:
    kept = sorted(FOLDER.iterdir())
    assert {file.stem for file in kept} == set(SURFACES)
    assert sum(file.stat().st_size for file in kept) < MOST_BYTES
