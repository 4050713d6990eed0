"""Faster libraries unpack the same as the general code."""

from __future__ import annotations

import random
import struct
import sys
import threading

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from klamm.wire.compression import Codec, compress, decompress
from klamm.wire.errors import KafkaError
from klamm.wire.scratch import LZ4_END_MARK, LZ4_FRAME_HEADER, SCRATCH_BYTES, Scratch

FAST = {Codec.GZIP: "isal.isal_zlib", Codec.ZSTD: "zstandard"}
TEXT = b"".join(b"%d %x" % (n * n, n * 7919) for n in range(1500))


def streamed(data: bytes, *, write_checksum: bool = False) -> bytes:
    """Return zstd data as producers write it: the frame does not state its size."""
    made = zstandard.ZstdCompressor(write_content_size=False, write_checksum=write_checksum).compressobj()
    return made.compress(data) + made.flush()


def outcome(codec: Codec, data: bytes, scratch: Scratch | None) -> bytes | None:
    try:
        return bytes(decompress(codec, data, scratch=scratch))
    except KafkaError:
        return None


SOUND = {
    "gzip": (Codec.GZIP, compress(Codec.GZIP, TEXT)),
    "zstd": (Codec.ZSTD, compress(Codec.ZSTD, TEXT)),
    "zstd without a size": (Codec.ZSTD, streamed(TEXT)),
    "zstd with a checksum": (Codec.ZSTD, streamed(TEXT, write_checksum=True)),
    "zstd of several blocks": (Codec.ZSTD, streamed(bytes(range(256)) * 500)),
    "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT)),
    "snappy without a frame": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "lz4": (Codec.LZ4, compress(Codec.LZ4, TEXT)),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_whole_frame_is_unpacked_by_the_library(name: str) -> None:
    codec, packed = SOUND[name]
    unpacked = Scratch().unpack(codec.name.lower(), memoryview(packed))

    assert unpacked is not None
    assert unpacked == outcome(codec, packed, None)


@pytest.mark.parametrize("name", SOUND)
def test_other_frames_are_left_to_the_general_code(name: str) -> None:
    codec, packed = SOUND[name]
    scratch = Scratch()
    others = [packed + packed, packed + b"x", b"x" + packed, b"", *(packed[:end] for end in range(0, len(packed), 97))]
    others += [packed[:-n] for n in range(1, 12)]

    for other in others:
        assert scratch.unpack(codec.name.lower(), other) is None
        assert outcome(codec, other, scratch) == outcome(codec, other, None)


@given(st.sampled_from(sorted(SOUND)), st.integers(0, 10_000), st.integers(1, 255))
def test_damage_has_the_same_outcome_with_and_without_a_library(name: str, place: int, change: int) -> None:
    codec, packed = SOUND[name]
    damaged = bytearray(packed)
    damaged[place % len(packed)] ^= change
    unpacked = Scratch().unpack(codec.name.lower(), bytes(damaged))

    if unpacked is not None:
        assert unpacked == outcome(codec, bytes(damaged), None)


@pytest.mark.parametrize("codec", FAST)
def test_data_larger_than_the_scratch_is_decompressed_by_the_general_code(codec: Codec) -> None:
    scratch = Scratch()
    assert scratch.unpack(codec.name.lower(), compress(codec, bytes(SCRATCH_BYTES))) == bytes(SCRATCH_BYTES)

    for size_bytes in (SCRATCH_BYTES + 1, 10 * SCRATCH_BYTES):
        bombs = [compress(codec, bytes(size_bytes))]
        if codec is Codec.ZSTD:
            bombs.append(streamed(bytes(size_bytes)))
        for bomb in bombs:
            assert scratch.unpack(codec.name.lower(), bomb) is None
            assert outcome(codec, bomb, scratch) == bytes(size_bytes)


def test_a_frame_with_a_large_window_is_left_to_the_general_code() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    made = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = made.compress(TEXT) + made.flush()

    assert Scratch().unpack("zstd", packed) is None
    assert outcome(Codec.ZSTD, packed, Scratch()) == TEXT


@pytest.mark.parametrize("codec", FAST)
def test_without_the_library_the_general_code_unpacks(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, FAST[codec], None)
    scratch = Scratch()

    assert scratch.unpack(codec.name.lower(), compress(codec, TEXT)) is None
    assert outcome(codec, compress(codec, TEXT), scratch) == TEXT


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT * 6)),
        (Codec.LZ4, compress(Codec.LZ4, TEXT * 6)),
        (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT * 6))),
        (Codec.LZ4, compress(Codec.LZ4, random.Random(1).randbytes(1000))),
    ],
    ids=["snappy of several blocks", "lz4 of several blocks", "lz4 in another frame", "lz4 that is not packed"],
)
def test_frames_of_another_kind_are_left_to_the_general_code(codec: Codec, packed: bytes) -> None:
    assert Scratch().unpack(codec.name.lower(), packed) is None
    assert outcome(codec, packed, Scratch()) == outcome(codec, packed, None) is not None


@pytest.mark.parametrize("kib", [65, 128, 129, 5000])
def test_a_block_of_lz4_may_not_have_more_than_its_frame_says(kib: int) -> None:
    block = bytes(cramjam.lz4.compress_block(bytes(kib * 1024), store_size=False))
    packed = LZ4_FRAME_HEADER + struct.pack("<I", len(block)) + block + LZ4_END_MARK
    assert outcome(Codec.LZ4, packed, Scratch()) is None
    assert outcome(Codec.LZ4, packed, None) is None


def test_consecutive_members_of_gzip_are_unpacked() -> None:
    packed = bytes(cramjam.gzip.compress(TEXT)) * 2

    assert outcome(Codec.GZIP, packed, Scratch()) == TEXT * 2


def test_threads_decompress_with_their_own_scratch() -> None:
    found: list[bool] = []

    def work() -> None:
        scratch = Scratch()
        found.extend(
            outcome(codec, packed, scratch) == outcome(codec, packed, None) for codec, packed in SOUND.values()
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4 * len(SOUND)
