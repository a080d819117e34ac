"""Logs in several files, whole documents, and compressed ones, read as what they are."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.readers import follow
from exporter.runs.readers.content import Reader, reader_of
from exporter.runs.readers.follow import BLOCK, Block, Chain, Follower


def blocks(reader: Reader) -> list[Block]:
    """All that there is to read now."""
    found: list[Block] = []
    while (block := reader.poll(0.0)) is not None:
        found.append(block)
        if not block.more:
            break
    return found


def lines(reader: Reader) -> list[bytes]:
    return [line for block in blocks(reader) for line in block.lines]


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


@given(
    written=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"").replace(b"\0", b""))),
    block=st.integers(40, 200),
    ended=st.booleans(),
)
def test_a_compressed_log_holds_the_lines_that_were_compressed(
    tmp_path: Path, written: list[bytes], block: int, *, ended: bool
) -> None:
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"\n".join(written) + (b"\n" if ended and written else b"")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "BLOCK", block)
        found = lines(reader_of("compressed", lambda: [path]))

    assert [line for line in found if line] == [line for line in written if line]


def test_a_compressed_log_is_read_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    reader = reader_of("compressed", lambda: [path])

    assert lines(reader) == [b"one", b"two"]
    assert reader.poll(0.0) is None
    path.write_bytes(gzip.compress(b"three\n"))
    again = blocks(reader)
    assert [block.restarted for block in again] == [True, False]
    assert again[0].lines == [b"three"]


@pytest.mark.parametrize("cut", [3, 12, 40, -5])
def test_a_compressed_log_that_is_cut_off_gives_what_it_has(tmp_path: Path, cut: int) -> None:
    path, whole = tmp_path / "torn.log.gz", b"".join(b"line %d\n" % number for number in range(1000))
    path.write_bytes(gzip.compress(whole)[:cut])
    found = blocks(reader_of("compressed", lambda: [path]))

    assert sum(block.broken for block in found) == 1
    assert whole.startswith(b"\n".join(line for block in found for line in block.lines if line))


def test_a_compressed_log_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for number in range(40):
            file.write((b"%d " % number) * 50_000 + b"\n")
    reader = reader_of("compressed", lambda: [path])

    assert max(block.size for block in blocks(reader)) <= 2 * BLOCK


# chains


def chain(*paths: Path) -> Chain:
    return Chain(lambda: paths, Follower)


def test_a_new_file_is_gone_on_to_and_what_the_old_one_gains_then_is_not_read(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"a\n")
    paths = [first]
    reader = Chain(lambda: paths, Follower)
    assert lines(reader) == [b"a"]
    second.write_bytes(b"b\n")
    paths.append(second)
    assert lines(reader) == [b"b"]
    with first.open("ab") as file:
        file.write(b"late\n")

    assert lines(reader) == []


def test_a_file_that_was_deleted_is_passed_over_unless_it_is_the_last(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    second.write_bytes(b"b\n")

    assert lines(chain(first, second)) == [b"b"]
    second.unlink()
    with pytest.raises(FileNotFoundError):
        chain(first, second).poll(0.0)


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_offsets_rise_over_all_files(tmp_path: Path, sizes: list[int], seed: int) -> None:
    order, paths = random.Random(seed), [tmp_path / f"part {index}" for index in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"".join(b"%d\n" % order.randrange(10**6) for _ in range(size)))
    reader = chain(*paths)
    found = blocks(reader)

    assert [block.start for block in found] == sorted(block.start for block in found)
    assert reader.offset == sum(path.stat().st_size for path in paths)
    assert sum(len(block.lines) for block in found) == sum(sizes)
