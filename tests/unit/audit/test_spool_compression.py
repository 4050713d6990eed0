"""Tests of compressed segments."""

import hashlib
import json

import cramjam
import pytest

from klamm_spark.spool.compression import Compressor, LineReader, compress, decompress
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import open_segments, sealed_segments
from tests.unit.audit.test_spool import Writer, fail, seals


@pytest.mark.parametrize(("codec", "suffix"), [("none", ".jsonl"), ("zstd", ".zst"), ("gzip", ".gz")])
def test_compressed_data_is_decompressed(codec, suffix):
    assert decompress(compress(b"one\ntwo\n", codec), suffix) == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", [".zst", ".gz"])
def test_damaged_data_raise_value_error(suffix):
    with pytest.raises(ValueError):
        decompress(b"garbage", suffix)


@pytest.mark.parametrize(("codec", "suffix"), [("none", ".jsonl"), ("zstd", ".zst"), ("gzip", ".gz")])
def test_pieces_are_whole_lines_of_one_segment_after_the_other(codec, suffix):
    reader, short = LineReader(), b"a short line\n"
    for data in (
        short * 100_000,
        b"",
        short,
        b"no end",
        b"x" * 3_000_000 + b"\n" + short * 50_000 + b"no end",
        short * 30_000 + b"y" * 700_000,
    ):
        pieces = list(reader.pieces(compress(data, codec), suffix))
        assert b"".join(pieces) == data
        assert all(piece.endswith(b"\n") for piece in pieces[:-1])
        assert all(len(piece) <= 256 * 1024 or piece.index(b"\n") > 256 * 1024 for piece in pieces[:-1])


@pytest.mark.parametrize(("codec", "suffix"), [("zstd", ".zst"), ("gzip", ".gz")])
def test_the_unpacked_size_of_data_is_limited(codec, suffix):
    data = b"one\n" * 1_000
    assert decompress(compress(data, codec), suffix, len(data)) == data
    reader = LineReader()
    # The memory for a larger one is already allocated.
    assert b"".join(reader.pieces(compress(data * 2, codec), suffix)) == data * 2
    for most_bytes in (len(data) - 1, 1, 0, -5):
        with pytest.raises(ValueError, match=rf"it unpacks to more than {max(1, most_bytes):,} bytes"):
            reader.pieces(compress(data, codec), suffix, most_bytes)


def test_a_few_bytes_do_not_fill_the_memory():
    packed = Compressor("zstd")
    for _ in range(1100):
        packed.add(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"it unpacks to more than 1,073,741,824 bytes"):
        decompress(packed.finish(), ".zst", 1 << 60)


@pytest.mark.parametrize("suffix", [".zst", ".gz"])
def test_a_segment_after_a_damaged_one_is_read(suffix):
    reader = LineReader()
    good = compress(b"one\ntwo\n", "zstd" if suffix == ".zst" else "gzip")
    for damaged in (b"garbage", good[:-5]):
        with pytest.raises(ValueError):
            reader.pieces(damaged, suffix)
        assert list(reader.pieces(good, suffix)) == [b"one\ntwo\n"]


@pytest.mark.parametrize(("codec", "suffix"), [("zstd", ".zst"), ("gzip", ".gz")])
def test_sealed_segments_can_be_compressed(tmp_path, codec, suffix):
    writer = Writer(tmp_path / "n", compression=codec)
    writer.start()
    writer.write(5, padding=1000)
    writer.spool.close()
    (path,) = sealed_segments(writer.folder)
    assert path.name.endswith(".jsonl" + suffix)
    data = bytes(getattr(cramjam, codec).decompress(path.read_bytes()))
    assert [json.loads(line)["seq"] for line in data.splitlines()] == [0, 1, 2, 3, 4]
    assert seals(writer.folder)[0].sha256 == hashlib.sha256(data).hexdigest()


def test_a_crash_after_compressing_leaves_one_copy(tmp_path):
    writer = Writer(tmp_path / "n", compression="zstd")
    writer.start()
    writer.write()
    writer.files.remove = lambda path: fail()
    with pytest.raises(SpoolError):
        writer.spool.close()
    del writer.files.remove
    assert len(open_segments(writer.folder)) == len(sealed_segments(writer.folder)) == 1
    writer.start("11111111")
    assert open_segments(writer.folder) == []
    assert len(sealed_segments(writer.folder)) == 1
