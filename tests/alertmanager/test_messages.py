"""The message templates, rendered by amtool over what Alertmanager hands to a receiver."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from stepwatch.config.deployment import OnThisMachine
from tests.alertmanager.conftest import Render
from tests.links import LINKS
from tests.real import Tool

Say = Callable[..., str]

NEVER = "0001-01-01T00:00:00Z"
TITLE = '{{ template "stepwatch.title" . }}'
TEXT = '{{ template "stepwatch.text" . }}'
WHOLE = f"{TITLE}\n{TEXT}"
HTML = '{{ template "mail.html" . }}'
SLACK_TITLE = '{{ template "slack.title" . }}'
SLACK = '{{ template "slack.text" . }}'
COLOUR = '{{ template "stepwatch.colour" . }}'


def alert(name: str = "KLExplosion", **differing: Any) -> dict[str, Any]:
    """An alert as the rules send it."""
    labels = {"alertname": name, "run": "ppo/gsm8k", "severity": "critical", "topic": "kl"}
    return {
        "status": "firing",
        "labels": labels | differing.pop("labels", {}),
        "annotations": {
            "summary": "The KL to the reference explodes.",
            "description": "step 1204: KL 1.62 nats/token or more for 3 steps; limit start 0.02 + 1."
            " Also firing: RewardDrop.",
            "runbook_url": f"https://example.org/runbook#{name.lower()}",
        },
        "startsAt": "2025-11-21T03:12:05.5Z",
        "endsAt": NEVER,
        "fingerprint": "0",
        "generatorURL": "http://prometheus/graph",
        **differing,
    }


def resolved(**differing: Any) -> dict[str, Any]:
    return alert(status="resolved", endsAt="2025-11-21T04:02:00Z", **differing)


def notification(*alerts: dict[str, Any]) -> dict[str, Any]:
    """What a receiver is given for a group of alerts."""
    shared = [set(each["labels"].items()) for each in alerts]
    common = dict(set.intersection(*shared))
    group = {name: common[name] for name in ("alertname", "run", "severity") if name in common}
    firing = any(each["status"] == "firing" for each in alerts)
    return {
        "receiver": "oncall",
        "status": "firing" if firing else "resolved",
        "alerts": alerts,
        "groupLabels": group,
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": "http://localhost:9093",
    }


@pytest.fixture(scope="module")
def templates(render: Render) -> Path:
    return render("links: {grafana: 'https://g.example/base', alertmanager: 'https://a.example'}")


@pytest.fixture
def say(tool: Tool, templates: Path, tmp_path: Path) -> Say:
    """Render a template text over the alerts of one group."""

    def said(
        text: str, *alerts: dict[str, Any], kind: str = "text", zone: str = "UTC", folder: Path = templates
    ) -> str:
        data = tmp_path / "data.json"
        data.write_text(json.dumps(notification(*alerts)))
        done = subprocess.run(
            [
                *(tool.tool, "template", "render", f"--template.type={kind}"),
                *(f"--template.glob={folder}/*.tmpl", f"--template.text={text}"),
                f"--template.data={data}",
            ],
            capture_output=True,
            text=True,
            env={"TZ": zone},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return said


def link(text: str, what: str) -> str:
    """The address behind a line's words."""
    found = re.search(rf"^{what}[^\n]*?[:?] (\S+)$", text, re.MULTILINE)
    assert found, text
    return found[1]


def test_one_firing_alert_says_run_step_value_limit_since_when_company_and_where_to_look(say: Say) -> None:
    assert say(WHOLE, alert()) == (
        "KLExplosion  ppo/gsm8k  The KL to the reference explodes.\n"
        "step 1204: KL 1.62 nats/token or more for 3 steps; limit start 0.02 + 1. Also firing: RewardDrop.\n"
        "Critical since 03:12 UTC, 21 Nov.\n"
        "Runbook: https://example.org/runbook#klexplosion\n"
        "Dashboard at that time: https://g.example/base/d/stepwatch-training"
        "?var-run=ppo%2Fgsm8k&from=1763673125500&to=1763698325500\n"
        "Silence this alert of this run for 2 h: https://a.example/#/silences/new"
        "?filter=%7Balertname%3D%22KLExplosion%22%2Crun%3D%22ppo%2Fgsm8k%22%7D"
    )


def test_a_resolved_alert_says_so_and_from_when_to_when_and_offers_no_silence(say: Say) -> None:
    assert say(WHOLE, resolved()) == (
        "Resolved: KLExplosion  ppo/gsm8k  The KL to the reference explodes.\n"
        "step 1204: KL 1.62 nats/token or more for 3 steps; limit start 0.02 + 1. Also firing: RewardDrop.\n"
        "Was critical from 03:12 UTC, 21 Nov to 04:02 UTC, 21 Nov.\n"
        "Runbook: https://example.org/runbook#klexplosion\n"
        "Dashboard at that time: https://g.example/base/d/stepwatch-training"
        "?var-run=ppo%2Fgsm8k&from=1763673125500&to=1763701320000"
    )


@pytest.fixture(scope="module")
def chinese(render: Render) -> Path:
    return render("language: zh\nlinks: {grafana: 'https://g.example', alertmanager: 'https://a.example'}")


NOTES = {
    "summary": "与参考模型的 KL 爆炸",
    "description": "KL 1.62。",
    "action": "停止训练",
    "runbook_url": "docs/r.md#kl",
}


def test_a_notification_is_in_chinese(say: Say, chinese: Path) -> None:
    assert say(WHOLE, alert(annotations=NOTES), folder=chinese, zone="Asia/Shanghai") == (
        "KLExplosion  ppo/gsm8k  与参考模型的 KL 爆炸\n"
        "KL 1.62。\n"
        "首先：停止训练。\n"
        "严重，自 11 月 21 日 11:12 CST 起。\n"
        "处置手册：docs/r.md，标题 KLExplosion\n"
        "当时的仪表盘：https://g.example/d/stepwatch-training"
        "?var-run=ppo%2Fgsm8k&from=1763673125500&to=1763698325500\n"
        "静默此告警（仅限此训练任务） 2 小时：https://a.example/#/silences/new"
        "?filter=%7Balertname%3D%22KLExplosion%22%2Crun%3D%22ppo%2Fgsm8k%22%7D"
    )


@pytest.mark.parametrize(("template", "kind"), [(HTML, "html"), (f"{SLACK_TITLE} {SLACK}", "text")])
def test_mails_and_slack_hold_no_english_words_of_ours(
    say: Say, chinese: Path, template: str, kind: str
) -> None:
    shown = re.sub("<[^>|]*", "", say(template, alert(annotations=NOTES), folder=chinese, kind=kind))

    assert all(word in shown for word in ("首先：停止训练。", "当时的仪表盘", "静默 2 小时", "处置手册"))
    assert not re.search("First|Dashboard|Silence|Runbook|since|Critical", shown)


def target_down(instance: str, **differing: Any) -> dict[str, Any]:
    labels = {"alertname": "TargetDown", "severity": "warning", "topic": "stack", "job": "gpu"}
    says = {
        "description": f"gpu at {instance}, for 5 min.",
        "runbook_url": "https://example.org/r#targetdown",
        "dashboard_url": "https://g.example/base/d/stepwatch-stack",
    }
    differing = {"annotations": says, **differing}
    return alert(**differing) | {"labels": labels | {"instance": instance}}


def test_several_alerts_of_a_group_are_a_line_each_with_what_differs_and_one_set_of_links(say: Say) -> None:
    gone = target_down("c:9400", status="resolved", endsAt="2025-11-21T04:02:00Z")

    assert say(WHOLE, target_down("a:9400"), target_down("b:9400"), gone) == (
        "TargetDown: 2 firing, 1 resolved\n"
        "- instance=a:9400: gpu at a:9400, for 5 min. (Warning since 03:07 UTC, 21 Nov)\n"
        "- instance=b:9400: gpu at b:9400, for 5 min. (Warning since 03:07 UTC, 21 Nov)\n"
        "- instance=c:9400: gpu at c:9400, for 5 min."
        " (Was warning from 03:07 UTC, 21 Nov to 04:02 UTC, 21 Nov)\n"
        "Runbook: https://example.org/r#targetdown\n"
        "Dashboard at that time: https://g.example/base/d/stepwatch-stack?from=1763673125500&to=1763698325500\n"
        "Silence this alert for 2 h: https://a.example/#/silences/new?filter=%7Balertname%3D%22TargetDown%22%2Cjob%3D%22gpu%22%7D"
    )


def test_a_silence_names_the_gpu_or_the_node_that_the_alert_is_about(say: Say) -> None:
    lost = target_down("box 1:9411")
    lost["labels"] = {**lost["labels"], "alertname": "GPULost", "topic": "gpu", "gpu": "3", "uuid": "GPU-1"}
    del lost["labels"]["job"]

    text = say(TEXT, lost)

    assert "filter=%7Balertname%3D%22GPULost%22%2Cgpu%3D%223%22%2Cinstance%3D%22box%201%3A9411%22%7D" in text
    gone = {**lost, "labels": {"alertname": "NodeLost", "node": "n1", "cluster": "east"}}
    silence = unquote(link(say(TEXT, gone), "Silence"))
    assert silence.endswith('?filter={alertname="NodeLost",cluster="east",node="n1"}')


def test_alerts_without_a_common_name_are_still_reported(say: Say) -> None:
    assert say(TITLE, alert(), alert("RewardDrop", labels={"run": "b"})) == "Several alerts: 2 firing"


@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_an_alert_without_labels_and_annotations_is_reported_without_gaps(say: Say, status: str) -> None:
    bare = {**alert(), "status": status, "labels": {}, "annotations": {}}

    for alerts in ([bare], [bare, bare]):
        said = say(WHOLE, *alerts)
        assert "no value" not in said
        assert "nil" not in said
        assert "since 03:12 UTC" in said or "from 03:12 UTC" in said
        assert link(said, "Dashboard").startswith("https://g.example/base/d/stepwatch-runs?from=")


def test_one_text_stands_in_for_the_other_when_it_is_missing(say: Say) -> None:
    only_summary = alert(annotations={"summary": "It explodes."})
    only_description = alert(annotations={"description": "KL 1.62."})

    assert say(TEXT, only_summary).startswith("It explodes.\nCritical since")
    assert say(TITLE, only_description) == "KLExplosion  ppo/gsm8k"


def test_what_to_do_first_is_said_while_the_alert_fires(say: Say) -> None:
    notes = {"description": "KL 1.62.", "action": "stop the run"}

    assert say(TEXT, alert(annotations=notes)).startswith("KL 1.62.\nFirst: stop the run.\nCritical since")
    assert say(TEXT, resolved(annotations=notes)).startswith("KL 1.62.\nWas critical")


def test_long_texts_are_cut_at_characters_and_marked(say: Say) -> None:
    long = alert(annotations={"summary": "摘" * 5000, "description": "要" * 5000})

    assert say(TITLE, long) == "KLExplosion  ppo/gsm8k  " + "摘" * 200
    assert say(TEXT, long).splitlines()[0] == "要" * 800 + " ..."
    assert say(TEXT, alert(annotations={"description": "é" * 800})).splitlines()[0] == "é" * 800


RUN_NAMES = [
    "强化学习/实验 七",
    "a b+c&d=e#f%g",
    'with "quotes"',
    "it's",
    "back\\slash",
    "<b>bold</b>",
    "{{ x }}",
]


@pytest.mark.parametrize("run", RUN_NAMES)
def test_links_carry_any_run_name_whole_and_hold_nothing_that_ends_a_link(say: Say, run: str) -> None:
    said = say(WHOLE, alert(labels={"run": run}))

    assert said.startswith(f"KLExplosion  {run}  The KL")
    dashboard, silence = link(said, "Dashboard"), link(said, "Silence")
    assert parse_qs(urlsplit(dashboard).query)["var-run"] == [run]
    # Alertmanager's pages take a plus sign for a plus sign, so a space must not be written as one.
    quoted = run.replace("\\", r"\\").replace('"', r"\"")
    assert unquote(silence).endswith(f'{{alertname="KLExplosion",run="{quoted}"}}')
    assert re.fullmatch(r"[A-Za-z0-9:/?#&=%._~+-]+", dashboard + silence)


@pytest.mark.parametrize(("own", "shown"), LINKS)
def test_a_dashboard_is_that_of_the_rules_own_link_with_its_variables(say: Say, own: str, shown: str) -> None:
    one = alert(labels={"cluster": "here"})
    one["annotations"]["dashboard_url"] = own

    page, _, during = link(say(TEXT, one), "Dashboard").partition("from=")

    assert page == f"https://g.example/base/d/{shown}"
    assert during == "1763673125500&to=1763698325500"


def test_the_cluster_of_a_dashboard_is_not_that_of_the_label(say: Say) -> None:
    assert "var-cluster" not in link(say(TEXT, alert(labels={"cluster": "here"})), "Dashboard")


@pytest.mark.parametrize(
    ("start", "shown"),
    [("1763690000123", "1763690000123"), ("1763600000000", "1763673125500"), ("1", "1763673125500")],
)
def test_a_dashboard_begins_6_h_before_the_alert_or_at_the_start_of_the_run(
    say: Say, start: str, shown: str
) -> None:
    one = alert()
    one["annotations"]["dashboard_url"] = (
        f"https://g/d/stepwatch-training?var-run=a&var-cluster=b&from={start}&to=now"
    )

    assert link(say(TEXT, one), "Dashboard").endswith(
        f"?var-run=a&var-cluster=b&from={shown}&to=1763698325500"
    )


NO_GRAFANA = partial(OnThisMachine, parts=frozenset({"exporter"}))


@pytest.mark.parametrize("run", RUN_NAMES)
def test_without_grafana_links_lead_to_the_page_of_the_run_exporter(
    say: Say, render: Render, run: str
) -> None:
    folder = render("links: {exporter: 'https://e.example/base'}", place=NO_GRAFANA)
    page = link(say(TEXT, alert(labels={"run": run}), folder=folder), "Dashboard")
    about_all = alert(labels={"run": "", "topic": "stack"})

    assert page.startswith("https://e.example/base/run/")
    assert unquote(page.removeprefix("https://e.example/base/run/")) == run
    assert re.fullmatch(r"[A-Za-z0-9:/%._~+-]+", page)
    assert link(say(TEXT, about_all, folder=folder), "Dashboard") == "https://e.example/base/"


def test_without_grafana_one_that_the_configuration_names_is_linked_all_the_same(
    say: Say, render: Render
) -> None:
    folder = render("links: {grafana: 'https://g.example'}", place=NO_GRAFANA)

    assert link(say(TEXT, alert(), folder=folder), "Dashboard").startswith("https://g.example/d/")


@pytest.mark.parametrize(
    ("alerts", "colour"),
    [
        ([alert()], "#d7263d"),
        ([alert(labels={"severity": "warning"})], "#ecb22e"),
        ([alert(labels={"severity": "info"})], "#36a2eb"),
        ([resolved()], "#2eb67d"),
        ([alert(), resolved()], "#d7263d"),
    ],
    ids=["critical", "warning", "info", "resolved", "one of two resolved"],
)
def test_the_colour_reports_how_grave_it_is_and_green_that_it_is_over(
    say: Say, alerts: list[dict[str, Any]], colour: str
) -> None:
    assert say(COLOUR, *alerts) == colour
    assert f"border-left:6px solid {colour};" in say(HTML, *alerts, kind="html")


class Page(HTMLParser):
    """The words that a mail shows, and its links by their words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.links: dict[str, str] = {}
        self.open: list[str] = []
        self._address: str | None = None
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self._address = dict(attrs).get("href")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._address = None

    def handle_data(self, data: str) -> None:
        if self._address:
            self.links[data] = self._address
        elif data.strip() and "title" not in self.open:
            self.lines.append(data.strip())


def test_a_mail_about_one_alert_says_what_the_text_says_and_links_behind_words(say: Say) -> None:
    page = Page(say(HTML, alert(), kind="html"))

    assert page.lines == [
        "KLExplosion  ppo/gsm8k  The KL to the reference explodes.",
        "step 1204: KL 1.62 nats/token or more for 3 steps; limit start 0.02 + 1. Also firing: RewardDrop.",
        "Critical since 03:12 UTC, 21 Nov",
    ]
    text = say(TEXT, alert())
    assert page.links == {
        "Dashboard at that time": link(text, "Dashboard"),
        "Runbook": "https://example.org/runbook#klexplosion",
        "Silence for 2 h": link(text, "Silence"),
    }


def test_a_mail_about_what_is_over_offers_no_silence(say: Say) -> None:
    page = Page(say(HTML, resolved(), kind="html"))

    assert page.lines[0].startswith("Resolved: KLExplosion")
    assert page.lines[-1] == "Was critical from 03:12 UTC, 21 Nov to 04:02 UTC, 21 Nov"
    assert list(page.links) == ["Dashboard at that time", "Runbook"]


def test_a_mail_fits_the_width_of_a_telephone_and_fetches_nothing(say: Say) -> None:
    html = say(HTML, alert(labels={"run": "x" * 300}), kind="html")

    assert 'name="viewport" content="width=device-width, initial-scale=1"' in html
    assert "max-width:640px" in html
    assert "overflow-wrap:anywhere" in html
    assert not re.search(r"<(img|link|script|style|iframe)|url\(|@import", html)


@pytest.mark.parametrize("kind", [TEXT, HTML, SLACK])
def test_a_runbook_that_is_not_an_address_is_not_a_link_but_a_file_and_its_heading(
    say: Say, kind: str
) -> None:
    local = alert(annotations={"summary": "It explodes.", "runbook_url": "docs/runbook.md#klexplosion"})

    said = say(kind, local, kind="html" if kind is HTML else "text")
    assert "Runbook: docs/runbook.md, heading KLExplosion" in said
    assert "#klexplosion" not in said


@pytest.mark.parametrize("run", RUN_NAMES)
def test_a_mail_shows_any_run_name_as_it_is(say: Say, run: str) -> None:
    html = say(HTML, alert(labels={"run": run}), kind="html")

    assert Page(html).lines[0] == f"KLExplosion  {run}  The KL to the reference explodes."
    assert parse_qs(urlsplit(Page(html).links["Dashboard at that time"]).query)["var-run"] == [run]


def test_slack_is_given_nothing_that_it_would_act_upon(say: Say) -> None:
    loud = alert(
        labels={"run": "<!channel> a&b"},
        annotations={"summary": "KL > 1 & <@everyone>", "description": "1 < 2 & " + "<" * 900},
    )

    assert say(SLACK_TITLE, loud) == (
        "KLExplosion  &lt;!channel&gt; a&amp;b  KL &gt; 1 &amp; &lt;@everyone&gt;"
    )
    assert say(SLACK, loud).splitlines()[0] == "1 &lt; 2 &amp; " + "&lt;" * 792 + " ..."
    many = say(SLACK, loud, alert(labels={"run": "<b>"}))
    assert "- run=&lt;!channel&gt; a&amp;b: 1 &lt; 2" in many
    assert "- run=&lt;b&gt;: step 1204" in many


@pytest.mark.parametrize(
    ("name", "said"), [("KLExplosion", "03:12 UTC"), ("Stalled", "03:11 UTC"), ("GPUHot", "03:10 UTC")]
)
def test_an_alert_is_there_since_it_left_its_limit_not_since_it_has_held_long_enough_to_fire(
    say: Say, name: str, said: str
) -> None:
    labels = {"alertname": name}
    assert f"Critical since {said}, 21 Nov." in say(WHOLE, alert(name, labels=labels))
    assert f"Was critical from {said}, 21 Nov to " in say(WHOLE, resolved(labels=labels))
