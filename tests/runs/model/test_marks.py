"""After a mark a run is measured as a fresh one would be, wherever the exporter was restarted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.progress import MOST_MARKS
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.serve.endpoints import UnknownRunError
from exporter.runs.signals.record import Record
from tests.runs.conftest import Watching
from tests.runs.lines import append, console, measured, scoped, verl_json
from tests.runs.scrape import Scrape

NOW = 1_700_000_000.0
LEVELS = ("rl_best", "rl_start", "rl_peak", "rl_noise", "rl_ewma", "rl_steps_seen", "rl_records_seen")


def take(run: Run, *records: Record) -> Run:
    for record in records:
        run.take(record, Clock(NOW + record.step, float(record.step), live=True))
    return run


def fresh() -> Run:
    return Run("verl_jsonl", "verl", Options())


def values(run: Run) -> dict[str, float | None]:
    """Every statistic of the run, and what patience goes by."""
    read = {str(s): read() for each in run.statistics.values() for s, read in each.readers}
    return {**read, "seen": run.progress.seen, "held": len(run.held)}


def steps(first: int, last: int, shift: float = 0.0) -> list[Record]:
    return [
        Record(step, measured(step, reward=(step * 7 % 13 + shift) / 13, kl=step * 5 % 11 / 110))
        for step in range(first, last + 1)
    ]


def lines(first: int, last: int, shift: float = 0.0) -> list[str]:
    return [verl_json(record.step, record.values) for record in steps(first, last, shift)]


def levels(found: Scrape) -> dict[str, float]:
    page = found.about_run("a")
    return {f"{name} {sorted(labels)}": value for (name, labels), value in page.items() if name in LEVELS}


# what restarts


@pytest.mark.slow
@given(
    before=st.integers(1, 90),
    after=st.integers(1, 90),
    bad=st.lists(st.integers(1, 180), max_size=5),
    back=st.integers(0, 40),
)
def test_after_a_mark_every_statistic_is_that_of_a_run_which_began_there(
    before: int, after: int, bad: list[int], back: int
) -> None:
    records = steps(1, before + after)
    for step in bad:
        if step <= before + after:
            records[step - 1].values = {**records[step - 1].values, "critic/score/mean": math.nan}
    later = records[before:]
    again = min(max(before + 2, before + after - back), before + after + 1)
    later += steps(again, before + after + 20)

    marked = take(fresh(), *records[:before])
    marked.mark(NOW, "new data")
    take(marked, *later)
    began = take(fresh(), *later)

    assert values(marked) == values(began)
    assert marked.progress.since == began.progress.since


def test_counters_go_on_and_last_values_stay() -> None:
    run = take(fresh(), Record(1, {"critic/score/mean": math.nan}), *steps(2, 60))
    run.mark(NOW, "new data")
    take(run, Record(61, {"actor/kl_loss": 0.5}))

    assert run.statistics["reward"].nonfinite == 1
    assert (run.records, run.progress.seen) == (61, 1)
    assert run.latest["reward"] == steps(60, 60)[0].values["critic/score/mean"]


def test_nothing_is_rebaselined_before_the_next_step() -> None:
    run = take(fresh(), *steps(1, 60))
    before = values(run)
    run.mark(NOW, "new data")
    assert values(run) == before

    take(run, Record(60, {"val-core/gsm8k/acc": 0.5}))
    assert values(run) == before


def test_a_resume_behind_a_mark_keeps_the_levels_and_passes_no_mark_again() -> None:
    run = take(fresh(), *steps(1, 60))
    run.mark(NOW, "new data")
    take(run, *steps(61, 120))
    before = values(run)
    take(run, *steps(41, 119))

    kept = {
        name: value for name, value in before.items() if "over_steps" not in name and "streak" not in name
    }
    assert kept.items() - {("held", before["held"])} <= values(run).items()


def test_a_resume_is_the_next_step_of_a_mark_before_it() -> None:
    run = take(fresh(), *steps(1, 60))
    run.mark(NOW, "new data")
    take(run, *steps(41, 70))

    assert values(run) == values(take(fresh(), *steps(61, 70)))


def test_a_start_from_scratch_forgets_marks() -> None:
    run = take(fresh(), *steps(1, 60))
    run.mark(NOW, "new data")
    take(run, *steps(61, 70), *steps(1, 30))

    assert run.marks.all == []
    assert values(run) == values(take(fresh(), *steps(1, 30)))


# what is remembered


def test_the_last_marks_are_shown_each_note_once(folder: Path, watched: Watching) -> None:
    append(folder / "a.jsonl", *lines(1, 3))
    page = watched()
    page.look()
    for number in range(MOST_MARKS + 2):
        page.clock.advance(1.0)
        page.watch.mark("a", f"note {number}")
    page.watch.mark("a", "note 5")
    found = page.look(1.0).all("rl_run_mark_timestamp_seconds", run="a")

    assert {dict(labels)["note"] for labels in found} == {f"note {number}" for number in (2, 3, 4, 5, 6)}


@pytest.mark.parametrize("note", ['quo"te', "back\\slash", "ünïcödé 模型", "{brace}"])
def test_a_note_is_shown_as_it_was_written_with_its_time(folder: Path, watched: Watching, note: str) -> None:
    append(folder / "a.jsonl", *lines(1, 3))
    page = watched()
    page.look()
    page.watch.mark("a", note)

    assert page.look().value("rl_run_mark_timestamp_seconds", run="a", note=note) == page.clock.wall


def test_a_mark_outlives_a_restart_and_takes_effect_at_its_place(
    folder: Path, watched: Watching, tmp_path: Path
) -> None:
    append(folder / "a.jsonl", *lines(1, 50))
    first = watched(state_dir=tmp_path / "state")
    first.look()
    append(folder / "a.jsonl", *lines(51, 60))
    first.look(1.0)
    first.watch.mark("a", "new data")
    first.look(0.5)  # not saved by anything else, nor at the end: it may be killed
    append(folder / "a.jsonl", *lines(61, 100, shift=5.0))
    second = watched(state_dir=tmp_path / "state")
    found = second.look()
    (folder / "a.jsonl").write_text("".join(lines(61, 100, shift=5.0)))
    alone = watched().look()

    assert levels(found) == levels(alone)
    assert found.value("rl_run_mark_timestamp_seconds", run="a", note="new data") is not None


def test_a_mark_that_took_effect_is_not_passed_again_in_a_log_that_was_emptied(
    folder: Path, watched: Watching, tmp_path: Path
) -> None:
    append(folder / "a.jsonl", *lines(1, 60))
    first = watched(state_dir=tmp_path / "state")
    first.look()
    first.watch.mark("a", "new data")
    append(folder / "a.jsonl", *lines(61, 100))
    before = first.look(1.0)
    first.watch.save()
    (folder / "a.jsonl").write_text("".join(lines(41, 100)))
    after = watched(state_dir=tmp_path / "state").look()

    assert levels(before) != {}
    assert levels(after) == levels(before)


def test_both_logs_of_a_run_are_marked_so_that_either_may_be_shown(folder: Path, watched: Watching) -> None:
    run = folder / "a"
    run.mkdir()
    page = watched(forget_after=100.0)
    for step in range(1, 41):
        append(run / "metrics.jsonl", verl_json(step, measured(step)))
        append(run / "output.log", console(step, measured(step)))
    assert page.discover().runs() == {"a"}
    page.watch.mark("a", "new data")
    for step in range(41, 81):
        append(run / "metrics.jsonl", verl_json(step, measured(step)))
        append(run / "output.log", console(step, measured(step)))
    both = page.look(1.0)
    (run / "metrics.jsonl").unlink()
    for step in range(81, 86):
        append(run / "output.log", console(step, measured(step)))
        left = page.look(30.0)

    assert both.value("rl_run_info", run="a", source="verl_jsonl") == 1
    assert left.value("rl_run_info", run="a", source="verl_console") == 1
    assert left.value("rl_records_seen", run="a") == 45


def test_a_late_part_of_the_trainer_belongs_to_the_step_it_names(folder: Path, watched: Watching) -> None:
    log = folder / "a.log"
    append(log, *(scoped(step, {"reward_mean": step % 7 / 7}) for step in range(1, 31)))
    page = watched()
    page.look()
    page.watch.mark("a", "new data")
    append(log, scoped(30, {"kl_div": 0.5}, "update"))
    assert page.look(1.0).value("rl_records_seen", run="a") == 30
    append(log, scoped(31, {"reward_mean": 0.5}))

    assert page.look(1.0).value("rl_records_seen", run="a") == 1


def test_a_run_that_is_not_there_is_refused_with_the_nearest_names(folder: Path, watched: Watching) -> None:
    (folder / "ppo").mkdir()
    for name in ("gsm8k", "math", "code", "science"):
        append(folder / "ppo" / f"{name}.jsonl", *lines(1, 3))
    page = watched()
    page.look()

    with pytest.raises(UnknownRunError, match=r"no run named ppo/gsm8\. Similar names: ppo/gsm8k, "):
        page.watch.mark("ppo/gsm8", "x")
