"""How far the work has come, for people at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

Tick = Callable[[], object]
"""Called whenever one more piece of the work is done."""


class Progress:
    """A bar on standard error for each part of the work; nothing where that is no terminal."""

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[[], object]]:
        """Show a part of so many pieces; what is yielded is to be called after each."""
        shown = sys.stderr.isatty()
        with tqdm(desc=what, total=total, leave=False, disable=not shown, file=sys.stderr) as bar:
            yield bar.update

    def say(self, line: str) -> None:
        """A line about what is being fetched, which may take long."""
        tqdm.write(line, file=sys.stderr)
