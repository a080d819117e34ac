"""Every response of a robot, what the notifier does with it, and their table in docs/notifications.md."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.notifier.channel import REASONS, Ended
from stepwatch.system.environment import CHECKOUT
from tests.notifier.stack import Notifier, alert
from tests.real import eventually, free_port
from tests.real.robots import KINDS, Robot

DOCUMENT = CHECKOUT / "docs/notifications.md"
BEGIN, END = "<!-- answers: begin, by tests.notifier.answers -->", "<!-- answers: end -->"

SECRET = "SECs3cret-of-the-robot"
TITLES = {"feishu": "Feishu, Lark", "dingtalk": "DingTalk", "wecom": "WeCom"}
FAULTS: Mapping[str, str] = {
    "signature": "wrong secret",
    "clock": "the clocks differ by more than an hour",
    "keyword": "the keyword is missing",
    "address": "the sender's IP address is not on the robot's list",
    "revoked": "the robot was removed, or the URL is wrong",
    "rate_limit": "too many messages",
    "too_many": "too many messages (second code)",
    "busy": "busy",
    "message": "the message is invalid",
    "unknown": "unknown code",
    "500": "HTTP 500",
    "503": "HTTP 503",
    "429": "HTTP 429",
    "404": "HTTP 404",
    "redirect": "a redirect",
    "html": "HTTP 200 with a proxy's page",
    "half": "truncated response: the connection ends",
    "cut_json": "truncated response: the JSON ends",
    "hang": "no response",
    "closed": "connection refused",
}
_SIGNS = ("feishu", "dingtalk")


@dataclass(frozen=True)
class Case:
    """A robot of a kind with a fault."""

    kind: str
    fault: str

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.fault}"


@dataclass(frozen=True)
class Result:
    """What the notifier made of an answer: the message's state, the reason, the vendor's text, metrics."""

    case: Case
    state: str
    reason: str
    answer: str
    retries: float
    failures: float


def cases() -> Iterator[Case]:
    for kind, robot in KINDS.items():
        for fault in FAULTS:
            generic = fault.isdecimal() or fault in ("redirect", "html", "half", "cut_json", "hang", "closed")
            if generic or fault in robot.answers or (fault in ("signature", "clock") and kind in _SIGNS):
                yield Case(kind, fault)


def robot(case: Case) -> Robot | str:
    """The robot of a case, or the URL of one that is gone."""
    made = KINDS[case.kind]
    if case.fault == "closed":
        return f"http://127.0.0.1:{free_port()}{made.path}"
    if case.fault == "signature":
        return made(secret=SECRET)
    if case.fault == "clock":
        return made(secret=SECRET, clock=-7200)
    if case.fault == "keyword":
        return made(keyword="an-odd-word")
    found = made()
    found.fault = case.fault
    return found


def results(folder: Path) -> list[Result]:
    """Send one message to each robot, and return what became of it after the first attempt."""
    all_cases = list(cases())
    robots = {case.name: robot(case) for case in all_cases}
    kinds = {case.name: case.kind for case in all_cases}
    secrets = {f"{kind}-signature": "not-the-secret" for kind in _SIGNS}
    with Notifier(folder, robots, kinds=kinds, secrets=secrets) as notifier:
        for case in all_cases:
            assert notifier.post(alert(), to=case.name) == 200
        eventually(
            lambda: all(notifier.deliveries(case.name)[0]["reason"] for case in all_cases), seen=notifier.seen
        )
        return [_result(notifier, case) for case in all_cases]


def _result(notifier: Notifier, case: Case) -> Result:
    (found,) = notifier.deliveries(case.name)
    labels = {"receiver_name": case.name, "reason": found["reason"], "integration": case.kind}
    return Result(
        case,
        found["state"],
        found["reason"],
        found["answer"],
        notifier.metric("retries_total", **labels),
        notifier.metric("failures_total", **labels),
    )


_DONE = {
    Ended.RETRY: "retries with backoff; NotificationFailures after `alerts.NotificationFailures.waiting`",
    Ended.REFUSED: "NotificationFailures; retries every 2 min, or when a file changes",
    Ended.REJECTED: "NotificationFailures; the message is dropped",
}


def table(found: list[Result]) -> str:
    """The table of the document."""
    rows = [
        "| robot | fault | response | `reason` | what the notifier does |",
        "|---|---|---|---|---|",
    ]
    generic: dict[tuple[str, str], list[str]] = {}
    for result in found:
        case, done = result.case, _DONE[REASONS[result.reason]]
        if (said := _documented(case)) == "-":
            generic.setdefault((FAULTS[case.fault], result.reason), []).append(TITLES[case.kind])
        else:
            rows.append(
                f"| {TITLES[case.kind]} | {FAULTS[case.fault]} | {said} | `{result.reason}` | {done} |"
            )
    for (what, reason), titles in generic.items():
        who = "all" if len(titles) == len(TITLES) else ", ".join(titles)
        rows.append(f"| {who} | {what} | - | `{reason}` | {_DONE[REASONS[reason]]} |")
    return "\n".join(rows)


def _documented(case: Case) -> str:
    answers = KINDS[case.kind].answers
    body = answers.get("signature" if case.fault == "clock" else case.fault)
    if body is None:
        return "-"
    code = next(key for key in ("errcode", "code") if key in body)
    said = str(body.get("errmsg") or body.get("msg")).partition(", more:")[0].partition(", hint:")[0]
    return f"`{json.dumps({code: body[code]})[1:-1]}` {said}"


def written(text: str, made: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), table(results(Path(scratch)))))
    sys.exit()
