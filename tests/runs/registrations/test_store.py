"""The file that registrations are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.discovery import registrations
from exporter.runs.discovery.address import Allowed
from exporter.runs.discovery.registrations import ASIDE, LONGEST_JOB, MOST, NAME, Registration, Store

KNOWN = [
    Registration("10.0.0.7:8000", "vllm", {"replica": "0"}, 1795325287.8),
    Registration("[fd00::7]:9092", "trainer_metrics", {}, 1795325289.2),
]


def opened(folder: Path | None, *networks: str) -> Store:
    return Store(folder, Allowed(networks) if networks else Allowed())


@pytest.mark.parametrize("sign", ['"', "\u8bad", "\U0001f600"], ids=["escaped", "Chinese", "emoji"])
def test_all_that_may_be_registered_is_there_after_a_restart(
    tmp_path: Path, sign: str, logged: list[str]
) -> None:
    reported = {
        f"{number}".rjust(registrations.LONGEST_NAME, "x"): sign * registrations.LONGEST_VALUE
        for number in range(registrations.MOST_LABELS)
    }
    full = [
        Registration(
            f"10.0.{number // 250}.{number % 250}:65535", sign * LONGEST_JOB, reported, 1795325287.1234567
        )
        for number in range(MOST)
    ]
    assert opened(tmp_path).save(full)
    again = opened(tmp_path)

    assert again.load() == full
    assert logged == []


def test_without_a_folder_it_is_said_that_nothing_is_kept_once_there_is_something(logged: list[str]) -> None:
    store = opened(None)

    assert store.load() == []
    assert logged == []
    assert store.save(KNOWN)
    assert store.save(KNOWN)
    (words,) = logged
    assert "in memory only" in words


def test_a_damaged_file_is_kept_aside_counted_and_reported(tmp_path: Path, logged: list[str]) -> None:
    opened(tmp_path).save(KNOWN)
    whole = (tmp_path / NAME).read_bytes()
    for damaged in (
        whole[:-20],
        b"",
        b'[{"address": "10.0.0.9:1"}]',
        whole.replace(b"8000", b"8001"),
        b"\xff",
    ):
        (tmp_path / NAME).write_bytes(damaged)
        store = opened(tmp_path)

        assert store.load() == []
        assert (tmp_path / ASIDE).read_bytes() == damaged
        assert store.errors == 1
        assert str(tmp_path / ASIDE) in logged[0]
        assert store.save(KNOWN)
        assert opened(tmp_path).load() == KNOWN


@given(st.binary(max_size=400))
def test_any_other_content_of_the_file_means_no_registrations(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)

    assert opened(tmp_path).load() == []


def test_servers_that_are_no_longer_allowed_are_left_out(tmp_path: Path, logged: list[str]) -> None:
    opened(tmp_path).save(KNOWN)
    store = opened(tmp_path, "10.0.0.0/8")

    assert [one.address for one in store.load()] == ["10.0.0.7:8000"]
    assert "fd00::7" in logged[0]


def test_a_folder_that_cannot_be_written_is_reported_once_and_tried_again(
    tmp_path: Path, logged: list[str]
) -> None:
    folder = tmp_path / "state"
    folder.write_text("in the way")
    store = opened(folder)

    assert not store.save(KNOWN)
    assert not store.save(KNOWN)
    assert len(logged) == 1
    folder.unlink()
    assert store.save(KNOWN)
    assert opened(folder).load() == KNOWN


def test_an_unreadable_file_is_not_fatal(tmp_path: Path, logged: list[str]) -> None:
    (tmp_path / NAME).mkdir()
    store = opened(tmp_path)

    assert store.load() == []
    assert "cannot be read" in logged[0]
    with pytest.raises(IsADirectoryError):
        (tmp_path / NAME).read_bytes()
