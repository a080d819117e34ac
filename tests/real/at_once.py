"""Scenarios that mostly wait: all of a module run at the same time, and each is a test of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


class Scenarios(dict[str, Callable[..., None]]):
    """Functions by name; as a decorator it takes one in."""

    def __call__(self, function: Callable[..., None]) -> Callable[..., None]:
        self[function.__name__] = function
        return function

    @contextmanager
    def running(self, *arguments: Any) -> Iterator[dict[str, Future[None]]]:
        """Run all with these arguments; a test asks its own for the result."""
        with ThreadPoolExecutor(len(self)) as pool:
            yield {name: pool.submit(function, *arguments) for name, function in self.items()}
