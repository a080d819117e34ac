"""Suggestions in words, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from stepwatch.backtest.limits import REACH
from stepwatch.backtest.suggestions import Change, Suggestion

MOST_NAMES = 3

INTRODUCTION = (
    f"Each limit alone, tried from 1/{REACH} to {REACH} times what it is, as far as the configuration takes "
    "it, in steps of two digits: from which value on would an alert fire on other runs?"
)


def sides(suggestion: Suggestion) -> tuple[str, str]:
    """What a lower limit would change, and what a higher one; the first says it where neither does."""
    lowest, highest = f"{suggestion.lowest:g}", f"{suggestion.highest:g}"
    if not suggestion.lower and not suggestion.higher:
        return f"no change between {lowest} and {highest}", ""
    lower = _changed("<=", suggestion.lower) or f"no change down to {lowest}"
    return lower, _changed(">=", suggestion.higher) or f"no change up to {highest}"


def _changed(sign: str, change: Change | None) -> str:
    if not change:
        return ""
    sides = (("also on", change.also), ("no longer on", change.no_longer))
    return f"at {sign} {change.value:g} {' and '.join(f'{how} {_few(runs)}' for how, runs in sides if runs)}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def unreached(suggestions: Sequence[Suggestion]) -> str:
    """The limits that no run comes near, in one line; empty if there are none."""
    reached = {suggestion.limit for suggestion in suggestions if suggestion.reached}
    keys = dict.fromkeys(each.limit for each in suggestions if each.limit not in reached)
    if not keys:
        return ""
    return f"No run comes near these, at 1/{REACH} and at {REACH} times the limit alike: {', '.join(keys)}."
