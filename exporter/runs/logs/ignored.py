"""Files that were looked into and are no logs: known again in few bytes, since there may be 200,000."""

from __future__ import annotations

KINDS = ("binary", "no_records")


class Ignored:
    """Files by path and inode, with the size that they had: one that shrinks since is another file.

    A search asks for each file that it comes by, and calls ``sweep`` at its end.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._round = 0
        # Size, kind and round in one number: an object for each would weigh five times as much.
        self._known: dict[int, int] = {}

    def add(self, path: str, inode: int, size: int, kind: str) -> None:
        """Ignore a file until another one takes its place."""
        self._known[hash((path, inode))] = size << 2 | KINDS.index(kind) << 1 | self._round
        self.counts[kind] += 1

    def holds(self, path: str, inode: int, size: int) -> bool:
        """Is this file ignored?"""
        key = hash((path, inode))
        known = self._known.get(key)
        if known is None or size < known >> 2:
            return False
        self._known[key] = known & ~1 | self._round
        return True

    def sweep(self) -> None:
        """Forget the files that were not asked for since the last time."""
        for key in [key for key, known in self._known.items() if known & 1 != self._round]:
            del self._known[key]
        self._round ^= 1
        kinds = [known >> 1 & 1 for known in self._known.values()]
        self.counts = {kind: kinds.count(index) for index, kind in enumerate(KINDS)}
