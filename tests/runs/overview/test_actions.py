"""What the run exporter's pages learn from the bridge."""

from __future__ import annotations

import json

import pytest

from exporter.runs.light.pages import Pages
from exporter.runs.overview import pollers
from exporter.runs.overview.models import RunAction
from exporter.runs.overview.pollers import Actions
from tests.real.answering import Answering
from tests.real.waiting import eventually
from tests.runs.light.stories import Reported, story, summary

OPEN = {
    "run": "ppo/gsm8k",
    "alert": "KLExplosion",
    "steps": ["notify", "stop"],
    "dry_run": True,
    "state": "stop at 04 Jan 03:12:00, unless the alert is silenced",
    "opened": 1.0e9,
    "outcome": "",
}
SHOWN = RunAction(
    "ppo/gsm8k",
    "KLExplosion",
    "notify, stop (dry run)",
    "stop at 04 Jan 03:12:00, unless the alert is silenced",
    1.0e9,
    True,
)


def test_actions_are_those_of_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pollers, "INTERVAL_SECONDS", 0.05)
    with Answering(body=json.dumps({"actions": [OPEN]})) as site:
        asking = Actions(site.url)
        asking.start()
        eventually(lambda: asking.found == (SHOWN,), seen=lambda: asking.found)
        site.body = "no JSON"
        eventually(lambda: asking.found == (SHOWN,))
        asking.stop()
    nobody = Actions(None)
    nobody.start()
    assert nobody.found == ()


def test_pending_actions_are_on_the_first_page_and_all_of_a_run_on_its_own() -> None:
    done = RunAction("ppo/gsm8k", "KLHigh", "evidence", "done, 04 Jan", 1.0e9, False)
    other = RunAction("<b>other", "KLHigh", "stop", "stop at 4", 1.0e9, True)
    run = summary()
    overview = Reported(summaries=[run], actions=(SHOWN, done, other))
    first = Pages(["/runs"], "").runs(overview, "").decode()
    own = Pages(["/runs"], "").run(story(run), overview, "").decode()

    assert SHOWN.state in first
    assert "&lt;b&gt;other" in first
    assert "<b>other" not in first
    assert done.state not in first
    assert all(each.state in own for each in (SHOWN, done))
    assert other.state not in own
