"""Robots of Feishu, DingTalk and WeCom as their vendors document them: most errors come with HTTP 200.

What is refused is refused for its reason: a signature is computed, a clock compared, a keyword searched, a
limit counted. ``fault`` has a robot answer as it does on a bad day.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.real.listening import Listening

SKEW_SECONDS = 3600.0
TOKEN = "0a1b2c3d-s3cr-et00-t0k3-n00000000001"
HANG_SECONDS = 120.0

Body = Mapping[str, Any]

_NO_FAULT: tuple[int, bytes, int, dict[str, str]] = (0, b"", 0, {})
_BAD_DAYS: Mapping[str, Callable[[bytes], tuple[int, bytes, int, dict[str, str]]]] = {
    "half": lambda good: (200, good, 9, {}),
    "cut_json": lambda good: (200, good[:-4], 0, {}),
    "html": lambda _: (200, b"<html>Log in to the network</html>", 0, {}),
    "redirect": lambda _: (302, b"", 0, {"Location": "http://127.0.0.1:9/"}),
}
"""Status, body, how many bytes of it are missing, and headers of an answer, by fault."""


class Robot(Listening):
    """One robot.

    Args:
        secret: It wants signatures made with it.
        keyword: It wants this word in each message.
        clock: By how many seconds its clock is ahead.
        scale: Of the time in which it counts its rate limit: 0.1 makes a minute of six seconds.
        port: Where it listens.
        host: The address of that port.
    """

    kind: ClassVar[str]
    path: ClassVar[str]
    most_bytes: ClassVar[int]
    windows: ClassVar[tuple[tuple[int, float], ...]]
    blocked: ClassVar[float] = 0.0
    """Seconds for which it takes nothing once a limit was passed."""
    taken: ClassVar[Body]
    answers: ClassVar[Mapping[str, Body]]
    """By fault, its answer with HTTP 200."""

    def __init__(
        self,
        *,
        secret: str = "",
        keyword: str = "",
        clock: float = 0.0,
        scale: float = 1.0,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self.secret, self.keyword, self.clock, self.scale = secret, keyword, clock, scale
        self.fault = ""
        self.received: list[Body] = []
        self.times: list[float] = []
        self.requests = 0
        self.over_limit = 0
        self._seen: list[float] = []
        self._until = 0.0
        self._lock, self._end = threading.Lock(), threading.Event()
        super().__init__(self._handler(), port, host)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of who was killed
        self.url += self.path

    def __exit__(self, *problem: object) -> None:
        self._end.set()
        super().__exit__(*problem)

    def texts(self) -> list[str]:
        """What people read of each message."""
        return [self.text(message) for message in list(self.received)]

    def text(self, message: Body) -> str:
        raise NotImplementedError

    def signed(self, query: Mapping[str, list[str]], body: Body) -> bool:  # noqa: ARG002
        """Whether the signature is right, and not older than an hour."""
        return True

    def judge(self, query: Mapping[str, list[str]], body: Any, size: int) -> Body:
        """The answer to a request that came through."""
        now = time.time()
        with self._lock:
            if now < self._until or self._passed(now):
                self.over_limit += 1
                return self.answers["rate_limit"]
            if self.fault in self.answers:
                return self.answers[self.fault]
            if self.secret and not self.signed(query, body):
                return self.answers["signature"]
            if size > self.most_bytes:
                return self.answers["message"]
            if self.keyword and self.keyword not in self.text(body):
                return self.answers["keyword"]
            self.received.append(body)
            self.times.append(now)
            return self.taken

    def size(self, body: Any, sent: int) -> int:  # noqa: ARG002
        """The bytes to which the limit applies."""
        return sent

    def _passed(self, now: float) -> bool:
        self._seen.append(now)
        for most, seconds in self.windows:
            if sum(now - at < seconds * self.scale for at in self._seen) > most:
                self._until = now + self.blocked * self.scale
                return True
        return False

    def _near(self, timestamp: float) -> bool:
        return abs(time.time() + self.clock - timestamp) < SKEW_SECONDS

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        robot = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"]))
                robot.requests += 1
                url = urlsplit(self.path)
                body = json.loads(sent)
                if robot.fault == "hang":
                    robot._end.wait(HANG_SECONDS)
                    self.close_connection = True
                    return
                good = json.dumps(robot.taken).encode()
                status, content, cut, headers = _BAD_DAYS.get(robot.fault, lambda _: _NO_FAULT)(good)
                if robot.fault.isdecimal():
                    status, content = int(robot.fault), b"upstream error"
                elif not status:
                    found = robot.judge(parse_qs(url.query), body, robot.size(body, len(sent)))
                    status, content = 200, json.dumps(found, ensure_ascii=False).encode()
                self._reply(status, content, cut, **headers)

            def _reply(self, status: int, content: bytes, cut: int = 0, **headers: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[: len(content) - cut])
                self.close_connection = bool(cut)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler


class Feishu(Robot):
    kind = "feishu"
    path = f"/open-apis/bot/v2/hook/{TOKEN}"
    most_bytes = 20_000
    windows = ((100, 60.0), (5, 1.0))
    taken: ClassVar[Body] = {
        "StatusCode": 0,
        "StatusMessage": "success",
        "code": 0,
        "data": {},
        "msg": "success",
    }
    answers: ClassVar[Mapping[str, Body]] = {
        "signature": {
            "code": 19021,
            "msg": "sign match fail or timestamp is not within one hour from current time",
        },
        "keyword": {"code": 19024, "msg": "Key Words Not Found"},
        "address": {"code": 19022, "msg": "Ip Not Allowed"},
        "revoked": {"code": 19001, "msg": "param invalid: incoming webhook access token invalid"},
        "rate_limit": {
            "code": 11232,
            "msg": "frequency limited psm[lark.oapi.app_platform_runtime]appID[1500]",
        },
        "too_many": {"code": 9499, "msg": "too many request", "data": {}},
        "message": {"code": 9499, "msg": "Bad Request", "data": {}},
        "unknown": {"code": 99999, "msg": "something new"},
    }

    def signed(self, query: Mapping[str, list[str]], body: Body) -> bool:  # noqa: ARG002
        timestamp = str(body.get("timestamp", "0"))
        key = f"{timestamp}\n{self.secret}".encode()
        expected = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
        return bool(body.get("sign") == expected and self._near(float(timestamp)))

    def text(self, message: Body) -> str:
        card = message["card"]
        lines = [each["text"]["content"] for each in card["elements"] if each["tag"] == "div"]
        return "\n".join([card["header"]["title"]["content"], *lines])


class DingTalk(Robot):
    kind = "dingtalk"
    path = f"/robot/send?access_token={TOKEN}"
    most_bytes = 20_000
    windows = ((20, 60.0),)
    blocked = 600.0
    taken: ClassVar[Body] = {"errcode": 0, "errmsg": "ok"}
    answers: ClassVar[Mapping[str, Body]] = {
        "signature": {"errcode": 310000, "errmsg": "sign not match, more: [https://ding-doc.dingtalk.com]"},
        "keyword": {
            "errcode": 310000,
            "errmsg": "keywords not in content, more: [https://ding-doc.dingtalk.com]",
        },
        "address": {
            "errcode": 310000,
            "errmsg": "ip 127.0.0.1 not in whitelist, more: [https://ding-doc.dingtalk.com]",
        },
        "revoked": {"errcode": 300001, "errmsg": "token is not exist"},
        "rate_limit": {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"},
        "too_many": {"errcode": 410100, "errmsg": "发送速度太快而限流"},
        "busy": {"errcode": -1, "errmsg": "系统繁忙"},
        "message": {"errcode": 460101, "errmsg": "message too long, exceed 20000 bytes"},
        "unknown": {"errcode": 99999, "errmsg": "something new"},
    }

    def signed(self, query: Mapping[str, list[str]], body: Body) -> bool:  # noqa: ARG002
        (timestamp,), (sign,) = query.get("timestamp", ["0"]), query.get("sign", [""])
        digest = hmac.new(
            self.secret.encode(), f"{timestamp}\n{self.secret}".encode(), hashlib.sha256
        ).digest()
        return sign == base64.b64encode(digest).decode() and self._near(float(timestamp) / 1000)

    def text(self, message: Body) -> str:
        content = message[message["msgtype"]]
        return f"{content['title']}\n{content['text']}"


class WeCom(Robot):
    kind = "wecom"
    path = f"/cgi-bin/webhook/send?key={TOKEN}"
    most_bytes = 4096
    windows = ((20, 60.0),)
    taken: ClassVar[Body] = {"errcode": 0, "errmsg": "ok"}
    answers: ClassVar[Mapping[str, Body]] = {
        "revoked": {"errcode": 93000, "errmsg": "invalid webhook url, hint: [1], from ip: 127.0.0.1"},
        "rate_limit": {"errcode": 45009, "errmsg": "api freq out of limit, hint: [1], from ip: 127.0.0.1"},
        "busy": {"errcode": -1, "errmsg": "system busy"},
        "message": {
            "errcode": 40058,
            "errmsg": "markdown.content exceed max length 4096. invalid Request Parameter",
        },
        "unknown": {"errcode": 99999, "errmsg": "something new"},
    }

    def size(self, body: Any, sent: int) -> int:  # noqa: ARG002
        return len(body["markdown"]["content"].encode()) if body["msgtype"] == "markdown" else 0

    def text(self, message: Body) -> str:
        return str(message["markdown"]["content"]) if message["msgtype"] == "markdown" else ""


KINDS: Mapping[str, type[Robot]] = {each.kind: each for each in (Feishu, DingTalk, WeCom)}
