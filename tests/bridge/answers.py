"""Every response of a robot, what Alertmanager is answered, and their table in docs/notifications.md."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stepwatch.system.environment import CHECKOUT
from tests.bridge.webhook import Bridge, alert
from tests.real import free_port
from tests.real.robots import KINDS, Robot

DOCUMENT = CHECKOUT / "docs/notifications.md"
BEGIN, END = "<!-- answers: begin, by tests.bridge.answers -->", "<!-- answers: end -->"

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
    """The status for Alertmanager, the reason and the vendor's text, and what the reason's metric counts."""

    case: Case
    status: int
    reason: str
    said: str
    counted: float


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
    """Send one message to each robot, and return what came of it."""
    every = list(cases())
    robots = {case.name: robot(case) for case in every}
    kinds = {case.name: case.kind for case in every}
    secrets = {f"{kind}-signature": "not-the-secret" for kind in _SIGNS}

    def result(case: Case) -> Result:
        status, text = bridge.post(alert(), to=case.name)
        reason, _, said = text.strip().partition(": ")
        metric = "refused_total" if status == 400 else "deferred_total"
        counted = bridge.metric(metric, receiver_name=case.name, reason=reason, integration=case.kind)
        return Result(case, status, reason, said, counted)

    with Bridge(folder, robots, kinds, secrets) as bridge, ThreadPoolExecutor(8) as pool:
        return list(pool.map(result, every))


_DONE = {503: "503: Alertmanager tries again", 400: "400: NotificationFailures; again at the next interval"}


def table(found: list[Result]) -> str:
    """The table of the document."""
    rows = [
        "| robot | fault | response | `reason` | the answer to Alertmanager |",
        "|---|---|---|---|---|",
    ]
    generic: dict[tuple[str, str, int], list[str]] = {}
    for result in found:
        case, done = result.case, _DONE[result.status]
        if (said := _documented(case)) == "-":
            generic.setdefault((FAULTS[case.fault], result.reason, result.status), []).append(
                TITLES[case.kind]
            )
        else:
            rows.append(
                f"| {TITLES[case.kind]} | {FAULTS[case.fault]} | {said} | `{result.reason}` | {done} |"
            )
    for (what, reason, status), titles in generic.items():
        who = "all" if len(titles) == len(TITLES) else ", ".join(titles)
        rows.append(f"| {who} | {what} | - | `{reason}` | {_DONE[status]} |")
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
