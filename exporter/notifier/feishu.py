"""Feishu and Lark: a custom bot of a group, with an interactive card."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Sequence
from typing import Any

from exporter.notifier.channel import Outcome, Secrets, Window, coded, encoded, post
from exporter.notifier.fitting import cut, fitted
from exporter.notifier.wording import Card, Wording

MOST_BYTES = 20_000
"""Of a request. What the signature takes is kept free."""
_SIGNATURE_BYTES = 100
_TITLE_BYTES = 600
_COLOURS = {"critical": "red", "warning": "orange", "info": "blue", "resolved": "green"}

CODES = {
    9499: "message",
    11232: "rate_limit",
    19001: "revoked",
    19002: "message",
    19021: "signature",
    19022: "address",
    19024: "keyword",
}
"""What its error codes mean. 9499 stands for a bad request as well as for too many."""
_TOO_MANY = "too many"


class Feishu:
    """A custom bot; ``keyword`` is one that it asks for in each message."""

    windows: tuple[Window, ...] = (Window(100, 60.0), Window(5, 1.0))
    takes_picture = False

    def __init__(self, secrets: Secrets, wording: Wording, keyword: str = "") -> None:
        self._secrets, self._wording, self._keyword = secrets, wording, keyword

    def compose(self, cards: Sequence[Card]) -> tuple[Any, int]:
        most = MOST_BYTES - _SIGNATURE_BYTES
        return fitted(cards, self._wording.merged, self._write, lambda card: len(encoded(card)), most)

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        # Plain text throughout: a card's Markdown knows mentions, <at id=all></at>, and no escape for them.
        lines = [*card.facts, *(f"- {item}" for item in items)]
        if left:
            lines.append(self._wording.and_more(left))
        title = cut(card.title, _TITLE_BYTES)
        if self._keyword and not any(self._keyword in text for text in (title, *lines)):
            lines.append(self._keyword)
        elements: list[Any] = [
            {"tag": "div", "text": {"tag": "plain_text", "content": line}} for line in lines
        ]
        if card.links:
            buttons = [
                {
                    "tag": "button",
                    "text": {"tag": "plain_text", "content": link.words},
                    "url": link.url,
                    "type": "default",
                }
                for link in card.links
            ]
            elements.append({"tag": "action", "actions": buttons})
        return {
            "msg_type": "interactive",
            "card": {
                "config": {"wide_screen_mode": True},
                "header": {
                    "title": {"tag": "plain_text", "content": title},
                    "template": _COLOURS[card.state],
                },
                "elements": elements,
            },
        }

    def send(self, message: Any, _: bytes | None) -> Outcome:
        url, secret = self._secrets.url(), self._secrets.secret()
        signed = {**signature(secret, time.time()), **message} if secret else message
        answer = post(url, encoded(signed), self._secrets.hidden)
        outcome = coded(answer, (("code", "msg"), ("StatusCode", "StatusMessage")), CODES, 60.0)
        if outcome.reason == "message" and _TOO_MANY in outcome.text.lower():
            outcome = outcome._replace(reason="rate_limit", pause=60.0)
        return outcome._replace(text=self._secrets.hidden(outcome.text))


def signature(secret: str, now: float) -> dict[str, str]:
    """Return the fields that sign a message at this time, in Unix seconds; they are valid for an hour."""
    timestamp = str(int(now))
    key = f"{timestamp}\n{secret}".encode()
    return {
        "timestamp": timestamp,
        "sign": base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode(),
    }
