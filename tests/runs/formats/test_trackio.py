"""Trackio's database: one that Trackio itself wrote, and growing ones with its tables."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats.trackers import Trackio
from exporter.runs.readers.content import content, reader_of
from exporter.runs.signals.record import Event, Record
from tests.runs.conftest import Watching

TABLES = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
    run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
    config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
"""
LATER = "2026-10-02T10:11:12.5+00:00"


class Writer:
    """A process that logs; ``journal`` is how its database keeps transactions."""

    def __init__(self, path: Path, journal: str = "WAL") -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute(f"PRAGMA journal_mode = {journal}")
        self.database.executescript(TABLES)

    def logs(self, step: int, metrics: Mapping[str, Any], run: str = "a", code: str = "1" * 32) -> None:
        row = (code, LATER, run, step, json.dumps(metrics).encode())
        self.database.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row
        )

    def close(self) -> None:
        self.database.close()


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "grpo.db"


@pytest.fixture(name="writer")
def _writer(path: Path) -> Iterator[Writer]:
    with closing(Writer(path)) as writer:
        yield writer


def lines(path: Path) -> list[bytes]:
    reader, found = reader_of("database", lambda: [path]), list[bytes]()
    while block := reader.poll(0.0):
        found += block.lines
    return found


def read(*rows: bytes) -> list[Event]:
    source = Trackio()
    return [event for row in rows for event in source.parse(row)]


def records(*rows: bytes) -> list[Record]:
    return [event for event in read(*rows) if isinstance(event, Record)]


# while it grows


@pytest.mark.parametrize("journal", ["WAL", "DELETE", "TRUNCATE"])
def test_rows_are_on_the_next_page_however_the_database_keeps_transactions(
    journal: str, folder: Path, watched: Watching
) -> None:
    page = watched()
    with closing(Writer(folder / "grpo.db", journal)) as writer:
        page.discover()
        for step in range(1, 7):
            writer.logs(step, {"reward": step / 8, "kl": 0.01})
            found = page.discover()
            assert found.value("rl_step", run="grpo/a") == step
            assert found.value("rl_reward", run="grpo/a") == step / 8

    assert found.value("rl_records_total", run="grpo/a") == 6
    assert found.state("grpo/a") == "running"


def test_nothing_is_left_beside_a_database_that_no_one_has_open(path: Path) -> None:
    writer = Writer(path)
    writer.logs(1, {"reward": 0.5})
    writer.close()

    assert len(records(*lines(path))) == 1
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["grpo.db"]


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_writer_never_waits_for_the_reader(path: Path, journal: str) -> None:
    with closing(Writer(path, journal)) as writer:
        writer.database.execute("PRAGMA busy_timeout = 0")
        reader = reader_of("database", lambda: [path])
        for step in range(50):
            writer.database.execute("BEGIN IMMEDIATE")
            writer.logs(step, {"reward": 0.5})
            reader.poll(0.0)  # in the middle of a transaction
            writer.database.execute("COMMIT")
        found = lines(path)

    assert [record.step for record in records(*found)] == list(range(50))


def test_rows_of_a_transaction_that_was_rolled_back_are_never_read(path: Path, writer: Writer) -> None:
    reader = reader_of("database", lambda: [path])
    writer.logs(1, {"reward": 0.5})
    writer.database.execute("BEGIN")
    writer.logs(2, {"reward": 0.7})
    first = reader.poll(0.0)
    writer.database.execute("ROLLBACK")
    writer.logs(2, {"reward": 0.6})
    second = reader.poll(0.0)

    assert [(record.step, record.values["reward"]) for record in records(*first.lines, *second.lines)] == [
        (1, 0.5),
        (2, 0.6),
    ]


def test_deleted_rows_are_no_start_from_scratch_but_another_database_is(path: Path, writer: Writer) -> None:
    reader = reader_of("database", lambda: [path])
    for step in (1, 2, 3):
        writer.logs(step, {"reward": 0.5})
    reader.poll(0.0)
    writer.database.execute("DELETE FROM metrics WHERE step > 1")
    assert reader.poll(0.0) is None
    writer.logs(4, {"reward": 0.5})
    block = reader.poll(0.0)
    assert (block.restarted, [record.step for record in records(*block.lines)]) == (False, [4])

    writer.close()
    path.unlink()
    with closing(Writer(path)) as another:
        another.logs(1, {"reward": 0.25})
        block = reader.poll(0.0)
    assert (block.restarted, [record.step for record in records(*block.lines)]) == (True, [1])


def test_many_rows_are_read_in_several_looks_each_once(path: Path, writer: Writer) -> None:
    writer.database.execute("BEGIN")
    for step in range(2500):
        writer.logs(step, {"reward": 0.5})
    writer.database.execute("COMMIT")
    reader, looks = reader_of("database", lambda: [path]), []
    while block := reader.poll(0.0):
        looks.append(block)

    assert [block.more for block in looks] == [True, True, False]
    assert [record.step for block in looks for record in records(*block.lines)] == list(range(2500))


def test_a_second_run_of_a_name_is_one_of_its_own(path: Path, writer: Writer) -> None:
    writer.logs(1, {"reward": 0.5})
    writer.logs(1, {"reward": 0.6}, code="abcdef0123456789")

    assert [record.run for record in records(*lines(path))] == ["a", "a abcdef01"]


def test_older_databases_without_ids_and_configurations_are_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT, run_name TEXT,"
            " step INTEGER, metrics TEXT)"
        )
        database.execute(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, 'a', 3, ?)",
            (LATER, '{"reward": 0.5}'),
        )
        database.commit()

    assert [(record.run, record.step) for record in records(*lines(path))] == [("a", 3)]


# what it is made of


def test_databases_of_others_are_left_alone_and_files_beside_one_too(path: Path, writer: Writer) -> None:
    other = path.with_name("mlruns.db")
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE metrics (key TEXT, value REAL, run_uuid TEXT, step INTEGER)")
        database.commit()

    assert content(other) == "binary"
    assert content(path) == "database"
    writer.logs(1, {"reward": 0.5})
    assert [content(path.with_name(f"grpo.db-{end}")) for end in ("wal", "shm")] == ["binary", "binary"]


def test_a_database_without_a_table_is_looked_at_again(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
        database.commit()

        assert content(path) == "empty"
        database.executescript(TABLES)

    assert content(path) == "database"


def test_what_only_begins_like_a_database_is_not_one(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)

    assert content(path) == "binary"


def test_a_database_that_is_damaged_later_is_reported_as_unreadable(path: Path, writer: Writer) -> None:
    for step in range(200):
        writer.logs(step, {"reward": 0.5})
    writer.close()
    reader, data = reader_of("database", lambda: [path]), path.read_bytes()
    path.write_bytes(b"no database at all " * (len(data) // 19))

    with pytest.raises(OSError, match="not a database"):
        reader.poll(0.0)


@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.floats() | st.integers(-(2**53), 2**53), min_size=1),
    st.integers(0, 10**9),
)
def test_any_numbers_come_back_as_they_were_logged(values: dict[str, float], step: int) -> None:
    """Trackio writes what is not finite as a text."""
    texts = {math.inf: "Infinity", -math.inf: "-Infinity"}
    values.pop("train/global_step", None)
    values["reward"] = 0.5
    written = {
        key: "NaN" if value != value else texts.get(value, value)  # noqa: PLR0124  (NaN alone is not itself)
        for key, value in values.items()
    }
    row = {"run": "a", "id": "1", "step": step, "time": LATER, "metrics": {**written, "note": "0.5"}}
    (record,) = records(json.dumps(row).encode())

    assert record.step == step
    assert {key: repr(float(value)) for key, value in record.values.items()} == {
        key: repr(float(value)) for key, value in values.items()
    }
