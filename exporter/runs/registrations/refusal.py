"""Why a registration is refused."""

from __future__ import annotations


class RefusedError(Exception):
    """Raised when a request cannot be granted: the word it is counted by, its HTTP status, and the reason.

    ``headers`` go with the answer.
    """

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


def malformed(words: str) -> RefusedError:
    """The body is no registration."""
    return RefusedError("malformed", "400 Bad Request", words)
