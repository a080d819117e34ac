"""Cuts a message to what its channel takes: whole lines are left out, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exporter.notifier.wording import Card


def fitted(
    cards: Sequence[Card],
    merge: Callable[[Sequence[Card]], Card],
    write: Callable[[Card, Sequence[str], int], Any],
    size: Callable[[Any], int],
    most: int,
) -> tuple[Any, int]:
    """Return a message within a limit of bytes, and how many of the cards it holds.

    One card is cut to fit. Of several, as many are merged as fit whole: the others wait for the next message.

    Args:
        cards: What to tell.
        merge: Makes one card of several.
        write: Writes a card with these of its lines, and the number of omitted lines.
        size: Bytes of what was written.
        most: Bytes that the channel takes.
    """
    if len(cards) > 1:
        held = _longest(len(cards), lambda count: size(_whole(merge(cards[:count]), write)) <= most)
        if held > 1:
            return _whole(merge(cards[:held]), write), held
    card = cards[0]

    def written(count: int) -> Any:
        return write(card, card.items[:count], len(card.items) - count + card.more)

    return written(_longest(len(card.items), lambda count: size(written(count)) <= most)), 1


def _whole(card: Card, write: Callable[[Card, Sequence[str], int], Any]) -> Any:
    return write(card, card.items, card.more)


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, 0 if none does; a larger one never fits if a smaller does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def cut(text: str, most: int) -> str:
    """Return a text cut to a number of bytes of UTF-8."""
    content = text.encode("utf-8", "replace")
    return text if len(content) <= most else f"{content[: most - 4].decode('utf-8', 'ignore')} ..."


_MARKUP = {ord(sign): chr(ord(sign) + 0xFEE0) for sign in "<>[]*#"} | {ord("`"): "'"}
"""To the full-width forms of these signs."""


def harmless(text: str) -> str:
    """Return a text in which nothing is markup, a mention or a link to a robot that reads Markdown.

    These robots have no escapes: special characters are replaced by similar ones.
    """
    return text.translate(_MARKUP)
