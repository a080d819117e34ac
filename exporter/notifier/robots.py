"""The kinds of channels: robots of Feishu, DingTalk and WeCom, and every other service by Apprise.

``CODES`` of a robot says what its error codes mean.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from urllib.parse import quote

from exporter.notifier.channel import Outcome, Robot, Window, coded, encoded, plain, post
from exporter.notifier.wording import Card

logger = logging.getLogger(__name__)
_MARKUP = {ord(sign): chr(ord(sign) + 0xFEE0) for sign in "<>[]*#"} | {ord("`"): "'"}
"""To the full-width forms of these signs."""


def _cut(text: str, most: int) -> str:
    """Return a text cut to a number of bytes of UTF-8."""
    content = text.encode("utf-8", "replace")
    return text if len(content) <= most else f"{content[: most - 4].decode('utf-8', 'ignore')} ..."


def _harmless(text: str) -> str:
    """Return a text in which nothing is markup, a mention or a link to a robot that reads Markdown.

    These robots have no escapes: special characters are replaced by similar ones.
    """
    return text.translate(_MARKUP)


class Feishu(Robot):
    """A custom bot of a group of Feishu or Lark, with an interactive card."""

    windows = (Window(100, 60.0), Window(5, 1.0))
    most_bytes = 20_000 - 100  # which the signature takes
    TITLE_BYTES = 600
    COLOURS: Mapping[str, str] = {"critical": "red", "warning": "orange", "info": "blue", "resolved": "green"}
    CODES: Mapping[int, str] = {
        9499: "message",  # or too many
        11232: "rate_limit",
        19001: "revoked",
        19002: "message",
        19021: "signature",
        19022: "address",
        19024: "keyword",
    }

    def send(self, message: Any) -> Outcome:
        url, secret = self._secrets.url(), self._secrets.secret()
        if secret:
            # The fields are valid for an hour.
            timestamp = str(int(time.time()))
            digest = hmac.new(f"{timestamp}\n{secret}".encode(), b"", hashlib.sha256).digest()
            message = {"timestamp": timestamp, "sign": base64.b64encode(digest).decode(), **message}
        answer = post(url, encoded(message), self._secrets.hidden)
        outcome = coded(answer, (("code", "msg"), ("StatusCode", "StatusMessage")), self.CODES, 60.0)
        if outcome.reason == "message" and "too many" in outcome.text.lower():
            outcome = outcome._replace(reason="rate_limit", pause=60.0)
        return outcome._replace(text=self._secrets.hidden(outcome.text))

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        # Plain text throughout: a card's Markdown knows mentions, <at id=all></at>, and no escape for them.
        lines = [*card.facts, *(f"- {item}" for item in items)]
        if left:
            lines.append(self._wording.and_more(left))
        title = _cut(card.title, self.TITLE_BYTES)
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
                    "template": self.COLOURS[card.state],
                },
                "elements": elements,
            },
        }


class DingTalk(Robot):
    """A custom robot of a group of DingTalk, with an action card."""

    windows = (Window(20, 60.0),)
    most_bytes = 20_000
    BLOCKED_SECONDS = 600.0  # for which a robot takes nothing after more than 20 messages within a minute
    TITLE_BYTES = 600
    COLOURS: Mapping[str, str] = {
        "critical": "#d7263d",
        "warning": "#ecb22e",
        "info": "#36a2eb",
        "resolved": "#2eb67d",
    }
    CODES: Mapping[int, str] = {
        -1: "server",
        90030: "rate_limit",
        130101: "rate_limit",
        300001: "revoked",
        300005: "revoked",
        310000: "other",  # any of the three safeguards; its text says which
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
    SAFEGUARDS = (
        ("signature", ("sign", "timestamp", "签名")),
        ("keyword", ("keyword", "关键词")),
        ("address", ("whitelist", "ip ", "白名单")),
    )

    def send(self, message: Any) -> Outcome:
        url, secret = self._secrets.url(), self._secrets.secret()
        if secret:
            # The parameters are valid for an hour.
            timestamp = str(int(time.time() * 1000))
            digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
            signature = f"timestamp={timestamp}&sign={quote(base64.b64encode(digest), safe='')}"
            url += f"{'&' if '?' in url else '?'}{signature}"
        answer = post(url, encoded(message), self._secrets.hidden)
        outcome = coded(answer, (("errcode", "errmsg"),), self.CODES, self.BLOCKED_SECONDS)
        if outcome.text.startswith("errcode 310000"):
            words = outcome.text.lower()
            found = (name for name, signs in self.SAFEGUARDS if any(sign in words for sign in signs))
            outcome = outcome._replace(reason=next(found, "other"))
        return outcome._replace(text=self._secrets.hidden(outcome.text))

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        title = _harmless(_cut(card.title, self.TITLE_BYTES))
        lines = [f'### <font color="{self.COLOURS[card.state]}">{title}</font>', *map(_harmless, card.facts)]
        if items:
            lines.append("\n".join(f"- {_harmless(item)}" for item in items))
        if left:
            lines.append(self._wording.and_more(left))
        if self._keyword and not any(self._keyword in text for text in lines):
            lines.append(self._keyword)
        content = {"title": title, "text": "\n\n".join(lines)}
        if not card.links:
            return {"msgtype": "markdown", "markdown": content}
        buttons = [{"title": link.words, "actionURL": link.url} for link in card.links]
        return {"msgtype": "actionCard", "actionCard": {**content, "btnOrientation": "0", "btns": buttons}}


class WeCom(Robot):
    """A robot of a group of WeCom, with Markdown."""

    windows = (Window(20, 60.0),)
    most_bytes = 4096  # of the Markdown
    TITLE_BYTES = 400
    FACT_BYTES = 700
    ITEM_BYTES = 400
    URL_BYTES = 400  # A longer one is left out: run names may take three signs for each byte
    COLOURS: Mapping[str, str] = {
        "critical": "warning",
        "warning": "warning",
        "info": "comment",
        "resolved": "info",
    }
    """It knows three: orange, grey and green."""
    CODES: Mapping[int, str] = {
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

    def send(self, message: Any) -> Outcome:
        answer = post(self._secrets.url(), encoded(message), self._secrets.hidden)
        outcome = coded(answer, (("errcode", "errmsg"),), self.CODES, 60.0)
        return outcome._replace(text=self._secrets.hidden(outcome.text))

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        title = _harmless(_cut(card.title, self.TITLE_BYTES))
        lines = [f'**<font color="{self.COLOURS[card.state]}">{title}</font>**']
        lines += [_harmless(_cut(fact, self.FACT_BYTES)) for fact in card.facts]
        lines += [f"> {_harmless(_cut(item, self.ITEM_BYTES))}" for item in items]
        if left:
            lines.append(self._wording.and_more(left))
        links = [f"[{link.words}]({link.url})" for link in card.links if len(link.url) <= self.URL_BYTES]
        if links:
            lines.append(" · ".join(links))
        return {"msgtype": "markdown", "markdown": {"content": "\n".join(lines)}}

    def _size(self, message: Any) -> int:
        return len(message["markdown"]["content"].encode("utf-8", "replace"))


class Apprise(Robot):
    """A service by its Apprise URL; Apprise hides the answers of services."""

    most_bytes = 3000  # of a text: most services take that much, Apprise cuts what one does not take
    FACT_BYTES = 700
    NOT_INSTALLED = "the package apprise is not installed. Fix: pip install apprise"
    STATUS = re.compile(r"\berror[= ](\d{3})\b")
    LOGGING = Lock()  # Held while Apprise sends: all of its channels log to one logger
    TYPES: Mapping[str, str] = {
        "critical": "failure",
        "warning": "warning",
        "info": "info",
        "resolved": "success",
    }

    def send(self, message: Any) -> Outcome:
        url = self._secrets.url()
        try:
            import apprise  # noqa: PLC0415  (30 MB, and installed by those who use it)
        except ImportError:
            return Outcome("not_installed", self.NOT_INSTALLED)
        target = apprise.Apprise()
        # What it logs holds bodies and URLs: only we read it.
        own = logging.getLogger("apprise")
        own.propagate = False
        capture = apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
        with self.LOGGING, capture as log:
            if not target.add(url):
                return Outcome("secret_file", "url_file does not hold an Apprise URL that this version knows")
            done = target.notify(**message, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False)
            logged = self._secrets.hidden(" ".join(log.getvalue().split()))
        if done:
            return Outcome(text="Apprise reports success; it does not show what the service answered")
        found = self.STATUS.search(logged)
        status = int(found[1]) if found else 0
        if status == 429:
            return Outcome("rate_limit", logged, 60.0)
        if status in (401, 403, 404, 410):
            return Outcome("http", logged)
        return Outcome("server", logged or "Apprise reports a failure and no reason")

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        lines = [*(_cut(fact, self.FACT_BYTES) for fact in card.facts), *(f"- {item}" for item in items)]
        if left:
            lines.append(self._wording.and_more(left))
        lines += [f"{link.words}: {link.url}" for link in card.links]
        body = "\n".join(lines)
        return {"title": plain(card.title), "body": plain(body), "notify_type": self.TYPES[card.state]}

    def _size(self, message: Any) -> int:
        return len(message["body"].encode("utf-8", "replace"))


ROBOTS: Mapping[str, type[Robot]] = {
    "feishu": Feishu,
    "dingtalk": DingTalk,
    "wecom": WeCom,
    "apprise": Apprise,
}
"""Each kind by its name in the settings."""
