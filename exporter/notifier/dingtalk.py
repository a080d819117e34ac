"""DingTalk: a custom robot of a group, with an action card."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from exporter.notifier.channel import Outcome, Secrets, Window, coded, encoded, post
from exporter.notifier.fitting import cut, fitted, harmless
from exporter.notifier.wording import Card, Wording

MOST_BYTES = 20_000
BLOCKED_SECONDS = 600.0
"""For which a robot takes nothing after more than 20 messages within a minute."""
_TITLE_BYTES = 600
_COLOURS = {"critical": "#d7263d", "warning": "#ecb22e", "info": "#36a2eb", "resolved": "#2eb67d"}

CODES = {
    -1: "server",
    90030: "rate_limit",
    130101: "rate_limit",
    300001: "revoked",
    300005: "revoked",
    310000: "other",
    400013: "revoked",
    400101: "revoked",
    400102: "revoked",
    400105: "message",
    400106: "revoked",
    410100: "rate_limit",
    430101: "message",
    430102: "message",
    430103: "message",
    430104: "message",
    460101: "message",
}
"""What its error codes mean. 310000 stands for each of the three safeguards; its text says for which."""
_SAFEGUARDS = (
    ("signature", ("sign", "timestamp", "签名")),
    ("keyword", ("keyword", "关键词")),
    ("address", ("whitelist", "ip ", "白名单")),
)


class DingTalk:
    """A custom robot; ``keyword`` is one that it asks for in each message."""

    windows: tuple[Window, ...] = (Window(20, 60.0),)
    takes_picture = False

    def __init__(self, secrets: Secrets, wording: Wording, keyword: str = "") -> None:
        self._secrets, self._wording, self._keyword = secrets, wording, keyword

    def compose(self, cards: Sequence[Card]) -> tuple[Any, int]:
        return fitted(cards, self._wording.merged, self._write, lambda card: len(encoded(card)), MOST_BYTES)

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        title = harmless(cut(card.title, _TITLE_BYTES))
        lines = [f'### <font color="{_COLOURS[card.state]}">{title}</font>', *map(harmless, card.facts)]
        if items:
            lines.append("\n".join(f"- {harmless(item)}" for item in items))
        if left:
            lines.append(self._wording.and_more(left))
        if self._keyword and not any(self._keyword in text for text in lines):
            lines.append(self._keyword)
        content = {"title": title, "text": "\n\n".join(lines)}
        if not card.links:
            return {"msgtype": "markdown", "markdown": content}
        buttons = [{"title": link.words, "actionURL": link.url} for link in card.links]
        return {"msgtype": "actionCard", "actionCard": {**content, "btnOrientation": "0", "btns": buttons}}

    def send(self, message: Any, _: bytes | None) -> Outcome:
        url, secret = self._secrets.url(), self._secrets.secret()
        if secret:
            url += f"{'&' if '?' in url else '?'}{signature(secret, time.time())}"
        answer = post(url, encoded(message), self._secrets.hidden)
        outcome = coded(answer, (("errcode", "errmsg"),), CODES, BLOCKED_SECONDS)
        if outcome.text.startswith("errcode 310000"):
            words = outcome.text.lower()
            found = (name for name, signs in _SAFEGUARDS if any(sign in words for sign in signs))
            outcome = outcome._replace(reason=next(found, "other"))
        return outcome._replace(text=self._secrets.hidden(outcome.text))


def signature(secret: str, now: float) -> str:
    """Return the parameters that sign a request at this time, in Unix seconds; they are valid for an hour."""
    timestamp = str(int(now * 1000))
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
    return f"timestamp={timestamp}&sign={quote(base64.b64encode(digest), safe='')}"
