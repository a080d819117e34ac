"""WeCom: a robot of a group, with Markdown, and the curve as a picture of its own."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from exporter.notifier.channel import Outcome, Secrets, Window, coded, encoded, post
from exporter.notifier.fitting import cut, fitted, harmless
from exporter.notifier.wording import Card, Wording

logger = logging.getLogger(__name__)

MOST_BYTES = 4096
"""Of the Markdown."""
MOST_PICTURE = 2 << 20
_TITLE_BYTES = 400
_FACT_BYTES = 700
_ITEM_BYTES = 400
_URL_BYTES = 400
"""A longer one is left out: run names may take three signs for each byte."""
_COLOURS = {"critical": "warning", "warning": "warning", "info": "comment", "resolved": "info"}
"""It knows three: orange, grey and green."""

CODES = {
    -1: "server",
    40008: "message",
    40009: "message",
    40058: "message",
    44004: "message",
    45002: "message",
    45009: "rate_limit",
    45033: "rate_limit",
    93000: "revoked",
    93008: "revoked",
}
"""What its error codes mean."""


class WeCom:
    """A robot of a group. A message with a picture is two requests."""

    windows: tuple[Window, ...] = (Window(20, 60.0),)
    takes_picture = True

    def __init__(self, secrets: Secrets, wording: Wording) -> None:
        self._secrets, self._wording = secrets, wording

    def compose(self, cards: Sequence[Card]) -> tuple[Any, int]:
        return fitted(
            cards,
            self._wording.merged,
            self._write,
            lambda message: len(message["markdown"]["content"].encode("utf-8", "replace")),
            MOST_BYTES,
        )

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        title = harmless(cut(card.title, _TITLE_BYTES))
        lines = [f'**<font color="{_COLOURS[card.state]}">{title}</font>**']
        lines += [harmless(cut(fact, _FACT_BYTES)) for fact in card.facts]
        lines += [f"> {harmless(cut(item, _ITEM_BYTES))}" for item in items]
        if left:
            lines.append(self._wording.and_more(left))
        links = [f"[{link.words}]({link.url})" for link in card.links if len(link.url) <= _URL_BYTES]
        if links:
            lines.append(" · ".join(links))
        return {"msgtype": "markdown", "markdown": {"content": "\n".join(lines)}}

    def send(self, message: Any, picture: bytes | None) -> Outcome:
        outcome = self._post(message)
        if not outcome.reason and picture and len(picture) <= MOST_PICTURE:
            # The message has arrived: without its picture it is one still.
            drawn = self._post(
                {
                    "msgtype": "image",
                    "image": {
                        "base64": base64.b64encode(picture).decode(),
                        "md5": hashlib.md5(picture, usedforsecurity=False).hexdigest(),
                    },
                }
            )
            if drawn.reason:
                logger.warning("The picture of a message was not accepted: %s", drawn.text)
        return outcome

    def _post(self, message: Any) -> Outcome:
        answer = post(self._secrets.url(), encoded(message), self._secrets.hidden)
        outcome = coded(answer, (("errcode", "errmsg"),), CODES, 60.0)
        return outcome._replace(text=self._secrets.hidden(outcome.text))
