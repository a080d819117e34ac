"""`python -m stepwatch inspect` tells what is read of logs, and docs/formats.md shows it of the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwatch.__main__ import main
from tests import formats


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text('signals: {reward: ["env/score"]}\n')
    return path


def test_a_log_is_told_with_format_steps_signals_and_other_keys(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"actor/entropy": 0.5, "env/score": 1.0, "env/depth": 3}
    log = tmp_path / "a.jsonl"
    log.write_text(
        "".join(json.dumps({"step": step, "data": values | {"x": step}}) + "\n" for step in (3, 4))
    )

    assert main(["inspect", "--config", str(config), str(log)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.jsonl: verl (verl_jsonl), 2 records, steps 3-4",
        "    signals: entropy, reward",
        "    without a signal: env/depth, x",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (bytes(range(256)), "no text"),
        (b"hello\n", "no record of a trainer"),
        (b'{\n "hidden_size": 4\n}\n', "JSON without a history of steps"),
    ],
)
def test_a_file_that_is_no_log_is_told_as_what_it_is(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
) -> None:
    (tmp_path / "x.txt").write_bytes(content)

    assert main(["inspect", "--config", str(config), str(tmp_path / "x.txt")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"x.txt: {says}"


def test_a_path_that_is_not_there_is_told_with_where_to_read_on(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--config", str(config), str(tmp_path / "nowhere")]) == 1
    assert "docs/formats.md" in capsys.readouterr().out


def test_a_last_line_without_line_end_is_read(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("step:1 - critic/score/mean:0.5\nstep:2 - critic/score/mean:0.6")
    main(["inspect", "--config", str(config), str(tmp_path / "a.log")])

    assert "2 records, steps 1-2" in capsys.readouterr().out


def test_the_page_of_formats_shows_what_is_read_of_the_real_logs_today() -> None:
    assert formats.real_logs().is_dir()
    shown = formats.PAGE.read_text(encoding="utf-8")

    assert formats.page(shown) == shown


def test_every_real_log_of_a_trainer_is_read() -> None:
    rows = [line for line in formats.table().splitlines()[2:] if ".prom" not in line]

    assert len(rows) > 50
    assert all(int(row.split("|")[5]) >= 10 for row in rows)
