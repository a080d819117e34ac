"""State files: what they keep, and what becomes of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.files import state_file
from exporter.runs.files.state_file import Saved, StateFolder

LOG = Path("/runs/ppo/train.log")
SAVED = Saved(carry={"records": 3}, latest={"records": 7}, head=b"step:1".hex(), offset=500, watched=True)


@pytest.fixture(name="states")
def _states(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path / "state" / "runs")


def only_file(states: StateFolder) -> Path:
    (found,) = states.folder.iterdir()
    return found


@given(at=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_file_with_a_wrong_byte_counts_as_none(tmp_path: Path, at: int, byte: int) -> None:
    states = StateFolder(tmp_path / "wrong")
    states.save(LOG, SAVED)
    file = only_file(states)
    data = bytearray(file.read_bytes())
    same = data[at % len(data)] == byte
    data[at % len(data)] = byte
    file.write_bytes(data)

    assert states.load(LOG) == (SAVED if same else None)


def test_a_file_of_another_version_counts_as_none(
    states: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.save(LOG, SAVED)
    monkeypatch.setattr(state_file, "TITLE", "stepwatch-state 0")

    assert states.load(LOG) is None


def test_a_failing_write_leaves_the_old_state(states: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    states.save(LOG, SAVED)

    def full(*_: object) -> int:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        states.save(LOG, Saved(None, {"records": 8}, "", 0, watched=False))

    assert states.load(LOG) == SAVED
