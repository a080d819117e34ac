"""Answers that are given again until what they report has changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from hashlib import sha256

from exporter.http.message import Answer

MOST = 8
"""Pages that are kept: a page of a run may take 200 kB."""


class Kept:
    """The last answers, each with what it was made of."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[object, Answer]] = {}

    def answer(self, key: Hashable, basis: object, make: Callable[[], Answer]) -> Answer:
        """The answer for a key, made anew only if ``basis`` is no longer the same."""
        known = self._answers.pop(key, None)
        answer = known[1] if known and known[0] == basis else make()
        self._answers[key] = basis, answer
        while len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]
        return answer


def digest(value: object) -> bytes:
    """Stands in a basis for what would take too much memory there: the charts of a run hold 1.4 MB.

    It may differ for equals, whose page is then made once more, and is never the same for others. Unlike
    ``hash`` it tells -1.0 from -2.0.
    """
    return sha256(pickle.dumps(value)).digest()
