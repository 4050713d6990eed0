"""Compressed segments."""

import hashlib
import json

import cramjam
import pytest

from klamm_spark.spool.compression import compress, decompress
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import open_segments, sealed_segments
from tests.unit.audit.test_spool import Writer, fail, seals


@pytest.mark.parametrize(("codec", "suffix"), [("none", ".jsonl"), ("zstd", ".zst"), ("gzip", ".gz")])
def test_what_is_compressed_is_decompressed(codec, suffix):
    assert decompress(compress(b"one\ntwo\n", codec), suffix) == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", [".zst", ".gz"])
def test_damaged_data_are_a_value_error(suffix):
    with pytest.raises(ValueError):
        decompress(b"garbage", suffix)


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
