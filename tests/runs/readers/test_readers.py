"""Files are read line by line, whatever their writer does to them, and as what they are."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.readers import follow
from exporter.runs.readers.content import reader_of
from exporter.runs.readers.follow import BLOCK, LAST_LINE_SECONDS, Block, Growing, Reader

Act = Callable[[Path], float | None]
"""Does something to a file; returns the seconds until it is read then, if any pass."""


def blocks(reader: Reader, later: float = 0.0) -> list[Block]:
    """All that there is to read now, so many seconds after the file changed."""
    found: list[Block] = []
    while (block := reader.poll(reader.path.stat().st_mtime + later)) is not None:
        found.append(block)
        if not block.more:
            break
    return found


def lines(reader: Reader, later: float = 0.0) -> list[bytes]:
    return [line for block in blocks(reader, later) for line in block.lines]


def of_text(path: Path) -> Reader:
    return reader_of("text", lambda: [path])


def append(data: bytes) -> Act:
    def act(path: Path) -> None:
        with path.open("ab") as file:
            file.write(data)

    return act


def write(data: bytes, seconds: float = 0.0) -> Act:
    """Empty and write it, so many seconds later by its time."""

    def act(path: Path) -> None:
        path.touch()
        before = path.stat()
        path.write_bytes(data)
        if seconds:
            os.utime(path, (before.st_atime, before.st_mtime + seconds))

    return act


def replaced(data: bytes) -> Act:
    def act(path: Path) -> None:
        other = path.with_name("other")
        other.write_bytes(data)
        other.replace(path)

    return act


def wait(seconds: float) -> Act:
    return lambda _path: seconds


def truncate(size: int) -> Act:
    return lambda path: os.truncate(path, size)


NUMBERED = [b"line %04d" % number for number in range(100)]
BAR = b"\rTraining Progress:   3%|" + b"#" * 60
BARS = BAR * (BLOCK // len(BAR) + 1000)

STORIES: dict[str, tuple[int, list[tuple[Act, list[bytes]]]]] = {
    "a last line without line end counts after ten quiet seconds, and once": (
        0,
        [
            (append(b"one\nlast"), [b"one"]),
            (wait(LAST_LINE_SECONDS - 0.1), []),
            (wait(LAST_LINE_SECONDS + 0.1), [b"last"]),
            (wait(LAST_LINE_SECONDS + 9.9), []),
        ],
    ),
    "a last line that goes on after all is read again as a whole": (
        0,
        [
            (append(b'{"step":1,"da'), []),
            (wait(LAST_LINE_SECONDS + 1), [b'{"step":1,"da']),
            (append(b'ta":{}}\n'), [b'{"step":1,"data":{}}']),
        ],
    ),
    "emptied, and past the old offset again at the next look": (
        1,
        [
            (append(b"one\ntwo\n"), [b"one", b"two"]),
            (write(b"ONE\nTWO\nTHREE\nFOUR\n"), [b"ONE", b"TWO", b"THREE", b"FOUR"]),
        ],
    ),
    "emptied and written again to the same size": (
        1,
        [(append(b"step 1\n"), [b"step 1"]), (write(b"step 2\n", 1.0), [b"step 2"])],
    ),
    "replaced by a longer one that begins alike": (
        1,
        [(append(b"one\n"), [b"one"]), (replaced(b"one\ntwo\n"), [b"one", b"two"])],
    ),
    "it lost its end": (
        1,
        [(append(b"\n".join(NUMBERED) + b"\n"), NUMBERED), (truncate(500), NUMBERED[:50])],
    ),
    "emptied in the middle of an endless line": (
        1,
        [(append(b"x" * (BLOCK + 10)), []), (write(b"new\nlines\n"), [b"new", b"lines"])],
    ),
    "NUL bytes are dropped": (
        0,
        [(append(b"one\n" + b"\0" * 5000 + b"two\n" + b"th\0ree\n"), [b"one", b"two", b"three"])],
    ),
    "emptied under a writer that keeps its offset": (
        1,
        [(append(b"one\ntwo\n"), [b"one", b"two"]), (write(b"\0" * 8 + b"three\n"), [b"three"])],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_a_writer_does_to_a_file_costs_no_line(tmp_path: Path, name: str) -> None:
    path, found = tmp_path / "train.log", list[Block]()
    path.touch()
    reader, (restarts, story) = of_text(path), STORIES[name]
    for act, expected in story:
        brought = blocks(reader, act(path) or 0.0)
        found += brought

        assert [line for block in brought for line in block.lines] == expected

    assert sum(block.restarted for block in found) == restarts
    assert reader.unread == 0


def test_hours_of_a_progress_bar_without_line_end_are_split_at_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"before\n" + BARS + b"\rstep:12 - critic/score/mean:0.5\nafter\n")
    found = blocks(of_text(path))
    read = [line for block in found for line in block.lines]

    assert (read[0], read[-1]) == (b"before", b"after")
    assert b"step:12" in read[-2]
    assert sum(block.too_long for block in found) == 0


text = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\0", b""))


@given(
    written=st.lists(text, max_size=40),
    cuts=st.lists(st.integers(0, 800), max_size=12),
    block=st.integers(64, 900),
)
def test_growth_in_any_pieces_brings_exactly_the_lines_that_were_written(
    tmp_path: Path, written: list[bytes], cuts: list[int], block: int
) -> None:
    path = tmp_path / "pieces.log"
    path.write_bytes(b"")
    reader, brought = of_text(path), list[Block]()
    whole = b"".join(line + b"\n" for line in written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "BLOCK", block)
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
            append(whole[start:end])(path)
            brought += blocks(reader)

    assert [line for block in brought for line in block.lines] == written
    assert not any(block.restarted or block.too_long for block in brought)
    assert reader.unread == 0


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
    reader = of_text(path)
    for number, (steps, how) in enumerate(attempts):
        expected = [b"attempt %d step %d" % (number, step) for step in steps]
        whole = b"".join(line + b"\n" for line in expected)
        if how == "empty":
            path.write_bytes(b"")
            lines(reader)
            append(whole)(path)
        else:
            replaced(whole)(path)

        assert lines(reader) == expected


def test_a_file_that_another_took_the_place_of_while_it_was_looked_at_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"one\n")
    reader = of_text(path)
    assert lines(reader) == [b"one"]
    append(b"two\n")(path)
    status, looks = os.stat, list[Path]()

    def stat(looked_at: Any, **options: Any) -> os.stat_result:
        found = status(looked_at, **options)
        if looked_at == path:
            looks.append(path)
            if len(looks) == 2:  # the first is the test's own
                replaced(b"new\nfile\n")(path)
        return found

    monkeypatch.setattr(os, "stat", stat)
    found = blocks(reader)

    assert [(block.lines, block.restarted) for block in found] == [([b"new", b"file"], True)]
    assert blocks(reader) == []


def test_a_failing_read_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"one\ntwo\n")
    reader = of_text(path)
    lines(reader)
    path.write_bytes(b"new\n")

    def broken(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        with pytest.raises(OSError, match="input/output"):
            blocks(reader)

    assert [(block.lines, block.restarted) for block in blocks(reader)] == [([b"new"], True)]


def test_memory_stays_bounded_over_100_mb_without_line_end(tmp_path: Path) -> None:
    path = tmp_path / "endless.log"
    path.write_bytes(b"x" * 1_000_000 * 100 + b"\nend\n")
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from resource import RUSAGE_SELF, getrusage
        from exporter.runs.readers.content import reader_of
        path, lines, before = Path(sys.argv[1]), [], getrusage(RUSAGE_SELF).ru_maxrss
        reader = reader_of("text", lambda: [path])
        while (block := reader.poll(0.0)) is not None and block.more:
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
    count, kilobytes = map(int, done.stdout.split())

    assert count == 1
    assert kilobytes < 30_000


# documents


def test_a_document_too_long_for_the_memory_is_counted_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LONGEST_DOCUMENT", 10)
    path = tmp_path / "long.json"
    path.write_text("[1, 2, 3, 4, 5]")
    (block,) = blocks(reader_of("document", lambda: [path]))

    assert (block.lines, block.too_long, block.more) == ([], 1, False)


# compressed logs


def archive(path: Path, content: bytes) -> Reader:
    path.write_bytes(content)
    return reader_of("compressed", lambda: [path])


def filled(found: Iterable[bytes]) -> list[bytes]:
    return [line for line in found if line]


@given(written=st.lists(text), block=st.integers(40, 200), ended=st.booleans())
def test_a_compressed_log_holds_the_lines_that_were_compressed(
    tmp_path: Path, written: list[bytes], block: int, *, ended: bool
) -> None:
    whole = b"\n".join(written) + (b"\n" if ended and written else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "BLOCK", block)
        found = lines(archive(tmp_path / "old.log.gz", gzip.compress(whole)))

    assert filled(found) == filled(written)


def test_a_compressed_log_is_read_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    reader = archive(tmp_path / "old.log.gz", gzip.compress(b"one\ntwo\n"))

    assert lines(reader) == [b"one", b"two"]
    assert reader.poll(0.0) is None
    reader.path.write_bytes(gzip.compress(b"three\n"))
    again = blocks(reader)
    assert [(block.lines, block.restarted) for block in again] == [([b"three"], True), ([], False)]


@pytest.mark.parametrize("cut", [3, 12, 40, -5])
def test_a_compressed_log_that_is_cut_off_gives_what_it_has(tmp_path: Path, cut: int) -> None:
    whole = b"".join(b"line %d\n" % number for number in range(1000))
    found = blocks(archive(tmp_path / "torn.log.gz", gzip.compress(whole)[:cut]))

    assert sum(block.broken for block in found) == 1
    assert whole.startswith(b"\n".join(filled(line for block in found for line in block.lines)))


def test_a_compressed_log_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    content = b"".join((b"%d " % number) * 50_000 + b"\n" for number in range(40))
    reader = archive(tmp_path / "big.log.gz", gzip.compress(content, 1))

    assert max(block.size for block in blocks(reader)) <= 2 * BLOCK


# several files as one


def test_a_new_file_is_gone_on_to_and_what_the_old_one_gains_then_is_read_when_all_is(tmp_path: Path) -> None:
    paths = [tmp_path / "1"]
    paths[0].write_bytes(b"a\n")
    reader = Growing(lambda: paths)
    assert lines(reader) == [b"a"]
    for name in ("2", "3"):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(name.encode() + b"\n")
        assert lines(reader) == [name.encode()]
    append(b"late\n")(paths[0])
    assert lines(reader) == []
    reader.rewind()
    again = blocks(reader)

    assert [block.lines for block in again] == [[b"a", b"late"], [b"2"], [b"3"]]


def test_a_file_that_was_deleted_is_passed_over_unless_it_is_the_last(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"a\n")
    second.write_bytes(b"b\n")
    reader, other = (Growing(lambda: (first, second)) for _ in range(2))
    first.unlink()

    assert [block.lines for block in iter(lambda: reader.poll(0.0), None)] == [[b"b"]]
    second.unlink()
    with pytest.raises(FileNotFoundError):
        other.poll(0.0)


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_offsets_rise_over_all_files(tmp_path: Path, sizes: list[int], seed: int) -> None:
    order, paths = random.Random(seed), [tmp_path / f"part {index}" for index in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"".join(b"%d\n" % order.randrange(10**6) for _ in range(size)))
    reader = Growing(lambda: paths)
    whole = sum(path.stat().st_size for path in paths)
    found = [block for block in [reader.poll(0.0)] if block]
    assert reader.size == whole
    found += blocks(reader)

    assert [block.start for block in found] == sorted(block.start for block in found)
    assert (reader.offset, reader.size) == (whole, whole)
    assert sum(len(block.lines) for block in found) == sum(sizes)
