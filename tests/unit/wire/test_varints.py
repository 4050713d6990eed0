"""Tests of unsigned varints at the numbers from which on they take one more byte."""

import pytest

from klamm.wire.primitives import WireError, read_unsigned_varint, write_unsigned_varint

EDGES = [edge + step for bits in (0, 7, 14, 21, 28) for edge in [1 << bits] for step in (-1, 0, 1)]


@pytest.mark.parametrize("value", [*EDGES, 128 << 7, 128 << 14, 128 << 21, 0xFFFFFFFF])
def test_a_number_is_read_back_with_the_next_position(value):
    out = bytearray(b"x")
    write_unsigned_varint(out, value)
    assert len(out) - 1 == max(1, -(-value.bit_length() // 7))
    assert read_unsigned_varint(out + b"\x00", 1) == (value, len(out))


def test_a_number_has_at_most_32_bits():
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (0xFFFFFFFF, 5)
    with pytest.raises(WireError, match="longer than 32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x10", 0)
    with pytest.raises(IndexError):
        read_unsigned_varint(b"\x80\x80", 0)
