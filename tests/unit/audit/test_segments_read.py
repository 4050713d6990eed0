"""Tests of the segments of a spool as readers read them: open, sealed and compressed ones."""

import gzip

import cramjam
import pytest

from klamm_spark.spool.layout import SegmentName
from klamm_spark.spool.reader import read_segment, segments_of

BOOT = "019b8ff8d000c0ffee00"


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "node-1"
    folder.mkdir()
    return folder


def name(first_seq, suffix):
    return f"{SegmentName(BOOT, first_seq).stem}{suffix}"


def test_each_segment_is_read_once_and_in_order(node):
    (node / "2026-01-01").mkdir()
    for path in (name(1, ".open"), name(0, ".jsonl.zst"), f"2026-01-01/{name(1, '.jsonl')}", name(0, ".seal")):
        (node / path).write_bytes(b"")
    (node / name(2, ".open.unreadable")).write_bytes(b"")
    (node / name(3, ".open")).write_bytes(b"")
    there = segments_of(node)
    assert [path.name for path in there.values()] == [name(0, ".jsonl.zst"), name(1, ".jsonl"), name(3, ".open")]
    assert list(there) == [SegmentName(BOOT, seq).stem for seq in (0, 1, 3)]
    assert [path.name for path in segments_of(node, live=False).values()] == [name(0, ".jsonl.zst"), name(1, ".jsonl")]


def test_a_torn_last_line_is_left_out(node):
    path = node / name(0, ".open")
    path.write_bytes(b"one\ntwo\nthr")
    assert read_segment(path) == b"one\ntwo\n"
    path.write_bytes(b"o")
    assert read_segment(path) == b""


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".jsonl", bytes), (".jsonl.gz", gzip.compress), (".jsonl.zst", lambda data: bytes(cramjam.zstd.compress(data)))],
)
def test_a_segment_that_is_sealed_after_it_was_listed_is_read(node, suffix, pack):
    (node / "2026-01-01").mkdir()
    (node / "2026-01-01" / name(0, suffix)).write_bytes(pack(b"one\ntwo\n"))
    assert read_segment(node / name(0, ".open")) == b"one\ntwo\n"


def test_a_missing_or_damaged_segment_is_an_error(node):
    for suffix in (".open", ".jsonl.zst"):
        with pytest.raises(FileNotFoundError):
            read_segment(node / name(0, suffix))
    damaged = node / name(0, ".jsonl.zst")
    damaged.write_bytes(b"no zstd")
    with pytest.raises(ValueError, match=damaged.name):
        read_segment(damaged)
