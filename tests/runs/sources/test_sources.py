"""Logs are distinguished by what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.readers.content import content
from exporter.runs.signals.keys import FRAMEWORKS
from exporter.runs.signals.record import Record, number
from exporter.runs.sources import SOURCES, recognise, recognise_first
from exporter.runs.sources.line_consoles import VerlConsole
from tests.own_logs import CONSOLES, LOGS
from tests.runs.lines import console, measured, scoped, verl_json


def name(line: str) -> str | None:
    source = recognise(line.rstrip("\n").encode())
    return None if source is None else source.name


def test_each_format_is_recognised_by_its_content() -> None:
    assert name(verl_json(1, measured(1))) == "verl_jsonl"
    assert name(scoped(1, {"reward_mean": 0.5})) == "scoped_jsonl"
    assert name(console(1, measured(1))) == "verl_console"
    assert name("{'loss': 0.0, 'grad_norm': 4.4, 'reward': 0.9, 'epoch': 0.01}") == "trl_console"
    assert name('{"loss": 0.1, "step": 10, "reward": 0.5}') == "flat_jsonl"
    assert name("Step,critic/rewards/mean") == "csv"


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

    assert source is not None
    assert source.name == "verl_console"


def test_the_head_of_a_table_is_one_before_its_rows_come_and_with_a_row_after_blank_ones() -> None:
    head = b"step,reward,entropy"
    found = [recognise_first(lines) for lines in ([head], [head, b""], [head, b",,", b"1,2,3"])]

    assert [source.name for source in found if source] == ["csv"] * 3


@given(st.binary(max_size=300), st.sampled_from(sorted(SOURCES)))
def test_random_bytes_never_raise(line: bytes, kind: str) -> None:
    recognise(line, kind)


def test_names_are_label_values_of_their_own_and_frameworks_have_keys() -> None:
    sources = {source for several in SOURCES.values() for source in several}

    assert len({source.name for source in sources}) == len(sources)
    assert all(re.fullmatch(r"[a-z_]+", source.name) for source in sources)
    assert {source.framework for source in sources} <= {"", *FRAMEWORKS}


# logs that trainers wrote for us


def independent(text: str) -> list[tuple[int, int]]:
    """Step and number of ``key:value`` pairs of each record, by a plain regular expression."""
    lines = re.findall(r"(?<![\w/])step:(\d+) - (.*?:.*?)(?=[\r\n\x1b]|$)", text)
    return [
        (int(step), len(re.findall(r"(?<=:)(?:np\.\w+\()?-?(?:[\d.]+(?:e-?\d+)?|nan)\)?(?= -|$)", rest)))
        for step, rest in lines
    ]


by_console = pytest.mark.parametrize("log", CONSOLES, ids=lambda log: log.stem)


@by_console
def test_verls_console_holds_the_records_that_a_plain_search_finds(log: Path) -> None:
    source = VerlConsole()
    events = [event for line in log.read_bytes().split(b"\n") for event in source.parse(line)]
    found = [event for event in events if isinstance(event, Record)]
    expected = independent(log.read_text())

    assert len(expected) >= 30
    assert [record.step for record in found] == [step for step, _ in expected]
    for record, (step, pairs) in zip(found, expected, strict=True):
        numbers = sum(number(value) is not None for value in record.values.values())
        assert pairs - 1 <= numbers <= pairs, step


@by_console
def test_verls_console_is_recognised_by_its_records_only(log: Path) -> None:
    recognised = [line for line in log.read_bytes().split(b"\n") if recognise(line)]

    assert recognised
    assert all(b"step:" in line for line in recognised)


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
