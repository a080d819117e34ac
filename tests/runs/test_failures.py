"""Whatever the operating system refuses is counted, and the exporter goes on."""

from __future__ import annotations

import errno
import io
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.runs.files.state import NAME
from tests.runs.conftest import Watching, saved_logs
from tests.runs.fake_proc import pretend
from tests.runs.lines import append, console, json_steps, measured, scoped, verl_json

ERRORS = (
    errno.EIO,
    errno.ESTALE,
    errno.EACCES,
    errno.EMFILE,
    errno.ENOSPC,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EINTR,
)


class Faults:
    """Lets calls of the operating system fail, by the name of what is called."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}

    def may_fail(self, what: str) -> None:
        number = self.failing.get(what)
        if number is not None:
            raise OSError(number, os.strerror(number))

    def break_(self, patch: pytest.MonkeyPatch, owner: Any, name: str, what: str) -> None:
        works = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            self.may_fail(what)
            return works(*args, **options)

        patch.setattr(owner, name, call)


PLACES = {
    "stat": (os, "stat"),
    "open": (Path, "open"),
    "fstat": (os, "fstat"),
    "pread": (os, "pread"),
    "walk": (os, "scandir"),
    "islink": (os, "lstat"),
    "mkdir": (Path, "mkdir"),
    "write": (Path, "write_bytes"),
    "read": (Path, "read_bytes"),
    "replace": (Path, "replace"),
    "unlink": (Path, "unlink"),
    "list": (Path, "iterdir"),
    "readlink": (Path, "readlink"),
    "text": (Path, "read_text"),
}


@pytest.fixture(name="faults")
def _faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults()
    for what, (owner, name) in PLACES.items():
        faults.break_(monkeypatch, owner, name, what)
    return faults


@pytest.mark.parametrize(
    "fault",
    [{what: number} for what in PLACES for number in (errno.EIO, errno.EACCES, errno.ENOENT)],
    ids=str,
)
def test_a_call_that_fails_for_a_while_never_ends_the_exporter_and_costs_no_step(
    watched: Watching, folder: Path, tmp_path: Path, faults: Faults, fault: dict[str, int]
) -> None:
    log = folder / "a.jsonl"
    append(log, *json_steps(1, 3))
    pretend(tmp_path / "proc", 7, log, "0100001")
    page = watched(state_dir=tmp_path / "state", proc=tmp_path / "proc")
    page.look()
    faults.failing = fault
    for step in range(4, 8):
        append_raw(log, "".join(json_steps(step, step)))
        page.look(6.0)
    faults.failing = {}
    after = page.discover()

    assert after.value("rl_step", run="a") == 7
    assert after.value("rl_records_total", run="a") == 7


@pytest.mark.parametrize("what", ["stat", "open", "fstat", "pread"])
def test_a_log_that_cannot_be_read_is_counted_once_for_as_long_as_it_lasts(
    watched: Watching, folder: Path, faults: Faults, what: str
) -> None:
    append(folder / "a.jsonl", *json_steps(1, 3))
    page = watched()
    page.look()
    append(folder / "a.jsonl", *json_steps(4, 4))
    faults.failing = {what: errno.EIO}
    for _ in range(5):
        page.look(1.0)
    faults.failing = {}
    assert page.look(1.0).value("stepwatch_file_errors_total", reason="unreadable") == 1
    append(folder / "a.jsonl", *json_steps(5, 5))
    faults.failing = {what: errno.EIO}
    page.look(1.0)
    faults.failing = {}

    assert page.look(1.0).value("stepwatch_file_errors_total", reason="unreadable") == 2


@pytest.mark.parametrize("what", ["the folder is a file", "another process holds it"])
def test_a_state_that_cannot_be_written_is_counted_and_written_once_it_can_be(
    watched: Watching, folder: Path, tmp_path: Path, what: str
) -> None:
    append(folder / "a.jsonl", *json_steps(1, 3))
    state = tmp_path / "state"
    if what == "the folder is a file":
        state.touch()
        page = watched(state_dir=state)
        assert page.look().value("stepwatch_state_errors_total") == 1
        state.unlink()
    else:
        page = watched(state_dir=state)
        with closing(sqlite3.connect(state / NAME, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert page.look().value("stepwatch_state_errors_total") == 1
    assert page.look(10.0).value("stepwatch_state_errors_total") == 1

    assert saved_logs(state) == {"a.jsonl"}


@pytest.mark.slow
@given(seed=st.integers(0, 10**9))
@settings(max_examples=10)
def test_calls_that_fail_at_random_never_end_the_exporter(
    watched: Watching, folder: Path, tmp_path: Path, faults: Faults, seed: int
) -> None:
    faults.failing = {}
    for old in [*folder.iterdir(), *tmp_path.glob("state/*")]:
        old.unlink()
    random = Random(seed)
    pretend(tmp_path / "proc", seed, folder / "a.jsonl", "0100001")
    page = watched(state_dir=tmp_path / "state", proc=tmp_path / "proc")
    for step in range(1, 31):
        for name in ("a", "b"):
            append_raw(folder / f"{name}.jsonl", verl_json(step, measured(step, reward=ord(name) / 100)))
        faults.failing = {what: random.choice(ERRORS) for what in PLACES if random.random() < 0.15}
        page.look(random.choice([0.5, 3.0, 11.0]))
    faults.failing = {}
    after = page.look(11.0)

    assert (after.value("rl_step", run="a"), after.value("rl_step", run="b")) == (30, 30)
    assert (after.value("rl_records_total", run="a"), after.value("rl_records_total", run="b")) == (30, 30)


def append_raw(path: Path, text: str) -> None:
    """Write past the faults: the trainer is not what fails here."""
    with io.FileIO(path, "a") as file:
        file.write(text.encode())


writes = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 60).map(lambda step: verl_json(step, measured(step)).encode()),
    st.integers(0, 60).map(lambda step: console(step, measured(step)).encode()),
    st.integers(0, 60).map(
        lambda step: scoped(step, {"reward_mean": step / 7, "kl_div": float("nan")}).encode()
    ),
    st.sampled_from(
        [
            b"\0" * 300,
            b"\r" * 50,
            b"\n\n",
            b'{"step":1,"data":{"critic/score/mean":1e308}}\n' * 9,
            b'{"step":999999999999999,"data":{"critic/score/mean":-1e308,"actor/kl_loss":1e308}}\n',
            b'{"scope":"\\ud800","step":1,"x":NaN}\n',
            b"Total training steps: 99999999999999999999\n",
            b"Traceback (most recent call last):\n",
        ]
    ),
    st.sampled_from(["empty", "replace", "delete"]),
)


@pytest.mark.slow
@given(story=st.lists(st.tuples(writes, st.sampled_from([0.5, 3.0, 11.0])), max_size=25))
@settings(max_examples=50)
def test_no_content_of_a_log_ends_the_exporter_or_breaks_the_page(
    watched: Watching, folder: Path, tmp_path: Path, story: list[tuple[bytes | str, float]]
) -> None:
    log, states = folder / "a.log", tmp_path / "state"
    for old in [*folder.iterdir(), *states.glob("*")]:
        old.unlink()
    page = watched(state_dir=states)
    for what, seconds in story:
        if isinstance(what, bytes):
            with log.open("ab") as file:
                file.write(what)
        elif what == "delete":
            log.unlink(missing_ok=True)
        else:
            other = folder.parent / "other"
            other.write_bytes(b"")
            if what == "replace":
                other.replace(log)
            else:
                log.write_bytes(b"")
        page.look(seconds)
    page.watch.save()
    page = watched(state_dir=states)

    page.look(1.0)
    page.look(20 * 3600.0)
