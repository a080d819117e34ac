"""Whether an alert was right: asked on a page to which messages link, kept for good."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.runs.light import verdicts
from exporter.runs.light.site import Light
from exporter.runs.light.verdicts import FullError, Verdict, VerdictLog
from tests.real.disk import fill, small_disk
from tests.runs.light.stories import Reported, sick

FORM = {"content-type": "application/x-www-form-urlencoded"}
ABOUT = {"alert": "KLHigh", "run": "ppo/a b", "since": "1700000000"}


def ask(
    log: VerdictLog, query: dict[str, str], said: dict[str, str] | None = None, kind: dict[str, str] = FORM
) -> Answer:
    pages = Routes(Light(Reported([sick()]), [], log).routes())
    method, body = ("GET", "") if said is None else ("POST", urlencode(said))
    answer = pages(Request(method, "/verdict", urlencode(query), kind, body.encode()))
    assert isinstance(answer, Answer)
    return answer


def test_what_was_said_last_counts_and_survives_the_process(tmp_path: Path) -> None:
    assert ask(VerdictLog(tmp_path), ABOUT, {"verdict": "right"}).code == "200"
    answer = ask(VerdictLog(tmp_path), ABOUT, {"verdict": "false_alarm", "note": "warm-up <b>"})

    assert b"<b>false alarm</b> (<bdi>warm-up &lt;b&gt;</bdi>)" in answer.body
    (found,) = VerdictLog(tmp_path).latest()
    assert found[:5] == ("ppo/a b", "KLHigh", 1700000000, "false_alarm", "warm-up <b>")
    assert b"false alarm</b> (" in ask(VerdictLog(tmp_path), ABOUT).body
    assert b"Recorded" not in ask(VerdictLog(tmp_path), {**ABOUT, "since": "1"}).body
    assert len((tmp_path / verdicts.NAME).read_text().splitlines()) == 2, "nothing is ever overwritten"


@pytest.mark.parametrize(
    ("query", "said", "expected"),
    [
        ({}, {"verdict": "right"}, "?alert=NAME"),
        ({**ABOUT, "run": ""}, {"verdict": "right"}, "?alert=NAME"),
        ({**ABOUT, "run": "a\nb"}, {"verdict": "right"}, "?alert=NAME"),
        ({**ABOUT, "alert": "<KL>"}, {"verdict": "right"}, "?alert=NAME"),
        ({**ABOUT, "since": "-1"}, {"verdict": "right"}, "Expected: whole seconds"),
        (ABOUT, {"verdict": "wrong"}, "Expected: one of false_alarm, right, known"),
        (ABOUT, {}, "Expected: one of false_alarm, right, known"),
        (ABOUT, {"verdict": "right", "note": "x" * 201}, "at most 200 printable characters"),
    ],
)
def test_what_makes_no_sense_is_refused_and_not_kept(
    tmp_path: Path, query: dict[str, str], said: dict[str, str], expected: str
) -> None:
    answer = ask(VerdictLog(tmp_path), query, said)

    assert (answer.code, expected in answer.body.decode()) == ("400", True)
    assert VerdictLog(tmp_path).latest() == []


def test_only_a_form_is_taken(tmp_path: Path) -> None:
    assert ask(VerdictLog(tmp_path), ABOUT, {"verdict": "right"}, {}).code == "415"
    assert VerdictLog(tmp_path).latest() == []


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    log = VerdictLog(tmp_path)
    first, second = (Verdict("a", "KLHigh", since, "right", "", 0.0) for since in (1, 2))
    log.add(first)
    with (tmp_path / verdicts.NAME).open("a") as file:
        file.write('{"run": "a", "al')
    log.add(second)

    assert VerdictLog(tmp_path).latest() == [first, second]


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "tmpfs") as disk:
        assert ask(VerdictLog(disk), ABOUT, {"verdict": "right"}).code == "200"
        kept = disk / verdicts.NAME
        kept.write_text(f"{kept.read_text().strip():4095}\n")  # a whole page: the next line needs another
        fill(disk / "ballast")
        answer = ask(VerdictLog(disk), ABOUT, {"verdict": "known"})
        (found,) = VerdictLog(disk).latest()

    assert (answer.code, b"No space left" in answer.body) == ("503", True)
    assert found.verdict == "right"


def test_the_file_does_not_grow_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MOST_BYTES", 220)
    log = VerdictLog(tmp_path)
    said = [Verdict("a", "KLHigh", since, "right", "", 0.0) for since in range(3)]
    log.add(said[0])
    log.add(said[1])
    with pytest.raises(FullError):
        log.add(said[2])

    assert log.latest() == said[:2]
    assert ask(log, ABOUT, {"verdict": "right"}).code == "507"


TEXTS = st.text(max_size=30)
VERDICTS = st.builds(
    Verdict,
    run=TEXTS,
    alert=TEXTS,
    since=st.integers(0, 2**40),
    verdict=st.sampled_from(list(verdicts.WORDS)),
    note=TEXTS,
    at=st.floats(0, 2e9),
)


@given(st.lists(VERDICTS, max_size=8))
def test_whatever_is_said_is_read_as_it_was_said(
    tmp_path_factory: pytest.TempPathFactory, said: list[Verdict]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    for verdict in said:
        VerdictLog(folder).add(verdict)
    last = {verdict[:3]: verdict for verdict in said}

    assert sorted(VerdictLog(folder).latest()) == sorted(last.values())
