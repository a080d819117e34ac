"""Logs are distinguished by what stands in them."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats import SOURCES, recognise, recognise_first
from exporter.runs.readers.content import content
from exporter.runs.readers.follow import Block
from exporter.runs.readers.frames import records
from exporter.runs.signals.record import Event, Record
from exporter.runs.signals.tables import frameworks
from tests.own_logs import LOGS
from tests.runs.events import scalar
from tests.runs.lines import console, measured
from tests.runs.wandb_files import HEADER, history

AREAL = "(AReaL) 20260521-10:11:12.345 StatsLogger INFO: Epoch 1/5 Step 12/100 Train step 12/500 done."


def name(line: str) -> str | None:
    source = recognise(line.rstrip("\n").encode())
    return None if source is None else source.name


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        '  "log_history": [{"epoch": 0.1, "reward": 0.5, "step": 10}],',
        '{"input":"What is 2+2?","output":"4","gts":"4","score":1.0,"step":7}',
        '{"prompt":"step:1 is easy","response":"step:2 too","step":7}',
        "1,0.5,0.25",
        "prompt,response,score",
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0"} 1.0',
        "step: 12 - loss: 0.5 is what the tutorial says",
    ],
)
def test_other_formats_are_not_taken_for_one_of_ours(line: str) -> None:
    assert name(line) is None


def test_words_before_a_log_are_no_head_of_a_table() -> None:
    log = [console(step, measured(step)).encode() for step in range(3)]
    source = recognise_first([b"reward,entropy,kl", *log])

    assert source.name == "verl_console"


def test_the_head_of_a_table_is_one_before_its_rows_come_and_with_a_row_after_blank_ones() -> None:
    head = b"step,reward,entropy"
    found = [recognise_first(lines) for lines in ([head], [head, b""], [head, b",,", b"1,2,3"])]

    assert [source.name for source in found if source] == ["csv"] * 3


BEGINNINGS = [
    b"",
    b'{"step":1,"reward":',
    b'{"step":1,"data":',
    b'{"scope":"a","step":1,"timestamp":',
    b'{"event":"rollout_done","partition_id":"a","metrics":{"x":',
    b'{"log_history": [',
    b"step,reward_mean\n1,",
    b" step:12 - ",
    b"{'loss': 0.1, 'epoch': ",
    b"Global step 3: {",
    b"step 3: {'train/",
    "📊 Training Results:\n  • a: ".encode(),
    f"{AREAL}\n│ a │".encode(),
    b"epoch: 0|step: 1|ppo_ep: 1|act_loss: ",
    b"metrics_tag: ",
    b"Step 3 | Loss ",
    scalar(300, "train/reward", 0.5)[:-4],
    history({"reward": 0.5}, 1),
]
"""What lines begin with, so that what follows reaches the parser of each format."""
ANY = st.binary(max_size=200) | st.text(st.sampled_from('{}[]":,;\t|•0123456789.eE-NaIfintyreward \\u')).map(
    str.encode
)


@pytest.mark.parametrize("kind", SOURCES)
@given(start=st.sampled_from(BEGINNINGS), lines=st.lists(ANY, max_size=6))
def test_whatever_a_line_holds_it_is_events_or_a_value_error(
    kind: str, start: bytes, lines: list[bytes]
) -> None:
    for each in SOURCES[kind]:
        source, found = each(), list[Event]()
        for line in (*start.split(b"\n"), *lines, *(start.rpartition(b"\n")[2] + line for line in lines)):
            source.recognises(line)
            with suppress(ValueError):
                found += source.parse(line)
        found += source.flush()
        assert all(event.step >= 0 for event in found if isinstance(event, Record))


@given(st.binary(max_size=200))
def test_whatever_a_tracker_s_file_holds_it_is_split(data: bytes) -> None:
    for start in (b"", HEADER, b":SWL" + HEADER[4:]):
        records(start + data, Block())


def test_names_are_label_values_of_their_own_and_frameworks_have_keys() -> None:
    sources = {source for several in SOURCES.values() for source in several}

    assert len({source.name for source in sources}) == len(sources)
    assert all(re.fullmatch(r"[a-z_]+", source.name) for source in sources)
    assert {source.framework for source in sources} <= {"", *frameworks()}


# logs that trainers wrote for us


@pytest.mark.parametrize(
    ("files", "kind", "sources"),
    [
        ("verl/*.log", "text", {"verl_console"}),
        ("verl/*.jsonl", "text", {"verl_jsonl"}),
        ("trl/*.log", "text", {"trl_console"}),
        ("trl/*/*/trainer_state.json", "document", {"trainer_state"}),
        ("ray/*.prom", "text", set()),
    ],
)
def test_a_file_is_recognised_as_what_it_is_wherever_one_begins_to_read(
    files: str, kind: str, sources: set[str]
) -> None:
    texts = [path.read_bytes() for path in LOGS.glob(files) if content(path) == kind]
    lines = [line for text in texts for line in (text.split(b"\n") if kind == "text" else [text])]

    assert lines
    assert {found.name for line in lines if (found := recognise(line, kind))} == sources
