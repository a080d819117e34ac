"""The pages as text: what they tell, in which order, and that names are only ever shown."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest

from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.runs.light import formatting
from exporter.runs.light.site import Light
from exporter.runs.overview.charts import Band, Curve, Mark
from exporter.runs.overview.models import Firing, Omitted, Range, causes_first
from exporter.runs.signals.unmapped import Candidate
from tests.runs.light.stories import EXPLOSION, HEALTHS, Reported, chart, sick, summary

NAMES = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "javascript:alert(3)",
    "a b?c#d%2F&amp;e+f",
    "two\nlines\tand a tab",
    "🦜/zażółć/训练",
    "\u202eright to left\u2066",
    "x/../../y",
    "a" * 300,
)
NOON = 1_790_000_000.0
VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}
TAGS = {
    *("html", "head", "meta", "title", "link", "style", "body", "header", "main", "footer", "section"),
    *("h1", "h2", "p", "a", "b", "i", "bdi", "code", "details", "summary", "small", "span", "div"),
    *("ul", "li", "dl", "dt", "dd", "pre"),
    *("table", "thead", "tbody", "tr", "th", "td", "progress", "figure", "figcaption"),
    *("svg", "path", "rect", "text"),
}


class Page(HTMLParser):
    """A page taken apart; fails where a tag is not closed in its turn, or says something twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.words = text, ""
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), attrs
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.get_starttag_text()

    def handle_data(self, data: str) -> None:
        self.words += "" if self._open[-1:] in (["style"], ["title"]) else data

    def attributes(self, *names: str) -> list[str]:
        return [value for _, found in self.tags for name, value in found.items() if name in names]

    @property
    def names(self) -> list[str]:
        """The runs that are listed."""
        return [unquote(link.partition("run/")[2]) for link in self.attributes("href") if "/run/" in link]


def ask(reported: Reported, target: str = "/") -> Answer:
    path, _, query = target.partition("?")
    answer = Routes(Light(reported, ["/logs/<rl>"]).routes())(Request("GET", path, query))
    assert isinstance(answer, Answer)
    return answer


def page(reported: Reported, target: str = "/") -> Page:
    return Page(ask(reported, target).body.decode())


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_and_not_run(name: str) -> None:
    evil = replace(
        EXPLOSION, name=name, summary=name, description=name, action=name, severity=name, runbook=name
    )
    health = replace(HEALTHS[1], title=name, diagnosis=name, state="warning")
    run = summary(name, state="running", framework=name, firing=(evil,), healths=(health,))
    drawn = chart(
        name,
        description=name,
        curves=(Curve(name, (((1, 1.0), (2, 2.0)),)),),
        limits=(Curve(name, (((1, 1.5), (2, 1.5)),), name),),
        bands=(Band(name, name, 1, 2),),
    )
    reported = Reported([run], (drawn,), prometheus=name)
    for target in ("/", f"/{formatting.page(name)}", "/run/gone"):
        found = page(reported, target)
        assert {tag for tag, _ in found.tags} <= TAGS
        assert name in found.words
        assert not [each for _, tells in found.tags for each in tells if each.startswith("on")]
        targets = found.attributes("href", "src")
        assert all(target.startswith(("./", "../", "http://127.0.0.1:3000/")) for target in targets)
    assert page(reported).names == [name]
    assert ask(reported, f"/{formatting.page(name)}").code == "200"


def test_alerts_about_no_run_stand_above_all_runs() -> None:
    gone = replace(EXPLOSION, name="EngineGone", topic="rollout", summary="A <b>server</b> is gone.")
    text = page(Reported([summary()], about_none=(gone,))).text

    assert text.index("EngineGone") < text.index("ppo/gsm8k")
    assert "A &lt;b&gt;server&lt;/b&gt; is gone." in text
    assert "Not about these runs" not in page(Reported([summary()])).text


def test_the_worst_runs_come_first_and_finished_ones_last() -> None:
    fine, low = summary("fine"), summary("low", healths=(replace(HEALTHS[0], state="warning"),))
    ended = [
        summary(name, state="finished", age_seconds=age) for name, age in (("old", 99.0), ("a-new", 0.0))
    ]
    calm = sick("was-sick", state="finished", age_seconds=50.0)
    reported = Reported([*ended, calm, fine, low, summary("failed", state="failed"), sick("sick")])
    found = page(reported)
    assert found.names == ["failed", "sick", "low", "fine", "a-new", "was-sick", "old"]
    assert "7 runs: 2 critical, 1 with a warning, 1 fine, 3 finished." in found.words


def test_an_alert_is_reported_with_its_text_and_what_leads_on() -> None:
    found = page(Reported([sick()]))
    first = f"First: {EXPLOSION.action}."
    for words in (EXPLOSION.name, EXPLOSION.summary, EXPLOSION.description, first, "since step 1198"):
        assert words in found.words
    assert {EXPLOSION.runbook, EXPLOSION.dashboard} <= set(found.attributes("href"))


def test_what_is_out_of_range_is_reported_once() -> None:
    reported = replace(HEALTHS[1], state="critical", diagnosis=f"{EXPLOSION.summary} More.")
    unreported = replace(HEALTHS[0], state="warning", diagnosis="The reward is low.")
    found = page(Reported([summary(healths=(reported, unreported), firing=(EXPLOSION,))]))
    assert found.words.count(EXPLOSION.summary) == 1
    assert "The reward is low." in found.words


RUN = "/run/ppo%2Fgsm8k"
AGES = ((0.4, "0 s"), (59.9, "59 s"), (3599.0, "59 min"), (2e5, "2 d"))


def fired(**others: object) -> Reported:
    return Reported([summary(firing=(replace(EXPLOSION, **others),))])  # type: ignore[arg-type]


def with_(**others: object) -> Reported:
    return Reported([summary()], **others)  # type: ignore[arg-type]


FULL, HUNG = "State disk is full. /data: <0 B> free.", "/data/nfs does not answer: runs there are not watched"
ONLY = "No receiver is configured: alerts are shown here only."
BOOK = (("Meaning", "The policy leaves."), ("Mitigation", "Lower the rate."))
BEFORE = "1 run had failed, vanished or stopped before Stepwatch first saw it"
LEFT_OUT = ["2 live runs not watched", "1 ended run not shown", "9 files not read"]
BACK = replace(HEALTHS[1], state="warning", alerts=("KLHigh", "PolicyKLHigh"))
KEYS = (Candidate("kl", ("my/kl", 'a "b" & <c>')),)
NUMBERS = (
    replace(HEALTHS[0], value=math.nan),
    replace(HEALTHS[1], value=-math.inf, critical=Range(None, math.inf)),
)
ENDS = f"; it ends at {formatting.clock(NOON + 60)}, unless the condition returns"


@pytest.mark.parametrize(
    ("reported", "targets", "shown", "hidden"),
    [
        # what to do next without a run, and what is not shown
        (Reported(), "/", ["/logs/<rl>", "make up DEMO=1"], ["before Stepwatch", "does not answer"]),
        (Reported(omitted=Omitted(dormant=1)), "/ /run/ppo", [BEFORE, "make inspect"], []),
        (Reported(omitted=Omitted(live=2, ended=1, files=9)), "/", LEFT_OUT, []),
        (Reported(omitted=Omitted(hung=("/data/nfs",))), "/", [HUNG], []),
        # what keeps the stack from alerting, and that nothing is sent
        (with_(faults=(FULL,)), f"/ {RUN}", ["Alerting is broken", FULL], []),
        (with_(notifies=False), f"/ {RUN}", [ONLY], []),
        (with_(), f"/ {RUN}", [], ["Alerting is broken", ONLY, "signals:"]),
        (with_(candidates=KEYS), RUN, ['signals:\n  kl: ["my/kl", "a \\"b\\" & <c>"]\n'], []),
        # states
        (Reported([summary(state="vanished")]), "/", ["Its process is gone before the end."], []),
        (Reported([sick(state="vanished")]), "/", ["Its process is gone before the end."], []),
        (Reported([sick(state="finished")]), "/", [], ["critical"]),
        (Reported([summary("a", step=None, age_seconds=None, healths=())]), "/", ["no step yet"], []),
        (Reported([summary("a", step=None, age_seconds=None, healths=())]), "/run/a", ["No curve yet"], []),
        # numbers
        *((Reported([summary(age_seconds=age)]), "/", [f"{text} ago"], []) for age, text in AGES),
        (Reported([summary(healths=NUMBERS)]), "/", ["NaN", "-Inf"], []),
        (Reported([summary(healths=(BACK,))]), "/", ["KLHigh, PolicyKLHigh"], []),
        (Reported([summary(healths=(replace(BACK, since=7),))]), "/", ["KLHigh since step 7"], []),
        # alerts
        (fired(runbook="docs/x.md#klexplosion"), "/", ["Runbook: docs/x.md, heading KLExplosion"], []),
        (fired(book=BOOK), RUN, ["Meaning. The policy leaves. Mitigation. Lower the rate."], []),
        (fired(book=BOOK), "/", [], ["Lower the rate."]),
        (Reported(about_none=(replace(EXPLOSION, book=BOOK),)), "/", ["The policy leaves."], ["heading"]),
        (fired(dashboard="http://127.0.0.1:9410/run/ppo%2Fgsm8k"), "/", [], ["Dashboard", "condition"]),
        (fired(passed=NOON), "/", [f"its condition ended at {formatting.clock(NOON)}"], ["it ends at"]),
        (fired(passed=NOON, ends=NOON + 60), "/", [ENDS], []),
    ],
)  # fmt: skip
def test_what_pages_say(reported: Reported, targets: str, shown: list[str], hidden: list[str]) -> None:
    for target in targets.split():
        words = page(reported, target).words
        flat = words + " ".join(words.split())
        assert [each for each in shown if each not in flat] == []
        assert [each for each in hidden if each in flat] == []


def test_links_that_a_browser_may_not_follow_are_none() -> None:
    found = page(fired(runbook="docs/runbook.md#klexplosion", dashboard="javascript:alert(1)"))
    assert not [link for link in found.attributes("href") if "://" in link or "alert(" in link]


def test_the_page_of_a_run_has_its_charts_alerts_and_last_steps_the_newest_on_top() -> None:
    found = page(Reported([sick(step=204)], (chart("KL"), chart("Reward"))), "/run/ppo%2Fsick")
    assert [tag for tag, _ in found.tags].count("figure") == 2
    assert "limit of KLExplosion: 1.02 (critical)" in found.words
    assert "KLHigh, warning: steps 235 to 435" in found.words
    steps = [int(step) for step in re.findall(r'<tr><td class="n">(\d+)</td>', found.text)]
    assert steps == list(range(204, 184, -1))
    assert f"../{formatting.series('ppo/sick', 'kl')}" in found.attributes("href")


def test_curves_of_ten_thousand_steps_fit_a_page() -> None:
    charts = [chart(title, 10_000) for title in "abcdefgh"]
    assert len(ask(Reported([sick()], tuple(charts)), "/run/ppo%2Fsick").body) < 200_000


def test_a_panel_without_a_point_is_left_out() -> None:
    nothing = chart("Entropy", curves=(Curve("entropy", (((1, float("nan")),),)),), limits=())
    found = page(Reported([summary()], (nothing, chart("KL"))), "/run/ppo%2Fgsm8k")
    assert [tag for tag, _ in found.tags].count("figure") == 1


def test_an_unknown_run_is_not_found_and_the_nearest_is_named() -> None:
    reported = Reported([summary("ppo/gsm8k"), summary("grpo/math")])
    assert ask(reported, "/run/ppo%2Fgsm8").code == "404"
    assert page(reported, "/run/ppo%2Fgsm8").names[0] == "ppo/gsm8k"


def test_while_logs_are_read_no_run_is_said_not_to_be_there_and_its_page_comes_again() -> None:
    reported = Reported(omitted=Omitted(reading=True))
    for target, code in (("/", "200"), ("/run/ppo", "503")):
        found = ask(reported, target)
        words = Page(found.body.decode()).words
        assert (found.code, "Refresh" in dict(found.headers)) == (code, True)
        assert "still being read" in words
        assert "No run yet" not in words
        assert "It may have been removed" not in words


@pytest.mark.parametrize("target", ["/", "/run/ppo%2Fgsm8k", "/run/gone", "/icon.svg", "/api/v1/runs"])
def test_every_answer_forbids_what_it_does_not_need(target: str) -> None:
    reported = dict(ask(Reported([summary()]), target).headers)
    policy = dict(rule.strip().split(" ", 1) for rule in reported["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'none'"
    assert "unsafe" not in reported["Content-Security-Policy"]
    assert policy.keys() <= {
        *("default-src", "frame-ancestors", "base-uri"),
        "form-action",
        "style-src",
        "img-src",
    }
    assert reported["Cache-Control"] == "no-store"
    assert reported["Referrer-Policy"] == "no-referrer"
    assert reported["X-Content-Type-Options"] == "nosniff"
    assert not {"Set-Cookie", "Access-Control-Allow-Origin"} & reported.keys()


def test_a_page_refreshes_itself_unless_asked_not_to() -> None:
    reported = Reported([summary()])
    assert dict(ask(reported).headers)["Refresh"] == "10"
    assert "Refreshed every 10 s." in page(reported).words
    assert "Refresh" not in dict(ask(reported, "/?refresh=off").headers)
    assert re.search(r"As of \d\d:\d\d:\d\d", page(reported, "/?refresh=off").words)
    assert page(reported, "/?refresh=off").attributes("href")[1:3] == ["./", "./run/ppo%2Fgsm8k?refresh=off"]


@pytest.mark.parametrize("path", ["ppo/gsm8k", "a/b/c", "x%2Fy/z", "..%2F/%20"])
def test_slashes_that_were_not_escaped_lead_to_the_page_all_the_same(path: str) -> None:
    reported = Reported([summary(unquote(path))])
    answer = ask(reported, f"/run/{path}?refresh=off")
    assert answer.code == "302"
    there = urljoin(f"http://host/base/run/{path}", dict(answer.headers)["Location"])
    assert there.startswith("http://host/base/run/")
    assert ask(reported, there.removeprefix("http://host/base")).code == "200"


def fires(name: str, severity: str, topic: str) -> Firing:
    words = f"{name} in words; Others fires; Another fires."
    return replace(EXPLOSION, name=name, severity=severity, topic=topic, summary="", description=words)


def test_the_list_reports_the_worst_alerts_in_full_and_names_the_others() -> None:
    alerts = (fires("KLHigh", "warning", "kl"), fires("Slow", "warning", "progress"), EXPLOSION)
    reported = Reported([summary(firing=alerts)])
    found = page(reported)
    assert EXPLOSION.description in found.words
    assert "in words" not in found.words
    assert "Also firing: KLHigh, Slow" in found.words

    # the page of the run leaves out only what a worse alert of the same topic mutes
    found = page(reported, "/run/ppo%2Fgsm8k")
    assert "Slow in words." in found.words
    assert "Others" not in str(found.words)
    assert "Also firing: KLHigh" in found.words


def test_what_messages_say_at_their_end_is_cut_off_as_the_rules_write_it() -> None:
    rules = (Path(__file__).parents[3] / "prometheus/generated/rules/rl.yml").read_text()
    assert "; {{.Labels.name}} fires" in rules


def test_an_alert_of_a_run_that_is_over_says_so() -> None:
    ended = replace(EXPLOSION, name="RunFailed", topic="end")
    found = page(Reported([summary(state="failed", firing=(EXPLOSION, ended))])).words
    assert found.count("the run has ended (failed)") == 1
    assert found.count(f"First: {EXPLOSION.action}") == 1  # of RunFailed alone
    for state in ("running", "stalled"):
        assert "is over" not in page(Reported([summary(state=state, firing=(EXPLOSION,))])).words


def test_muted_alerts_stand_beneath_what_mutes_them_and_say_so() -> None:
    cause = replace(EXPLOSION, name="RunStopped", severity="warning")
    worse = replace(EXPLOSION, name="Collapse", inhibited_by="RunStopped")
    other = replace(cause, name="Unrelated", topic="other")
    found = page(Reported([summary(state="stopped", firing=(worse, cause, other))]))
    places = [found.text.index(f"<b>{name}</b>") for name in ("RunStopped", "Collapse", "Unrelated")]
    assert places == sorted(places)
    assert found.words.count("muted by RunStopped") == 1
    assert found.attributes("class").count("muted") == 1


def test_those_muted_by_what_is_not_among_them_come_last() -> None:
    mild = replace(EXPLOSION, name="Mild", severity="warning")
    alerts = (replace(EXPLOSION, inhibited_by="NodeLost"), mild)
    assert [alert.name for alert in causes_first(alerts)] == ["Mild", EXPLOSION.name]


def test_a_chart_shows_at_which_step_the_run_was_started_again_and_no_two_limits_look_alike() -> None:
    drawn = chart(marks=(Mark(120, "started again"), Mark(999, "later")))
    found = page(Reported([summary()], charts=(drawn,)), "/run/ppo%2Fgsm8k")
    assert "step 120: started again" in found.words
    assert "later" not in found.words
    looks = [each for each in found.attributes("class") if each.startswith("limit ")]
    assert {"limit warning d0", "limit critical d1"} <= set(looks)
