"""The containers under random faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.containers import KINDS, Containers
from tests.chaos.trial import Trial
from tests.compose.checkout import Checkout
from tests.compose.conftest import Sink
from tests.real.docker import Docker

pytestmark = pytest.mark.world


@pytest.fixture(name="stack")
def _stack(docker: Docker, checkout: Checkout) -> Iterator[Containers]:
    with checkout.running():
        sink = Sink(docker, checkout)
        try:
            with Containers(checkout) as stack:
                yield stack
        finally:
            sink.close()


@pytest.mark.parametrize("seed", range(2))
def test_sick_runs_page_healthy_ones_do_not_and_nothing_is_lost_under_random_faults(
    stack: Containers, seed: int
) -> None:
    trial = Trial(stack, seed, KINDS)
    try:
        trial.run()
    finally:
        print(trial.verdict())
    assert not trial.broken
