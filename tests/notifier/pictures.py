"""Draw what chats and mail make of a notification: ``python -m tests.notifier.pictures``.

For docs/notifications.md. The texts are those of the golden messages. How a client shows them is drawn here
after its kind: no client is asked.
"""

from __future__ import annotations

import base64
import json
import math
import re
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from exporter.drawing import png
from exporter.drawing.chart import Chart, Curve
from stepwatch.system.environment import CHECKOUT
from tests.notifier.golden import FOLDER, PAYLOADS
from tests.real import alertmanager
from tests.runs.light.browser import started
from tests.runs.light.screenshots import shrink

DOCS = CHECKOUT / "docs"
WIDTH = 1000
PICTURES = {"one": "notifications.png", "Chinese": "notifications-zh.png"}

_STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 20px; background: #eef0f3; width: 1000px;
  font: 14px/1.5 "Noto Sans", "DejaVu Sans", "Noto Sans CJK SC", "WenQuanYi Zen Hei", sans-serif;
  color: #1f2329 }
.chats { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; align-items: start }
h2 { font-size: 13px; font-weight: 600; color: #5a6675; margin: 0 0 6px }
.card { background: #fff; border: 1px solid #d5dae1; border-radius: 8px; overflow: hidden }
.card p { margin: 0 0 8px; overflow-wrap: anywhere }
.body { padding: 12px 14px }
.head { padding: 10px 14px; font-weight: 600; color: #fff; background: #d83931 }
.head.orange { background: #d97706 } .head.green { background: #2e8b57 }
.buttons { display: flex; flex-wrap: wrap; gap: 8px; margin-top: 4px }
.buttons span { border: 1px solid #c3c9d1; border-radius: 6px; padding: 3px 11px }
.rows span { display: block; border-top: 1px solid #e4e8ed; padding: 8px; text-align: center; color: #1668c7 }
a { color: #1668c7; text-decoration: none }
blockquote { margin: 0 0 8px; padding-left: 8px; border-left: 3px solid #d5dae1; color: #5a6675 }
h3 { margin: 0 0 10px; font-size: 17px }
img { display: block; width: 100% }
.picture { margin-top: 8px }
"""
_WECOM_COLOURS = {"warning": "#d97706", "info": "#2e8b57", "comment": "#8a94a0"}


def main() -> None:
    """Write the pictures into docs/."""
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        browser.forget()
        browser.size(WIDTH, 700)
        for kind, name in PICTURES.items():
            page = Path(folder, "page.html")
            page.write_text(drawn(kind), encoding="utf-8")
            browser.open(page.as_uri())
            browser.picture(DOCS / name)
            shrink(DOCS / name)
            browser.size(WIDTH, 700)


def drawn(kind: str) -> str:
    """Return the page that shows one kind of golden message in each channel."""
    messages: dict[str, Any] = {
        robot: json.loads((FOLDER / f"{robot}.json").read_text())[kind]
        for robot in ("feishu", "dingtalk", "wecom")
    }
    picture = f'<img src="data:image/png;base64,{base64.b64encode(curve()).decode()}">'
    chats = [
        ("Feishu, Lark", feishu(messages["feishu"]["card"])),
        (
            "WeCom: message, then the picture",
            f'{wecom(messages["wecom"]["markdown"]["content"])}<div class="card picture">{picture}</div>',
        ),
        ("DingTalk", dingtalk(messages["dingtalk"]["actionCard"])),
    ]
    if kind == "one":  # the golden ones in Chinese are the notifier's
        chats.append(("Mail", f'<div class="card">{mail(kind)}</div>'))
    columns = ["", ""]
    for number, (title, html) in enumerate(chats):
        columns[number % 2] += f'<h2>{escape(title)}</h2>{html}<p style="margin:16px 0"></p>'
    inside = "".join(f"<div>{column}</div>" for column in columns)
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><div class="chats">{inside}</div>'


def feishu(card: dict[str, Any]) -> str:
    """Return a card of Feishu: a coloured head, lines of plain text, buttons."""
    head = (
        f'<div class="head {card["header"]["template"]}">{escape(card["header"]["title"]["content"])}</div>'
    )
    body = ""
    for each in card["elements"]:
        if each["tag"] == "action":
            buttons = "".join(
                f"<span>{escape(button['text']['content'])}</span>" for button in each["actions"]
            )
            body += f'<div class="buttons">{buttons}</div>'
        else:
            body += f"<p>{escape(each['text']['content'])}</p>"
    return f'<div class="card">{head}<div class="body">{body}</div></div>'


def dingtalk(card: dict[str, Any]) -> str:
    """Return an action card of DingTalk: Markdown, and a row for each button."""
    buttons = "".join(f"<span>{escape(button['title'])}</span>" for button in card["btns"])
    body = "".join(_markdown(part) for part in card["text"].split("\n\n"))
    return f'<div class="card"><div class="body">{body}</div><div class="rows">{buttons}</div></div>'


def wecom(text: str) -> str:
    """Return a Markdown message of WeCom."""
    return f'<div class="card"><div class="body">{"".join(map(_markdown, text.splitlines()))}</div></div>'


def mail(kind: str) -> str:
    """Return the mail that Alertmanager makes of the same notification."""
    tool = alertmanager("0.31").tool
    with tempfile.NamedTemporaryFile("wb", suffix=".json") as data:
        data.write(PAYLOADS[kind])
        data.flush()
        words = ("--template.type=html", '--template.text={{ template "mail.html" . }}')
        glob = f"--template.glob={CHECKOUT}/alertmanager/generated/*.tmpl"
        done = subprocess.run(
            [tool, "template", "render", glob, f"--template.data={data.name}", *words],
            capture_output=True,
            text=True,
            check=True,
            env={"TZ": "UTC"},
        )
    # Its own page would take over ours.
    return re.sub(r"(</?)body", r"\1div", done.stdout)


def curve() -> bytes:
    """Return the picture that goes with it: a KL that leaves its limit."""
    points = tuple(
        (step, 0.05 + 0.0012 * step + 0.02 * math.sin(step / 3) + max(0.0, (step - 30) / 11) ** 3)
        for step in range(1, 43)
    )
    limit = Curve("KLExplosion", (((1, 0.5), (42, 0.5)),), "critical")
    return png.draw(Chart("kl", "", "", None, None, 1, 42, (Curve("kl", (points,)),), (limit,), ()))


def _markdown(line: str) -> str:
    """Return a line of the little Markdown that robots know, as HTML."""
    html = escape(line)
    html = re.sub(
        r"&lt;font color=&quot;(#?\w+)&quot;&gt;(.*?)&lt;/font&gt;",
        lambda found: f'<span style="color:{_WECOM_COLOURS.get(found[1], found[1])}">{found[2]}</span>',
        html,
    )
    html = re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", html)
    html = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"<a>\1</a>", html)
    for sign, element in (("### ", "h3"), ("&gt; ", "blockquote"), ("- ", "p")):
        if html.startswith(sign):
            return f"<{element}>{html.removeprefix(sign)}</{element}>"
    return f"<p>{html}</p>"


if __name__ == "__main__":
    main()
