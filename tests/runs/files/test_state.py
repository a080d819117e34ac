"""The state file: what it keeps, what becomes of a bad one, and of a kill at any moment."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.files.state import NAME, Saved, State

LOG = Path("/runs/ppo/train.log")
SAVED = Saved({"": {"records": 3}}, {"": {"records": 7}}, b"step:1".hex(), 500, [""], writer=True)


@given(at=st.integers(0, 20_000), byte=st.integers(0, 255))
def test_of_a_file_with_a_wrong_byte_nothing_wrong_is_taken_and_it_is_written_again(
    tmp_path: Path, at: int, byte: int
) -> None:
    file = tmp_path / "state" / NAME
    file.unlink(missing_ok=True)
    states = State(file.parent)
    states.save(LOG, SAVED)
    states.flush()
    data = bytearray(file.read_bytes())
    data[at % len(data)] = byte
    file.write_bytes(data)
    again = State(file.parent)

    assert again.ready
    assert again.load(LOG) in (SAVED, None)
    again.save(LOG, SAVED)
    again.flush()
    assert again.load(LOG) == SAVED
    assert not again.errors


def test_a_file_of_another_version_is_set_aside_as_it_is(tmp_path: Path, logged: list[str]) -> None:
    with sqlite3.connect(tmp_path / NAME) as other:
        other.execute("CREATE TABLE logs_2 (log BLOB)")
    content = (tmp_path / NAME).read_bytes()
    states = State(tmp_path)

    assert states.ready
    assert states.load(LOG) is None
    assert [file.read_bytes() for file in tmp_path.glob("*.aside")] == [content]
    assert "was moved to" in logged[-1]


def test_a_kill_at_any_moment_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(20)]
    for _ in range(10):
        writer = os.fork()
        if not writer:
            states = State(tmp_path)
            for offset in range(10**6):
                for log in logs:
                    states.save(log, Saved(None, {"": {"text": "x" * 5000}}, "", offset, []))
                states.flush()
        time.sleep(random.uniform(0.02, 0.3))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        after = State(tmp_path)
        assert after.ready
        found = {saved.offset for log in logs if (saved := after.load(log))}
        assert len(found) <= 1
        assert not list(tmp_path.glob("*.aside"))
