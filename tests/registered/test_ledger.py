"""The file that registrations are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.registered import labels
from exporter.runs.registered.ledger import ASIDE, NAME, Ledger
from exporter.runs.registered.order import LONGEST_JOB
from exporter.runs.registered.table import MOST, Registration
from exporter.runs.rollouts.address import Allowed

KNOWN = [
    Registration("10.0.0.7:8000", "vllm", {"replica": "0"}, 1795325287.8),
    Registration("[fd00::7]:9092", "trainer_metrics", {}, 1795325289.2),
]


class Kept:
    """A ledger in a folder, and what it said."""

    def __init__(self, folder: Path | None, *networks: str) -> None:
        self.said: list[str] = []
        self.ledger = Ledger(folder, Allowed(networks) if networks else Allowed(), self.said.append)


def test_what_is_registered_is_there_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert Kept(folder).ledger.load() == []
    assert Kept(folder).ledger.save(KNOWN)
    again = Kept(folder)

    assert again.ledger.load() == KNOWN
    assert again.said == []
    assert again.ledger.errors == 0


@pytest.mark.parametrize("sign", ['"', "\u8bad", "\U0001f600"], ids=["escaped", "Chinese", "emoji"])
def test_all_that_may_be_registered_is_there_after_a_restart(tmp_path: Path, sign: str) -> None:
    told = {
        f"{number}".rjust(labels.LONGEST_NAME, "x"): sign * labels.LONGEST_VALUE
        for number in range(labels.MOST)
    }
    full = [
        Registration(
            f"10.0.{number // 250}.{number % 250}:65535", sign * LONGEST_JOB, told, 1795325287.1234567
        )
        for number in range(MOST)
    ]
    assert Kept(tmp_path).ledger.save(full)
    again = Kept(tmp_path)

    assert again.ledger.load() == full
    assert again.said == []


def test_without_a_folder_it_is_said_that_nothing_is_kept_once_there_is_something() -> None:
    kept = Kept(None)

    assert kept.ledger.load() == []
    assert kept.said == []
    assert kept.ledger.save(KNOWN)
    assert kept.ledger.save(KNOWN)
    (words,) = kept.said
    assert "in memory only" in words


def test_a_damaged_file_is_kept_aside_counted_and_told(tmp_path: Path) -> None:
    Kept(tmp_path).ledger.save(KNOWN)
    whole = (tmp_path / NAME).read_bytes()
    for damaged in (
        whole[:-20],
        b"",
        b'[{"address": "10.0.0.9:1"}]',
        whole.replace(b"8000", b"8001"),
        b"\xff",
    ):
        (tmp_path / NAME).write_bytes(damaged)
        kept = Kept(tmp_path)

        assert kept.ledger.load() == []
        assert (tmp_path / ASIDE).read_bytes() == damaged
        assert kept.ledger.errors == 1
        assert str(tmp_path / ASIDE) in kept.said[0]
        assert kept.ledger.save(KNOWN)
        assert Kept(tmp_path).ledger.load() == KNOWN


@given(st.binary(max_size=400))
def test_whatever_stands_in_the_file_begins_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)

    assert Kept(tmp_path).ledger.load() == []


def test_servers_that_are_no_longer_allowed_are_left_out(tmp_path: Path) -> None:
    Kept(tmp_path).ledger.save(KNOWN)
    kept = Kept(tmp_path, "10.0.0.0/8")

    assert [one.address for one in kept.ledger.load()] == ["10.0.0.7:8000"]
    assert "fd00::7" in kept.said[0]


def test_a_folder_that_cannot_be_written_is_told_of_once_and_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("in the way")
    kept = Kept(folder)

    assert not kept.ledger.save(KNOWN)
    assert not kept.ledger.save(KNOWN)
    assert len(kept.said) == 1
    folder.unlink()
    assert kept.ledger.save(KNOWN)
    assert Kept(folder).ledger.load() == KNOWN


def test_a_file_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    kept = Kept(tmp_path)

    assert kept.ledger.load() == []
    assert "cannot be read" in kept.said[0]
    with pytest.raises(IsADirectoryError):
        (tmp_path / NAME).read_bytes()
