"""A file is followed line by line, whatever its writer does to it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.readers import follow
from exporter.runs.readers.follow import BLOCK, LAST_LINE_SECONDS, Block, Follower


@dataclass
class Read:
    """All that a follower brought."""

    follower: Follower
    blocks: list[Block] = field(default_factory=list)

    def all(self, later: float = 0.0) -> list[bytes]:
        """Read to the end; returns the lines that this brought."""
        brought: list[bytes] = []
        more = True
        while more:
            block = self.follower.poll(self.follower.path.stat().st_mtime + later)
            more = block is not None and block.more
            if block is not None:
                self.blocks.append(block)
                brought += block.lines
        return brought

    @property
    def restarts(self) -> int:
        return sum(block.restarted for block in self.blocks)

    @property
    def too_long(self) -> int:
        return sum(block.too_long for block in self.blocks)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.touch()
    return path


@pytest.fixture(name="read")
def _read(path: Path) -> Read:
    return Read(Follower(path))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


text = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\0", b""))


@given(
    lines=st.lists(text, max_size=40),
    cuts=st.lists(st.integers(0, 800), max_size=12),
    block=st.integers(64, 900),
)
def test_growth_in_any_pieces_brings_exactly_the_lines_that_were_written(
    tmp_path: Path, lines: list[bytes], cuts: list[int], block: int
) -> None:
    path = tmp_path / "pieces.log"
    path.write_bytes(b"")
    read, brought = Read(Follower(path)), list[bytes]()
    written = b"".join(line + b"\n" for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "BLOCK", block)
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
            append(path, written[start:end])
            brought += read.all()

    assert brought == lines
    assert (read.restarts, read.too_long, read.follower.unread) == (0, 0, 0)


# torn and last lines


def test_a_last_line_without_line_end_counts_after_ten_quiet_seconds_and_once(path: Path, read: Read) -> None:
    append(path, b"one\nlast")
    read.all()

    assert read.all(LAST_LINE_SECONDS - 0.1) == []
    assert read.all(LAST_LINE_SECONDS + 0.1) == [b"last"]
    assert read.all(LAST_LINE_SECONDS + 9.9) == []
    assert read.follower.unread == 0


def test_a_last_line_that_goes_on_after_all_is_read_again_as_a_whole(path: Path, read: Read) -> None:
    append(path, b'{"step":1,"da')
    read.all()
    assert read.all(LAST_LINE_SECONDS + 1) == [b'{"step":1,"da']
    append(path, b'ta":{}}\n')

    assert read.all() == [b'{"step":1,"data":{}}']
    assert read.restarts == 0


# files that restart


def test_an_emptied_file_that_grew_past_the_old_offset_between_two_looks_is_noticed(
    path: Path, read: Read
) -> None:
    append(path, b"one\ntwo\n")
    read.all()
    path.write_bytes(b"ONE\nTWO\nTHREE\nFOUR\n")

    assert read.all() == [b"ONE", b"TWO", b"THREE", b"FOUR"]
    assert read.restarts == 1


def test_a_file_that_lost_its_end_is_read_from_its_start(path: Path, read: Read) -> None:
    append(path, b"".join(b"line %04d\n" % number for number in range(100)))
    read.all()
    os.truncate(path, 500)

    assert len(read.all()) == 50
    assert read.restarts == 1


def test_an_emptied_file_drops_the_rest_of_a_torn_or_endless_line(path: Path, read: Read) -> None:
    append(path, b"x" * (BLOCK + 10))
    read.all()
    path.write_bytes(b"new\nlines\n")

    assert read.all() == [b"new", b"lines"]


def test_a_file_that_another_took_the_place_of_while_it_was_looked_at_is_read_once(
    path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, b"one\n")
    read.all()
    append(path, b"two\n")
    status, looks = os.stat, list[Path]()

    def stat(looked_at: Any, **options: Any) -> os.stat_result:
        found = status(looked_at, **options)
        if looked_at == path:
            looks.append(path)
            if len(looks) == 2:  # the first is the test's own
                path.with_name("other").write_bytes(b"new\nfile\n")
                path.with_name("other").replace(path)
        return found

    monkeypatch.setattr(os, "stat", stat)

    assert read.all() == [b"new", b"file"]
    assert read.all() == []
    assert read.restarts == 1


def test_a_failing_read_changes_nothing(path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, b"one\ntwo\n")
    read.all()
    path.write_bytes(b"new\n")

    def broken(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        with pytest.raises(OSError, match="input/output"):
            read.all()

    assert read.all() == [b"new"]
    assert read.restarts == 1


@given(
    attempts=st.lists(
        st.tuples(st.lists(st.integers(0, 999), max_size=8), st.sampled_from(["empty", "replace"])),
        max_size=6,
    )
)
def test_every_attempt_in_one_file_is_read_in_full(
    tmp_path: Path, attempts: list[tuple[list[int], str]]
) -> None:
    path = tmp_path / "attempts.log"
    path.write_bytes(b"")
    read = Read(Follower(path))
    for number, (steps, how) in enumerate(attempts):
        if how == "empty":
            path.write_bytes(b"")
            read.all()
        lines = [b"attempt %d step %d" % (number, step) for step in steps]
        other = path.with_name("other")
        other.write_bytes(b"".join(line + b"\n" for line in lines))
        if how == "replace":
            other.replace(path)
        else:
            append(path, other.read_bytes())

        assert read.all() == lines


# strange content


def test_nul_bytes_are_dropped(path: Path, read: Read) -> None:
    append(path, b"one\n" + b"\0" * 5000 + b"two\n" + b"th\0ree\n")

    assert read.all() == [b"one", b"two", b"three"]


def test_a_file_emptied_under_a_writer_that_keeps_its_offset_is_read_on(path: Path, read: Read) -> None:
    with path.open("wb", buffering=0) as writer:
        writer.write(b"one\ntwo\n")
        read.all()
        os.truncate(path, 0)
        writer.write(b"three\n")

    assert path.read_bytes() == b"\0" * 8 + b"three\n"
    assert read.all() == [b"three"]
    assert read.restarts == 1


def test_hours_of_a_progress_bar_without_line_end_are_split_at_carriage_returns(
    path: Path, read: Read
) -> None:
    bar = b"\rTraining Progress:   3%|" + b"#" * 60
    append(
        path, b"before\n" + bar * (BLOCK // len(bar) + 1000) + b"\rstep:12 - critic/score/mean:0.5\nafter\n"
    )

    lines = read.all()

    assert lines[0] == b"before"
    assert lines[-1] == b"after"
    assert b"step:12" in lines[-2]
    assert read.too_long == 0


def test_memory_stays_bounded_over_100_mb_without_line_end(tmp_path: Path) -> None:
    path = tmp_path / "endless.log"
    path.write_bytes(b"x" * 1_000_000 * 100 + b"\nend\n")
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from resource import RUSAGE_SELF, getrusage
        from exporter.runs.readers.follow import Follower
        follower, lines, before = Follower(Path(sys.argv[1])), [], getrusage(RUSAGE_SELF).ru_maxrss
        while (block := follower.poll(0.0)) is not None and block.more:
            lines += block.lines
        print(len(lines + block.lines), getrusage(RUSAGE_SELF).ru_maxrss - before)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    lines, kilobytes = map(int, done.stdout.split())

    assert lines == 1
    assert kilobytes < 30_000


# files that cannot be read


def test_a_file_emptied_and_written_again_to_the_same_size_is_read_again(path: Path, read: Read) -> None:
    path.write_bytes(b"step 1\n")
    read.all()
    path.write_bytes(b"step 2\n")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 1))

    assert read.all() == [b"step 2"]
    assert read.restarts == 1
